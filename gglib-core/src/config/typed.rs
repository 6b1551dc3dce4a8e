//! From the merged values to the typed configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;

use super::error::ConfigError;
use super::key::KEYS;
use super::layers::{Given, Sources, Values};
use super::reserved::reserved;
use super::value::ABOVE_ZERO;
use super::{
    Admission, Budget, Config, Engine, Memory, Recovery, Server, Slots, Timeouts, Transport, retry, value,
};
use crate::model::{ModelName, ModelSpec};

pub(super) fn build(values: &Values, sources: &Sources<'_>, errors: &mut Vec<ConfigError>) -> Config {
    let mut read = Reader { values, errors };
    let (retry, warnings) = retry::read(&mut read, sources.env);
    Config {
        server: Server {
            listen: read.parsed(
                "server.listen",
                "an address and a port such as \"127.0.0.1:8080\"",
                |text| text.parse().ok(),
            ),
            body_limit: read.parsed("server.body_limit", "a size", value::size),
        },
        engine: Engine {
            binary: read.optional_path("engine.binary", sources),
            transport: read.parsed("engine.transport", "\"unix\" or \"tcp\"", |text| match text {
                "unix" => Some(Transport::Unix),
                "tcp" => Some(Transport::Tcp),
                _ => None,
            }),
            load_stall: read.duration("engine.load_stall"),
            load_limit: read.duration("engine.load_limit"),
            stop_grace: read.duration("engine.stop_grace"),
            drain: read.duration("engine.drain"),
        },
        admission: Admission {
            stall: read.duration("admission.stall"),
            max_wait: read.duration("admission.max_wait"),
            queue: read.positive("admission.queue") as usize,
            quantum: read.duration("admission.quantum"),
        },
        memory: Memory {
            budget: read.parsed("memory.budget", "\"auto\" or a size such as \"12GiB\"", |text| match text {
                "auto" => Some(Budget::Auto),
                size => value::size(size).filter(|bytes| *bytes > 0).map(Budget::Bytes),
            }),
            max_resident: read.positive("memory.max_resident") as usize,
            growth: read.parsed("memory.growth", "a size", value::size),
        },
        timeouts: Timeouts {
            connect: read.duration("timeouts.connect"),
            response_headers: read.duration("timeouts.response_headers"),
            first_content: read.duration("timeouts.first_content"),
            idle: read.duration("timeouts.idle"),
            total: read.duration("timeouts.total"),
            request: read.duration("timeouts.request"),
        },
        recovery: Recovery {
            relaunch: read.value("recovery.relaunch").value.as_bool().unwrap_or(true),
            continue_streams: read.value("recovery.continue_streams").value.as_bool().unwrap_or(true),
            repair: read.value("recovery.repair").value.as_bool().unwrap_or(true),
            repair_timeout: read.duration("recovery.repair_timeout"),
        },
        slots: Slots {
            enabled: read.value("slots.enabled").value.as_bool().unwrap_or(true),
            disk_budget: read.parsed("slots.disk_budget", "a size", value::size),
        },
        retry,
        warnings,
        models: models(&mut read, sources),
    }
}

pub(super) struct Reader<'a> {
    values: &'a Values,
    errors: &'a mut Vec<ConfigError>,
}

