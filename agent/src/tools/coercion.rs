//! Coercion of a model's arguments to the schema of a tool, where the meaning is unambiguous. Pure.
//!
//! Small models write numbers as text, names in another case, and JSON within a text. What has more
//! than one meaning stays as it is, and the tool's parser rejects it with a reason.

use serde_json::{Map, Number, Value};

/// Coerces `value` to `schema` as far as the meaning is unambiguous.
pub(super) fn coerce(value: &mut Value, schema: &Value) {
    if let Some(names) = schema["enum"].as_array() {
        return coerce_name(value, names);
    }
    match schema["type"].as_str() {
        Some("object") => {
            open_encoded(value, Value::is_object);
            if let Value::Object(fields) = value {
                coerce_fields(fields, schema);
            }
        }
        Some("array") => {
            open_encoded(value, Value::is_array);
            value.as_array_mut().into_iter().flatten().for_each(|item| coerce(item, &schema["items"]));
        }
        Some("integer") => {
            let number = match &*value {
                Value::String(text) => integer(text),
                Value::Number(number) => whole(number),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
            };
            replace(value, number.map(Value::Number));
        }
        Some("boolean") => {
            let text = value.as_str().unwrap_or_default().trim().to_ascii_lowercase();
            replace(value, text.parse().ok().map(Value::Bool));
        }
        Some("string") => {
            let text = match &*value {
                // A fraction may have been written in several ways.
                Value::Number(number) if !number.is_f64() => Some(number.to_string()),
                Value::Bool(is_true) => Some(is_true.to_string()),
                Value::Number(_) | Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
            };
            replace(value, text.map(Value::String));
        }
        Some(_) | None => {}
    }
}

/// Coerces the fields that the schema names. An optional field that is `null` is absent.
fn coerce_fields(fields: &mut Map<String, Value>, schema: &Value) {
    let is_required = |name: &str| schema["required"].as_array().into_iter().flatten().any(|field| field == name);
    fields.retain(|name, value| !value.is_null() || is_required(name) || schema["properties"][name].is_null());
    for (name, value) in fields {
        coerce(value, &schema["properties"][name]);
    }
}

/// Replaces a text by the JSON value in it, if the value has the right shape.
fn open_encoded(value: &mut Value, is_right: fn(&Value) -> bool) {
    let inner = value.as_str().and_then(|text| serde_json::from_str(text).ok()).filter(is_right);
    replace(value, inner);
}

/// Replaces a name by the only one that differs in case.
fn coerce_name(value: &mut Value, names: &[Value]) {
    if let Some(text) = value.as_str()
        && !names.iter().any(|name| name == text)
    {
        let text = text.trim();
        let mut same = names.iter().filter(|name| name.as_str().is_some_and(|name| name.eq_ignore_ascii_case(text)));
        if let (Some(name), None) = (same.next(), same.next()) {
            *value = name.clone();
        }
    }
}

fn integer(text: &str) -> Option<Number> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match digits.strip_suffix(".0").unwrap_or(digits) {
        whole if !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.strip_suffix(".0").unwrap_or(text).parse::<i64>().ok().map(Number::from)
        }
        _ => None,
    }
}

/// Returns a number without its fraction, if the fraction is 0.
fn whole(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15)?;
    Some(Number::from(float as i64))
}

fn replace(value: &mut Value, with: Option<Value>) {
    if let Some(with) = with {
        *value = with;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "text": { "type": "string" },
                "line": { "type": "integer" },
                "flag": { "type": "boolean" },
                "change": { "type": "string", "enum": ["REPLACE", "INSERT"] },
                "lines": { "type": "array", "items": { "type": "string" } },
                "inner": { "type": "object", "properties": { "line": { "type": "integer" } } },
            },
            "required": ["text"],
        })
    }

    fn check(field: &str, written: Value, expected: Value) {
        let mut value = json!({ field: written });
        coerce(&mut value, &schema());
        assert_eq!(value, json!({ field: expected }));
    }

    #[test]
    fn unambiguous_values_are_coerced() {
        check("line", json!("2"), json!(2));
        check("line", json!(" 12 "), json!(12));
        check("line", json!("2.0"), json!(2));
        check("line", json!(2.0), json!(2));
        check("line", json!("-1"), json!(-1));
        check("flag", json!("True"), json!(true));
        check("flag", json!("false"), json!(false));
        check("change", json!("replace"), json!("REPLACE"));
        check("change", json!(" Insert"), json!("INSERT"));
        check("text", json!(42), json!("42"));
        check("text", json!(true), json!("true"));
        check("lines", json!("[\"a\", 1]"), json!(["a", "1"]));
        check("inner", json!("{\"line\": \"3\"}"), json!({ "line": 3 }));
    }

    #[test]
    fn ambiguous_or_fitting_values_stay() {
        for (field, value) in [
            ("line", json!("2a")),
            ("line", json!("1e3")),
            ("line", json!("")),
            ("line", json!(2.5)),
            ("flag", json!("yes")),
            ("change", json!("rep")),
            ("change", json!("INSERT")),
            ("text", json!("2")),
            ("text", json!(1.10)),
            ("text", json!({ "a": 1 })),
            ("lines", json!("a\nb")),
            ("lines", json!("{}")),
            ("unknown", json!("2")),
            ("unknown", Value::Null),
        ] {
            check(field, value.clone(), value);
        }
    }

    #[test]
    fn optional_null_is_absent() {
        let mut value = json!({ "text": null, "line": null });
        coerce(&mut value, &schema());
        assert_eq!(value, json!({ "text": null }));
    }

    proptest! {
        #[test]
        fn fitting_arguments_never_change(
            text in ".{0,20}", line: i64, flag: bool, insert: bool, lines in proptest::collection::vec("[^\u{0}]{0,9}", 0..4)
        ) {
            let change = if insert { "INSERT" } else { "REPLACE" };
            let value = json!({
                "text": text, "line": line, "flag": flag, "change": change, "lines": lines, "inner": { "line": line },
            });
            let mut coerced = value.clone();
            coerce(&mut coerced, &schema());
            prop_assert_eq!(coerced, value);
        }
    }
}
