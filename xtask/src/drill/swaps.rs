//! Several models, of which one fits.

use std::time::Duration;

use gglib_cli::drill::client::Call;
use gglib_cli::drill::outcome::Asked;
use gglib_testkit::engines::signal;
use gglib_testkit::{Fault, Launch, Reply, Script, SlotReply, SlotScript};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::sleep;

use super::answers::{healthy, midway};
use super::queues::long_first;
use super::scenario::Scenario;
use super::stage::{Stage, answered};

pub(super) fn scenarios() -> Vec<Scenario> {
    swaps().into_iter().chain([overlapping(), long_jobs()]).chain(faults()).collect()
}

/// What must not disturb a swap, and what a swap must not disturb.
fn swaps() -> Vec<Scenario> {
    let well = || Script::always(healthy());
    vec![
        Scenario::new(
            "T1",
            "another model is wanted during a long stream",
            Asked::Stream,
            paced(300),
            "full answer",
        )
        .with("b", well())
        .tries(1)
        .play(|stage| async move {
            let mut call = stage.send("a", Asked::Stream);
            call.contents(1).await;
            stage.must_answer("b").await?;
            if !call.has_ended() {
                return Err("the other model was served before the stream had ended".to_owned());
            }
            Ok(call.end().await)
        }),
        Scenario::new(
            "T2",
            "two other models are wanted at once, and one client leaves",
            Asked::Plain,
            long_first(),
            "full answer",
        )
        .with("b", well())
        .with("c", well())
        .tries(1)
        .play(|stage| async move {
            let busy = stage.send("a", Asked::Stream);
            stage.until_tries("a", 1).await?;
            let (b, c) = (stage.send("b", Asked::Plain), stage.send("c", Asked::Plain));
            let two =
                |status: &serde_json::Value| status["queue"].as_array().is_some_and(|queue| queue.len() == 2);
            stage.until_status("both to wait", two).await?;
            b.hang_up().await;
            answered(&busy.end().await, stage.bound, "a")?;
            Ok(c.end().await)
        }),
        Scenario::new(
            "T3",
            "another model is wanted right after a cold start",
            Asked::Stream,
            slow_load(),
            "full answer",
        )
        .with("b", well())
        .tries(1)
        .play(|stage| async move {
            let call = stage.send("a", Asked::Stream);
            sleep(Duration::from_millis(100)).await;
            stage.must_answer("b").await?;
            Ok(call.end().await)
        }),
        Scenario::new(
            "T4",
            "a client leaves the queue, then three more swaps",
            Asked::Plain,
            long_first(),
            "full answer",
        )
        .with("b", well())
        .tries(3)
        .play(|stage| async move {
            let busy = stage.send("a", Asked::Stream);
            stage.until_tries("a", 1).await?;
            let leaver = stage.send("b", Asked::Plain);
            stage.until_status("one that waits", |status| status["queue"][0]["waiting"] == 1).await?;
            leaver.hang_up().await;
            answered(&busy.end().await, stage.bound, "a")?;
            stage.must_answer("b").await?;
            stage.must_answer("a").await?;
            stage.must_answer("b").await?;
            Ok(stage.ask("a", Asked::Plain).await)
        }),
    ]
}

/// Engines, files and configurations that misbehave meanwhile.
fn faults() -> Vec<Scenario> {
    let well = || Script::always(healthy());
    vec![
        Scenario::new(
            "T16",
            "the engine hangs in a stream while another model is wanted",
            Asked::Plain,
            midway(Fault::HangAfter, Asked::Stream),
            "full answer",
        )
        .with("b", well())
        .tries(2)
        .play(|stage| async move {
            let hung = stage.send("a", Asked::Stream);
            stage.until_tries("a", 1).await?;
            let seen = stage.ask("b", Asked::Plain).await;
            match hung.end().await.judge(stage.bound).to_string().as_str() {
                "full answer (continuation)" => Ok(seen),
                other => Err(format!("the stream that hung ended as {other}")),
            }
        }),
        lying_restore(),
        Scenario::new(
            "T32",
            "the configuration is saved three times during a stream",
            Asked::Stream,
            paced(800),
            "full answer",
        )
        .with("b", well())
        .tries(1)
        .play(|stage| async move {
            let mut call = stage.send("a", Asked::Stream);
            call.contents(1).await;
            for save in ["# one", "# two", "# three"] {
                stage.save(save)?;
                sleep(Duration::from_millis(300)).await;
            }
            signal(stage.endpoint.process.0.id(), Signal::HUP);
            stage
                .until_status("the reload", |status| status["config"]["reloads"].as_u64() >= Some(1))
                .await?;
            let seen = call.end().await;
            if stage.log("a").launches() == 1 {
                Ok(seen)
            } else {
                Err("the engine was started again".to_owned())
            }
        }),
    ]
}

fn paced(pace: u64) -> Script {
    let reply = Reply { pace: Duration::from_millis(pace), ..Reply::numbered(5) };
    Script::always(Launch { replies: vec![reply], ..Launch::default() })
}

fn slow_load() -> Script {
    let load = gglib_testkit::Load::Takes(Duration::from_millis(500));
    Script::always(Launch { load, replies: vec![Reply::numbered(5)], ..Launch::default() })
}

/// Two clients of A whose requests overlap for ever; one of B, who must not starve.
fn overlapping() -> Scenario {
    Scenario::new(
        "T7",
        "overlapping requests keep one model busy, another is wanted",
        Asked::Plain,
        paced(100),
        "full answer",
    )
    .with("b", Script::always(healthy()))
    .play(|stage| async move {
        let clients = [0, 250].map(|delay| {
            let stage = stage.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(delay)).await;
                loop {
                    stage.ask("a", Asked::Plain).await;
                }
            })
        });
        stage.until_tries("a", 3).await?;
        let seen = stage.ask("b", Asked::Plain).await;
        for client in clients {
            client.abort();
            // It was told to end.
            let _ = client.await;
        }
        Ok(seen)
    })
}

/// A chat comes after ten long jobs: it waits for a turn, not for all of them.
fn long_jobs() -> Scenario {
    Scenario::new(
        "T38",
        "ten long jobs of one model wait, and one request of another",
        Asked::Plain,
        paced(160),
        "full answer",
    )
    .with("b", Script::always(healthy()))
    .tries(10)
    .play(|stage| async move {
        let jobs: Vec<_> = (0..10).map(|_| stage.send("a", Asked::Stream)).collect();
        stage.until_tries("a", 1).await?;
        let seen = stage.ask("b", Asked::Plain).await;
        if jobs.iter().all(Call::has_ended) {
            return Err("it was served after all jobs".to_owned());
        }
        for job in jobs {
            answered(&job.end().await, stage.bound, "a job")?;
        }
        Ok(seen)
    })
}

fn lying_restore() -> Scenario {
    let slots = SlotScript { restores: vec![SlotReply::Lie], ..SlotScript::default() };
    let script = Script::always(Launch { slots, replies: vec![Reply::numbered(5)], ..Launch::default() });
    Scenario::new("T28", "a conversation is restored in word only", Asked::Stream, script, "full answer")
        .with("b", Script::always(healthy()))
        .tries(2)
        .play(|stage| async move {
            stage.must_answer("a").await?;
            stage.must_answer("b").await?;
            let seen = stage.ask_with("a", Asked::Stream, &json!({})).await;
            switched_off(&stage).await.map(|()| seen)
        })
}

async fn switched_off(stage: &Stage) -> Result<(), String> {
    stage
        .until_status("the restore to be switched off", |status| {
            status["slots"]["switched_off"] == json!(["a"])
        })
        .await
}
