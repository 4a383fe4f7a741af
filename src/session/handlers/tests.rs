//! Tests of a session over a store in memory or a faulty store, with a link that does nothing.

use std::sync::atomic::Ordering::SeqCst;

use futures::future::join_all;
use greenroom_protocol::{
    Observation, RetryFrame,
    action::EffortChoice,
    delta::RetryFrameKind,
    link::{AgentCommand, AgentReport, CancelHint, ReasoningEffort},
};
use tokio::sync::mpsc;

use super::*;
use crate::{
    session::{
        LinkFactory,
        effect::{AgentDelivery, Effect},
        testkit,
    },
    store::{ReadLimit, Store, faulty::FaultyStore, in_memory::MemoryStore},
};

struct RequestFixture {
    session: Addr<Session>,
}

impl RequestFixture {
    /// Creates a session whose agent is connected and idle.
    async fn idle() -> RequestFixture {
        let (_, session) = testkit::idle_session(Arc::new(MemoryStore::new())).await;
        RequestFixture { session }
    }

    async fn request(&self, request: ClientRequest, key: Option<&str>) -> RequestResult {
        self.session
            .send(Relay { request, idempotency_key: key.map(str::to_owned), requested_by: None })
            .await
            .expect("session actor is running")
    }
}

fn say(content: &str) -> ClientRequest {
    ClientRequest::Message { content: content.into(), mode: Default::default(), attachments: vec![] }
}

fn code(answer: RequestResult) -> &'static str {
    answer.map_or_else(|error| error.code(), |_| "accepted")
}

#[actix::test]
async fn last_space_of_disk_is_for_small_requests() {
    let store = Arc::new(FaultyStore::default());
    let (_, session) = testkit::idle_session(store.clone()).await;
    let fixture = RequestFixture { session };
    assert_eq!(code(fixture.request(say("work"), None).await), "accepted");
    store.lacks_room_for_content.store(true, SeqCst);
    assert_eq!(code(fixture.request(say("more"), None).await), "journal_unavailable");
    let start = ClientRequest::Run { command: "ls".into() };
    assert_eq!(code(fixture.request(start, None).await), "journal_unavailable");
    for request in
        [ClientRequest::Interrupt {}, ClientRequest::Stop {}, ClientRequest::Resume {}, ClientRequest::End {}]
    {
        assert_eq!(code(fixture.request(request.clone(), None).await), "accepted", "{request:?}");
    }
}

#[actix::test]
async fn working_session_says_that_it_waits_for_disk_space() {
    let store = Arc::new(MemoryStore::new());
    let (id, session) = testkit::idle_session(store.clone()).await;
    let fixture = RequestFixture { session };
    let notices = async || {
        fixture.session.send(ReportsWaitForDisk).await.expect("session actor is running");
        fixture.session.send(Flush).await.expect("session actor is running").expect("the store works");
        let events = store.read(id, 0, ReadLimit { events: 100, bytes: 1 << 20 }).await.expect("store is readable");
        events.iter().filter(|(_, event)| String::from_utf8_lossy(&event.json).contains("\"disk_full\"")).count()
    };
    assert_eq!(notices().await, 0, "an idle session waits for nothing");
    assert_eq!(code(fixture.request(say("work"), None).await), "accepted");
    assert_eq!(notices().await, 1);
}

#[actix::test]
async fn requests_beyond_in_flight_limit_are_rejected() {
    let fixture = RequestFixture::idle().await;
    assert_eq!(code(fixture.request(say("work"), None).await), "accepted");
    let queued = fixture.request(say(&"x".repeat(1 << 20)), None).await;
    assert_eq!(code(queued), "accepted");
    let edit = |n: usize| ClientRequest::EditQueue {
        item: "message-4".into(),
        content: Some(n.to_string().repeat(1 << 19)),
        remove: false,
    };
    // All are processed before the first is on disk.
    let edits = (10..50).map(|n| fixture.request(edit(n), None));
    let (edits, interrupted) =
        tokio::join!(join_all(edits), async { fixture.session.send(Interrupt::default()).await });
    let accepted = edits.iter().filter(|answer| answer.is_ok()).count();
    assert!((2..20).contains(&accepted), "{accepted} of 40 edits of 2 MiB each");
    assert!(edits.into_iter().all(|answer| ["accepted", "unavailable"].contains(&code(answer))));
    assert_eq!(code(interrupted.expect("session actor is running")), "accepted");
    assert_eq!(code(fixture.request(edit(50), None).await), "accepted", "accepted again once they are on disk");
}

