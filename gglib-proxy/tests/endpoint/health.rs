//! What the health routes say of a scheduler that does not answer.

use std::time::Duration;

use gglib_testkit::wire::Answer;
use tokio::time::Instant;

use crate::pipes::Piped;
use crate::ports::Ports;
use crate::served::shipped;

async fn ask(endpoint: &Piped, path: &str) -> Answer {
    endpoint.connect().ask(format!("GET {path} HTTP/1.1\r\nhost: gglib\r\n\r\n")).await
}

/// T4: red, and not green for ever.
#[tokio::test(start_paused = true)]
async fn health_turns_red_when_the_scheduler_does_not_answer_for_five_seconds() {
    let well = Piped::start(Ports::default(), shipped());
    let stuck = Piped::start(Ports::default().stuck(), shipped());
    for path in ["/healthz", "/health", "/readyz"] {
        assert_eq!(ask(&well, path).await.head.status, 200, "{path}");
        let asked = Instant::now();
        let answer = ask(&stuck, path).await;
        assert_eq!(answer.head.status, 503, "{path}");
        assert_eq!(answer.json()["reason"], "the scheduler does not answer; restart gglib", "{path}");
        assert_eq!(asked.elapsed(), Duration::from_secs(5), "{path}");
    }
    // The process itself lives.
    assert_eq!(ask(&stuck, "/livez").await.head.status, 200);
}
