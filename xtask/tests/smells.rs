//! The linter on the code of its own page in the docs, on retries that hide, and in each of its formats.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail the test that uses them")]

use std::fs;

use xtask::audit::retry::smells::{self, Lint, output, rules};

const PAGE: &str = include_str!("../../docs/src/reference/retry-smells.md");

fn lint(code: &str) -> Lint {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("lib.rs"), code).unwrap();
    smells::lint(scratch.path()).unwrap()
}

fn found(code: &str) -> Vec<&'static str> {
    lint(code).smells.iter().map(|smell| smell.rule.id).collect()
}

/// The two pieces of code under a rule's heading.
fn examples(rule: &str) -> (String, String) {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(&format!("{rule}\n")));
    let section = section.unwrap_or_else(|| panic!("the page has no section `{rule}`"));
    let block = |label: &str| {
        let start = format!("```rust,ignore\n// {label}\n");
        section.split(&start).nth(1).unwrap().split("```").next().unwrap().to_owned()
    };
    (block("bad"), block("good"))
}

#[test]
fn the_page_shows_every_rule_with_code_that_has_it_and_code_that_has_not() {
    for rule in rules::ALL {
        let (bad, good) = examples(rule.id);
        assert!(found(&bad).contains(&rule.id), "bad {}: {:?}", rule.id, found(&bad));
        assert!(!found(&good).contains(&rule.id), "good {}: {:?}", rule.id, found(&good));
    }
}

