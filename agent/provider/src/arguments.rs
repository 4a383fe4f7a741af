//! Lenient parser of a tool call's arguments.

use serde_json::{Deserializer, Map, Value};

/// Number of JSON strings inside each other that are opened.
const ENCODING_LIMIT: usize = 4;

/// Reads the arguments of a tool call.
///
/// Reads what has one meaning only: JSON inside a JSON string, an empty object before the real one,
/// raw line breaks inside strings. An empty text and `null` are an empty object.
///
/// # Errors
/// Returns the parser's words, with line and column.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut value = parse_once(text)?;
    for _ in 1..ENCODING_LIMIT {
        match value {
            Value::String(inner) => value = parse_once(&inner)?,
            Value::Null => return Ok(Value::Object(Map::new())),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => break,
        }
    }
    match value {
        Value::Object(_) => Ok(value),
        other => Err(format!("expected an object, found {}", shape(&other))),
    }
}

fn parse_once(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    let error = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let repaired = repeated_value(text).or_else(|| {
        let escaped = escape_control_characters(text);
        serde_json::from_str(&escaped).ok().or_else(|| repeated_value(&escaped))
    });
    repaired.ok_or_else(|| error.to_string())
}

/// Reads several values in a row that mean one: equal values, and empty objects beside them.
fn repeated_value(text: &str) -> Option<Value> {
    let values: Vec<Value> = Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()?;
    let mut full = values.into_iter().filter(|value| value.as_object().is_none_or(|object| !object.is_empty()));
    let first = full.next().unwrap_or_else(|| Value::Object(Map::new()));
    full.all(|value| value == first).then_some(first)
}

/// Escapes the control characters inside strings, which JSON forbids there.
fn escape_control_characters(text: &str) -> String {
    let (mut escaped, mut in_string, mut after_backslash) = (String::with_capacity(text.len() + 16), false, false);
    for character in text.chars() {
        if in_string && character.is_ascii_control() && character != '\u{7f}' {
            // The backslash before a raw line break escapes nothing, so it stands for itself.
            if after_backslash {
                escaped.push('\\');
            }
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            after_backslash = false;
            continue;
        }
        if character == '"' && !after_backslash {
            in_string = !in_string;
        }
        after_backslash = in_string && character == '\\' && !after_backslash;
        escaped.push(character);
    }
    escaped
}

fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(text: &str, expected: Value) {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }

    #[test]
    fn one_meaning_is_read() {
        let command = || json!({ "command": "echo hi" });
        let plain = command().to_string();
        check(&plain, command());
        check(&json!(plain).to_string(), command());
        check(&json!(json!(plain).to_string()).to_string(), command());
        check(&format!("{{}}{plain}"), command());
        check(&format!("{{}} \n{{}}{plain}"), command());
        check(&format!("{plain}{plain}"), command());
        check(&json!(format!("{{}}{plain}")).to_string(), command());
        for empty in ["", " \n", "{}", "{}{}", "null", r#""""#, r#""{}""#] {
            check(empty, json!({}));
        }
    }

    #[test]
    fn raw_control_characters_in_strings_are_read() {
        check("{\"command\": \"one\ntwo\r\n\tthree\"}", json!({ "command": "one\ntwo\r\n\tthree" }));
        check("{}{\"command\":\n\"one\ntwo\"}", json!({ "command": "one\ntwo" }));
        check("{\"a\": \"quoted \\\" and\n\"}", json!({ "a": "quoted \" and\n" }));
        check("{\"a\": \"one \\\ntwo\"}", json!({ "a": "one \\\ntwo" }));
        check(&json!("{\"a\": \"one\ntwo\"}").to_string(), json!({ "a": "one\ntwo" }));
        check("\"{\\\"a\\\": \\\"one\ntwo\\\"}\"", json!({ "a": "one\ntwo" }));
    }

    #[test]
    fn other_texts_return_position_or_shape() {
        let check = |text: &str, expected: &str| assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        check("{\"comm", "EOF while parsing a string at line 1 column 6");
        check("{\"a\": 1,\n \"b\": oops}", "expected value at line 2 column 7");
        check("{\"a\":1}{\"a\":2}", "trailing characters at line 1 column 8");
        check("[1]", "expected an object, found an array");
        check("7", "expected an object, found a number");
        check("\"ls\"", "expected value at line 1 column 1");
    }

    fn arguments() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            "[ -~\\n\\r\\t\"\\\\ä{}]{0,12}".prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z{}\"]{1,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        proptest::collection::btree_map("[a-z]{1,6}", value, 1..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn any_encoding_of_arguments_reads_as_the_same(value in arguments(), encodings in 0usize..3, empty in 0usize..3, raw: bool) {
            let mut text = value.to_string();
            if raw {
                // Only unescaped line breaks differ: `\\n` is a backslash and a letter.
                text = text.replace("\\\\", "\u{1}").replace("\\n", "\n").replace("\\t", "\t").replace('\u{1}', "\\\\");
            }
            text = "{}".repeat(empty) + &text;
            for _ in 0..encodings {
                text = json!(text).to_string();
            }
            prop_assert_eq!(parse(&text), Ok(value));
        }

        #[test]
        fn any_text_is_read_or_rejected_without_panic(text in "[\\[\\]{}\":,a1\\\\\\n ]{0,40}") {
            let _ = parse(&text);
        }
    }
}
