//! What a client asks for, read from the few members of its body that matter here.

use bytes::Bytes;
use gglib_core::api::body::JsonObject;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::model::{Catalog, ModelName, Unknown};
use tokio::time::Instant;

use crate::account::Account;
use crate::repairable::Repairable;

/// A chat completion request whose model is known.
#[derive(Clone, Debug)]
pub(crate) struct ChatRequest {
    pub(crate) model: ModelName,
    /// Whether the client wants a stream.
    pub(crate) stream: bool,
    /// How many choices it wants.
    pub(crate) choices: u64,
    /// Whether it wants to see the engine's progress on the prompt.
    pub(crate) progress: bool,
    /// Whether it wants to see what was used; a plain answer always says so.
    pub(crate) usage: bool,
    /// What calls in the answer are judged by, if they are.
    pub(crate) repairable: Option<Repairable>,
    /// What the engine is sent: the client's body, asked for as a stream with progress.
    pub(crate) body: Bytes,
    /// What becomes known of it.
    pub(crate) account: Account,
    /// When it had been read.
    pub(crate) read_at: Instant,
}

impl ChatRequest {
    /// Reads a client's body. Calls in the answer are judged, if at all, `until` a certain time.
    ///
    /// The engine is always asked for a stream, since it notices only of a stream that its client has left,
    /// and always for its progress, since a long prompt would look like a stall otherwise.
    pub(crate) fn read(body: Bytes, catalog: &Catalog, until: Option<Instant>) -> Result<Self, ApiError> {
        let mut body = JsonObject::parse(body)?;
        let model = resolve(body.str_member("model")?.as_deref(), catalog)?;
        let stream = body.bool_member("stream")?.unwrap_or(false);
        // Whatever the engine says to 0, an answer without a choice would not be one.
        let choices = body.u64_member("n")?.unwrap_or(1).max(1);
        let progress = body.bool_member("return_progress")?.unwrap_or(false);
        if body.raw_member("messages").is_none() {
            return Err(
                ApiError::new(ErrorCode::InvalidRequest, "`messages` is required").with_param("messages")
            );
        }
        let repairable = match until.filter(|_| choices == 1) {
            Some(until) => Repairable::read(&mut body, until)?,
            None => None,
        };
        let mut options = match body.object_member("stream_options")? {
            Some(options) => options,
            None => JsonObject::parse(Bytes::from_static(b"{}"))?,
        };
        let usage = options.bool_member("include_usage")?.unwrap_or(false) || !stream;
        body.set("model", model.as_str());
        body.set("return_progress", true);
        if !stream {
            body.set("stream", true);
            options.set("include_usage", true);
            body.set_object("stream_options", options);
        }
        Ok(Self {
            model,
            stream,
            choices,
            progress,
            usage,
            repairable,
            body: body.into_bytes(),
            account: Account::default(),
            read_at: Instant::now(),
        })
    }
}

fn resolve(asked: Option<&str>, catalog: &Catalog) -> Result<ModelName, ApiError> {
    let mut models = catalog.iter().map(|(name, _)| name);
    match (asked, models.next(), models.next()) {
        (Some(asked), _, _) => match catalog.resolve(asked) {
            Ok((name, _)) => Ok(name.clone()),
            Err(unknown) => Err(not_found(&unknown)),
        },
        (None, Some(only), None) => Ok(only.clone()),
        (None, _, _) => {
            let message = "`model` is required, since more than one model may be meant; see /v1/models";
            Err(ApiError::new(ErrorCode::InvalidRequest, message).with_param("model"))
        }
    }
}

fn not_found(unknown: &Unknown) -> ApiError {
    let Unknown { asked, nearest } = unknown;
    let hint = if nearest.is_empty() {
        "no models are configured; add one with `gglib model add`".to_owned()
    } else {
        let names: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
        format!("did you mean {}?", names.join(", "))
    };
    ApiError::new(ErrorCode::ModelNotFound, format!("no model `{asked}` is configured; {hint}"))
        .with_param("model")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gglib_core::model::ModelSpec;

    use super::*;

    fn catalog(names: &[&str]) -> Catalog {
        let spec = ModelSpec::new("m.gguf");
        Catalog::new(
            names.iter().map(|name| (ModelName::new(*name), spec.clone())).collect::<BTreeMap<_, _>>(),
        )
    }

    fn read(body: &'static str, models: &[&str]) -> Result<String, String> {
        ChatRequest::read(Bytes::from_static(body.as_bytes()), &catalog(models), Some(Instant::now()))
            .map(|request| String::from_utf8(request.body.to_vec()).unwrap())
            .map_err(|error| format!("{} {}: {error}", error.status.as_u16(), error.code))
    }

    #[test]
    fn a_plain_request_is_sent_as_a_stream_with_usage_and_the_rest_stays() {
        assert_eq!(
            read(r#"{"model":"a","stream":false , "messages":[],"seed":1e400}"#, &["a", "b"]).unwrap(),
            r#"{"model":"a","stream":true , "messages":[],"seed":1e400,"return_progress":true,"stream_options":{"include_usage":true}}"#
        );
    }

    #[test]
    fn a_streams_own_options_are_left_alone() {
        let body = r#"{"model":"a","messages":[],"stream":true,"stream_options":{"include_usage":false}}"#;
        let sent = read(body, &["a"]).unwrap();
        assert_eq!(sent, format!("{},\"return_progress\":true}}", &body[..body.len() - 1]));
    }

    #[test]
    fn without_a_model_the_only_one_is_meant() {
        assert!(read(r#"{"messages":[]}"#, &["a"]).unwrap().contains(r#""model":"a""#));
        assert_eq!(
            read(r#"{"messages":[]}"#, &["a", "b"]).unwrap_err(),
            "400 invalid_request: `model` is required, since more than one model may be meant; see /v1/models"
        );
    }

    #[test]
    fn bad_requests_are_told_what_is_wrong() {
        assert_eq!(
            read(r#"{"model":"smol","messages":[]}"#, &["smollm2"]).unwrap_err(),
            "404 model_not_found: no model `smol` is configured; did you mean `smollm2`?"
        );
        assert_eq!(
            read(r#"{"model":"a"}"#, &["a"]).unwrap_err(),
            "400 invalid_request: `messages` is required"
        );
        let error = read("{\"model\":\n 3,,}", &["a"]).unwrap_err();
        assert!(error.starts_with("400 invalid_json") && error.contains("line 2 column 4"), "{error}");
    }
}
