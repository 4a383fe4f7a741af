//! Time that jumps: a machine that was suspended, and a clock that is set. No client and no session
//! is affected.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    host,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Time of the suspension, longer than a client may stay silent. `GREENROOM_TEST_NIGHT` sets it, in
/// seconds.
fn night() -> Duration {
    let seconds = std::env::var("GREENROOM_TEST_NIGHT").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(70))
}

/// Creates ten idle sessions without clients.
async fn idle(server: &TestServer) -> Vec<String> {
    let sessions = futures::future::join_all((0..10).map(|_| server.rest.create(json!({})))).await;
    for session in &sessions {
        server.rest.until_state(session, "idle").await;
    }
    sessions
}

#[tokio::test]
async fn suspended_server_closes_no_client() {
    let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_SWEEPER__PAUSE_AFTER", "60s");
    let server = TestServer::start(options).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut client = TestSocket::attach(&server.rest, &session_id).await;
    client.status("synced").await;
    let unwatched = idle(&server).await;
    let agents = host::agents(server.home());
    server.signal(Signal::STOP);
    tokio::time::sleep(night()).await;
    server.signal(Signal::CONT);
    let swept = server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
    assert_eq!(swept["rested"], 0, "suspended time must not count as idle: {swept}");
    for id in &unwatched {
        assert_eq!(server.rest.session(id).await["state"], "idle");
    }
    client.send_request("run", json!({ "command": "echo awake" })).await;
    let ran = client.observation("run").await;
    assert_eq!(ran["content"], "awake\n", "the same socket, the same sandbox");
    client.state("idle").await;
    assert_eq!(host::agents(server.home()), agents);
    server.leaves_nothing().await;
}

/// `libfaketime` shifts a program's clock, by an offset in a file that may change at any moment.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[tokio::test]
async fn clock_change_sweeps_no_session() {
    if !Path::new(FAKETIME).exists() {
        eprintln!("skipped: no `{FAKETIME}` (Debian: `apt install libfaketime`)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let clock = dir.path().join("clock");
    fs::write(&clock, "+0").expect("the file can be written");
    let options = TestServerOptions::new(TestDriver::Process)
        .env("LD_PRELOAD", FAKETIME)
        .env("FAKETIME_TIMESTAMP_FILE", clock.to_str().expect("a path"))
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("GREENROOM_SWEEPER__PAUSE_AFTER", "10min");
    let server = TestServer::start(options).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut client = TestSocket::attach(&server.rest, &session_id).await;
    let unwatched = idle(&server).await;
    for jump in ["+3600", "-3600", "+0"] {
        fs::write(&clock, jump).expect("the file can be written");
        let swept = server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
        assert_eq!((&swept["rested"], &swept["sandboxes"]), (&json!(0), &json!(0)), "{jump}: {swept}");
        client.send_request("run", json!({ "command": "echo here" })).await;
        let ran = client.observation("run").await;
        assert_eq!(ran["content"], "here\n", "{jump}");
        client.state("idle").await;
        for id in unwatched.iter().chain([&session_id]) {
            assert_eq!(server.rest.session(id).await["state"], "idle", "{jump}");
        }
    }
    let events = server.rest.events(&session_id).await;
    let times: Vec<&str> = events.iter().filter_map(|event| event["at"].as_str()).collect();
    let (first, last) = (times.iter().min().expect("events"), times.iter().max().expect("events"));
    assert!(first[..13] != last[..13], "the clock must have been set: {first} to {last}");
    server.leaves_nothing().await;
}
