//! What the endpoint adds to a request, against a direct connection to the same upstream.

#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::load::{self, Outcome};
use super::upstream;
use crate::endpoint::{Endpoint, Owned};

const CONNECTIONS: [usize; 3] = [1, 16, 64];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);

const PLAIN: &str = r#"{"model":"bench","messages":[{"role":"user","content":"Say something"}]}"#;
const STREAM: &str =
    r#"{"model":"bench","messages":[{"role":"user","content":"Say something"}],"stream":true}"#;

/// Measures plain and streamed answers at 1, 16 and 64 connections. `xtask` is this program, which is also the
/// upstream; `gglib` lies beside it.
///
/// # Errors
/// When a process does not start or a request fails.
pub fn run(xtask: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let direct = Upstream::start(xtask)?;
    let gglib = gglib(xtask, scratch.path())?;
    println!(
        "Changed from the defaults: parallel = 64 (so that the queue is not what is measured), engine.binary.\n\
         Each figure is the median of {ROUNDS} rounds of {ROUND:?}, direct and through gglib in turns.\n"
    );
    println!("answer  conn  direct p50  added p50  added first  p99 ratio  direct req/s  throughput ratio");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for (name, body) in [("plain", PLAIN), ("SSE", STREAM)] {
        for connections in CONNECTIONS {
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let direct = runtime.block_on(load::run(direct.address, connections, body, ROUND))?;
                let through = runtime.block_on(load::run(gglib.address, connections, body, ROUND))?;
                rounds.push((direct, through));
            }
            print_row(name, connections, &rounds);
        }
    }
    Ok(())
}

fn print_row(name: &str, connections: usize, rounds: &[(Outcome, Outcome)]) {
    let median = |figure: &dyn Fn(&(Outcome, Outcome)) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{name:<6} {connections:>5} {:>8.0} µs {:>+7.0} µs {:>+9.0} µs {:>9.1}x {:>13.0} {:>17.3}",
        median(&|(direct, _)| micros(direct.p50)),
        median(&|(direct, through)| micros(through.p50) - micros(direct.p50)),
        median(&|(direct, through)| micros(through.first_p50) - micros(direct.first_p50)),
        median(&|(direct, through)| micros(through.p99) / micros(direct.p99)),
        median(&|(direct, _)| direct.rate),
        median(&|(direct, through)| through.rate / direct.rate),
    );
}

struct Upstream {
    address: SocketAddr,
    #[expect(dead_code, reason = "held for its Drop")]
    process: Owned,
}

impl Upstream {
    fn start(xtask: &Path) -> Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let process = Command::new(xtask)
            .args(["bench-upstream", "--host", "127.0.0.1", "--port", &address.port().to_string()])
            .spawn()?;
        let upstream = Self { address, process: Owned(process) };
        wait_for(address).context("the upstream does not listen")?;
        Ok(upstream)
    }
}

/// An endpoint whose engines are upstreams too.
fn gglib(xtask: &Path, scratch: &Path) -> Result<Endpoint> {
    let engine = upstream::as_engine(xtask, scratch)?;
    let model = scratch.join("bench.gguf");
    fs::write(&model, "GGUF")?;
    let toml = format!(
        "[engine]\nbinary = \"{}\"\n[models.bench]\npath = \"{}\"\nparallel = 64\n",
        engine.display(),
        model.display()
    );
    Endpoint::start(xtask, scratch, &toml)
}

/// Waits, by trying, until somebody listens at `address`.
pub(super) fn wait_for(address: SocketAddr) -> Result<()> {
    let (_never, tick) = std::sync::mpsc::channel::<()>();
    for _ in 0..500 {
        if std::net::TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        let _ = tick.recv_timeout(Duration::from_millis(10));
    }
    Ok(std::net::TcpStream::connect(address).map(drop)?)
}
