//! Tool calls that no client could run: telling them from good ones, mending their packaging, and the body of the
//! one request that asks for them again.
//!
//! A [`Turn`] is what the chunks of an answer say about calls. It is [assessed](assess) against the [`Tools`] of
//! the request, with a JSON Schema engine behind the port [`Schemas`]. Calls whose packaging alone is wrong are
//! [mended](mend) on the spot; when values are wrong, the answer is [`Broken`], and a second request is due, in one
//! of two [forms](Form). Its calls take the places of the broken ones, and good calls stay as they are. No value is
//! ever invented here: it comes from the model or not at all.

pub use assess::{Broken, Fault, Verdict, assess};
pub use history::{HistoryError, mend_history};
pub use mend::{Ending, mend};
pub use schema::{Mismatch, MismatchKind, SchemaError, Schemas, flatten};
pub use second::{Form, second_body};
pub use tools::{Choice, Function, Tools};
pub use turn::{Call, Turn};

mod assess;
mod grammar;
mod history;
mod mend;
mod raw;
mod schema;
mod second;
mod told;
mod tools;
mod turn;
