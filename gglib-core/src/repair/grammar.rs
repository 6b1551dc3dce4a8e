//! From JSON Schema to a grammar in llama.cpp's notation (GBNF), for the schemas that tools have.
//!
//! What the grammar allows is JSON, without free whitespace, and for the common keywords also what the schema asks
//! for: objects with their required members, enumerations, the primitive types, arrays, alternatives. What it cannot
//! say (patterns, formats, most bounds) is left open, and a schema that it does not know at all allows any JSON.
//! The answer is judged afterwards either way.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::raw::{CLOSE, OPEN};
use super::tools::Function;

/// Rules that may be made of schemas; anything beyond is any JSON.
const MAX_RULES: usize = 1000;

/// Members of one object that are written out: each that may be left out nests the grammar a level deeper.
const MAX_MEMBERS: usize = 200;

/// The longest range of integers that is written out number by number.
const MAX_RANGE: i64 = 64;

/// Strings and lists with higher bounds than this have none: the engine writes repetitions out.
const MAX_REPETITION: u64 = 256;

/// The types that a schema can name (JSON Schema Validation, §6.1.1).
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

const JSON_RULES: &str = r#"value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (string ":" value ("," string ":" value)*)? "}"
array ::= "[" (value ("," value)*)? "]"
string ::= "\"" char* "\""
char ::= [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
integer ::= "-"? natural
natural ::= "0" | [1-9] [0-9]{0,15}
number ::= integer ("." [0-9]{1,16})?
boolean ::= "true" | "false"
"#;

/// A grammar of as many calls as there are items in `calls`, each of one of the functions there.
pub(super) fn of_calls(calls: &[&[Function]]) -> String {
    let mut grammar = Grammar::default();
    let calls: Vec<String> = calls
        .iter()
        .map(|functions| {
            let calls: Vec<String> = functions.iter().map(|function| grammar.call(function)).collect();
            grammar.rule(&calls.join(" | "))
        })
        .collect();
    format!("root ::= {}\n{JSON_RULES}{}", calls.join(r#" "\n" "#), grammar.rules)
}

#[derive(Default)]
struct Grammar {
    rules: String,
    count: usize,
}

impl Grammar {
    /// Adds a rule and returns its name.
    fn rule(&mut self, body: &str) -> String {
        self.count += 1;
        let name = format!("r{}", self.count);
        // Writing to a string does not fail.
        let _ = writeln!(self.rules, "{name} ::= {body}");
        name
    }

    fn call(&mut self, function: &Function) -> String {
        let arguments = match &function.parameters {
            Some(schema @ Value::Object(members)) if is_object(members) => self.schema(schema),
            _ => "object".to_owned(),
        };
        let before = format!("{OPEN}{{\"name\":{},\"arguments\":", Value::from(function.name.as_str()));
        format!("{} {arguments} {}", literal(&before), literal(&format!("}}{CLOSE}")))
    }

    /// The name of a rule for `schema`.
    fn schema(&mut self, schema: &Value) -> String {
        let Value::Object(schema) = schema else { return "value".to_owned() };
        if self.count >= MAX_RULES {
            return "value".to_owned();
        }
        if let Some(value) = schema.get("const") {
            return self.rule(&literal(&value.to_string()));
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty())
        {
            let values: Vec<String> = values.iter().map(|value| literal(&value.to_string())).collect();
            return self.rule(&values.join(" | "));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(schemas)) = schema.get(keyword) {
                return self.alternatives(schemas);
            }
        }
        if let Some(Value::Array(schemas)) = schema.get("allOf") {
            return match &schemas[..] {
                [only] if !schema.contains_key("properties") => self.schema(only),
                _ => "value".to_owned(),
            };
        }
        match schema.get("type") {
            Some(Value::Array(types)) => {
                // Each once, however long the list is.
                let mut kinds: Vec<&str> = Vec::with_capacity(TYPES.len());
                for kind in types.iter().filter_map(Value::as_str) {
                    if TYPES.contains(&kind) && !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                }
                let rules: Vec<String> = kinds.into_iter().map(|kind| self.of_type(kind, schema)).collect();
                self.one_of(&rules)
            }
            Some(Value::String(kind)) => self.of_type(kind, schema),
            _ if is_object(schema) => self.object(schema),
            _ => "value".to_owned(),
        }
    }

    fn of_type(&mut self, kind: &str, schema: &Map<String, Value>) -> String {
        match kind {
            "object" => self.object(schema),
            "array" => self.array(schema),
            "string" => self.string(schema),
            "integer" => self.integer(schema),
            "number" | "boolean" => kind.to_owned(),
            "null" => self.rule(&literal("null")),
            _ => "value".to_owned(),
        }
    }

    fn alternatives(&mut self, schemas: &[Value]) -> String {
        let rules: Vec<String> = schemas.iter().map(|schema| self.schema(schema)).collect();
        self.one_of(&rules)
    }

    fn one_of(&mut self, rules: &[String]) -> String {
        if rules.is_empty() { "value".to_owned() } else { self.rule(&rules.join(" | ")) }
    }

    /// The required members in the order of `properties`, then any of the others in theirs.
    fn object(&mut self, schema: &Map<String, Value>) -> String {
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if properties.len() > MAX_MEMBERS || required.len() > MAX_MEMBERS {
            return "object".to_owned();
        }
        if properties.is_empty() && required.is_empty() {
            return if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
                self.rule(&literal("{}"))
            } else {
                "object".to_owned()
            };
        }
        let mut member = |name: &str, schema: &Value| {
            let value = self.schema(schema);
            format!("{} {value}", literal(&format!("{}:", Value::from(name))))
        };
        let (mut due, mut free) = (Vec::new(), Vec::new());
        for (name, schema) in properties {
            let list = if required.contains(&name.as_str()) { &mut due } else { &mut free };
            list.push(member(name, schema));
        }
        let unnamed = required.iter().filter(|name| !properties.contains_key(**name));
        due.extend(unnamed.map(|name| member(name, &Value::Bool(true))));

        // A tail is what may follow once a member stands there, a head what may stand there without one before.
        let mut tail = String::new();
        let mut head = String::new();
        for member in free.iter().rev() {
            let first = if tail.is_empty() { member.clone() } else { format!("{member} {tail}") };
            head = if head.is_empty() { first } else { self.rule(&format!("{first} | {head}")) };
            tail = self.rule(&format!("(\",\" {member})? {tail}"));
        }
        if due.is_empty() {
            return self.rule(&format!("\"{{\" ({head})? \"}}\""));
        }
        self.rule(&format!("\"{{\" {} {tail} \"}}\"", due.join(" \",\" ")))
    }

    fn array(&mut self, schema: &Map<String, Value>) -> String {
        if schema.contains_key("prefixItems") {
            return "array".to_owned();
        }
        let item = schema.get("items").map_or_else(|| "value".to_owned(), |item| self.schema(item));
        let (least, most) = bounds(schema, "minItems", "maxItems");
        if most == Some(0) {
            return self.rule(&literal("[]"));
        }
        let more = repetition(least.saturating_sub(1), most.map(|most| most - 1));
        let optional = if least == 0 { "?" } else { "" };
        self.rule(&format!("\"[\" ({item} (\",\" {item}){more}){optional} \"]\""))
    }

    fn string(&mut self, schema: &Map<String, Value>) -> String {
        match bounds(schema, "minLength", "maxLength") {
            (0, None) => "string".to_owned(),
            (least, most) => self.rule(&format!(r#""\"" char{} "\"""#, repetition(least, most))),
        }
    }

    fn integer(&mut self, schema: &Map<String, Value>) -> String {
        let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
        let least = bound("minimum").or(bound("exclusiveMinimum").map(|bound| bound.saturating_add(1)));
        let most = bound("maximum").or(bound("exclusiveMaximum").map(|bound| bound.saturating_sub(1)));
        match (least, most) {
            (Some(least), Some(most)) if least <= most && most.saturating_sub(least) < MAX_RANGE => {
                let numbers: Vec<String> =
                    (least..=most).map(|number| literal(&number.to_string())).collect();
                self.rule(&numbers.join(" | "))
            }
            (Some(0..), _) => "natural".to_owned(),
            _ => "integer".to_owned(),
        }
    }
}

fn is_object(schema: &Map<String, Value>) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object") || schema.contains_key("properties")
}

/// Two bounds of a length; those too high to be written out are left open.
fn bounds(schema: &Map<String, Value>, least: &str, most: &str) -> (u64, Option<u64>) {
    let bound =
        |name: &str| schema.get(name).and_then(Value::as_u64).filter(|bound| *bound <= MAX_REPETITION);
    let (least, most) = (bound(least).unwrap_or(0), bound(most));
    (least, most.filter(|most| *most >= least))
}

fn repetition(least: u64, most: Option<u64>) -> String {
    match (least, most) {
        (0, None) => "*".to_owned(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// Text as a literal of the grammar.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
