//! Failed turns and the newest activity of a session, as lists and sockets report them.

use greenroom_protocol::link::{AgentCommand, AgentReport, WorkOutcome};
use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::ScriptedModel,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

async fn listed(server: &TestServer) -> Value {
    server.rest.get("/api/sessions").await.expect(200)["items"][0].clone()
}

#[tokio::test]
async fn failed_turn_is_the_reason_after_a_restart_and_until_the_next_turn() {
    let model = ScriptedModel::play("work");
    let options = TestServerOptions::anthropic(TestDriver::Process, &model);
    let options = options.env("GREENROOM_MODEL__RETRY__MAX_ATTEMPTS", "1");
    let server = TestServer::start(options).await;
    let session = server.rest.start("be overloaded").await;
    server.rest.until_state(&session, "idle").await;
    let found = listed(&server).await;
    assert_eq!((&found["state"], &found["reason"]), (&json!("idle"), &json!("failed")), "{found}");
    let events = server.rest.events(&session).await;
    let error = events.iter().find(|event| event["observation"] == "error").expect("the failure is an event");
    assert_eq!((&found["latest"], &found["latest_seq"]), (&error["extras"]["detail"], &error["seq"]), "{found}");

    let server = server.kill9().await.restart().await;
    let found = listed(&server).await;
    assert_eq!((&found["state"], &found["reason"]), (&json!("idle"), &json!("failed")), "{found}");
    assert_eq!(found["latest"], error["extras"]["detail"], "{found}");

    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.status("synced").await;
    socket.send_request("run", json!({ "command": "true" })).await;
    let running = socket.state("running").await;
    assert_eq!(running["extras"]["reason"], "failed", "the user's own command is no turn: {running}");
    let idle = socket.state("idle").await;
    assert_eq!(idle["extras"]["reason"], "failed", "{idle}");
    socket.send_request("message", json!({ "content": "and now?" })).await;
    let running = socket.state("running").await;
    assert_eq!(running["extras"].get("reason"), None, "{running}");
    socket.state("idle").await;
    let found = listed(&server).await;
    assert_eq!((&found["reason"], &found["latest"]), (&Value::Null, &json!("All right.")), "{found}");
}

#[tokio::test]
async fn list_shows_the_newest_activity_as_plain_text() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    assert_eq!(listed(&server).await["latest"], Value::Null);
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "go" })).await.expect(202);
    let AgentCommand::Prompt { turn, .. } = agent.command().await else { panic!("a turn begins") };
    let command = format!("cargo test \u{1b}[31m{}", "x".repeat(1000));
    agent.event(Some("c"), json!({ "action": "run", "args": { "command": command } })).await;
    // The command may run for long, so the list does not wait for its end.
    eventually("the list shows the command", async || {
        listed(&server).await["latest"].as_str().is_some_and(|latest| latest.starts_with("$ cargo test xxx"))
    })
    .await;
    assert_eq!(listed(&server).await["latest"].as_str().map(|latest| latest.chars().count()), Some(120));
    agent
        .event(None, json!({ "observation": "message", "content": "**All** tests\u{202e} pass.\n", "extras": {} }))
        .await;
    agent.report(AgentReport::TurnEnded { turn, outcome: WorkOutcome::Done }).await.expect("the server listens");
    server.rest.until_state(&session, "idle").await;
    let found = listed(&server).await;
    assert_eq!(found["latest"], "**All** tests pass.", "{found}");
    let events = server.rest.events(&session).await;
    let message = events.iter().rfind(|event| event["observation"] == "message").expect("the message is an event");
    assert_eq!(found["latest_seq"], message["seq"], "the end of the turn is no activity");
}

#[tokio::test]
async fn hello_states_the_servers_time() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    let created = server.rest.session(&session).await["created_at"].as_str().expect("a time").to_owned();
    let hello = TestSocket::attach(&server.rest, &session).await.status("hello").await;
    let now = hello["now"].as_str().unwrap_or_else(|| panic!("`hello` has a time: {hello}")).to_owned();
    assert_eq!((now.len(), now.ends_with('Z')), (created.len(), true), "the format of events");
    assert!(now >= created, "{now} {created}");
    let first = TestSocket::open(&server.rest).await.status("hello").await;
    assert!(first["now"].as_str() >= Some(&*now), "also without a session: {first}");
}
