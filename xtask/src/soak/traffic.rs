//! One client: a request, its end, the next request.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gglib_cli::drill::client::{Call, Client};
use gglib_cli::drill::outcome::{Asked, Outcome, Seen};
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::ledger::Ledger;
use super::rig::{MODELS, Rig};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// A client that is told to come back later does so, but not much later: the traffic must not cease.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
const WORDS: [&str; 8] = ["ship", "light", "seven", "never", "blue", "of", "house", "walk"];

/// A closed loop of requests.
pub(super) struct ClosedLoop {
    rig: Arc<Rig>,
    ledger: Arc<Ledger>,
    client: Client,
    random: fastrand::Rng,
}

/// When a client hangs up.
enum Patience {
    /// Never.
    Endless,
    /// After this long, wherever the request is then: on its way, in the queue, in its prompt or its answer.
    For(Duration),
    /// After as many contents of a stream.
    UntilContents(usize),
}

impl ClosedLoop {
    pub(super) fn new(rig: Arc<Rig>, ledger: Arc<Ledger>, seed: u64) -> Result<Self> {
        Ok(Self { client: rig.client()?, rig, ledger, random: fastrand::Rng::with_seed(seed) })
    }

    /// Asks until told to stop, and ends with the request that it has then.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            let pause = if self.random.u8(..10) == 0 { self.twice().await } else { self.once().await };
            let pause = pause.unwrap_or_default().min(LONGEST_PAUSE);
            // Being told to stop ends the pause.
            let _ = timeout(pause, stopped.wait_for(|stopped| *stopped)).await;
        }
    }

    /// One request; when to come back, if it says so.
    async fn once(&mut self) -> Option<Duration> {
        let (asked, body, patience) = (self.asked(), self.body(), self.patience());
        let call = self.send(&self.client, asked, body);
        let seen = wait(call, patience).await;
        self.ledger.close(&seen, self.rig.bound)
    }

    /// The same request twice under one key: the second is attached to the first, or gets what it got.
    async fn twice(&mut self) -> Option<Duration> {
        let (asked, body) = (self.asked(), self.body());
        let key = HeaderValue::from(self.random.u64(..));
        let client = self.client.clone().with_header(IDEMPOTENCY_KEY, key);
        let first = self.send(&client, asked, body.clone());
        sleep(Duration::from_millis(self.random.u64(..1_500))).await;
        let second = self.send(&client, asked, body);
        let (first, second) = (first.end().await, second.end().await);
        let pauses = [&first, &second].map(|seen| self.ledger.close(seen, self.rig.bound));
        let answered = |seen: &Seen| matches!(seen.judge(self.rig.bound), Outcome::Answered { .. });
        if answered(&first) && answered(&second) && first.content() != second.content() {
            let texts = (first.content(), second.content());
            self.ledger.blame(format!("one idempotency key, two answers: {texts:?}"));
        }
        pauses.into_iter().flatten().max()
    }

    fn send(&self, client: &Client, asked: Asked, body: Value) -> Call {
        self.ledger.open();
        client.send(asked, body)
    }

    fn asked(&mut self) -> Asked {
        if self.random.u8(..3) == 0 { Asked::Plain } else { Asked::Stream }
    }

    fn body(&mut self) -> Value {
        // A few requests in a row for one model, as from one conversation.
        let model = MODELS[usize::from(self.random.u8(..5) == 0)];
        let words: Vec<_> =
            (0..self.random.usize(3..250)).map(|_| WORDS[self.random.usize(..WORDS.len())]).collect();
        let mut body = json!({
            "model": model,
            "messages": [{ "role": "user", "content": words.join(" ") }],
            "max_tokens": self.random.u32(4..40),
            "temperature": f64::from(self.random.u8(..3)) / 2.0,
        });
        if self.random.u8(..8) == 0 {
            body["tools"] = json!([{ "type": "function", "function": { "name": "weather", "parameters": {
                "type": "object", "properties": { "city": { "type": "string", "maxLength": 12 } }, "required": ["city"] } } }]);
            if self.random.bool() {
                body["tool_choice"] = "required".into();
            }
        }
        body
    }

    fn patience(&mut self) -> Patience {
        match self.random.u8(..12) {
            0 => Patience::For(Duration::from_millis(self.random.u64(..20))),
            1 => Patience::For(Duration::from_millis(self.random.u64(20..3_000))),
            2 => Patience::UntilContents(self.random.usize(1..12)),
            _ => Patience::Endless,
        }
    }
}

async fn wait(mut call: Call, patience: Patience) -> Seen {
    match patience {
        Patience::Endless => call.end().await,
        Patience::For(patience) => {
            sleep(patience).await;
            call.hang_up().await
        }
        Patience::UntilContents(count) => {
            call.contents(count).await;
            call.hang_up().await
        }
    }
}
