//! Which settings a drill runs with that are not the shipped ones.

use gglib_core::config::{self, Config, Sources};
use humantime::format_duration;

/// The keys on which the outcome of a drill depends and that differ from their defaults: `timeouts.idle = 5s`.
pub(crate) fn changed(config: &Config) -> Vec<String> {
    let sources = Sources { file: None, env: &|_| None, flags: &[] };
    let shipped = config::load(&sources).map(|shipped| facts(&shipped)).unwrap_or_default();
    let differs = |((key, value), (_, default)): ((&str, String), (&str, String))| {
        (value != default).then(|| format!("{key} = {value} (shipped: {default})"))
    };
    facts(config).into_iter().zip(shipped).filter_map(differs).collect()
}

fn facts(config: &Config) -> Vec<(&'static str, String)> {
    let Config { engine, admission, timeouts, recovery, slots, .. } = config;
    let duration = |duration| format_duration(duration).to_string();
    vec![
        ("engine.transport", format!("{:?}", engine.transport).to_lowercase()),
        ("engine.load_stall", duration(engine.load_stall)),
        ("engine.load_limit", duration(engine.load_limit)),
        ("engine.stop_grace", duration(engine.stop_grace)),
        ("admission.stall", duration(admission.stall)),
        ("admission.max_wait", duration(admission.max_wait)),
        ("admission.queue", admission.queue.to_string()),
        ("admission.quantum", duration(admission.quantum)),
        ("timeouts.connect", duration(timeouts.connect)),
        ("timeouts.response_headers", duration(timeouts.response_headers)),
        ("timeouts.first_content", duration(timeouts.first_content)),
        ("timeouts.idle", duration(timeouts.idle)),
        ("timeouts.total", duration(timeouts.total)),
        ("timeouts.request", duration(timeouts.request)),
        ("recovery.relaunch", recovery.relaunch.to_string()),
        ("recovery.continue_streams", recovery.continue_streams.to_string()),
        ("slots.enabled", slots.enabled.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use gglib_core::config::KEYS;

    use super::*;

    fn config(text: &str) -> Config {
        let sources = Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] };
        config::load(&sources).unwrap()
    }

    #[test]
    fn what_is_as_shipped_is_not_told() {
        assert_eq!(changed(&config("[models.a]\npath = \"a.gguf\"")), [""; 0]);
        let text =
            "[timeouts]\nidle = \"5s\"\n[recovery]\ncontinue_streams = false\n[engine]\ntransport = \"tcp\"";
        let expected = [
            "engine.transport = tcp (shipped: unix)",
            "timeouts.idle = 5s (shipped: 1m)",
            "recovery.continue_streams = false (shipped: true)",
        ];
        assert_eq!(changed(&config(text)), expected);
    }

    #[test]
    fn every_key_that_is_told_is_a_key() {
        for (key, _) in facts(&config("")) {
            assert!(KEYS.iter().any(|known| known.path == key), "{key}");
        }
    }
}
