//! The closed set of codes that gglib itself gives, with what each means.

use std::fmt;

use http::StatusCode;

/// One line of the table of codes, for the reference documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The code.
    pub code: ErrorCode,
    /// Its default HTTP status.
    pub status: StatusCode,
    /// OpenAI's `type` that goes with the status.
    pub kind: &'static str,
    /// What it means, one sentence.
    pub meaning: &'static str,
}

/// Every code, in the order of its status.
pub fn table() -> impl Iterator<Item = Row> {
    ErrorCode::ALL.iter().map(|&code| Row {
        code,
        status: code.status(),
        kind: kind_of(code.status()),
        meaning: code.meaning(),
    })
}

/// Declares the enum and its table from the same lines, so that neither can lack what the other has.
macro_rules! error_codes {
    ($( $status:ident $text:literal $name:ident: $meaning:literal, )+) => {
        /// What went wrong, for programs: the `code` of an error body.
        ///
        /// The set is closed and its texts are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $( #[doc = $meaning] $name, )+
        }

        impl ErrorCode {
            /// Every code, in the order of its status.
            pub const ALL: &[Self] = &[$( Self::$name ),+];

            /// The text on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$name => $text, )+ }
            }

            /// The HTTP status that goes with the code, unless an upstream chose another.
            pub const fn status(self) -> StatusCode {
                match self { $( Self::$name => StatusCode::$status, )+ }
            }

            /// What the code means, one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$name => $meaning, )+ }
            }
        }
    };
}

error_codes! {
    BAD_REQUEST "invalid_json" InvalidJson:
        "The body is not one JSON object; the message names line and column.",
    BAD_REQUEST "invalid_request" InvalidRequest:
        "A member of the body is missing, has the wrong type or an impossible value; `param` names it.",
    BAD_REQUEST "context_length_exceeded" ContextLengthExceeded:
        "The prompt does not fit into the model's context.",
    UNAUTHORIZED "invalid_api_key" InvalidApiKey:
        "The API key is missing or wrong.",
    FORBIDDEN "permission_denied" PermissionDenied:
        "The API key does not allow this request.",
    NOT_FOUND "model_not_found" ModelNotFound:
        "No model of this name is configured; the message names the nearest ones.",
    NOT_FOUND "route_not_found" RouteNotFound:
        "There is no such route.",
    METHOD_NOT_ALLOWED "method_not_allowed" MethodNotAllowed:
        "The route exists, but not for this method.",
    CONFLICT "idempotency_key_in_use" IdempotencyKeyInUse:
        "The request with this `Idempotency-Key` still runs, and its answer has grown too long to be given again from its beginning.",
    PAYLOAD_TOO_LARGE "body_too_large" BodyTooLarge:
        "The body is longer than the configured limit.",
    UNPROCESSABLE_ENTITY "idempotency_key_reused" IdempotencyKeyReused:
        "The `Idempotency-Key` stands for another request of the same client, running or just answered.",
    TOO_MANY_REQUESTS "queue_full" QueueFull:
        "As many requests as allowed already wait for the model, or more than can be served within the longest wait allowed.",
    TOO_MANY_REQUESTS "rate_limit_exceeded" RateLimitExceeded:
        "An upstream limits the rate of requests.",
    INTERNAL_SERVER_ERROR "internal" Internal:
        "A fault of gglib itself; please report it.",
    NOT_IMPLEMENTED "not_supported" NotSupported:
        "The engine was not started with the option that this request needs.",
    BAD_GATEWAY "upstream_unreachable" UpstreamUnreachable:
        "No connection to the upstream could be made.",
    BAD_GATEWAY "upstream_died" UpstreamDied:
        "The upstream broke off before its answer was whole.",
    BAD_GATEWAY "upstream_incomplete" UpstreamIncomplete:
        "The upstream's answer ended in good order but without a `finish_reason`.",
    BAD_GATEWAY "upstream_malformed" UpstreamMalformed:
        "The upstream's answer does not follow its protocol.",
    BAD_GATEWAY "upstream_error" UpstreamError:
        "The upstream answered with an error that has no closer code; its status is kept.",
    SERVICE_UNAVAILABLE "model_loading" ModelLoading:
        "The model is being loaded.",
    SERVICE_UNAVAILABLE "model_load_failed" ModelLoadFailed:
        "The model could not be loaded.",
    SERVICE_UNAVAILABLE "breaker_open" BreakerOpen:
        "Recent loads of the model failed; `metadata.retry_after_ms` says when the next one will be tried, and `Retry-After` \
         no more than a minute of it.",
    SERVICE_UNAVAILABLE "insufficient_memory" InsufficientMemory:
        "The model does not fit into the memory; the message names the numbers.",
    SERVICE_UNAVAILABLE "wait_stalled" WaitStalled:
        "The queue for the model did not move within the stall limit.",
    SERVICE_UNAVAILABLE "wait_too_long" WaitTooLong:
        "The request waited for its turn longer than allowed.",
    SERVICE_UNAVAILABLE "draining" Draining:
        "gglib is shutting down and takes no new requests.",
    GATEWAY_TIMEOUT "timeout_connect" TimeoutConnect:
        "The upstream did not accept a connection in time.",
    GATEWAY_TIMEOUT "timeout_response_headers" TimeoutResponseHeaders:
        "The upstream accepted the request and sent no response head in time.",
    GATEWAY_TIMEOUT "timeout_first_content" TimeoutFirstContent:
        "The upstream produced no content, and made no progress on the prompt, in time.",
    GATEWAY_TIMEOUT "timeout_idle" TimeoutIdle:
        "The upstream paused too long between two pieces of content.",
    GATEWAY_TIMEOUT "timeout_total" TimeoutTotal:
        "One attempt took longer than allowed.",
    GATEWAY_TIMEOUT "timeout_request" TimeoutRequest:
        "All attempts and waits together took longer than allowed.",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// OpenAI's `type` for a status.
pub(super) fn kind_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}
