//! A drill with the real engine and a real model, as a person runs it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gglib_testkit::{real, target_dir};
use serde_json::Value;

/// Far longer than all of it takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(1200);

/// All that need no clock to run out.
const QUICK: [&str; 11] = [
    "kill-idle",
    "kill-prefill",
    "kill-stream",
    "kill-plain",
    "kill-load",
    "leave-queue",
    "leave-prefill",
    "leave-stream",
    "two-models",
    "port-taken",
    "disk-full",
];

#[test]
fn every_request_of_a_drill_ends_as_promised_and_nothing_is_left_running() {
    real::engine();
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let (config, temporary) = (home.path().join("gglib.toml"), home.path().join("tmp"));
    let text = format!("[models.smollm2]\npath = \"{}\"\ncontext = 2048\n", real::smollm2().display());
    std::fs::write(&config, text).expect("writable");
    std::fs::create_dir(&temporary).expect("writable");

    let mut drill = Command::new(env!("CARGO_BIN_EXE_gglib"));
    drill
        .args(["drill", "--json", "--config"])
        .arg(&config)
        .args(QUICK.iter().flat_map(|scenario| ["--scenario", scenario]))
        .env("GGLIB_DATA_DIR", target_dir().join("test-assets"))
        .env("TMPDIR", &temporary)
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("GGLIB_LLAMA_SERVER");
    let output = gglib_testkit::output(&mut drill, LONG);
    let said = String::from_utf8_lossy(&output.stderr);
    let card: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {said}", String::from_utf8_lossy(&output.stdout)));
    assert_eq!(output.status.code(), Some(0), "{card:#} {said}");
    assert_eq!((&card["held"], &card["engines_left"]), (&true.into(), &0.into()), "{card:#}");

    let rows = card["rows"].as_array().expect("a list");
    // Two models are two requests, and a full disk is three.
    assert_eq!(rows.len(), QUICK.len() + 3);
    let mut seen: BTreeMap<&str, Vec<(&str, Option<&str>)>> = BTreeMap::new();
    for row in rows {
        assert_eq!(row["held"], true, "{row}");
        let [scenario, outcome] = ["scenario", "outcome"].map(|key| row[key].as_str().expect(key));
        seen.entry(scenario).or_default().push((outcome, row["recovery"].as_str()));
    }
    for (scenario, expected) in [
        ("kill -9, reading a prompt", ("answered", Some("relaunch"))),
        ("kill -9, in a stream", ("answered", Some("continuation"))),
        ("kill -9, in an answer", ("answered", Some("relaunch"))),
        ("client leaves a stream", ("left_by_client", None)),
        ("port taken by another", ("refused", None)),
    ] {
        assert_eq!(seen[scenario], [expected], "{scenario}");
    }

    assert_eq!(running_below(&temporary), Vec::<String>::new());
    let left = std::fs::read_dir(&temporary).expect("it is there").count();
    assert_eq!(left, 0, "sockets, slots and wrappers are gone");
}

/// The command lines of all processes that name a file below `directory`.
fn running_below(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().expect("UTF-8");
    let processes = std::fs::read_dir("/proc").expect("it can be listed").flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|line| line.contains(directory)).collect()
}
