//! `/metrics`: its format, its names, and that each number counts what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use gglib_core::admission::{
    BreakerSnapshot, EngineSnapshot, EngineState, Generation, ModelSnapshot, QueueSnapshot, Refusal,
    Snapshot, Totals,
};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;
use gglib_core::ports::{Liveness, Phase};
use gglib_core::retry::BreakerState;
use gglib_proxy::metrics::METRICS;
use gglib_testkit::wire::{Answer, post};
use http::StatusCode;
use tokio::time::sleep;

use crate::exposition::{self, Family};
use crate::pipes::{MODEL, Piped};
use crate::ports::{Ports, Step, Turn, content, done, finish, opening};
use crate::served::shipped;

const STREAM: &str = r#"{"messages":[],"stream":true}"#;
const PLAIN: &str = r#"{"messages":[]}"#;

async fn scrape(endpoint: &Piped) -> BTreeMap<String, Family> {
    let answer = endpoint.connect().ask("GET /metrics HTTP/1.1\r\nhost: gglib\r\n\r\n").await;
    assert_eq!(answer.head.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    exposition::read(&answer.body).unwrap()
}

/// The samples of the metric that `name` is or begins with, without those that are 0.
fn counted(families: &BTreeMap<String, Family>, name: &str) -> Vec<String> {
    let samples = families.values().flat_map(|family| &family.samples);
    let counted = samples.filter(|sample| sample.name == name && sample.value != 0.0);
    counted
        .map(|sample| {
            let labels: Vec<_> =
                sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} {}", labels.join(" "), sample.value)
        })
        .collect()
}

fn as_attempt(body: &str, header: &str) -> String {
    post("/v1/chat/completions", body).replacen("\r\n\r\n", &format!("\r\n{header}\r\n\r\n"), 1)
}

async fn chat_as(endpoint: &Piped, header: &str) -> Answer {
    endpoint.connect().ask(as_attempt(PLAIN, header)).await
}

fn timed() -> Vec<Step> {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":20}}}"#;
    let wait = |seconds| Step::Wait(Duration::from_secs(seconds));
    let mut steps = vec![wait(2)];
    steps.extend(opening());
    steps.extend([content("a"), wait(4), finish(), Step::Send(format!("data: {usage}\n\n")), done()]);
    steps
}

fn snapshot() -> Snapshot {
    let engine = EngineSnapshot {
        model: ModelName::new(MODEL),
        generation: Generation(3),
        state: EngineState::Resident,
        in_flight: 2,
        parallel: 4,
        uptime: Duration::from_secs(9),
        pid: None,
        address: None,
        estimated: Some(Memory { ram: 3 << 30, vram: 0 }),
        measured: Some(Memory { ram: 2 << 30, vram: 1 << 30 }),
        pinned: false,
    };
    let queue = QueueSnapshot {
        model: ModelName::new(MODEL),
        waiting: 5,
        oldest_wait: Duration::from_millis(1500),
        estimate: None,
        first: Vec::new(),
    };
    let breaker = BreakerSnapshot {
        model: ModelName::new(MODEL),
        state: BreakerState::Open,
        retry_in: Some(Duration::from_secs(7)),
        failures: 1,
        reason: "no".into(),
    };
    let known = ModelSnapshot {
        model: ModelName::new(MODEL),
        loads: 4,
        loading: Duration::from_millis(6500),
        interval: None,
    };
    let totals = Totals {
        loads: 4,
        failed_loads: 3,
        cancelled_loads: 5,
        swaps: 2,
        evictions: 6,
        crashes: 1,
        recycles: 8,
        expired: 7,
    };
    Snapshot {
        engines: vec![engine],
        queue: vec![queue],
        breakers: vec![breaker],
        models: vec![known],
        totals,
    }
}

#[tokio::test(start_paused = true)]
async fn every_metric_of_the_table_is_there_with_its_help_and_labels_and_no_other() {
    let endpoint = Piped::start(Ports::default().showing(snapshot()), shipped());
    let families = scrape(&endpoint).await;
    let expected: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
    for metric in METRICS {
        let family = families.get(metric.name).unwrap_or_else(|| panic!("{} is missing", metric.name));
        assert_eq!(family.kind, metric.kind.as_str(), "{}", metric.name);
        assert_eq!(family.help, format!("{}.", metric.help), "{}", metric.name);
        for sample in &family.samples {
            let labels: Vec<_> = sample.labels.keys().filter(|label| *label != "le").collect();
            let mut expected = metric.labels.to_vec();
            expected.sort_unstable();
            assert_eq!(labels, expected, "{}", sample.name);
        }
    }
    assert_eq!(families.len(), expected.len());
}

