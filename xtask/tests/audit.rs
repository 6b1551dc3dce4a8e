//! The audits on scratch copies of a small workspace: green as it is, red for each rule that a copy breaks.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail the test that uses them")]

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use xtask::finding::Report;
use xtask::tables::admission_rules;
use xtask::{audit, tables};

const ROOT_MANIFEST: &str = r#"
[workspace]
resolver = "3"
members = ["gglib-cli", "gglib-core", "gglib-proxy", "gglib-runtime", "gglib-testkit"]

[workspace.dependencies]
gglib-core = { path = "gglib-core" }
gglib-proxy = { path = "gglib-proxy" }
gglib-runtime = { path = "gglib-runtime" }
gglib-testkit = { path = "gglib-testkit" }
"#;

const CRATES: &[(&str, &[&str])] = &[
    ("gglib-cli", &["gglib-core", "gglib-proxy", "gglib-runtime"]),
    ("gglib-core", &[]),
    ("gglib-proxy", &["gglib-core"]),
    ("gglib-runtime", &["gglib-core"]),
    ("gglib-testkit", &["gglib-runtime"]),
];

const CLIENT: &str = "//! The completion client.

/// Asks until the policy gives up.
pub async fn complete() {
    loop {
        let delay = gglib_core::retry::decide();
        tokio::time::sleep(delay).await;
    }
}
";

const REGISTRY: &str = r#"
[[site]]
path = "gglib-runtime/src/client.rs"
item = "complete"
shape = "backoff"
uses_decide = true
why = "the only client"
"#;

/// A workspace of our shape, without external dependencies, in a directory of its own.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        let scratch = Self(tempfile::tempdir().unwrap());
        scratch.write("Cargo.toml", ROOT_MANIFEST);
        for (name, dependencies) in CRATES {
            let mut manifest =
                format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n");
            manifest.extend(dependencies.iter().map(|dependency| format!("{dependency}.workspace = true\n")));
            if *name == "gglib-proxy" {
                manifest.push_str("\n[dev-dependencies]\ngglib-testkit.workspace = true\n");
            }
            manifest.push_str("\n[lints]\nworkspace = true\n");
            scratch.write(&format!("{name}/Cargo.toml"), &manifest);
            scratch.write(&format!("{name}/src/lib.rs"), "//! A crate.\n");
        }
        scratch.append("Cargo.toml", "\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n");
        scratch.write("gglib-runtime/src/client.rs", CLIENT);
        scratch.write("docs/retry-sites.toml", REGISTRY);
        let written = ["contributing/architecture.md", "contributing/dependencies.md", "concepts/retry.md"]
            .map(|page| format!("docs/src/{page}"));
        for page in &written {
            scratch.write(page, "# A page\n");
        }
        let marks = format!("# A page\n{}{}", admission_rules::BEGIN, admission_rules::END);
        scratch.write(admission_rules::PATH, &marks);
        let pages = tables::PAGES.iter().map(|page| page.path).chain(written.iter().map(String::as_str));
        let summary = pages
            .filter(|page| Path::new(page).extension().is_some_and(|extension| extension == "md"))
            .map(|page| format!("- [Page]({})\n", page.trim_start_matches("docs/src/")));
        scratch.write("docs/src/SUMMARY.md", &summary.collect::<String>());
        tables::write(scratch.root()).unwrap();
        scratch
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn append(&self, path: &str, text: &str) {
        self.write(path, &(fs::read_to_string(self.root().join(path)).unwrap() + text));
    }

    fn replace(&self, path: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.root().join(path)).unwrap();
        assert!(text.contains(old), "{path} holds {old}");
        self.write(path, &text.replace(old, new));
    }

    /// What all audits find, as `path:line: problem`.
    fn findings(&self) -> Vec<String> {
        shown(&audit::all(self.root()).unwrap())
    }
}

fn shown(reports: &[Report]) -> Vec<String> {
    let findings = reports.iter().flat_map(|report| &report.findings);
    findings
        .map(|finding| {
            let line = finding.line.map(|line| format!(":{line}")).unwrap_or_default();
            format!("{}{line}: {}", finding.path, finding.problem)
        })
        .collect()
}

