//! A disk that hangs, one that fails, and one that is full.

use std::{pin::pin, time::Duration};

use greenroom_protocol::{Observation, Seen, link::Report};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    chats::Chat,
    harness::{
        disk::Disk,
        driver::Driver,
        eventually, host,
        puppet::Puppet,
        server::{Home, Options, Server},
        socket::Socket,
        within,
    },
    streams::Events,
};

/// A server whose data are on a disk of their own, and a session of it; `None` where nobody may mount one.
async fn on_a_disk() -> Option<(Server, Socket, String)> {
    let Some(home) = Home::on_a_disk() else {
        eprintln!("skipped: root alone can mount a file system that fails");
        return None;
    };
    let server = Server::start_in(home, Options::new(Driver::Process)).await;
    let mut socket = Socket::open(&server.rest).await;
    socket.act("start", json!({ "task": "write a bash script that prints hello" })).await;
    let session = socket.session().await;
    socket.state("idle").await;
    Some((server, socket, session))
}

fn disk(server: &Server) -> &Disk {
    server.disk().expect("its data are on a disk of their own")
}

/// What has nothing to do with writing works as ever.
async fn reads_go_on(server: &Server, session: &str, before: &[Value]) {
    let begins = |events: &[Value]| assert_eq!(events[..before.len().min(events.len())], *before);
    begins(&server.rest.events(session).await);
    assert_eq!(server.rest.session(session).await["id"], session);
    let listed = server.rest.get("/api/sessions").await.expect(200);
    assert!(listed["items"].as_array().expect("items").iter().any(|item| item["id"] == session));
    assert_eq!(server.rest.get("/").await.status, 200);
    let mut reader = Socket::attach(&server.rest, session).await;
    reader.status("synced").await;
    begins(&reader.events());
    let last = before.last().expect("something has happened")["seq"].clone();
    let mut stream = Events::open(&server.rest, session, "", None).await;
    begins(&stream.until(|event| event["seq"] == last).await);
    let mut chat = Chat::open(&server.rest, session).await;
    chat.say(json!({ "type": "ping" })).await;
    while chat.hear().await.expect("the chat goes on")["type"] != "pong" {}
}

#[tokio::test]
async fn a_disk_that_hangs_holds_back_what_needs_it_and_nothing_else() {
    let Some((server, mut socket, session)) = on_a_disk().await else { return };
    let before = server.rest.events(&session).await;
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
    let mut chat = Chat::open(&server.rest, &chatted).await;
    chat.say(json!({ "type": "ping" })).await;
    assert_eq!(chat.hear().await, Ok(json!({ "type": "pong" })));
    disk(&server).freeze();
    let message = format!("/api/sessions/{session}/messages");
    let mut said = pin!(server.rest.post(&message, json!({ "content": "and what is in there?" })));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut said).await;
    assert!(early.is_err(), "what is not on disk is not acknowledged: {early:?}");
    reads_go_on(&server, &session, &before).await;
    // Its actor cannot be had before the disk has written that it is.
    let mut newcomer = Socket::attach(&server.rest, &resting).await;
    newcomer.status("synced").await;
    assert_eq!(newcomer.events(), at_rest);
    newcomer.send(json!({ "action": "ping" })).await;
    newcomer.status("pong").await;
    chat.say(json!({ "type": "message", "content": "this waits" })).await;
    chat.say(json!({ "type": "ping" })).await;
    assert_eq!(chat.hear().await, Ok(json!({ "type": "pong" })), "it is heard while its message waits");
    let why = server.rest.get("/readyz").await.error(503, "not_ready");
    assert!(why.contains("store: no answer within"), "{why}");
    server.rest.get("/healthz").await.expect(200);

    disk(&server).thaw();
    said.await.expect(202);
    while chat.hear().await.expect("the chat goes on")["type"] != "done" {}
    let message = format!("/api/sessions/{resting}/messages");
    server.rest.post(&message, json!({ "content": "are you there?" })).await.expect(202);
    newcomer.state("running").await;
    socket.action("finish").await;
    socket.state("idle").await;
    eventually("it to be ready", || async { server.rest.get("/readyz").await.status == 200 }).await;
    assert_eq!(server.rest.events(&session).await, socket.events(), "what was told is what is written");
    server.leaves_nothing().await;
}

