//! Frames of 80 columns: wide, narrow and empty ones.

use serde_json::json;

use super::*;

const URL: &str = "http://127.0.0.1:8080/v1";
const NOW: u64 = 1_800_000_000;

fn idle() -> Value {
    json!({ "version": "0.1.0", "engines": [], "queue": [], "breakers": [], "recent": [], "totals": {} })
}

fn busy() -> Value {
    json!({
        "version": "0.1.0",
        "engines": [
            {
                "model": "smollm2", "state": "resident", "pid": 4711, "address": "unix:/run/1.sock",
                "generation": 1, "in_flight": 1, "parallel": 4, "uptime_s": 62, "pinned": false,
                "memory_estimated": { "ram": 271_000_000, "vram": 0 },
                "memory_measured": { "ram": 244_000_000, "vram": 0 },
            },
            {
                "model": "qwen", "state": "loading", "pid": null, "address": null, "generation": 2,
                "in_flight": 0, "parallel": 1, "uptime_s": 3, "pinned": false,
                "memory_estimated": { "ram": 1_000_000_000, "vram": 5_000_000_000_u64 }, "memory_measured": null,
            },
        ],
        "queue": [{
            "model": "qwen", "waiting": 7, "oldest_wait_ms": 3200, "estimate_ms": 45_000,
            "first": [
                { "position": 1, "phase": "loading", "percent": 55, "waited_ms": 3200, "estimate_ms": 9000 },
                { "position": 2, "phase": "loading", "waited_ms": 950, "estimate_ms": null },
            ],
        }],
        "breakers": [{
            "model": "gemma", "state": "open", "retry_in_ms": 7500, "failures": 2,
            "reason": "llama-server ended with exit status 1 while loading; its last lines: error: failed to open GGUF file",
        }],
        "recent": [
            {
                "request_id": "req_0123456789abcdef", "ended_at": NOW - 4, "model": "smollm2", "outcome": "success",
                "code": null, "waited_ms": 12, "duration_ms": 1234, "prompt_tokens": 30, "cached_tokens": 20,
                "completion_tokens": 128, "recovery": "relaunch",
            },
            {
                "request_id": "mine", "ended_at": NOW - 700, "model": "gemma", "outcome": "refused",
                "code": "breaker_open", "waited_ms": 0, "duration_ms": 1, "prompt_tokens": 0, "cached_tokens": 0,
                "completion_tokens": 0, "recovery": null,
            },
        ],
        "totals": { "requests": 9, "failed": 1, "loads": 2, "swaps": 1, "crashes": 0, "relaunches": 1, "retries": 3 },
    })
}

/// Names, numbers and reasons longer than anything.
fn wide() -> Value {
    let mut status = busy();
    let name = "a-model-with-a-name-that-somebody-has-made-from-all-its-parts-Q4_K_M";
    for rows in ["engines", "queue", "breakers", "recent"] {
        for row in status[rows].as_array_mut().expect("rows") {
            row["model"] = name.into();
        }
    }
    status["engines"][0]["in_flight"] = 1000.into();
    status["engines"][0]["parallel"] = 1000.into();
    status["engines"][0]["uptime_s"] = 40_000_000.into();
    status["queue"][0]["oldest_wait_ms"] = 86_400_000.into();
    status["breakers"][0]["reason"] = "\u{1b}[31mred\nand a second line".into();
    status["recent"][0]["code"] = "upstream_unreachable_for_ever".into();
    status["recent"][0]["request_id"] = "x".repeat(128).into();
    status["recent"][0]["prompt_tokens"] = 131_072.into();
    status["recent"][0]["completion_tokens"] = 32_768.into();
    status
}

fn at_80_columns(status: &Value) -> String {
    let text = render(URL, status, NOW);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    text
}

