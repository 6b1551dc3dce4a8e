//! Terminals and pipes as they come and go: who reads what gglib says may leave, and who is asked may say no by Ctrl-C.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use gglib_testkit::{Launch, Reply, Script, Scripted, fake_engine};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

const MS: Duration = Duration::from_millis(1);

/// `gglib` in a process group of its own, which ends with its test.
struct Gglib(Child);

impl Gglib {
    fn start(command: &mut Command) -> Self {
        Self(command.process_group(0).spawn().expect("gglib starts"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it has not been reaped");
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("our own child can be waited for").is_none()
    }

    fn until_end(&mut self) -> ExitStatus {
        for _ in 0..6000 {
            if !self.is_running() {
                break;
            }
            nap();
        }
        self.0.try_wait().expect("our own child can be waited for").expect("it ends within a minute")
    }
}

impl Drop for Gglib {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process is waited for, and nothing else is to be done meanwhile"
)]
fn nap() {
    thread::sleep(10 * MS);
}

/// A home with a configuration whose engine answers with `contents` contents, one every 50 ms.
struct Home {
    directory: tempfile::TempDir,
    script: Scripted,
}

impl Home {
    fn new(contents: usize) -> Self {
        let reply = Reply { pace: 50 * MS, ..Reply::numbered(contents) };
        let script = Script::always(Launch { replies: vec![reply], ..Launch::default() }).place();
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[engine]\nbinary = \"{}\"\n[models.m]\npath = \"{}\"\nargs = {:?}\n",
            fake_engine().display(),
            script.model().display(),
            script.args(),
        );
        std::fs::write(directory.path().join("gglib.toml"), text).expect("writable");
        Self { directory, script }
    }

    fn gglib(&self, args: &[&str]) -> Command {
        let mut command = gglib(self.directory.path(), args);
        command.env("GGLIB_CONFIG", self.directory.path().join("gglib.toml"));
        command
    }
}

fn gglib(home: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gglib"));
    command.args(args).env_clear().env("HOME", home).env("PATH", home);
    command.env("GGLIB_DATA_DIR", home.join("data")).stdin(Stdio::null());
    command
}

/// A terminal: our end, and the one of a program.
fn terminal() -> (File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
    grantpt(&ours).expect("ours");
    unlockpt(&ours).expect("ours");
    let name = ptsname(&ours, Vec::new()).expect("ours").into_string().expect("UTF-8");
    let theirs = File::options().read(true).write(true).open(name).expect("it is there");
    (ours.into(), theirs.into())
}

fn doubled(end: &OwnedFd) -> OwnedFd {
    end.try_clone().expect("a descriptor can be doubled")
}

/// Reads until `fits` accepts what has come.
fn read_until(from: &mut impl Read, fits: impl Fn(&str) -> bool) -> String {
    let mut seen = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).is_ok_and(|read| read == 1) {
        seen.push(byte[0]);
        let text = String::from_utf8_lossy(&seen);
        if fits(&text) {
            return text.into_owned();
        }
    }
    panic!("this is all that came: {}", String::from_utf8_lossy(&seen))
}

fn address(line: &str) -> String {
    let (_, rest) = line.split_once("http://").expect("the line names it");
    rest.split_once("/v1").expect("the base URL ends with /v1").0.to_owned()
}

fn chat(address: &str) -> String {
    let body = r#"{"model":"m","messages":[]}"#;
    let mut stream = TcpStream::connect(address).expect("the endpoint listens");
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: gglib\r\nconnection: close";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    answer
}

fn assert_serves_and_drains(mut gglib: Gglib, address: &str) {
    for _ in 0..2 {
        let answer = chat(address);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        // As when a terminal is closed: the configuration is read again, and it is said so.
        gglib.signal(Signal::HUP);
    }
    assert!(gglib.is_running());
    gglib.signal(Signal::TERM);
    assert_eq!(gglib.until_end().code(), Some(0));
}

