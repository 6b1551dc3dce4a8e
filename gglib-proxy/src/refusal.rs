//! A refusal in the client's protocol.

use gglib_core::admission::Refusal;
use gglib_core::api::error::ApiError;
use gglib_core::model::ModelName;
use gglib_core::ports::Refused;
use gglib_core::retry::{RetryPolicy, hint};

/// The error that tells the client of `refused`, with the time after which to come back.
///
/// The header says it in whole seconds and within bounds; a known time stands unrounded in the metadata.
pub(crate) fn to_error(refused: &Refused, model: &ModelName, policy: &RetryPolicy) -> ApiError {
    let Refused { refusal, retry_after } = refused;
    let error = ApiError::new(refusal.code(), format!("`{model}`: {refusal}"))
        .with_retry_after(hint::advertise(policy, *retry_after));
    match refusal {
        // The same load with the same file would fail the same way; only a person can change that.
        Refusal::LoadFailed { .. } | Refusal::InsufficientMemory { .. } | Refusal::PinnedOut => {
            error.not_worth_retrying()
        }
        _ => error,
    }
}
