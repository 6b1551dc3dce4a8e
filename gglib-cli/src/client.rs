//! Talking to an endpoint as a client: ours or any other that speaks OpenAI's protocol.

use std::sync::Arc;

use bytes::Bytes;
use gglib_core::config::Config;
use gglib_core::retry::{RetryPolicy, RetryRules};
use gglib_runtime::completion::{CompletionClient, Delta};
use gglib_runtime::http::HttpUpstream;
use http::StatusCode;
use serde_json::{Value, json};

use crate::args::Target;
use crate::error::CliError;
use crate::{choice, ui};

/// The base URL that the command line means.
pub(crate) fn url(target: &Target, config: &Config) -> String {
    target.url.clone().unwrap_or_else(|| format!("http://{}/v1", config.server.listen))
}

/// The rules of the configuration for `model`, or a single attempt.
pub(crate) fn rules(config: &Config, model: &str, no_retry: bool) -> RetryRules {
    if no_retry { RetryPolicy::disabled().into() } else { config.retry_rules(model).clone() }
}

/// A client of the endpoint at `url` that tells of its waits.
pub(crate) fn completions(url: &str, rules: RetryRules) -> Result<CompletionClient, CliError> {
    let upstream = HttpUpstream::new(url, None)?;
    let name = upstream.authority().to_owned();
    let client = CompletionClient::new(Arc::new(upstream), rules).with_name(&name);
    Ok(client.with_observer(Arc::new(ui::RetryNotices)))
}

/// One conversation's client.
pub(crate) struct Client {
    completions: CompletionClient,
    model: String,
}

impl Client {
    pub(crate) fn new(url: &str, model: String, rules: RetryRules) -> Result<Self, CliError> {
        Ok(Self { completions: completions(url, rules)?, model })
    }

    /// Streams the answer to `messages` to standard output and returns its text; `None` if nobody reads there any more,
    /// and the request has been given up for it.
    pub(crate) async fn answer(&self, messages: &[Value]) -> Result<Option<String>, CliError> {
        let body = json!({ "model": self.model, "messages": messages, "stream": true });
        let mut deltas = self.completions.stream(Bytes::from(body.to_string())).await?;
        let mut text = String::new();
        while let Some(delta) = deltas.next().await {
            match delta {
                Ok(Delta::Text(part)) => {
                    if ui::stream(&part).is_err() {
                        return Ok(None);
                    }
                    text.push_str(&part);
                }
                Ok(_) => {}
                Err(error) => {
                    if !text.is_empty() {
                        // What is said of it begins a line of its own.
                        ui::part("\n");
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(ui::stream("\n").is_ok().then_some(text))
    }
}

/// The model that the command line names, or the endpoint's first by name, those left out that `config` has for something
/// else than talk.
pub(crate) async fn model(named: Option<String>, url: &str, config: &Config) -> Result<String, CliError> {
    if let Some(name) = named {
        return Ok(name);
    }
    let models = models(url).await?;
    let mut ids = models.iter().filter_map(|model| model["id"].as_str());
    let first = ids.find(|id| choice::may_talk(config, id));
    first.map(str::to_owned).ok_or_else(|| {
        let what = "has no model to talk to; add one with `gglib model add NAME FILE`, or name one";
        CliError::Model(format!("{url} {what}"))
    })
}

/// The models that the endpoint lists, by name.
pub(crate) async fn models(url: &str) -> Result<Vec<Value>, CliError> {
    let list = get_json(url, "/v1/models").await?;
    Ok(list["data"].as_array().cloned().unwrap_or_default())
}

/// The one of `models` that `name` means, by its own name or an alias.
pub(crate) fn find<'a>(models: &'a [Value], name: &str) -> Option<&'a Value> {
    models.iter().find(|model| {
        let mut aliases = model["aliases"].as_array().into_iter().flatten();
        model["id"] == *name || aliases.any(|alias| alias == name)
    })
}

/// `GET` of a path of the endpoint's root, as JSON.
pub(crate) async fn get_json(url: &str, path: &str) -> Result<Value, CliError> {
    let upstream = HttpUpstream::new(url, None)?;
    let (status, body) = upstream.get(path).await.map_err(|_| CliError::Unreachable(url.to_owned()))?;
    understood(url, status, &body)
}

/// The JSON of an answer, or the error that it is.
fn understood(url: &str, status: StatusCode, body: &[u8]) -> Result<Value, CliError> {
    let url = url.to_owned();
    match serde_json::from_slice::<Value>(body) {
        Ok(value) if status == StatusCode::OK => Ok(value),
        Ok(value) if value["error"]["message"].is_string() => {
            let reason = value["error"]["message"].as_str().unwrap_or_default().to_owned();
            Err(CliError::NotNow { url, reason })
        }
        _ => Err(CliError::Strange { url, answer: status.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_endpoint_is_told_in_its_own_words() {
        let said = |status, body: &str| match understood("http://u/v1", status, body.as_bytes()) {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        let draining = r#"{"error":{"message":"gglib is shutting down","code":"draining"}}"#;
        assert_eq!(said(StatusCode::OK, "{}"), "{}");
        assert_eq!(
            said(StatusCode::SERVICE_UNAVAILABLE, draining),
            "http://u/v1 answered: gglib is shutting down"
        );
        for (status, body) in
            [(StatusCode::NOT_FOUND, "<html>"), (StatusCode::OK, "<html>"), (StatusCode::NOT_FOUND, "{}")]
        {
            assert_eq!(
                said(status, body),
                format!("http://u/v1 answered with {status}; is it a gglib endpoint?")
            );
        }
    }
}
