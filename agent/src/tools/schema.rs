//! Parts of the JSON schemas that describe the tools' arguments to a model.

use serde_json::{Value, json};

/// Returns the schema of an object.
pub(super) fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

pub(super) fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

pub(super) fn number(about: &str) -> Value {
    json!({ "type": "integer", "description": about })
}

pub(super) fn path() -> Value {
    text("Relative to the working directory, or absolute.")
}

/// Returns the fields of an object's schema, for an error message.
pub(super) fn fields(object: &Value) -> String {
    let names = object["properties"].as_object().into_iter().flatten().map(|(name, _)| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}
