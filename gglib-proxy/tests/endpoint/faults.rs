//! What a client gets for every fault of an engine: the whole answer or an explicit error, and how often the
//! engine was asked for it.
//!
//! Which fault is shown where. T are those that users of local-model servers met, S the scenarios of failoverbench, R bug
//! reports of gateways, numbers and bare letters the mended and the open faults of one gateway of this kind; without a file
//! it is a test of this directory, and "core", "runtime" and "cli" are the crates. Faults of the queue are listed in
//! `gglib-runtime/tests/pool_memory.rs`, among them T1 to T9, T19 to T22, T33 to T40, 1 to 13 and the letters that are not
//! here; what is played against a whole endpoint, in `xtask/src/drill`.
//!
//! | fault | shown by |
//! |---|---|
//! | the engine is killed, then a request (T10) | `gglib-runtime`'s `engine.rs`; here: `DieBeforeHeaders` |
//! | dies after content (T11, S08, R1, R2) | here: `DieAfter`; `continuation` |
//! | dies before its head (T12, S05) | here: `DieBeforeHeaders`; `hung`, on every route |
//! | only pings, then dies (T14) | here and `hung`: `PingAfter`, `PingThenDie` |
//! | healthy, and every request 500 (T15) | `hung`: `…_fails_at_everything_is_replaced_at_the_third_failure` |
//! | hangs after content, a rival waits (T16, S09, R8) | here: `a_hang_with_a_patient_client_…`; `hung` |
//! | stopped (SIGSTOP), deaf to SIGTERM | `hung`: `StopBeforeHeaders`, `StopAfter` |
//! | killed while it loads or is idle (T18) | `gglib-runtime`'s `engine.rs` |
//! | comes up and does not last (T20) | `hung`: `an_engine_that_does_not_last_…`; `gglib-core`'s `crashes` |
//! | the client leaves, in every phase (T23, R24) | `disconnects`, `clocks` |
//! | minutes of load and prompt (T24, R5, R7, R45) | `waiting`: `a_stream_is_never_silent_…` |
//! | more than the queue takes (T25) | `waiting`: `a_full_queue_refuses_before_any_byte_…` |
//! | broken calls in the history (T27, R17) | `repair` |
//! | a restored slot that lies (T28) | `slots`; `gglib-runtime`'s `slots.rs` |
//! | gglib is killed, with and without its guard (T30) | `gglib-runtime`'s `guard.rs` |
//! | the configuration changes under streams (T32) | `gglib-cli`'s `reload.rs` |
//! | silence before the head, before content (S06, S07, R4) | `clocks`: `every_clock_of_an_attempt_…`; `recovery` |
//! | 500 once, 503, 429 with a hint (S01, S03, S04, R20) | here: `Status`; `recovery`: `an_engines_own_error_…` |
//! | a malformed chunk (S10) | here: `GarbageAfter` |
//! | no `[DONE]` (S11) | here: `NoDone` |
//! | context or content refused, once (S12, S13, R42) | `recovery`; overflow texts: `gglib-core`'s `api_error.rs` |
//! | the prefix is refused (S14, R14) | `continuation`: `if_it_cannot_go_on_the_client_hears_of_the_death` |
//! | ends without a `finish_reason` (R3) | here: `EndAfter`, `TextAfter` |
//! | metadata before an error (R10) | `recovery`: `metadata_without_content_leaves_the_window_open` |
//! | an error after the head, before or instead of content (R11, R12, R13) | `recovery`: `an_error_in_the_stream_…` |
//! | all breakers open (R21, R33) | `waiting`: `a_refusal_tells_the_truth_…` |
//! | retries multiply (R27) | here: how often an engine was asked; `gglib-cli`'s `retry_layers.rs` |
//! | deltas held back (R37) | `passthrough` |
//! | `id:` lines, comments of the engine (R38, R40) | here: `check` |
//! | S02, S15: a queue that stays full, twenty requests while engines come and go | `xtask/src/drill`: `queues`, `loads` |
//! | S16: model and usage are told as they are | `xtask/src/drill`: `answers` |
//! | a call that was held back when its stream died (14) | `continuation`: `a_call_that_is_still_held_back_…`; `repair`: `an_engine_that_dies_over_a_call_…` |
//! | a repair that hangs (15) | `repair`: `whatever_goes_wrong_leaves_the_first_answer_as_it_was`; `xtask/src/drill`: `answers` |
//! | a cut that is told as `stop` (16) | here: `EndAfter`; core's `api_chunk`: `an_end_is_honest_when_every_choice_has_finished` |
//! | usage lost, late, or beside the finish; one `[DONE]`, last (17) | `passthrough`: `usage_and_progress_are_for_those_who_ask`; core's `api_fold`: `usage_comes_from_the_engine_…`; `continuation`: `usage_adds_up_…` |
//! | an answer of reasoning alone (18) | `gateway`: `an_answer_of_reasoning_alone_…` |
//! | markup that holds its own closing tag, several functions in one (19) | `gateway`: `markup_that_the_engine_leaves_in_the_text_…`; gglib itself reads no such markup, except what its own repair asks for: core's `assess`: `an_unknown_function_is_replaced_by_any_and_calls_in_text_are_read` |
//! | markup for plain clients, bodies on the disk (20) | `gateway`: the same; cli's `reload.rs`: `what_is_asked_and_answered_is_neither_logged_nor_kept` |
//! | a prefix that changes each turn (21) | `passthrough`: `a_body_reaches_the_engine_byte_for_byte_…`; runtime's `real_slots.rs` |
//! | slots that are saved and restored in silence, or not (22) | runtime's `slots.rs`, all of it; core's `slots::manifest`: `only_the_names_that_we_make_are_ours`, `torn_is_never_taken` |
//! | the context is not what was configured, or more than there is (23, 24) | `gateway`: `the_context_that_is_told_…`; runtime's `command`: `context_is_per_request_…` |
//! | content in parts, unknown members (24) | `gateway`: the same; `passthrough`: `a_body_reaches_the_engine_byte_for_byte_…` |
//! | a killed process that does not go (25, state D) | runtime's `engine.rs`: `a_guard_that_never_says_a_word_does_not_hold_up_the_shutdown`, which is what is seen of it |
//! | liveness by `/proc` on macOS (25) | does not apply, because an engine's end is told by its guard, its parent, and never looked up |
//! | streams that hold the shutdown up (25) | cli's `reload.rs`: `a_drain_ends_at_its_bound_…`; `clocks`: `shutting_down_ends_idle_connections_…` |
//! | what is off stays on (25) | runtime's `command`: `context_is_per_request_…` has every flag; `repair`: `…_what_is_off_is_off`; here: `with_relaunching_switched_off_…` |
//! | an absurd hint, a short deadline, real jitter in tests (26) | core's `retry/hint.rs`: `c67_c68_…`; `retry/env.rs`: `the_first_delay_fits_a_shortened_deadline`; units are given, not drawn |
//! | the command asks for a route that is gone (27) | cli's `drill.rs`: `a_running_endpoint_is_drilled_…`, with `status`; `real_gglib.rs` |
//! | what is launched again has stale settings (28) | cli's `reload.rs`: `a_relaunch_takes_the_settings_that_are_in_effect_by_then` |
//! | a client's sampler that passes a gate unread (28) | does not apply, because there is no gate: samplers pass as they are, `passthrough` |
//! | a character split over chunks (C) | core's `sse.rs`: `every_cut_into_up_to_three_chunks_…`, `recorded_streams_survive_every_cut_…` |
//! | bodies over 2 MiB (D) | `limits`: `a_body_that_is_too_large_is_told_so_however_it_comes`; `xtask/src/drill`: `answers` |
//! | `data:` without a blank, a last line without an end (E) | core's `sse.rs`: `streams_decode_as_the_standard_says` |
//! | a client that leaves while calls are held back (H) | `repair`: `a_client_that_leaves_during_a_repair_ends_it`; `clocks`: `who_leaves_is_noticed_at_once_…` |
//! | long silence over a call, no bound of a stall, a slow reader (H) | `repair`: `text_passes_live_and_calls_wait_with_signs_of_life`; `hung`; `clocks`: `a_client_that_does_not_read_…` |
//! | work of gglib's own that holds no lease (J) | `gateway`: `a_repair_holds_its_engine_…`; there are no chats inside gglib: its commands are clients |
//! | a call that is taken for a loop (K) | `gateway`: `a_call_that_was_made_before_is_made_again` |
//! | slots purged at a launch, saved after an aborted turn, trusted after a failed save (L) | runtime's `slots.rs`: `it_survives_a_restart_…`, `after_a_failed_save_the_older_one_stands`; `slots`: `an_answer_that_failed_leaves_it_unknown_…` |

