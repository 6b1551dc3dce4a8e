//! The hint: a server's wish for the time of the next attempt, read from headers and written into them.

mod date;
mod places;

use std::time::Duration;

use http::HeaderMap;
use http::header::{AsHeaderName, RETRY_AFTER};

pub use places::Places;

use super::decimal;
use super::policy::RetryPolicy;

/// The header in which OpenAI's and Anthropic's services, and their clients, speak of milliseconds.
const RETRY_AFTER_MS: &str = "retry-after-ms";

const SECOND: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);

/// The delay that response headers ask for, if they do so legibly.
///
/// `unix_now` is the wall-clock time in seconds since 1970; only dates are compared with it. What is read:
///
/// * `retry-after-ms`: milliseconds. If legible it wins, being the finer of the two.
/// * `Retry-After` (RFC 9110 §10.2.3): seconds, for which a fraction is accepted as several clients do, or a
///   date in any of the three forms of RFC 9110 §5.6.7. A date that has passed is a delay of zero.
///
/// Of several values of one header the largest counts: it satisfies them all. A value that is illegible
/// (negative, not a number, a weekday that contradicts its date, not even text) counts as absent, and one too
/// large for a [`Duration`] as [`Duration::MAX`]. Whether the response may be retried at all is not looked at.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::hint;
/// use http::{HeaderMap, HeaderValue, header::RETRY_AFTER};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(RETRY_AFTER, HeaderValue::from_static("Fri, 29 Sep 2023 16:26:57 GMT"));
/// assert_eq!(hint::parse(&headers, 1_696_004_797), Some(Duration::from_secs(20)));
///
/// headers.insert("retry-after-ms", HeaderValue::from_static("250"));
/// assert_eq!(hint::parse(&headers, 1_696_004_797), Some(Duration::from_millis(250)));
///
/// headers.clear();
/// headers.insert(RETRY_AFTER, HeaderValue::from_static("soon"));
/// assert_eq!(hint::parse(&headers, 1_696_004_797), None);
/// ```
pub fn parse(headers: &HeaderMap, unix_now: u64) -> Option<Duration> {
    let milliseconds = |text: &str| decimal::parse(text, Duration::from_millis(1));
    let seconds_or_date = |text: &str| {
        decimal::parse(text, SECOND).or_else(|| {
            let at = date::parse(text, unix_now)?;
            Some(Duration::from_secs(at.saturating_sub(unix_now)))
        })
    };
    largest(headers, RETRY_AFTER_MS, milliseconds).or_else(|| largest(headers, RETRY_AFTER, seconds_or_date))
}

fn largest(
    headers: &HeaderMap,
    name: impl AsHeaderName,
    read: impl Fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    headers.get_all(name).iter().filter_map(|value| read(value.to_str().ok()?.trim())).max()
}

/// The delay that a server writes into `Retry-After`: whole seconds, at least 1 and at most 60.
///
/// Whole seconds, because RFC 9110 §10.2.3 has no others. At least one, because "at once" would make a hot loop. At most
/// 60, because there are clients that take a longer hint for none, and then come back at once.
///
/// `estimate` is when the server expects to be ready for this client, from live facts such as the length of its queue;
/// it is rounded up, as a client that came back early would be refused again. Where many are refused at once, take it
/// from [`Places`], so that they do not all come back at once. A server that cannot tell asks for `max_backoff`.
///
/// A client that [decides](super::decide) by the same policy, with [`HintRule::Floor`](super::HintRule::Floor),
/// returns no earlier than a hint up to `max_backoff`, and no later than `initial_backoff` after it. A longer
/// hint it cuts to `max_backoff`.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::{RetryPolicy, hint};
///
/// let policy = RetryPolicy::default();
/// assert_eq!(hint::advertise(&policy, Some(Duration::from_millis(2_100))), Duration::from_secs(3));
/// assert_eq!(hint::advertise(&policy, Some(Duration::ZERO)), Duration::from_secs(1));
/// assert_eq!(hint::advertise(&policy, Some(Duration::from_secs(600))), Duration::from_secs(60));
/// assert_eq!(hint::advertise(&policy, None), policy.max_backoff);
/// ```
pub fn advertise(policy: &RetryPolicy, estimate: Option<Duration>) -> Duration {
    let delay = estimate.unwrap_or(policy.max_backoff).clamp(SECOND, LONGEST);
    Duration::from_secs(delay.as_secs() + u64::from(delay.subsec_nanos() > 0))
}