#[test]
fn a_clean_copy_is_green_and_says_what_was_seen() {
    let scratch = Scratch::new();
    let reports = audit::all(scratch.root()).unwrap();
    assert_eq!(shown(&reports), [""; 0]);
    let seen: Vec<_> = reports.iter().map(|report| format!("{}: {}", report.name, report.seen)).collect();
    assert_eq!(
        seen,
        [
            "audit deps: 5 crates, 7 edges",
            "audit manifests: 5 manifests",
            "audit purity: 1 files, 0 crates in the tree of gglib-core",
            "audit retry: 5 files, 1 sites, 1 rows",
            "audit tidy: 26 files, 6 of them Rust",
        ]
    );
    assert!(tables::check(scratch.root()).unwrap().is_clean());
}

#[test]
fn a_hand_rolled_sleep_loop_is_red() {
    let scratch = Scratch::new();
    let poller = "\nimpl Poller {\n    async fn run() {\n        while busy() {\n            sleep(D).await;\n        }\n    }\n}\n";
    scratch.append("gglib-proxy/src/lib.rs", poller);
    let expected = "gglib-proxy/src/lib.rs:5: `Poller::run` waits inside a loop and is not registered";
    assert_eq!(scratch.findings(), [expected]);
}

#[test]
fn a_call_of_decide_outside_of_a_registered_site_is_red() {
    let scratch = Scratch::new();
    scratch.append("gglib-proxy/src/lib.rs", "\nfn hint() { gglib_core::retry::decide(); }\n");
    let expected = "gglib-proxy/src/lib.rs:3: `hint` asks the retry policy and is not registered";
    assert_eq!(scratch.findings(), [expected]);
}

#[test]
fn the_policy_and_tests_are_no_sites() {
    let scratch = Scratch::new();
    let table = "//! The decision table.\nfn rows() { decide(); }\n";
    scratch.write("gglib-core/src/retry/table.rs", table);
    let test = "\n#[cfg(test)]\nmod tests { fn waits() { loop { sleep(D); } } }\n";
    scratch.append("gglib-proxy/src/lib.rs", test);
    scratch.append("gglib-testkit/src/lib.rs", "\nfn poll() { loop { sleep(D); } }\n");
    assert_eq!(scratch.findings(), [""; 0]);
}

#[test]
fn a_stale_row_is_red_whether_file_function_or_site_is_gone() {
    let scratch = Scratch::new();
    scratch.replace("gglib-runtime/src/client.rs", "fn complete", "fn fetch");
    assert_eq!(
        scratch.findings(),
        [
            "docs/retry-sites.toml:2: stale row: `gglib-runtime/src/client.rs` has no function `complete`",
            "gglib-runtime/src/client.rs:5: `fetch` waits inside a loop and is not registered",
        ]
    );

    scratch.write("gglib-runtime/src/client.rs", "//! A client.\n\n/// Asks once.\npub fn complete() {}\n");
    let quiet = "docs/retry-sites.toml:2: stale row: `complete` neither waits, nor asks the retry policy, nor tries again";
    assert_eq!(scratch.findings(), [quiet]);

    fs::remove_file(scratch.root().join("gglib-runtime/src/client.rs")).unwrap();
    let gone = "docs/retry-sites.toml:2: stale row: there is no audited file `gglib-runtime/src/client.rs`";
    assert_eq!(scratch.findings(), [gone]);
}

#[test]
fn forbidden_edges_are_red_in_shipped_code_and_in_tests() {
    let scratch = Scratch::new();
    let dependencies = "[dependencies]\ngglib-runtime.workspace = true\n";
    scratch.replace("gglib-proxy/Cargo.toml", "[dependencies]\n", dependencies);
    let tests = "[dev-dependencies]\ngglib-cli.workspace = true\n\n[lints]";
    scratch.replace("gglib-runtime/Cargo.toml", "[lints]", tests);
    scratch.append("Cargo.toml", "\n[workspace.dependencies.gglib-cli]\npath = \"gglib-cli\"\n");
    assert_eq!(
        scratch.findings(),
        [
            "gglib-proxy/Cargo.toml: `gglib-proxy` depends on `gglib-runtime`",
            "gglib-runtime/Cargo.toml: `gglib-runtime` depends on `gglib-cli` in its tests",
        ]
    );
}

