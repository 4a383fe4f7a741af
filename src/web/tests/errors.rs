//! Failures: one form, the fitting status, and the subject in the text.

use actix_web::test::TestRequest;
use serde_json::json;

use super::{
    UNKNOWN_SESSION,
    fixture::{anonymous, authenticated, fixture},
    id_of,
};

/// Each failure has the common form, names the subject, and has the fitting status.
#[actix_web::test]
async fn errors_have_one_form_and_name_the_subject() {
    let fixture = fixture().await;
    let check = async |method: &str, uri: &str, body: Option<&str>, status: u16, code: &str, part: &str| {
        let reply = fixture.call(method, uri, body).await;
        assert_eq!(reply.error(), (status, code.to_owned()), "{method} {uri}: {}", reply.text);
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(part), "{method} {uri}: {message}");
    };
    check("GET", "/api/nothing", None, 404, "not_found", "`/api/nothing`").await;
    check("GET", "/nothing", None, 404, "not_found", "`/nothing`").await;
    check("GET", UNKNOWN_SESSION, None, 404, "not_found", "no session `01KAHTXV3M9W6N2Q4ZB8C5R7DE`").await;
    check("GET", "/api/sessions/7", None, 404, "not_found", "`7` is not a session id").await;
    check("PUT", UNKNOWN_SESSION, None, 405, "method_not_allowed", "does not support PUT").await;
    check("DELETE", "/", None, 405, "method_not_allowed", "does not support DELETE").await;
    check("POST", "/api/sessions", Some("{"), 400, "invalid_json", "the body is not valid JSON").await;
    check("POST", "/api/sessions", Some("[]"), 400, "invalid_args", "the body").await;
    check("POST", "/api/sessions", Some(r#"{"titel":"x"}"#), 400, "invalid_args", "unknown field `titel`").await;
    check("POST", "/api/sessions", Some(r#"{"title":7}"#), 400, "invalid_args", "expected a string").await;
    check("POST", &format!("{UNKNOWN_SESSION}/messages"), Some("{}"), 400, "invalid_args", "missing field `content`")
        .await;
    let blank = r#"{"content":" ","attachments":["a"]}"#;
    check("POST", &format!("{UNKNOWN_SESSION}/messages"), Some(blank), 400, "invalid_args", "`content` is empty").await;
    check("POST", &format!("{UNKNOWN_SESSION}/pause"), None, 404, "not_found", "no session").await;
    check("PATCH", UNKNOWN_SESSION, Some(r#"{"title":"x"}"#), 404, "not_found", "no session").await;
    check("DELETE", &format!("{UNKNOWN_SESSION}?purge=true"), None, 404, "not_found", "no session").await;
    check("GET", "/api/sessions?sate=idle", None, 400, "invalid_args", "unknown field `sate`").await;
    check("GET", "/api/sessions?state=tired", None, 400, "invalid_args", "`state`: unknown variant `tired`").await;
    check("GET", "/api/sessions?cursor=xx", None, 400, "invalid_args", "`xx` is no cursor").await;
    check("GET", "/api/sessions?limit=1&limit=2", None, 400, "invalid_args", "the query: duplicate field `limit`")
        .await;
    let limit = "the query: `limit`: invalid digit found in string; `/api/openapi.json` describes the parameter";
    check("GET", "/api/sessions?limit=-3", None, 400, "invalid_args", limit).await;
    let archived = "the query: `archived`: provided string was not `true` or `false`";
    check("GET", "/api/sessions?q=a&archived=maybe", None, 400, "invalid_args", archived).await;
    for (query, part) in [
        ("events?after=soon", "`after`: invalid digit"),
        ("events?last=-1", "`last`: invalid digit"),
        ("events?limit=", "`limit`: cannot parse integer from empty string"),
        ("export?format=pdf", "`format`: unknown variant `pdf`, expected `jsonl` or `md`"),
        ("logs?bytes=1e3", "`bytes`: invalid digit"),
    ] {
        check("GET", &format!("{UNKNOWN_SESSION}/{query}"), None, 400, "invalid_args", part).await;
    }
    check("DELETE", &format!("{UNKNOWN_SESSION}?purge=1"), None, 400, "invalid_args", "the query: `purge`: provided")
        .await;
    let large = format!(r#"{{"title":"{}"}}"#, "x".repeat(1024 * 1024));
    check("POST", "/api/sessions", Some(&large), 413, "too_large", "`server.max_body`").await;
    let long = |name: &str, length: usize| json!({ name: "ä".repeat(length) }).to_string();
    let title = "`title` has 201 characters; it may have 200";
    check("POST", "/api/sessions", Some(&long("title", 201)), 400, "invalid_args", title).await;
    for name in ["agent", "model", "image", "directory"] {
        let message = format!("`{name}` has 1026 bytes; it may have 1024");
        check("POST", "/api/sessions", Some(&long(name, 513)), 400, "invalid_args", &message).await;
    }
    for (directory, message) in [
        ("work", "`directory` must be an absolute path inside the sandbox, not `work`"),
        ("/work/../etc", "`directory` must not contain `..`"),
        ("/..", "give the resolved path"),
        ("/work\0", "`directory` has a control character"),
        ("a\u{1b}[2J", "`directory` has a control character, such as a line break; remove it"),
    ] {
        let body = json!({ "directory": directory }).to_string();
        check("POST", "/api/sessions", Some(&body), 400, "invalid_args", message).await;
    }
    for name in ["title", "agent", "model", "image"] {
        for bad in ["a\nb", "\u{1b}]52;c;eA==\u{7}", "\u{9b}2J", "\u{7f}"] {
            let message = format!("`{name}` has a control character, such as a line break; remove it");
            check("POST", "/api/sessions", Some(&json!({ name: bad }).to_string()), 400, "invalid_args", &message)
                .await;
        }
    }
    let dots = fixture.call("POST", "/api/sessions", Some(r#"{"directory":"/work/..a/b.."}"#)).await;
    assert_eq!(dots.status, 201, "{}", dots.text);
    let created = fixture.call("POST", "/api/sessions", Some(&long("title", 200))).await;
    let session = format!("/api/sessions/{}", id_of(&created));
    check("PATCH", &session, Some(&long("title", 201)), 400, "invalid_args", title).await;
    check("PATCH", &session, Some(&long("model", 513)), 400, "invalid_args", "it may have 1024").await;
    for name in ["title", "model"] {
        let body = json!({ name: "a\u{1b}b" }).to_string();
        check("PATCH", &session, Some(&body), 400, "invalid_args", "has a control character").await;
    }
    assert_eq!(fixture.call("GET", &session, None).await.json()["title"], "ä".repeat(200));
}

#[actix_web::test]
async fn unsupported_method_gets_the_allow_header() {
    let reply = fixture().await.call("PUT", UNKNOWN_SESSION, None).await;
    assert_eq!(reply.header("allow").split(", ").count(), 4, "{}", reply.header("allow"));
}

/// The router would replace the bytes, and two addresses would name one file.
#[actix_web::test]
async fn address_that_is_not_utf8_is_rejected() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    for name in ["%ff", "a%80", "%c0%af", "%ed%a0%80", "a%e2%82", "%F0%9F%92"] {
        let file = format!("/api/sessions/{id}/files/{name}");
        for request in [
            authenticated("PUT", &file, None).set_payload("x"),
            authenticated("GET", &file, None),
            authenticated("GET", &format!("/api/sessions/{name}"), None),
            authenticated("GET", &format!("/api/sessions?q={name}"), None),
            authenticated("GET", &format!("/{name}"), None),
        ] {
            let reply = fixture.send(request).await;
            assert_eq!(reply.error(), (400, "invalid_args".to_owned()), "{name}: {}", reply.text);
            assert!(reply.text.contains("not UTF-8"), "{}", reply.text);
        }
        assert_eq!(fixture.send(anonymous("GET", &file)).await.error().0, 401, "{name}");
    }
    assert!(!fixture.workspace(&id).join("\u{fffd}").exists());
    let umlaut = format!("/api/sessions/{id}/files/%C3%A4%20%25ff");
    assert_eq!(fixture.send(authenticated("PUT", &umlaut, None).set_payload("x")).await.status, 201);
    assert!(fixture.workspace(&id).join("ä %ff").exists());
}

#[actix_web::test]
async fn bad_handshake_gets_an_error_in_the_common_form() {
    let fixture = fixture().await;
    let half =
        |request: TestRequest| request.insert_header(("connection", "upgrade")).insert_header(("upgrade", "websocket"));
    let chat = format!("/ws{}/chat", UNKNOWN_SESSION.trim_start_matches("/api"));
    let whole = |version: &'static str| {
        half(authenticated("GET", "/ws", None))
            .insert_header(("sec-websocket-version", version))
            .insert_header(("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))
    };
    assert_eq!(fixture.send(whole("13")).await.status, 101);
    let reply = fixture.send(whole("12")).await;
    assert_eq!(reply.error(), (426, "invalid_args".to_owned()), "{}", reply.text);
    assert_eq!((reply.header("sec-websocket-version"), reply.header("upgrade")), ("13", "websocket"));
    for request in [
        half(anonymous("GET", "/ws")),
        half(authenticated("GET", "/ws", None)),
        authenticated("GET", "/ws", None),
        authenticated("GET", &chat, None),
    ] {
        let reply = fixture.send(request).await;
        assert_eq!(reply.error(), (400, "invalid_args".to_owned()), "{}", reply.text);
        assert!(reply.text.contains("WebSocket"), "{}", reply.text);
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
    }
}
