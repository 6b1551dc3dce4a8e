//! One launch of the fake engine: its script, its log, its life and death.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    process::{self, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use gglib_testkit::{Death, End, Entry, Launch, Load, Log, Reply, Script};
use rustix::process::{Signal, getpid, kill_process};
use tokio::{
    signal::unix::Signal as Signals,
    sync::{Semaphore, watch},
    time,
};

use crate::{args::Args, http::Request, slots::Slots};

pub(crate) struct Engine {
    pub(crate) args: Args,
    pub(crate) launch: Launch,
    /// Which launch this is, from 1.
    number: usize,
    log: Option<File>,
    loaded: AtomicBool,
    requests: AtomicUsize,
    replies: AtomicUsize,
    health_checks: AtomicUsize,
    dropped_one: AtomicBool,
    activity: watch::Sender<Activity>,
    terminating: watch::Sender<bool>,
    pub(crate) slots: Semaphore,
    pub(crate) saved_slots: Option<Slots>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Activity {
    in_flight: usize,
    /// Grows with every start, so that a short request between two looks is seen.
    started: usize,
}

/// A request in flight, until dropped.
pub(crate) struct InFlight<'a>(&'a Engine);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.activity.send_modify(|activity| activity.in_flight -= 1);
    }
}

impl Engine {
    /// Reads the script, finds out which launch this is, and does what comes before listening.
    pub(crate) fn launch(args: Args) -> io::Result<Self> {
        let script = match &args.script {
            Some(path) => serde_json::from_slice(&fs::read(path)?)?,
            None => Script::default(),
        };
        let mut number = 1;
        let mut begin = |path: &Path| {
            Log::begin(path, |launch| {
                number = launch;
                Entry::Launched { launch, pid: process::id(), args: args.all.clone() }
            })
        };
        let log = args.script.as_deref().map(|script| begin(&Log::beside(script))).transpose()?;
        let launch = nth(&script.launches, number).unwrap_or_default();
        let engine = Self {
            slots: Semaphore::new(args.parallel),
            saved_slots: args.slot_save_path.clone().map(|path| Slots::new(path, args.parallel)),
            args,
            launch,
            number,
            log,
            loaded: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            replies: AtomicUsize::new(0),
            health_checks: AtomicUsize::new(0),
            dropped_one: AtomicBool::new(false),
            activity: watch::Sender::default(),
            terminating: watch::Sender::default(),
        };
        engine.launch.stderr.iter().for_each(|line| say(line));
        if engine.launch.leaves_grandchild {
            // It inherits standard output and error and the process group, and is never waited for.
            Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn()?;
        }
        if engine.launch.death == Some(Death::BeforeBind) {
            engine.die();
        }
        Ok(engine)
    }

    /// Loads, then lives as long as its script lets it.
    pub(crate) async fn load(self: Arc<Self>) {
        say(&format!("I srv    load_model: loading model '{}'", self.args.model));
        if let Some(every) = self.launch.load_line_every {
            tokio::spawn(Arc::clone(&self).report_loading(every));
        }
        if let Some(Death::WhileLoading(after)) = self.launch.death {
            time::sleep(after).await;
            self.die();
        }
        match self.launch.load {
            Load::Takes(duration) => time::sleep(duration).await,
            Load::Never => return,
        }
        say("I srv  llama_server: model loaded");
        self.loaded.store(true, Ordering::SeqCst);
        self.note(|launch| Entry::Ready { launch });
        if let Some(Death::WhenIdle(after)) = self.launch.death {
            self.die_when_idle(after).await;
        }
    }

    async fn report_loading(self: Arc<Self>, every: Duration) {
        for percent in 1.. {
            time::sleep(every).await;
            if self.is_loaded() {
                return;
            }
            say(&format!("I load_tensors: {percent} %"));
        }
    }

    async fn die_when_idle(&self, after: Duration) {
        let mut activity = self.activity.subscribe();
        loop {
            let idle = activity.wait_for(|activity| activity.in_flight == 0).await.map(|idle| idle.started);
            let seen = idle.expect("the engine holds the sender");
            if time::timeout(after, activity.wait_for(|activity| activity.started != seen)).await.is_err() {
                self.die();
            }
        }
    }

    /// Resolves when SIGTERM has come and nothing is in flight any more.
    pub(crate) async fn until_terminated(self: Arc<Self>, mut terminate: Signals) {
        while terminate.recv().await.is_some() {
            self.note(|launch| Entry::Terminated { launch });
            if self.launch.ignores_sigterm {
                continue;
            }
            say("I srv    operator(): operator(): cleaning up before exit...");
            self.terminating.send_replace(true);
            let mut activity = self.activity.subscribe();
            let _idle = activity.wait_for(|activity| activity.in_flight == 0).await;
            return;
        }
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::SeqCst)
    }

    /// Resolves once SIGTERM was taken to heart.
    pub(crate) async fn terminating(&self) {
        let mut terminating = self.terminating.subscribe();
        let _ = terminating.wait_for(|terminating| *terminating).await;
    }

    /// Takes note of a `POST` and numbers it.
    pub(crate) fn requested(&self, request: &Request) -> usize {
        let Request { path, query, body, .. } = request;
        let path = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let body = String::from_utf8_lossy(body).into_owned();
        let request = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        self.note(|launch| Entry::Requested { launch, request, path, body });
        request
    }

    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.activity.send_modify(|activity| {
            activity.in_flight += 1;
            activity.started += 1;
        });
        InFlight(self)
    }

    /// What the script says about the next chat request that is in order.
    pub(crate) fn next_reply(&self) -> Reply {
        nth(&self.launch.replies, self.replies.fetch_add(1, Ordering::SeqCst) + 1).unwrap_or_default()
    }

    /// The status of this health check.
    pub(crate) fn health(&self) -> u16 {
        nth(&self.launch.health, self.health_checks.fetch_add(1, Ordering::SeqCst) + 1).unwrap_or(200)
    }

    /// Whether this is the one reused connection to drop.
    pub(crate) fn drops_reused(&self) -> bool {
        self.launch.drops_reused_connection && !self.dropped_one.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn ping_every(&self) -> Duration {
        self.launch.ping_every.unwrap_or(self.args.ping_every)
    }

    pub(crate) fn note(&self, entry: impl FnOnce(usize) -> Entry) {
        let Some(log) = &self.log else { return };
        if let Err(error) = entry(self.number).append_to(log) {
            say(&format!("E fake engine: cannot write its log: {error}"));
        }
    }

    /// Ends the process the way the script says.
    #[expect(clippy::disallowed_methods, reason = "dying without clean-up is the point")]
    pub(crate) fn die(&self) -> ! {
        match self.launch.end {
            End::Exit(code) => process::exit(code),
            End::Abort => process::abort(),
            End::Kill => {
                let _ = kill_process(getpid(), Signal::KILL);
                unreachable!("signal 9 cannot be survived")
            }
        }
    }
}

/// The nth of `items`, from 1; the last repeats.
pub(crate) fn nth<T: Clone>(items: &[T], number: usize) -> Option<T> {
    items.get(number - 1).or(items.last()).cloned()
}

/// A line on standard error. That nobody reads it any more is not our concern.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