#[test]
fn an_endpoint_whose_log_nobody_reads_any_more_serves_and_drains() {
    let home = Home::new(3);
    let (reader, log) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let mut command = home.gglib(&["serve"]);
    let mut gglib = Gglib::start(command.env("GGLIB_LOG", "debug").stdout(Stdio::piped()).stderr(log));
    let mut out = BufReader::new(gglib.0.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("UTF-8");
    drop(out);
    assert_serves_and_drains(gglib, &address(&line));
}

#[test]
fn an_endpoint_outlives_its_terminal() {
    let home = Home::new(3);
    let (mut ours, theirs) = terminal();
    let mut command = home.gglib(&["serve"]);
    let gglib = Gglib::start(command.stdin(doubled(&theirs)).stdout(doubled(&theirs)).stderr(theirs));
    drop(command);
    let said = read_until(&mut ours, |text| text.contains("/v1"));
    drop(ours);
    assert_serves_and_drains(gglib, &address(&said));
}

/// `gglib serve` of `home`, and its address.
fn serving(home: &Home) -> (Gglib, String) {
    let mut gglib = Gglib::start(home.gglib(&["serve"]).stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut line = String::new();
    let mut out = BufReader::new(gglib.0.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("UTF-8");
    (gglib, address(&line))
}

#[test]
fn an_answer_that_nobody_reads_any_more_is_given_up_and_its_engine_is_free() {
    let home = Home::new(1000);
    let (_endpoint, address) = serving(&home);
    let url = format!("http://{address}/v1");
    let mut command = home.gglib(&["q", "Count!", "--model", "m", "--url", &url]);
    let mut q = Gglib::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut out = q.0.stdout.take().expect("piped");
    read_until(&mut out, |text| text.contains("1 "));
    drop(out);
    assert_eq!(q.until_end().code(), Some(0));
    for _ in 0..500 {
        if home.script.log().cancelled() == 1 {
            return;
        }
        nap();
    }
    panic!("the engine still works: {:?}", home.script.log());
}

#[test]
fn what_broke_an_answer_off_is_said_on_a_line_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("q asks");
        read_until(&mut stream, |text| text.ends_with('}'));
        let text = r#"data: {"choices":[{"delta":{"content":"One, two"}}]}"#;
        let error = r#"data: {"error":{"message":"broken","type":"server_error","code":"upstream_died"}}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close";
        let _ = write!(stream, "{head}\r\n\r\n{text}\n\n{error}\n\n");
    });
    let home = Home::new(0);
    let (mut reader, both) = std::io::pipe().expect("a pipe can be made");
    let mut command = home.gglib(&["q", "Count!", "--model", "m", "--url", &url]);
    command.stdout(both.try_clone().expect("a pipe can be doubled")).stderr(both);
    let mut q = Gglib::start(&mut command);
    drop(command);
    let mut said = String::new();
    reader.read_to_string(&mut said).expect("UTF-8");
    assert!(said.starts_with("One, two\nerror: "), "{said}");
    assert_eq!(q.until_end().code(), Some(9), "{said}");
}

/// Starts `command` on a terminal and waits for its question.
fn asked(mut command: Command) -> (Gglib, File) {
    let (mut ours, theirs) = terminal();
    let gglib = Gglib::start(command.stdin(doubled(&theirs)).stdout(doubled(&theirs)).stderr(theirs));
    read_until(&mut ours, |text| text.ends_with("[Y/n] "));
    (gglib, ours)
}

#[test]
fn ctrl_c_ends_a_question_and_no_is_no() {
    let empty = tempfile::tempdir().expect("a temporary directory can be made");
    let (mut up, _terminal) = asked(gglib(empty.path(), &["up"]));
    up.signal(Signal::INT);
    assert_eq!(up.until_end().code(), Some(130));

    let (mut up, mut terminal) = asked(gglib(empty.path(), &["up"]));
    writeln!(terminal, "n").expect("it is read");
    assert_eq!(up.until_end().code(), Some(4));

    let home = Home::new(1);
    let (_endpoint, address) = serving(&home);
    let mut command = home.gglib(&["drill", "--live"]);
    command.env("GGLIB_SERVER_LISTEN", &address);
    let (mut drill, _terminal) = asked(command);
    drill.signal(Signal::INT);
    assert_eq!(drill.until_end().code(), Some(130));
    assert_eq!(home.script.log().launches(), 0);
}
