//! The command as a person meets it: what it prints where, and how it ends.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use insta::assert_snapshot;

/// Far longer than anything here takes, also on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// Runs `gglib` in an empty home and renders its end; `home`'s path reads `[HOME]`.
fn gglib(home: &Path, args: &[&str]) -> String {
    gglib_with(home, args, &[], "")
}

fn gglib_with(home: &Path, args: &[&str], env: &[(&str, &str)], stdin: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gglib"))
        .args(args)
        .env_clear()
        .env("HOME", home)
        .env("PATH", home)
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gglib starts");
    // A command that does not read its input may have ended already.
    let _ = child.stdin.take().expect("piped").write_all(stdin.as_bytes());
    let output = gglib_testkit::output_of(child, BOUND);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&home.display().to_string(), "[HOME]");
    format!(
        "exit {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().expect("gglib exits by itself"),
        text(&output.stdout),
        text(&output.stderr)
    )
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

#[test]
fn alone_it_prints_a_short_help_that_starts_with_up() {
    assert_snapshot!(gglib(home().path(), &[]), @r#"
    exit 0
    --- stdout
    gglib makes local models behave like a dependable API provider.

      gglib up          set everything up and get a first answer
      gglib serve       run the endpoint
      gglib chat        talk to a model
      gglib q "…"       ask one question
      gglib status      see what is loaded
      gglib top         watch it
      gglib drill       kill engines, and see that every request ends well
      gglib --help      everything else
    --- stderr
    "#);
}

#[test]
fn a_wrong_command_line_is_exit_2() {
    assert!(gglib(home().path(), &["upp"]).starts_with("exit 2\n"));
    assert!(gglib(home().path(), &["--help"]).starts_with("exit 0\n"));
}

#[test]
fn up_without_a_terminal_and_without_yes_downloads_nothing_and_says_how() {
    let home = home();
    assert_snapshot!(gglib(home.path(), &["up"]), @"
    exit 4
    --- stdout
    --- stderr
    error: the engine has to be downloaded (68 MB); run `gglib up --yes` to agree, or put a llama-server on PATH
    ");
    assert_eq!(std::fs::read_dir(home.path()).expect("readable").count(), 0, "nothing was written");
}

#[test]
fn serve_without_an_engine_says_where_to_get_one() {
    assert_snapshot!(gglib(home().path(), &["serve"]), @"
    exit 5
    --- stdout
    --- stderr
    warning: no model is configured; add one with `gglib model add NAME FILE`, or run `gglib up`
    error: no llama-server found; run `gglib up` to install one, put it on PATH, or set engine.binary in gglib.toml
    ");
}

#[test]
fn models_are_added_listed_and_removed_and_the_rest_of_the_file_stays() {
    let home = home();
    let file = home.path().join("a.gguf");
    std::fs::write(&file, "GGUF…").expect("writable");
    let config = home.path().join("gglib.toml");
    std::fs::write(&config, "# mine\n[admission]\nqueue = 8 # few\n").expect("writable");
    let config_arg = config.to_str().expect("UTF-8").to_owned();
    let file_arg = file.to_str().expect("UTF-8").to_owned();
    let run = |args: &[&str]| gglib(home.path(), &[&["--config", &config_arg], args].concat());
    assert_snapshot!(run(&["model", "add", "a", &file_arg, "--alias", "small", "--context", "2048"]), @"
    exit 0
    --- stdout
    Added a; a running endpoint takes it over in a few seconds.
    --- stderr
    ");
    assert_snapshot!(run(&["model", "list"]), @"
    exit 0
    --- stdout
    a (small)  [HOME]/a.gguf
    --- stderr
    ");
    let written = std::fs::read_to_string(&config).expect("readable");
    assert_snapshot!(written.replace(&home.path().display().to_string(), "[HOME]"), @r#"
    # mine
    [admission]
    queue = 8 # few

    [models.a]
    path = "[HOME]/a.gguf"
    aliases = ["small"]
    context = 2048
    "#);
    assert!(run(&["model", "remove", "a"]).starts_with("exit 0\n"));
    assert_snapshot!(run(&["model", "remove", "a"]), @"
    exit 3
    --- stdout
    --- stderr
    error: no model `a` is configured; see `gglib model list`
    ");
    assert_snapshot!(run(&["model", "add", "b", &config_arg]), @"
    exit 3
    --- stdout
    --- stderr
    error: [HOME]/gglib.toml: not a GGUF model file
    ");
}

#[test]
fn a_wrong_configuration_is_told_key_by_key() {
    let home = home();
    let config = home.path().join("gglib.toml");
    std::fs::write(&config, "[server]\nlissten = 1\n[timeouts]\nidle = \"soon\"\n").expect("writable");
    let arg = config.to_str().expect("UTF-8");
    assert_snapshot!(gglib(home.path(), &["config", "check", "--config", arg]), @r#"
    exit 3
    --- stdout
    --- stderr
    error: unknown key `server.lissten` in [HOME]/gglib.toml; did you mean `server.listen`?
    `timeouts.idle` in [HOME]/gglib.toml: expected a duration such as "30s" or "10m", found "soon"
    "#);
    assert_snapshot!(gglib(home.path(), &["config", "check"]), @"
    exit 3
    --- stdout
    --- stderr
    error: there is no configuration at [HOME]/.config/gglib/gglib.toml; `gglib up` writes one, and so does `gglib config init`
    ");
}

#[test]
fn a_doubtful_retry_policy_is_warned_of_with_the_remedy_where_the_configuration_is_the_subject() {
    let home = home();
    let config = home.path().join("gglib.toml");
    std::fs::write(&config, "[retry]\npreset = \"exponential\"\ntotal_deadline = \"1m\"\n")
        .expect("writable");
    let arg = config.to_str().expect("UTF-8");
    let warning = "warning: [retry]: no-jitter: callers that fail together return together; choose a jitter, unless \
                   there is one caller only\n";
    let output = gglib(home.path(), &["config", "check", "--config", arg]);
    assert!(output.starts_with("exit 0\n"), "{output}");
    assert_eq!(output.split_once("--- stderr\n").expect("rendered").1, warning);
    let output = gglib(home.path(), &["serve", "--config", arg]);
    assert!(output.contains(warning), "{output}");
    assert!(!gglib(home.path(), &["model", "list", "--config", arg]).contains("warning"));
}

#[test]
fn pinned_models_that_keep_others_out_are_warned_of() {
    let home = home();
    let file = home.path().join("gglib.toml");
    std::fs::write(
        &file,
        "[models.a]\npath = \"gglib.toml\"\npin = true\n[models.b]\npath = \"gglib.toml\"\n",
    )
    .expect("it can be written");
    let arg = file.to_str().expect("UTF-8");
    assert_snapshot!(gglib(home.path(), &["config", "check", "--config", arg]), @"
    exit 0
    --- stdout
    [HOME]/gglib.toml is valid; models: 2
    every request ends within 45m (at most 3 waits, 4 attempts, 1 repair)
    --- stderr
    warning: once loaded, what is pinned (`a`) fills memory.max_resident = 1 and keeps out `b`; raise memory.max_resident to 2, or pin fewer
    ");
}

#[test]
fn the_template_that_init_writes_is_valid_and_not_overwritten() {
    let home = home();
    assert!(gglib(home.path(), &["config", "init"]).starts_with("exit 0\n"));
    assert_snapshot!(gglib(home.path(), &["config", "check"]), @"
    exit 0
    --- stdout
    [HOME]/.config/gglib/gglib.toml is valid; models: 0
    every request ends within 45m (at most 3 waits, 4 attempts, 1 repair)
    --- stderr
    ");
    assert_snapshot!(gglib(home.path(), &["config", "check", "--json"]), @r#"
    exit 0
    --- stdout
    {"path":"[HOME]/.config/gglib/gglib.toml","models":0,"bound":{"seconds":2700.0,"waits":3,"attempts":4,"repairs":1}}
    --- stderr
    "#);
    assert!(gglib(home.path(), &["config", "init"]).contains("exists already"));
}

#[test]
fn status_of_nothing_says_how_to_start_it() {
    assert_snapshot!(gglib(home().path(), &["status", "--url", "http://127.0.0.1:1/v1"]), @"
    exit 7
    --- stdout
    --- stderr
    error: no endpoint answers at http://127.0.0.1:1/v1; start it with `gglib serve` or `gglib up`
    ");
}

#[test]
fn top_without_an_endpoint_says_how_to_start_it_and_without_a_terminal_prints_one_frame() {
    let home = home();
    assert_snapshot!(gglib(home.path(), &["top", "--url", "http://127.0.0.1:1/v1"]), @"
    exit 7
    --- stdout
    --- stderr
    error: no endpoint answers at http://127.0.0.1:1/v1; start it with `gglib serve` or `gglib up`
    ");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("gglib asks");
        let mut request = [0; 4096];
        let read = stream.read(&mut request).expect("readable");
        assert!(request[..read].starts_with(b"GET /status "), "{}", String::from_utf8_lossy(&request));
        let body = r#"{"version":"0.1.0","engines":[],"queue":[{"model":"qwen","waiting":3,"oldest_wait_ms":2500}]}"#;
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    });
    let output = gglib(home.path(), &["top", "--url", &url]);
    server.join().expect("asked once");
    assert_snapshot!(output.replace(&url, "[URL]"), @"
    exit 0
    --- stdout
    gglib 0.1.0 at [URL]

    No engine is loaded; the first request loads one.

    QUEUE                                WAITING LONGEST WAIT   A NEW ONE WOULD WAIT
    qwen                                       3         2.5s                      -

    Requests 0: failed 0, abandoned 0, retried by clients 0.
    Loads 0: failed 0, cancelled 0. Swaps 0, evictions 0, crashes 0, recycles 0.
    Waits expired 0. Relaunches 0, resends 0, continuations 0, mends 0, repairs 0.
    --- stderr
    ");
}

/// A server that refuses everything with 503 and `Retry-After: 1`, and tells when it was asked.
fn refusing_server() -> (String, Receiver<Instant>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    let (asked, times) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let mut chunk = [0; 4096];
            while !request.ends_with(b"}") {
                match stream.read(&mut chunk) {
                    Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
                    _ => break,
                }
            }
            #[expect(clippy::disallowed_methods, reason = "real time is what is tested")]
            let now = Instant::now();
            if asked.send(now).is_err() {
                return;
            }
            let body =
                r#"{"error":{"message":"busy","type":"server_error","code":"model_loading","param":null}}"#;
            let head = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json";
            let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    (url, times)
}

#[test]
fn q_obeys_the_attempts_variable_and_the_servers_hint_and_says_why_it_gave_up() {
    let (url, times) = refusing_server();
    let env = [("GGLIB_LLM_RETRY_MAX_ATTEMPTS", "2")];
    let output = gglib_with(home().path(), &["q", "Hello?", "--model", "m", "--url", &url], &env, "");
    assert!(output.starts_with("exit 8\n"), "{output}");
    assert!(output.contains("model is loading, trying again in "), "{output}");
    assert!(output.contains("(2 of 2)"), "{output}");
    assert!(output.contains("error: gave up after 2 attempts in "), "{output}");
    assert!(output.contains("(attempts exhausted): 503 model_loading: busy"), "{output}");
    let times: Vec<Instant> = times.try_iter().collect();
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= Duration::from_secs(1), "{times:?}");
}

#[test]
fn q_says_who_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let env = [("GGLIB_LLM_RETRY_MAX_ATTEMPTS", "2")];
    let url = format!("http://{address}/v1");
    let output = gglib_with(home().path(), &["q", "Hello?", "--model", "m", "--url", &url], &env, "");
    assert!(output.starts_with("exit 8\n"), "{output}");
    // In how long is drawn by lot, from nothing on.
    let told = output.lines().any(|line| {
        line.starts_with(&format!("no answer from {address}, trying again ")) && line.ends_with("(2 of 2)")
    });
    assert!(told, "{output}");
}

#[test]
fn no_retry_makes_one_attempt() {
    let (url, times) = refusing_server();
    let args = ["chat", "m", "--no-retry", "--url", &url];
    let output = gglib_with(home().path(), &args, &[], "Hello?\n");
    assert!(output.starts_with("exit 8\n"), "{output}");
    assert!(output.contains("error: gave up after 1 attempt in "), "{output}");
    assert!(output.contains("(attempts exhausted): 503"), "{output}");
    assert_eq!(times.try_iter().count(), 1);
}

#[test]
fn q_follows_the_rules_of_the_model_and_of_the_failures_class() {
    let home = home();
    let config = home.path().join("gglib.toml");
    let arg = config.to_str().expect("UTF-8");
    let model = "[retry]\nmax_attempts = 1\n[models.big]\npath = \"big.gguf\"\naliases = [\"b\"]\n\
                 [models.big.retry]\nmax_attempts = 2\n";
    // The server's 503 is of the class `overloaded`.
    for (class, attempts) in [("rate_limited", 2), ("overloaded", 1)] {
        let text = format!("{model}[retry.class.{class}]\nmax_attempts = 1\n");
        std::fs::write(&config, text).expect("writable");
        let (url, times) = refusing_server();
        let args = ["q", "Hello?", "--model", "b", "--config", arg, "--url", &url];
        let output = gglib_with(home.path(), &args, &[], "");
        assert!(output.contains(&format!("error: gave up after {attempts} attempt")), "{output}");
        assert_eq!(times.try_iter().count(), attempts, "{class}");
    }
}