fn missed(hiding: &[(&'static str, String)]) -> Vec<&'static str> {
    hiding.iter().filter(|(_, code)| found(code).is_empty()).map(|(name, _)| *name).collect()
}

#[test]
fn retries_that_hide_are_found() {
    let retry = |around: &str, wait: &str| {
        format!(
            "{around} async fn f() -> R {{ loop {{ match ask().await {{ Ok(x) => return Ok(x), Err(e) => log(e) }} {wait} }} }}"
        )
    };
    let hiding = [
        ("an alias", retry("use tokio::time::sleep as nap;", "nap(D).await;")),
        ("a helper", retry("async fn rest() { sleep(D).await }", "rest().await;")),
        ("a method", retry("impl A { fn rest(&self) { sleep(D) } }", "a.rest();")),
        ("two helpers", retry("async fn a() { b().await } async fn b() { sleep(D).await }", "a().await;")),
        ("select", retry("", "select! { _ = sleep(D) => {} _ = other() => {} }")),
        ("is_err", "fn f() { while ask().is_err() { thread::sleep(D); } }".to_owned()),
        ("recursion", "async fn f() -> R { if let Err(e) = ask().await { sleep(D).await; return Box::pin(f()).await; } Ok(()) }".to_owned()),
        ("a macro", "macro_rules! again { ($e:expr) => { loop { if let Ok(x) = $e { break x; } std::thread::sleep(D); } } }".to_owned()),
        ("interval", retry("", "every.tick().await;")),
        ("timeout", "async fn f() { while timeout(D, ask()).await.is_err() {} }".to_owned()),
        ("an iterator", "fn f() { (0..3).find_map(|_| ask().ok().or_else(|| { thread::sleep(D); None })); }".to_owned()),
        ("a status code", "fn f() { for _ in 0..5 { if lock() == 0 { break; } thread::sleep(D); } }".to_owned()),
    ];
    assert_eq!(missed(&hiding), [""; 0]);
}

/// Planted after the ones above were all found, and written down before the linter was tried on them.
#[test]
fn of_retries_that_hide_better_the_misses_are_known() {
    let after = |wait: &str| {
        format!(
            "async fn f() -> R {{ for _ in 0..5 {{ if let Ok(x) = ask().await {{ return Ok(x); }} {wait} }} Err(E) }}"
        )
    };
    let hiding = [
        ("let else and a label", "async fn f() -> R { 'again: loop { let Ok(x) = ask().await else { sleep(D).await; continue 'again; }; return Ok(x); } }".to_owned()),
        ("an option", "fn f() -> R { loop { match ask().ok() { Some(x) => return x, None => thread::sleep(D) } } }".to_owned()),
        ("a delay", after("Delay::new(D).await;")),
        ("a timer", after("Timer::after(D).await;")),
        ("mutual recursion", "async fn f() -> R { match ask().await { Ok(x) => Ok(x), Err(e) => g(e).await } } async fn g(e: E) -> R { sleep(D).await; Box::pin(f()).await }".to_owned()),
        ("a closure that sleeps", format!("async fn g() {{}} {}", after("nap().await;").replace("{ for", "{ let nap = || sleep(D); for"))),
        ("an injected sleep", after("(self.sleep)(D).await;")),
        ("a channel as a timer", after("let _ = stop.recv_timeout(D);")),
        ("a stream", "async fn f() { stream::iter(0..5).then(|_| async { sleep(D).await; ask().await }).filter_map(|r| async { r.ok() }).next().await; }".to_owned()),
        ("a flag", "fn f() { let mut done = false; while !done { match ask() { Ok(_) => done = true, Err(_) => thread::sleep(D) } } }".to_owned()),
        ("a spawned block", "fn f() { tokio::spawn(async move { while let Err(e) = ask().await { log(e); sleep(D).await; } }); }".to_owned()),
        ("a helper with a count", format!("async fn pause(n: u32) {{ sleep(D * n).await }} {}", after("pause(3).await;"))),
    ];
    assert_eq!(missed(&hiding), ["a channel as a timer", "a stream"]);
}

#[test]
fn what_is_no_retry_is_clean() {
    for code in [
        "async fn f() { loop { if done() { return; } sleep(D).await; } }",
        "async fn f() { loop { match rx.recv().await { Ok(x) => take(x), Err(_) => break } sleep(D).await; } }",
        "async fn f() { loop { match l.accept().await { Ok(x) => return x, Err(_) => sleep(D).await } } }",
        "async fn f() { for a in all { if let Ok(x) = dial(a).await { return x; } } }",
        "fn f() -> R { loop { match read() { Err(e) if e.kind() == Interrupted => {} done => return done } } }",
        "fn f() -> R { loop { match tx.try_send(x) { Ok(()) => return, Err(Full(y)) => { x = y; thread::sleep(D) } Err(e) => return Err(e) } } }",
        "fn f() { loop { if count.compare_exchange(a, b).is_ok() { thread::sleep(D); return; } } }",
        "fn poll_next(&mut self) -> R { match self.sleep.poll() { Ready(Ok(())) => self.poll_next(), Err(e) => Err(e) } }",
        "async fn f() { loop { every.tick().await; if let Err(e) = refresh().await { log(e) } if stopped() { break } } }",
        "async fn f() { loop { match timeout(D, rx.recv()).await { Ok(x) => return x, Err(_) => ping().await } } }",
        "async fn f() { loop { if lock.load() == 0 { return; } sleep(D).await; } }",
    ] {
        assert_eq!(found(code), [""; 0], "{code}");
    }
}

#[test]
fn each_format_says_where_and_what() {
    let lint = lint("fn f() {\n    while ask().is_err() {\n        thread::sleep(D);\n    }\n}\n");
    let text = output::text(&lint);
    assert!(text.contains("lib.rs:3: [fixed-delay] `f` retries after the same delay"), "{text}");
    assert!(text.ends_with("audit retry: 1 files: 2 warnings, 1 notes\n"), "{text}");

    let json = output::json(&lint);
    assert_eq!((json["files"].as_u64(), json["smells"][2]["rule"].as_str()), (Some(1), Some("fixed-delay")));

    let run = &output::sarif(&lint)["runs"][0];
    assert_eq!(run["tool"]["driver"]["rules"].as_array().unwrap().len(), rules::ALL.len());
    let result = &run["results"][2];
    assert_eq!((result["ruleId"].as_str(), result["level"].as_str()), (Some("fixed-delay"), Some("warning")));
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "lib.rs");
    assert_eq!(place["region"]["startLine"], 3);
}

/// The schema is that of the OASIS committee for SARIF 2.1.0, draft 7 of JSON Schema, as published beside the standard.
#[test]
fn the_sarif_follows_its_official_schema() {
    // The pattern of a language has a stray `]`, and is no regular expression to a strict reader.
    let schema = include_str!("sarif-2.1.0.json").replace("{2}]?$", "{2}$");
    let schema = serde_json::from_str(&schema).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let (bad, _) = examples("message-text");
    let mut sarif = output::sarif(&lint(&(bad + &examples("fixed-delay").0)));
    assert!(sarif["runs"][0]["results"].as_array().unwrap().len() >= 2);
    let errors: Vec<String> =
        schema.iter_errors(&sarif).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert_eq!(errors, [""; 0]);
    // The schema is no formality: what it forbids is found.
    sarif["runs"][0]["results"][0]["level"] = "fatal".into();
    assert!(!schema.is_valid(&sarif));
}

#[test]
fn a_tree_without_rust_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let error = smells::lint(scratch.path()).unwrap_err();
    assert!(error.to_string().starts_with("no Rust files under"), "{error:#}");
}
