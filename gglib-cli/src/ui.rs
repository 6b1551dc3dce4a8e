//! Everything that is said to a person. Data goes to standard output, everything else to standard error.
//!
//! Where nobody listens any more, such as a closed terminal or a `tee` that has ended, what is said is lost and gglib goes
//! on: never by `println!` and the like, which panic then.

use std::error::Error;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use gglib_runtime::completion::{Notice, Observer};
use gglib_runtime::install::{Event, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::EnvFilter;

use crate::notice;

/// Between two pictures of something that moves.
const TICK: Duration = Duration::from_millis(200);

/// What `gglib` alone prints.
pub(crate) fn overview() {
    line(
        "gglib makes local models behave like a dependable API provider.\n\n  \
         gglib up          set everything up and get a first answer\n  \
         gglib serve       run the endpoint\n  \
         gglib chat        talk to a model\n  \
         gglib q \"…\"       ask one question\n  \
         gglib status      see what is loaded\n  \
         gglib top         watch it\n  \
         gglib drill       kill engines, and see that every request ends well\n  \
         gglib --help      everything else",
    );
}

/// Log lines on standard error from `level` on; `GGLIB_LOG` decides otherwise.
pub(crate) fn start_log(level: &str) {
    let filter = EnvFilter::try_from_env("GGLIB_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let ansi = io::stderr().is_terminal();
    // What cannot be logged cannot be complained of either: that would panic.
    let log = tracing_subscriber::fmt().with_writer(io::stderr).log_internal_errors(false);
    log.with_env_filter(filter).with_ansi(ansi).init();
}

pub(crate) fn line(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A text as it is, at once.
pub(crate) fn part(text: &str) {
    let _ = stream(text);
}

/// The same of an answer that comes piece by piece.
///
/// # Errors
/// When it cannot be written: a reader that has gone, such as `head`, wants no more.
pub(crate) fn stream(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

pub(crate) fn warning(text: &str) {
    note(&format!("warning: {text}"));
}

/// An error with everything that caused it.
pub(crate) fn failure(error: &dyn Error) {
    note(&format!("error: {error}"));
    let mut cause = error.source();
    while let Some(error) = cause {
        note(&format!("  because: {error}"));
        cause = error.source();
    }
}

pub(crate) fn stopping() {
    note("Stopping: requests in flight may finish. Once more to stop at once.");
}

pub(crate) fn stopped() {
    note("Stopped; no engine is left.");
}

pub(crate) fn cut_short() {
    note("Stopped at once; the engines are being killed.");
}

/// A question with yes as the default. The answer is read on a thread of its own, so that a signal is heard meanwhile.
pub(crate) async fn ask(question: &str) -> bool {
    prompt(&format!("{question} [Y/n] "));
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer).unwrap_or(0);
        (read > 0).then_some(answer)
    });
    let answer = answer.await.ok().flatten();
    answer.is_some_and(|answer| matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes"))
}

/// One finished step of `gglib up`.
pub(crate) fn step(number: u8, name: &str, text: &str) {
    line(&format!("[{number}/5] {name:<9} {text}"));
}

/// Asks for a line of input.
pub(crate) fn prompt(text: &str) {
    let mut err = io::stderr();
    let _ = write!(err, "{text}").and_then(|()| err.flush());
}

pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// Tells of the waits of a request.
pub(crate) struct RetryNotices;

impl Observer for RetryNotices {
    fn notice(&self, notice: &Notice<'_>) {
        if let Some(text) = notice::wait(notice) {
            note(&text);
        }
    }
}

/// What a drill is at: with its time on a terminal, a line per step elsewhere.
pub(crate) struct Drilling(ProgressBar);

impl Drilling {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self(bar)
    }

    pub(crate) fn at(&self, what: &str) {
        // Not before there is something to show: it would paint over a question.
        self.0.enable_steady_tick(TICK);
        self.0.reset_elapsed();
        self.0.set_message(what.to_owned());
        if self.0.is_hidden() {
            note(&format!("{what} …"));
        }
    }

    /// Says something of the result while the progress goes on below it.
    pub(crate) fn part(&self, text: &str) {
        self.0.suspend(|| part(text));
    }

    pub(crate) fn warning(&self, text: &str) {
        self.0.suspend(|| warning(text));
    }
}

impl Drop for Drilling {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The progress of an installation: a bar on a terminal, a line per step elsewhere.
pub(crate) struct Download {
    what: &'static str,
    bar: ProgressBar,
    last: std::sync::Mutex<Option<&'static str>>,
}

impl Download {
    pub(crate) fn new(what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { what, bar, last: std::sync::Mutex::new(None) }
    }

    fn phase(&self, phase: &'static str) {
        let text = format!("{phase} {}", self.what);
        self.bar.set_message(text.clone());
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *last != Some(phase) && self.bar.is_hidden() {
            note(&format!("{text} …"));
        }
        *last = Some(phase);
    }
}

impl Progress for Download {
    fn observe(&self, event: Event) {
        match event {
            Event::Waiting => self.phase("another process installs"),
            Event::Fetching { done, total, .. } => {
                self.phase("fetching");
                self.bar.set_length(total);
                self.bar.set_position(done.unwrap_or(0));
            }
            Event::Verifying { .. } => self.phase("verifying"),
            Event::Unpacking => self.phase("unpacking"),
            Event::Done => self.bar.finish_and_clear(),
        }
    }
}
