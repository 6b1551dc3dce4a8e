//! An endpoint under drill, as its clients see it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gglib_core::config::Config;
use gglib_core::retry::RetryRules;
use gglib_runtime::completion::{CompletionClient, CompletionError, Timeouts};
use gglib_runtime::http::HttpError;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::engine::EngineProcess;
use super::outcome::Breach;
use super::trouble::Trouble;

/// Longest wait for what a scenario needs, such as an engine that loads.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long a place may stay taken after the last request has ended.
const SOON: Duration = Duration::from_secs(5);
/// A client's patience beyond the bound, so that an end that comes too late is told from none.
const BEYOND: Duration = Duration::from_secs(10);
/// Between two looks.
const GRAIN: Duration = Duration::from_millis(20);

/// The endpoint, and what is asked of it.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) roles: Roles,
    /// Within which each request has to end.
    pub(crate) bound: Duration,
    audience: Audience,
    /// By which a patient client repeats a request.
    repeats: RetryRules,
    engines: Mutex<BTreeSet<EngineProcess>>,
}

/// Who uses the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The drill alone: whatever is counted is its own.
    DrillAlone,
    /// Others too, of whose requests nothing can be concluded.
    OthersToo,
}

/// The models of a drill, by name.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    /// The one to whose engine things happen.
    pub(crate) model: String,
    /// Another one, if there is one.
    pub(crate) other: Option<String>,
    /// Context of one request, in tokens, if the configuration says so.
    pub(crate) context: Option<u32>,
}

impl Stage {
    /// The endpoint at `url`, which promises what `config` makes it promise.
    pub(crate) fn new(
        url: &str,
        config: &Config,
        roles: Roles,
        audience: Audience,
    ) -> Result<Self, HttpError> {
        let bound = config.bound().total;
        let repeats = config.retry_rules(&roles.model).clone();
        let client = Client::new(url, bound.saturating_add(BEYOND))?;
        Ok(Self { client, roles, bound, audience, repeats, engines: Mutex::default() })
    }

    /// The engines that `/status` has shown so far.
    pub(crate) fn engines_seen(&self) -> BTreeSet<EngineProcess> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `/status`, if it comes.
    pub(crate) async fn status(&self) -> Option<Value> {
        let status = self.client.get("/status").await?;
        let seen = rows(&status, "engines").filter_map(EngineProcess::of);
        self.engines.lock().unwrap_or_else(PoisonError::into_inner).extend(seen);
        Some(status)
    }

    /// Waits until `/status` shows `what`, as `find` sees it.
    pub(crate) async fn until<T>(
        &self,
        what: &'static str,
        find: impl Fn(&Value) -> Option<T>,
    ) -> Result<T, Trouble> {
        poll(what, PATIENCE, async || find(&self.status().await?)).await
    }

    /// The process of the model's engine, loading or ready.
    pub(crate) async fn engine(&self) -> Result<EngineProcess, Trouble> {
        self.until("the model's engine", |status| self.engine_in(status).and_then(EngineProcess::of)).await
    }

