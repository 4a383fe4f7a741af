//! Clients of sessions that restart, are purged, or are unavailable for a while.

pub(crate) mod fixture;
mod views;

use std::{cell::Cell, sync::atomic::Ordering::SeqCst, time::Duration};

use greenroom_protocol::{
    CLIENT_FRAME_LIMIT, Observation, ObservationKind,
    client::ClientRequest,
    link::{AgentReport, WorkOutcome},
};
use serde_json::{Value, json};
use tokio::{
    sync::RwLockWriteGuard,
    time::{Instant, timeout},
};

use self::fixture::{FrontendFixture, TestClient, fixture, report, send_message, send_request, turn_ended};
use super::{
    EventPull, PulledItem, attached_clients,
    socket::{LOOKUP_RETRY_MAX, MAX_IN_FLIGHT},
};
use crate::{
    sandbox::SandboxExit,
    session::{
        RequestError,
        messages::{GetView, Purged, Relay, SandboxFailed, SandboxLost},
    },
    store::{Seq, SessionId, Store, contract::claim_and_forget},
};

/// Checks that all events up to `last` arrived, once and in order.
fn check_events(frames: &[Value], last: Seq) {
    let events = frames.iter().filter(|frame| frame.get("at").is_some());
    let seqs: Vec<_> = events.filter_map(|frame| frame["seq"].as_u64()).collect();
    let wrong = seqs.iter().zip(1..).find(|(seq, expected)| *seq != expected);
    assert_eq!((seqs.len(), wrong), (last as usize, None));
}

fn unavailable() -> Option<RequestError> {
    Some(RequestError::Journal("no space left on device".to_owned()))
}

#[actix::test]
async fn no_event_is_sent_twice_while_the_session_is_unavailable() {
    let fixture = fixture();
    let id = fixture.journal(600).await;
    // A page takes longer than the interval of lookups, so a lookup succeeds during a read.
    fixture.delay_store(Duration::from_millis(150));
    fixture.fail_lookups(unavailable());
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    let first = client.until(|frame| frame["seq"] == 256).await;
    let codes: Vec<_> = first.iter().filter_map(|frame| frame["error"]["code"].as_str()).collect();
    assert_eq!(codes, ["journal_unavailable"]);
    // The session becomes available while the next page is being read.
    fixture.fail_lookups(None);
    let rest = client.until(|frame| frame["status"] == "synced").await;
    check_events(&[first, rest].concat(), 600);
}

#[actix::test]
async fn reading_client_continues_after_its_session_restarts() {
    let fixture = fixture();
    let id = fixture.journal(900).await;
    fixture.delay_store(Duration::from_millis(250));
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    let mut frames = client.until(|frame| frame["seq"] == 1).await;
    let session = fixture.session_of(id).await;
    session.send(Purged).await.expect("the session runs");
    fixture.fail_lookups(unavailable());
    frames.extend(client.until(|frame| frame["seq"] == 600).await);
    fixture.fail_lookups(None);
    frames.extend(client.until(|frame| frame["status"] == "synced").await);
    check_events(&frames, 900);
    // The client was informed of the outage, so it is informed of the end.
    let reported: Vec<_> =
        frames.iter().filter_map(|frame| frame["status"].as_str().or(frame["error"]["code"].as_str())).collect();
    assert_eq!(reported, ["hello", "journal_unavailable", "hello", "synced"]);
    // The client is subscribed to the session, not only to the journal.
    send_message(&fixture.session_of(id).await, "hello").await;
    client.until(|frame| frame["args"]["content"] == "hello").await;
}

