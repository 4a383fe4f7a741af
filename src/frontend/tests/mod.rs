//! Clients of sessions that fall, are removed, or cannot be had for a while.

pub(crate) mod fixture;

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
        messages::{GetView, Purged, Relay, SandboxLost, StartFailed},
    },
    store::{Seq, SessionId, Store},
};

/// Every event up to `last` is there, once and in its place.
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
async fn no_event_is_sent_twice_while_its_session_cannot_be_had() {
    let stage = fixture();
    let id = stage.journal(600).await;
    // A page takes longer than the session is looked for again, so that both go on at the same time.
    stage.delay_store(Duration::from_millis(150));
    stage.fail_lookups(unavailable());
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    let first = client.until(|frame| frame["seq"] == 256).await;
    let told: Vec<_> = first.iter().filter_map(|frame| frame["error"]["code"].as_str()).collect();
    assert_eq!(told, ["journal_unavailable"]);
    // It comes back while the next page is being read.
    stage.fail_lookups(None);
    let rest = client.until(|frame| frame["status"] == "synced").await;
    check_events(&[first, rest].concat(), 600);
}

#[actix::test]
async fn a_client_that_reads_while_its_session_falls_and_comes_back_goes_on_where_it_was() {
    let stage = fixture();
    let id = stage.journal(900).await;
    stage.delay_store(Duration::from_millis(250));
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    let mut frames = client.until(|frame| frame["seq"] == 1).await;
    let session = stage.session_of(id).await;
    session.send(Purged).await.expect("it lives");
    stage.fail_lookups(unavailable());
    frames.extend(client.until(|frame| frame["seq"] == 600).await);
    stage.fail_lookups(None);
    frames.extend(client.until(|frame| frame["status"] == "synced").await);
    check_events(&frames, 900);
    // Who was told that it is not to be had is told that it is.
    let told: Vec<_> =
        frames.iter().filter_map(|frame| frame["status"].as_str().or(frame["error"]["code"].as_str())).collect();
    assert_eq!(told, ["hello", "journal_unavailable", "hello", "synced"]);
    // It is the session that is heard now, not the journal alone.
    send_message(&stage.session_of(id).await, "hello").await;
    client.until(|frame| frame["args"]["content"] == "hello").await;
}

#[actix::test]
async fn a_wish_has_its_session_looked_for_at_once() {
    let stage = fixture();
    let (id, session) = stage.session().await;
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    stage.fail_lookups(unavailable());
    session.send(Purged).await.expect("it lives");
    client.until(|frame| frame["error"]["code"] == "journal_unavailable").await;
    // From now on it is looked for every other second only.
    tokio::time::pause();
    timeout(LOOKUP_RETRY_MAX * 3, client.receive()).await.expect_err("it was told already");
    stage.fail_lookups(Some(RequestError::Journal("the disk is read-only".to_owned())));
    let message = |n: u8| json!({ "action": "message", "args": { "content": format!("{n}") }, "id": format!("{n}") });
    client.send_json(message(1));
    let refused = client.until(|frame| frame["id"] == "1").await.remove(0);
    assert!(
        refused["error"]["message"].as_str().is_some_and(|why| why.contains("read-only")),
        "as it is now: {refused}"
    );
    let asked = Instant::now();
    stage.fail_lookups(None);
    (2..=4).for_each(|n| client.send_json(message(n)));
    let frames = client.until(|frame| frame["args"]["content"] == "4").await;
    assert!(asked.elapsed() < LOOKUP_RETRY_MAX / 2, "it was waited for the next look: {:?}", asked.elapsed());
    let said: Vec<_> = frames.iter().filter_map(|frame| frame["args"]["content"].as_str()).collect();
    assert_eq!(said, ["2", "3", "4"]);
    let told: Vec<_> = frames.iter().filter_map(|frame| frame["status"].as_str()).collect();
    assert_eq!(told[..2], ["hello", "synced"]);
}