use std::time::Duration;

use gglib_proxy::Settings;
use gglib_testkit::wire::{Answer, Piece};
use gglib_testkit::{Engines, Fault, Launch, Reply, Script, Scripted};

use crate::served::{BOUND, Served, in_flight, shipped};

const STREAM: &str = r#"{"model":"a","messages":[],"stream":true}"#;
const PLAIN: &str = r#"{"model":"a","messages":[]}"#;

const BRIEF: Duration = Duration::from_secs(1);

/// The shipped settings with the clocks of an attempt shortened, the time for a hang to show, and the grace of a stream's
/// head prolonged: what is known before content then stands in the head, however busy the machine is.
fn brief() -> Settings {
    let mut settings = shipped();
    settings.timeouts.connect = BRIEF;
    settings.timeouts.response_headers = BRIEF;
    settings.timeouts.first_content = BRIEF;
    settings.timeouts.idle = BRIEF;
    settings.head_grace = BOUND;
    settings
}

fn reply(fault: Fault) -> Reply {
    Reply { fault: Some(fault), ..Reply::numbered(5) }
}

/// The fault in the first answer of the first launch; everything after it is well.
fn once(fault: Fault) -> Script {
    let first = Launch {
        replies: vec![reply(fault), Reply::numbered(5)],
        ping_every: Some(Duration::from_millis(50)),
        ..Launch::default()
    };
    let healthy = Launch { replies: vec![Reply::numbered(5)], ..Launch::default() };
    Script { launches: vec![first, healthy] }
}

