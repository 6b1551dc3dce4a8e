//! The picture of what jitter does to the calls of clients that contend.

use std::sync::LazyLock;

use gglib_cli::simulate::contention::{self, Settings, Strategy};
use gglib_cli::simulate::plots;

const SETTINGS: Settings = Settings { clients: 100, trials: 100, seed: 1 };

/// Those that differ in jitter alone.
const STRATEGIES: [Strategy; 4] =
    [Strategy::Exponential, Strategy::Equal, Strategy::Full, Strategy::Decorrelated];

/// Simulates and draws; once for a process, since it takes seconds without optimisation.
pub fn render() -> String {
    static PICTURE: LazyLock<String> = LazyLock::new(|| {
        let costs = STRATEGIES.map(|strategy| (strategy, contention::run(&strategy.policy(), SETTINGS)));
        plots::contention(SETTINGS, &costs).to_string()
    });
    PICTURE.clone()
}
