//! Several clients of one model.

use std::time::Duration;

use gglib_cli::drill::client::Call;
use gglib_cli::drill::outcome::{Asked, Outcome};
use gglib_testkit::{Launch, Reply, Script};
use tokio::time::{Instant, sleep};

use super::scenario::Scenario;
use super::stage::{Stage, answered};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("T25", "eleven clients at once on one engine", Asked::Stream, paced(20), "full answer")
            .tries(11)
            .play(|stage| async move {
                let calls: Vec<_> = (0..10).map(|_| stage.send("a", Asked::Plain)).collect();
                let seen = stage.ask("a", Asked::Stream).await;
                for call in calls {
                    answered(&call.end().await, stage.bound, "one of the eleven")?;
                }
                Ok(seen)
            }),
        full("S01, T25", "the queue is full", Asked::Stream, 1),
        full("S01, T25", "the queue is full", Asked::Plain, 1),
        full("S02", "the queue is full, and stays so", Asked::Plain, 4),
        Scenario::new(
            "S01",
            "the queue is full, and the client comes back when told",
            Asked::Plain,
            long_first(),
            "full answer",
        )
        .set("admission.queue", "1")
        .tries(3)
        .play(|stage| async move {
            let waiting = fill(&stage).await?;
            match stage.ask("a", Asked::Plain).await.judge(stage.bound) {
                Outcome::Refused { retry_after, .. } => sleep(retry_after).await,
                other => return Err(format!("{other} instead of a refusal")),
            }
            let seen = stage.ask("a", Asked::Plain).await;
            for call in waiting {
                answered(&call.end().await, stage.bound, "one that waited")?;
            }
            Ok(seen)
        }),
        leaver("T23", "a neighbour leaves in the middle of its stream", true),
        leaver("T23", "a neighbour leaves before its first content", false),
    ]
}

/// Answers of five pieces, one after each `pace` milliseconds.
fn paced(pace: u64) -> Script {
    let reply = Reply { pace: Duration::from_millis(pace), ..Reply::numbered(5) };
    Script::always(Launch { replies: vec![reply], ..Launch::default() })
}

/// A first answer of five seconds, behind which others are certainly seen to wait, and quick ones after it.
pub(super) fn long_first() -> Script {
    let long = Reply { pace: Duration::from_secs(1), ..Reply::numbered(5) };
    Script::always(Launch { replies: vec![long, Reply::numbered(5)], ..Launch::default() })
}

/// One client is served and one waits: there is no place for a third.
async fn fill(stage: &Stage) -> Result<[Call; 2], String> {
    let served = stage.send("a", Asked::Plain);
    stage.until_tries("a", 1).await?;
    let waits = stage.send("a", Asked::Plain);
    stage.until_status("one that waits", |status| status["queue"][0]["waiting"] == 1).await?;
    Ok([served, waits])
}

/// The last of `tries` clients that find a full queue.
fn full(sources: &'static str, name: &'static str, asked: Asked, tries: usize) -> Scenario {
    Scenario::new(sources, name, asked, long_first(), "429 queue_full, Retry-After")
        .set("admission.queue", "1")
        .tries(1)
        .play(move |stage| async move {
            let [served, waits] = fill(&stage).await?;
            for _ in 1..tries {
                stage.ask("a", asked).await;
            }
            let seen = stage.ask("a", asked).await;
            // First who waits, who would else be served when the other one has left.
            waits.hang_up().await;
            stage.until_status("nobody to wait", |status| status["queue"][0].is_null()).await?;
            served.hang_up().await;
            Ok(seen)
        })
}

/// The engine's work for a client that has left ends within a second, and who waited behind it is served.
fn leaver(sources: &'static str, name: &'static str, has_content: bool) -> Scenario {
    let slow = Reply {
        pace: Duration::from_secs(1),
        prefill: Duration::from_secs(if has_content { 0 } else { 9 }),
        ..Reply::numbered(9)
    };
    let script = Script::always(Launch { replies: vec![slow, Reply::numbered(5)], ..Launch::default() });
    Scenario::new(sources, name, Asked::Stream, script, "full answer").tries(2).play(
        move |stage| async move {
            let mut leaver = stage.send("a", Asked::Stream);
            stage.until_tries("a", 1).await?;
            if has_content && !leaver.contents(1).await {
                return Err("there was no content".to_owned());
            }
            let call = stage.send("a", Asked::Stream);
            stage.until_status("one that waits", |status| status["queue"][0]["waiting"] == 1).await?;
            leaver.hang_up().await;
            let left = Instant::now();
            stage.until_log("a", "cancellation", |log| log.cancelled() == 1).await?;
            if left.elapsed() > Duration::from_secs(1) {
                return Err(format!("the engine worked on for {:?}", left.elapsed()));
            }
            Ok(call.end().await)
        },
    )
}
