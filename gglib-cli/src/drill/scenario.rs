//! What can be drilled.

use clap::ValueEnum;

/// Something that happens to an engine, or that a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Scenario {
    KillIdle,
    KillPrefill,
    KillStream,
    KillPlain,
    KillLoad,
    LeaveQueue,
    LeavePrefill,
    LeaveStream,
    TwoModels,
    StopIdle,
    StopStream,
    PortTaken,
    DiskFull,
}

/// What a scenario needs of its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// Nothing special: any endpoint will do.
    Usual,
    /// An engine on a TCP port, which somebody else takes first.
    TakenPort,
    /// Engines whose files cannot grow.
    FullDisk,
}

impl Scenario {
    /// All of them, in the order in which they are played.
    pub(crate) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// What the command line calls it.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What happens, for a column of the scorecard.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::KillIdle => "kill -9, idle",
            Self::KillPrefill => "kill -9, reading a prompt",
            Self::KillStream => "kill -9, in a stream",
            Self::KillPlain => "kill -9, in an answer",
            Self::KillLoad => "kill -9, while loading",
            Self::LeaveQueue => "client leaves the queue",
            Self::LeavePrefill => "client leaves a prompt",
            Self::LeaveStream => "client leaves a stream",
            Self::TwoModels => "two models, one place",
            Self::PortTaken => "port taken by another",
            Self::DiskFull => "disk full for slots",
            Self::StopIdle => "SIGSTOP, idle",
            Self::StopStream => "SIGSTOP, in a stream",
        }
    }

    /// What happens, in a sentence.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::KillIdle => "the idle engine is killed, then a request comes",
            Self::KillPrefill => "the engine is killed while it reads a long prompt",
            Self::KillStream => "the engine is killed after 8 pieces of a stream",
            Self::KillPlain => "the engine is killed in the middle of a plain answer",
            Self::KillLoad => "the engine is killed while it loads the model",
            Self::LeaveQueue => "a client hangs up while it waits for its turn",
            Self::LeavePrefill => "a client hangs up while its long prompt is read",
            Self::LeaveStream => "a client hangs up in the middle of a stream",
            Self::TwoModels => "two models are asked at once, with room for one",
            Self::PortTaken => "another program takes the port meant for the engine",
            Self::DiskFull => "slots cannot be saved when the models are swapped",
            Self::StopIdle => "the idle engine hangs (SIGSTOP), then a request comes",
            Self::StopStream => "the engine hangs (SIGSTOP) in the middle of a stream",
        }
    }

    pub(crate) const fn setup(self) -> Setup {
        match self {
            Self::PortTaken => Setup::TakenPort,
            Self::DiskFull => Setup::FullDisk,
            _ => Setup::Usual,
        }
    }
}

/// The scenarios, one a line.
pub(crate) fn list() -> String {
    let lines =
        Scenario::all().iter().map(|scenario| format!("{:<14} {}", scenario.name(), scenario.about()));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn the_list_fits_into_80_columns() {
        assert!(list().lines().all(|line| line.chars().count() <= 80));
        assert_snapshot!(list(), @"
        kill-idle      the idle engine is killed, then a request comes
        kill-prefill   the engine is killed while it reads a long prompt
        kill-stream    the engine is killed after 8 pieces of a stream
        kill-plain     the engine is killed in the middle of a plain answer
        kill-load      the engine is killed while it loads the model
        leave-queue    a client hangs up while it waits for its turn
        leave-prefill  a client hangs up while its long prompt is read
        leave-stream   a client hangs up in the middle of a stream
        two-models     two models are asked at once, with room for one
        stop-idle      the idle engine hangs (SIGSTOP), then a request comes
        stop-stream    the engine hangs (SIGSTOP) in the middle of a stream
        port-taken     another program takes the port meant for the engine
        disk-full      slots cannot be saved when the models are swapped
        ");
    }
}
