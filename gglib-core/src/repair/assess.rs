//! The verdict on a turn, and what a second one makes of it.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::mend::{Ending, mend};
use super::raw;
use super::schema::{MismatchKind, Schemas};
use super::tools::{Choice, Function, Tools};
use super::turn::{Call, Turn};

/// What a turn is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is nothing to do: every call can be run, or there is none and none was due.
    Sound,
    /// Only packaging was wrong. These are the calls with it mended, all of them.
    Mended(Vec<Call>),
    /// At least one call cannot be run, or the call that is due is missing.
    Broken(Broken),
}

/// A turn that needs a second one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    places: Vec<Place>,
}

/// The place of a call in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Taken by a call that can be run.
    Kept(Call),
    /// To be taken by a call of the second turn. `call` is the one that cannot be run, if there was one.
    Open { call: Call, fault: Fault },
}

/// Why a call cannot be run. Members are named by JSON pointers into the arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The client insists on a call, and there is none.
    NoCall,
    /// No function of this name is offered.
    UnknownFunction(String),
    /// The arguments are not a JSON object.
    NotJson,
    /// A required member is not there.
    Missing(String),
    /// A member is there that the schema does not allow.
    Extra(String),
    /// A member has the wrong type.
    Mistyped(String),
    /// A member has the right type and a wrong value.
    Invalid(String),
}

impl Fault {
    /// The kind of fault, for metrics and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NoCall => "no_call",
            Self::UnknownFunction(_) => "unknown_function",
            Self::NotJson => "not_json",
            Self::Missing(_) => "missing",
            Self::Extra(_) => "extra",
            Self::Mistyped(_) => "mistyped",
            Self::Invalid(_) => "invalid",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            Self::NoCall | Self::NotJson => Ok(()),
            Self::UnknownFunction(what)
            | Self::Missing(what)
            | Self::Extra(what)
            | Self::Mistyped(what)
            | Self::Invalid(what) => write!(f, " `{what}`"),
        }
    }
}

/// Judges the calls of `turn` by `tools`.
///
/// A function whose schema is missing or cannot be used takes any object: nothing is repaired on suspicion.
pub fn assess(turn: &Turn, tools: &Tools, schemas: &dyn Schemas) -> Verdict {
    let cut_off = turn.finish_reason.as_deref() == Some("length");
    let last = turn.calls.len().saturating_sub(1);
    let mut mended = !turn.is_numbered();
    let mut places: Vec<Place> = Vec::with_capacity(turn.calls.len());
    for (position, call) in turn.calls.iter().enumerate() {
        // Only what was being written can have been cut.
        let ending = if cut_off && position == last { Ending::CutOff } else { Ending::Complete };
        places.push(match judge(call, ending, tools, schemas) {
            Ok(arguments) => {
                mended |= matches!(arguments, Cow::Owned(_)) || *arguments != call.arguments;
                Place::Kept(Call { arguments: arguments.into_owned(), ..call.clone() })
            }
            Err(fault) => Place::Open { call: call.clone(), fault },
        });
    }
    if places.is_empty() && tools.choice == Choice::Required {
        places.push(Place::Open { call: Call::default(), fault: Fault::NoCall });
    }
    let broken = Broken { places };
    if broken.faults().next().is_some() {
        Verdict::Broken(broken)
    } else if mended {
        Verdict::Mended(broken.into_kept())
    } else {
        Verdict::Sound
    }
}

/// The arguments of a call that can be run, mended if need be.
fn judge<'a>(
    call: &'a Call,
    ending: Ending,
    tools: &Tools,
    schemas: &dyn Schemas,
) -> Result<Cow<'a, str>, Fault> {
    let function = tools.function(&call.name).ok_or_else(|| Fault::UnknownFunction(call.name.clone()))?;
    let arguments = mend(&call.arguments, ending).ok_or(Fault::NotJson)?;
    let instance: Value = serde_json::from_str(&arguments).map_err(|_| Fault::NotJson)?;
    let mismatches = match &function.parameters {
        Some(schema) => schemas.mismatches(schema, &instance).unwrap_or_default(),
        None => Vec::new(),
    };
    match mismatches.into_iter().next() {
        None => Ok(arguments),
        Some(mismatch) => Err(match mismatch.kind {
            MismatchKind::Missing => Fault::Missing(mismatch.at),
            MismatchKind::Extra => Fault::Extra(mismatch.at),
            MismatchKind::Mistyped => Fault::Mistyped(mismatch.at),
            MismatchKind::Invalid => Fault::Invalid(mismatch.at),
        }),
    }
}