impl Reader<'_> {
    /// The given value of a key, or its default.
    fn value(&self, path: &str) -> Given {
        let segments: Vec<String> = path.split('.').map(str::to_owned).collect();
        self.values.get(&segments).cloned().unwrap_or_else(|| default(path))
    }

    /// The value of `key` below the section of this path, if it is given and `parse` understands it; if it does not,
    /// that is noted.
    pub(super) fn given<T>(
        &mut self,
        section: &[&str],
        key: &str,
        expected: &str,
        parse: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let path: Vec<String> = section.iter().chain([&key]).map(|segment| (*segment).to_owned()).collect();
        let given = self.values.get(&path)?;
        let parsed = parse(&given.value);
        if parsed.is_none() {
            self.reject(&path.join("."), given, expected);
        }
        parsed
    }

    /// The names of the models that anything is said of, in order.
    pub(super) fn models(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.values.keys().filter(|path| path[0] == "models").map(|path| path[1].clone()).collect();
        names.dedup();
        names
    }

    /// A text that `parse` understands; an error is noted and the default stands in.
    fn parsed<T>(&mut self, path: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> T {
        let given = self.value(path);
        let text = given.value.as_str().unwrap_or_default();
        parse(text).unwrap_or_else(|| {
            self.reject(path, &given, expected);
            let default = default(path);
            parse(default.value.as_str().unwrap_or_default())
                .expect("the defaults in KEYS are valid; a test holds them")
        })
    }

    /// A duration above zero.
    fn duration(&mut self, path: &str) -> Duration {
        self.parsed(path, ABOVE_ZERO, value::above_zero)
    }

    /// A whole number of at least 1.
    fn positive(&mut self, path: &str) -> u32 {
        let given = self.value(path);
        let number = given.value.as_integer().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        if number == 0 {
            self.reject(path, &given, "a whole number of at least 1");
        }
        number.max(1)
    }

    fn optional_path(&mut self, path: &str, sources: &Sources<'_>) -> Option<PathBuf> {
        let given = self.value(path);
        let text = given.value.as_str().unwrap_or_default();
        (text != "auto").then(|| absolute(text, sources))
    }

    fn reject(&mut self, path: &str, given: &Given, expected: &str) {
        self.errors.push(ConfigError::Value {
            key: path.to_owned(),
            origin: given.origin.clone(),
            expected: expected.to_owned(),
            found: given.value.to_string(),
        });
    }
}

fn models(read: &mut Reader<'_>, sources: &Sources<'_>) -> BTreeMap<ModelName, ModelSpec> {
    let mut models = BTreeMap::new();
    for name in read.models() {
        let at = |key: &str| vec!["models".to_owned(), name.clone(), key.to_owned()];
        let values = read.values;
        let text = |key: &str| values.get(&at(key)).and_then(|given| given.value.as_str());
        let list = |key: &str| strings(values.get(&at(key)));
        let number = |key: &str| values.get(&at(key)).and_then(|given| given.value.as_integer());
        let flag = |key: &str| values.get(&at(key)).and_then(|given| given.value.as_bool()).unwrap_or(false);
        let Some(path) = text("path").filter(|path| !path.is_empty()) else {
            read.errors.push(ConfigError::MissingPath { model: name });
            continue;
        };
        let spec = ModelSpec {
            path: absolute(path, sources),
            aliases: list("aliases"),
            context: number("context").and_then(|tokens| u32::try_from(tokens).ok()),
            parallel: number("parallel").and_then(|slots| u32::try_from(slots).ok()).unwrap_or(1),
            args: list("args"),
            ttl: text("ttl").and_then(value::above_zero),
            pin: flag("pin"),
            preload: flag("preload"),
            group: text("group").map(str::to_owned).filter(|group| !group.is_empty()),
        };
        if text("ttl").is_some() && spec.ttl.is_none() {
            let given = &values[&at("ttl")];
            read.reject(&at("ttl").join("."), given, ABOVE_ZERO);
        }
        for key in ["context", "parallel"] {
            if number(key) == Some(0) {
                let given = &values[&at(key)];
                read.reject(&at(key).join("."), given, "a whole number of at least 1");
            }
        }
        for (argument, instead) in reserved(&spec) {
            read.errors.push(ConfigError::ReservedArgument {
                key: at("args").join("."),
                origin: values[&at("args")].origin.clone(),
                argument: argument.to_owned(),
                instead: instead.map(|key| at(key).join(".")),
            });
        }
        models.insert(ModelName::new(name), spec);
    }
    check_names(&models, read.errors);
    models
}