#[actix::test]
async fn a_client_is_told_when_its_session_is_not_to_be_had_for_another_reason() {
    let stage = fixture();
    let id = stage.journal(1).await;
    stage.fail_lookups(Some(RequestError::Unavailable("it is being brought back".to_owned())));
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    client.until(|frame| frame["error"]["code"] == "unavailable").await;
    stage.fail_lookups(Some(RequestError::Unreadable("another version wrote it".to_owned())));
    let told = client.until(|frame| frame["error"]["code"] == "conflict").await;
    assert_eq!(told.iter().filter(|frame| frame["error"].is_object()).count(), 1, "each reason once: {told:?}");
    // To look for it does not help, so that is done rarely from now on.
    tokio::time::pause();
    timeout(LOOKUP_RETRY_MAX * 30, client.receive()).await.expect_err("it was told already");
    let before = stage.sessions.lookups.load(SeqCst);
    timeout(LOOKUP_RETRY_MAX * 30, client.receive()).await.expect_err("it was told already");
    let looks = stage.sessions.lookups.load(SeqCst) - before;
    assert!((1..=3).contains(&looks), "{looks} looks in a minute");
    // And at once where somebody asks.
    let asked = Instant::now();
    client.send_json(json!({ "action": "interrupt", "id": "i" }));
    let refused = client.until(|frame| frame["id"] == "i").await.pop().expect("the last");
    assert_eq!(refused["error"]["code"], "conflict");
    assert!(asked.elapsed() < LOOKUP_RETRY_MAX, "it was waited for the next look: {:?}", asked.elapsed());
}

/// In the middle of a turn it reads first what the turn has come to.
#[actix::test]
async fn a_client_whose_session_waits_for_a_disk_that_hangs_is_told_so() {
    let stage = fixture();
    let (id, session) = stage.session().await;
    send_message(&session, "work").await;
    session.send(Purged).await.expect("it lives");
    tokio::time::pause();
    stage.delay_store(LOOKUP_RETRY_MAX * 100);
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    let frames = client.until(|frame| frame["error"]["code"] == "unavailable").await;
    assert_eq!(frames[0]["status"], "hello");
    stage.delay_store(Duration::ZERO);
    tokio::time::advance(LOOKUP_RETRY_MAX * 100).await;
    let frames = client.until(|frame| frame["status"] == "synced").await;
    assert!(frames.iter().any(|frame| frame["args"]["content"] == "work"));
}

/// A client whose session has just fallen, and is looked for until the door is opened.
async fn client_in_lookup(stage: &FrontendFixture) -> (TestClient, RwLockWriteGuard<'_, ()>) {
    let (id, session) = stage.session().await;
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    let closed = stage.sessions.lookup_lock.write().await;
    session.send(Purged).await.expect("it lives");
    (client, closed)
}

#[actix::test]
async fn no_more_wishes_wait_for_a_session_than_may_be_under_way() {
    let stage = fixture();
    let (mut client, closed) = client_in_lookup(&stage).await;
    for n in 0..=MAX_IN_FLIGHT {
        client.send_json(json!({ "action": "message", "args": { "content": "go" }, "id": format!("{n}") }));
    }
    let refused = client.until(|frame| frame["error"].is_object()).await.pop().expect("the last");
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!("too_many"), &json!(format!("{MAX_IN_FLIGHT}"))));
    client.send_json(json!({ "action": "interrupt", "id": "i" }));
    client.send_json(json!({ "action": "ping" }));
    client.until(|frame| frame["status"] == "pong").await;
    drop(closed);
    // Some are taken and the others refused, as there is room for.
    let answers = Cell::new(0);
    let frames = client
        .until(|frame| {
            answers.set(answers.get() + u8::from(frame["id"].is_string()));
            answers.get() == MAX_IN_FLIGHT + 1
        })
        .await;
    let heard = frames.iter().find(|frame| frame["id"] == "i").expect("the interrupt is answered");
    assert_ne!(heard["error"]["code"], "too_many", "it waited with the others");
}

#[actix::test]
async fn an_interrupt_is_heard_however_much_is_under_way() {
    let stage = fixture();
    let (id, _) = stage.session().await;
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    // Nothing is answered before it is on disk.
    stage.store.gate_appends();
    for n in 0..=MAX_IN_FLIGHT {
        client.send_json(json!({ "action": "message", "args": { "content": "go" }, "id": format!("{n}") }));
    }
    let refused = client.until(|frame| frame["error"].is_object()).await.pop().expect("the last");
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!("too_many"), &json!(format!("{MAX_IN_FLIGHT}"))));
    let asked = stage.store.gated_append_count();
    client.send_json(json!({ "action": "interrupt", "id": "i" }));
    client.send_json(json!({ "action": "ping" }));
    let frames = client.until(|frame| frame["status"] == "pong").await;
    assert!(frames.iter().all(|frame| frame["error"].is_null()), "{frames:?}");
    // The session has heard it, and has it written down.
    while stage.store.gated_append_count() == asked {
        tokio::task::yield_now().await;
    }
}

#[actix::test]
async fn what_waits_for_a_session_is_bounded() {
    let stage = fixture();
    let (mut client, closed) = client_in_lookup(&stage).await;
    let long = "x".repeat(CLIENT_FRAME_LIMIT / 2);
    for n in 0..4 {
        client.send_json(json!({ "action": "message", "args": { "content": long }, "id": format!("{n}") }));
    }
    let refused = client.until(|frame| frame["error"].is_object()).await.pop().expect("the last");
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!("unavailable"), &json!("3")));
    drop(closed);
    client.until(|frame| frame["id"] == "2").await;
}