    /// The model's element of `engines`.
    pub(crate) fn engine_in<'a>(&self, status: &'a Value) -> Option<&'a Value> {
        rows(status, "engines").find(|engine| engine["model"] == *self.roles.model)
    }

    /// Waits until as many requests as `wanted` are with engines.
    pub(crate) async fn in_flight(&self, wanted: u64) -> Result<(), Trouble> {
        self.until("the request to reach the engine", |status| (in_flight(status) >= wanted).then_some(()))
            .await
    }

    /// Waits until nobody uses or waits for an engine.
    pub(crate) async fn idle(&self) -> Result<(), Trouble> {
        self.until("the endpoint to be idle", idle).await
    }

    /// Waits until the endpoint `is_rid` of a request whose client has left, but not for long.
    ///
    /// # Errors
    /// When others may be the reason that it is not.
    pub(crate) async fn until_rid(&self, is_rid: impl Fn(&Value) -> bool) -> Result<(), Trouble> {
        let look = async || self.status().await.filter(&is_rid);
        match poll("the request to be gone", SOON, look).await {
            Err(_) if self.audience == Audience::OthersToo => Err(Trouble::Others),
            _ => Ok(()),
        }
    }

    /// Whether all places are free again, as far as they are the drill's own, and a client that repeats a request as the
    /// endpoint says gets its answer.
    pub(crate) async fn is_well(&self) -> Result<(), Breach> {
        if self.audience == Audience::DrillAlone {
            let free = poll("all places to be free", SOON, async || idle(&self.status().await?)).await;
            free.map_err(|_| Breach::Afterwards("a place is still taken".to_owned()))?;
        }
        let timeouts = Timeouts { headers: self.bound, idle: self.bound, attempt: self.bound };
        let client =
            CompletionClient::new(self.client.upstream(), self.repeats.clone()).with_timeouts(timeouts);
        let answered = client.complete(self.brief().to_string().into()).await;
        match answered {
            Ok(_) => Ok(()),
            // Refused in favour of others, as it has to be.
            Err(CompletionError::GaveUp { .. })
                if self.audience == Audience::OthersToo && self.is_busy().await =>
            {
                Ok(())
            }
            Err(error) => Err(Breach::Afterwards(error.to_string())),
        }
    }

    async fn is_busy(&self) -> bool {
        self.status().await.is_some_and(|status| idle(&status).is_none())
    }

    /// A request that is answered soon.
    pub(crate) fn brief(&self) -> Value {
        self.ask("Say hi.", 8)
    }

    /// The same, of the other model.
    pub(crate) fn brief_of(&self, model: &str) -> Value {
        let mut body = self.brief();
        body["model"] = model.into();
        body
    }

    /// A request whose answer has exactly `tokens` tokens.
    pub(crate) fn long(&self, tokens: u32) -> Value {
        let mut body = self.ask("Count from one to five hundred, in words, one number a line.", tokens);
        body["ignore_eos"] = true.into();
        body
    }

    /// A request with a prompt that takes its time, and that no engine has read before.
    pub(crate) fn wordy(&self) -> Value {
        const WORDS: [&str; 8] = ["river", "stone", "cloud", "light", "house", "green", "seven", "north"];
        /// Where the configuration leaves the context to the model: hardly one has less.
        const CONTEXT: u32 = 4096;
        // About 1.3 tokens a word, and room for the answer.
        let words = self.roles.context.unwrap_or(CONTEXT).min(CONTEXT) / 2;
        let text: Vec<&str> = (0..words).map(|_| WORDS[rand::random_range(0..WORDS.len())]).collect();
        self.ask(&format!("Which of these words comes most often? {}", text.join(" ")), 16)
    }

    fn ask(&self, question: &str, tokens: u32) -> Value {
        json!({
            "model": self.roles.model,
            "messages": [{ "role": "user", "content": question }],
            "max_tokens": tokens,
            "temperature": 0,
        })
    }
}

/// Looks until `find` finds something, for `patience` at most.
pub(crate) async fn poll<T>(
    what: &'static str,
    patience: Duration,
    find: impl AsyncFn() -> Option<T>,
) -> Result<T, Trouble> {
    let since = Instant::now();
    loop {
        if let Some(found) = find().await {
            return Ok(found);
        }
        if since.elapsed() >= patience {
            return Err(Trouble::InVain { what, after: patience });
        }
        sleep(GRAIN).await;
    }
}

/// Requests that are with engines.
pub(crate) fn in_flight(status: &Value) -> u64 {
    rows(status, "engines").filter_map(|engine| engine["in_flight"].as_u64()).sum()
}

/// Requests that wait.
pub(crate) fn waiting(status: &Value) -> u64 {
    rows(status, "queue").filter_map(|queue| queue["waiting"].as_u64()).sum()
}

fn idle(status: &Value) -> Option<()> {
    (in_flight(status) == 0 && waiting(status) == 0).then_some(())
}

fn rows<'a>(status: &'a Value, of: &str) -> impl Iterator<Item = &'a Value> {
    status[of].as_array().map_or(&[][..], Vec::as_slice).iter()
}
