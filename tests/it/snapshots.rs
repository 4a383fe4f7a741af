//! Bodies and error texts of the REST API and the session socket, compared with reviewed snapshots.
//!
//! A change of a text shows as a difference in `tests/it/snapshots/`; accept it with `cargo insta
//! review`. Values that differ between runs are redacted.

use greenroom_testkit::{
    driver::TestDriver,
    rest::RestReply,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};
use reqwest::Method;
use serde_json::{Value, json};

/// Compares a JSON body with the snapshot of this name, without ids, times, sizes and versions.
macro_rules! assert_body {
    ($name:expr, $body:expr) => {
        insta::assert_json_snapshot!($name, $body, {
            ".**.id" => "[id]",
            ".**.session" => "[session]",
            ".**.at" => "[time]",
            ".**.created_at" => "[time]",
            ".**.updated_at" => "[time]",
            ".**.duration_ms" => "[ms]",
            ".**.version" => "[version]",
        })
    };
}

async fn server() -> TestServer {
    TestServer::start(TestServerOptions::new(TestDriver::Process)).await
}

/// Error of a reply: status, and the body as JSON.
fn error(reply: &RestReply) -> Value {
    json!({ "status": reply.status.as_u16(), "body": reply.json() })
}

#[tokio::test]
async fn session_bodies() {
    let server = server().await;
    let rest = &server.rest;
    let created = rest.post("/api/sessions", json!({ "title": "Bake bread", "budget_usd": 2.5 })).await.expect(201);
    let id = created["id"].as_str().expect("a session has an id");
    rest.until_state(id, "idle").await;
    assert_body!("session", rest.session(id).await);
    assert_body!("session_list", rest.get("/api/sessions").await.expect(200));
    let message = rest.post(&format!("/api/sessions/{id}/messages"), json!({ "content": "print hello" })).await;
    let accepted = message.expect(202);
    let keys: Vec<&String> = accepted.as_object().expect("an object").keys().collect();
    assert_body!("message_accepted_keys", keys);
    rest.until_state(id, "idle").await;
    let events = rest.get(&format!("/api/sessions/{id}/events?kind=message&limit=1")).await.expect(200);
    assert_body!("first_message_event", &events["items"]);
}

#[tokio::test]
async fn rest_errors() {
    let server = server().await;
    let rest = &server.rest;
    let id = rest.create(json!({ "title": "Bake bread" })).await;
    rest.until_state(&id, "idle").await;
    let session = format!("/api/sessions/{id}");
    let unknown = "/api/sessions/01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let raw = |path: &str, body: &'static str| {
        let request = rest.request(Method::POST, path).header("content-type", "application/json").body(body);
        greenroom_testkit::rest::send(request)
    };
    let replies = [
        ("unknown_session", rest.get(unknown).await),
        ("unknown_route", rest.get("/api/no-such-route").await),
        ("unreadable_session_id", rest.get("/api/sessions/not-an-id").await),
        ("unknown_field", rest.post("/api/sessions", json!({ "titel": "x" })).await),
        ("wrong_type", rest.post("/api/sessions", json!({ "budget_usd": "much" })).await),
        ("broken_json", raw("/api/sessions", "{").await),
        ("empty_message", rest.post(&format!("{session}/messages"), json!({ "content": " " })).await),
        ("interrupt_idle", rest.post(&format!("{session}/interrupt"), json!({})).await),
        ("resume_idle", rest.post(&format!("{session}/resume"), json!({})).await),
        ("bad_cursor", rest.get(&format!("{session}/events?after=x")).await),
        ("without_token", greenroom_testkit::rest::send(rest.bare(Method::GET, &session)).await),
    ];
    for (name, reply) in &replies {
        assert_body!(format!("error_{name}"), error(reply));
    }
}

#[tokio::test]
async fn socket_errors() {
    let server = server().await;
    let mut socket = TestSocket::open(&server.rest).await;
    let frames = [
        ("broken_json", "{"),
        ("unknown_action", r#"{"action":"dance"}"#),
        ("action_missing", r#"{"args":{}}"#),
        ("task_missing", r#"{"action":"start","args":{}}"#),
        ("task_empty", r#"{"action":"start","args":{"task":" "}}"#),
        ("no_session", r#"{"action":"interrupt"}"#),
    ];
    for (name, frame) in frames {
        socket.send_text(frame).await;
        let answer = socket.until("an error", |frame| frame.get("error").is_some()).await;
        assert_body!(format!("socket_{name}"), answer);
    }
}