#[actix::test]
async fn requests_without_content_have_a_limit_of_their_own() {
    let fixture = RequestFixture::idle().await;
    assert_eq!(code(fixture.request(say("work"), None).await), "accepted");
    assert_eq!(code(fixture.request(say(&"x".repeat(1 << 20)), None).await), "accepted");
    let update_title =
        |n: usize| fixture.session.send(UpdateMetadata { title: Some(n.to_string()), ..UpdateMetadata::default() });
    let pause = |n: usize| {
        fixture.request(if n.is_multiple_of(2) { ClientRequest::Pause {} } else { ClientRequest::Resume {} }, None)
    };
    let (updates, pauses) = tokio::join!(join_all((0..100).map(update_title)), join_all((0..100).map(pause)));
    let updates = updates.into_iter().map(|answer| answer.expect("session actor is running"));
    let (accepted, rejected): (Vec<_>, Vec<_>) = updates.partition(Result::is_ok);
    assert!((10..20).contains(&accepted.len()), "{} of 100 updates of 1 MiB each", accepted.len());
    assert!(rejected.into_iter().all(|answer| answer.err().is_some_and(|error| error.code() == "unavailable")));
    let pauses = pauses.into_iter().map(code).collect::<Vec<_>>();
    let accepted = pauses.iter().filter(|code| **code == "accepted").count();
    assert!((10..20).contains(&accepted), "same number of requests without content: {pauses:?}");
    assert!(pauses.contains(&"unavailable"), "{pauses:?}");
    assert!(update_title(100).await.expect("session actor is running").is_ok(), "accepted again once they are on disk");
}

#[actix::test]
async fn gateway_permit_is_released_when_notice_is_on_disk() {
    let store = Arc::new(FaultyStore::default());
    let (_, session) = testkit::idle_session(store.clone()).await;
    let permits = Arc::new(tokio::sync::Semaphore::new(1));
    store.gate_appends();
    let permit = permits.clone().try_acquire_owned().ok();
    let outcome = RetryOutcome { attempts: 2, waited_ms: 1, why: "busy".into() };
    let notice = GatewayNotice::RetriesEnded { call: 1, outcome: Some(outcome) };
    session.send(NoticeReceived { notice, permit }).await.expect("session actor is running");
    session.send(GetView).await.expect("session actor is running");
    assert_eq!(permits.available_permits(), 0, "the notice is not on disk");
    store.release_one();
    drop(permits.acquire().await.expect("semaphore is never closed"));
}

#[actix::test]
async fn only_the_end_of_successful_retries_is_journalled() {
    let store = Arc::new(MemoryStore::new());
    let (id, session) = testkit::idle_session(store.clone()).await;
    let retrying = || {
        let (kind, provider, why) = (RetryFrameKind::Retry, "Anthropic".to_owned(), "busy".to_owned());
        GatewayNotice::Retrying(RetryFrame { kind, call: 1, provider, attempt: 2, max_attempts: 6, wait_ms: 9, why })
    };
    let ended = |outcome| GatewayNotice::RetriesEnded { call: 1, outcome };
    let outcome = RetryOutcome { attempts: 2, waited_ms: 9, why: "busy".to_owned() };
    let permits = Arc::new(tokio::sync::Semaphore::new(1));
    for notice in [retrying(), ended(None), retrying(), ended(Some(outcome))] {
        let permit = permits.clone().acquire_owned().await.ok();
        session.send(NoticeReceived { notice, permit }).await.expect("session actor is running");
    }
    drop(permits.acquire().await.expect("semaphore is never closed"));
    let journal = store.read(id, 0, ReadLimit { events: 1000, bytes: 1 << 20 }).await.expect("store is readable");
    let of_call: Vec<serde_json::Value> = journal
        .iter()
        .map(|(_, event)| serde_json::from_slice(&event.json).expect("an event is JSON"))
        .filter(|event: &serde_json::Value| event.to_string().contains("busy"))
        .collect();
    let [notice] = &of_call[..] else { panic!("{of_call:?}") };
    assert_eq!(notice["observation"], "notice");
    let extras = &notice["extras"];
    assert_eq!(extras["code"], "provider_retried");
    assert_eq!((extras["attempts"].as_u64(), extras["waited_ms"].as_u64()), (Some(2), Some(9)));
}

/// Link that passes each effect on to the test.
struct EffectRecorder(mpsc::UnboundedSender<Effect>);

impl Actor for EffectRecorder {
    type Context = Context<EffectRecorder>;
}

impl Handler<Effect> for EffectRecorder {
    type Result = ();

    fn handle(&mut self, effect: Effect, _: &mut Context<EffectRecorder>) {
        self.0.send(effect).expect("the test receives effects");
    }
}