/// P21: what an agent says is taken no faster than it can be kept.
#[tokio::test]
async fn an_agent_is_held_back_by_its_socket_while_the_disk_hangs_and_nothing_is_dropped() {
    let Some((server, ..)) = on_a_disk().await else { return };
    let (session, mut agent) = Puppet::in_a_new_session(&server, json!({})).await;
    let already = server.rest.events(&session).await.len();
    let before = host::resident_kib(server.pid());
    disk(&server).freeze();
    let words = |n: usize| format!("{n}:{}", "x".repeat(4 << 10));
    let mut said = 0;
    loop {
        let body = Observation { seen: Seen::Think { partial: false }, content: words(said) }.into();
        said += 1;
        // Half written, the last one goes out with what follows.
        let written = timeout(Duration::from_secs(2), agent.report(Report::Event { item: None, body })).await;
        let Ok(written) = written else { break };
        written.expect("the link holds");
        assert!(said < 4 << 10, "16 MiB were taken from it, of which nothing is on a disk");
    }
    let grown = host::resident_kib(server.pid()).saturating_sub(before);
    assert!(grown < 16 << 10, "it grew by {grown} KiB");

    disk(&server).thaw();
    agent.until_acknowledged().await;
    let heard = server.rest.events(&session).await.split_off(already);
    let heard = heard.into_iter().map(|event| event["content"].as_str().unwrap_or_default().to_owned());
    assert_eq!(heard.collect::<Vec<_>>(), (0..said).map(words).collect::<Vec<_>>(), "all of it, in order");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn a_disk_that_fails_is_named_and_loses_nothing_that_was_acknowledged() {
    let Some((server, socket, session)) = on_a_disk().await else { return };
    let before = socket.events();
    disk(&server).fail();
    refuses_in_words(&server, &session, "Read-only file system").await;
    newcomers_are_told(&server, &session, "Read-only file system").await;
    reads_go_on(&server, &session, &before).await;

    // The machine is started again.
    let mut ended = server.kill9().await;
    host::clear(ended.home());
    ended.disk().expect("its data are on a disk of their own").repair();
    let server = ended.restart().await;
    let after = server.rest.events(&session).await;
    assert_eq!(after[..before.len()], before);
    let message = format!("/api/sessions/{session}/messages");
    server.rest.post(&message, json!({ "content": "are you there?" })).await.expect(202);
    let mut socket = Socket::attach_after(&server.rest, &session, before.len()).await;
    socket.action("finish").await;
    socket.state("idle").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn a_full_disk_is_named_and_all_goes_on_once_there_is_room() {
    let Some((server, mut socket, session)) = on_a_disk().await else { return };
    let before = socket.events();
    disk(&server).fill();
    // Everything that still finds room is written.
    refuses_in_words(&server, &session, "No space left on device").await;
    let full = server.rest.events(&session).await;
    assert_eq!(full[..before.len()], before);
    reads_go_on(&server, &session, &full).await;

    disk(&server).make_room();
    eventually("it to be ready", || async { server.rest.get("/readyz").await.status == 200 }).await;
    let message = format!("/api/sessions/{session}/messages");
    eventually("it to take messages", || async {
        server.rest.post(&message, json!({ "content": "and now?" })).await.status == 202
    })
    .await;
    socket.until("the same socket to tell", |frame| frame["content"] == "and now?").await;
    socket.action("finish").await;
    socket.state("idle").await;
    assert_eq!(server.rest.events(&session).await, socket.events(), "what was told is what is written");

    let server = server.kill9().await.restart().await;
    let read_again = server.rest.events(&session).await;
    assert_eq!(
        read_again[..socket.events().len()],
        socket.events(),
        "a journal that was full is read by the next server"
    );
    assert!(!read_again.iter().any(|event| event["extras"]["code"] == "damaged"), "{read_again:?}");
    server.leaves_nothing().await;
}

/// What cannot be written is not taken.
async fn refuses_in_words(server: &Server, session: &str, words: &str) {
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
async fn newcomers_are_told(server: &Server, session: &str, words: &str) {
    let mut comes = Socket::attach_after(&server.rest, session, "tail").await;
    let why = comes.error("journal_unavailable").await;
    assert!(why.contains(words), "{why}");
    if !comes.seen.iter().any(|frame| frame["status"] == "synced") {
        comes.status("synced").await;
    }
    comes.act("message", json!({ "content": "are you there?" })).await;
    let why = comes.error("journal_unavailable").await;
    assert!(why.contains(words), "{why}");
}
