//! How two values of one member become one.

use serde_json::{Map, Value};

/// The last value that is not null wins; a null only takes an empty place.
pub(super) fn keep_last(members: &mut Map<String, Value>, name: String, value: Value) {
    if !value.is_null() || !members.contains_key(&name) {
        members.insert(name, value);
    }
}

/// The first value that says something wins, for what servers repeat or blank out in later fragments.
pub(super) fn keep_first(members: &mut Map<String, Value>, name: String, value: Value) {
    if members.get(&name).is_none_or(is_blank) {
        keep_last(members, name, value);
    }
}

/// Whether a value says nothing.
pub(super) fn is_blank(value: &Value) -> bool {
    value.is_null() || value == ""
}

/// Strings and arrays are increments; anything else as [`keep_last`].
pub(super) fn append(members: &mut Map<String, Value>, name: String, value: Value) {
    match (members.get_mut(&name), value) {
        (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
        (_, value) => extend(members, name, value),
    }
}

/// Arrays are increments; anything else as [`keep_last`].
pub(super) fn extend(members: &mut Map<String, Value>, name: String, value: Value) {
    match (members.get_mut(&name), value) {
        (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
        (_, value) => keep_last(members, name, value),
    }
}

/// The object under `name`, made if there is none.
pub(super) fn object<'a>(members: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let slot = members.entry(name).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("made an object above")
}
