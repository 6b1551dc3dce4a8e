//! `gglib admission` as a person meets it.

use std::process::Command;

use insta::assert_snapshot;

/// Standard output of `gglib admission simulate`, or standard error if it fails.
fn simulate(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gglib"))
        .args(["admission", "simulate"])
        .args(args)
        .env_clear()
        .output()
        .expect("gglib starts");
    let text = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn rules_are_compared_in_a_table() {
    assert_snapshot!(simulate(&["--workload", "overlapping"]), @r"
    overlapping: two crowds of 4 clients, each of which keeps one model busy
    800 requests, seed 1; bound of gglib's oldest waiters: 246 s

    rule        loads   expired  wait p50, s       p99, s   longest, s   all done, s
    gglib          43         0          3.9         64.7         67.0        2047.0
    fifo          600         0         74.9         80.8         83.5        7945.1
    lru           288         0          0.0        124.6        150.9        4824.6
    no-bound        2         4          3.5          9.6        600.0        1639.8
    ");
    let all = simulate(&[]);
    assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
    for name in ["alternating", "overlapping", "burst", "embeddings", "agents", "jobs"] {
        let one = simulate(&["--workload", name]);
        assert!(one.starts_with(&format!("{name}: ")) && all.contains(&one), "{one}");
    }
    assert_eq!(all, simulate(&["--workload", "all", "--seed", "1"]));
    assert_ne!(all, simulate(&["--seed", "2"]));
}

#[test]
fn programs_get_the_same() {
    let text = simulate(&["--workload", "alternating", "--json"]);
    let results: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let workload = &results["workloads"][0];
    assert_eq!((&results["seed"], &workload["workload"]), (&1.into(), &"alternating".into()));
    let [ours, fifo] = [&workload["rules"][0], &workload["rules"][1]];
    assert_eq!((&ours["rule"], &ours["requests"], &ours["loads"]), (&"gglib".into(), &40.into(), &2.into()));
    assert_eq!((&fifo["rule"], &fifo["loads"], &fifo["expired"]), (&"fifo".into(), &40.into(), &0.into()));
    assert!(ours["wait_max_s"].as_f64() <= workload["bound_s"].as_f64());
}

#[test]
fn who_waits_is_drawn() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("plot.svg");
    let path = file.to_str().expect("UTF-8");
    let args = ["--workload", "alternating"];
    assert_eq!(simulate(&[&args[..], &["--plot", path]].concat()), simulate(&args));
    assert_snapshot!("alternating", std::fs::read_to_string(&file).expect("it was written"));
}

#[test]
fn wrong_values_are_named() {
    assert!(simulate(&["--workload", "mixed"]).contains("possible values: alternating, overlapping"));
}
