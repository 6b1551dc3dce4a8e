//! The JSON Schema engine.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use gglib_core::repair::{Mismatch, MismatchKind, SchemaError, Schemas};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// The largest regular expression, compiled, in bytes. The engine that is used takes linear time.
const PATTERN_SIZE: usize = 1024 * 1024;

/// The largest that those of one schema may be together: the time to compile them goes with their size.
const PATTERNS_SIZE: usize = 4 * PATTERN_SIZE;

/// The most of them: also the smallest takes its time.
const MAX_PATTERNS: usize = 128;

/// Judges by the crate `jsonschema`, without a network and with bounds on regular expressions. Each schema is compiled
/// once, however many values it is asked for.
#[derive(Debug, Default)]
pub(crate) struct JsonSchema {
    compiled: Mutex<Vec<(Value, Compiled)>>,
}

type Compiled = Result<Arc<Validator>, SchemaError>;

impl JsonSchema {
    fn compiled(&self, schema: &Value) -> Compiled {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = compiled.iter().find(|(known, _)| known == schema) {
            return known.clone();
        }
        let new = compile(schema).map(Arc::new);
        compiled.push((schema.clone(), new.clone()));
        new
    }
}

impl Schemas for JsonSchema {
    fn mismatches(&self, schema: &Value, instance: &Value) -> Result<Vec<Mismatch>, SchemaError> {
        Ok(self
            .compiled(schema)?
            .iter_errors(instance)
            .map(|error| mismatch(error.kind(), error.instance_path().as_str()))
            .collect())
    }
}

fn compile(schema: &Value) -> Result<Validator, SchemaError> {
    let mut patterns = BTreeSet::new();
    collect_patterns(schema, &mut patterns);
    if patterns.len() > MAX_PATTERNS {
        return Err(SchemaError::Invalid(format!("more than {MAX_PATTERNS} patterns")));
    }
    let size = PATTERN_SIZE.min(PATTERNS_SIZE / patterns.len().max(1));
    jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(size))
        .build(schema)
        .map_err(|error| SchemaError::Invalid(error.to_string()))
}

/// The regular expressions in `schema`, each once, as it is compiled once. Values that only look like them count too.
fn collect_patterns<'a>(schema: &'a Value, patterns: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| collect_patterns(item, patterns)),
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), value) {
                    ("pattern", Value::String(pattern)) => drop(patterns.insert(pattern)),
                    ("patternProperties", Value::Object(schemas)) => {
                        patterns.extend(schemas.keys().map(String::as_str));
                    }
                    _ => {}
                }
                collect_patterns(value, patterns);
            }
        }
        _ => {}
    }
}

fn mismatch(kind: &ValidationErrorKind, path: &str) -> Mismatch {
    let member = |name: &str| format!("{path}/{name}");
    let (kind, at) = match kind {
        ValidationErrorKind::Required { property } => {
            (MismatchKind::Missing, member(property.as_str().unwrap_or_default()))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            (MismatchKind::Extra, member(unexpected.first().map_or("", String::as_str)))
        }
        ValidationErrorKind::FalseSchema => (MismatchKind::Extra, path.to_owned()),
        ValidationErrorKind::Type { .. } => (MismatchKind::Mistyped, path.to_owned()),
        _ => (MismatchKind::Invalid, path.to_owned()),
    };
    Mismatch { kind, at }
}

#[cfg(test)]
mod tests {
    use gglib_core::repair::flatten;
    use serde_json::json;

    use super::*;

    /// What differs, in short.
    fn check(schema: &Value, instance: &Value) -> String {
        match JsonSchema::default().mismatches(&flatten(schema).unwrap(), instance) {
            Ok(found) => {
                let all: Vec<String> =
                    found.iter().map(|found| format!("{:?} {}", found.kind, found.at)).collect();
                all.join(", ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn mismatches_are_told_by_kind_and_place() {
        let schema = json!({
            "type": "object",
            "properties": {
                "unit": { "$ref": "#/$defs/unit" },
                "days": { "type": "integer", "minimum": 1, "maximum": 5 },
                "spot": { "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"] },
                "when": { "type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$" },
                "big": { "const": 18_446_744_073_709_551_615_u64 },
            },
            "required": ["unit"],
            "additionalProperties": false,
            "$defs": { "unit": { "enum": ["c", "f"] } },
        });
        let table = [
            (json!({ "unit": "c", "days": 5, "spot": { "x": 1.5 }, "when": "09:00" }), ""),
            (json!({}), "Missing /unit"),
            (json!({ "unit": "F" }), "Invalid /unit"),
            (json!({ "unit": "c", "land": 1 }), "Extra /land"),
            (json!({ "unit": "c", "days": "2" }), "Mistyped /days"),
            (json!({ "unit": "c", "days": 6 }), "Invalid /days"),
            (json!({ "unit": "c", "days": 1.5 }), "Mistyped /days"),
            (json!({ "unit": "c", "spot": {} }), "Missing /spot/x"),
            (json!({ "unit": "c", "when": "9:00" }), "Invalid /when"),
            (json!({ "unit": "c", "big": 18_446_744_073_709_551_615_u64 }), ""),
        ];
        for (instance, expected) in table {
            assert_eq!(check(&schema, &instance), expected, "{instance}");
        }
    }

    #[test]
    fn what_is_no_schema_says_so_instead_of_judging() {
        let invalid = [
            json!({ "type": "nonsense" }),
            json!({ "properties": 3 }),
            json!({ "pattern": "(" }),
            json!({ "pattern": "(?=x)" }),
            json!({ "pattern": "(a{1000}){1000}" }),
            json!({ "$schema": "https://example.com/none" }),
        ];
        for schema in invalid {
            assert!(check(&schema, &json!({ "a": "x" })).starts_with("not a JSON Schema: "), "{schema}");
        }
    }

    #[test]
    fn patterns_are_bounded_together() {
        let of = |count: usize, pattern: &str| {
            let all = (0..count).map(|number| json!({ "pattern": format!("{pattern}|{number}") }));
            json!({ "anyOf": all.collect::<Value>(), "patternProperties": { "a": true } })
        };
        // Each of them takes more than 400 kB.
        let large = r"\p{L}{18}";
        assert_eq!(check(&of(4, large), &json!("abc")), "Invalid ");
        assert!(check(&of(20, large), &json!("abc")).starts_with("not a JSON Schema: "));
        assert_eq!(check(&of(127, "^[a-z]+$"), &json!("ABC")), "Invalid ");
        let many = check(&of(128, "^[a-z]+$"), &json!("ABC"));
        assert_eq!(many, "not a JSON Schema: more than 128 patterns");
        // One and the same is one.
        let same = vec![json!({ "pattern": large }); 1000];
        assert_eq!(check(&json!({ "anyOf": same }), &json!("abc")), "Invalid ");
    }

    #[test]
    fn a_schema_is_compiled_once() {
        let schemas = JsonSchema::default();
        let (good, bad) = (json!({ "type": "string" }), json!({ "type": "nonsense" }));
        for instance in [json!(1), json!("a"), json!(null)] {
            let mismatches = schemas.mismatches(&good, &instance).unwrap();
            assert_eq!(mismatches.is_empty(), instance.is_string());
            assert!(schemas.mismatches(&bad, &instance).is_err());
        }
        assert_eq!(schemas.compiled.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_pattern_that_makes_others_backtrack_takes_no_time() {
        let schema = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } });
        assert_eq!(check(&schema, &json!({ "a": "a".repeat(5000) + "!" })), "Invalid /a");
    }
}
