//! OpenAPI document: valid, and true for the requests that the server accepts. The fixture checks
//! the answers.

use actix_web::http::Method;
use roas::validation::{Options, Validate};
use serde_json::{Value, json};

use super::{
    contract::{body_validator, parameter_validator},
    fixture::{authenticated, fixture},
    id_of,
};
use crate::web::openapi;

#[test]
fn document_is_valid() {
    let document: roas::v3_1::spec::Spec = serde_json::from_value(openapi::build()).expect("the document is OpenAPI");
    let result = document.validate(Options::new() | Options::IgnoreUnusedSchemas, None);
    let errors: Vec<String> =
        result.err().into_iter().flat_map(|report| report.errors).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// The document is generated from the handlers. This test checks that a route exists at each
/// address in the document.
#[actix_web::test]
async fn every_documented_address_has_a_route() {
    let fixture = fixture().await;
    let document = openapi::build();
    let paths = document["paths"].as_object().expect("the document has paths");
    assert!(paths.len() > 15, "{}", paths.len());
    for (path, methods) in paths {
        for method in methods.as_object().expect("a path has methods").keys() {
            let uri = path
                .replace("{id}", "01KAHTXV3M9W6N2Q4ZB8C5R7DE")
                .replace("{name}", "x")
                .replace("{path}", "x")
                .replace("{rule}", "x");
            let reply = fixture.call(&method.to_uppercase(), &uri, None).await;
            assert_ne!(reply.status, 405, "{method} {uri}");
            assert!(!reply.text.contains("there is nothing at"), "{method} {uri}: {}", reply.text);
        }
    }
}

#[test]
fn every_operation_lists_its_errors_and_describes_its_answers() {
    let document = openapi::build();
    let check = |method: &str, path: &str, expected: &[u16]| {
        let responses = document["paths"][path][method]["responses"].as_object().expect("the document lists it");
        let statuses: Vec<u16> = responses.keys().map(|status| status.parse().expect("a status")).collect();
        assert_eq!(statuses, expected, "{method} {path}");
        for (status, response) in responses {
            let response = match response["$ref"].as_str() {
                Some(reference) => document.pointer(reference.trim_start_matches('#')).expect("a target"),
                None => response,
            };
            assert!(
                response["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{method} {path} {status}"
            );
        }
    };
    check("get", "/healthz", &[200, 403]);
    check("get", "/api/admin/actors", &[200, 401, 403, 500, 503]);
    check("get", "/api/sessions", &[200, 400, 401, 403, 500, 503]);
    check("post", "/api/sessions", &[200, 201, 400, 401, 403, 409, 413, 415, 429, 500, 503]);
    check("post", "/api/sessions/{id}/pause", &[200, 400, 401, 403, 404, 409, 415, 429, 500, 503]);
    check("get", "/api/sessions/{id}/events", &[200, 204, 400, 401, 403, 404, 500, 503]);
    let put = [200, 201, 400, 401, 403, 404, 409, 412, 413, 415, 429, 500, 503, 507];
    check("put", "/api/sessions/{id}/files/{path}", &put);
}

/// Sends each value of `field` to the server, and compares the answer with the schema.
#[actix_web::test]
async fn schema_of_each_body_agrees_with_the_check() {
    let fixture = fixture().await;
    let session = format!("/api/sessions/{}", id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await));
    let check = async |method: &str, path: &str, body: Value| {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let is_valid = body_validator(&method, path).is_valid(&body);
        let reply = fixture.call(method.as_str(), path, Some(&body.to_string())).await;
        let is_accepted = reply.status.is_success();
        assert!(is_accepted || reply.status == 400, "{method} {path} {body}: {}", reply.text);
        assert_eq!(is_valid, is_accepted, "{method} {path} {body}: {}", reply.text);
    };
    let texts = [
        "",
        " ",
        "a",
        "\u{85}",
        "\u{feff}",
        "\u{2003}\u{3000}",
        "a\u{0}",
        "a\u{7f}",
        "a\u{9f}",
        "\t",
        "a\nb",
        "ä\u{a0}",
        "demo",
        "/",
        "/a",
        "/a/",
        "a/b",
        "//",
        "/.",
        "/..",
        "/../a",
        "/a/..",
        "/a/../b",
        "/...",
        "/..a",
        "/.a/b..",
        "/a\n",
    ];
    let lengths = [200, 201, 1024, 1025];
    let long = lengths.map(|length| "x".repeat(length));
    let values = texts.into_iter().chain(long.iter().map(String::as_str)).map(|text| json!(text));
    let others = [json!(null), json!(true), json!(7), json!([]), json!({})];
    for value in values.chain(others) {
        for field in ["title", "agent", "image", "directory", "task", "effort", "budget_usd", "unknown"] {
            check("POST", "/api/sessions", json!({ field: value })).await;
        }
        for field in ["title", "archived", "effort", "unknown"] {
            check("PATCH", &session, json!({ field: value })).await;
        }
        check("POST", &format!("{session}/messages"), json!({ "content": value })).await;
        check("POST", &format!("{session}/messages"), json!({ "content": "a", "mode": value })).await;
        check("POST", &format!("{session}/messages"), json!({ "content": "a", "attachments": value })).await;
    }
    for effort in ["default", "minimal", "low", "medium", "high", "none", "Low"] {
        check("POST", "/api/sessions", json!({ "effort": effort })).await;
        check("PATCH", &session, json!({ "effort": effort })).await;
    }
    for mode in ["plan", "ask", "edits", "auto", "yolo", ""] {
        check("POST", "/api/sessions", json!({ "mode": mode })).await;
        check("PATCH", &session, json!({ "mode": mode })).await;
        check("PATCH", &format!("{session}/security"), json!({ "mode": mode })).await;
    }
    for budget in [json!(0), json!(-1), json!(0.5), json!(1e308)] {
        check("POST", "/api/sessions", json!({ "budget_usd": budget })).await;
    }
    for mode in ["queue", "steer", "interrupt", "later"] {
        check("POST", &format!("{session}/messages"), json!({ "content": "a", "mode": mode })).await;
    }
    for path in ["a", "a b", "..b"] {
        check("POST", &format!("{session}/files:mkdir"), json!({ "path": path, "encoded": true })).await;
    }
    check("POST", &format!("{session}/files:mkdir"), json!({})).await;
    check("POST", &format!("{session}/files:mkdir"), json!({ "path": "a", "unknown": 1 })).await;
    check("POST", &format!("{session}/files:move"), json!({ "from": "a", "to": "c" })).await;
    check("POST", &format!("{session}/files:move"), json!({ "from": "c" })).await;
    for agent in ["greenroom", "other"] {
        check("POST", "/api/sessions", json!({ "agent": agent })).await;
    }
    // Other names of models are valid, and need a key.
    for model in ["", " ", "demo", "de\u{7}mo"] {
        check("PATCH", &session, json!({ "model": model })).await;
    }
    check("POST", &format!("{session}/messages"), json!({})).await;
}

#[actix_web::test]
async fn schema_of_each_query_agrees_with_the_check() {
    let fixture = fixture().await;
    let session = format!("/api/sessions/{}", id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await));
    let events = format!("{session}/events");
    let export = format!("{session}/export");
    let check = async |path: &str, name: &str, value: &str| {
        // A query has texts only. A number is one if its text is.
        let typed = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        let is_valid = parameter_validator(&Method::GET, path, name).is_valid(&typed);
        let encoded = form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
        let reply = fixture.call("GET", &format!("{path}?{encoded}"), None).await;
        assert!(reply.status == 200 || reply.status == 400, "{path} {name}={value}: {}", reply.text);
        assert_eq!(is_valid, reply.status == 200, "{path} {name}={value}: {}", reply.text);
    };
    let numbers = ["0", "1", "500", "501", "1000", "1001", "18446744073709551615", "18446744073709551616", "-1", "x"];
    for value in numbers.into_iter().chain(["tail", "1.5", "", "true"]) {
        check("/api/sessions", "limit", value).await;
        for name in ["after", "last", "limit"] {
            check(&events, name, value).await;
        }
    }
    for value in ["idle", "tired", "awaiting_confirmation", "Idle", ""] {
        check("/api/sessions", "state", value).await;
        check(&export, "format", value).await;
    }
    for value in ["jsonl", "md", "pdf"] {
        check(&export, "format", value).await;
    }
    let (files, archive) = (format!("{session}/files"), format!("{session}/archive"));
    fixture.call("POST", &format!("{session}/files:mkdir"), Some(r#"{"path":"dir"}"#)).await;
    for value in ["true", "false", "maybe", "1"] {
        check("/api/sessions", "archived", value).await;
        check(&files, "recursive", value).await;
        check(&files, "encoded", value).await;
    }
    for value in ["0", "1", "1001", "18446744073709551616", "-1", "x", ""] {
        check(&files, "limit", value).await;
    }
    for value in ["tar.gz", "zip", "rar", ""] {
        check(&archive, "format", value).await;
    }
    for value in ["", "x", "2026-01-01T00:00:00.000Z_01KAHTXV3M9W6N2Q4ZB8C5R7DE", "_01KAHTXV3M9W6N2Q4ZB8C5R7D"] {
        check("/api/sessions", "cursor", value).await;
    }
    let (longest, too_long) = ("x".repeat(200), "x".repeat(201));
    for value in ["", " ", "\u{3000}", "a", "a\nb", "\u{85}", "ä \u{feff}", "[.*", &longest, &too_long] {
        check("/api/search", "q", value).await;
    }
}

#[actix_web::test]
async fn schema_of_each_header_agrees_with_the_check() {
    let fixture = fixture().await;
    let session = format!("/api/sessions/{}", id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await));
    let check = async |method: &str, path: &str, name: &str, value: &str| {
        let typed = match name {
            "Last-Event-ID" => serde_json::from_str(value).unwrap_or_else(|_| json!(value)),
            _ => json!(value),
        };
        let is_valid =
            parameter_validator(&Method::from_bytes(method.as_bytes()).expect("a method"), path, name).is_valid(&typed);
        let request = authenticated(method, path, Some("{}")).insert_header((name, value));
        let reply = fixture.send(request).await;
        assert_eq!(is_valid, reply.status != 400, "{method} {path} {name}: {value}: {}", reply.text);
    };
    let (longest, too_long) = ("k".repeat(128), "k".repeat(129));
    for key in ["", "k", "a b", "ä", &longest, &too_long] {
        for path in ["messages", "interrupt", "pause", "resume", "stop"].map(|last| format!("{session}/{last}")) {
            if !path.ends_with("messages") {
                check("POST", &path, "Idempotency-Key", key).await;
            }
        }
        check("POST", "/api/sessions", "Idempotency-Key", key).await;
    }
    for id in ["0", "7", "99999999999999999999999", "x", "-1"] {
        check("GET", &format!("{session}/events"), "Last-Event-ID", id).await;
    }
    for condition in ["*", "\"etag\""] {
        check("PUT", &format!("{session}/files/a"), "If-None-Match", condition).await;
    }
    for condition in ["*", "\"tag\"", "\"a\", \"b\"", "\"\"", "tag", "W/\"weak\"", "\"a\"b\"", "", "\"a\",", "\""] {
        check("PUT", &format!("{session}/files/a"), "If-Match", condition).await;
    }
}

#[actix_web::test]
async fn schema_of_a_file_path_agrees_with_the_check() {
    let fixture = fixture().await;
    let session = format!("/api/sessions/{}", id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await));
    let check = async |path: &str| {
        let template = format!("{session}/files/x");
        let is_valid = parameter_validator(&Method::PUT, &template, "path").is_valid(&json!(path));
        let encoded: String = path.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let request = authenticated("PUT", &format!("{session}/files/{encoded}"), Some("{}"));
        let reply = fixture.send(request).await;
        assert!(matches!(reply.status.as_u16(), 200 | 201 | 400), "{path:?}: {}", reply.text);
        assert_eq!(is_valid, reply.status != 400, "{path:?}: {}", reply.text);
        assert!(!reply.text.contains(char::is_control), "{path:?}: {}", reply.text);
    };
    let deep = ["d"; 100].join("/");
    let long = vec!["x".repeat(200); 5].join("/");
    for path in ["a", "ä b", "one/two", ".a", "..a", "...", "a..", &deep, &long] {
        check(path).await;
    }
    let too_long = vec!["x".repeat(255); 16].join("/") + "/y";
    for path in
        ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a\nb", "\u{1b}]52;c;x\u{7}", "a\u{85}", "\u{0}", "\u{7f}"]
    {
        check(path).await;
    }
    check(&too_long).await;
}