#[actix::test]
async fn request_triggers_a_lookup_at_once() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    fixture.fail_lookups(unavailable());
    session.send(Purged).await.expect("the session runs");
    client.until(|frame| frame["error"]["code"] == "journal_unavailable").await;
    // From now on there is one lookup in two seconds.
    tokio::time::pause();
    timeout(LOOKUP_RETRY_MAX * 3, client.receive()).await.expect_err("the reason was reported before");
    fixture.fail_lookups(Some(RequestError::Journal("the disk is read-only".to_owned())));
    let message = |n: u8| json!({ "action": "message", "args": { "content": format!("{n}") }, "id": format!("{n}") });
    client.send_json(message(1));
    let rejected = client.until(|frame| frame["id"] == "1").await.remove(0);
    assert!(
        rejected["error"]["message"].as_str().is_some_and(|reason| reason.contains("read-only")),
        "the present reason: {rejected}"
    );
    let sent_at = Instant::now();
    fixture.fail_lookups(None);
    (2..=4).for_each(|n| client.send_json(message(n)));
    let frames = client.until(|frame| frame["args"]["content"] == "4").await;
    assert!(
        sent_at.elapsed() < LOOKUP_RETRY_MAX / 2,
        "the request waited for the next lookup: {:?}",
        sent_at.elapsed()
    );
    let messages: Vec<_> = frames.iter().filter_map(|frame| frame["args"]["content"].as_str()).collect();
    assert_eq!(messages, ["2", "3", "4"]);
    let statuses: Vec<_> = frames.iter().filter_map(|frame| frame["status"].as_str()).collect();
    assert_eq!(statuses[..2], ["hello", "synced"]);
}

#[actix::test]
async fn new_reason_of_unavailability_is_reported() {
    let fixture = fixture();
    let id = fixture.journal(1).await;
    fixture.fail_lookups(Some(RequestError::Unavailable("the session is restarting".to_owned())));
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    client.until(|frame| frame["error"]["code"] == "unavailable").await;
    fixture.fail_lookups(Some(RequestError::Unreadable("another version wrote it".to_owned())));
    let frames = client.until(|frame| frame["error"]["code"] == "conflict").await;
    assert_eq!(frames.iter().filter(|frame| frame["error"].is_object()).count(), 1, "each reason once: {frames:?}");
    // Another lookup cannot help, so lookups are rare from now on.
    tokio::time::pause();
    timeout(LOOKUP_RETRY_MAX * 30, client.receive()).await.expect_err("the reason was reported before");
    let before = fixture.sessions.lookups.load(SeqCst);
    timeout(LOOKUP_RETRY_MAX * 30, client.receive()).await.expect_err("the reason was reported before");
    let lookups = fixture.sessions.lookups.load(SeqCst) - before;
    assert!((1..=3).contains(&lookups), "{lookups} lookups in a minute");
    // A request triggers a lookup at once.
    let sent_at = Instant::now();
    client.send_json(json!({ "action": "interrupt", "id": "i" }));
    let rejected = client.until(|frame| frame["id"] == "i").await.pop().expect("the last");
    assert_eq!(rejected["error"]["code"], "conflict");
    assert!(sent_at.elapsed() < LOOKUP_RETRY_MAX, "the request waited for the next lookup: {:?}", sent_at.elapsed());
}

/// In the middle of a turn, a session reads the events of that turn before it starts.
#[actix::test]
async fn client_of_a_session_on_a_hanging_disk_gets_an_error() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    send_message(&session, "work").await;
    session.send(Purged).await.expect("the session runs");
    tokio::time::pause();
    fixture.delay_store(LOOKUP_RETRY_MAX * 100);
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    let frames = client.until(|frame| frame["error"]["code"] == "unavailable").await;
    assert_eq!(frames[0]["status"], "hello");
    fixture.delay_store(Duration::ZERO);
    tokio::time::advance(LOOKUP_RETRY_MAX * 100).await;
    let frames = client.until(|frame| frame["status"] == "synced").await;
    assert!(frames.iter().any(|frame| frame["args"]["content"] == "work"));
}

/// Returns a client whose session has just stopped, and the lock that blocks its lookup.
async fn client_in_lookup(fixture: &FrontendFixture) -> (TestClient, RwLockWriteGuard<'_, ()>) {
    let (id, session) = fixture.session().await;
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    let lookup_lock = fixture.sessions.lookup_lock.write().await;
    session.send(Purged).await.expect("the session runs");
    (client, lookup_lock)
}

