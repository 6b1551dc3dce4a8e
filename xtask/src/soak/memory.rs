//! Whether the memory of gglib stays where it is.

use std::time::Duration;

use serde_json::{Value, json};

/// What may be added between the end of the warm-up and the end of it all, in KiB.
const LIMIT: u64 = 20 * 1024;
/// Samples, one a second, whose median counts.
const WINDOW: usize = 15;

/// Samples of the memory that is its own.
pub(super) struct Memory {
    /// Allocators, pools and caches fill up first: a quarter of the time, a minute at most.
    warm_up: Duration,
    /// KiB.
    samples: Vec<u64>,
    first: Duration,
    last: Duration,
}

impl Memory {
    pub(super) fn new(whole: Duration) -> Self {
        let warm_up = (whole / 4).min(Duration::from_secs(60));
        Self { warm_up, samples: Vec::new(), first: whole, last: Duration::ZERO }
    }

    /// Takes what it has `at` this time, in KiB.
    pub(super) fn sample(&mut self, at: Duration, kib: Option<u64>) {
        if let Some(kib) = kib.filter(|_| at >= self.warm_up) {
            self.samples.push(kib);
            self.first = self.first.min(at);
            self.last = at;
        }
    }

    /// The latest sample in a line.
    pub(super) fn line(&self) -> String {
        self.samples.last().map_or_else(|| "warming up".to_owned(), |kib| mib(*kib))
    }

    /// What went wrong, if anything did.
    pub(super) fn growth_above_limit(&self) -> Option<String> {
        match self.ends() {
            None => Some("the memory was not measured".to_owned()),
            Some((before, after)) if after > before + LIMIT => {
                Some(format!("memory grew from {} to {}", mib(before), mib(after)))
            }
            Some(_) => None,
        }
    }

    /// From where to where it went.
    pub(super) fn verdict(&self) -> String {
        let Some((before, after)) = self.ends() else { return "not measured".to_owned() };
        let seconds = self.last.saturating_sub(self.first).as_secs();
        format!(
            "{} after the warm-up, {} at the end, {seconds} s later (limit: {} more)",
            mib(before),
            mib(after),
            mib(LIMIT)
        )
    }

    pub(super) fn to_json(&self) -> Value {
        let ends = self.ends();
        json!({
            "before_kib": ends.map(|(before, _)| before),
            "after_kib": ends.map(|(_, after)| after),
            "seconds": self.last.saturating_sub(self.first).as_secs(),
            "limit_kib": LIMIT,
        })
    }

    /// Medians of the first and of the last samples.
    fn ends(&self) -> Option<(u64, u64)> {
        let window = WINDOW.min(self.samples.len());
        let last = &self.samples[self.samples.len() - window..];
        Some((median(&self.samples[..window])?, median(last)?))
    }
}

fn median(samples: &[u64]) -> Option<u64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

fn mib(kib: u64) -> String {
    format!("{}.{} MiB", kib / 1024, kib % 1024 * 10 / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(samples: impl IntoIterator<Item = u64>) -> Memory {
        let mut memory = Memory::new(Duration::from_secs(100));
        for (second, mib) in samples.into_iter().enumerate() {
            memory.sample(Duration::from_secs(second as u64), Some(mib * 1024));
        }
        memory
    }

    #[test]
    fn only_what_comes_after_the_warm_up_counts_and_one_peak_does_not() {
        let flat =
            (0..100).map(|second| if second < 25 { second } else { 30 + u64::from(second == 99) * 500 });
        assert_eq!(memory(flat).growth_above_limit(), None);
    }

    #[test]
    fn steady_growth_is_found() {
        assert_eq!(
            memory(20..120).growth_above_limit().as_deref(),
            Some("memory grew from 52.0 MiB to 112.0 MiB")
        );
        assert!(memory([]).growth_above_limit().is_some());
    }
}
