//! The scenarios, played.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::client::Call;
use super::instance::Obstacle;
use super::outcome::{Asked, Breach, Outcome, Seen};
use super::scenario::Scenario;
use super::scorecard::Row;
use super::stage::{Stage, in_flight, waiting};
use super::trouble::Trouble;

/// Tokens of an answer in whose middle something happens.
const LONG: u32 = 200;
/// Tokens of an answer whose end nobody waits for.
const ENDLESS: u32 = 1000;
/// Pieces of content before it happens.
const PIECES: usize = 8;
/// Into a plain answer, of which nothing can be seen.
const WELL_INTO: Duration = Duration::from_millis(500);
/// Within which an engine's work ends when its client has left.
const CANCELLED: Duration = Duration::from_secs(1);

/// Plays `scenario`, which happens to an engine that is loaded and idle, and then makes sure that all is well again.
pub(crate) async fn play(
    scenario: Scenario,
    stage: &Stage,
    obstacle: &Obstacle,
) -> Result<Vec<Row>, Trouble> {
    obstacle.suits(scenario.setup())?;
    stage.idle().await?;
    let play = Play { scenario, stage };
    let mut rows = match scenario {
        Scenario::KillIdle => play.kill_idle().await,
        Scenario::KillPrefill => play.kill_prefill().await,
        Scenario::KillStream => play.kill_stream().await,
        Scenario::KillPlain => play.kill_plain().await,
        Scenario::KillLoad => play.kill_load().await,
        Scenario::LeaveQueue => play.leave_queue().await,
        Scenario::LeavePrefill => play.leave_prefill().await,
        Scenario::LeaveStream => play.leave_stream().await,
        Scenario::TwoModels => play.two_models().await,
        Scenario::PortTaken => play.port_taken(obstacle).await,
        Scenario::DiskFull => play.disk_full().await,
        Scenario::StopIdle => play.stop_idle().await,
        Scenario::StopStream => play.stop_stream().await,
    }?;
    if let (Err(why), Some(last)) = (stage.is_well().await, rows.last_mut()) {
        last.outcome = Outcome::Broken { why };
    }
    Ok(rows)
}

struct Play<'a> {
    scenario: Scenario,
    stage: &'a Stage,
}

