//! Open approval requests while the server, the session or other clients act.

use serde_json::{Value, json};

use greenroom_testkit::{eventually, socket::TestSocket};

use crate::{approvals::ApprovalTest, chats::ChatClient};

fn args(request: &Value, decision: &str) -> Value {
    json!({ "request": request["extras"]["request"], "decision": decision })
}

#[tokio::test]
async fn request_survives_a_killed_server() {
    let mut fixture = ApprovalTest::start(json!({ "mode": "ask" })).await;
    let request = fixture.asked("make the mark").await;
    let ApprovalTest { server, session, model, .. } = fixture;
    let server = server.kill9().await.restart().await;
    server.rest.until_state(&session, "awaiting_confirmation").await;
    let socket = TestSocket::attach_after(&server.rest, &session, "tail").await;
    let mut fixture = ApprovalTest { server, session, model, socket };
    assert_eq!(fixture.security().await["requests"][0]["id"], request["extras"]["request"]);
    fixture.confirm(&request, json!({ "decision": "allow" })).await;
    fixture.socket.observation("confirmed").await;
    fixture.turn_ends().await;
    assert!(fixture.has("mark"));
    fixture.server.leaves_nothing().await;
}

#[tokio::test]
async fn pause_keeps_a_request_and_stop_withdraws_it() {
    let mut fixture = ApprovalTest::start(json!({ "mode": "ask" })).await;
    let request = fixture.asked("make the mark").await;
    fixture.socket.send_request("pause", json!({})).await;
    fixture.socket.state("paused").await;
    fixture.socket.send_request("resume", json!({})).await;
    fixture.socket.state("awaiting_confirmation").await;
    assert_eq!(fixture.security().await["requests"][0]["id"], request["extras"]["request"]);

    fixture.socket.send_request("stop", json!({})).await;
    let withdrawn = fixture.socket.observation("confirmed").await;
    let extras = &withdrawn["extras"];
    assert_eq!((&extras["withdrawn"], &extras["decision"]), (&true.into(), &"deny".into()), "{withdrawn}");
    fixture.server.rest.until_state(&fixture.session, "stopped").await;
    fixture.socket.send_request("confirm", args(&request, "allow")).await;
    let error = fixture.socket.until("an error", |frame| frame.get("error").is_some()).await;
    assert_eq!(error["error"]["code"], "no_request", "{error}");
    assert!(!fixture.has("mark"));
    assert_eq!(fixture.security().await["requests"], json!([]));
    fixture.server.leaves_nothing().await;
}

#[tokio::test]
async fn interrupt_withdraws_a_request() {
    let mut fixture = ApprovalTest::start(json!({ "mode": "ask" })).await;
    fixture.asked("make the mark").await;
    fixture.socket.send_request("interrupt", json!({})).await;
    let withdrawn = fixture.socket.observation("confirmed").await;
    assert_eq!(withdrawn["extras"]["withdrawn"], true, "{withdrawn}");
    fixture.turn_ends().await;
    assert!(!fixture.has("mark"));
    fixture.server.leaves_nothing().await;
}

#[tokio::test]
async fn request_is_denied_after_the_time_limit_even_over_a_restart() {
    let session = json!({ "mode": "ask" });
    let limit =
        |options: greenroom_testkit::server::TestServerOptions| options.env("GREENROOM_APPROVALS__TIMEOUT", "2s");
    let mut fixture = ApprovalTest::start_with(session, limit).await;
    assert_eq!(fixture.security().await["settings"]["timeout_s"], 2);
    fixture.asked("make the mark").await;
    let ApprovalTest { server, session, model, .. } = fixture;
    let server = server.kill9().await.restart().await;
    let socket = TestSocket::attach(&server.rest, &session).await;
    let mut fixture = ApprovalTest { server, session, model, socket };
    let denied = fixture.socket.observation("confirmed").await;
    let extras = &denied["extras"];
    assert_eq!((&extras["by"], &extras["who"]), (&"policy".into(), &"timeout".into()), "{denied}");
    fixture.turn_ends().await;
    assert!(!fixture.has("mark"));
    fixture.server.leaves_nothing().await;
}

#[tokio::test]
async fn first_of_two_answers_wins() {
    let mut fixture = ApprovalTest::start(json!({ "mode": "ask" })).await;
    let request = fixture.asked("make the mark").await;
    let mut other = TestSocket::attach(&fixture.server.rest, &fixture.session).await;
    other.status("synced").await;
    let mut allow = json!({ "action": "confirm", "args": args(&request, "allow"), "id": "a" });
    fixture.socket.send(allow.clone()).await;
    allow["id"] = "b".into();
    allow["args"]["decision"] = "deny".into();
    other.send(allow).await;
    let is_answer = |frame: &Value| frame["status"] == "accepted" || frame.get("error").is_some();
    let answers = [fixture.socket.until("an answer", is_answer).await, other.until("an answer", is_answer).await];
    let accepted = answers.iter().filter(|frame| frame["status"] == "accepted").count();
    assert_eq!(accepted, 1, "{answers:?}");
    let rejected = answers.iter().find_map(|frame| frame["error"]["code"].as_str());
    assert_eq!(rejected, Some("no_request"), "{answers:?}");
    fixture.server.rest.until_state(&fixture.session, "idle").await;
    let events = fixture.server.rest.events(&fixture.session).await;
    let decided: Vec<&Value> = events.iter().filter(|event| event["observation"] == "confirmed").collect();
    assert_eq!(decided.len(), 1, "{decided:?}");
    let ran = decided[0]["extras"]["decision"] == "allow";
    assert_eq!(fixture.has("mark"), ran);
    fixture.server.leaves_nothing().await;
}

#[tokio::test]
async fn chat_and_classic_clients_continue_during_a_request() {
    let mut fixture = ApprovalTest::start(json!({ "mode": "ask" })).await;
    let rest = fixture.server.rest.clone();
    let mut chat = ChatClient::open(&rest, &fixture.session).await;
    let classic = format!("/ws?session={}&view=classic&after=tail", fixture.session);
    let mut classic = ChatClient::handshake(&rest, &classic, &[]).await.expect("the handshake is accepted");
    let request = fixture.asked("make the mark").await;
    receive_until(&mut classic, |frame| frame["extras"]["agent_state"] == "awaiting_user_confirmation").await;
    chat.say(json!({ "type": "ping" })).await;
    receive_until(&mut chat, |frame| frame["type"] == "pong").await;
    fixture.confirm(&request, json!({ "decision": "allow" })).await;
    receive_until(&mut classic, |frame| frame["observation"] == "confirmed").await;
    receive_until(&mut chat, |frame| frame["type"] == "done").await;
    eventually("the command to run", || async { fixture.has("mark") }).await;
    fixture.server.leaves_nothing().await;
}

async fn receive_until(client: &mut ChatClient, is: impl Fn(&Value) -> bool) {
    while !is(&client.receive().await.expect("the socket stays open")) {}
}
