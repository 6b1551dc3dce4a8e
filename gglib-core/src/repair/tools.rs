//! The tools of a request.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::schema::{MAX_TOGETHER, flatten_within};

/// The functions that a model may call, and whether it has to.
#[derive(Clone, Debug, PartialEq)]
pub struct Tools {
    /// In the client's order; of a request that chooses one function, that one alone.
    pub functions: Vec<Function>,
    /// Whether a call is due.
    pub choice: Choice,
}

/// One function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The [flat](super::flatten) JSON Schema of its arguments; `None` when it cannot be used, or there is none. Any
    /// object is then taken.
    pub parameters: Option<Value>,
}

/// `tool_choice`, as far as it makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The model may answer with text.
    Auto,
    /// The client insists on a call: `required`, or a function by name.
    Required,
}

impl Choice {
    /// Reads a `tool_choice`, as JSON text; absent is `auto`. `None` when calls are not wanted at all.
    pub fn read(choice: Option<&[u8]>) -> Option<Self> {
        match choice {
            Some(br#""none""#) => None,
            Some(br#""required""#) => Some(Self::Required),
            Some(choice) if chosen(choice).is_some() => Some(Self::Required),
            _ => Some(Self::Auto),
        }
    }
}

impl Tools {
    /// Reads `tools` and `tool_choice`, both as JSON text.
    ///
    /// `None` when there is nothing to judge calls by: no function is offered, calls are not wanted, or the members
    /// are not what the protocol says. The engine's verdict on those is the client's answer.
    pub fn read(tools: &[u8], choice: Option<&[u8]>) -> Option<Self> {
        let tools: Vec<Tool<'_>> = serde_json::from_slice(tools).ok()?;
        let chosen = choice.and_then(chosen);
        let mut left = MAX_TOGETHER;
        let functions = tools.into_iter().filter_map(|tool| tool.function);
        let functions: Vec<Function> = functions
            .filter(|function| chosen.as_ref().is_none_or(|name| *name == function.name))
            .map(|function| {
                let schema = function.parameters.and_then(|raw| serde_json::from_str(raw.get()).ok());
                let parameters = schema.and_then(|schema: Value| flatten_within(&schema, &mut left).ok());
                Function { name: function.name, parameters }
            })
            .collect();
        let choice = Choice::read(choice)?;
        (!functions.is_empty()).then_some(Self { functions, choice })
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}

/// The name in `{"type":"function","function":{"name":…}}`.
fn chosen(choice: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        function: Name,
    }
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    serde_json::from_slice::<Named>(choice).ok().map(|named| named.function.name)
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow)]
    function: Option<WireFunction<'a>>,
}

#[derive(Deserialize)]
struct WireFunction<'a> {
    name: String,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
}