/// Returns a session whose agent has the prompt of a turn, the turn, and the effects that follow.
async fn working_session(store: Arc<FaultyStore>) -> (Addr<Session>, String, mpsc::UnboundedReceiver<Effect>) {
    let (effect_tx, mut effects) = mpsc::unbounded_channel();
    let make_link: Box<LinkFactory> =
        Box::new(move |_, _, _| testkit::link_port(EffectRecorder(effect_tx.clone()).start().recipient()));
    let (_, session) = testkit::idle_session_with_link(store, make_link).await;
    let relay = Relay { request: say("work"), idempotency_key: None, requested_by: None };
    session.send(relay).await.expect("session actor is running").expect("request is accepted");
    let turn = loop {
        let effect = effects.recv().await.expect("the prompt is delivered");
        if let Effect::DeliverToAgent(AgentDelivery::Command(frame)) = effect
            && let AgentCommand::Prompt { turn, .. } = frame.command
        {
            break turn;
        }
    };
    (session, turn, effects)
}

#[actix::test]
async fn interrupt_stops_work_before_disk_and_cancels_after() {
    let store = Arc::new(FaultyStore::default());
    let (session, turn, mut effects) = working_session(store.clone()).await;
    store.gate_appends();
    let interrupted = session.send(Interrupt::default());
    let hint = CancelHint { turn: Some(turn), user_action: None };
    let first = effects.recv().await.expect("the hint precedes the disk");
    assert!(matches!(&first, Effect::DeliverToAgent(AgentDelivery::CancelHint(sent)) if **sent == hint), "{first:?}");
    let second = effects.recv().await.expect("the abort precedes the disk");
    assert!(matches!(second, Effect::AbortModelStreams), "{second:?}");
    session.send(GetView).await.expect("session actor is running");
    assert!(effects.try_recv().is_err(), "the command waits for the disk");
    store.release_one();
    interrupted.await.expect("session actor is running").expect("interrupt is accepted");
    let third = effects.recv().await.expect("the command follows");
    assert!(
        matches!(&third, Effect::DeliverToAgent(AgentDelivery::Command(frame)) if frame.command == AgentCommand::Cancel {}),
        "{third:?}"
    );
}

#[actix::test]
async fn interrupt_whose_append_fails_sends_only_what_stops() {
    let store = Arc::new(FaultyStore::default());
    let (session, _, mut effects) = working_session(store.clone()).await;
    store.fail_next_append.store(true, SeqCst);
    let rejected = session.send(Interrupt::default()).await.expect("the session answers before it stops");
    assert!(matches!(rejected, Err(RequestError::Journal(_))), "{rejected:?}");
    let first = effects.recv().await.expect("the hint precedes the disk");
    assert!(matches!(first, Effect::DeliverToAgent(AgentDelivery::CancelHint(_))), "{first:?}");
    let second = effects.recv().await.expect("the abort precedes the disk");
    assert!(matches!(second, Effect::AbortModelStreams), "{second:?}");
    drop(session);
    let rest = effects.recv().await;
    assert!(rest.is_none(), "a command that is not in the journal: {rest:?}");
}

#[actix::test]
async fn new_title_and_archived_mark_are_no_activity() {
    let store = Arc::new(FaultyStore::default());
    let (id, session) = testkit::idle_session(store.clone()).await;
    let record = async || store.get(id).await.expect("store is readable").expect("session exists").record;
    let before = record().await;
    let updates = UpdateMetadata { title: Some("new".into()), archived: Some(true), ..UpdateMetadata::default() };
    let view = session.send(updates).await.expect("session actor answers").expect("the update is accepted");
    let after = record().await;
    assert_eq!((after.title.as_str(), after.archived), ("new", true));
    assert_eq!((&after.updated_at, &view.updated_at), (&before.updated_at, &before.updated_at));
}

#[actix::test]
async fn failed_record_is_repeated_with_next_append() {
    let store = Arc::new(FaultyStore::default());
    let (id, session) = testkit::idle_session(store.clone()).await;
    store.fail_next_append.store(true, SeqCst);
    // The session decides about both before the first append fails.
    let updates = session.send(UpdateMetadata { title: Some("new".into()), ..UpdateMetadata::default() });
    let (durable, _) = oneshot::channel();
    let thought = Observation { kind: ObservationKind::Think { partial: false }, content: "hm".into() };
    let reports = vec![AgentReport::Event { item: None, body: thought.into() }];
    let reported = session.send(Reported { boot: "b".into(), n: 1, reports, durable });
    let (updates, reported) = tokio::join!(updates, reported);
    assert!(updates.expect("session actor answers").is_err() && reported.is_ok());
    let snapshot = store.get(id).await.expect("store is readable").expect("session exists");
    assert_eq!(snapshot.mark.map(|mark| mark.n), Some(1), "the report is committed");
    assert_eq!(snapshot.record.title, "new", "the failed record is committed with the report");
}