impl Play<'_> {
    async fn kill_idle(&self) -> Result<Vec<Row>, Trouble> {
        self.stage.engine().await?.kill()?;
        let seen = self.stage.client.ask(Asked::Plain, self.stage.brief()).await;
        Ok(vec![self.row(&seen)])
    }

    async fn kill_prefill(&self) -> Result<Vec<Row>, Trouble> {
        let engine = self.stage.engine().await?;
        let call = self.send(Asked::Stream, self.stage.wordy());
        self.stage.in_flight(1).await?;
        open(&call)?;
        engine.kill()?;
        Ok(vec![self.row(&call.end().await)])
    }

    async fn kill_stream(&self) -> Result<Vec<Row>, Trouble> {
        let engine = self.stage.engine().await?;
        let call = self.streaming(LONG).await?;
        engine.kill()?;
        Ok(vec![self.row(&call.end().await)])
    }

    async fn kill_plain(&self) -> Result<Vec<Row>, Trouble> {
        let engine = self.stage.engine().await?;
        let call = self.send(Asked::Plain, self.stage.long(LONG));
        self.stage.in_flight(1).await?;
        sleep(WELL_INTO).await;
        open(&call)?;
        engine.kill()?;
        Ok(vec![self.row(&call.end().await)])
    }

    async fn kill_load(&self) -> Result<Vec<Row>, Trouble> {
        let before = self.stage.engine().await?;
        before.kill()?;
        let is_gone = |status: &Value| self.stage.engine_in(status).is_none().then_some(());
        self.stage.until("the killed engine to be gone", is_gone).await?;
        let call = self.send(Asked::Plain, self.stage.brief());
        self.stage.engine().await?.kill()?;
        Ok(vec![self.row(&call.end().await)])
    }

    async fn stop_idle(&self) -> Result<Vec<Row>, Trouble> {
        let hanging = self.stage.engine().await?.stop()?;
        let seen = self.stage.client.ask(Asked::Plain, self.stage.brief()).await;
        drop(hanging);
        Ok(vec![self.row(&seen)])
    }

    async fn stop_stream(&self) -> Result<Vec<Row>, Trouble> {
        let engine = self.stage.engine().await?;
        let call = self.streaming(LONG).await?;
        let hanging = engine.stop()?;
        let seen = call.end().await;
        drop(hanging);
        Ok(vec![self.row(&seen)])
    }

    async fn leave_queue(&self) -> Result<Vec<Row>, Trouble> {
        let parallel = |status: &Value| self.stage.engine_in(status)?["parallel"].as_u64();
        let mut busy = Vec::new();
        for _ in 0..self.stage.until("the model's engine", parallel).await? {
            busy.push(self.streaming(ENDLESS).await?);
        }
        let call = self.send(Asked::Plain, self.stage.brief());
        self.stage.until("the request to wait", |status| (waiting(status) > 0).then_some(())).await?;
        let row = self.leave(call, |status| waiting(status) == 0).await?;
        for call in busy {
            call.hang_up().await;
        }
        Ok(vec![row])
    }

    async fn leave_prefill(&self) -> Result<Vec<Row>, Trouble> {
        let call = self.send(Asked::Stream, self.stage.wordy());
        self.stage.in_flight(1).await?;
        open(&call)?;
        Ok(vec![self.leave(call, |status| in_flight(status) == 0).await?])
    }

    async fn leave_stream(&self) -> Result<Vec<Row>, Trouble> {
        let call = self.streaming(ENDLESS).await?;
        Ok(vec![self.leave(call, |status| in_flight(status) == 0).await?])
    }

    async fn two_models(&self) -> Result<Vec<Row>, Trouble> {
        let other = self.stage.roles.other.as_deref().ok_or(Trouble::OneModel)?;
        let first = self.streaming(LONG).await?;
        let second = self.send(Asked::Plain, self.stage.brief_of(other));
        Ok(vec![self.row(&first.end().await), self.row(&second.end().await)])
    }

    async fn port_taken(&self, obstacle: &Obstacle) -> Result<Vec<Row>, Trouble> {
        let call = self.send(Asked::Plain, self.stage.brief());
        let thief = obstacle.take_port().await?;
        let seen = call.end().await;
        drop(thief);
        Ok(vec![self.row(&seen)])
    }

    async fn disk_full(&self) -> Result<Vec<Row>, Trouble> {
        let other = self.stage.roles.other.as_deref().ok_or(Trouble::OneModel)?;
        let client = &self.stage.client;
        let mut rows = Vec::new();
        for body in [self.stage.long(LONG), self.stage.brief_of(other), self.stage.brief()] {
            rows.push(self.row(&client.ask(Asked::Plain, body).await));
        }
        let failed = |status: &Value| status["slots"]["failed_saves"].as_u64();
        if self.stage.until("the endpoint to say what was saved", failed).await? == 0 {
            return Err(Trouble::NothingFailed);
        }
        Ok(rows)
    }

    fn send(&self, asked: Asked, body: Value) -> Call {
        self.stage.client.send(asked, body)
    }

    /// A stream that has brought some content.
    async fn streaming(&self, tokens: u32) -> Result<Call, Trouble> {
        let mut call = self.send(Asked::Stream, self.stage.long(tokens));
        if call.contents(PIECES).await { Ok(call) } else { Err(Trouble::TooFast) }
    }

    /// Hangs up; what counts is how long it takes until the endpoint is rid of the request. If that is not soon, it has
    /// taken too long in any case.
    async fn leave(&self, call: Call, is_rid: impl Fn(&Value) -> bool) -> Result<Row, Trouble> {
        let seen = call.hang_up().await;
        let since = Instant::now();
        self.stage.until_rid(is_rid).await?;
        Ok(Row { took: since.elapsed(), bound: CANCELLED, ..self.row(&seen) })
    }

    fn row(&self, seen: &Seen) -> Row {
        let mut outcome = seen.judge(self.stage.bound);
        if matches!(outcome, Outcome::Answered { .. }) && seen.content().is_empty() {
            outcome = Outcome::Broken { why: Breach::Text("there is none".to_owned()) };
        }
        Row {
            scenario: self.scenario.title().to_owned(),
            asked: seen.asked,
            outcome,
            took: seen.took,
            bound: self.stage.bound,
        }
    }
}

/// Nothing of the answer has been seen yet. A plain one is seen at its end only.
fn open(call: &Call) -> Result<(), Trouble> {
    if call.is_open() { Ok(()) } else { Err(Trouble::TooFast) }
}
