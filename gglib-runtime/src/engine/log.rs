//! The last lines of an engine's log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// Lines that are kept.
const LINES: usize = 200;
/// Longest line, in bytes; the rest of a longer one is dropped.
const LINE: usize = 1024;

/// A bounded ring of log lines that one task fills and errors quote; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogRing {
    lines: Arc<Mutex<VecDeque<String>>>,
    count: Arc<watch::Sender<u64>>,
}

impl LogRing {
    pub(super) fn new() -> Self {
        Self { lines: Arc::default(), count: Arc::new(watch::Sender::new(0)) }
    }

    /// The last `n` lines, oldest first.
    pub(crate) fn tail(&self, n: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().skip(lines.len().saturating_sub(n)).cloned().collect()
    }

    /// Changes with each line: an engine that logs is at work.
    pub(super) fn activity(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// Reads until the end of `output`.
    pub(super) async fn fill_from(self, mut output: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 4096];
        let mut line = Vec::new();
        loop {
            // An unreadable pipe is a closed one: the process's end is reported elsewhere.
            let read = output.read(&mut chunk).await.unwrap_or(0);
            if read == 0 {
                break;
            }
            for &byte in &chunk[..read] {
                if byte == b'\n' {
                    self.push(&line);
                    line.clear();
                } else if line.len() < LINE {
                    line.push(byte);
                }
            }
        }
        if !line.is_empty() {
            self.push(&line);
        }
    }

    fn push(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line).trim_end().to_owned();
        tracing::debug!(target: "gglib::engine", "{line}");
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
        drop(lines);
        self.count.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn filled(text: &[u8]) -> LogRing {
        let ring = LogRing::new();
        ring.clone().fill_from(text).await;
        ring
    }

    #[tokio::test]
    async fn the_last_lines_are_kept_also_an_unfinished_one() {
        let ring = filled(b"one\r\ntwo\nthr\xffee").await;
        assert_eq!(ring.tail(2), ["two", "thr\u{fffd}ee"]);
        assert_eq!(ring.tail(9).len(), 3);
        assert_eq!(*ring.activity().borrow(), 3);
    }

    #[tokio::test]
    async fn neither_many_lines_nor_a_long_one_grow_without_bound() {
        let mut text = "x\n".repeat(LINES + 50).into_bytes();
        text.extend(vec![b'y'; 10 * LINE]);
        let ring = filled(&text).await;
        assert_eq!(ring.tail(usize::MAX).len(), LINES);
        assert_eq!(ring.tail(1)[0].len(), LINE);
    }
}
