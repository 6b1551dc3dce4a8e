//! A server that reads whole requests off raw connections and answers from a script.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
pub(crate) enum Reply {
    /// Writes these bytes and waits for the connection's next request.
    Keep(String),
    /// Writes these bytes and closes the connection.
    Close(String),
    /// Resets the connection.
    Reset,
}

/// One request that has come in whole.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    /// On which connection, counted from 0.
    pub(crate) connection: usize,
    /// Head and body.
    pub(crate) text: String,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    hits: Arc<Mutex<Vec<Hit>>>,
}

impl Server {
    /// A server that asks `reply`, which is told how many requests came before on the same connection.
    pub(crate) async fn start(reply: fn(usize) -> Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hits = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(accept(listener, Arc::clone(&hits), reply));
        Self { address, hits }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn hits(&self) -> Vec<Hit> {
        self.hits.lock().unwrap().clone()
    }
}

/// A response of `status` with headers and a body of its stated length.
pub(crate) fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

async fn accept(listener: TcpListener, hits: Arc<Mutex<Vec<Hit>>>, reply: fn(usize) -> Reply) {
    for connection in 0.. {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(serve(stream, connection, Arc::clone(&hits), reply));
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    hits: Arc<Mutex<Vec<Hit>>>,
    reply: fn(usize) -> Reply,
) {
    let mut before = 0;
    while let Some(text) = request(&mut stream).await {
        hits.lock().unwrap().push(Hit { connection, text });
        match reply(before) {
            Reply::Keep(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            Reply::Close(bytes) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                return;
            }
            Reply::Reset => {
                stream.set_zero_linger().unwrap();
                return;
            }
        }
        before += 1;
    }
}

/// The next request of the connection; `None` when the client has closed it.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    loop {
        if stream.read_buf(&mut text).await.ok()? == 0 {
            return None;
        }
        let text = str::from_utf8(&text).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Some(text.to_owned());
        }
    }
}
