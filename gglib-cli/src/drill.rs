//! Drills: requests to an endpoint while something happens to its engines, each judged by the promise.
//!
//! Every request ends, within a stated bound, in a full answer, in an explicit error in the client's protocol, or in a
//! 429 or 503 with a `Retry-After`. A [`Client`](client::Client) that repeats nothing asks and keeps every byte,
//! [`Seen::judge`](outcome::Seen::judge) says which of these it was, and a [`Scorecard`](scorecard::Scorecard) holds
//! the judgements of a whole drill.

pub mod client;
pub(crate) mod engine;
pub(crate) mod instance;
pub mod outcome;
pub(crate) mod play;
pub(crate) mod scenario;
pub mod scorecard;
pub(crate) mod settings;
pub(crate) mod stage;
pub(crate) mod trouble;
