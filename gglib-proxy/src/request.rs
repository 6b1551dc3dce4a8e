//! What a client asks for, read from the few members of its body that matter here.

use bytes::Bytes;
use gglib_core::api::body::{JsonObject, items};
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::model::{Catalog, ModelName, Unknown};
use tokio::time::Instant;

use crate::account::Account;
use crate::repairable::{Repairable, mend_calls};
use crate::route::Route;

/// A request whose model is known.
#[derive(Clone, Debug)]
pub(crate) struct ModelRequest {
    pub(crate) route: Route,
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
    /// Tokens of the answer that the client had before this was issued, and that stand in `body`.
    pub(crate) given: u64,
    /// When it had been read.
    pub(crate) read_at: Instant,
}

impl ModelRequest {
    /// Reads a client's body. Calls in the answer are judged, and those in the history mended, if at all; calls in the
    /// answer `until` a certain time.
    ///
    /// Where there are streams the engine is always asked for one, since it notices only of a stream that its client
    /// has left, and always for its progress, since a long prompt would look like a stall otherwise.
    pub(crate) fn read(
        route: Route,
        body: Bytes,
        catalog: &Catalog,
        until: Option<Instant>,
    ) -> Result<Self, ApiError> {
        let mut body = JsonObject::parse(body)?;
        let model = resolve(body.str_member("model")?.as_deref(), catalog)?;
        let required = route.required();
        if body.raw_member(required).is_none() {
            let message = format!("`{required}` is required");
            return Err(ApiError::new(ErrorCode::InvalidRequest, message).with_param(required));
        }
        body.set("model", model.as_str());
        if route.streams() {
            Self::streamed(route, body, model, until)
        } else {
            Ok(Self::whole(route, body, model))
        }
    }

    /// A request that is answered in one piece.
    fn whole(route: Route, body: JsonObject, model: ModelName) -> Self {
        Self {
            route,
            model,
            stream: false,
            choices: 1,
            progress: false,
            usage: true,
            repairable: None,
            body: body.into_bytes(),
            account: Account::default(),
            given: 0,
            read_at: Instant::now(),
        }
    }

    fn streamed(
        route: Route,
        mut body: JsonObject,
        model: ModelName,
        until: Option<Instant>,
    ) -> Result<Self, ApiError> {
        let stream = body.bool_member("stream")?.unwrap_or(false);
        // Whatever the engine says to 0, an answer without a choice would not be one.
        let prompts = if route == Route::Completions { prompts(&body) } else { 1 };
        // llama-server takes the first of the two that is not null.
        let each = body.u64_member("n_cmpl")?.or(body.u64_member("n")?).unwrap_or(1);
        let choices = each.max(1).saturating_mul(prompts);
        let progress = body.bool_member("return_progress")?.unwrap_or(false);
        let until = until.filter(|_| route == Route::Chat);
        if until.is_some() {
            mend_calls(&mut body)?;
        }
        // Which of several choices a client would want repaired, nobody knows.
        let repairable = until.filter(|_| choices == 1).and_then(|until| Repairable::read(&body, until));
        let mut options = match body.object_member("stream_options")? {
            Some(options) => options,
            None => JsonObject::parse(Bytes::from_static(b"{}"))?,
        };
        let usage = options.bool_member("include_usage")?.unwrap_or(false) || !stream;
        body.set("return_progress", true);
        if !stream {
            body.set("stream", true);
            options.set("include_usage", true);
            body.set_object("stream_options", options);
        }
        Ok(Self {
            route,
            model,
            stream,
            choices,
            progress,
            usage,
            repairable,
            body: body.into_bytes(),
            account: Account::default(),
            given: 0,
            read_at: Instant::now(),
        })
    }
}

/// How many prompts a text completion has: a list may hold several, or the tokens of one.
fn prompts(body: &JsonObject) -> u64 {
    let Some(prompt) = body.raw_member("prompt").and_then(|prompt| str::from_utf8(prompt).ok()) else {
        return 1;
    };
    let several = items(prompt).all(|prompt| prompt.get().starts_with(['"', '[', '{']));
    if several { items(prompt).count().max(1) as u64 } else { 1 }
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

    fn read_for(route: Route, body: &'static str, models: &[&str]) -> Result<ModelRequest, ApiError> {
        let body = Bytes::from_static(body.as_bytes());
        ModelRequest::read(route, body, &catalog(models), Some(Instant::now()))
    }

    fn read(body: &'static str, models: &[&str]) -> Result<String, String> {
        read_for(Route::Chat, body, models)
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
    fn what_is_answered_in_one_piece_is_sent_as_it_is() {
        let body = r#"{"model":"small","input":["a", 1e400],"stream":true}"#;
        let request = read_for(Route::Embeddings, body, &["small"]).unwrap();
        assert_eq!((request.body, request.stream), (Bytes::from(body), false));
        let error = read_for(Route::Rerank, r#"{"query":"a"}"#, &["small"]).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.param.as_deref()),
            ("`documents` is required", Some("documents"))
        );
    }

    #[test]
    fn each_prompt_of_a_text_completion_has_its_choices() {
        let choices = |body| read_for(Route::Completions, body, &["a"]).unwrap().choices;
        assert_eq!(choices(r#"{"prompt":"a"}"#), 1);
        assert_eq!(choices(r#"{"prompt":["a","b"],"n":3}"#), 6);
        assert_eq!(choices(r#"{"prompt":[[1,2],"b"]}"#), 2);
        // The tokens of one prompt.
        assert_eq!(choices(r#"{"prompt":[15,7,3]}"#), 1);
        assert_eq!(choices(r#"{"prompt":[]}"#), 1);
    }

    #[test]
    fn the_engines_own_name_for_the_number_of_choices_decides() {
        let choices = |more: &'static str| read_for(Route::Chat, more, &["a"]).unwrap().choices;
        assert_eq!(choices(r#"{"messages":[],"n_cmpl":2}"#), 2);
        assert_eq!(choices(r#"{"messages":[],"n_cmpl":1,"n":2}"#), 1);
        assert_eq!(choices(r#"{"messages":[],"n_cmpl":null,"n":2}"#), 2);
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
