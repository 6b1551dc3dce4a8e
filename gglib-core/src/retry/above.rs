//! Attempts that the layers above have made already.

use http::HeaderMap;

/// The header in which gglib's clients number their attempts, counted from 1.
pub const ATTEMPT_HEADER: &str = "x-gglib-attempt";

/// The header in which OpenAI's and Anthropic's clients count their retries, from 0.
const STAINLESS_RETRY_COUNT: &str = "x-stainless-retry-count";

/// How often the layers above say that they have repeated a request before it came here.
///
/// Retries of nested layers multiply: 4 attempts at each of 3 layers are 64 at the bottom (Google's book on site
/// reliability engineering, chapter "Addressing Cascading Failures"). A layer that is told the number can show it,
/// and [charge](super::RetryBudget::charge) what is a retry as one. The client controls the header, so that the
/// number is capped, and nothing but statistics and budgets depends on it.
///
/// ```
/// use gglib_core::retry::{ATTEMPT_HEADER, RetriesAbove};
/// use http::{HeaderMap, HeaderValue};
///
/// let mut headers = HeaderMap::new();
/// assert!(!RetriesAbove::parse(&headers).is_retry());
/// headers.insert(ATTEMPT_HEADER, HeaderValue::from_static("3"));
/// assert_eq!(RetriesAbove::parse(&headers).count(), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetriesAbove(u32);

impl RetriesAbove {
    /// The largest number that is believed.
    pub const MAX: u32 = 16;

    /// Nobody has tried before.
    pub const NONE: Self = Self(0);

    /// Reads `x-gglib-attempt` and `x-stainless-retry-count`, and adds them up: they are of different layers.
    ///
    /// Of several values of one header the largest counts; one that is no whole number counts as absent.
    pub fn parse(headers: &HeaderMap) -> Self {
        let own = largest(headers, ATTEMPT_HEADER).saturating_sub(1);
        let sdk = largest(headers, STAINLESS_RETRY_COUNT);
        Self(own.saturating_add(sdk).min(Self::MAX))
    }

    /// The number, at most [`MAX`](Self::MAX).
    pub const fn count(self) -> u32 {
        self.0
    }

    /// Whether the request is somebody's retry.
    pub const fn is_retry(self) -> bool {
        self.0 > 0
    }
}

fn largest(headers: &HeaderMap, name: &str) -> u32 {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.filter_map(number).max().unwrap_or(0)
}

/// Digits only; a number beyond `u32` is the largest.
fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    let is_whole = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    is_whole.then(|| text.parse().unwrap_or(u32::MAX))
}
