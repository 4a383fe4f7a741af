//! Disks that hang, fail or are full.

use std::{pin::pin, time::Duration};

use greenroom_protocol::{Observation, ObservationKind, link::AgentReport};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{chats::ChatClient, streams::SseClient};
use greenroom_testkit::{
    disk::TestDisk,
    driver::TestDriver,
    eventually, host,
    puppet::PuppetAgent,
    server::{TestServer, TestServerHome, TestServerOptions},
    socket::TestSocket,
    within,
};

/// Starts a server with its data on a disk of their own, and a session. Returns `None` without the
/// right to mount.
async fn on_a_disk() -> Option<(TestServer, TestSocket, String)> {
    let Some(home) = TestServerHome::on_a_disk() else {
        eprintln!("skipped: mounting a file system needs root");
        return None;
    };
    let server = TestServer::start_in(home, TestServerOptions::new(TestDriver::Process)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "write a bash script that prints hello" })).await;
    let session = socket.session().await;
    socket.state("idle").await;
    Some((server, socket, session))
}

fn disk(server: &TestServer) -> &TestDisk {
    server.disk().expect("the data are on a disk of their own")
}

/// Checks that requests without a write still work.
async fn reads_still_work(server: &TestServer, session: &str, before: &[Value]) {
    let begins = |events: &[Value]| assert_eq!(events[..before.len().min(events.len())], *before);
    begins(&server.rest.events(session).await);
    assert_eq!(server.rest.session(session).await["id"], session);
    let listed = server.rest.get("/api/sessions").await.expect(200);
    assert!(listed["items"].as_array().expect("items").iter().any(|item| item["id"] == session));
    assert_eq!(server.rest.get("/").await.status, 200);
    let mut reader = TestSocket::attach(&server.rest, session).await;
    reader.status("synced").await;
    begins(&reader.events());
    let last = before.last().expect("something has happened")["seq"].clone();
    let mut stream = SseClient::open(&server.rest, session, "", None).await;
    begins(&stream.until(|event| event["seq"] == last).await);
    let mut chat = ChatClient::open(&server.rest, session).await;
    chat.say(json!({ "type": "ping" })).await;
    while chat.receive().await.expect("the chat stays open")["type"] != "pong" {}
}

#[tokio::test]
async fn frozen_disk_blocks_writes_only() {
    let Some((server, mut socket, session_id)) = on_a_disk().await else { return };
    let before = server.rest.events(&session_id).await;
    let resting = server.rest.create(json!({ "title": "at rest" })).await;
    server.rest.until_state(&resting, "idle").await;
    server.rest.post(&format!("/api/sessions/{resting}/stop"), json!({})).await.expect(200);
    eventually("its actor to be passivated", || async {
        server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
        let actors = server.rest.get("/api/admin/actors").await.expect(200);
        let mut actors = actors["items"].as_array().expect("a list").iter();
        !actors.any(|actor| actor["kind"] == "session" && actor["session"] == *resting)
    })
    .await;
    let at_rest = server.rest.events(&resting).await;
    let chatted = server.rest.create(json!({})).await;
    server.rest.until_state(&chatted, "idle").await;
    let mut chat = ChatClient::open(&server.rest, &chatted).await;
    chat.say(json!({ "type": "ping" })).await;
    assert_eq!(chat.receive().await, Ok(json!({ "type": "pong" })));
    disk(&server).freeze();
    let message = format!("/api/sessions/{session_id}/messages");
    let mut posted = pin!(server.rest.post(&message, json!({ "content": "and what is in there?" })));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut posted).await;
    assert!(early.is_err(), "a message must not be acknowledged before it is on disk: {early:?}");
    reads_still_work(&server, &session_id, &before).await;
    // Its actor cannot start before its start is on disk.
    let mut newcomer = TestSocket::attach(&server.rest, &resting).await;
    newcomer.status("synced").await;
    assert_eq!(newcomer.events(), at_rest);
    newcomer.send(json!({ "action": "ping" })).await;
    newcomer.status("pong").await;
    chat.say(json!({ "type": "message", "content": "this waits" })).await;
    chat.say(json!({ "type": "ping" })).await;
    assert_eq!(
        chat.receive().await,
        Ok(json!({ "type": "pong" })),
        "a ping is answered while the message waits for the disk"
    );
    let reason = server.rest.get("/readyz").await.error(503, "not_ready");
    assert!(reason.contains("store: no answer within"), "{reason}");
    server.rest.get("/healthz").await.expect(200);

    disk(&server).unfreeze();
    posted.await.expect(202);
    while chat.receive().await.expect("the chat stays open")["type"] != "done" {}
    let message = format!("/api/sessions/{resting}/messages");
    server.rest.post(&message, json!({ "content": "are you there?" })).await.expect(202);
    newcomer.state("running").await;
    socket.action("finish").await;
    socket.state("idle").await;
    eventually("the server to be ready", || async { server.rest.get("/readyz").await.status == 200 }).await;
    assert_eq!(server.rest.events(&session_id).await, socket.events(), "the journal equals the events on the socket");
    server.leaves_nothing().await;
}

