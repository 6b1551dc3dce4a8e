//! What goes wrong while an engine is loaded, or while it has nothing to do.

use std::sync::Arc;
use std::time::Duration;

use gglib_cli::drill::outcome::{Asked, Outcome, Seen};
use gglib_testkit::engines::{freeze, signal};
use gglib_testkit::{Death, End, Entry, Fault, Launch, Load, Reply, Script};
use rustix::process::Signal;
use tokio::time::sleep;

use super::answers::healthy;
use super::scenario::Scenario;
use super::stage::{Stage, answered};

const LOAD: Duration = Duration::from_secs(2);

pub(super) fn scenarios() -> Vec<Scenario> {
    failures().into_iter().chain(slow_loads()).chain(waiters()).chain(idle()).collect()
}

/// This launch, then healthy ones.
fn first(launch: Launch) -> Script {
    Script { launches: vec![Launch { replies: vec![Reply::numbered(5)], ..launch }, healthy()] }
}

fn loads_for(load: Duration) -> Script {
    first(Launch { load: Load::Takes(load), ..Launch::default() })
}

fn exits(stderr: &str) -> Script {
    first(Launch {
        stderr: vec![stderr.to_owned()],
        death: Some(Death::BeforeBind),
        end: End::Exit(1),
        ..Launch::default()
    })
}

fn failures() -> Vec<Scenario> {
    const FAILED: &str = "503 model_load_failed, Retry-After";
    let unknown = || exits("error: invalid argument: --no-such-flag");
    vec![
        Scenario::new("T33", "the engine exits at once", Asked::Stream, unknown(), FAILED).tries(0),
        Scenario::new("T33", "the engine exits at once", Asked::Plain, unknown(), FAILED).tries(0),
        Scenario::new(
            "T20",
            "it exits at once, and the client comes back at once",
            Asked::Plain,
            unknown(),
            "503 breaker_open, Retry-After",
        )
        .tries(0)
        .play(|stage| async move {
            stage.ask("a", Asked::Plain).await;
            let seen = stage.ask("a", Asked::Plain).await;
            launched_once(&stage).map(|()| seen)
        }),
        Scenario::new(
            "T18",
            "it is killed during the load, for want of memory",
            Asked::Plain,
            first(Launch {
                death: Some(Death::WhileLoading(Duration::from_millis(300))),
                ..Launch::default()
            }),
            "full answer",
        )
        .tries(1),
        Scenario::new(
            "T19",
            "it gets no memory as long as another engine is there",
            Asked::Plain,
            exits("E ggml: failed to allocate CPU buffer of size 8"),
            "full answer",
        )
        .with("b", Script::always(healthy()))
        .set("memory.max_resident", "2")
        .tries(1)
        .play(|stage| async move {
            stage.must_answer("b").await?;
            Ok(stage.ask("a", Asked::Plain).await)
        }),
    ]
}

fn slow_loads() -> Vec<Scenario> {
    let hung = |sources, asked, expected| {
        let script = first(Launch { load: Load::Never, ..Launch::default() });
        Scenario::new(sources, "a load hangs", asked, script, expected).tries(0)
    };
    let slow = || {
        first(Launch {
            load: Load::Takes(Duration::from_secs(6)),
            load_line_every: Some(Duration::from_millis(300)),
            ..Launch::default()
        })
    };
    vec![
        hung("F", Asked::Stream, "503 model_load_failed, Retry-After"),
        hung("F", Asked::Plain, "503 model_load_failed, Retry-After"),
        Scenario::new(
            "T21",
            "a load takes longer than its stall, and advances",
            Asked::Stream,
            slow(),
            "full answer",
        )
        .tries(1),
        Scenario::new(
            "T24, T39",
            "a stream waits for a load, and is told so",
            Asked::Stream,
            slow(),
            "full answer",
        )
        .tries(1)
        .play(|stage| async move {
            let seen = stage.ask("a", Asked::Stream).await;
            let told = String::from_utf8_lossy(&seen.body)
                .starts_with(": keep-alive waiting position=1 phase=loading");
            if told { Ok(seen) } else { Err("the stream was not told what it waits for".to_owned()) }
        }),
        Scenario::new(
            "T22",
            "a client gives up during the load, and comes back",
            Asked::Plain,
            loads_for(LOAD),
            "full answer",
        )
        .tries(1)
        .play(|stage| async move {
            leave_while_loading(&stage).await?;
            let seen = stage.ask("a", Asked::Plain).await;
            launched_once(&stage).map(|()| seen)
        }),
    ]
}

