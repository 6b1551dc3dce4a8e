//! The command line of one engine.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use gglib_core::model::{ModelName, ModelSpec};

use super::address::Address;

/// Where the engine puts saved slots. A model that has it among its own arguments does so for itself.
const SLOT_SAVE_PATH: &str = "--slot-save-path";

/// Arguments of `llama-server` for `spec` at `address`, with its slots saved in `slots`; the user's own come last
/// and so win.
pub(super) fn arguments(
    name: &ModelName,
    spec: &ModelSpec,
    address: &Address,
    slots: Option<&Path>,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: &dyn AsRef<OsStr>| args.extend([name.into(), value.as_ref().into()]);
    flag("--model", &spec.path);
    flag("--alias", &name.as_str());
    match address {
        Address::Unix(path) => flag("--host", path),
        Address::Tcp { address, .. } => {
            flag("--host", &address.ip().to_string());
            flag("--port", &address.port().to_string());
        }
    }
    if let Some(slots) = slots {
        flag(SLOT_SAVE_PATH, &slots);
    }
    args.extend(options(spec));
    args
}

/// Those of the arguments on which it depends what an engine answers: without names and addresses.
pub(super) fn options(spec: &ModelSpec) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: &dyn AsRef<OsStr>| args.extend([name.into(), value.as_ref().into()]);
    flag("--parallel", &spec.parallel.to_string());
    if let Some(context) = spec.context {
        // The engine divides its context among its slots; ours is what one request gets.
        flag("--ctx-size", &(u64::from(context) * u64::from(spec.parallel)).to_string());
    }
    // A prompt cannot be interrupted within a batch, and its progress is told per batch: with the default of
    // 2048 tokens both take tens of seconds on a slow machine.
    flag("--batch-size", &"512");
    // While a request is in flight an engine notices SIGTERM and a vanished client only at its next ping,
    // by default every 30 s.
    flag("--sse-ping-interval", &"1");
    // The engine's own default for conversations that it keeps in main memory beside its slots is 8 GiB, which no
    // estimate knows of.
    flag("--cache-ram", &"0");
    args.push("--no-webui".into());
    args.extend(spec.args.iter().map(OsString::from));
    args
}

/// Whether the model's own arguments say where slots are saved.
pub(super) fn saves_slots_itself(spec: &ModelSpec) -> bool {
    has_argument(spec, &[SLOT_SAVE_PATH])
}

/// Whether one of `names` is among the model's own arguments, with its value in the next one or after a `=`.
pub(super) fn has_argument(spec: &ModelSpec, names: &[&str]) -> bool {
    let name = |arg: &str| names.contains(&arg.split_once('=').map_or(arg, |(name, _)| name));
    spec.args.iter().any(|arg| name(arg))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &ModelSpec, address: &Address, slots: Option<&str>, expected: &str) {
        let args = arguments(&ModelName::new("m"), spec, address, slots.map(Path::new));
        let line: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(line.join(" "), expected);
    }

    #[test]
    fn context_is_per_request_and_own_arguments_come_last() {
        let spec = ModelSpec {
            context: Some(4096),
            parallel: 2,
            args: vec!["--flash-attn".to_owned(), "on".to_owned()],
            ..ModelSpec::new("/m.gguf")
        };
        check(
            &spec,
            &Address::Unix("/run/1.sock".into()),
            Some("/data/slots"),
            "--model /m.gguf --alias m --host /run/1.sock --slot-save-path /data/slots --parallel 2 --ctx-size 8192 --batch-size 512 --sse-ping-interval 1 --cache-ram 0 \
             --no-webui --flash-attn on",
        );
        let spec = ModelSpec { context: None, args: Vec::new(), ..spec };
        check(
            &spec,
            &Address::Tcp { address: "127.0.0.1:4711".parse().unwrap(), key: "k".to_owned() },
            None,
            "--model /m.gguf --alias m --host 127.0.0.1 --port 4711 --parallel 2 --batch-size 512 --sse-ping-interval 1 --cache-ram 0 --no-webui",
        );
    }
}