/// Every name and alias must mean one model.
fn check_names(models: &BTreeMap<ModelName, ModelSpec>, errors: &mut Vec<ConfigError>) {
    let mut owner: BTreeMap<&str, &ModelName> = models.keys().map(|name| (name.as_str(), name)).collect();
    for (name, spec) in models {
        for alias in &spec.aliases {
            match owner.insert(alias, name) {
                Some(other) if other != name => errors.push(ConfigError::AmbiguousName {
                    name: alias.clone(),
                    first: other.to_string(),
                    second: name.to_string(),
                }),
                _ => {}
            }
        }
    }
}

/// `~/` is `$HOME`; a relative path starts where the file lies.
fn absolute(text: &str, sources: &Sources<'_>) -> PathBuf {
    if let (Some(rest), Some(home)) = (text.strip_prefix("~/"), (sources.env)("HOME")) {
        return Path::new(&home).join(rest);
    }
    let base = sources.file.and_then(|(file, _)| file.parent()).unwrap_or(Path::new(""));
    base.join(text)
}

fn strings(given: Option<&Given>) -> Vec<String> {
    let items = given.and_then(|given| given.value.as_array());
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn default(path: &str) -> Given {
    let key =
        KEYS.iter().find(|key| key.path == path).expect("only keys of KEYS are read; a test reads them all");
    let table: toml::Table = format!("value = {}", key.default)
        .parse()
        .expect("the defaults in KEYS are valid; a test holds them");
    Given { value: table["value"].clone(), origin: "the defaults".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{key, load};
    use crate::retry::{DEADLINE_ENV_VAR, MAX_ATTEMPTS_ENV_VAR, RetryPolicy, RetryRules, preset};

    fn from_file(text: &str) -> Result<Config, String> {
        from(text, &[], &[])
    }

    fn from(text: &str, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Config, String> {
        let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let flags: Vec<_> = flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        load(&Sources { file: Some((Path::new("/etc/gglib/gglib.toml"), text)), env: &env, flags: &flags })
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn an_empty_file_is_the_documented_defaults() {
        let config = from_file("").unwrap();
        assert_eq!(config.server, Server { listen: "127.0.0.1:8080".parse().unwrap(), body_limit: 64 << 20 });
        assert_eq!(config.engine.binary, None);
        assert_eq!(config.engine.transport, Transport::Unix);
        assert_eq!(config.admission.queue, 256);
        assert_eq!(config.slots, Slots { enabled: true, disk_budget: 4 << 30 });
        assert_eq!(config.timeouts.request, Duration::from_secs(45 * 60));
        assert_eq!(config.retry.rules, preset::gglib());
        assert!(config.models.is_empty() && config.warnings.is_empty());
        assert_eq!(config.retry_lints(), []);
    }

    #[test]
    fn every_default_stands_in_a_file_as_it_is_written_in_the_table() {
        let text: Vec<String> = KEYS
            .iter()
            .filter(|key| !key.default.is_empty() && !key.is_pattern())
            .map(|key| format!("{} = {}", key.path, key.default))
            .collect();
        let config = from_file(&text.join("\n")).unwrap();
        assert_eq!(config.timeouts, from_file("").unwrap().timeouts);
        assert_eq!(config.retry.rules, preset::gglib());
    }

    #[test]
    fn flag_over_environment_over_file_over_default() {
        let file = "[server]\nlisten = \"127.0.0.1:1\"";
        let env = [("GGLIB_SERVER_LISTEN", "127.0.0.1:2")];
        let port = |config: Result<Config, String>| config.unwrap().server.listen.port();
        assert_eq!(port(from(file, &[], &[])), 1);
        assert_eq!(port(from(file, &env, &[])), 2);
        assert_eq!(port(from(file, &env, &[("server.listen", "127.0.0.1:3")])), 3);
    }

    #[test]
    fn a_model_takes_all_its_keys_and_paths_are_resolved() {
        let text = "
            [models.\"qwen3.5\"]
            path = \"q.gguf\"
            [models.smollm2]
            path = \"~/m/s.gguf\"
            aliases = [\"small\"]
            context = 4096
            parallel = 2
            args = [\"--flash-attn\", \"on\"]
            ttl = \"15m\"
            pin = true
            preload = true
            group = \"large\"";
        let config = from(text, &[("HOME", "/home/a")], &[]).unwrap();
        assert_eq!(config.models["qwen3.5"].path, Path::new("/etc/gglib/q.gguf"));
        assert_eq!(
            config.models["smollm2"],
            ModelSpec {
                path: "/home/a/m/s.gguf".into(),
                aliases: vec!["small".to_owned()],
                context: Some(4096),
                parallel: 2,
                args: vec!["--flash-attn".to_owned(), "on".to_owned()],
                ttl: Some(Duration::from_secs(900)),
                pin: true,
                preload: true,
                group: Some("large".to_owned()),
            }
        );
    }

    #[test]
    fn every_problem_is_named_with_its_remedy() {
        let check = |text: &str, expected: &str| assert_eq!(from_file(text).unwrap_err(), expected);
        let file = "/etc/gglib/gglib.toml";
        check("[sever]\nx = 1", &format!("unknown key `sever` in {file}; did you mean `server`?"));
        check(
            "[models.a]\npath = \"a\"\nctx = 1",
            &format!("unknown key `models.a.ctx` in {file}; did you mean `models.a.context`?"),
        );
        check(
            "[timeouts]\nidle = 30",
            &format!("`timeouts.idle` in {file}: expected a duration such as \"30s\" or \"10m\", found 30"),
        );
        check(
            "[timeouts]\nidle = \"0s\"",
            &format!(
                "`timeouts.idle` in {file}: expected a duration above zero and of at most 100 years, such as \"30s\", found \"0s\""
            ),
        );
        check("server = 3", &format!("`server` in {file}: expected a table, found 3"));
        check(
            "[models.a]\n",
            "model `a` has no `path`; add `path = \"/where/it/is.gguf\"` below `[models.a]`",
        );
        check(
            "[models.a]\npath = \"${env:MODELS}/a\"",
            &format!("`models.a.path` in {file} refers to the environment variable MODELS, which is not set"),
        );
        check(
            "[models.a]\npath = \"a\"\nparallel = 0",
            &format!("`models.a.parallel` in {file}: expected a whole number of at least 1, found 0"),
        );
        check(
            "[models.a]\npath = \"a\"\nargs = [\"--port\", \"1\"]",
            &format!("`models.a.args` in {file}: --port is gglib's own to set; remove it from the list"),
        );
        check(
            "[models.a]\npath = \"a\"\nargs = [\"-np\", \"4\"]",
            &format!("`models.a.args` in {file}: -np is gglib's own to set; use `models.a.parallel` instead"),
        );
        check(
            "[models.a]\npath = \"a\"\naliases = [\"b\"]\n[models.b]\npath = \"b\"",
            "the name `b` means both `b` and `a`; remove one of the aliases",
        );
        assert!(from_file("[server").unwrap_err().starts_with(&format!("{file} is not valid TOML: ")));
    }

    #[test]
    fn no_duration_is_beyond_what_clocks_can_add() {
        let expected = "expected a duration above zero and of at most 100 years, such as \"30s\", found";
        let durations = KEYS.iter().filter(|key| key.kind == key::Kind::Duration);
        for key in durations {
            let path = key.path.replace('*', "m").replace("CLASS", "timeout");
            let (section, name) = path.rsplit_once('.').unwrap();
            let with =
                |value: &str| from_file(&format!("models.m.path = \"m\"\n{section}.{name} = \"{value}\""));
            for absurd in ["500000000000y", "101y"] {
                let error = with(absurd).unwrap_err();
                assert_eq!(error, format!("`{path}` in /etc/gglib/gglib.toml: {expected} \"{absurd}\""));
            }
            assert!(with("100y").is_ok(), "{path}: {}", with("100y").unwrap_err());
        }
    }

    #[test]
    fn several_problems_are_all_told() {
        let errors = from_file("[engine]\ntransport = \"pipe\"\n[admission]\nqueue = 0").unwrap_err();
        assert_eq!(errors.lines().count(), 2, "{errors}");
    }

    #[test]
    fn a_bad_variable_is_named_as_the_origin() {
        assert_eq!(
            from("", &[("GGLIB_ADMISSION_QUEUE", "many")], &[]).unwrap_err(),
            "`admission.queue` in GGLIB_ADMISSION_QUEUE: expected a whole number, found \"many\""
        );
    }

    #[test]
    fn the_retry_variables_are_lenient_and_win_over_the_file() {
        let file = "[retry]\nmax_attempts = 7\ntotal_deadline = \"40s\"";
        let config = from(file, &[(MAX_ATTEMPTS_ENV_VAR, "2"), (DEADLINE_ENV_VAR, "soon")], &[]).unwrap();
        assert_eq!(config.retry.rules.policy.max_attempts, 2);
        assert_eq!(config.retry.rules.policy.total_deadline, Duration::from_secs(40));
        assert_eq!(config.warnings.len(), 1);
    }

    #[test]
    fn a_shortened_deadline_pulls_the_backoffs_along() {
        let config = from_file("[retry]\ntotal_deadline = \"8s\"").unwrap();
        assert_eq!(config.retry.rules.policy.max_backoff, Duration::from_secs(4));
        assert_eq!(config.retry.rules.policy.initial_backoff, Duration::from_secs(1));
    }

    #[test]
    fn a_preset_is_the_base_of_the_numbers_that_are_set() {
        for rules in preset::all() {
            let config = from_file(&format!("[retry]\npreset = \"{}\"", rules.name)).unwrap();
            assert_eq!(config.retry.rules, rules);
            let key = key::find(&["retry".to_owned(), "preset".to_owned()]).unwrap();
            assert!(key.doc.contains(&format!("`{}`", rules.name)), "{} is not in the reference", rules.name);
        }
        let text = "[retry]\npreset = \"openai_sdk\"\nmax_attempts = 7\ninitial_backoff = \"2s\"";
        let config = from(text, &[(DEADLINE_ENV_VAR, "90")], &[]).unwrap();
        let expected = RetryPolicy {
            max_attempts: 7,
            initial_backoff: Duration::from_secs(2),
            total_deadline: Duration::from_secs(90),
            ..preset::openai_sdk().policy
        };
        assert_eq!(config.retry.rules, RetryRules { policy: expected, ..preset::openai_sdk() });
        let config = from("", &[("GGLIB_RETRY_PRESET", "linear")], &[]).unwrap();
        assert_eq!(config.retry.rules, preset::linear());
        assert_eq!(
            from_file("[retry]\npreset = \"openai\"").unwrap_err(),
            "`retry.preset` in /etc/gglib/gglib.toml: expected one of \"gglib\", \"fixed\", \"linear\", \
             \"exponential\", \"exponential_jitter\", \"decorrelated_jitter\", \"llm_conductor\", \
             \"openai_sdk\", found \"openai\""
        );
    }

    #[test]
    fn doubtful_numbers_are_found_and_a_long_queue_is_none() {
        let lints = |text: &str| -> Vec<_> {
            from_file(text).unwrap().retry_lints().iter().map(|found| found.lint.name()).collect()
        };
        assert_eq!(lints("[admission]\nstall = \"20m\"\nmax_wait = \"1h\""), [""; 0]);
        assert_eq!(lints("[retry]\nmax_attempts = 1\ninitial_backoff = \"1h\""), [""; 0]);
        assert_eq!(lints("[retry]\ninitial_backoff = \"20s\""), ["cap-below-base"]);
        assert_eq!(lints("[retry]\npreset = \"fixed\""), ["no-deadline", "no-jitter"]);
        // The endpoint's `Retry-After` has whole seconds.
        let hasty = "[retry]\ninitial_backoff = \"100ms\"\nmax_backoff = \"500ms\"";
        assert_eq!(lints(hasty), ["hint-limit-below-server-hint"]);
    }

    #[test]
    fn find_covers_every_key_of_the_table() {
        for key in KEYS {
            let path = key.path.replace('*', "m").replace("CLASS", "timeout");
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            assert_eq!(key::find(&path).map(|found| found.path), Some(key.path));
        }
    }
}
