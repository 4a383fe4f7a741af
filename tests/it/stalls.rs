//! An engine that stops answering: the server goes on, says so, and never starts a second container in place of one that it
//! cannot see. The engine is the test's own, as others use the machine's at the same time.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    driver::TestDriver,
    engine::{IMAGE, TestEngine},
    eventually,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// A session whose container the engine runs, and a client of it.
async fn stage(engine: &TestEngine) -> (TestServer, String, TestSocket) {
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
async fn an_engine_that_stalls_stalls_nobody() {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let Some(engine) = TestEngine::start() else { return };
    let (server, _, mut client) = stage(&engine).await;

    engine.signal(Signal::STOP);
    let late = server.rest.create(json!({})).await;
    eventually("the server to say that the engine does not answer", || async {
        server.rest.get("/readyz").await.status == 503
    })
    .await;
    for _ in 0..50 {
        server.rest.get("/api/sessions").await.expect(200);
        client.send(json!({ "action": "ping" })).await;
        client.status("pong").await;
    }
    // What runs in the sandbox needs no engine.
    client.send_request("run", json!({ "command": "echo still here" })).await;
    assert_eq!(client.observation("run").await["content"], "still here\n");
    assert_eq!(server.rest.session(&late).await["state"], "starting");
    tokio::time::sleep(Duration::from_secs(30)).await;
    server.rest.get("/api/sessions").await.expect(200);
    engine.signal(Signal::CONT);

    eventually("the server to be ready again", || async { server.rest.get("/readyz").await.status == 200 }).await;
    let state = server.rest.session(&late).await["state"].clone();
    if state != "starting" && state != "idle" {
        // Its start was given up within the stall, and it said so: a person tries again.
        assert_eq!(state, "failed");
        server.rest.post(&format!("/api/sessions/{late}/resume"), json!({})).await.expect(200);
    }
    server.rest.until_state(&late, "idle").await;
    assert_eq!(engine.containers(), 2, "one for each session");
    client.send_request("run", json!({ "command": "echo and still" })).await;
    assert_eq!(client.observation("run").await["content"], "and still\n", "it is the same socket");
    server.leaves_nothing().await;
}

/// It reads the order, sleeps over the deadline, and carries it out when it wakes.
#[tokio::test]
async fn a_pause_that_comes_too_late_stops_nothing() {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let Some(engine) = TestEngine::start() else { return };
    let (server, session, mut client) = stage(&engine).await;

    engine.signal(Signal::STOP);
    client.send_request("pause", json!({})).await;
    client.state("paused").await;
    let told = client.until("that it could not be paused", |frame| frame["extras"]["code"] == "sandbox");
    told.await;
    eventually("the session to say that it goes on", || async {
        server.rest.session(&session).await["state"] == "idle"
    })
    .await;
    engine.signal(Signal::CONT);
    eventually("the server to be ready again", || async { server.rest.get("/readyz").await.status == 200 }).await;
    for n in 0..3 {
        // Late enough for whatever the engine had been asked for.
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.send_request("run", json!({ "command": format!("echo on {n}") })).await;
        let ran = client.until("what it prints", |frame| {
            frame["observation"] == "run" && frame["extras"]["command"] == format!("echo on {n}")
        });
        assert_eq!(ran.await["content"], format!("on {n}\n"));
    }
    client.send_request("pause", json!({})).await;
    client.state("paused").await;
    client.send_request("resume", json!({})).await;
    client.send_request("run", json!({ "command": "echo as ever" })).await;
    let ran = client
        .until("what it prints", |frame| frame["observation"] == "run" && frame["extras"]["command"] == "echo as ever");
    assert_eq!(ran.await["content"], "as ever\n");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn an_engine_that_is_restarted_costs_the_sandbox_and_nothing_else() {
    an_engine_costs_the_sandbox_and_nothing_else(Signal::TERM).await;
}

#[tokio::test]
async fn an_engine_that_is_killed_costs_the_sandbox_and_nothing_else() {
    an_engine_costs_the_sandbox_and_nothing_else(Signal::KILL).await;
}

/// One that ends takes its containers along, as the next one does that finds them, unless it is configured otherwise.
async fn an_engine_costs_the_sandbox_and_nothing_else(ended: Signal) {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let Some(mut engine) = TestEngine::start() else { return };
    let (server, session, mut client) = stage(&engine).await;
    client.send_request("run", json!({ "command": "echo kept > file" })).await;
    client.observation("run").await;
    client.state("idle").await;
    engine.restart(ended);
    client.until("the news of its death", |frame| frame["extras"]["phase"] == "lost").await;
    eventually("the server to see its engine again", || async { server.rest.get("/readyz").await.status == 200 }).await;
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "go on" })).await.expect(202);
    client.observation("message").await;
    server.rest.until_state(&session, "idle").await;
    client.send_request("run", json!({ "command": "cat file" })).await;
    let ran = client
        .until("what it prints", |frame| frame["extras"]["command"] == "cat file" && frame["observation"] == "run");
    assert_eq!(ran.await["content"], "kept\n");
    assert_eq!(engine.containers(), 1, "one for the session");
    server.leaves_nothing().await;
    assert_eq!(engine.containers(), 0);
}
