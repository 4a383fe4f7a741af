//! Lenient parser of a tool call's arguments.

use serde_json::Value;

/// Reads the arguments of a tool call.
///
/// Reads what has one meaning only: JSON inside a JSON string, an empty object before the real one,
/// raw line breaks inside strings. An empty text is an empty object.
///
/// # Errors
/// Returns the parser's words, with line and column.
pub fn parse(text: &str) -> Result<Value, String> {
    todo!("{text}")
}
