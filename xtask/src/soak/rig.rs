//! The endpoint that is soaked: a `gglib serve` with the real engine and two real models.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gglib_cli::drill::client::Client;
use gglib_cli::drill::outcome::{Asked, Outcome};
use gglib_core::config::{self, Sources};
use gglib_runtime::http::HttpUpstream;
use gglib_testkit::engines::{is_running, signal};
use gglib_testkit::real;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::books;
use super::process::{self, Holdings};
use crate::endpoint::Endpoint;

/// The models; one fits.
pub(super) const MODELS: [&str; 2] = ["smollm2", "gemma3"];

/// What makes each model another one: a seed of its engine.
pub(super) type Variants = [u32; MODELS.len()];

/// What is changed of the shipped defaults: timers that find a stopped engine soon, a swap every few seconds, and slots
/// that come to the end of their budget.
pub(super) const SETTINGS: &str = "\
admission.max_wait = \"60s\"
admission.quantum = \"3s\"
engine.load_limit = \"30s\"
engine.load_stall = \"10s\"
slots.disk_budget = \"48MiB\"
timeouts.first_content = \"12s\"
timeouts.idle = \"8s\"
timeouts.request = \"2m\"
timeouts.response_headers = \"6s\"
timeouts.total = \"1m\"
";

/// Above the budget for slots: one that is being saved, and everything else.
const DATA: u64 = (48 + 80) << 20;
/// For what has to happen by itself.
const SOON: Duration = Duration::from_secs(30);
const GRAIN: Duration = Duration::from_millis(100);
/// For a changed configuration to be read, by the signal or by the change of the file.
const SETTLE: Duration = Duration::from_secs(5);

/// The endpoint, with what is needed to look into it.
pub(super) struct Rig {
    endpoint: Mutex<Endpoint>,
    base_url: String,
    pid: u32,
    /// The longest that a request may take.
    pub(super) bound: Duration,
    /// With configuration and data.
    directory: tempfile::TempDir,
    /// Every guard and engine that was seen.
    started: Mutex<BTreeSet<u32>>,
}

