//! A disk that hangs, one that fails, and one that is full.

use std::{pin::pin, time::Duration};

use greenroom_protocol::{Observation, ObservationKind, link::AgentReport};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    chats::ChatClient,
    harness::{
        disk::TestDisk,
        driver::TestDriver,
        eventually, host,
        puppet::PuppetAgent,
        server::{TestServer, TestServerHome, TestServerOptions},
        socket::TestSocket,
        within,
    },
    streams::SseClient,
};

/// A server whose data are on a disk of their own, and a session of it; `None` where nobody may mount one.
async fn on_a_disk() -> Option<(TestServer, TestSocket, String)> {
    let Some(home) = TestServerHome::on_a_disk() else {
        eprintln!("skipped: root alone can mount a file system that fails");
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
    server.disk().expect("its data are on a disk of their own")
}

/// What has nothing to do with writing works as ever.
async fn reads_go_on(server: &TestServer, session: &str, before: &[Value]) {
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
    while chat.receive().await.expect("the chat goes on")["type"] != "pong" {}
}

#[tokio::test]
async fn a_disk_that_hangs_holds_back_what_needs_it_and_nothing_else() {
    let Some((server, mut socket, session_id)) = on_a_disk().await else { return };
    let before = server.rest.events(&session_id).await;
    let resting = server.rest.create(json!({ "title": "at rest" })).await;
    server.rest.until_state(&resting, "idle").await;
    server.rest.post(&format!("/api/sessions/{resting}/stop"), json!({})).await.expect(200);
    eventually("its actor to be let go", || async {
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
    let mut said = pin!(server.rest.post(&message, json!({ "content": "and what is in there?" })));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut said).await;
    assert!(early.is_err(), "what is not on disk is not acknowledged: {early:?}");
    reads_go_on(&server, &session_id, &before).await;
    // Its actor cannot be had before the disk has written that it is.
    let mut newcomer = TestSocket::attach(&server.rest, &resting).await;
    newcomer.status("synced").await;
    assert_eq!(newcomer.events(), at_rest);
    newcomer.send(json!({ "action": "ping" })).await;
    newcomer.status("pong").await;
    chat.say(json!({ "type": "message", "content": "this waits" })).await;
    chat.say(json!({ "type": "ping" })).await;
    assert_eq!(chat.receive().await, Ok(json!({ "type": "pong" })), "it is heard while its message waits");
    let why = server.rest.get("/readyz").await.error(503, "not_ready");
    assert!(why.contains("store: no answer within"), "{why}");
    server.rest.get("/healthz").await.expect(200);

    disk(&server).unfreeze();
    said.await.expect(202);
    while chat.receive().await.expect("the chat goes on")["type"] != "done" {}
    let message = format!("/api/sessions/{resting}/messages");
    server.rest.post(&message, json!({ "content": "are you there?" })).await.expect(202);
    newcomer.state("running").await;
    socket.action("finish").await;
    socket.state("idle").await;
    eventually("it to be ready", || async { server.rest.get("/readyz").await.status == 200 }).await;
    assert_eq!(server.rest.events(&session_id).await, socket.events(), "what was told is what is written");
    server.leaves_nothing().await;
}

/// P21: what an agent says is taken no faster than it can be kept.
#[tokio::test]
async fn an_agent_is_held_back_by_its_socket_while_the_disk_hangs_and_nothing_is_dropped() {
    let Some((server, ..)) = on_a_disk().await else { return };
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    let already = server.rest.events(&session).await.len();
    let before = host::resident_kib(server.pid());
    disk(&server).freeze();
    let words = |n: usize| format!("{n}:{}", "x".repeat(4 << 10));
    let mut said = 0;
    loop {
        let body = Observation { kind: ObservationKind::Think { partial: false }, content: words(said) }.into();
        said += 1;
        // Half written, the last one goes out with what follows.
        let written = timeout(Duration::from_secs(2), agent.report(AgentReport::Event { item: None, body })).await;
        let Ok(written) = written else { break };
        written.expect("the link holds");
        assert!(said < 4 << 10, "16 MiB were taken from it, of which nothing is on a disk");
    }
    let grown = host::resident_kib(server.pid()).saturating_sub(before);
    assert!(grown < 16 << 10, "it grew by {grown} KiB");

    disk(&server).unfreeze();
    agent.until_acknowledged().await;
    let heard = server.rest.events(&session).await.split_off(already);
    let heard = heard.into_iter().map(|event| event["content"].as_str().unwrap_or_default().to_owned());
    assert_eq!(heard.collect::<Vec<_>>(), (0..said).map(words).collect::<Vec<_>>(), "all of it, in order");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn a_disk_that_fails_is_named_and_loses_nothing_that_was_acknowledged() {
    let Some((server, socket, session_id)) = on_a_disk().await else { return };
    let before = socket.events();
    disk(&server).fail();
    refuses_in_words(&server, &session_id, "Read-only file system").await;
    newcomers_are_told(&server, &session_id, "Read-only file system").await;
    reads_go_on(&server, &session_id, &before).await;

    // The machine is started again.
    let mut ended = server.kill9().await;
    host::clear(ended.home());
    ended.disk().expect("its data are on a disk of their own").repair();
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
async fn a_full_disk_is_named_and_all_goes_on_once_there_is_room() {
    let Some((server, mut socket, session_id)) = on_a_disk().await else { return };
    let before = socket.events();
    disk(&server).fill();
    // Everything that still finds room is written.
    refuses_in_words(&server, &session_id, "No space left on device").await;
    let full = server.rest.events(&session_id).await;
    assert_eq!(full[..before.len()], before);
    reads_go_on(&server, &session_id, &full).await;

    disk(&server).make_room();
    eventually("it to be ready", || async { server.rest.get("/readyz").await.status == 200 }).await;
    let message = format!("/api/sessions/{session_id}/messages");
    eventually("it to take messages", || async {
        server.rest.post(&message, json!({ "content": "and now?" })).await.status == 202
    })
    .await;
    socket.until("the same socket to tell", |frame| frame["content"] == "and now?").await;
    socket.action("finish").await;
    socket.state("idle").await;
    assert_eq!(server.rest.events(&session_id).await, socket.events(), "what was told is what is written");

    let server = server.kill9().await.restart().await;
    let read_again = server.rest.events(&session_id).await;
    assert_eq!(
        read_again[..socket.events().len()],
        socket.events(),
        "a journal that was full is read by the next server"
    );
    assert!(!read_again.iter().any(|event| event["extras"]["code"] == "damaged"), "{read_again:?}");
    server.leaves_nothing().await;
}

/// What cannot be written is not taken.
async fn refuses_in_words(server: &TestServer, session: &str, words: &str) {
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
    let why = within("a refusal", refused).await;
    assert!(why.contains(words), "{why}");
    let why = server.rest.get("/readyz").await.error(503, "not_ready");
    assert!(why.contains("store: "), "{why}");
}

/// A client that comes is told why it can only read.
async fn newcomers_are_told(server: &TestServer, session: &str, words: &str) {
    let mut comes = TestSocket::attach_after(&server.rest, session, "tail").await;
    let why = comes.error("journal_unavailable").await;
    assert!(why.contains(words), "{why}");
    if !comes.seen.iter().any(|frame| frame["status"] == "synced") {
        comes.status("synced").await;
    }
    comes.send_request("message", json!({ "content": "are you there?" })).await;
    let why = comes.error("journal_unavailable").await;
    assert!(why.contains(words), "{why}");
}
