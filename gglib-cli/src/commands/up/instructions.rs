//! What `gglib up` says to paste and to type: with the flags without which the command would mean something else.

use std::path::Path;

use crate::args::Common;
use crate::settings;

/// The end of `gglib up`.
pub(super) struct Instructions<'a> {
    /// How the command is called here.
    gglib: String,
    url: &'a str,
    model: &'a str,
    /// ` --config FILE`, where a call without it would read another file.
    config: String,
    /// Whether a call without a flag finds the endpoint, or starts it, elsewhere.
    elsewhere: Elsewhere,
}

/// What a call without flags would use something else for.
#[derive(Clone, Copy)]
struct Elsewhere {
    /// `server.listen`, when it starts the endpoint.
    listen: bool,
    /// The endpoint, when it asks.
    url: bool,
}

impl<'a> Instructions<'a> {
    /// For the endpoint at `url` that has its configuration from `path`.
    pub(super) fn new(path: &Path, url: &'a str, model: &'a str) -> Self {
        let env = |name| std::env::var(name).ok();
        let plain = settings::path(&Common { config: env("GGLIB_CONFIG").map(Into::into) });
        let config = if plain.is_ok_and(|plain| plain == path) {
            String::new()
        } else {
            format!(" --config {}", quoted(&path.display().to_string()))
        };
        let listens = settings::listens_at(path).map(|address| format!("http://{address}/v1"));
        let listen = listens.as_deref() != Some(url);
        let asked = env("GGLIB_URL").or(listens);
        let elsewhere = Elsewhere { listen, url: asked.as_deref() != Some(url) };
        // Run through cargo, the command is not on PATH; then it is shown as it was called.
        let gglib = std::env::args().next().unwrap_or_else(|| "gglib".to_owned());
        Self { gglib, url, model, config, elsewhere }
    }

    /// The text; `ours` if the endpoint ends with this process.
    pub(super) fn text(&self, ours: bool) -> String {
        let Self { gglib, url, model, config, elsewhere } = self;
        let at = if elsewhere.url { format!(" --url {url}") } else { String::new() };
        let address = url.trim_start_matches("http://").trim_end_matches("/v1");
        let listen = if elsewhere.listen { format!(" --listen {address}") } else { String::new() };
        let stop = if ours {
            format!(
                "\nCtrl-C stops the endpoint and its engines; `{gglib} serve{config}{listen}` starts it again."
            )
        } else {
            String::new()
        };
        format!(
            "\nPaste into a client:\n  base URL  {url}\n  model     {model}\n  API key   anything, for example local\n\n\
             Try:\n  {gglib} q{config}{at} \"Why is the sky blue?\"\n  \
             curl {url}/chat/completions -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hi\"}}]}}'\n{stop}"
        )
    }
}

/// The text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        assert_eq!(
            ["/home/a/gglib.toml", "/my files/a.toml", "it's"].map(quoted),
            ["/home/a/gglib.toml", "'/my files/a.toml'", "'it'\\''s'"]
        );
    }
}