#[actix::test]
async fn a_client_that_asked_for_a_session_never_makes_another() {
    let stage = fixture();
    let (id, session) = stage.session().await;
    let (_, stale) = stage.session().await;
    stale.send(Purged).await.expect("it lives");
    *stage.sessions.stale.lock().expect("nobody panics here") = Some(stale);
    let made = stage.sessions.created.load(SeqCst);
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    client.send_json(json!({ "action": "start", "args": { "task": "go" }, "id": "a" }));
    let refused = client.receive().await.expect("an answer");
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!("unavailable"), &json!("a")), "{refused}");
    let hello = client.receive().await.expect("it is found again");
    assert_eq!(hello["session"]["id"], id.to_string(), "{hello}");
    assert_eq!(stage.sessions.created.load(SeqCst), made);
    client.send_json(json!({ "action": "start", "args": { "task": "go" }, "id": "a" }));
    client.until(|frame| frame["status"] == "accepted").await;
    assert!(session.connected());
}

/// As where the session's actor stops between its making and the first word to it.
#[actix::test]
async fn a_session_that_falls_as_soon_as_it_is_made_is_found_again() {
    let stage = fixture();
    let (_, stale) = stage.session().await;
    stale.send(Purged).await.expect("it lives");
    let mut client = TestClient::attach(&stage.parts, None).await;
    assert_eq!(client.receive().await.expect("a hello")["session"], Value::Null);
    *stage.sessions.stale.lock().expect("nobody panics here") = Some(stale);
    client.send_json(json!({ "action": "start", "args": { "task": "go" } }));
    let frames = client.until(|frame| frame["session"].is_object()).await;
    assert_eq!(frames[0]["error"]["code"], "unavailable", "the task was not taken: {frames:?}");
}

#[actix::test]
async fn who_listens_to_a_session_that_is_removed_is_told() {
    let stage = fixture();
    let (id, session) = stage.session().await;
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    let mut chat = TestClient::chat(&stage.parts, id).await;
    chat.so_far().await;
    let mut pull = EventPull::open(stage.parts.clone(), id, Seq::MAX).await.expect("it is there");
    stage.store.forget(id).await.expect("it is forgotten");
    session.send(Purged).await.expect("it lives");
    assert_eq!((client.closed().await, chat.closed().await), (Some(4404), Some(4404)));
    assert!(matches!(pull.next().await, PulledItem::Gone(RequestError::NoSession(_))));
}

/// The store is what tells it, however its actor is.
#[actix::test]
async fn who_reads_a_journal_that_is_removed_is_told() {
    let stage = fixture();
    let id = stage.journal(900).await;
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    let mut pull = EventPull::open(stage.parts.clone(), id, 0).await.expect("it is there");
    client.until(|frame| frame["seq"] == 1).await;
    assert!(matches!(pull.next().await, PulledItem::Event((1, _))));
    stage.store.forget(id).await.expect("it is forgotten");
    assert_eq!(client.closed().await, Some(4404));
    let rest = async { while !matches!(pull.next().await, PulledItem::Gone(RequestError::NoSession(_))) {} };
    tokio::time::timeout(Duration::from_secs(5), rest).await.expect("it ends");
}

#[actix::test]
async fn hello_shows_what_is_on_disk() {
    let stage = fixture();
    let (id, session) = stage.session().await;
    let on_disk = async || stage.store.get(id).await.expect("it is read").expect("it is there");
    let before = on_disk().await;
    stage.store.gate_appends();
    let wish = ClientRequest::Run { command: "ls".into() };
    let answer = session.send(Relay { request: wish, idempotency_key: None });
    let answer = tokio::spawn(answer);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let hello = TestClient::attach(&stage.parts, Some(id)).await.receive().await.expect("a hello");
    assert_eq!((&hello["last_seq"], &hello["session"]["last_seq"]), (&json!(before.tail), &json!(before.tail)));
    assert_eq!((&hello["state"], &hello["session"]["state"]), (&json!("idle"), &json!("idle")));
    assert_eq!(hello["session"]["attached"], 1);
    let view = session.send(GetView).await.expect("it lives");
    assert_eq!(view.last_seq, before.tail);
    stage.store.release_one();
    answer.await.expect("it is not lost").expect("it lives").expect("it is taken");
    assert!(on_disk().await.tail > before.tail);
}