/// P21: an agent's reports are taken no faster than they can be stored.
#[tokio::test]
async fn frozen_disk_throttles_agent_and_drops_nothing() {
    let Some((server, ..)) = on_a_disk().await else { return };
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    let already = server.rest.events(&session).await.len();
    let before = host::resident_kib(server.pid());
    disk(&server).freeze();
    let words = |n: usize| format!("{n}:{}", "x".repeat(4 << 10));
    let mut sent = 0;
    loop {
        let body = Observation { kind: ObservationKind::Think { partial: false }, content: words(sent) }.into();
        sent += 1;
        // The rest of a half-written report goes out with the acknowledgement wait below.
        let written = timeout(Duration::from_secs(2), agent.report(AgentReport::Event { item: None, body })).await;
        let Ok(written) = written else { break };
        written.expect("the link holds");
        assert!(sent < 4 << 10, "the server took 16 MiB of reports while none could be persisted");
    }
    let grown = host::resident_kib(server.pid()).saturating_sub(before);
    assert!(grown < 16 << 10, "memory grew by {grown} KiB");

    disk(&server).unfreeze();
    agent.until_acknowledged().await;
    let received = server.rest.events(&session).await.split_off(already);
    let received = received.into_iter().map(|event| event["content"].as_str().unwrap_or_default().to_owned());
    assert_eq!(
        received.collect::<Vec<_>>(),
        (0..sent).map(words).collect::<Vec<_>>(),
        "every report arrives, in order"
    );
    server.leaves_nothing().await;
}

#[tokio::test]
async fn failed_disk_is_reported_and_keeps_acknowledged_events() {
    let Some((server, socket, session_id)) = on_a_disk().await else { return };
    let before = socket.events();
    disk(&server).fail();
    writes_are_rejected(&server, &session_id, "Read-only file system").await;
    new_clients_receive_reason(&server, &session_id, "Read-only file system").await;
    reads_still_work(&server, &session_id, &before).await;

    // As after a reboot of the machine.
    let mut ended = server.kill9().await;
    host::clear(ended.home());
    ended.disk().expect("the data are on a disk of their own").repair();
    let server = ended.restart().await;
    let after = server.rest.events(&session_id).await;
    assert_eq!(after[..before.len()], before);
    let message = format!("/api/sessions/{session_id}/messages");
    server.rest.post(&message, json!({ "content": "are you there?" })).await.expect(202);
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, before.len()).await;
    socket.action("finish").await;
    socket.state("idle").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn full_disk_is_reported_and_writes_resume_with_room() {
    let Some((server, mut socket, session_id)) = on_a_disk().await else { return };
    let before = socket.events();
    disk(&server).fill();
    // Events that still fit are written.
    writes_are_rejected(&server, &session_id, "No space left on device").await;
    let full = server.rest.events(&session_id).await;
    assert_eq!(full[..before.len()], before);
    reads_still_work(&server, &session_id, &full).await;

    disk(&server).make_room();
    eventually("the server to be ready", || async { server.rest.get("/readyz").await.status == 200 }).await;
    let message = format!("/api/sessions/{session_id}/messages");
    eventually("the session to accept messages", || async {
        server.rest.post(&message, json!({ "content": "and now?" })).await.status == 202
    })
    .await;
    socket.until("the event on the same socket", |frame| frame["content"] == "and now?").await;
    socket.action("finish").await;
    socket.state("idle").await;
    assert_eq!(server.rest.events(&session_id).await, socket.events(), "the journal equals the events on the socket");

    let server = server.kill9().await.restart().await;
    let read_again = server.rest.events(&session_id).await;
    assert_eq!(
        read_again[..socket.events().len()],
        socket.events(),
        "the next server reads the journal of the full disk"
    );
    assert!(!read_again.iter().any(|event| event["extras"]["code"] == "damaged"), "{read_again:?}");
    server.leaves_nothing().await;
}

/// Checks that a message which cannot be written is rejected, and that `/readyz` names the store.
async fn writes_are_rejected(server: &TestServer, session: &str, words: &str) {
    let message = format!("/api/sessions/{session}/messages");
    let content = "x".repeat(200_000);
    let refused = async {
        loop {
            let reply = server.rest.post(&message, json!({ "content": content })).await;
            if reply.status != 202 {
                return reply.error(503, "journal_unavailable");
            }
        }
    };
    let reason = within("a refusal", refused).await;
    assert!(reason.contains(words), "{reason}");
    let reason = server.rest.get("/readyz").await.error(503, "not_ready");
    assert!(reason.contains("store: "), "{reason}");
}

/// Checks that a new client receives the reason for its read-only session.
async fn new_clients_receive_reason(server: &TestServer, session: &str, words: &str) {
    let mut comes = TestSocket::attach_after(&server.rest, session, "tail").await;
    let reason = comes.error("journal_unavailable").await;
    assert!(reason.contains(words), "{reason}");
    if !comes.seen.iter().any(|frame| frame["status"] == "synced") {
        comes.status("synced").await;
    }
    comes.send_request("message", json!({ "content": "are you there?" })).await;
    let reason = comes.error("journal_unavailable").await;
    assert!(reason.contains(words), "{reason}");
}
