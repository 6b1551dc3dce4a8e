//! Two real models of which one fits: gglib beside `llama-server`'s own router mode, the same requests in turns.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and measures real time"
)]

use std::fmt::Write;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gglib_runtime::install::{self, ENGINE, SMOLLM2};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::proxy::wait_for;
use crate::endpoint::{Endpoint, Owned};

/// Longest wait for one answer; whoever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(300);
const MODELS: [&str; 2] = ["smollm2", "gemma3"];
const MAX_TOKENS: u32 = 16;

/// In which order requests come.
#[derive(Clone, Copy)]
enum Workload {
    /// 40 at once, alternating.
    AtOnce,
    /// 4 clients with 5 requests each, one after the other, alternating.
    ClosedLoop,
}

/// One workload through one endpoint.
struct Outcome {
    loads: usize,
    failed: usize,
    answered: usize,
    took: Duration,
}

impl Outcome {
    /// Seconds of the whole run for each answer that came.
    fn per_answer(&self) -> f64 {
        self.took.as_secs_f64() / f64::from(u32::try_from(self.answered.max(1)).unwrap_or(u32::MAX))
    }
}

/// Measures both workloads `rounds` times. `xtask` is this program; `gglib` lies beside it.
///
/// # Errors
/// When a model is missing or a process does not start.
pub fn run(xtask: &Path, rounds: usize) -> Result<()> {
    let assets = assets(xtask)?;
    let engine = install::install(&ENGINE, &assets, &())?.path;
    let smollm2 = install::install(&SMOLLM2, &assets, &())?.path;
    let gemma3 = gemma3(&assets)?;
    let bench = Bench { xtask, engine, models: [smollm2, gemma3] };
    println!(
        "Changed from the defaults on both sides: context 2048, max_tokens {MAX_TOKENS}. Load average before: {}.\n\
         Each figure is the median of {rounds} round(s), in turns.\n",
        fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    println!("workload                 endpoint  loads  failed  s per answer  ratio");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (name, workload) in [("40 at once", Workload::AtOnce), ("4 clients, 5 each", Workload::ClosedLoop)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(runtime.block_on(bench.gglib(workload))?);
            theirs.push(runtime.block_on(bench.router(workload))?);
        }
        let ratio = median(&ours, Outcome::per_answer) / median(&theirs, Outcome::per_answer);
        print_row(name, "gglib", &ours, Some(ratio));
        print_row(name, "router", &theirs, None);
    }
    Ok(())
}

fn print_row(workload: &str, endpoint: &str, outcomes: &[Outcome], ratio: Option<f64>) {
    #[expect(clippy::cast_precision_loss, reason = "these are small numbers")]
    let count = |of: fn(&Outcome) -> usize| median(outcomes, |outcome| of(outcome) as f64);
    println!(
        "{workload:<24} {endpoint:<8} {:>6.0} {:>7.0} {:>13.2} {}",
        count(|outcome| outcome.loads),
        count(|outcome| outcome.failed),
        median(outcomes, Outcome::per_answer),
        ratio.map_or_else(String::new, |ratio| format!("{ratio:>6.2}")),
    );
}

fn median(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    let mut figures: Vec<f64> = outcomes.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Where the tests have put the real engine and models.
pub(super) fn assets(xtask: &Path) -> Result<PathBuf> {
    let target =
        xtask.parent().and_then(Path::parent).context("cargo puts programs below its target directory")?;
    Ok(target.join("test-assets"))
}

/// Gemma, which only tests install.
pub(super) fn gemma3(assets: &Path) -> Result<PathBuf> {
    let gemma3 = assets.join("models/gemma-3-270m-q4_k_m.gguf");
    if !gemma3.is_file() {
        bail!(
            "{} is missing; the tests with the real engine install it: cargo test -p gglib-runtime",
            gemma3.display()
        );
    }
    Ok(gemma3)
}

struct Bench<'a> {
    xtask: &'a Path,
    engine: PathBuf,
    models: [PathBuf; 2],
}

impl Bench<'_> {
    async fn gglib(&self, workload: Workload) -> Result<Outcome> {
        let scratch = tempfile::tempdir()?;
        let mut text =
            format!("[engine]\nbinary = \"{}\"\n[memory]\nmax_resident = 1\n", self.engine.display());
        for (name, path) in MODELS.iter().zip(&self.models) {
            writeln!(text, "[models.{name}]\npath = \"{}\"\ncontext = 2048", path.display())?;
        }
        let endpoint = Endpoint::start(self.xtask, scratch.path(), &text)?;
        let (answered, failed, took) = load(endpoint.address, workload).await?;
        let status = ask(endpoint.address, "GET", "/status", String::new()).await?;
        let loads = status["totals"]["loads"].as_u64().context("the status has totals")?;
        Ok(Outcome { loads: usize::try_from(loads)?, failed, answered, took })
    }

    async fn router(&self, workload: Workload) -> Result<Outcome> {
        let scratch = tempfile::tempdir()?;
        let preset = scratch.path().join("models.ini");
        let mut text = String::new();
        for (name, path) in MODELS.iter().zip(&self.models) {
            writeln!(text, "[{name}]\nmodel = {}\nctx-size = 2048\nparallel = 1", path.display())?;
        }
        fs::write(&preset, text)?;
        let log = scratch.path().join("log");
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = Command::new(&self.engine);
        command.args(["--models-max", "1", "--host", "127.0.0.1", "--port", &address.port().to_string()]);
        command.arg("--models-preset").arg(&preset).arg("--no-webui");
        // It ends when its standard input does, and its engines with it.
        let output = File::create(&log)?;
        let process = command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output).spawn()?;
        let _process = Owned(process);
        wait_for(address).context("the router does not listen")?;
        let (answered, failed, took) = load(address, workload).await?;
        let loads = fs::read_to_string(&log)?.matches("spawning server instance with name=").count();
        Ok(Outcome { loads, failed, answered, took })
    }
}

/// Answers, failures and the time until the last of them.
async fn load(address: SocketAddr, workload: Workload) -> Result<(usize, usize, Duration)> {
    let (clients, requests) = match workload {
        Workload::AtOnce => (40, 1),
        Workload::ClosedLoop => (4, 5),
    };
    let began = Instant::now();
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            tokio::spawn(async move {
                let mut answered = 0;
                for request in 0..requests {
                    answered += usize::from(is_answered(address, MODELS[(client + request) % 2]).await);
                }
                answered
            })
        })
        .collect();
    let asked = clients.len() * requests;
    let mut answered = 0;
    for client in clients {
        answered += client.await?;
    }
    Ok((answered, asked - answered, began.elapsed()))
}

/// Whether a whole answer came in time.
async fn is_answered(address: SocketAddr, model: &str) -> bool {
    let body = format!(
        r#"{{"model":"{model}","messages":[{{"role":"user","content":"Say something"}}],"max_tokens":{MAX_TOKENS}}}"#
    );
    let answer = timeout(PATIENCE, ask(address, "POST", "/v1/chat/completions", body)).await;
    matches!(answer, Ok(Ok(answer)) if answer["choices"][0]["finish_reason"].is_string())
}

/// The answer to one request on a connection of its own, as JSON.
///
/// # Errors
/// When it is none, or has another status than 200.
pub(super) async fn ask(address: SocketAddr, method: &str, path: &str, body: String) -> Result<Value> {
    Ok(serde_json::from_slice(&fetch(address, method, path, body).await?)?)
}

/// The body of the same.
pub(super) async fn fetch(address: SocketAddr, method: &str, path: &str, body: String) -> Result<Bytes> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "bench")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if status != 200 {
        bail!("the answer was {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body)
}
