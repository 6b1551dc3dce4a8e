//! The admission queue: its rules one by one, and its invariants over random sequences of events.

use std::time::Duration;

use gglib_core::admission::Settings;

mod random;
mod rules;

const SETTINGS: Settings =
    Settings { stall: Duration::from_secs(180), max_wait: Duration::from_secs(600), queue: 8 };
