//! What gglib's tests share: a scripted fake `llama-server`, the real one with real models, and processes that end
//! with their test.
//!
//! A test of a fault says what happens to which launch and which request, and points the engine's command line at
//! the fake:
//!
//! ```no_run
//! use gglib_testkit::{Fault, Launch, Reply, Script, fake_engine};
//!
//! // The first launch dies after two contents of its first answer; every later one is healthy.
//! let script = Script {
//!     launches: vec![
//!         Launch { replies: vec![Reply { fault: Some(Fault::DieAfter(2)), ..Reply::numbered(5) }], ..Launch::default() },
//!         Launch::default(),
//!     ],
//! };
//! let scripted = script.place();
//! let program = fake_engine();
//! let args = scripted.args(); // add these to the engine's own, or set `scripted.env()`
//! // … run the thing under test …
//! assert_eq!(scripted.log().launches(), 2);
//! ```
//!
//! Everything here panics when it cannot do its work: it is a test that fails.

#![expect(clippy::missing_panics_doc, reason = "said once above")]

mod bins;
pub mod engines;
mod output;
pub mod real;
mod running;
mod script;
mod tiny_model;
mod wait;
pub mod wire;

pub use self::{
    bins::{TO_FLAG, UNTAUGHT_FLAG, bins, fake_engine, relay_engine, target_dir},
    engines::Engines,
    output::{output, output_of},
    running::Running,
    script::{
        Death, End, Entry, Fault, Launch, Load, Log, Reply, SCRIPT_ENV_VAR, SCRIPT_FLAG, Script, Scripted,
        SlotReply, SlotScript, Template,
    },
    tiny_model::tiny_model,
    wait::until,
};
