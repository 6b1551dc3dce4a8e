//! The page on the configuration: every key and every environment variable.

use gglib_core::config::{EnvVar, KEYS, Key, Kind};
use gglib_runtime::engine::LLAMA_SERVER_ENV_VAR;
use gglib_runtime::install::DATA_DIR_ENV_VAR;

use super::markdown::{self, Page, code};

const INTRO: &str = "\
gglib reads one file, `gglib.toml`: `~/.config/gglib/gglib.toml` (or below `$XDG_CONFIG_HOME`), or the one that
`--config FILE` or `GGLIB_CONFIG` names. `gglib config path` prints where it is, `gglib config check` says whether
it is valid, `gglib config init` writes one with every key commented out. Every key is optional except a model's
`path`.

One value wins per key:

1. a flag: `--listen` of `serve` and `--port` of `up` for `server.listen`;
2. the environment variable of the key;
3. the file;
4. the default.

A key that does not exist is an error that names it and the nearest one that does. A value of the wrong kind is an
error too, in the file as in the environment; only the two variables of the retry policy are read leniently: an
unreadable one is left aside with a warning. In the file, `${env:NAME}` inside a text stands for an environment
variable. A relative path starts at the file's own directory.";

/// Renders every key.
pub fn render() -> String {
    let mut page = Page::new("Configuration", "gglib-core/src/config/key.rs");
    page.add(INTRO);
    for keys in KEYS.chunk_by(|one, next| section(one) == section(next)) {
        page.add(format!("## `[{}]`", section(&keys[0]).replace('*', "NAME")));
        let rows = keys.iter().map(|key| {
            let name = code(key.path.rsplit('.').next().unwrap_or(key.path));
            [name, kind(key.kind), code(key.default), variable(key), key.doc.to_owned()]
        });
        page.add(markdown::table(["key", "kind", "default", "environment", "meaning"], rows));
    }
    page.add("## Kinds");
    page.add(kinds());
    page.add("## Further environment variables");
    page.add(variables());
    page.finish()
}

fn section(key: &Key) -> &'static str {
    key.path.rsplit_once('.').map_or("", |(section, _)| section)
}

fn kind(kind: Kind) -> String {
    format!("{kind:?}").to_lowercase()
}

fn variable(key: &Key) -> String {
    key.env().map_or_else(String::new, |variable| code(variable.name()))
}

fn kinds() -> String {
    let mut seen: Vec<Kind> = Vec::new();
    for key in KEYS {
        if !seen.contains(&key.kind) {
            seen.push(key.kind);
        }
    }
    let rows = seen.into_iter().map(|of| [kind(of), of.expected().to_owned()]);
    markdown::table(["kind", "what it looks like"], rows)
}

/// Variables that are no keys, and keys whose variable is read in its own way.
fn variables() -> String {
    let lenient = KEYS.iter().filter_map(|key| match key.env() {
        Some(EnvVar::Lenient(name)) => {
            let unit = if key.kind == Kind::Duration { ", in seconds, such as `30`" } else { "" };
            Some([
                code(name),
                format!("`{}`{unit}; unreadable values are left aside with a warning.", key.path),
            ])
        }
        _ => None,
    });
    let others = [
        ("GGLIB_CONFIG", "The configuration file, as `--config`."),
        ("GGLIB_URL", "The endpoint that `chat`, `q`, `status` and `top` talk to, as `--url`."),
        (LLAMA_SERVER_ENV_VAR, "A `llama-server` to use when `engine.binary` is `auto`."),
        (
            DATA_DIR_ENV_VAR,
            "Where `gglib up` installs, and where the endpoint keeps saved slots, its register of engines and the memory \
             that models were measured to take; `~/.local/share/gglib` (or below `$XDG_DATA_HOME`) without it.",
        ),
        (
            "GGLIB_LOG",
            "What is logged to standard error, such as `debug` or `gglib_runtime=debug`; `info` for `serve`, `warn` for `up`, \
             else `error`.",
        ),
        ("XDG_RUNTIME_DIR", "Where the engines' sockets lie; the directory for temporary files without it."),
    ];
    let others = others.into_iter().map(|(name, meaning)| [code(name), meaning.to_owned()]);
    markdown::table(["variable", "meaning"], others.chain(lenient))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_row() {
        let page = render();
        for key in KEYS {
            let name = key.path.rsplit('.').next().unwrap();
            assert!(page.contains(&format!("| `{name}` | {} |", kind(key.kind))), "{}", key.path);
        }
        for section in ["[models.NAME]", "[models.NAME.retry]", "[retry.class.CLASS]"] {
            assert!(page.contains(&format!("## `{section}`")), "{section}");
        }
    }
}
