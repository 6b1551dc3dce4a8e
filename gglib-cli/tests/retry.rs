//! `gglib retry` as a person meets it.

use std::process::Command;

use insta::assert_snapshot;

/// Standard output of `gglib retry`, or standard error if it fails.
fn retry(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gglib"))
        .arg("retry")
        .args(args)
        .env_clear()
        .output()
        .expect("gglib starts");
    let text = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8(text).expect("UTF-8")
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&retry(&[args, &["--json"]].concat())).expect("JSON")
}

#[test]
fn the_table_is_the_one_of_the_reference() {
    let table = retry(&["table"]);
    assert!(table.starts_with("gglib: 4 attempts within 60 s\n"), "{table}");
    assert!(table.contains("| 1 | none | 0 s, 0.5 s, 0.875 s |"), "{table}");
    assert_eq!(json(&["table", "--policy", "fixed"])["decisions"][0]["retry_after_s"], 1.0);
}

#[test]
fn a_decision_is_explained_rule_by_rule() {
    assert_snapshot!(retry(&["explain", "--attempt", "2", "--retry-after", "30", "--elapsed", "12s"]), @r"
    gglib: 4 attempts within 60 s
    delays    exponential, from 1 s to 15 s, full jitter
    hints     a floor: up to 15 s of it, and up to 1 s more

    attempts  2 of 4 have failed
    deadline  12 s of 60 s have passed
    hint      30 s: min(hint, 15 s) + u × 1 s
    window    from 15 s up to 16 s; at u = 0.5: 15.5 s
    next      would start at 27.5 s, before 60 s

    Retry after 15.5 s.
    If all further attempts fail at once, with the same hint and unit:
      attempt 3 at 27.5 s
      attempt 4 at 43 s
      then give up: attempts exhausted
    ");
    assert_snapshot!(retry(&["explain", "--attempt", "3"]), @r"
    gglib: 4 attempts within 60 s
    delays    exponential, from 1 s to 15 s, full jitter
    hints     a floor: up to 15 s of it, and up to 1 s more

    attempts  3 of 4 have failed
    deadline  0 s of 60 s have passed
    delay     u × min(15 s, 1 s × 2^2)
    window    from 0 s up to 4 s; at u = 0.5: 2 s
    next      would start at 2 s, before 60 s

    Retry after 2 s.
    If all further attempts fail at once, with the same hint and unit:
      attempt 4 at 2 s
      then give up: attempts exhausted
    ");
    assert_snapshot!(retry(&["explain", "--attempt", "2", "--policy", "decorrelated_jitter"]), @r"
    decorrelated_jitter: 5 attempts without a deadline
    delays    random from 1 s to 30 s, decorrelated jitter
    hints     a floor: up to 30 s of it, and up to 1 s more

    attempts  2 of 5 have failed
    deadline  none
    delay     between 1 s and min(30 s, 3 × 2 s)
    window    from 1 s up to 6 s; at u = 0.5: 3.5 s

    Retry after 3.5 s.
    If all further attempts fail at once, with the same hint and unit:
      attempt 3 at 3.5 s
      attempt 4 at 9.25 s
      attempt 5 at 18.375 s
      then give up: attempts exhausted
    ");
}

#[test]
fn giving_up_is_explained_as_well() {
    assert_snapshot!(retry(&["explain", "--attempt", "4"]), @r"
    gglib: 4 attempts within 60 s
    delays    exponential, from 1 s to 15 s, full jitter
    hints     a floor: up to 15 s of it, and up to 1 s more

    attempts  4 of 4 have failed

    Give up: attempts exhausted.
    ");
    assert_snapshot!(retry(&["explain", "--attempt", "1", "--elapsed", "59.5s", "--unit", "0.75"]), @r"
    gglib: 4 attempts within 60 s
    delays    exponential, from 1 s to 15 s, full jitter
    hints     a floor: up to 15 s of it, and up to 1 s more

    attempts  1 of 4 have failed
    deadline  59.5 s of 60 s have passed
    delay     u × min(15 s, 1 s × 2^0)
    window    from 0 s up to 1 s; at u = 0.75: 0.75 s
    next      would start at 60.25 s, not before 60 s

    Give up: deadline exceeded.
    ");
    assert_snapshot!(
        retry(&["explain", "--attempt", "1", "--retry-after", "5m", "--policy", "openai_sdk"]),
        @r"
    openai_sdk: 3 attempts without a deadline
    delays    exponential, from 0.5 s to 8 s, up to 25 % less
    hints     obeyed exactly; one beyond 120 s ends the sequence

    attempts  1 of 3 have failed
    deadline  none
    hint      300 s: beyond 120 s, the longest that is waited for

    Give up: hint too long.
    "
    );
}

#[test]
fn programs_get_the_same() {
    let explained = json(&["explain", "--attempt", "2", "--retry-after", "30", "--elapsed", "12s"]);
    assert_eq!(explained["retry_after_s"], 15.5);
    assert_eq!(explained["then"]["attempts"][1], serde_json::json!({ "attempt": 4, "at_s": 43.0 }));
    assert_eq!(explained["then"]["give_up"], "attempts exhausted");
}

#[test]
fn wrong_values_are_named() {
    assert!(retry(&["table", "--policy", "aggressive"]).contains("possible values: gglib, fixed"));
    assert!(retry(&["explain", "--attempt", "1", "--elapsed", "soon"]).contains("number of seconds"));
    assert!(retry(&["explain", "--attempt", "1", "--unit", "1"]).contains("not including, 1"));
}

#[test]
fn contention_is_simulated_and_repeatable() {
    let few = ["simulate", "contention", "--clients", "10", "--trials", "20"];
    assert_snapshot!(retry(&["simulate", "contention", "--clients", "10", "--trials", "20"]), @r"
    10 clients write one row; means of 20 trials, ± standard error, seed 1

    strategy                  time, ms               calls
    none                   368 ±   7.1          50 ±   0.8
    exponential           3001 ± 296.6          50 ±   1.0
    equal                  746 ±  50.0          42 ±   0.6
    full                   433 ±  13.6          38 ±   0.5
    decorrelated           478 ±  26.2          39 ±   0.6
    ");
    let results = json(&few);
    assert_eq!(results["strategies"][3]["name"], "full");
    assert_eq!(results, json(&few));
    let one = json(&[&few[..], &["--strategy", "full"]].concat());
    assert_eq!(one["strategies"], serde_json::json!([results["strategies"][3]]));
}

#[test]
fn layers_multiply_and_restraints_hold() {
    assert_snapshot!(retry(&["simulate", "layers"]), @r"
    1000 requests; layers: 3, attempts of each: 4
    100 % of the calls at the bottom fail

    restraint                  calls        load     succeeded
    none                       64000     64.000×         0.0 %
    one layer retries           4000      4.000×         0.0 %
    budgets of 10 %             1102      1.102×         0.0 %
    both                        1100      1.100×         0.0 %
    ");
    assert_snapshot!(retry(&["simulate", "layers", "--layers", "1", "--failing", "30"]), @r"
    1000 requests; layers: 1, attempts of each: 4
    30 % of the calls at the bottom fail

    restraint                  calls        load     succeeded
    none                        1384      1.384×        99.2 %
    one layer retries           1384      1.384×        99.2 %
    budgets of 10 %             1099      1.099×        77.5 %
    both                        1099      1.099×        77.5 %
    ");
    assert_eq!(json(&["simulate", "layers"])["results"][0]["calls"], 64_000);
}

#[test]
fn overload_is_told_by_the_second() {
    assert_snapshot!(retry(&["simulate", "overload", "--seconds", "4"]), @r"
    10100 new requests a second, 10000 can be done; for ever, a second apart

    second          load       refused   amplification
         1         10100           100          1.000×
         2         10200           200          1.010×
         3         10300           300          1.020×
         4         10400           400          1.030×
    ");
    let bounded = json(&["simulate", "overload", "--attempts", "3", "--seconds", "300"]);
    let load = bounded["seconds"][299]["load"].as_f64().expect("a number");
    assert!((load / 10_100.0 - 1.261).abs() < 0.000_6, "{load}");
}

#[test]
fn a_startup_is_told_by_its_calls_and_its_ends() {
    assert_snapshot!(retry(&["simulate", "startup", "--clients", "500"]), @r"
    500 clients, one model that loads in 8 s; then 4 answers at once, 0.1 s each
    policy gglib, queue of 256, hint: place, seed 1

     second     calls
          0       500  ##################################################
          1         0
          2         0
          3         0
          4         0
          5         0
          6         0
          7         0
          8         0
          9        39  ####
         10        40  ####
         11        40  ####
         12        41  #####
         13        40  ####
         14        40  ####
         15         4  #

    answered  500 (p50 14.314 s, p99 20.414 s)
    gave up   0
    calls     744
    ");
    // Told the same time, all who were refused return together.
    let together = json(&["simulate", "startup", "--clients", "500", "--hint", "estimate"]);
    assert_eq!(together["calls_per_second"].as_array().expect("a list").last(), Some(&3.into()));
    assert_eq!(together["calls_per_second"][15], 241);
    let startup = json(&["simulate", "startup", "--clients", "500", "--hint", "none"]);
    let count = |name: &str| startup[name].as_u64().expect("a number");
    assert_eq!(count("answered") + count("gave_up"), 500);
    let per_second = startup["calls_per_second"].as_array().expect("a list");
    assert_eq!(per_second.iter().filter_map(serde_json::Value::as_u64).sum::<u64>(), count("calls"));
}

/// The picture that `gglib retry simulate` writes.
fn plot(args: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("plot.svg");
    let path = file.to_str().expect("UTF-8");
    let said = retry(&[&["simulate"], args, &["--plot", path]].concat());
    assert_eq!(said, retry(&[&["simulate"], args].concat()), "the picture comes besides the table");
    std::fs::read_to_string(&file).expect("it was written")
}

#[test]
fn each_simulation_is_drawn_the_same_for_the_same_seed() {
    let contention = ["contention", "--clients", "10", "--trials", "20"];
    assert_snapshot!("contention", plot(&contention));
    assert_snapshot!("layers", plot(&["layers", "--requests", "100"]));
    assert_snapshot!("overload", plot(&["overload", "--seconds", "20", "--attempts", "3"]));
    assert_snapshot!("startup", plot(&["startup", "--clients", "500"]));
    assert_ne!(plot(&contention), plot(&[&contention[..], &["--seed", "2"]].concat()));
}

#[test]
fn a_picture_says_what_it_shows_with_its_parameters_and_units() {
    let svg = plot(&["startup", "--clients", "50", "--hint", "none", "--seed", "7"]);
    for words in [
        "50 clients collide on one start-up",
        "The model loads in 8 s; then 4 answers at once, 0.1 s each; queue of 256.",
        "Policy gglib, hint: none, seed 7, steps of",
        "time since all began, s",
        "per second",
        "calls: 50",
        "answers: 50; 0 clients gave up",
    ] {
        assert!(svg.contains(words), "{words} in {svg}");
    }
}

#[test]
fn another_kind_of_picture_is_refused_and_a_place_that_cannot_be_written_is_named() {
    let png = retry(&["simulate", "layers", "--plot", "layers.png"]);
    assert!(png.contains("a plot is an SVG, and its file ends in .svg"), "{png}");
    let nowhere = retry(&["simulate", "layers", "--plot", "/nonexistent/layers.svg"]);
    assert!(nowhere.contains("cannot write the plot to /nonexistent/layers.svg"), "{nowhere}");
}

#[test]
fn a_trace_is_replayed() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("trace.jsonl");
    let path = file.to_str().expect("UTF-8");
    let line =
        |status: u16| format!("{{\"status\": {status}, \"latency_ms\": 100, \"retry_after\": null}}\n");
    std::fs::write(&file, [200, 503, 200, 400].map(line).concat()).expect("writable");
    let replayed = json(&["replay", path, "--policy", "fixed"]);
    assert_eq!((&replayed["requests"], &replayed["succeeded"]), (&3.into(), &2.into()));
    assert!((replayed["load"].as_f64().expect("a number") - 4.0 / 3.0).abs() < 1e-9);
    // The failed attempt and the fixed delay after it.
    assert_eq!(replayed["added_p99_s"], 1.1);
    let text = retry(&["replay", path, "--policy", "fixed"]);
    assert!(
        text.contains("requests  3, of which 2 succeeded (66.7 %)\nadded     p50 0 s, p99 1.1 s"),
        "{text}"
    );
    std::fs::write(&file, line(200) + "{}").expect("writable");
    assert!(retry(&["replay", path]).contains("line 2: no HTTP status"));
    assert!(retry(&["replay", "/nonexistent"]).contains("No such file"));
}
