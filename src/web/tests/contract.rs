//! Check of the application's answers against the OpenAPI document. The fixture applies it to every
//! answer of every test.

use std::sync::LazyLock;

use actix_web::http::Method;
use jsonschema::Validator;
use serde_json::{Value, json};

use super::fixture::ApiReply;
use crate::web::openapi;

static DOCUMENT: LazyLock<Value> = LazyLock::new(openapi::build);

/// Checks an answer: the document lists its status, its content type and the shape of its body.
/// Addresses and methods that the document does not list pass.
///
/// # Panics
/// If the answer differs from the document.
pub(super) fn check_reply(method: &Method, path: &str, reply: &ApiReply) {
    let Some((template, operation)) = operation(method, path) else { return };
    // A person in a browser gets an error as a page, which the document of the API does not list.
    if reply.status.is_client_error() && reply.header("content-type").starts_with("text/html") {
        return;
    }
    let what = format!("{method} {path} ({template}): {} {}", reply.status, reply.text);
    let documented = &operation["responses"][reply.status.as_str()];
    assert!(documented.is_object(), "the document does not list the status of {what}");
    let documented = resolve(documented);
    if documented["content"].is_null() {
        assert!(reply.text.is_empty(), "the document lists no body of {what}");
        return;
    }
    let content_type = reply.header("content-type");
    let media_type = content_type.split(';').next().unwrap_or_default();
    let schema = &documented["content"][media_type]["schema"];
    assert!(schema.is_object(), "the document does not list the content type `{media_type}` of {what}");
    if media_type == "application/json" {
        let errors: Vec<String> = validator(schema).iter_errors(&reply.json()).map(|e| format!("{e:?}")).collect();
        assert!(errors.is_empty(), "the schema does not describe {what}\n{errors:#?}");
    }
}

/// Returns the schema of an operation's JSON body, ready for use.
pub(super) fn body_validator(method: &Method, path: &str) -> Validator {
    let (_, operation) = operation(method, path).expect("the document lists the operation");
    validator(&operation["requestBody"]["content"]["application/json"]["schema"])
}

/// Returns the schema of a parameter.
pub(super) fn parameter_validator(method: &Method, path: &str, name: &str) -> Validator {
    let (_, operation) = operation(method, path).expect("the document lists the operation");
    let mut parameters = operation["parameters"].as_array().expect("the operation has parameters").iter();
    validator(&parameters.find(|parameter| parameter["name"] == name).expect("the parameter is listed")["schema"])
}

fn validator(schema: &Value) -> Validator {
    let schema = json!({ "allOf": [schema], "components": DOCUMENT["components"] });
    jsonschema::validator_for(&schema).expect("the document's schemas are valid")
}

fn operation(method: &Method, path: &str) -> Option<(&'static str, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().expect("the document has paths");
    let (template, item) = paths.iter().find(|(template, _)| matches_template(template, path))?;
    let operation = &item[method.as_str().to_lowercase()];
    operation.is_object().then_some((template, operation))
}

fn matches_template(template: &str, path: &str) -> bool {
    let (mut parts, mut segments) = (template.split('/'), path.split('/'));
    loop {
        match (parts.next(), segments.next()) {
            (Some("{path}"), Some(_)) | (None, None) => return true,
            (Some(part), Some(segment)) if part.starts_with('{') || part == segment => {}
            _ => return false,
        }
    }
}

fn resolve(response: &'static Value) -> &'static Value {
    match response["$ref"].as_str() {
        Some(reference) => DOCUMENT.pointer(reference.trim_start_matches('#')).expect("the reference has a target"),
        None => response,
    }
}