impl Broken {
    /// What is wrong, in the order of the calls.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.places.iter().filter_map(|place| match place {
            Place::Open { fault, .. } => Some(fault),
            Place::Kept(_) => None,
        })
    }

    /// Whether the answer has nothing but the one call that is wanted again.
    pub(super) fn is_single(&self) -> bool {
        self.places.len() == 1
    }

    /// For each call that is wanted again, the functions that it may call: the one that was meant, where that is
    /// known.
    pub(super) fn wanted<'t>(&self, tools: &'t Tools) -> Vec<&'t [Function]> {
        let open = self.places.iter().filter_map(|place| match place {
            Place::Open { call, .. } => Some(&call.name),
            Place::Kept(_) => None,
        });
        open.map(|name| match tools.function(name) {
            Some(function) => std::slice::from_ref(function),
            None => &tools.functions[..],
        })
        .collect()
    }

    /// The calls with those of `second` in the open places, where good ones stay as they are; or what is wrong with
    /// `second`.
    ///
    /// A place whose function is known takes a call of that function, another one any that is left then. A call that
    /// repeats a good one takes none. Calls of `second` that no place is left for are dropped: they were not asked for. Where
    /// `second` has no calls but writes them as text, these are taken.
    ///
    /// # Errors
    /// The first fault of each call of `second` that cannot be run; [`Fault::NoCall`] when there are too few others.
    pub fn completed(
        self,
        second: &Turn,
        tools: &Tools,
        schemas: &dyn Schemas,
    ) -> Result<Vec<Call>, Vec<Fault>> {
        let written = if second.calls.is_empty() { raw::calls(&second.text) } else { Vec::new() };
        let mut faults = Vec::new();
        let mut good = Vec::new();
        for call in second.calls.iter().chain(&written) {
            // A call that was cut off is not wanted, however plausible what is left of it.
            match judge(call, Ending::CutOff, tools, schemas) {
                Ok(arguments) => good.push(Call { arguments: arguments.into_owned(), ..call.clone() }),
                Err(fault) => faults.push(fault),
            }
        }
        let is_kept = |call: &Call| {
            self.places.iter().any(|place| matches!(place, Place::Kept(kept) if is_same(kept, call)))
        };
        good.retain(|call| !is_kept(call));

        let takes_any =
            |place: &Place| matches!(place, Place::Open { call, .. } if tools.function(&call.name).is_none());
        let mut calls = Vec::with_capacity(self.places.len());
        let (any, known): (Vec<_>, Vec<_>) =
            self.places.into_iter().enumerate().partition(|(_, place)| takes_any(place));
        for (position, place) in known.into_iter().chain(any) {
            let any = takes_any(&place);
            let call = match place {
                Place::Kept(call) => {
                    calls.push((position, call));
                    continue;
                }
                Place::Open { call, .. } => call,
            };
            let Some(found) = good.iter().position(|candidate| any || candidate.name == call.name) else {
                faults.push(Fault::NoCall);
                return Err(faults);
            };
            let Call { name, arguments, id, .. } = good.remove(found);
            calls.push((position, Call { index: call.index, id: call.id.or(id), name, arguments }));
        }
        calls.sort_unstable_by_key(|(position, _)| *position);
        Ok(calls.into_iter().map(|(_, call)| call).collect())
    }

    fn into_kept(self) -> Vec<Call> {
        self.places
            .into_iter()
            .filter_map(|place| match place {
                Place::Kept(call) => Some(call),
                Place::Open { .. } => None,
            })
            .collect()
    }
}

/// Whether two calls do the same.
fn is_same(one: &Call, other: &Call) -> bool {
    let value = |call: &Call| serde_json::from_str::<Value>(&call.arguments).ok();
    one.name == other.name && value(one) == value(other)
}