/// Dashboards are built on these names: a change here breaks them.
#[test]
fn the_names_are_these() {
    let names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(
        names,
        [
            "gglib_requests_received_total",
            "gglib_requests_in_flight",
            "gglib_requests_total",
            "gglib_request_duration_seconds",
            "gglib_queue_wait_seconds",
            "gglib_time_to_first_content_seconds",
            "gglib_generation_seconds",
            "gglib_prompt_tokens_total",
            "gglib_cached_prompt_tokens_total",
            "gglib_completion_tokens_total",
            "gglib_attached_requests_total",
            "gglib_relaunches_total",
            "gglib_resends_total",
            "gglib_continuations_total",
            "gglib_broken_turns_total",
            "gglib_mends_total",
            "gglib_repairs_total",
            "gglib_retries_above",
            "gglib_retried_requests_total",
            "gglib_retry_events_total",
            "gglib_retry_give_ups_total",
            "gglib_breaker_changes_total",
            "gglib_tasks",
            "gglib_scheduler_up",
            "gglib_engines",
            "gglib_engine_requests_in_flight",
            "gglib_queue_waiting",
            "gglib_queue_oldest_wait_seconds",
            "gglib_engine_memory_bytes",
            "gglib_load_breakers",
            "gglib_loads_total",
            "gglib_load_seconds_total",
            "gglib_failed_loads_total",
            "gglib_cancelled_loads_total",
            "gglib_swaps_total",
            "gglib_evictions_total",
            "gglib_recycles_total",
            "gglib_expired_waits_total",
            "gglib_crashes_total",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_answers_times_and_tokens_are_measured_plain_and_streamed() {
    for body in [PLAIN, STREAM] {
        let ports = Ports::answering([timed()]).with_turns([Turn::After(Duration::from_secs(3))]);
        let endpoint = Piped::start(ports, shipped());
        assert_eq!(endpoint.chat(body).await.content(), "a");
        let families = scrape(&endpoint).await;
        let counted = |name| counted(&families, name);
        assert_eq!(counted("gglib_requests_received_total"), [" 1"]);
        assert_eq!(counted("gglib_requests_in_flight"), [""; 0]);
        assert_eq!(counted("gglib_requests_total"), ["code= model=m outcome=success 1"]);
        assert_eq!(counted("gglib_request_duration_seconds_sum"), ["model=m outcome=success 9"]);
        assert_eq!(counted("gglib_queue_wait_seconds_sum"), ["model=m 3"]);
        assert_eq!(counted("gglib_time_to_first_content_seconds_sum"), ["model=m 5"]);
        assert_eq!(counted("gglib_generation_seconds_sum"), ["model=m 4"]);
        assert_eq!(counted("gglib_prompt_tokens_total"), ["model=m 30"]);
        assert_eq!(counted("gglib_cached_prompt_tokens_total"), ["model=m 20"]);
        assert_eq!(counted("gglib_completion_tokens_total"), ["model=m 7"]);
        assert_eq!(counted("gglib_retries_above_count"), ["model=m 1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_flight_is_seen_and_one_whose_client_leaves_is_abandoned() {
    let endpoint = Piped::start(Ports::default(), shipped());
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", STREAM)).await;
    client.head().await.unwrap();
    let families = scrape(&endpoint).await;
    assert_eq!(counted(&families, "gglib_requests_in_flight"), ["model=m 1"]);
    drop(client);
    sleep(Duration::from_secs(1)).await;
    let families = scrape(&endpoint).await;
    assert_eq!(counted(&families, "gglib_requests_in_flight"), [""; 0]);
    assert_eq!(counted(&families, "gglib_requests_total"), ["code= model=m outcome=abandoned 1"]);
}

#[tokio::test(start_paused = true)]
async fn errors_are_told_apart_by_outcome_and_code_and_a_clients_text_is_no_label() {
    let refused = Turn::Refused(Duration::ZERO, Refusal::Draining);
    let engine_error = |code: &str| {
        let body = format!(r#"{{"error":{{"message":"no","type":"x","code":{code}}}}}"#);
        vec![Step::Head(StatusCode::BAD_REQUEST), Step::Send(body)]
    };
    let ports = Ports::answering([engine_error(r#""made_up""#)]).with_turns([refused]);
    let endpoint = Piped::start(ports, shipped());
    endpoint.chat(PLAIN).await;
    endpoint.chat(PLAIN).await;
    endpoint.chat(r#"{"model":"evil\"} 1","messages":[]}"#).await;
    endpoint.chat("{").await;
    let families = scrape(&endpoint).await;
    assert_eq!(
        sorted(counted(&families, "gglib_requests_total")),
        [
            "code=draining model=m outcome=refused 1",
            "code=invalid_json model= outcome=failed 1",
            "code=model_not_found model= outcome=failed 1",
            "code=upstream_own model=m outcome=failed 1",
        ]
    );
    // The same book.
    let totals = endpoint.totals().await;
    assert_eq!((totals["requests"].as_u64(), totals["failed"].as_u64()), (Some(4), Some(4)));
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[tokio::test(start_paused = true)]
async fn recoveries_and_answers_that_end_the_clients_retries_are_counted() {
    let broken = || vec![Step::Break(Phase::BeforeHeaders)];
    let ports = Ports::answering([broken(), broken(), broken()]).with_health([
        Liveness::Alive,
        Liveness::Dead,
        Liveness::Dead,
    ]);
    let endpoint = Piped::start(ports, shipped());
    let answer = endpoint.chat(PLAIN).await;
    assert_eq!(answer.head.header("x-should-retry"), Some("false"));
    let families = scrape(&endpoint).await;
    assert_eq!(counted(&families, "gglib_resends_total"), ["model=m 1"]);
    assert_eq!(counted(&families, "gglib_relaunches_total"), ["model=m 1"]);
    assert_eq!(counted(&families, "gglib_queue_wait_seconds_count"), ["model=m 2"]);
    assert_eq!(counted(&families, "gglib_time_to_first_content_seconds_count"), [""; 0]);
    assert_eq!(counted(&families, "gglib_retry_give_ups_total"), ["model=m reason=not retryable 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_two_engines_has_one_first_content_one_generation_and_the_tokens_of_a_whole_answer() {
    let wait = |seconds| Step::Wait(Duration::from_secs(seconds));
    let first = opening().into_iter().chain([wait(2), content("a"), wait(3), content("b")]);
    let first = first.chain([Step::Break(Phase::MidBody)]).collect();
    // The engine that goes on has read the two tokens as a part of its prompt.
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":32,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":31}}}"#;
    let second = opening().into_iter().chain([wait(4), content("c"), finish()]);
    let second = second.chain([Step::Send(format!("data: {usage}\n\n")), done()]).collect();
    let ports = Ports::answering([first, second]).with_health([Liveness::Dead]);
    let endpoint = Piped::start(ports, shipped());
    let body = r#"{"messages":[{"role":"user","content":"a"}],"stream":true}"#;
    assert_eq!(endpoint.chat(body).await.content(), "abc");
    let families = scrape(&endpoint).await;
    let counted = |name| counted(&families, name);
    assert_eq!(counted("gglib_time_to_first_content_seconds_count"), ["model=m 1"]);
    assert_eq!(counted("gglib_time_to_first_content_seconds_sum"), ["model=m 2"]);
    assert_eq!(counted("gglib_generation_seconds_sum"), ["model=m 7"]);
    assert_eq!(counted("gglib_prompt_tokens_total"), ["model=m 30"]);
    assert_eq!(counted("gglib_cached_prompt_tokens_total"), ["model=m 30"]);
    assert_eq!(counted("gglib_completion_tokens_total"), ["model=m 7"]);
    let recent = &endpoint.status().await["recent"][0];
    assert_eq!([&recent["prompt_tokens"], &recent["completion_tokens"]], [30, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_client_has_seen_is_no_first_content() {
    let wait = |seconds| Step::Wait(Duration::from_secs(seconds));
    let call =
        r#"{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let call = || Step::Send(crate::ports::event(call, "null"));
    let dies = opening().into_iter().chain([wait(2), call(), Step::Break(Phase::MidBody)]).collect();
    let whole = opening().into_iter().chain([wait(3), call(), finish(), done()]).collect();
    let ports = Ports::answering([dies, whole]).with_health([Liveness::Dead]);
    let endpoint = Piped::start(ports, shipped());
    let tools = r#""tools":[{"type":"function","function":{"name":"f"}}]"#;
    endpoint.chat(&format!(r#"{{"messages":[],"stream":true,{tools}}}"#)).await;
    let families = scrape(&endpoint).await;
    assert_eq!(counted(&families, "gglib_time_to_first_content_seconds_count"), ["model=m 1"]);
    assert_eq!(counted(&families, "gglib_time_to_first_content_seconds_sum"), ["model=m 5"]);
}

#[tokio::test(start_paused = true)]
async fn waits_count_however_they_end() {
    let hour = || Turn::After(Duration::from_secs(3600));
    for body in [STREAM, PLAIN] {
        let endpoint = Piped::start(Ports::default().with_turns([hour(), hour()]), shipped());
        let mut client = endpoint.connect();
        client.send(post("/v1/chat/completions", body)).await;
        sleep(Duration::from_secs(40)).await;
        drop(client);
        sleep(Duration::from_secs(1)).await;
        let waited = endpoint.status().await["recent"][0]["waited_ms"].as_u64();
        assert_eq!(waited, Some(40_000), "who has left");
        assert_eq!(endpoint.chat(body).await.error()["code"], "timeout_request");
        let waited = endpoint.status().await["recent"][0]["waited_ms"].as_u64();
        assert_eq!(waited, Some(45 * 60 * 1000), "who was not answered in time");
        let families = scrape(&endpoint).await;
        assert_eq!(counted(&families, "gglib_queue_wait_seconds_count"), ["model=m 2"]);
        assert_eq!(counted(&families, "gglib_queue_wait_seconds_sum"), ["model=m 2740"]);
    }
}

#[tokio::test(start_paused = true)]
async fn retries_from_above_are_counted_capped_and_budgeted_and_never_refused() {
    let whole = || opening().into_iter().chain([content("a"), finish(), done()]).collect::<Vec<_>>();
    let refused = || Turn::Refused(Duration::ZERO, Refusal::Draining);
    let served = || Turn::After(Duration::ZERO);
    let turns = (0..18).map(|_| refused()).chain([refused(), served(), refused()]);
    let endpoint = Piped::start(Ports::answering([whole()]).with_turns(turns), shipped());
    // 18 retries in a minute are a lone client's due.
    for _ in 0..17 {
        let answer = chat_as(&endpoint, "x-stainless-retry-count: 1").await;
        assert_eq!(answer.head.header("x-should-retry"), None);
        assert!(answer.head.header("retry-after").is_some());
    }
    for header in ["x-gglib-attempt: 4294967295", "x-gglib-attempt: 2"] {
        let answer = chat_as(&endpoint, header).await;
        assert_eq!(answer.head.status, 503);
        assert_eq!(answer.head.header("x-should-retry"), Some("false"));
        assert!(answer.head.header("retry-after").is_some(), "it is true all the same");
    }
    // What can be answered is answered.
    assert_eq!(chat_as(&endpoint, "x-gglib-attempt: 3").await.content(), "a");
    // An original that is refused would come back as the next retry.
    let original = endpoint.chat(PLAIN).await;
    assert_eq!(original.head.header("x-should-retry"), Some("false"));

    let families = scrape(&endpoint).await;
    assert_eq!(counted(&families, "gglib_retries_above_count"), ["model=m 21"]);
    assert_eq!(counted(&families, "gglib_retried_requests_total"), ["model=m 20"]);
    assert_eq!(endpoint.totals().await["retries"], 20);
    assert_eq!(counted(&families, "gglib_retries_above_sum"), ["model=m 36"], "17 × 1 + 16 + 1 + 2");
    assert_eq!(
        sorted(counted(&families, "gglib_retry_events_total")),
        ["event=budget_exceeded model=m 2", "event=exhausted model=m 3"]
    );
    assert_eq!(counted(&families, "gglib_retry_give_ups_total"), ["model=m reason=budget exhausted 3"]);
}

#[tokio::test(start_paused = true)]
async fn engines_queues_and_totals_are_those_of_the_scheduler_and_asking_loads_nothing() {
    let endpoint = Piped::start(Ports::default().showing(snapshot()), shipped());
    let families = scrape(&endpoint).await;
    for (name, expected) in [
        ("gglib_scheduler_up", " 1"),
        ("gglib_engines", "model=m state=resident 1"),
        ("gglib_engine_requests_in_flight", "model=m 2"),
        ("gglib_queue_waiting", "model=m 5"),
        ("gglib_queue_oldest_wait_seconds", "model=m 1.5"),
        ("gglib_load_breakers", "model=m state=open 1"),
        ("gglib_loads_total", "model=m 4"),
        ("gglib_load_seconds_total", "model=m 6.5"),
        ("gglib_failed_loads_total", " 3"),
        ("gglib_cancelled_loads_total", " 5"),
        ("gglib_swaps_total", " 2"),
        ("gglib_evictions_total", " 6"),
        ("gglib_recycles_total", " 8"),
        ("gglib_expired_waits_total", " 7"),
        ("gglib_crashes_total", " 1"),
    ] {
        assert_eq!(counted(&families, name), [expected], "{name}");
    }
    assert_eq!(
        sorted(counted(&families, "gglib_engine_memory_bytes")),
        [
            "kind=ram known_by=estimate model=m 3221225472",
            "kind=ram known_by=measurement model=m 2147483648",
            "kind=vram known_by=measurement model=m 1073741824",
        ]
    );
    assert_eq!(endpoint.ports.stage.going_on(), [0, 0, 0]);
    assert_eq!(counted(&families, "gglib_requests_received_total"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn every_task_is_counted_as_long_as_it_runs() {
    let endpoint = Piped::start(Ports::default(), shipped());
    let tasks = async || {
        // The connection of the scrape before has ended by now.
        sleep(Duration::from_secs(1)).await;
        counted(&scrape(&endpoint).await, "gglib_tasks")[0].trim().parse::<u32>().unwrap()
    };
    let before = tasks().await;
    let task = tokio::spawn(std::future::pending::<()>());
    assert_eq!(tasks().await, before + 1);
    task.abort();
    assert_eq!(tasks().await, before);
}
