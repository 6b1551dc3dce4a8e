//! As much of HTTP/1.1 as llama-server speaks, with its headers.

/// A request that arrived whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// What follows the question mark.
    pub(crate) query: String,
    /// The client asks for the connection to be closed.
    pub(crate) closes: bool,
    /// The bearer token.
    pub(crate) key: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Takes the first request out of `buffer`, if it is there whole. Bodies need a `content-length`.
    pub(crate) fn take(buffer: &mut Vec<u8>) -> Option<Self> {
        let head_end = buffer.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let header = |name: &str| {
            let mut fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
            fields
                .find(|(field, _)| field.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim().to_owned())
        };
        let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
        let body_start = head_end + 4;
        if buffer.len() < body_start + length {
            return None;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            closes: header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
            key: header("authorization")
                .and_then(|value| value.strip_prefix("Bearer ").map(ToOwned::to_owned)),
            body: buffer[body_start..body_start + length].to_vec(),
        };
        buffer.drain(..body_start + length);
        Some(request)
    }
}

/// An answer that is sent in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self { status: 200, body: body.into() }
    }

    /// A recorded error; its status is the `code` in it.
    pub(crate) fn error(recorded: &str) -> Self {
        let json: serde_json::Value = serde_json::from_str(recorded).expect("recordings are JSON");
        let status = json["error"]["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        Self { status: status.expect("recorded errors have a code"), body: recorded.to_owned() }
    }

    /// What the engine says when its backend has failed, or with another status.
    pub(crate) fn failure(status: u16) -> Self {
        let error =
            serde_json::json!({ "code": status, "message": "Compute error.", "type": "server_error" });
        Self { status, body: serde_json::json!({ "error": error }).to_string() }
    }

    /// The engine closes the connection after every error, and after 100 answers.
    pub(crate) fn closes(&self) -> bool {
        self.status >= 400
    }

    pub(crate) fn bytes(&self, connection: &str) -> Vec<u8> {
        let (status, reason, length) = (self.status, reason(self.status), self.body.len());
        format!(
            "HTTP/1.1 {status} {reason}\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n\
             Content-Type: application/json; charset=utf-8\r\nContent-Length: {length}\r\n{connection}\r\n\r\n{}",
            self.body
        )
        .into_bytes()
    }
}

/// The head of a stream.
pub(crate) fn stream_head(connection: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\nX-Accel-Buffering: no\r\n\
         Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{connection}\r\n\r\n"
    )
    .into_bytes()
}

/// One piece of a chunked body (RFC 9112 section 7.1).
pub(crate) fn chunk(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

/// The end of a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_only_when_whole_and_leaves_the_next() {
        let whole: &[u8] = b"POST /v1/x?y=1 HTTP/1.1\r\nContent-LENGTH: 3\r\nConnection: close\r\n\
            authorization: Bearer k\r\n\r\nabcGET";
        for cut in 0..whole.len() - 3 {
            assert_eq!(Request::take(&mut whole[..cut].to_vec()), None, "{cut}");
        }
        let mut buffer = whole.to_vec();
        let request = Request {
            method: "POST".into(),
            path: "/v1/x".into(),
            query: "y=1".into(),
            closes: true,
            key: Some("k".into()),
            body: b"abc".into(),
        };
        assert_eq!((Request::take(&mut buffer), buffer.as_slice()), (Some(request), &b"GET"[..]));
    }
}