fn waiters() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "T9",
            "four clients at once, and no engine yet",
            Asked::Plain,
            loads_for(LOAD),
            "full answer",
        )
        .tries(4)
        .play(|stage| async move {
            let calls: Vec<_> = (0..3).map(|_| stage.send("a", Asked::Stream)).collect();
            let seen = stage.ask("a", Asked::Plain).await;
            for call in calls {
                answered(&call.end().await, stage.bound, "one of the four")?;
            }
            launched_once(&stage).map(|()| seen)
        }),
        Scenario::new(
            "T4",
            "one of two that wait for a load leaves",
            Asked::Stream,
            loads_for(LOAD),
            "full answer",
        )
        .tries(1)
        .play(|stage| async move {
            let leaver = stage.send("a", Asked::Plain);
            stage.until_log("a", "launches", |log| log.launches() == 1).await?;
            let call = stage.send("a", Asked::Stream);
            stage.until_status("two that wait", |status| status["queue"][0]["waiting"] == 2).await?;
            leaver.hang_up().await;
            let seen = call.end().await;
            launched_once(&stage).map(|()| seen)
        }),
    ]
}

/// Kills, stops and hangs of an engine that has nothing to do.
fn idle() -> Vec<Scenario> {
    let twice = || Script::always(healthy());
    let both = [Asked::Stream, Asked::Plain].into_iter();
    let each = both.flat_map(|asked| {
        [
            Scenario::new("T10", "kill -9 of the idle engine", asked, twice(), "full answer").tries(2).play(
                move |stage| async move {
                    stage.must_answer("a").await?;
                    signal(stage.engine().await?, Signal::KILL);
                    stage
                        .until_status("the exit to be noticed", |status| status["engines"][0].is_null())
                        .await?;
                    Ok(stage.ask("a", asked).await)
                },
            ),
            Scenario::new("T10", "SIGSTOP of the idle engine", asked, twice(), "full answer (relaunch)")
                .tries(2)
                .play(move |stage| async move {
                    stage.must_answer("a").await?;
                    freeze(stage.engine().await?).await;
                    Ok(stage.ask("a", asked).await)
                }),
        ]
    });
    let died = Launch { death: Some(Death::WhenIdle(Duration::from_secs(2))), ..Launch::default() };
    let oom = Scenario::new(
        "T18",
        "it is killed while idle, for want of memory",
        Asked::Plain,
        first(died),
        "full answer",
    )
    .tries(2)
    .play(|stage| async move {
        stage.must_answer("a").await?;
        stage.until_status("the exit to be noticed", |status| status["totals"]["crashes"] == 1).await?;
        Ok(stage.ask("a", Asked::Plain).await)
    });
    let ttl = Scenario::new(
        "T8",
        "a request comes when the engine is stopped for want of use",
        Asked::Plain,
        twice(),
        "full answer",
    )
    .keys("ttl = \"1s\"")
    .tries(2)
    .play(|stage| async move {
        stage.must_answer("a").await?;
        stage.until_log("a", "end", |log| log.entries.iter().any(is_terminated)).await?;
        Ok(stage.ask("a", Asked::Plain).await)
    });
    let flapping = Scenario::new(
        "S15",
        "twenty requests while engines come and go",
        Asked::Plain,
        flaps(),
        "full answer",
    )
    .play(|stage| async move {
        for _ in 0..19 {
            stage.must_answer("a").await?;
        }
        Ok(stage.ask("a", Asked::Plain).await)
    });
    each.chain([oom, ttl, flapping]).collect()
}

fn is_terminated(entry: &Entry) -> bool {
    matches!(entry, Entry::Terminated { .. })
}

/// Two engines that serve for a while and then die over a request, and one that lasts.
fn flaps() -> Script {
    let mut replies = vec![Reply::numbered(5); 6];
    replies.push(Reply { fault: Some(Fault::DieBeforeHeaders), ..Reply::numbered(5) });
    let flapping = Launch { replies, ..Launch::default() };
    Script { launches: vec![flapping.clone(), flapping, healthy()] }
}

async fn leave_while_loading(stage: &Arc<Stage>) -> Result<(), String> {
    let call = stage.send("a", Asked::Plain);
    stage.until_log("a", "launches", |log| log.launches() == 1).await?;
    let left: Seen = call.hang_up().await;
    if left.judge(stage.bound) != Outcome::LeftByClient {
        return Err("the client could not leave".to_owned());
    }
    sleep(Duration::from_millis(200)).await;
    Ok(())
}

fn launched_once(stage: &Stage) -> Result<(), String> {
    match stage.log("a").launches() {
        1 => Ok(()),
        launches => Err(format!("{launches} launches instead of one")),
    }
}