#[actix::test]
async fn blank_messages_and_edits_are_rejected() {
    let fixture = RequestFixture::idle().await;
    for content in ["work", "later"] {
        assert_eq!(code(fixture.request(say(content), None).await), "accepted");
    }
    let edit = |content: &str| ClientRequest::EditQueue {
        item: "message-4".into(),
        content: Some(content.into()),
        remove: false,
    };
    for request in [say(" "), edit(""), edit(" \n")] {
        let rejected = fixture.request(request, None).await.expect_err("blank content is rejected");
        assert_eq!((rejected.code(), &*rejected.to_string()), ("invalid_args", "`content` is empty"));
    }
    assert_eq!(code(fixture.request(edit("more"), None).await), "accepted");
}

#[actix::test]
async fn idempotency_key_names_one_request() {
    let fixture = RequestFixture::idle().await;
    let seq = |answer: RequestResult| answer.expect("request is accepted").seq;
    let first = seq(fixture.request(say("one"), Some("1")).await);
    assert!(first.is_some());
    assert_eq!(seq(fixture.request(say("one"), Some("1")).await), first, "a repeated request acts once");
    assert_eq!(code(fixture.request(say("two"), Some("1")).await), "id_reused");
    assert_eq!(code(fixture.request(ClientRequest::Run { command: "one".into() }, Some("1")).await), "id_reused");
    let interrupt = || fixture.session.send(Interrupt { idempotency_key: Some("1".into()) });
    assert_eq!(code(interrupt().await.expect("session actor is running")), "id_reused");
    assert_ne!(seq(fixture.request(say("two"), Some("2")).await), first);
    let pause = || fixture.session.send(Pause { idempotency_key: Some("3".into()) });
    let paused = seq(pause().await.expect("session actor is running"));
    assert_eq!(seq(fixture.request(ClientRequest::Pause {}, Some("3")).await), paused, "either message names it");
    let rejected = fixture.request(say("three"), Some("1")).await.expect_err("key names another request");
    assert!(rejected.to_string().contains("`1`"), "{rejected}");
}

#[actix::test]
async fn budget_changes_only_to_an_amount_or_none() {
    let fixture = RequestFixture::idle().await;
    let set = |usd| ClientRequest::SetBudget { usd };
    for (usd, answer) in [
        (Some(2.5), "accepted"),
        (Some(0.0), "invalid_args"),
        (Some(-1.0), "invalid_args"),
        (Some(f64::NAN), "invalid_args"),
        (Some(f64::INFINITY), "invalid_args"),
    ] {
        assert_eq!(code(fixture.request(set(usd), None).await), answer, "{usd:?}");
    }
    assert_eq!(fixture.session.send(GetView).await.expect("session actor is running").budget_usd, Some(2.5));
    assert_eq!(code(fixture.request(set(None), None).await), "accepted");
    assert_eq!(fixture.session.send(GetView).await.expect("session actor is running").budget_usd, None);
}

#[actix::test]
async fn effort_changes_without_the_model() {
    let fixture = RequestFixture::idle().await;
    let initialize = |effort| ClientRequest::Initialize {
        model: None,
        directory: None,
        agent_cls: None,
        image: None,
        title: None,
        effort,
        mode: None,
        analyzer: None,
        repo: None,
        reference: None,
    };
    let view = async || fixture.session.send(GetView).await.expect("session actor is running");
    let before = view().await;
    for (chosen, effort) in [
        (Some(EffortChoice::High), Some(ReasoningEffort::High)),
        (None, Some(ReasoningEffort::High)),
        (Some(EffortChoice::Default), None),
    ] {
        assert_eq!(code(fixture.request(initialize(chosen), None).await), "accepted");
        let after = view().await;
        assert_eq!((after.effort, after.model), (effort, before.model.clone()), "after {chosen:?}");
    }
    let change = UpdateMetadata { effort: Some(EffortChoice::Low), ..UpdateMetadata::default() };
    let changed = fixture.session.send(change).await.expect("session actor is running");
    assert_eq!(changed.expect("the change is accepted").effort, Some(ReasoningEffort::Low));
    let set_model = ClientRequest::SetModel { model: "other".into() };
    assert_eq!(code(fixture.request(set_model, None).await), "accepted");
    let after = view().await;
    assert_eq!((after.effort, after.model.as_str()), (Some(ReasoningEffort::Low), "other"), "the effort stays");
}
