//! Interrupt ends whatever runs, with its child processes, and keeps the output so far.

use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    eventually, host,
    model::ScriptedModel,
    on_each_driver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(in_a_stream, in_a_tool, in_a_user_command, second_interrupt_is_no_error);

async fn in_a_stream(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "tell a long story" })).await;
    let piece = socket.delta("text").await;
    socket.send_request("interrupt", json!({})).await;
    let receipt = socket.observation("interrupted").await;
    assert_eq!(receipt["extras"]["partial"], true, "{receipt}");
    socket.state("idle").await;

    let events = socket.events();
    let kept = events.iter().find(|event| event["observation"] == "message" && event["item"] == piece["item"]);
    let kept = kept.expect("the partial text is kept");
    assert_eq!(kept["extras"]["partial"], true);
    assert!(kept["content"].as_str().expect("a text").starts_with("once"), "{kept}");
    eventually("the model's stream to be cut", || async { model.cut() == 1 && model.streams() == 0 }).await;

    socket.send_request("message", json!({ "content": "go on" })).await;
    let answer = socket.observation("message").await;
    assert_eq!(answer["content"], "All right.");
    socket.state("idle").await;
    server.leaves_nothing().await;
}

async fn in_a_tool(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "sleep long" })).await;
    socket.action("run").await;
    eventually("three commands to sleep", || async { sleepers(&server) == 3 }).await;
    socket.send_request("interrupt", json!({})).await;
    let receipt = socket.observation("interrupted").await;
    assert!(receipt["extras"]["what"].as_str().expect("words").contains("sleep"), "{receipt}");
    assert_eq!(
        sleepers(&server),
        0,
        "the receipt comes when the last process is gone, also one with a session of its own"
    );
    socket.state("idle").await;
    server.leaves_nothing().await;
}

async fn in_a_user_command(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.session().await;
    socket.send_request("run", json!({ "command": "sleep 1000" })).await;
    socket.state("running").await;
    eventually("the command to sleep", || async { sleepers(&server) == 1 }).await;
    socket.send_request("interrupt", json!({})).await;
    socket.observation("interrupted").await;
    assert_eq!(sleepers(&server), 0);
    socket.state("idle").await;
    socket.send_request("run", json!({ "command": "echo still here" })).await;
    let ran = socket.until("the next command's output", |frame| frame["extras"]["exit_code"] == 0).await;
    assert_eq!(ran["content"].as_str().expect("output").trim(), "still here");
    server.leaves_nothing().await;
}

async fn second_interrupt_is_no_error(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::openai(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "sleep long" })).await;
    socket.action("run").await;
    socket.send_request("interrupt", json!({})).await;
    socket.send_request("interrupt", json!({})).await;
    socket.observation("interrupted").await;
    // Either the first interrupt had ended the turn and nothing was left to interrupt, or the
    // second one restarted the agent.
    socket.state("idle").await;
    eventually("the commands to end", || async { sleepers(&server) == 0 }).await;
    socket.send_request("message", json!({ "content": "go on" })).await;
    socket.until("an answer", |frame| frame["observation"] == "message" && frame["content"] == "All right.").await;
    server.leaves_nothing().await;
}

fn sleepers(server: &TestServer) -> usize {
    host::processes(server.home()).iter().filter(|process| process.command.starts_with("sleep 100")).count()
}
