//! A refusal in the client's protocol.

use std::time::Duration;

use gglib_core::admission::Refusal;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::model::ModelName;
use gglib_core::ports::Refused;
use gglib_core::retry::hint;

use crate::app::App;

/// What is told while gglib shuts down, to those who come and to those who are cut off.
pub(crate) fn draining(app: &App) -> ApiError {
    ApiError::new(ErrorCode::Draining, "gglib is shutting down")
        .with_retry_after(hint::advertise(&app.settings.retry, None))
}

/// The error that tells the client of `refused`, with the time after which to come back.
///
/// The time stands unrounded in the metadata; the header rounds it up to whole seconds and keeps it within bounds,
/// as [`hint::advertise`] does.
pub(crate) async fn to_error(app: &App, refused: &Refused, model: &ModelName) -> ApiError {
    let refusal = &refused.refusal;
    let error = ApiError::new(refusal.code(), format!("`{model}`: {refusal}"));
    match refusal {
        // Nothing will change that by itself.
        Refusal::NotConfigured => error,
        // The same load with the same file would fail the same way; only a person can change that.
        Refusal::LoadFailed { .. } | Refusal::InsufficientMemory { .. } | Refusal::PinnedOut => {
            error.with_retry_after(delay(app, refused, model).await).not_worth_retrying()
        }
        _ => error.with_retry_after(delay(app, refused, model).await),
    }
}

/// When the client is to come back. Of those that found too many before them each gets a place of its own: told the
/// same time, they would all return at once, and most of them in vain.
async fn delay(app: &App, refused: &Refused, model: &ModelName) -> Duration {
    let Some(room) = refused.retry_after else { return hint::advertise(&app.settings.retry, None) };
    match refused.refusal {
        Refusal::QueueFull { .. }
        | Refusal::QueueTooLong { .. }
        | Refusal::Stalled { .. }
        | Refusal::WaitedTooLong { .. } => {
            app.places.take(&app.settings.retry, model, room, interval(app, model).await)
        }
        _ => room,
    }
}

/// How often an engine of `model` takes one more request; nothing as long as that has not been measured.
async fn interval(app: &App, model: &ModelName) -> Duration {
    let models = app.residency.snapshot().await.map(|snapshot| snapshot.models).unwrap_or_default();
    let measured = models.iter().find(|known| known.model == *model).and_then(|known| known.interval);
    measured.unwrap_or_default()
}
