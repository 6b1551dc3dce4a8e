//! What the engine can compute on, besides the processor.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gglib_core::model::ModelSpec;
use tokio::process::Command;
use tokio::time::timeout;

use super::command::has_argument;

/// Longest wait for the list. Whoever does not answer by then may be no `llama-server` at all.
const ANSWER: Duration = Duration::from_millis(1500);

/// Before it loads, the engine loads the model's facts and vocabulary once more to fit what was left open to the
/// devices' memory; that is up to half of a small model's load.
const DO_NOT_FIT: (&str, &str) = ("LLAMA_ARG_FIT", "off");

/// Arguments by which an engine gets devices that it does not list by itself, or is told what to fit.
const OWN_DEVICES: [&str; 9] =
    ["--rpc", "--device", "-dev", "--fit", "-fit", "--fit-target", "-fitt", "--fit-ctx", "-fitc"];
/// The variables that stand for them.
const OWN_VARIABLES: [&str; 5] =
    ["LLAMA_ARG_RPC", "LLAMA_ARG_DEVICE", "LLAMA_ARG_FIT", "LLAMA_ARG_FIT_TARGET", "LLAMA_ARG_FIT_CTX"];

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

    /// What to tell an engine of `spec` by its environment: nothing is left to fit when there is no device, and the
    /// context is given. Where its user says something about that, by its arguments or by variables that are set,
    /// it is told nothing.
    pub(super) fn environment(
        self,
        spec: &ModelSpec,
        is_set: impl Fn(&str) -> bool,
    ) -> Option<(&'static str, &'static str)> {
        let has_own_devices = has_argument(spec, &OWN_DEVICES) || OWN_VARIABLES.into_iter().any(is_set);
        (self == Self::None && spec.context.is_some() && !has_own_devices).then_some(DO_NOT_FIT)
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
        let fitting = Some(("LLAMA_ARG_FIT", "off"));
        let nothing_set = |_: &str| false;
        let open = ModelSpec::new("/m.gguf");
        let given = ModelSpec { context: Some(4096), ..open.clone() };
        assert_eq!(Devices::None.environment(&given, nothing_set), fitting);
        assert_eq!(Devices::None.environment(&open, nothing_set), None);
        assert_eq!(Devices::Possible.environment(&given, nothing_set), None);

        for (args, expected) in [
            (&["--rpc", "10.0.0.2:50052"][..], None),
            (&["--rpc=10.0.0.2:50052"], None),
            (&["-dev", "CUDA0"], None),
            (&["--threads", "1", "--device", "none"], None),
            (&["--fit", "on"], None),
            (&["-fitt", "512"], None),
            (&["--threads", "1", "--flash-attn", "on"], fitting),
            (&["--alias", "fit"], fitting),
        ] {
            let args = args.iter().map(ToString::to_string).collect();
            let spec = ModelSpec { args, ..given.clone() };
            assert_eq!(Devices::None.environment(&spec, nothing_set), expected, "{:?}", spec.args);
        }
        for (variable, expected) in [
            ("LLAMA_ARG_FIT", None),
            ("LLAMA_ARG_RPC", None),
            ("LLAMA_ARG_DEVICE", None),
            ("LLAMA_ARG_FIT_TARGET", None),
            ("LLAMA_ARG_THREADS", fitting),
        ] {
            let environment = Devices::None.environment(&given, |name| name == variable);
            assert_eq!(environment, expected, "{variable}");
        }
    }
}
