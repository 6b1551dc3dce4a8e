//! The listening socket, and the connections that come in on it.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::serve::{Listener, ListenerExt};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::app::App;
use crate::connection::{Connection, Outlet};
use crate::open_files;
use crate::routes;

/// Longest time from a connection's start, or from its last answer, to the whole head of the next request.
///
/// Ends what never sends one. A little above the 90 s after which widespread clients give up their own idle
/// connections: closing earlier than they do would now and then hit a request that is on its way.
const HEAD: Duration = Duration::from_secs(100);

/// Serves `app` on `listener` until `shutdown` resolves and every connection has ended.
///
/// # Errors
/// When `listener` does not listen.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "listening");
    let listener = listener.tap_io(|connection| {
        // Nagle's algorithm holds small chunks of a stream back for 40 ms.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    serve_on(listener, app, shutdown).await;
    Ok(())
}

/// Like [`serve`], on whatever connections `listener` brings.
///
/// A client that takes nothing of its answer for `timeouts.idle` is disconnected. Connections beyond half of the files that
/// the process may open wait to be accepted.
pub async fn serve_on(mut listener: impl Listener, app: App, shutdown: impl Future<Output = ()> + Send) {
    let router = routes::router(app.clone());
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connections = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(open_files::connections()));
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = Arc::clone(&room).acquire_owned().await.ok();
            (listener.accept().await.0, place)
        };
        let (io, place) = tokio::select! {
            (io, place) = accepted => (Connection::new(io, app.current().settings.timeouts.idle), place),
            () = &mut shutdown => break,
        };
        let (router, outlet) = (router.clone(), io.outlet());
        let answer = service_fn(move |request| answer(router.clone(), outlet.clone(), request));
        let connection = connections.watch(protocol.serve_connection(TokioIo::new(io), answer));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn answer(
    mut router: Router,
    outlet: Outlet,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(outlet);
    router.call(request).await
}
