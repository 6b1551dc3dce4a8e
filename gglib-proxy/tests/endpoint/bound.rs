//! Whatever queue and engines do, a request ends within the bound that its configuration promises, in a whole answer
//! or an explicit error.

use std::time::Duration;

use gglib_core::config::{self, Config, Sources};
use gglib_core::ports::{Liveness, Phase};
use gglib_proxy::Settings;
use gglib_testkit::wire::{Answer, Piece};
use http::StatusCode;
use proptest::prelude::*;
use tokio::runtime;
use tokio::time::{Instant, sleep};

use crate::pipes::Piped;
use crate::ports::{Ports, Step, Turn, content, done, event, finish, opening, progress};

/// With a deadline that is not what ends most requests.
const CONFIG: &str = r#"
[admission]
max_wait = "100s"
[timeouts]
response_headers = "30s"
first_content = "150s"
idle = "60s"
total = "200s"
request = "10h"
"#;

const BODIES: [&str; 6] = [
    r#"{"messages":[{"role":"user","content":"a"}],"stream":true}"#,
    r#"{"messages":[{"role":"user","content":"a"}]}"#,
    r#"{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}],"stream":true}"#,
    r#"{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#,
    r#"{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required","stream":true}"#,
    r#"{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"}"#,
];

fn configuration(text: &str) -> Config {
    let sources = Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] };
    config::load(&sources).unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What came of a request, and after how long.
async fn run(config: &Config, ports: Ports, body: &str) -> (Answer, Duration) {
    let endpoint = Piped::start(ports, Settings::new(config));
    let started = Instant::now();
    let answer = endpoint.chat(body).await;
    let took = started.elapsed();
    // An engine is checked after a repair when the client has its answer already.
    sleep(Duration::from_millis(1)).await;
    assert_eq!(endpoint.ports.stage.going_on(), [0; 3], "{answer:?}");
    (answer, took)
}

/// Content every 50 s for ever.
fn endless() -> Vec<Step> {
    opening().into_iter().chain((0..100).flat_map(|_| [content("a"), Step::Wait(secs(50))])).collect()
}

#[tokio::test(start_paused = true)]
async fn the_worst_that_can_happen_comes_close_to_the_bound() {
    let config = configuration(CONFIG);
    // Each wait and each attempt takes as long as it may, and every recovery is taken.
    let late = vec![Step::Wait(secs(149)), Step::Break(Phase::BeforeHeaders)];
    let reading = (1..=4).flat_map(|step| [Step::Wait(secs(49)), progress(step)]);
    let reading = opening().into_iter().chain(reading).chain([Step::Break(Phase::MidBody)]).collect();
    let mut dying = endless();
    dying.truncate(9);
    dying.push(Step::Break(Phase::MidBody));
    let ports = Ports::answering([late, reading, dying, endless()])
        .with_turns(vec![Turn::After(secs(100)); 3])
        .with_health([Liveness::Alive, Liveness::Alive, Liveness::Dead, Liveness::Dead]);
    let (answer, took) = run(&config, ports, BODIES[0]).await;
    assert_eq!(answer.error()["code"], "timeout_total", "{answer:?}");
    let bound = config.bound().total;
    assert!(took <= bound && took > bound.mul_f64(0.75), "{took:?} of {bound:?}");
}

#[tokio::test(start_paused = true)]
async fn a_repair_takes_its_own_time_within_the_bound() {
    let recovery = "[recovery]\nrelaunch = false\ncontinue_streams = false\nrepair_timeout = \"300s\"";
    let config = configuration(&format!("{CONFIG}{recovery}"));
    let late = vec![Step::Wait(secs(149)), Step::Break(Phase::BeforeHeaders)];
    let mut slow = endless();
    slow.truncate(8);
    slow.extend([bad_call(), finish(), done()]);
    for body in &BODIES[2..] {
        let ports = Ports::answering([late.clone(), slow.clone(), endless()])
            .with_turns([Turn::After(secs(100))])
            .with_health([Liveness::Alive; 4]);
        let (answer, took) = run(&config, ports, body).await;
        assert!(answer.body.contains("made_up"), "the first answer: {answer:?}");
        let without = configuration(&format!("{CONFIG}{recovery}\nrepair = false")).bound().total;
        let bound = config.bound().total;
        assert!(took <= bound && took > without, "{took:?} of {bound:?}, more than {without:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_over_all_holds_where_the_parts_add_up_to_more() {
    let config = configuration(&CONFIG.replace("10h", "300s"));
    assert_eq!(config.bound().total, secs(300));
    let ports = Ports::answering([endless()]).with_turns([Turn::After(secs(100))]);
    let (_, took) = run(&config, ports, BODIES[0]).await;
    assert_eq!(took, secs(300));
}

/// A call of a function that nobody offers.
fn bad_call() -> Step {
    let call = r#"{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"made_up","arguments":"{}"}}]}"#;
    Step::Send(event(call, "null"))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..250_u64).prop_map(|seconds| Step::Wait(secs(seconds))),
        Just(content("a")),
        Just(bad_call()),
        (0..1000_u32).prop_map(progress),
        Just(Step::Send(":\n\n".to_owned())),
        Just(Step::Send("data: {\"choices\":\n\n".to_owned())),
        Just(finish()),
        Just(done()),
        Just(Step::Break(Phase::MidBody)),
        Just(Step::Hang),
    ]
}

/// Whatever an engine can do.
fn answer() -> impl Strategy<Value = Vec<Step>> {
    let waits = (0..250_u64).prop_map(|seconds| Step::Wait(secs(seconds)));
    let status = prop::sample::select(vec![200, 200, 200, 200, 400, 503]);
    let head = prop_oneof![
        1 => Just(Step::Break(Phase::BeforeHeaders)),
        1 => Just(Step::Break(Phase::Connect)),
        1 => Just(Step::Hang),
        6 => status.prop_map(|status| Step::Head(StatusCode::from_u16(status).unwrap())),
    ];
    (prop::option::of(waits), head, prop::collection::vec(step(), 0..12))
        .prop_map(|(wait, head, steps)| wait.into_iter().chain([head]).chain(steps).collect())
}

proptest! {
    #[test]
    fn every_request_ends_within_the_bound_and_honestly(
        answers in prop::collection::vec(answer(), 4),
        turns in prop::collection::vec(0..=100_u64, 3),
        dead in prop::collection::vec(any::<bool>(), 8),
        body in prop::sample::select(BODIES.to_vec()),
    ) {
        let config = configuration(CONFIG);
        let health = dead.into_iter().map(|dead| if dead { Liveness::Dead } else { Liveness::Alive });
        let ports = Ports::answering(answers)
            .with_turns(turns.into_iter().map(|seconds| Turn::After(secs(seconds))))
            .with_health(health);
        let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (answer, took) = runtime.block_on(run(&config, ports, body));
        prop_assert!(took <= config.bound().total, "{took:?}: {answer:?}");
        let streamed = answer.head.header("content-type") == Some("text/event-stream");
        let failed = !answer.error().is_null();
        let ends = answer.data().iter().filter(|data| **data == "[DONE]").count();
        prop_assert_eq!(ends, usize::from(streamed && !failed), "{:?}", answer);
        prop_assert_eq!(&answer.end, if streamed && failed { &Piece::Cut } else { &Piece::End });
        prop_assert_eq!(answer.head.status == 200, streamed || !failed, "{:?}", answer);
        if streamed && !failed {
            prop_assert!(answer.body.matches("\"role\":\"assistant\"").count() == 1, "{answer:?}");
        }
    }
}
