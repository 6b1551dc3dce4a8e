//! The port of the JSON Schema engine, and schemas made safe for it.

use serde_json::{Map, Value};
use thiserror::Error;

/// A JSON Schema engine.
///
/// It is given schemas that [`flatten`] has passed: without references, and of bounded size.
pub trait Schemas: Send + Sync {
    /// How `instance` differs from what `schema` asks for; nothing when it is valid.
    ///
    /// # Errors
    /// [`SchemaError::Invalid`] when the schema is none. Nothing can then be said about the instance.
    fn mismatches(&self, schema: &Value, instance: &Value) -> Result<Vec<Mismatch>, SchemaError>;
}

/// One difference between a value and its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What it is.
    pub kind: MismatchKind,
    /// Where: a JSON pointer (RFC 6901) into the value, of a missing or surplus member the pointer to it.
    pub at: String,
}

/// How a value can differ from its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MismatchKind {
    /// A required member is not there.
    Missing,
    /// A member is there that the schema does not allow.
    Extra,
    /// The value has another type.
    Mistyped,
    /// The type is right and the value is not: not in the list, out of range, of another pattern.
    Invalid,
}

/// Why a schema cannot be used. Arguments are then not judged by it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// A reference that leads out of the schema, or to a place by name.
    #[error("a reference to `{0}`: only pointers into the same schema are followed")]
    Reference(String),
    /// The schema contains itself, so that written out it would have no end.
    #[error("the schema refers to itself")]
    Recursive,
    /// Written out, the schema is longer or deeper than the limits.
    #[error(
        "the schema is longer than {MAX_LENGTH} bytes or deeper than {MAX_DEPTH} levels when written out"
    )]
    TooLarge,
    /// The engine rejects it.
    #[error("not a JSON Schema: {0}")]
    Invalid(String),
}

/// The longest schema when written out, in bytes.
const MAX_LENGTH: usize = 256 * 1024;

/// The longest that the schemas of one request may be together, in bytes: each can be short and refer a lot.
pub(super) const MAX_TOGETHER: usize = 1024 * 1024;

/// The deepest nesting of a schema.
const MAX_DEPTH: usize = 48;

/// Keywords whose value is a schema, or a list of schemas (`items` may be either).
const APPLICATORS: [&str; 16] = [
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];

/// Keywords whose value holds schemas by name.
const MAPS: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// The schema with each `$ref` replaced by what it refers to.
///
/// Clients choose schemas, so these must not be able to fetch anything, nor to cost more than their length says:
/// references out of the schema are refused, and so is one that contains itself, because checking it can take
/// exponential time. What is left is checked in time proportional to the schema and the value.
///
/// # Errors
/// [`SchemaError`], of every kind but [`Invalid`](SchemaError::Invalid).
///
/// ```
/// use gglib_core::repair::flatten;
/// use serde_json::json;
///
/// let schema = json!({
///     "properties": { "city": { "$ref": "#/$defs/name", "title": "City" } },
///     "$defs": { "name": { "type": "string" } },
/// });
/// assert_eq!(
///     flatten(&schema)?,
///     json!({ "properties": { "city": { "title": "City", "allOf": [{ "type": "string" }] } } }),
/// );
/// # Ok::<(), gglib_core::repair::SchemaError>(())
/// ```
pub fn flatten(schema: &Value) -> Result<Value, SchemaError> {
    let mut left = MAX_LENGTH;
    flatten_within(schema, &mut left)
}

/// [`flatten`], at the expense of the bytes that are `left` for this schema and others.
pub(super) fn flatten_within(schema: &Value, left: &mut usize) -> Result<Value, SchemaError> {
    let room = MAX_LENGTH.min(*left);
    let mut flattening = Flattening { root: schema, open: Vec::new(), room };
    let flat = flattening.schema(schema, 0);
    *left -= room - flattening.room;
    flat
}

struct Flattening<'a> {
    root: &'a Value,
    /// The references that are being followed.
    open: Vec<&'a str>,
    /// How much more may be written, in bytes.
    room: usize,
}

impl<'a> Flattening<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<Value, SchemaError> {
        // Its brackets: also one without members takes place, and lists of them can be referred to again and again.
        self.spend(2)?;
        let Value::Object(members) = schema else { return self.copy(schema) };
        if depth > MAX_DEPTH {
            return Err(SchemaError::TooLarge);
        }
        let mut out = Map::new();
        let mut target = None;
        for (name, value) in members {
            self.spend(name.len() + 4)?;
            let value = match name.as_str() {
                "$defs" | "definitions" => continue,
                "$ref" => {
                    target = Some(self.follow(value, depth)?);
                    continue;
                }
                "$dynamicRef" | "$recursiveRef" => return Err(SchemaError::Recursive),
                name if APPLICATORS.contains(&name) => self.one_or_list(value, depth + 1)?,
                name if MAPS.contains(&name) => self.map(value, depth + 1)?,
                _ => self.copy(value)?,
            };
            out.insert(name.clone(), value);
        }
        match target {
            None => Ok(out.into()),
            Some(target) if out.is_empty() => Ok(target),
            Some(target) => {
                let all = out.entry("allOf").or_insert_with(|| Value::Array(Vec::new()));
                all.as_array_mut().ok_or(SchemaError::TooLarge)?.push(target);
                Ok(out.into())
            }
        }
    }

    fn follow(&mut self, reference: &'a Value, depth: usize) -> Result<Value, SchemaError> {
        let unknown = || SchemaError::Reference(reference.to_string());
        let reference = reference.as_str().ok_or_else(unknown)?;
        if self.open.contains(&reference) {
            return Err(SchemaError::Recursive);
        }
        // It is looked up each time that it is met.
        self.spend(reference.len())?;
        let pointer = reference.strip_prefix('#').ok_or_else(unknown)?;
        let target = self.root.pointer(pointer).ok_or_else(unknown)?;
        self.open.push(reference);
        let target = self.schema(target, depth + 1)?;
        self.open.pop();
        Ok(target)
    }

    fn one_or_list(&mut self, value: &'a Value, depth: usize) -> Result<Value, SchemaError> {
        match value {
            Value::Array(schemas) => schemas.iter().map(|schema| self.schema(schema, depth)).collect(),
            schema => self.schema(schema, depth),
        }
    }

    fn map(&mut self, value: &'a Value, depth: usize) -> Result<Value, SchemaError> {
        let Value::Object(schemas) = value else { return self.copy(value) };
        let mut out = Map::new();
        for (name, schema) in schemas {
            self.spend(name.len() + 4)?;
            out.insert(name.clone(), self.schema(schema, depth)?);
        }
        Ok(out.into())
    }

    fn copy(&mut self, value: &Value) -> Result<Value, SchemaError> {
        self.spend(value.to_string().len())?;
        Ok(value.clone())
    }

    fn spend(&mut self, length: usize) -> Result<(), SchemaError> {
        self.room = self.room.checked_sub(length).ok_or(SchemaError::TooLarge)?;
        Ok(())
    }
}
