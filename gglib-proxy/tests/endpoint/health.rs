//! What the health routes and `/status` say of a scheduler that does not answer.

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

#[tokio::test(start_paused = true)]
async fn status_does_not_ask_for_a_restart_of_what_is_shutting_down() {
    let stuck = Piped::start(Ports::default().stuck(), shipped());
    let said = async || {
        let answer = ask(&stuck, "/status").await;
        let error = answer.error();
        let [code, message] = ["code", "message"].map(|member| error[member].as_str().unwrap().to_owned());
        (answer.head.status, answer.head.header("retry-after").is_some(), code, message)
    };
    let fault = "the scheduler does not answer; restart gglib".to_owned();
    assert_eq!(said().await, (500, false, "internal".to_owned(), fault));
    stuck.app.drain();
    let end = "gglib is shutting down".to_owned();
    assert_eq!(said().await, (503, true, "draining".to_owned(), end));
    // As health says: all is as it should be.
    assert_eq!(ask(&stuck, "/healthz").await.head.status, 200);
}

#[tokio::test(start_paused = true)]
async fn status_shows_an_endpoint_that_is_shutting_down_as_long_as_its_scheduler_answers() {
    let endpoint = Piped::start(Ports::default(), shipped());
    endpoint.app.drain();
    assert_eq!(endpoint.status().await["draining"], true);
}