#[actix::test]
async fn waiting_requests_have_the_limit_of_requests_in_flight() {
    let fixture = fixture();
    let (mut client, lookup_lock) = client_in_lookup(&fixture).await;
    for n in 0..=MAX_IN_FLIGHT {
        client.send_json(json!({ "action": "message", "args": { "content": "go" }, "id": format!("{n}") }));
    }
    let rejected = client.until(|frame| frame["error"].is_object()).await.pop().expect("the last");
    assert_eq!((&rejected["error"]["code"], &rejected["id"]), (&json!("too_many"), &json!(format!("{MAX_IN_FLIGHT}"))));
    client.send_json(json!({ "action": "interrupt", "id": "i" }));
    client.send_json(json!({ "action": "ping" }));
    client.until(|frame| frame["status"] == "pong").await;
    drop(lookup_lock);
    // Some requests are accepted and the others rejected, depending on the queue's limit.
    let answers = Cell::new(0);
    let frames = client
        .until(|frame| {
            answers.set(answers.get() + u8::from(frame["id"].is_string()));
            answers.get() == MAX_IN_FLIGHT + 1
        })
        .await;
    let interrupt = frames.iter().find(|frame| frame["id"] == "i").expect("the interrupt is answered");
    assert_ne!(interrupt["error"]["code"], "too_many", "the interrupt has room beside the messages");
}

#[actix::test]
async fn interrupt_is_accepted_beside_the_limit_of_requests_in_flight() {
    let fixture = fixture();
    let (id, _) = fixture.session().await;
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    // Requests are answered after they are on disk.
    fixture.store.gate_appends();
    for n in 0..=MAX_IN_FLIGHT {
        client.send_json(json!({ "action": "message", "args": { "content": "go" }, "id": format!("{n}") }));
    }
    let rejected = client.until(|frame| frame["error"].is_object()).await.pop().expect("the last");
    assert_eq!((&rejected["error"]["code"], &rejected["id"]), (&json!("too_many"), &json!(format!("{MAX_IN_FLIGHT}"))));
    let appends_before = fixture.store.gated_append_count();
    client.send_json(json!({ "action": "interrupt", "id": "i" }));
    client.send_json(json!({ "action": "ping" }));
    let frames = client.until(|frame| frame["status"] == "pong").await;
    assert!(frames.iter().all(|frame| frame["error"].is_null()), "{frames:?}");
    // The session has received the interrupt and persists it.
    while fixture.store.gated_append_count() == appends_before {
        tokio::task::yield_now().await;
    }
}

#[actix::test]
async fn bytes_of_waiting_requests_are_bounded() {
    let fixture = fixture();
    let (mut client, lookup_lock) = client_in_lookup(&fixture).await;
    let long = "x".repeat(CLIENT_FRAME_LIMIT / 2);
    for n in 0..4 {
        client.send_json(json!({ "action": "message", "args": { "content": long }, "id": format!("{n}") }));
    }
    let rejected = client.until(|frame| frame["error"].is_object()).await.pop().expect("the last");
    assert_eq!((&rejected["error"]["code"], &rejected["id"]), (&json!("unavailable"), &json!("3")));
    drop(lookup_lock);
    client.until(|frame| frame["id"] == "2").await;
}

#[actix::test]
async fn client_with_a_session_id_never_creates_another_session() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    let (_, stale) = fixture.session().await;
    stale.send(Purged).await.expect("the session runs");
    *fixture.sessions.stale.lock().expect("lock is never poisoned: no holder panics") = Some(stale);
    let created = fixture.sessions.created.load(SeqCst);
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    client.send_json(json!({ "action": "start", "args": { "task": "go" }, "id": "a" }));
    let rejected = client.receive().await.expect("an answer");
    assert_eq!((&rejected["error"]["code"], &rejected["id"]), (&json!("unavailable"), &json!("a")), "{rejected}");
    let hello = client.receive().await.expect("the lookup finds the session");
    assert_eq!(hello["session"]["id"], id.to_string(), "{hello}");
    assert_eq!(fixture.sessions.created.load(SeqCst), created);
    client.send_json(json!({ "action": "start", "args": { "task": "go" }, "id": "a" }));
    client.until(|frame| frame["status"] == "accepted").await;
    assert!(session.connected());
}

