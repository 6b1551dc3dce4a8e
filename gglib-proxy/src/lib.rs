//! The endpoint: OpenAI's protocol in front, engines behind, and everything in between that keeps the
//! promise that each request ends in a full answer, an explicit error, or a refusal that says when to return.
//!
//! The proxy knows engines only through the ports of `gglib-core`; it launches nothing itself.

pub use app::{App, Settings};
pub use open_files::raise_file_limit;
pub use serve::{serve, serve_on};

mod account;
mod app;
mod budgets;
mod connection;
mod exchange;
mod idempotency;
mod live;
pub mod metrics;
mod open_files;
mod own_chunk;
mod panics;
mod places;
mod plain;
mod refusal;
mod repairable;
mod repairs;
mod request;
mod request_id;
mod route;
mod routes;
mod schemas;
mod serve;
mod stream;
mod tally;
mod upload;
