//! Engine that stops answering: the server continues, reports it, and never starts a second
//! container beside one that it cannot see.
//!
//! The engine belongs to the test, since others use the machine's engine at the same time.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    engine::{IMAGE, TestEngine},
    eventually,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Creates a session in a container of this engine, and a client of it.
async fn session_in_engine(engine: &TestEngine) -> (TestServer, String, TestSocket) {
    let options = TestServerOptions::new(TestDriver::Docker)
        .env("GREENROOM_SANDBOX__DOCKER_HOST", &engine.address())
        .env("GREENROOM_SANDBOX__IMAGE", IMAGE);
    let server = TestServer::start(options).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut client = TestSocket::attach(&server.rest, &session).await;
    client.status("synced").await;
    (server, session, client)
}

#[tokio::test]
async fn stalled_engine_blocks_no_session() {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let Some(engine) = TestEngine::start() else { return };
    let (server, _, mut client) = session_in_engine(&engine).await;

    engine.signal(Signal::STOP);
    let late = server.rest.create(json!({})).await;
    eventually("`/readyz` to report the engine", || async { server.rest.get("/readyz").await.status == 503 }).await;
    for _ in 0..50 {
        server.rest.get("/api/sessions").await.expect(200);
        client.send(json!({ "action": "ping" })).await;
        client.status("pong").await;
    }
    // Commands in the sandbox need no engine.
    client.send_request("run", json!({ "command": "echo still here" })).await;
    assert_eq!(client.observation("run").await["content"], "still here\n");
    assert_eq!(server.rest.session(&late).await["state"], "starting");
    tokio::time::sleep(Duration::from_secs(30)).await;
    server.rest.get("/api/sessions").await.expect(200);
    engine.signal(Signal::CONT);

    eventually("the server to be ready again", || async { server.rest.get("/readyz").await.status == 200 }).await;
    let state = server.rest.session(&late).await["state"].clone();
    if state != "starting" && state != "idle" {
        // The start was given up during the stall, with a reason: the user retries.
        assert_eq!(state, "failed");
        server.rest.post(&format!("/api/sessions/{late}/resume"), json!({})).await.expect(200);
    }
    server.rest.until_state(&late, "idle").await;
    assert_eq!(engine.containers(), 2, "one container per session");
    client.send_request("run", json!({ "command": "echo and still" })).await;
    assert_eq!(client.observation("run").await["content"], "and still\n", "the same socket still works");
    server.leaves_nothing().await;
}

/// The engine reads the call, sleeps past the deadline, and carries it out when it wakes.
#[tokio::test]
async fn late_pause_is_undone() {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let Some(engine) = TestEngine::start() else { return };
    let (server, session, mut client) = session_in_engine(&engine).await;

    engine.signal(Signal::STOP);
    client.send_request("pause", json!({})).await;
    client.state("paused").await;
    let rejected = client.until("that it could not be paused", |frame| frame["extras"]["code"] == "sandbox");
    rejected.await;
    eventually("the session to be idle again", || async { server.rest.session(&session).await["state"] == "idle" })
        .await;
    engine.signal(Signal::CONT);
    eventually("the server to be ready again", || async { server.rest.get("/readyz").await.status == 200 }).await;
    for n in 0..3 {
        // Late enough for any call that the engine had received.
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.send_request("run", json!({ "command": format!("echo on {n}") })).await;
        let ran = client.until("the output of the command", |frame| {
            frame["observation"] == "run" && frame["extras"]["command"] == format!("echo on {n}")
        });
        assert_eq!(ran.await["content"], format!("on {n}\n"));
    }
    client.send_request("pause", json!({})).await;
    client.state("paused").await;
    client.send_request("resume", json!({})).await;
    client.send_request("run", json!({ "command": "echo as ever" })).await;
    let ran = client.until("the output of the command", |frame| {
        frame["observation"] == "run" && frame["extras"]["command"] == "echo as ever"
    });
    assert_eq!(ran.await["content"], "as ever\n");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn engine_restart_loses_only_the_sandbox() {
    engine_end_loses_only_the_sandbox(Signal::TERM).await;
}

#[tokio::test]
async fn engine_kill_loses_only_the_sandbox() {
    engine_end_loses_only_the_sandbox(Signal::KILL).await;
}

/// An engine that ends stops its containers. The next engine stops those it finds, unless
/// configured otherwise.
async fn engine_end_loses_only_the_sandbox(ended: Signal) {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let Some(mut engine) = TestEngine::start() else { return };
    let (server, session, mut client) = session_in_engine(&engine).await;
    client.send_request("run", json!({ "command": "echo kept > file" })).await;
    client.observation("run").await;
    client.state("idle").await;
    engine.restart(ended);
    client.until("the sandbox's exit", |frame| frame["extras"]["phase"] == "lost").await;
    eventually("the server to reach its engine again", || async { server.rest.get("/readyz").await.status == 200 })
        .await;
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "go on" })).await.expect(202);
    client.observation("message").await;
    server.rest.until_state(&session, "idle").await;
    client.send_request("run", json!({ "command": "cat file" })).await;
    let ran = client.until("the output of the command", |frame| {
        frame["extras"]["command"] == "cat file" && frame["observation"] == "run"
    });
    assert_eq!(ran.await["content"], "kept\n");
    assert_eq!(engine.containers(), 1, "one container for the session");
    server.leaves_nothing().await;
    assert_eq!(engine.containers(), 0);
}
