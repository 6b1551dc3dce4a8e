//! Arguments of `llama-server` that a model's `args` cannot have, since gglib sets them itself and counts on them.

use crate::model::{ModelSpec, option_name};

/// Where an engine listens and who may use it: one that listens elsewhere is never found. And the pings at which it
/// notices that it is to stop, or that its client has left.
const OURS: [&str; 8] = [
    "--host",
    "--port",
    "--api-key",
    "--api-key-file",
    "--api-prefix",
    "--ssl-key-file",
    "--ssl-cert-file",
    "--sse-ping-interval",
];

/// What it loads: the estimate of its memory and its saved slots belong to the file of `path`.
const PATH: [&str; 9] =
    ["-m", "--model", "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-dr", "--docker-repo"];

/// How many requests it serves at once: the queue sends it as many as `parallel`.
const PARALLEL: [&str; 2] = ["-np", "--parallel"];

/// What one request gets, as clients are told it. Without `context` the engine may be told otherwise.
const CONTEXT: [&str; 2] = ["-c", "--ctx-size"];

/// The arguments of `spec` that are reserved, each with the key of a model that is to be used instead, if there is one.
pub(super) fn reserved(spec: &ModelSpec) -> impl Iterator<Item = (&str, Option<&'static str>)> {
    spec.args.iter().filter_map(|argument| {
        let name = option_name(argument.split_once('=').map_or(argument, |(name, _)| name));
        let instead = match &*name {
            name if OURS.contains(&name) => None,
            name if PATH.contains(&name) => Some("path"),
            name if PARALLEL.contains(&name) => Some("parallel"),
            name if CONTEXT.contains(&name) && spec.context.is_some() => Some("context"),
            _ => return None,
        };
        Some((argument.as_str(), instead))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instead(context: Option<u32>, args: &[&str]) -> Vec<(String, Option<&'static str>)> {
        let args = args.iter().map(ToString::to_string).collect();
        let spec = ModelSpec { context, args, ..ModelSpec::new("m.gguf") };
        reserved(&spec).map(|(argument, instead)| (argument.to_owned(), instead)).collect()
    }

    #[test]
    fn what_gglib_counts_on_is_reserved_in_every_spelling() {
        for (argument, key) in [
            ("--port", None),
            ("--api-key=k", None),
            ("--ssl_key_file", None),
            ("--sse-ping-interval", None),
            ("-m", Some("path")),
            ("-hf", Some("path")),
            ("-np", Some("parallel")),
            ("--parallel", Some("parallel")),
        ] {
            assert_eq!(instead(None, &["--mlock", argument, "1"]), [(argument.to_owned(), key)]);
        }
        let free =
            ["--slot-save-path", "/s", "-b", "64", "--cache-ram", "9", "--no-slots", "--jinja", "-a", "x"];
        assert_eq!(instead(Some(4096), &free), []);
    }

    #[test]
    fn the_context_is_said_in_one_place() {
        for argument in ["-c", "--ctx-size", "--ctx_size"] {
            assert_eq!(instead(Some(4096), &[argument, "1"]), [(argument.to_owned(), Some("context"))]);
            assert_eq!(instead(None, &[argument, "1"]), []);
        }
    }
}
