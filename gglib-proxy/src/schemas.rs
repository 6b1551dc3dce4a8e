//! The JSON Schema engine.

use gglib_core::repair::{Mismatch, MismatchKind, SchemaError, Schemas};
use jsonschema::PatternOptions;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// The largest regular expression, compiled, in bytes. The engine that is used takes linear time.
const PATTERN_SIZE: usize = 1024 * 1024;

/// Judges by the crate `jsonschema`, without a network and with bounds on regular expressions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonSchema;

impl Schemas for JsonSchema {
    fn mismatches(&self, schema: &Value, instance: &Value) -> Result<Vec<Mismatch>, SchemaError> {
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_SIZE))
            .build(schema)
            .map_err(|error| SchemaError::Invalid(error.to_string()))?;
        Ok(validator
            .iter_errors(instance)
            .map(|error| mismatch(error.kind(), error.instance_path().as_str()))
            .collect())
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
        match JsonSchema.mismatches(&flatten(schema).unwrap(), instance) {
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
    fn a_pattern_that_makes_others_backtrack_takes_no_time() {
        let schema = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } });
        assert_eq!(check(&schema, &json!({ "a": "a".repeat(5000) + "!" })), "Invalid /a");
    }
}
