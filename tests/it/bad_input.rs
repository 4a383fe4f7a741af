//! Bad input gets an error that names the thing and the way out, changes nothing, and leaves the
//! socket usable.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::ScriptedModel,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

async fn server() -> TestServer {
    TestServer::start(TestServerOptions::new(TestDriver::Process)).await
}

async fn check(socket: &mut TestSocket, frame: &str, code: &str, part: &str) {
    socket.send_text(frame).await;
    let text = socket.error(code).await;
    assert!(text.contains(part), "{frame}: {text}");
    still_usable(socket).await;
}

async fn still_usable(socket: &mut TestSocket) {
    socket.send_request("ping", json!({})).await;
    socket.status("pong").await;
}

#[tokio::test]
async fn frames() {
    let server = server().await;
    let mut socket = TestSocket::open(&server.rest).await;
    let no_session = socket.status("hello").await;
    assert_eq!(no_session["session"], Value::Null);
    check(&mut socket, "{", "invalid_json", "JSON object").await;
    check(&mut socket, "\"start\"", "invalid_json", "JSON object").await;
    check(&mut socket, r#"{"action":"dance"}"#, "unknown_action", "`dance`").await;
    check(&mut socket, r#"{"args":{}}"#, "invalid_args", "`action` is missing").await;
    check(&mut socket, r#"{"action":"start"}"#, "invalid_args", "`task`").await;
    check(&mut socket, r#"{"action":"start","args":{}}"#, "invalid_args", "`task`").await;
    check(&mut socket, r#"{"action":"start","args":{"task":7}}"#, "invalid_args", "string").await;
    check(&mut socket, r#"{"action":"start","args":{"task":" "}}"#, "invalid_args", "task").await;
    check(&mut socket, r#"{"action":"ping","id":7}"#, "invalid_args", "`id`").await;
    let sessions = server.rest.get("/api/sessions").await.expect(200);
    assert_eq!(sessions["total"], 0, "bad input must change nothing: {sessions}");
}

#[tokio::test]
async fn error_carries_id_of_its_request() {
    let server = server().await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send(json!({ "action": "start", "id": "mine" })).await;
    let answer = socket.until("an error", |frame| frame.get("error").is_some()).await;
    assert_eq!(answer["id"], "mine");
}

#[tokio::test]
async fn oversize_frame_is_rejected_and_socket_stays_open() {
    let server = server().await;
    let mut socket = TestSocket::open(&server.rest).await;
    let large = json!({ "action": "start", "args": { "task": "x".repeat(10 << 20) } });
    socket.send(large).await;
    let text = socket.error("too_large").await;
    assert!(text.contains("1 MiB") || text.contains("1048576"), "the limit is named: {text}");
    still_usable(&mut socket).await;
}

#[tokio::test]
async fn binary_frame_is_rejected_and_socket_stays_open() {
    let server = server().await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_message(Message::binary(vec![0, 159, 146, 150])).await;
    socket.until("an error", |frame| frame.get("error").is_some()).await;
    still_usable(&mut socket).await;
}

#[tokio::test]
async fn unknown_session_is_not_found() {
    let server = server().await;
    for id in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "nonsense", "..%2F..%2Fetc"] {
        match TestSocket::handshake(
            &server.rest,
            &format!("/ws?session={id}"),
            &[("authorization", &format!("Bearer {}", server.rest.token))],
        )
        .await
        {
            Ok(mut socket) => assert_eq!(socket.closed().await, Some(4404), "{id}"),
            Err(status) => assert!([400, 404].contains(&status), "{id}: {status}"),
        }
    }
    let reply = server.rest.get("/api/sessions/01ARZ3NDEKTSV4RRFFQ69G5FAV").await;
    assert!(reply.error(404, "not_found").contains("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
}

#[tokio::test]
async fn second_task_during_turn_is_rejected_and_turn_continues() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "tell a long story" })).await;
    socket.delta("text").await;
    socket.send_request("start", json!({ "task": "another" })).await;
    let text = socket.error("busy").await;
    assert!(text.contains("queue the message or interrupt it"), "{text}");
    socket.delta("text").await;
    assert!(
        !socket.events().iter().any(|event| event["args"]["task"] == "another"),
        "a rejected request is not recorded"
    );
}

#[tokio::test]
async fn client_leaving_during_start_does_not_stop_the_session() {
    let server = server().await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "print hello" })).await;
    let session = socket.session().await;
    drop(socket);
    let rest = &server.rest;
    eventually("the task to be done", || async {
        rest.events(&session).await.iter().any(|event| event["action"] == "finish")
    })
    .await;
}