#[test]
fn a_busy_endpoint() {
    insta::assert_snapshot!(at_80_columns(&busy()), @"
    gglib 0.1.0 at http://127.0.0.1:8080/v1

    ENGINE                   STATE      IN USE     UP  ESTIMATED   MEASURED      PID
    smollm2                  resident   1 of 4    62s    259 MiB    233 MiB     4711
    qwen                     loading    0 of 1     3s    5.5 GiB          -        -

    QUEUE                                WAITING LONGEST WAIT   A NEW ONE WOULD WAIT
    qwen                                       7         3.2s                  45.0s
      #1   until the model is loaded (55 %)              3.2s                   9.0s
      #2   until the model is loaded                    950ms                      -
      and 5 more

    FAILED LOADS OF                    BREAKER        NEXT LOAD IN   FAILED IN A ROW
    gemma                              open                   7.5s                 2
      llama-server ended with exit status 1 while loading; its last lines: error:
      failed to open GGUF file

     AGO MODEL         OUTCOME          WAITED   TOOK    TOKENS REQUEST
      4s smollm2       success relaunch   12ms   1.2s    30+128 req_0123456789abcdef
     11m gemma         breaker_open        0ms    1ms       0+0 mine

    Requests 9: failed 1, abandoned 0, retried by clients 3.
    Loads 2: failed 0, cancelled 0. Swaps 1, evictions 0, crashes 0, recycles 0.
    Waits expired 0. Relaunches 1, resends 0, continuations 0, mends 0, repairs 0.
    ");
}

#[test]
fn long_names_and_large_numbers() {
    insta::assert_snapshot!(at_80_columns(&wide()), @"
    gglib 0.1.0 at http://127.0.0.1:8080/v1

    ENGINE                   STATE      IN USE     UP  ESTIMATED   MEASURED      PID
    a-model-with-a-name-tha… resident  1000 o…   462d    259 MiB    233 MiB     4711
    a-model-with-a-name-tha… loading    0 of 1     3s    5.5 GiB          -        -

    QUEUE                                WAITING LONGEST WAIT   A NEW ONE WOULD WAIT
    a-model-with-a-name-that-somebody…         7          24h                  45.0s
      #1   until the model is loaded (55 %)              3.2s                   9.0s
      #2   until the model is loaded                    950ms                      -
      and 5 more

    FAILED LOADS OF                    BREAKER        NEXT LOAD IN   FAILED IN A ROW
    a-model-with-a-name-that-somebody… open                   7.5s                 2
       [31mred and a second line

     AGO MODEL         OUTCOME          WAITED   TOOK    TOKENS REQUEST
      4s a-model-with… upstream_unreac…   12ms   1.2s 131072+3… xxxxxxxxxxxxxxxxxxx…
     11m a-model-with… breaker_open        0ms    1ms       0+0 mine

    Requests 9: failed 1, abandoned 0, retried by clients 3.
    Loads 2: failed 0, cancelled 0. Swaps 1, evictions 0, crashes 0, recycles 0.
    Waits expired 0. Relaunches 1, resends 0, continuations 0, mends 0, repairs 0.
    ");
}

#[test]
fn an_idle_endpoint_says_so() {
    insta::assert_snapshot!(at_80_columns(&idle()), @"
    gglib 0.1.0 at http://127.0.0.1:8080/v1

    No engine is loaded; the first request loads one.

    Requests 0: failed 0, abandoned 0, retried by clients 0.
    Loads 0: failed 0, cancelled 0. Swaps 0, evictions 0, crashes 0, recycles 0.
    Waits expired 0. Relaunches 0, resends 0, continuations 0, mends 0, repairs 0.
    ");
}

#[test]
fn an_endpoint_of_another_version_is_shown_as_far_as_it_goes() {
    let old = json!({
        "version": "0.0.1",
        "engines": [{ "model": "a", "state": "resident", "pid": 1, "in_flight": 0, "parallel": 1, "uptime_s": 1 }],
        "queue": [{ "model": "b", "waiting": 3, "oldest_wait_ms": 2500 }],
    });
    insta::assert_snapshot!(at_80_columns(&old), @"
    gglib 0.0.1 at http://127.0.0.1:8080/v1

    ENGINE                   STATE      IN USE     UP  ESTIMATED   MEASURED      PID
    a                        resident   0 of 1     1s          -          -        1

    QUEUE                                WAITING LONGEST WAIT   A NEW ONE WOULD WAIT
    b                                          3         2.5s                      -

    Requests 0: failed 0, abandoned 0, retried by clients 0.
    Loads 0: failed 0, cancelled 0. Swaps 0, evictions 0, crashes 0, recycles 0.
    Waits expired 0. Relaunches 0, resends 0, continuations 0, mends 0, repairs 0.
    ");
    at_80_columns(&json!(null));
}

#[test]
fn a_change_of_the_configuration_that_is_not_in_effect_is_told_first() {
    let mut status = idle();
    status["config"] = json!({ "reloads": 0, "after_restart": ["server.listen", "slots.enabled"],
        "error": "gglib.toml: line 3: unknown key `admission.stal`; did you mean `admission.stall`?" });
    let text = render(URL, &status, NOW);
    let expected = "\
The changed configuration is not in effect; the one before still is:
  gglib.toml: line 3: unknown key `admission.stal`; did you mean
  `admission.stall`?

In effect after a restart: server.listen, slots.enabled

No engine";
    assert!(text.contains(expected), "{text}");
    status["config"] = json!({ "reloads": 3, "after_restart": [], "error": null });
    assert_eq!(render(URL, &status, NOW), render(URL, &idle(), NOW));
}
