//! The completion client over a real connection.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gglib_core::ports::BoxFuture;
use gglib_core::retry::{GiveUpReason, RetryPolicy};
use gglib_runtime::completion::{CompletionClient, CompletionError, Delta, Pause};
use gglib_runtime::http::HttpUpstream;

use crate::server::{Reply, Server, response};

const BODY: &[u8] = br#"{"model":"m","messages":[]}"#;

/// Notes the delays and lets none of them pass.
#[derive(Default)]
struct Recorded(Mutex<Vec<Duration>>);

impl Pause for Recorded {
    fn pause(&self, delay: Duration) -> BoxFuture<'_, ()> {
        self.0.lock().unwrap().push(delay);
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn a_server_that_stays_busy_is_asked_as_often_as_the_policy_allows_and_not_earlier_than_it_wishes() {
    let busy = |_| {
        let body = r#"{"error":{"message":"the model is being loaded","type":"server_error","code":"model_loading"}}"#;
        Reply::Keep(response("503 Service Unavailable", "retry-after: 1\r\n", body))
    };
    let server = Server::start(busy).await;
    let pauses = Arc::new(Recorded::default());
    let policy = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    let client = CompletionClient::new(Arc::new(HttpUpstream::new(&server.url(), None).unwrap()), policy)
        .with_pause(Arc::clone(&pauses) as Arc<dyn Pause>);

    let error = client.stream(BODY.into()).await.unwrap_err();
    let CompletionError::GaveUp { reason, attempts, ref last, .. } = error else { panic!("{error:?}") };
    assert_eq!((reason, attempts), (GiveUpReason::AttemptsExhausted, 2));
    assert_eq!(last.to_string(), "503 model_loading: the model is being loaded");
    assert_eq!(server.hits().len(), 2);
    let pauses = pauses.0.lock().unwrap();
    let (floor, spread) = (Duration::from_secs(1), policy.initial_backoff);
    assert!(matches!(pauses[..], [delay] if delay >= floor && delay < floor + spread), "{pauses:?}");
}

#[tokio::test]
async fn a_stream_arrives_over_a_real_connection() {
    let answer = |_| {
        let events = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\n\
                      data: [DONE]\n\n";
        Reply::Keep(response("200 OK", "content-type: text/event-stream\r\n", events))
    };
    let server = Server::start(answer).await;
    let upstream = Arc::new(HttpUpstream::new(&server.url(), None).unwrap());
    let mut deltas =
        CompletionClient::new(upstream, RetryPolicy::disabled()).stream(BODY.into()).await.unwrap();
    assert_eq!(deltas.next().await.unwrap().unwrap(), Delta::Text("Hello".into()));
    assert_eq!(deltas.next().await.unwrap().unwrap(), Delta::Finish("stop".into()));
    assert!(deltas.next().await.is_none());
    let text = &server.hits()[0].text;
    assert!(text.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{text}");
    assert!(text.contains("content-type: application/json\r\n"), "{text}");
    assert!(text.ends_with(r#"{"model":"m","messages":[],"stream":true}"#), "{text}");
}
