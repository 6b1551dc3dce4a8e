//! The listening socket.

use std::io;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;

use crate::app::App;
use crate::routes;

/// Serves `app` on `listener` until `shutdown` resolves and every connection has ended.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = listener.tap_io(|connection| {
        // Nagle's algorithm holds small chunks of a stream back for 40 ms.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    axum::serve(listener, routes::router(app)).with_graceful_shutdown(shutdown).await
}