#[actix::test]
async fn whoever_listens_is_attached_over_whatever_that_is() {
    let stage = fixture();
    let (id, session) = stage.session().await;
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    let mut chat = TestClient::chat(&stage.parts, id).await;
    chat.so_far().await;
    let pull = EventPull::open(stage.parts.clone(), id, 0).await.expect("it is there");
    let by_itself = async || session.send(GetView).await.expect("it lives").attached;
    assert_eq!((attached_clients(&stage.parts.actor_registry, id), by_itself().await), (3, 3));
    drop((pull, chat));
    // The bell of a stream hears that it is not wanted a moment later.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!((attached_clients(&stage.parts.actor_registry, id), by_itself().await), (1, 1));
}

#[actix::test]
async fn a_title_that_is_given_later_has_the_same_limit() {
    let stage = fixture();
    let (id, _) = stage.session().await;
    let mut client = TestClient::attach(&stage.parts, Some(id)).await;
    client.until(|frame| frame["status"] == "synced").await;
    let mut give = async |length: usize| {
        let title = "ä".repeat(length);
        client.send_json(json!({ "action": "initialize", "args": { "title": title }, "id": length.to_string() }));
        client.until(|frame| frame["id"].is_string()).await.pop().expect("an answer")
    };
    assert_eq!(give(200).await["status"], "accepted");
    let refused = give(201).await;
    assert_eq!(refused["error"]["code"], "invalid_args");
    assert_eq!(refused["error"]["message"], "`title` has 201 characters; it may have 200");
}

/// Up to the end of a turn: how it ended.
async fn turn_end(chat: &mut TestClient) -> Value {
    let is_end = |frame: &Value| frame["type"] == "done" || frame["type"] == "error";
    chat.until(is_end).await.pop().expect("there is a last one")
}

#[actix::test]
async fn a_chat_is_told_that_the_sandbox_died_and_not_that_the_turn_is_done() {
    let stage = fixture();
    let (id, session) = stage.session().await;
    let mut chat = TestClient::chat(&stage.parts, id).await;
    chat.so_far().await;
    send_message(&session, "go").await;
    let exit = SandboxExit { code: Some(137), out_of_memory: true, stderr_tail: String::new() };
    session.send(SandboxLost { exit }).await.expect("it lives");
    let error = turn_end(&mut chat).await;
    assert_eq!((&error["type"], &error["message"]), (&json!("error"), &json!("the sandbox ran out of memory")));
    assert_eq!(chat.so_far().await, [] as [&str; 0], "it ended once");
    // And where a message waits for a sandbox that never comes up.
    send_message(&session, "once more").await;
    session.send(StartFailed { why: "no image".into(), stderr_tail: None }).await.expect("it lives");
    assert_eq!(turn_end(&mut chat).await["message"], "no image");
    assert_eq!(chat.so_far().await, [] as [&str; 0], "it ended once");
}

#[actix::test]
async fn a_chat_that_joins_hears_the_end_of_the_turn_that_runs_and_of_no_other() {
    let stage = fixture();
    let (id, session) = stage.session().await;
    send_message(&session, "one").await;
    send_message(&session, "two").await;
    let mut chat = TestClient::chat(&stage.parts, id).await;
    chat.so_far().await;
    // The next one begins at once.
    let first = stage.turn(id).await;
    report(&session, 1, turn_ended(first)).await;
    assert_eq!(turn_end(&mut chat).await["type"], "done");
    let second = stage.turn(id).await;
    report(&session, 2, turn_ended(second)).await;
    assert_eq!(turn_end(&mut chat).await["type"], "done");
    // An act of a person is no turn.
    send_request(&session, ClientRequest::Run { command: "ls".into() }).await;
    let mut late = TestClient::chat(&stage.parts, id).await;
    late.so_far().await;
    let act = start_user_action(&stage, id).await;
    report(&session, 3, AgentReport::UserActionEnded { user_action: act, outcome: WorkOutcome::Done }).await;
    send_message(&session, "three").await;
    let third = stage.turn(id).await;
    let body = Observation { kind: ObservationKind::Message { partial: false }, content: "here".into() }.into();
    report(&session, 4, AgentReport::Event { item: Some("m".into()), body }).await;
    report(&session, 5, turn_ended(third)).await;
    let frames = late.until(|frame| frame["type"] == "done").await;
    let kinds: Vec<_> = frames.iter().filter_map(|frame| frame["type"].as_str()).collect();
    assert_eq!(kinds, ["text_delta", "done"]);
}

/// The act of a person that was asked for last.
async fn start_user_action(stage: &FrontendFixture, id: SessionId) -> String {
    let acts = stage.events(id).await.into_iter().filter(|event| event.body.name() == "run");
    acts.filter_map(|event| event.item).next_back().expect("an act was asked for")
}