/// The session's actor stops between its creation and the first request.
#[actix::test]
async fn session_that_stops_right_after_creation_is_found_again() {
    let fixture = fixture();
    let (_, stale) = fixture.session().await;
    stale.send(Purged).await.expect("the session runs");
    let mut client = TestClient::attach(&fixture.services, None).await;
    assert_eq!(client.receive().await.expect("a hello")["session"], Value::Null);
    *fixture.sessions.stale.lock().expect("lock is never poisoned: no holder panics") = Some(stale);
    client.send_json(json!({ "action": "start", "args": { "task": "go" } }));
    let frames = client.until(|frame| frame["session"].is_object()).await;
    assert_eq!(frames[0]["error"]["code"], "unavailable", "the task was rejected: {frames:?}");
}

#[actix::test]
async fn clients_of_a_purged_session_get_4404() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    let mut chat = TestClient::chat(&fixture.services, id).await;
    chat.so_far().await;
    let mut pull = EventPull::open(fixture.services.clone(), id, Seq::MAX).await.expect("the session is available");
    claim_and_forget(&*fixture.store, id).await;
    session.send(Purged).await.expect("the session runs");
    assert_eq!((client.closed().await, chat.closed().await), (Some(4404), Some(4404)));
    assert!(matches!(pull.next().await, PulledItem::Gone(RequestError::NoSession(_))));
}

/// The store reports that the session is gone, whatever its actor does.
#[actix::test]
async fn readers_of_a_removed_journal_get_4404() {
    let fixture = fixture();
    let id = fixture.journal(900).await;
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    let mut pull = EventPull::open(fixture.services.clone(), id, 0).await.expect("the session is available");
    client.until(|frame| frame["seq"] == 1).await;
    assert!(matches!(pull.next().await, PulledItem::Event((1, _))));
    claim_and_forget(&*fixture.store, id).await;
    assert_eq!(client.closed().await, Some(4404));
    let rest = async { while !matches!(pull.next().await, PulledItem::Gone(RequestError::NoSession(_))) {} };
    tokio::time::timeout(Duration::from_secs(5), rest).await.expect("the pull ends in time");
}

#[actix::test]
async fn hello_shows_the_state_on_disk() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    let on_disk = async || fixture.store.get(id).await.expect("the store is readable").expect("the session exists");
    let before = on_disk().await;
    fixture.store.gate_appends();
    let request = ClientRequest::Run { command: "ls".into() };
    let answer = session.send(Relay { request, idempotency_key: None, requested_by: None });
    let answer = tokio::spawn(answer);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let hello = TestClient::attach(&fixture.services, Some(id)).await.receive().await.expect("a hello");
    assert_eq!((&hello["last_seq"], &hello["session"]["last_seq"]), (&json!(before.tail), &json!(before.tail)));
    assert_eq!((&hello["state"], &hello["session"]["state"]), (&json!("idle"), &json!("idle")));
    assert_eq!(hello["session"]["attached"], 1);
    let view = session.send(GetView).await.expect("the session runs");
    assert_eq!(view.last_seq, before.tail);
    fixture.store.release_one();
    answer.await.expect("the task completes").expect("the session runs").expect("the request is accepted");
    assert!(on_disk().await.tail > before.tail);
}

#[actix::test]
async fn every_kind_of_client_counts_as_attached() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    let mut chat = TestClient::chat(&fixture.services, id).await;
    chat.so_far().await;
    let pull = EventPull::open(fixture.services.clone(), id, 0).await.expect("the session is available");
    let in_view = async || session.send(GetView).await.expect("the session runs").attached;
    assert_eq!((attached_clients(&fixture.services.actor_registry, id), in_view().await), (3, 3));
    drop((pull, chat));
    // The waker of a stream stops a moment after its stream is dropped.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!((attached_clients(&fixture.services.actor_registry, id), in_view().await), (1, 1));
}

