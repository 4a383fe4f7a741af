//! Sandboxes that take all they can: process ids, disk space, and time without a server.

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    eventually, on_each_driver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(leftover_fork_bomb_blocks_no_command, growing_workspace_is_interrupted, sandbox_without_server_ends);

/// Starts a server with one setting, and a session whose agent is idle.
async fn idle_session(driver: TestDriver, variable: &str, value: &str) -> (TestServer, TestSocket, String) {
    let options = TestServerOptions::new(driver).env("GREENROOM_SWEEPER__EVERY", "1s").env(variable, value);
    let server = TestServer::start(options).await;
    let id = server.rest.create(json!({})).await;
    server.rest.until_state(&id, "idle").await;
    let mut socket = TestSocket::attach_after(&server.rest, &id, "tail").await;
    socket.status("synced").await;
    (server, socket, id)
}

async fn leftover_fork_bomb_blocks_no_command(driver: TestDriver) {
    let (server, mut socket, id) = idle_session(driver, "GREENROOM_SANDBOX__PIDS", "48").await;
    // Not endless, for machines that do not limit process ids.
    let bomb = "sh -c 'i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done' >/dev/null 2>&1";
    socket.send_request("run", json!({ "command": bomb })).await;
    socket.observation("run").await;
    eventually("the leftovers to be listed", || async {
        let events = server.rest.events(&id).await;
        let is_long = |event: &Value| event["extras"]["items"].as_array().is_some_and(|items| items.len() > 10);
        events.iter().any(|event| event["observation"] == "commands" && is_long(event))
    })
    .await;
    for _ in 0..3 {
        socket.send_request("run", json!({ "command": "echo alive | cat" })).await;
        let done = socket.observation("run").await;
        assert_eq!((&done["content"], &done["extras"]["exit_code"]), (&json!("alive\n"), &json!(0)), "{done}");
    }
    socket.state("idle").await;
    socket.send_request("interrupt", json!({})).await;
    let receipt = socket.observation("interrupted").await;
    assert!(receipt["extras"]["what"].as_str().is_some_and(|what| what.contains("left running")), "{receipt}");
    socket.state("idle").await;
    server.leaves_nothing().await;
}

async fn growing_workspace_is_interrupted(driver: TestDriver) {
    let (server, mut socket, id) = idle_session(driver, "GREENROOM_QUOTA__WORKSPACE", "1MiB").await;
    let command = "while :; do head -c 1000000 /dev/zero >> large; sleep 0.1; done";
    socket.send_request("run", json!({ "command": command })).await;
    socket.state("running").await;
    eventually("the quota to be noticed", || async {
        let events = server.rest.events(&id).await;
        events.iter().any(|event| event["extras"]["code"] == "quota")
    })
    .await;
    socket.observation("interrupted").await;
    let idle = socket.state("idle").await;
    assert_eq!(idle["extras"]["reason"], "quota");
    server.leaves_nothing().await;
}

async fn sandbox_without_server_ends(driver: TestDriver) {
    let (server, mut socket, id) = idle_session(driver, "GREENROOM_SANDBOX__ORPHAN_AFTER", "1s").await;
    socket.send_request("run", json!({ "command": "echo begun; sleep 1000" })).await;
    socket.delta("output").await;
    let server = server.kill9().await;
    let saved = server.data().join("homes").join(&id).join(".greenroom-reports");
    eventually("the agent to end", || async { saved.exists() }).await;
    let server = server.restart().await;
    server.rest.until_state(&id, "idle").await;
    let events = server.rest.events(&id).await;
    let run = events.iter().find(|event| event["observation"] == "run").expect("the result has arrived");
    assert_eq!(run["content"], "begun\n", "{run}");
    assert!(events.iter().any(|event| event["extras"]["code"] == "orphaned"), "{events:?}");
    server.leaves_nothing().await;
}