#[test]
fn a_crate_that_nobody_listed_may_use_nothing() {
    let scratch = Scratch::new();
    scratch.replace("Cargo.toml", "members = [", "members = [\"extra\", ");
    let manifest = "[package]\nname = \"extra\"\n[dependencies]\ngglib-core.workspace = true\n";
    scratch.write("extra/Cargo.toml", manifest);
    scratch.write("extra/src/lib.rs", "//! A crate.\n");
    assert_eq!(
        scratch.findings(),
        [
            "extra/Cargo.toml: `extra` depends on `gglib-core`",
            "extra/Cargo.toml: does not inherit the workspace's lints",
        ]
    );
}

#[test]
fn the_core_may_take_in_neither_a_runtime_nor_a_clock() {
    let scratch = Scratch::new();
    scratch.replace("Cargo.toml", "members = [", "members = [\"tokio\", ");
    scratch.append("Cargo.toml", "\n[workspace.dependencies.tokio]\npath = \"tokio\"\n");
    let manifest = "[package]\nname = \"tokio\"\n\n[lints]\nworkspace = true\n";
    scratch.write("tokio/Cargo.toml", manifest);
    scratch.write("tokio/src/lib.rs", "//! Not the real one.\n");
    scratch.replace("gglib-core/Cargo.toml", "[dependencies]\n", "[dependencies]\ntokio.workspace = true\n");
    scratch.append("gglib-core/src/lib.rs", "\nfn now() { std::time::Instant::now(); }\n");
    assert_eq!(
        scratch.findings(),
        [
            "gglib-core/Cargo.toml: `gglib-core` depends on `tokio`",
            "gglib-core/Cargo.toml: `gglib-core` depends on `tokio`, which is not on the list of what the core may use",
            "gglib-core/Cargo.toml: the core's dependency tree contains `tokio`",
            "gglib-core/src/lib.rs:3: the core mentions `std::time::Instant::now`",
        ]
    );
}

#[test]
fn a_workspace_without_crates_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("Cargo.toml"), "[workspace]\nresolver = \"3\"\nmembers = []\n").unwrap();
    let error = audit::deps(scratch.path()).unwrap_err();
    assert!(error.to_string().ends_with("has no crates"), "{error:#}");
}

#[test]
fn a_stale_page_is_red_and_names_the_command() {
    let scratch = Scratch::new();
    scratch.replace("docs/retry-sites.toml", "the only client", "the one client");
    let report = tables::check(scratch.root()).unwrap();
    assert_eq!(
        shown(std::slice::from_ref(&report)),
        ["docs/src/reference/retry-sites.md: the generated page is stale"]
    );
    assert!(report.to_string().contains("run `cargo xtask tables`"));

    assert_eq!(tables::write(scratch.root()).unwrap(), ["docs/src/reference/retry-sites.md"]);
    assert!(tables::check(scratch.root()).unwrap().is_clean());
}

#[test]
fn what_hides_a_retry_is_red() {
    let scratch = Scratch::new();
    scratch.write(
        "gglib-proxy/src/clock.rs",
        "//! Time.\npub async fn rest() { tokio::time::sleep(D).await }\n",
    );
    scratch.append(
        "gglib-proxy/src/lib.rs",
        "use crate::clock::rest as nap;
         fn helped() { while busy() { nap(); } }
         fn driven(s: &mut RetrySequence) { s.on_failure(f, now, unit, target); }
         async fn sent() { if client.execute(r).await.is_err() { client.execute(r).await; } }
         fn counted() { for attempt in 0..3 { go(); } }
         async fn reconnect() {}
         async fn again() { nap().await; again().await }
         macro_rules! poll { ($x:expr) => { while $x { std::thread::sleep(D); } } }\n",
    );
    let said =
        |item: &str, what: &str| format!("gglib-proxy/src/lib.rs: `{item}` {what} and is not registered");
    let mut expected = [
        said("helped", "waits inside a loop"),
        said("driven", "asks the retry policy"),
        said("sent", "sends a request again"),
        said("counted", "counts tries in a loop"),
        said("reconnect", "is named for doing something again"),
        said("again", "waits and calls itself"),
        said("poll!", "waits inside a loop"),
    ];
    let report = audit::retry::audit(scratch.root()).unwrap();
    let found = report.findings.iter().map(|finding| format!("{}: {}", finding.path, finding.problem));
    let mut found: Vec<_> = found.collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}
