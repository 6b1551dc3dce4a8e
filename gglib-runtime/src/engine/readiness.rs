//! When a launched engine is ready, and when it is given up.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use gglib_core::ports::{Phase, Upstream, UpstreamError};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use rustix::io::Errno;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::log::LogRing;

/// Between two questions. A swap's latency has this grain.
const POLL: Duration = Duration::from_millis(25);
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a load may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// In silence.
    pub(super) stall: Duration,
    /// In any case.
    pub(super) limit: Duration,
}

/// Why an engine did not become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotReady {
    /// Nothing on its log and no change of health for this long.
    Stalled(Duration),
    /// Still not ready after this long.
    OverLimit(Duration),
    /// Somebody else listens at the engine's address.
    Impostor,
}

/// What one look at the engine has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Ready,
    /// With the status of its health, if it has any.
    NotYet(Option<StatusCode>),
    Impostor,
}

/// Polls until `/health` answers 200. The process's end is watched by the caller.
///
/// `keyless` is the same engine asked without its key, where it has one: a listener that takes requests
/// without it is not the engine that we gave it to.
pub(super) async fn wait_until_ready(
    upstream: &dyn Upstream,
    keyless: Option<&dyn Upstream>,
    log: &LogRing,
    bounds: Bounds,
) -> Result<(), NotReady> {
    let Bounds { stall, limit } = bounds;
    let started = Instant::now();
    let mut changed = started;
    let mut last = None;
    let mut looks = pin!(looks(upstream, keyless));
    loop {
        let patience = stall.saturating_sub(changed.max(log.last_output()).elapsed());
        let left = limit.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(NotReady::OverLimit(limit));
        }
        if patience.is_zero() {
            return Err(NotReady::Stalled(stall));
        }
        // An unanswered look goes on in the next round: the log may have granted more patience meanwhile.
        match timeout(patience.min(left), looks.next()).await {
            Ok(Some(Look::Ready)) => return Ok(()),
            Ok(Some(Look::Impostor)) => return Err(NotReady::Impostor),
            Ok(Some(Look::NotYet(health))) if health != last => {
                last = health;
                changed = Instant::now();
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Whether the engine answers its health probe within `limit`. One that cannot be asked for want of something of our own is
/// not known to be ill.
pub(super) async fn is_healthy(upstream: &dyn Upstream, limit: Duration) -> bool {
    match timeout(limit, ask(upstream, "/health")).await {
        Ok(Ok(status)) => status == StatusCode::OK,
        Ok(Err(error)) => is_our_shortage(&error),
        Err(_) => false,
    }
}

/// Whether the engine fails at the smallest piece of work, a token after a token. One that refuses it, as an engine for
/// embeddings does, or is too busy for it within `limit`, is not known to fail.
pub(super) async fn fails_at_work(upstream: &dyn Upstream, limit: Duration) -> bool {
    const WORK: &[u8] = br#"{"prompt":"1","n_predict":1,"cache_prompt":false}"#;
    let Ok(request) =
        Request::post("/completion").header(CONTENT_TYPE, "application/json").body(Bytes::from_static(WORK))
    else {
        return false;
    };
    match timeout(limit, upstream.send(request)).await {
        Ok(Ok(response)) => response.status() == StatusCode::INTERNAL_SERVER_ERROR,
        Ok(Err(error)) => !is_our_shortage(&error),
        Err(_) => false,
    }
}

/// One look after the other, for ever.
fn looks<'a>(upstream: &'a dyn Upstream, keyless: Option<&'a dyn Upstream>) -> impl Stream<Item = Look> + 'a {
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold(ticks, move |mut ticks| async move {
        ticks.tick().await;
        Some((look(upstream, keyless).await, ticks))
    })
}

async fn look(upstream: &dyn Upstream, keyless: Option<&dyn Upstream>) -> Look {
    let health = status(upstream, "/health").await;
    if health != Some(StatusCode::OK) {
        return Look::NotYet(health);
    }
    let Some(keyless) = keyless else { return Look::Ready };
    match (status(keyless, "/props").await, status(upstream, "/props").await) {
        (Some(StatusCode::UNAUTHORIZED), Some(StatusCode::OK)) => Look::Ready,
        (None, _) | (_, None) => Look::NotYet(health),
        _ => Look::Impostor,
    }
}

async fn status(upstream: &dyn Upstream, path: &'static str) -> Option<StatusCode> {
    timeout(ANSWER, ask(upstream, path)).await.ok()?.ok()
}

async fn ask(upstream: &dyn Upstream, path: &'static str) -> Result<StatusCode, UpstreamError> {
    let request = Request::get(path).body(Bytes::new());
    let request = request.map_err(|error| UpstreamError::new(Phase::Connect, error))?;
    upstream.send(request).await.map(|response| response.status())
}

/// Whether a connection failed for want of files or memory here, which says nothing of the engine. A full backlog (EAGAIN,
/// unix(7)) does: it is the engine that does not accept.
fn is_our_shortage(error: &UpstreamError) -> bool {
    const OURS: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .filter_map(Errno::from_io_error)
        .any(|code| OURS.contains(&code))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use gglib_core::ports::{BoxFuture, ByteStream};
    use http::Response;
    use tokio::io::AsyncWriteExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Answers by path and time since the start: a status, 0 for a refused connection, none for silence.
    struct Scripted<F>(Instant, F);

    impl<F: Fn(&str, Duration) -> Option<u16> + Send + Sync> Upstream for Scripted<F> {
        fn send(
            &self,
            request: Request<Bytes>,
        ) -> BoxFuture<'_, Result<Response<ByteStream>, UpstreamError>> {
            Box::pin(async move {
                match self.1(request.uri().path(), self.0.elapsed()) {
                    None => pending().await,
                    Some(0) => Err(UpstreamError::new(Phase::Connect, "refused")),
                    Some(status) => {
                        let body: ByteStream = Box::pin(stream::empty());
                        Ok(Response::builder().status(status).body(body).unwrap())
                    }
                }
            })
        }
    }

    /// The outcome with a stall of 10 s and a limit of 60 s, and when it came.
    async fn outcome(
        engine: impl Fn(&str, Duration) -> Option<u16> + Send + Sync,
        keyless: Option<fn(&str, Duration) -> Option<u16>>,
        log: &LogRing,
    ) -> (Result<(), NotReady>, Duration) {
        let start = Instant::now();
        let keyless = keyless.map(|answer| Scripted(start, answer));
        let bounds = Bounds { stall: 10 * SECOND, limit: 60 * SECOND };
        let keyless = keyless.as_ref().map(|keyless| keyless as &dyn Upstream);
        let outcome = wait_until_ready(&Scripted(start, engine), keyless, log, bounds).await;
        (outcome, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_is_found_ready_within_fifty_milliseconds() {
        for ready_after in (0..200).map(|step| Duration::from_millis(7 * step)) {
            let engine = |_: &str, elapsed| match elapsed {
                elapsed if elapsed < SECOND / 2 => Some(0),
                elapsed if elapsed < ready_after => Some(503),
                _ => Some(200),
            };
            let (ready, found) = outcome(engine, None, &LogRing::new()).await;
            assert_eq!(ready, Ok(()));
            let ready_after = ready_after.max(SECOND / 2);
            assert!(found <= ready_after + Duration::from_millis(50), "{found:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_a_stall_at_its_bound_also_in_the_middle_of_a_question() {
        let (silent, after) = outcome(|_, _| None, None, &LogRing::new()).await;
        assert_eq!((silent, after), (Err(NotReady::Stalled(10 * SECOND)), 10 * SECOND));
        // The change from "no connection" to "loading" is the last sign of life.
        let engine = |_: &str, elapsed| Some(if elapsed < 3 * SECOND { 0 } else { 503 });
        let (stalled, after) = outcome(engine, None, &LogRing::new()).await;
        assert_eq!((stalled, after), (Err(NotReady::Stalled(10 * SECOND)), 13 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn output_keeps_a_load_alive_up_to_the_limit_and_no_longer() {
        let (mut engine, output) = tokio::io::duplex(64);
        let log = LogRing::new();
        tokio::spawn(log.clone().fill_from(output));
        tokio::spawn(async move {
            let mut dots = interval(9 * SECOND);
            while engine.write_all(b".").await.is_ok() {
                dots.tick().await;
            }
        });
        for (answer, ready_after) in [(None, None), (Some(503), None), (Some(503), Some(55 * SECOND))] {
            let engine = |_: &str, elapsed| match ready_after {
                Some(ready_after) if elapsed >= ready_after => Some(200),
                _ => answer,
            };
            let (ready, after) = outcome(engine, None, &log).await;
            let expected = match ready_after {
                Some(ready_after) => (Ok(()), ready_after),
                None => (Err(NotReady::OverLimit(60 * SECOND)), 60 * SECOND),
            };
            assert_eq!((ready, after), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_wants_the_key_and_knows_it_is_ours() {
        let open = |_: &str, _| Some(200);
        let locked = |path: &str, _| Some(if path == "/health" { 200 } else { 401 });
        let log = &LogRing::new();
        // A server of somebody's that answers everything, and an engine of somebody's with another key.
        assert_eq!(outcome(open, Some(open), log).await.0, Err(NotReady::Impostor));
        assert_eq!(outcome(locked, Some(locked), log).await.0, Err(NotReady::Impostor));
        assert_eq!(outcome(open, Some(locked), log).await.0, Ok(()));
        // No answer is no proof of anything.
        let late = |path: &str, elapsed| match path {
            "/props" if elapsed < 7 * SECOND => None,
            "/props" => Some(401),
            _ => Some(200),
        };
        let (ready, after) = outcome(open, Some(late), log).await;
        assert_eq!((ready, after > 7 * SECOND), (Ok(()), true));
    }

    /// Fails to connect with this code.
    struct Unreachable(Errno);

    impl Upstream for Unreachable {
        fn send(&self, _: Request<Bytes>) -> BoxFuture<'_, Result<Response<ByteStream>, UpstreamError>> {
            // As the client has it: the system's error is the cause of its own.
            let error = UpstreamError::new(Phase::Connect, io::Error::from(self.0));
            Box::pin(async { Err(UpstreamError::new(Phase::Connect, error)) })
        }
    }

    #[tokio::test]
    async fn what_we_run_short_of_says_nothing_of_the_engine() {
        for (code, is_ours) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::NOMEM, true),
            (Errno::AGAIN, false),
            (Errno::CONNREFUSED, false),
            (Errno::NOENT, false),
            (Errno::TIMEDOUT, false),
        ] {
            assert_eq!(is_healthy(&Unreachable(code), SECOND).await, is_ours, "{code}");
            assert_eq!(fails_at_work(&Unreachable(code), SECOND).await, !is_ours, "{code}");
        }
    }
}