#[actix::test]
async fn title_limit_holds_for_initialize() {
    let fixture = fixture();
    let (id, _) = fixture.session().await;
    let mut client = TestClient::attach(&fixture.services, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    let mut set_title = async |length: usize| {
        let title = "ä".repeat(length);
        client.send_json(json!({ "action": "initialize", "args": { "title": title }, "id": length.to_string() }));
        client.until(|frame| frame["id"].is_string()).await.pop().expect("an answer")
    };
    assert_eq!(set_title(200).await["status"], "accepted");
    let rejected = set_title(201).await;
    assert_eq!(rejected["error"]["code"], "invalid_args");
    assert_eq!(rejected["error"]["message"], "`title` has 201 characters; it may have 200");
}

/// Receives frames up to the end of a turn, and returns the last.
async fn turn_end(chat: &mut TestClient) -> Value {
    let is_end = |frame: &Value| frame["type"] == "done" || frame["type"] == "error";
    chat.until(is_end).await.pop().expect("the list is not empty")
}

#[actix::test]
async fn chat_gets_an_error_when_the_sandbox_fails() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    let mut chat = TestClient::chat(&fixture.services, id).await;
    chat.so_far().await;
    send_message(&session, "go").await;
    let exit = SandboxExit { code: Some(137), out_of_memory: true, stderr_tail: String::new() };
    session.send(SandboxLost { exit }).await.expect("the session runs");
    let error = turn_end(&mut chat).await;
    assert_eq!((&error["type"], &error["message"]), (&json!("error"), &json!("the sandbox ran out of memory")));
    assert_eq!(chat.so_far().await, [] as [&str; 0], "the turn ended once");
    // A message that waits for a sandbox start gets the error as well.
    send_message(&session, "once more").await;
    session.send(SandboxFailed { why: "no image".into(), stderr_tail: None }).await.expect("the session runs");
    assert_eq!(turn_end(&mut chat).await["message"], "no image");
    assert_eq!(chat.so_far().await, [] as [&str; 0], "the turn ended once");
}

#[actix::test]
async fn joining_chat_gets_the_end_of_the_running_turn_only() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    send_message(&session, "one").await;
    send_message(&session, "two").await;
    let mut chat = TestClient::chat(&fixture.services, id).await;
    chat.so_far().await;
    // The next turn begins at once.
    let first = fixture.turn(id).await;
    report(&session, 1, turn_ended(first)).await;
    assert_eq!(turn_end(&mut chat).await["type"], "done");
    let second = fixture.turn(id).await;
    report(&session, 2, turn_ended(second)).await;
    assert_eq!(turn_end(&mut chat).await["type"], "done");
    // A user action is not a turn.
    send_request(&session, ClientRequest::Run { command: "ls".into() }).await;
    let mut late = TestClient::chat(&fixture.services, id).await;
    late.so_far().await;
    let user_action = start_user_action(&fixture, id).await;
    report(&session, 3, AgentReport::UserActionEnded { user_action, outcome: WorkOutcome::Done }).await;
    send_message(&session, "three").await;
    let third = fixture.turn(id).await;
    let body = Observation { kind: ObservationKind::Message { partial: false }, content: "here".into() }.into();
    report(&session, 4, AgentReport::Event { item: Some("m".into()), body }).await;
    report(&session, 5, turn_ended(third)).await;
    let frames = late.until(|frame| frame["type"] == "done").await;
    let kinds: Vec<_> = frames.iter().filter_map(|frame| frame["type"].as_str()).collect();
    assert_eq!(kinds, ["text_delta", "done"]);
}

/// Returns the newest user action of a session.
async fn start_user_action(fixture: &FrontendFixture, id: SessionId) -> String {
    let user_actions = fixture.events(id).await.into_iter().filter(|event| event.body.name() == "run");
    user_actions.filter_map(|event| event.item).next_back().expect("a user action was requested")
}
