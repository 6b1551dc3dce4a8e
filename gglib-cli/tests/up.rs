//! `gglib up` beside an endpoint that runs already, and what it says to type.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use gglib_testkit::{Launch, Reply, Running, Script, Scripted, fake_engine};
use rustix::process::Signal;

const BOUND: Duration = Duration::from_secs(60);

/// A home with a configuration of one model, `m`, and a script that every engine plays.
struct Home {
    directory: tempfile::TempDir,
    script: Scripted,
}

impl Home {
    fn new() -> Self {
        let launch = Launch { replies: vec![Reply::text(["Paris."])], ..Launch::default() };
        let script = Script::always(launch).place();
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let home = Self { directory, script };
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[engine]\nbinary = \"{}\"\n[models.m]\npath = \"{}\"\n",
            fake_engine().display(),
            home.script.model().display(),
        );
        std::fs::write(home.config(), text).expect("writable");
        home
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn config(&self) -> PathBuf {
        self.path().join("gglib.toml")
    }

    fn gglib(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gglib"));
        let (key, script) = self.script.env();
        command.args(args).env("GGLIB_DATA_DIR", self.path()).env(key, script);
        command
    }

    /// Starts `gglib serve`; its address.
    fn serve(&self) -> (Running, String) {
        let mut command = self.gglib(&["serve"]);
        command.env("GGLIB_CONFIG", self.config());
        let running = Running::start_collecting_all(command);
        let line = running.until_line(|line| line.contains("http://"), BOUND);
        let (_, rest) = line.split_once("http://").expect("the line names it");
        let address = rest.split_once("/v1").expect("the base URL ends with /v1").0.to_owned();
        (running, address)
    }

    /// `gglib up` where the address of the configuration is `address`.
    fn up(&self, address: &str, model: &str) -> Output {
        let mut command = self.gglib(&["up", "--model", model]);
        command.env("GGLIB_CONFIG", self.config()).env("GGLIB_SERVER_LISTEN", address);
        gglib_testkit::output(&mut command, 5 * BOUND)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_model_that_is_added_beside_a_running_endpoint_is_asked_when_that_has_it() {
    let home = Home::new();
    let (_running, address) = home.serve();
    let file = home.path().join("New.gguf");
    std::fs::copy(home.script.model(), &file).expect("it can be copied");
    let output = home.up(&address, file.to_str().expect("UTF-8"));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(err.contains("waiting for the running endpoint to take new over …"), "{err}");
    assert!(out.contains(&format!("[4/5] endpoint  http://{address}/v1 (was running already)\n")), "{out}");
    assert!(out.contains("[5/5] answer    \"Paris.\""), "{out}");
    // It is there now.
    let output = home.up(&address, "new");
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
}

#[test]
fn an_endpoint_with_another_configuration_is_not_mistaken_for_ones_own() {
    let (running, other) = (Home::new(), Home::new());
    let (_running, address) = running.serve();
    let config = std::fs::read_to_string(other.config()).expect("readable");
    std::fs::write(other.config(), config.replace("models.m", "models.mine")).expect("writable");
    let output = other.up(&address, "mine");
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stdout));
    let expected = format!(
        "error: the gglib that listens at {address} has no model `mine`: it does not use {}; stop it, or choose \
         another port (`gglib up --port`)\n",
        other.config().display()
    );
    assert!(text(&output.stderr).ends_with(&expected), "{}", text(&output.stderr));
}

#[test]
fn what_up_says_to_type_means_the_endpoint_that_it_started() {
    let home = Home::new();
    let config = home.config();
    let arg = config.to_str().expect("UTF-8");
    let mut command = home.gglib(&["up", "--port", "0", "--config", arg]);
    command.env_remove("GGLIB_URL").env_remove("GGLIB_CONFIG");
    let mut running = Running::start_collecting_all(command);
    let stop = running.until_line(|line| line.starts_with("Ctrl-C"), BOUND);
    let said = running.stderr();
    let line =
        |with: &str| said.iter().find(|line| line.contains(with)).unwrap_or_else(|| panic!("{said:?}"));
    let url = line("base URL").trim().trim_start_matches("base URL").trim();
    let address = url.trim_start_matches("http://").trim_end_matches("/v1");
    assert!(
        line(" q ").ends_with(&format!("q --config {arg} --url {url} \"Why is the sky blue?\"")),
        "{said:?}"
    );
    assert!(stop.contains(&format!("serve --config {arg} --listen {address}`")), "{stop}");
    running.signal(Signal::INT);
    assert_eq!(running.until_end(BOUND).code(), Some(0));

    // Where a plain call means the same, it is told plainly.
    let mut command = home.gglib(&["up"]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("bound").to_string();
    drop(free);
    command.env_remove("GGLIB_URL").env("GGLIB_CONFIG", arg).env("GGLIB_SERVER_LISTEN", address);
    let running = Running::start_collecting_all(command);
    let stop = running.until_line(|line| line.starts_with("Ctrl-C"), BOUND);
    let said = running.stderr();
    assert!(said.iter().any(|line| line.ends_with(" q \"Why is the sky blue?\"")), "{said:?}");
    assert!(stop.contains(" serve` starts it again"), "{stop}");
}
