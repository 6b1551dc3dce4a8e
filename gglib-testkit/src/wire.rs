//! A client that sees every byte: HTTP/1.1 by hand, over whatever carries bytes.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// One connection. Its reader knows whether a body came to its end or was cut off.
#[derive(Debug)]
pub struct Wire<S> {
    stream: S,
    unread: Vec<u8>,
    framing: Framing,
    /// How long it waits for bytes.
    bound: Option<Duration>,
}

/// How the body that comes next is delimited.
#[derive(Debug, Clone, Copy)]
enum Framing {
    Chunked,
    /// Bytes that are still to come.
    Length(usize),
}

/// The head of a response.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// The headers in their order, names in lower case.
    pub headers: Vec<(String, String)>,
}

/// What comes next of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A chunk of a chunked body, or a part of another.
    Data(String),
    /// The body's end, as HTTP marks it.
    End,
    /// The connection ended before.
    Cut,
}

/// A whole response.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its head.
    pub head: Head,
    /// Its body, without the framing.
    pub body: String,
    /// How the body ended: [`Piece::End`] or [`Piece::Cut`].
    pub end: Piece,
}

/// A `POST` of `body` as JSON.
pub fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: gglib\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// A client on `stream`, which waits for ever.
    pub fn new(stream: S) -> Self {
        Self { stream, unread: Vec::new(), framing: Framing::Length(0), bound: None }
    }

    /// The same, but it panics when no byte comes for `bound`. That is time of tokio's clock, so not for one that is paused:
    /// nothing but the wait itself would make it go on.
    #[must_use]
    pub fn within(self, bound: Duration) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the endpoint takes the request");
    }

    /// Sends a request and waits for the whole response.
    pub async fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request).await;
        self.answer().await
    }

    /// The head of the next response; interim responses (1xx) are passed over. `None` when the connection ends
    /// instead.
    pub async fn head(&mut self) -> Option<Head> {
        loop {
            while find(&self.unread, b"\r\n\r\n").is_none() {
                if !self.read().await {
                    return None;
                }
            }
            let end = find(&self.unread, b"\r\n\r\n")?;
            let text: Vec<u8> = self.unread.drain(..end + 4).collect();
            let head = Head::parse(&String::from_utf8_lossy(&text));
            if head.status >= 200 {
                self.framing = match head.header("content-length") {
                    Some(length) => Framing::Length(length.parse().expect("a length is a number")),
                    None => Framing::Chunked,
                };
                return Some(head);
            }
        }
    }

    /// What comes next of the body.
    pub async fn piece(&mut self) -> Piece {
        match self.framing {
            Framing::Length(0) => Piece::End,
            Framing::Length(length) => {
                if self.unread.is_empty() && !self.read().await {
                    return Piece::Cut;
                }
                let taken = length.min(self.unread.len());
                self.framing = Framing::Length(length - taken);
                Piece::Data(self.take(taken))
            }
            Framing::Chunked => self.chunk().await,
        }
    }

    /// The rest of the body and how it ended.
    pub async fn rest(&mut self) -> (String, Piece) {
        let mut body = String::new();
        loop {
            match self.piece().await {
                Piece::Data(data) => body += &data,
                end => return (body, end),
            }
        }
    }

    /// Reads the body until `text` has come, and returns it so far.
    pub async fn until(&mut self, text: &str) -> String {
        let mut body = String::new();
        while !body.contains(text) {
            match self.piece().await {
                Piece::Data(data) => body += &data,
                end => panic!("{end:?} instead of {text:?} after {body:?}"),
            }
        }
        body
    }

    /// The next response, whole.
    pub async fn answer(&mut self) -> Answer {
        let head = self.head().await.expect("the endpoint answers");
        let (body, end) = self.rest().await;
        Answer { head, body, end }
    }

    /// RFC 9112 §7.1.
    async fn chunk(&mut self) -> Piece {
        let size = loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let line = self.take(end + 2);
                break usize::from_str_radix(line.trim_end(), 16).expect("a chunk begins with its size");
            }
            if !self.read().await {
                return Piece::Cut;
            }
        };
        while self.unread.len() < size + 2 {
            if !self.read().await {
                return Piece::Cut;
            }
        }
        let data = self.take(size);
        assert_eq!(self.take(2), "\r\n", "a chunk ends with a line end");
        if size == 0 { Piece::End } else { Piece::Data(data) }
    }

    fn take(&mut self, length: usize) -> String {
        let taken: Vec<u8> = self.unread.drain(..length).collect();
        String::from_utf8(taken).expect("what gglib sends is UTF-8, and its chunks are whole events")
    }

    /// Reads more; false when the connection has ended, in good order or not.
    async fn read(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.unread);
        let read = match self.bound {
            Some(bound) => timeout(bound, read).await.unwrap_or_else(|_| panic!("no byte came in {bound:?}")),
            None => read.await,
        };
        read.is_ok_and(|read| read > 0)
    }
}

impl Head {
    /// The value of the header called `name`, in lower case; the first if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Self {
            status: status.expect("a response begins with its status"),
            headers: lines.filter_map(header).collect(),
        }
    }
}

impl Answer {
    /// The payloads of the events of a stream, `[DONE]` included.
    pub fn data(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }

    /// The comments of a stream.
    pub fn comments(&self) -> Vec<&str> {
        self.body.lines().filter(|line| line.starts_with(':')).collect()
    }

    /// The text of a chat answer, streamed or plain.
    pub fn content(&self) -> String {
        if self.head.header("content-type") == Some("text/event-stream") {
            let chunks = self.data().into_iter().filter_map(|data| serde_json::from_str::<Value>(data).ok());
            return chunks
                .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
                .collect();
        }
        self.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The error object: of the body, or of a stream's last event.
    pub fn error(&self) -> Value {
        let text = self.data().pop().unwrap_or(&self.body).to_owned();
        let mut body: Value = serde_json::from_str(&text).unwrap_or_default();
        body["error"].take()
    }
}

fn find(bytes: &[u8], sought: &[u8]) -> Option<usize> {
    bytes.windows(sought.len()).position(|window| window == sought)
}
