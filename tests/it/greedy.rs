//! Clients that do not read and agents that do not stop: they cost nobody anything.

use serde_json::json;

use crate::harness::{
    driver::Driver,
    eventually, host,
    model::{Model, Rule, Tool},
    server::{Options, Server},
    socket::Socket,
};

/// What a server's memory may grow by in these tests, KiB: far less than what passes through it.
const GROWTH_KIB: u64 = 24 * 1024;
const MIB: usize = 1024 * 1024;

/// A model that has the agent run `command` when it is told to `go`.
fn model(command: &str) -> Model {
    let tool = Some(Tool { name: "run".into(), input: json!({ "command": command }) });
    let go = Rule { when: Some("go".into()), times: 1, tool, ..Rule::default() };
    Model::with(vec![go, Rule { say: Some("Done.".into()), times: 1, ..Rule::default() }])
}

#[tokio::test]
async fn deaf_clients_hold_nobody_up_and_catch_up_later() {
    let model = model("yes 0123456789012345678901234567890123456789 | head -c 48000000");
    let server = Server::start(Options::anthropic(Driver::Process, &model)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut deaf = Vec::new();
    for _ in 0..40 {
        deaf.push(Socket::attach(&server.rest, &session).await);
    }
    let mut reads = Socket::attach(&server.rest, &session).await;
    reads.status("synced").await;
    let before = host::resident_kib(server.pid());
    reads.act("message", json!({ "content": "go" })).await;
    let ran = reads.observation("run").await;
    assert_eq!(ran["extras"]["exit_code"], 0, "{ran}");
    let output: usize =
        reads.seen.iter().filter_map(|frame| Some(frame["delta"].as_str()? == "output").filter(|is| *is)).count();
    assert!(output > 0, "it came while it was printed");
    reads.state("idle").await;
    let after = host::resident_kib(server.pid());
    assert!(after < before + GROWTH_KIB, "{before} KiB became {after} KiB");
    let all = server.rest.events(&session).await;
    for socket in &mut deaf[..3] {
        socket.until("the end of it all", |frame| frame["seq"] == all.len()).await;
        assert_eq!(socket.events(), all, "what it did not read then, it reads now");
    }
}

#[tokio::test]
async fn an_agent_that_does_not_stop_is_held_back_and_can_be_stopped() {
    let model = model("yes");
    let server = Server::start(Options::anthropic(Driver::Process, &model)).await;
    let mut flooded = Socket::open(&server.rest).await;
    flooded.act("start", json!({ "task": "go" })).await;
    let session = flooded.session().await;
    flooded.delta("output").await;
    let before = host::resident_kib(server.pid());
    let mut bytes = 0;
    while bytes < 16 * MIB {
        let frame = flooded.next().await;
        bytes += frame["content"].as_str().unwrap_or_default().len();
        flooded.seen.clear();
    }
    let other = server.rest.start("say something").await;
    server.rest.until_state(&other, "idle").await;
    let after = host::resident_kib(server.pid());
    assert!(after < before + GROWTH_KIB, "{before} KiB became {after} KiB");
    // It does not read what it is sent, and is heard all the same.
    flooded.act("interrupt", json!({})).await;
    server.rest.until_state(&session, "idle").await;
    eventually("its processes to be gone", || async {
        !host::processes(server.home()).iter().any(|process| process.command == "yes")
    })
    .await;
    flooded.observation("interrupted").await;
}
