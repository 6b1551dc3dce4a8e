//! What the engine can compute on, besides the processor.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gglib_core::model::ModelSpec;
use tokio::process::Command;
use tokio::time::timeout;

/// Longest wait for the list. Whoever does not answer by then may be no `llama-server` at all.
const ANSWER: Duration = Duration::from_millis(1500);

/// Before it loads, the engine loads the model's facts and vocabulary once more to fit what was left open to the
/// devices' memory; that is up to half of a small model's load.
const DO_NOT_FIT: (&str, &str) = ("LLAMA_ARG_FIT", "off");

/// Whether the engine has devices of its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Devices {
    /// It says that it has none.
    None,
    /// It has some, or does not say.
    Possible,
}

impl Devices {
    /// Asks `binary`, which prints them and ends.
    pub(super) async fn ask(binary: &Path) -> Self {
        let mut command = Command::new(binary);
        command.arg("--list-devices").stdin(Stdio::null()).kill_on_drop(true);
        match timeout(ANSWER, command.output()).await {
            Ok(Ok(output)) if output.status.success() => {
                let text = [output.stdout, output.stderr].concat();
                Self::listed(&String::from_utf8_lossy(&text))
            }
            _ => Self::Possible,
        }
    }

    fn listed(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim);
        let after_title = lines.by_ref().skip_while(|line| *line != "Available devices:").nth(1);
        if after_title == Some("(none)") { Self::None } else { Self::Possible }
    }

    /// What to tell an engine of `spec` by its environment, which its own arguments overrule: nothing is left to
    /// fit when there is no device, and the context is given.
    pub(super) fn environment(self, spec: &ModelSpec) -> Option<(&'static str, &'static str)> {
        (self == Self::None && spec.context.is_some()).then_some(DO_NOT_FIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_is_what_the_engine_calls_none() {
        for (text, expected) in [
            ("Available devices:\n  (none)\n", Devices::None),
            ("ggml: loaded\nAvailable devices:\n  (none)\n", Devices::None),
            (
                "Available devices:\n  CUDA0: NVIDIA GeForce RTX 4090 (24080 MiB, 23676 MiB free)\n",
                Devices::Possible,
            ),
            ("error: invalid argument: --list-devices\n(none)\n", Devices::Possible),
            ("Available devices:", Devices::Possible),
            ("", Devices::Possible),
        ] {
            assert_eq!(Devices::listed(text), expected, "{text}");
        }
    }

    #[test]
    fn fitting_is_left_out_only_where_nothing_can_be_fitted() {
        let open = ModelSpec::new("/m.gguf");
        let given = ModelSpec { context: Some(4096), ..open.clone() };
        assert_eq!(Devices::None.environment(&given), Some(("LLAMA_ARG_FIT", "off")));
        assert_eq!(Devices::None.environment(&open), None);
        assert_eq!(Devices::Possible.environment(&given), None);
    }
}
