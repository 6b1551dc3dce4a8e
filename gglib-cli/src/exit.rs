//! Exit codes, documented and stable.

use std::process::ExitCode;

/// How `gglib` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything that was asked for was done.
    Success = 0,
    /// Something failed that has no code of its own.
    Failure = 1,
    /// The command line was wrong.
    Usage = 2,
    /// The configuration is wrong.
    Config = 3,
    /// Something has to be downloaded, or done to a running endpoint, and nobody agreed to it.
    Consent = 4,
    /// The engine or the model could not be found or installed.
    Install = 5,
    /// The endpoint could not listen at its address.
    Listen = 6,
    /// No endpoint answers at the address.
    Unreachable = 7,
    /// The request was given up after retries.
    GaveUp = 8,
    /// The request was answered with an error.
    Rejected = 9,
    /// A drill saw the promise broken.
    Broken = 10,
    /// Ctrl-C or SIGTERM came before the work was done.
    Interrupted = 130,
}

impl Exit {
    /// All of them, in the order of their numbers.
    pub const ALL: &[Self] = &[
        Self::Success,
        Self::Failure,
        Self::Usage,
        Self::Config,
        Self::Consent,
        Self::Install,
        Self::Listen,
        Self::Unreachable,
        Self::GaveUp,
        Self::Rejected,
        Self::Broken,
        Self::Interrupted,
    ];

    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What it means, for the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "Everything that was asked for was done.",
            Self::Failure => "Something failed that has no code of its own; the message says what.",
            Self::Usage => "The command line was wrong.",
            Self::Config => "The configuration is wrong; the message names key and place.",
            Self::Consent => {
                "Something has to be downloaded, or done to a running endpoint, and nobody agreed to it; `--yes` does."
            }
            Self::Install => "The engine or the model could not be found or installed.",
            Self::Listen => "The endpoint could not listen at its address.",
            Self::Unreachable => "No endpoint answers at the address.",
            Self::GaveUp => {
                "The request was given up after retries; the message says why and after how many."
            }
            Self::Rejected => "The request was answered with an error that a repetition would not change.",
            Self::Broken => "A drill saw the promise broken; please report it with what it printed.",
            Self::Interrupted => "Ctrl-C or SIGTERM came before the work was done.",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_stable_and_listed_in_order() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130]);
    }
}
