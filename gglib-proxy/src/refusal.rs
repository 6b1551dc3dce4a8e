//! A refusal in the client's protocol.

use gglib_core::admission::Refusal;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::model::ModelName;
use gglib_core::retry::{RetryPolicy, hint};

/// The error that tells the client of `refusal`, with the time after which to come back.
pub(crate) fn to_error(refusal: &Refusal, model: &ModelName, policy: &RetryPolicy) -> ApiError {
    let code = match refusal {
        Refusal::QueueFull { .. } => ErrorCode::QueueFull,
        Refusal::LoadFailed { .. } => ErrorCode::ModelLoadFailed,
        Refusal::Stalled { .. } => ErrorCode::WaitStalled,
        Refusal::WaitedTooLong { .. } => ErrorCode::WaitTooLong,
        Refusal::Draining => ErrorCode::Draining,
    };
    let error =
        ApiError::new(code, format!("`{model}`: {refusal}")).with_retry_after(hint::advertise(policy, None));
    match refusal {
        // The same load with the same file would fail the same way; only a person can change that.
        Refusal::LoadFailed { .. } => error.not_worth_retrying(),
        _ => error,
    }
}
