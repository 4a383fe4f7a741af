//! Messages while the agent works: queued and still editable, steered in at the next step, or
//! interrupting.

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    model::ScriptedModel,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Starts a session whose agent waits in a tool until the file `go` exists.
async fn waiting() -> (ScriptedModel, TestServer, TestSocket) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    socket.delta("output").await;
    (model, server, socket)
}

async fn go(socket: &mut TestSocket) {
    socket.send_request("write", json!({ "path": "go", "content": "" })).await;
}

fn queued(event: &Value) -> Vec<(String, String)> {
    let items = event["extras"]["items"].as_array().expect("items");
    let text = |item: &Value, key: &str| item[key].as_str().expect("text").to_owned();
    items.iter().map(|item| (text(item, "item"), text(item, "content"))).collect()
}

#[tokio::test]
async fn queued_message_waits_for_turn_end_and_is_editable() {
    let (model, server, mut socket) = waiting().await;
    for content in ["one", "two", "three"] {
        socket.send_request("message", json!({ "content": content })).await;
        socket.observation("queue").await;
    }
    let queue = socket.events().into_iter().rfind(|event| event["observation"] == "queue").expect("a queue");
    let items = queued(&queue);
    assert_eq!(items.iter().map(|(_, content)| content.as_str()).collect::<Vec<_>>(), ["one", "two", "three"]);
    socket.send_request("edit_queue", json!({ "item": items[0].0, "content": "ONE" })).await;
    socket.observation("queue").await;
    socket.send_request("edit_queue", json!({ "item": items[1].0, "remove": true })).await;
    let queue = socket.observation("queue").await;
    assert_eq!(queued(&queue).into_iter().map(|(_, content)| content).collect::<Vec<_>>(), ["ONE", "three"]);
    socket.send_request("edit_queue", json!({ "item": items[1].0, "content": "too late" })).await;
    socket.error("not_queued").await;

    go(&mut socket).await;
    let first = socket.observation("chat").await;
    assert_eq!(first["content"], "ONE");
    let second = socket.observation("chat").await;
    assert_eq!(second["content"], "three");
    socket.state("idle").await;
    assert!(
        !model.calls().iter().any(|call| call.body.to_string().contains("\"two\"")),
        "a removed message is not sent"
    );
    server.leaves_nothing().await;
}

#[tokio::test]
async fn steering_message_reaches_agent_within_turn() {
    let (model, server, mut socket) = waiting().await;
    socket.send_request("message", json!({ "content": "turn left", "mode": "steer" })).await;
    socket.action("message").await;
    go(&mut socket).await;
    let answer = socket.observation("message").await;
    assert_eq!(answer["content"], "Turning left.");
    socket.state("idle").await;
    assert_eq!(model.calls().len(), 2, "one call for the task and one for the step after the tool");
    let ends = socket.events().into_iter().filter(|event| event["extras"]["agent_state"] == "idle").count();
    assert!(ends <= 2, "one turn: idle at most once before it and once after it");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn interrupting_message_ends_turn_and_is_answered() {
    let (_model, server, mut socket) = waiting().await;
    socket.send_request("message", json!({ "content": "turn left", "mode": "interrupt" })).await;
    socket.observation("interrupted").await;
    let answer = socket.observation("message").await;
    assert_eq!(answer["content"], "Turning left.");
    socket.state("idle").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn same_request_id_acts_once() {
    let (_model, server, mut socket) = waiting().await;
    let frame = json!({ "action": "message", "args": { "content": "once" }, "id": "mine" });
    socket.send(frame.clone()).await;
    let first = socket.status("accepted").await;
    socket.send(frame.clone()).await;
    let again = socket.status("accepted").await;
    assert_eq!((&first["id"], &first["seq"]), (&again["id"], &again["seq"]));
    let session = socket.seen.iter().find_map(|frame| frame["session"]["id"].as_str()).expect("a hello").to_owned();
    let mut other = TestSocket::attach_after(&server.rest, &session, "tail").await;
    other.send(frame.clone()).await;
    assert_eq!(other.status("accepted").await["seq"], first["seq"], "also over another connection");

    let server = server.kill9().await.restart().await;
    let mut third = TestSocket::attach_after(&server.rest, &session, "tail").await;
    third.send(frame).await;
    assert_eq!(third.status("accepted").await["seq"], first["seq"], "also when the server was killed meanwhile");
    go(&mut third).await;
    third.observation("chat").await;
    third.state("idle").await;
    let events = server.rest.events(&session).await;
    let messages = events.iter().filter(|event| event["action"] == "message").count();
    let answered = events.iter().filter(|event| event["observation"] == "chat" && event["content"] == "once").count();
    assert_eq!((messages, answered), (1, 1), "{events:#?}");
    server.leaves_nothing().await;
}

/// Scripts that number their frames all have a first one.
#[tokio::test]
async fn same_id_for_another_task_creates_another_session() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let mut made = Vec::new();
    for task in ["print hello", "list the files", "print hello"] {
        let mut socket = TestSocket::open(&server.rest).await;
        socket.send(json!({ "action": "start", "args": { "task": task }, "id": "1" })).await;
        made.push(socket.session().await);
    }
    assert_ne!(made[0], made[1], "another task");
    assert_eq!(made[0], made[2], "the same, sent again");
    server.leaves_nothing().await;
}