async fn serve(script: &Script) -> (Scripted, Served) {
    let scripted = script.place();
    let engines = Engines::fake().scripted("a", &scripted);
    let served = Served::start(engines, brief()).await;
    (scripted, served)
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Whole,
    /// The whole answer, and what the recovery header says.
    Recovered(&'static str),
    /// An error with this status and code.
    Status(u16, &'static str),
    /// This many contents, an error event with this code, and the cut.
    Event(usize, &'static str),
}

use Outcome::{Event, Recovered, Status, Whole};

/// Checks that the answer is as `expected`, to the byte where the protocol counts.
fn check(answer: &Answer, expected: &Outcome, what: &str) {
    let text = Reply::numbered(5).content();
    let stream = answer.head.header("content-type") == Some("text/event-stream");
    let recovery = answer.head.header("x-gglib-recovery");
    match *expected {
        Whole | Recovered(_) => {
            let (expected, recovered) =
                if let Recovered(how) = expected { (how, true) } else { (&"", false) };
            assert_eq!((answer.head.status, &answer.end), (200, &Piece::End), "{what}: {answer:?}");
            assert_eq!(answer.content(), text, "{what}: {}", answer.body);
            assert_eq!(recovery, recovered.then_some(*expected), "{what}");
            if stream {
                let data = answer.data();
                assert_eq!(
                    data.iter().filter(|data| **data == "[DONE]").count(),
                    1,
                    "{what}: {}",
                    answer.body
                );
                assert!(answer.body.ends_with("data: [DONE]\n\n"), "{what}: {}", answer.body);
                assert_eq!(
                    answer.body.matches("\"role\":\"assistant\"").count(),
                    1,
                    "{what}: {}",
                    answer.body
                );
                assert!(data[0].contains("\"role\":\"assistant\""), "{what}: {}", answer.body);
            }
        }
        Status(status, code) => {
            assert_eq!((answer.head.status, &answer.end), (status, &Piece::End), "{what}: {answer:?}");
            assert_eq!(answer.head.header("content-type"), Some("application/json"), "{what}");
            assert_eq!(answer.error()["code"], code, "{what}: {}", answer.body);
            // Known of its recovery, if it had one.
            let had = matches!(code, "upstream_died" | "timeout_response_headers" | "timeout_first_content");
            assert!(recovery.is_none() || had, "{what}: {recovery:?}");
        }
        Event(contents, code) => {
            assert_eq!((answer.head.status, &answer.end), (200, &Piece::Cut), "{what}: {answer:?}");
            assert_eq!(answer.content(), Reply::numbered(contents).content(), "{what}: {}", answer.body);
            assert_eq!(answer.error()["code"], code, "{what}: {}", answer.body);
            assert_eq!(answer.body.matches("\"error\":").count(), 1, "{what}: {}", answer.body);
            assert!(
                answer.body.ends_with("}\n\n") && !answer.body.contains("[DONE]"),
                "{what}: {}",
                answer.body
            );
            assert!(!answer.body.contains("finish_reason\":\"stop"), "{what}: {}", answer.body);
        }
    }
    if stream {
        // Neither the engine's comments nor its progress are for the client.
        let foreign = answer.comments().iter().any(|comment| *comment != ": keep-alive");
        assert!(!foreign && !answer.body.contains("prompt_progress"), "{what}: {}", answer.body);
        assert!(!answer.body.contains("\"usage\""), "{what}: {}", answer.body);
    }
}

/// What a fault comes to in a stream and in a plain answer, each with how often an engine was asked.
struct Row {
    fault: Fault,
    stream: (Outcome, usize),
    plain: (Outcome, usize),
}

fn table() -> Vec<Row> {
    const DIED: &str = "upstream_died";
    let row = |fault, stream, plain| Row { fault, stream, plain };
    let whole = |fault| row(fault, (Whole, 1), (Whole, 1));
    let error = |fault, status, code| row(fault, (Status(status, code), 1), (Status(status, code), 1));
    let relaunched = || (Recovered("relaunch"), 2);
    let resent = || (Recovered("resend"), 2);
    let event = |contents, code| (Event(contents, code), 1);
    vec![
        whole(Fault::NoDone),
        whole(Fault::NoRole),
        // The engine has answered: that is never repeated.
        error(Fault::Status(400), 400, "invalid_request"),
        error(Fault::Status(500), 500, "upstream_error"),
        error(Fault::Status(501), 501, "not_supported"),
        // Dead: relaunched as long as the client has seen no content. A plain one sees none before the end.
        row(Fault::DieBeforeHeaders, relaunched(), relaunched()),
        row(Fault::DieAfter(0), relaunched(), relaunched()),
        row(Fault::PingThenDie(0, Duration::from_millis(300)), relaunched(), relaunched()),
        row(Fault::DieAfter(1), event(1, DIED), relaunched()),
        row(Fault::DieAfter(3), event(3, DIED), relaunched()),
        row(Fault::DieAfter(5), event(5, DIED), relaunched()),
        // Alive: only the connection was broken, or the answer.
        row(Fault::CutAfter(0), resent(), resent()),
        row(Fault::EndAfter(0), resent(), resent()),
        row(Fault::CutAfter(2), event(2, DIED), resent()),
        row(Fault::EndAfter(2), event(2, "upstream_incomplete"), resent()),
        row(Fault::TextAfter(2), event(2, "upstream_incomplete"), resent()),
        row(Fault::GarbageAfter(2), event(2, "upstream_malformed"), (Status(502, "upstream_malformed"), 1)),
        // Hanging: as good as dead, whatever its health probe says.
        row(Fault::HangBeforeHeaders, relaunched(), relaunched()),
        row(Fault::HangAfter(0), relaunched(), relaunched()),
        row(Fault::PingAfter(0), relaunched(), relaunched()),
        row(Fault::HangAfter(3), event(3, "timeout_idle"), relaunched()),
        row(Fault::PingAfter(3), event(3, "timeout_idle"), relaunched()),
    ]
}

#[tokio::test]
async fn a_fault_in_a_stream_ends_in_the_whole_answer_or_an_explicit_error() {
    for Row { fault, stream: (expected, requests), .. } in table() {
        one(fault, STREAM, &expected, requests).await;
    }
}

#[tokio::test]
async fn a_fault_in_a_plain_answer_ends_in_the_whole_answer_or_an_explicit_error() {
    for Row { fault, plain: (expected, requests), .. } in table() {
        one(fault, PLAIN, &expected, requests).await;
    }
}

async fn one(fault: Fault, body: &str, expected: &Outcome, requests: usize) {
    let what = format!("{fault:?}");
    let (scripted, served) = serve(&once(fault)).await;
    let answer = served.chat(body).await;
    check(&answer, expected, &what);
    assert_eq!(scripted.log().requests(), requests, "{what}");
    let launches = if *expected == Recovered("relaunch") { 2 } else { 1 };
    assert_eq!(scripted.log().launches(), launches, "{what}");
    let advice = answer.head.header("x-should-retry");
    if let Status(502 | 504, code) = expected {
        assert_eq!(advice, (*code != "upstream_malformed").then_some("false"), "{what}");
    } else {
        assert_eq!(advice, None, "{what}");
    }

    let failed = u64::from(matches!(expected, Status(..) | Event(..)));
    let totals = &served.status().await["totals"];
    let count = |name: &str| totals[name].as_u64().unwrap();
    assert_eq!([count("requests"), count("failed"), count("abandoned")], [1, failed, 0], "{what}");
    let recovered =
        [Recovered("relaunch"), Recovered("resend")].map(|recovery| u64::from(*expected == recovery));
    assert_eq!([count("relaunches"), count("resends")], recovered, "{what}");

    // The lease is back, and the next request is served as if nothing had been.
    served.until("the lease to be back", |status| in_flight(status) == 0).await;
    check(&served.chat(body).await, &Whole, &what);
}

#[tokio::test]
async fn an_engine_that_dies_every_time_is_relaunched_once_a_request() {
    for fault in [Fault::DieBeforeHeaders, Fault::DieAfter(0)] {
        for body in [STREAM, PLAIN] {
            let script = Script::always(Launch { replies: vec![reply(fault)], ..Launch::default() });
            let (scripted, served) = serve(&script).await;
            let answer = served.chat(body).await;
            check(&answer, &Status(502, "upstream_died"), body);
            assert_eq!(answer.head.header("x-should-retry"), Some("false"));
            assert_eq!(answer.head.header("x-gglib-recovery"), Some("relaunch"));
            assert_eq!((scripted.log().requests(), scripted.log().launches()), (2, 2), "{body}");
            let totals = &served.status().await["totals"];
            assert_eq!([&totals["failed"], &totals["relaunches"]], [1, 1]);
        }
    }
}

#[tokio::test]
async fn a_stream_of_plain_text_goes_on_after_the_process_has_died() {
    let body = r#"{"model":"a","messages":[{"role":"user","content":"Count."}],"stream":true}"#;
    let whole = Reply::numbered(5);
    for (fault, sent) in [(Fault::DieAfter(1), 1), (Fault::DieAfter(3), 3), (Fault::DieAfter(5), 5)] {
        for repeats_prefix in [true, false] {
            let rest = Reply { deltas: whole.deltas[sent..].to_vec(), repeats_prefix, ..whole.clone() };
            let first = Launch { replies: vec![reply(fault)], ..Launch::default() };
            let second = Launch { replies: vec![rest], ..Launch::default() };
            let (scripted, served) = serve(&Script { launches: vec![first, second] }).await;
            let answer = served.chat(body).await;
            assert_eq!(
                (answer.content(), &answer.end),
                (whole.content(), &Piece::End),
                "{fault:?} {answer:?}"
            );
            assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
            for once in ["\"role\":\"assistant\"", "[DONE]", ": gglib-recovery continuation", "\"stop\""] {
                assert_eq!(answer.body.matches(once).count(), 1, "{once}: {}", answer.body);
            }
            assert_eq!((scripted.log().requests(), scripted.log().launches()), (2, 2), "{fault:?}");
            let totals = &served.status().await["totals"];
            assert_eq!([&totals["continuations"], &totals["failed"]], [1, 0]);
        }
    }
}

#[tokio::test]
async fn a_stream_whose_engine_dies_again_is_an_error_and_the_engine_is_asked_no_more() {
    let body = r#"{"model":"a","messages":[{"role":"user","content":"Count."}],"stream":true}"#;
    let script = Script::always(Launch { replies: vec![reply(Fault::DieAfter(2))], ..Launch::default() });
    let (scripted, served) = serve(&script).await;
    let answer = served.chat(body).await;
    assert_eq!(
        (&answer.end, answer.error()["code"].as_str()),
        (&Piece::Cut, Some("upstream_died")),
        "{answer:?}"
    );
    assert_eq!((scripted.log().requests(), scripted.log().launches()), (2, 2));
    let totals = &served.status().await["totals"];
    assert_eq!([&totals["continuations"], &totals["failed"]], [1, 1]);
}

#[tokio::test]
async fn a_hang_with_a_patient_client_does_not_keep_the_engine_from_another_model() {
    let a = Script::always(Launch { replies: vec![reply(Fault::HangAfter(3))], ..Launch::default() }).place();
    let b = Script::always(Launch { replies: vec![Reply::numbered(5)], ..Launch::default() }).place();
    let engines = Engines::fake().scripted("a", &a).scripted("b", &b);
    let served = Served::start(engines, brief()).await;
    let other = r#"{"model":"b","messages":[],"stream":true}"#;
    let (first, second) = tokio::join!(served.chat(STREAM), async {
        a.until("A to answer", BOUND, |log| log.requests() == 1).await;
        served.chat(other).await
    });
    check(&first, &Event(3, "timeout_idle"), "a");
    check(&second, &Whole, "b");
    // A was killed, and B launched in its place.
    assert_eq!((a.log().launches(), b.log().launches()), (1, 1));
}

#[tokio::test]
async fn with_relaunching_switched_off_a_dead_engine_is_an_error_at_once() {
    let scripted = once(Fault::DieBeforeHeaders).place();
    let engines = Engines::fake().scripted("a", &scripted);
    let served = Served::start(engines, Settings { relaunch: false, ..brief() }).await;
    check(&served.chat(PLAIN).await, &Status(502, "upstream_died"), "off");
    assert_eq!((scripted.log().requests(), scripted.log().launches()), (1, 1));
    check(&served.chat(PLAIN).await, &Whole, "the next one");
}
