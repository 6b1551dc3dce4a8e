//! A configuration that changes while the endpoint runs: noticed, left to settle, and applied.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gglib_core::config::Config;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::args::Common;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::settings;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How long the file must stay as it is before a change counts. Editors save in several steps, and people several
/// times.
const SETTLE: Duration = Duration::from_secs(2);

/// The configuration's source, watched.
pub(crate) struct Reload {
    path: PathBuf,
    flags: Vec<(&'static str, String)>,
    /// Whether there ever was a file.
    existed: bool,
    settling: Settling<Option<Stamp>>,
    looks: Interval,
    hangup: Signal,
}

impl Reload {
    /// Watches the file of `common` from now on, and listens to SIGHUP, whose default reaction is to die. To be called
    /// before the configuration is read, so that no change is missed.
    pub(crate) fn watch(common: &Common, flags: &[(&'static str, String)]) -> Result<Self, CliError> {
        let path = settings::path(common)?;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            settling: Settling::at(Stamp::of(&path)),
            existed: path.exists(),
            path,
            flags: flags.to_vec(),
            looks,
            hangup: signal(SignalKind::hangup()).map_err(CliError::Runtime)?,
        })
    }

    /// Resolves when the configuration is to be read again: the file has changed and settled, or SIGHUP came. Nothing is
    /// lost when it is dropped before that.
    pub(crate) async fn requested(&mut self) {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => {
                    // Whatever the file is now is read now.
                    self.settling = Settling::at(Stamp::of(&self.path));
                    return;
                }
                now = self.looks.tick() => {
                    if self.settling.observe(Stamp::of(&self.path), now) {
                        return;
                    }
                }
            }
        }
    }

    /// Reads the configuration and has `endpoint` take it over, or keep the old one and say why.
    pub(crate) async fn apply(&mut self, endpoint: &mut Endpoint) {
        match self.read() {
            Ok(config) => {
                settings::warn_of_lints(&config);
                let after_restart = endpoint.configure(&config).await;
                tracing::info!(path = %self.path.display(), models = config.models.len(), "configuration reloaded");
                for key in after_restart {
                    tracing::warn!(key, "the change of this key takes effect after a restart");
                }
            }
            Err(error) => {
                tracing::error!(%error, "the configuration could not be reloaded; the old one stays");
                endpoint.configuration_failed(&error);
            }
        }
    }

    fn read(&mut self) -> Result<Config, CliError> {
        let text = settings::read(&self.path)?;
        if text.is_none() && self.existed {
            // Not an empty configuration: that would take every model away.
            return Err(CliError::NoConfig(self.path.clone()));
        }
        self.existed = text.is_some();
        settings::load_from(&self.path, text.as_deref(), &self.flags)
    }
}

/// What a change of a file shows in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    length: u64,
}

impl Stamp {
    fn of(path: &PathBuf) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), length: metadata.len() })
    }
}

/// Tells when something that is looked at has changed and stayed so for [`SETTLE`].
struct Settling<S> {
    seen: S,
    /// When it was first seen as it is now, if that has not been told yet.
    since: Option<Instant>,
}

impl<S: PartialEq> Settling<S> {
    fn at(seen: S) -> Self {
        Self { seen, since: None }
    }

    fn observe(&mut self, seen: S, now: Instant) -> bool {
        if seen != self.seen {
            self.seen = seen;
            self.since = Some(now);
        }
        let has_settled = self.since.is_some_and(|since| now - since >= SETTLE);
        if has_settled {
            self.since = None;
        }
        has_settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_changes_in_two_seconds_are_told_once_when_they_have_settled() {
        let start = Instant::now();
        let saved = [0, 1000, 2000].map(Duration::from_millis);
        let mut settling = Settling::at(0);
        let told: Vec<_> = (0..40)
            .map(|look| LOOK * look + Duration::from_millis(300))
            .filter(|now| {
                let version = saved.iter().filter(|save| *save <= now).count();
                settling.observe(version, start + *now)
            })
            .collect();
        assert_eq!(told, [Duration::from_millis(2300) + SETTLE]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_as_it_is_is_never_told_of_and_a_second_change_is() {
        let start = Instant::now();
        let mut settling = Settling::at("a");
        assert!((0..20).all(|look| !settling.observe("a", start + LOOK * look)));
        let mut told = |seen, from: u32| {
            (from..from + 10).filter(|look| settling.observe(seen, start + LOOK * *look)).count()
        };
        assert_eq!((told("b", 20), told("a", 30)), (1, 1));
    }
}