impl Rig {
    pub(super) fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let toml = toml([0; MODELS.len()])?;
        let sources = Sources { file: Some((Path::new("gglib.toml"), &toml)), env: &|_| None, flags: &[] };
        let bound = config::load(&sources)?.bound().total;
        let endpoint = Endpoint::start(&std::env::current_exe()?, directory.path(), &toml)?;
        Ok(Self {
            base_url: endpoint.base_url(),
            pid: endpoint.process.0.id(),
            endpoint: Mutex::new(endpoint),
            bound,
            directory,
            started: Mutex::default(),
        })
    }

    /// The process of gglib.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.base_url, self.patience())?)
    }

    /// Longer than any request may take.
    pub(super) fn patience(&self) -> Duration {
        self.bound + Duration::from_secs(30)
    }

    pub(super) fn slots(&self) -> PathBuf {
        self.directory.path().join("slots")
    }

    /// Asks each model once, so that what is there once is there.
    pub(super) async fn warm_up(&self) -> Result<()> {
        for model in MODELS {
            let outcome = self.ask(model).await?;
            ensure!(matches!(outcome, Outcome::Answered { .. }), "{model} does not serve: {outcome}");
        }
        Ok(())
    }

    /// Writes the configuration with these variants and tells gglib to read it.
    pub(super) fn reload(&self, variants: Variants) -> Result<()> {
        let config = self.directory.path().join("gglib.toml");
        std::fs::write(config, format!("server.listen = \"127.0.0.1:0\"\n{}", toml(variants)?))?;
        signal(self.pid, Signal::HUP);
        Ok(())
    }

    pub(super) async fn status(&self) -> Option<Value> {
        self.client().ok()?.get("/status").await
    }

    pub(super) async fn metrics(&self) -> Result<String> {
        let (_, body) = HttpUpstream::new(&self.base_url, None)?.get("/metrics").await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    pub(super) async fn totals(&self) -> Value {
        self.status().await.map(|mut status| status["totals"].take()).unwrap_or_default()
    }

    /// The engine in `state`, if it is one of ours.
    pub(super) async fn engine(&self, state: &str) -> Option<u32> {
        let status = self.status().await?;
        let engines = status["engines"].as_array()?;
        let engine = engines.iter().find(|engine| engine["state"] == state)?;
        let pid = engine["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())?;
        self.note_engines().contains(&pid).then_some(pid)
    }

    /// Remembers the engines that there are, and answers with them.
    pub(super) fn note_engines(&self) -> Vec<u32> {
        let (guards, engines) = process::guards_and_engines(self.pid);
        self.started.lock().unwrap_or_else(PoisonError::into_inner).extend(guards.iter().chain(&engines));
        engines
    }

    /// Whether a model's engines are left alone, because too many have failed.
    pub(super) async fn is_broken(&self, model: &str) -> bool {
        let status = self.status().await.unwrap_or_default();
        let mut breakers = status["breakers"].as_array().into_iter().flatten();
        breakers.any(|breaker| breaker["model"] == model)
    }

    /// Whether each model serves again once nobody harms it any more. Both are changed first, as by a person who has
    /// mended them: engines that were killed all the time may otherwise be left alone for minutes.
    pub(super) async fn recovers(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(error) = self.reload([u32::MAX; MODELS.len()]) {
            return vec![format!("the configuration cannot be written: {error:#}")];
        }
        sleep(SETTLE).await;
        for model in MODELS {
            let mut outcome = self.ask(model).await;
            // An engine that was stopped last may cost this request an error; a load that failed last, a wait.
            for _ in 0..3 {
                match &outcome {
                    Ok(Outcome::Answered { .. }) => break,
                    Ok(Outcome::Refused { retry_after, .. }) => sleep(*retry_after).await,
                    _ => {}
                }
                outcome = self.ask(model).await;
            }
            match outcome {
                Ok(Outcome::Answered { .. }) => {}
                Ok(other) => problems.push(format!("afterwards {model} does not serve: {other}")),
                Err(error) => problems.push(format!("afterwards {model} cannot be asked: {error:#}")),
            }
        }
        problems
    }

    /// What gglib holds now.
    pub(super) async fn holdings(&self) -> Result<Holdings> {
        let tasks = books::samples(&self.metrics().await?, "gglib_tasks", "");
        ensure!(tasks > 0, "/metrics does not tell how many tasks there are");
        Ok(Holdings::of(self.pid, tasks))
    }

    /// What is held that should not be, once everything is idle.
    pub(super) async fn leaks(&self, before: &Holdings) -> Vec<String> {
        let mut leaks = vec![String::new()];
        // What is on its way out may take a moment, and idle threads of tokio's pool 10 s.
        let _ = timeout(SOON, async {
            while !leaks.is_empty() {
                sleep(GRAIN).await;
                leaks = self.look_for_leaks(before).await;
            }
        })
        .await;
        leaks
    }

    async fn look_for_leaks(&self, before: &Holdings) -> Vec<String> {
        let mut leaks = Vec::new();
        let Some(status) = self.status().await else { return vec!["/status does not answer".to_owned()] };
        let engines = status["engines"].as_array().cloned().unwrap_or_default();
        if let Some(busy) = engines.iter().find(|engine| engine["in_flight"] != 0) {
            leaks.push(format!("an engine is in use: {busy}"));
        }
        if status["queue"].as_array().is_none_or(|queue| !queue.is_empty()) {
            leaks.push(format!("somebody waits: {}", status["queue"]));
        }
        self.note_engines();
        let (guards, processes) = process::guards_and_engines(self.pid);
        if guards.len() != engines.len() || processes.len() != engines.len() {
            leaks.push(format!(
                "{} guards and {} processes of {} engines",
                guards.len(),
                processes.len(),
                engines.len()
            ));
        }
        match self.holdings().await {
            Ok(now) if now.exceed(before) => leaks.push(format!("{now:?} instead of {before:?}")),
            Ok(_) => {}
            Err(error) => leaks.push(format!("{error:#}")),
        }
        let socket = engines
            .iter()
            .find_map(|engine| engine["address"].as_str()?.strip_prefix("unix:").map(PathBuf::from));
        let sockets =
            socket.as_deref().and_then(Path::parent).and_then(|directory| std::fs::read_dir(directory).ok());
        let sockets = sockets.map_or(0, Iterator::count);
        if sockets > engines.len() {
            leaks.push(format!("{sockets} sockets of {} engines", engines.len()));
        }
        let data = process::bytes_below(self.directory.path());
        if data > DATA {
            leaks.push(format!("{data} bytes of data"));
        }
        leaks
    }

    /// Tells gglib to stop; what is left of it or of anything that it started.
    pub(super) async fn stop(&self) -> Vec<String> {
        let mut problems = Vec::new();
        signal(self.pid, Signal::TERM);
        let exited = timeout(SOON, async {
            loop {
                let tried = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).process.0.try_wait();
                if let Ok(Some(status)) = tried {
                    return status;
                }
                sleep(GRAIN).await;
            }
        });
        match exited.await {
            Ok(status) if status.success() => {}
            Ok(status) => problems.push(format!("gglib ended with {status}")),
            Err(_) => problems.push("gglib does not stop".to_owned()),
        }
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let left: Vec<_> = started.into_iter().filter(|pid| is_running(*pid)).collect();
        if !left.is_empty() {
            problems.push(format!("processes that are left: {left:?}"));
        }
        problems
    }

    async fn ask(&self, model: &str) -> Result<Outcome> {
        let body = json!({ "model": model, "messages": [{ "role": "user", "content": "Say hi." }], "max_tokens": 8 });
        Ok(self.client()?.ask(Asked::Plain, body).await.judge(self.bound))
    }
}

/// The configuration.
fn toml(variants: Variants) -> Result<String> {
    let mut text = format!("{SETTINGS}engine.binary = \"{}\"\n", real::engine().display());
    for ((model, variant), path) in MODELS.iter().zip(variants).zip([real::smollm2(), real::gemma3()]) {
        // One thread each: two that wait for each other by spinning come to nothing on a machine that is busy.
        writeln!(
            text,
            "[models.{model}]\npath = \"{}\"\ncontext = 2048\nargs = [\"--threads\", \"1\", \"--seed\", \"{variant}\"]",
            path.display()
        )
        .context("a string can be written")?;
    }
    Ok(text)
}
