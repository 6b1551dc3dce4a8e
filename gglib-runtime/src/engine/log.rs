//! The last lines of an engine's log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Lines that are kept.
const LINES: usize = 200;
/// Longest line, in bytes; the rest of a longer one is dropped.
const LINE: usize = 1024;

/// A bounded ring of log lines that one task fills and errors quote; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogRing(Arc<Mutex<Ring>>);

#[derive(Debug)]
struct Ring {
    lines: VecDeque<String>,
    last_output: Instant,
}

impl LogRing {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Ring { lines: VecDeque::new(), last_output: Instant::now() })))
    }

    /// The last `n` lines, oldest first.
    pub(crate) fn tail(&self, n: usize) -> Vec<String> {
        let lines = &self.ring().lines;
        lines.iter().skip(lines.len().saturating_sub(n)).cloned().collect()
    }

    /// When the engine last wrote anything: one that does is at work. Not only whole lines count, since the
    /// progress of a long load is a row of dots.
    pub(super) fn last_output(&self) -> Instant {
        self.ring().last_output
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
            self.ring().last_output = Instant::now();
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
        let lines = &mut self.ring().lines;
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;

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
    }

    #[tokio::test]
    async fn neither_many_lines_nor_a_long_one_grow_without_bound() {
        let mut text = "x\n".repeat(LINES + 50).into_bytes();
        text.extend(vec![b'y'; 10 * LINE]);
        let ring = filled(&text).await;
        assert_eq!(ring.tail(usize::MAX).len(), LINES);
        assert_eq!(ring.tail(1)[0].len(), LINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dot_without_a_line_end_is_output() {
        let (mut engine, output) = tokio::io::duplex(64);
        let ring = LogRing::new();
        let began = ring.last_output();
        tokio::spawn(ring.clone().fill_from(output));
        for second in 1..=3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            engine.write_all(b".").await.unwrap();
            tokio::task::yield_now().await;
            assert_eq!(ring.last_output() - began, Duration::from_secs(second));
        }
        assert!(ring.tail(1).is_empty());
    }
}
