//! `GET /v1/models`. Never loads one.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::app::App;

/// The configured models in OpenAI's list, each with its aliases and what is known of its context.
pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    let data: Vec<Value> = app
        .catalog
        .iter()
        .map(|(name, spec)| {
            json!({
                "id": name.as_str(),
                "object": "model",
                "created": 0,
                "owned_by": "gglib",
                "aliases": spec.aliases,
                "context_length": spec.context,
            })
        })
        .collect();
    Json(json!({ "object": "list", "data": data }))
}
