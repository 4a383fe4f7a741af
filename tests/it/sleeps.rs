//! Time that jumps: a machine that slept, and a clock that is set. Nobody is blamed for it.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    driver::TestDriver,
    host,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Longer than a client may stay silent. `GREENROOM_TEST_NIGHT` makes it as long as you like, in seconds.
fn night() -> Duration {
    let seconds = std::env::var("GREENROOM_TEST_NIGHT").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(70))
}

/// Ten sessions that nobody watches.
async fn idle(server: &TestServer) -> Vec<String> {
    let sessions = futures::future::join_all((0..10).map(|_| server.rest.create(json!({})))).await;
    for session in &sessions {
        server.rest.until_state(session, "idle").await;
    }
    sessions
}

#[tokio::test]
async fn a_server_that_slept_blames_nobody() {
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
    assert_eq!(swept["rested"], 0, "nobody was idle, all slept: {swept}");
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

/// `libfaketime` lies to a program about the time, as a file says that may change at any moment.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[tokio::test]
async fn a_clock_that_is_set_sweeps_nobody_away() {
    if !Path::new(FAKETIME).exists() {
        eprintln!("skipped: no `{FAKETIME}` (Debian: `apt install libfaketime`)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let clock = dir.path().join("clock");
    fs::write(&clock, "+0").expect("it is written");
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
        fs::write(&clock, jump).expect("it is written");
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
    let told: Vec<&str> = events.iter().filter_map(|event| event["at"].as_str()).collect();
    let (first, last) = (told.iter().min().expect("events"), told.iter().max().expect("events"));
    assert!(first[..13] != last[..13], "the clock was really set: {first} to {last}");
    server.leaves_nothing().await;
}
