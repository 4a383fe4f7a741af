//! Tests of restarts after a session's actor stopped unexpectedly.

use std::time::Instant;

use super::*;
use crate::{
    frontend::{self, tests::fixture::TestClient},
    session::{CallError, send_request},
};

#[actix::test]
async fn panic_in_one_session_restarts_only_that_session() {
    let harness = harness(Arc::default());
    let (hit, spared) = (harness.create(None).await, harness.create(None).await);
    let notified = Arc::new(AtomicBool::new(false));
    let subscriber = PublishedProbe(notified.clone()).start().recipient();
    let attached = hit.session.send(Attach { subscriber }).await.expect("the actor is alive");
    *harness.store.panic_on_append.lock().expect("lock is never poisoned: no holder panics") = Some(hit.view.id);
    assert!(hit.session.send(say("boom", None)).await.is_err(), "the actor stopped without a reply");
    eventually("the subscribers to be notified", || async { notified.load(SeqCst) }).await;
    eventually("the session to restart", || async { harness.has_error(hit.view.id, "session_restarted").await }).await;
    let again = harness.open(hit.view.id).await.expect("the session is restarted");
    again.send(say("hello", None)).await.expect("the actor is alive").expect("the request is accepted");
    assert!(matches!(attached.subscription.poll(0, &mut Default::default(), 1), crate::session::DeliveryPoll::Closed));
    spared
        .session
        .send(say("hello", None))
        .await
        .expect("the actor is alive")
        .expect("the other session is unaffected");
}

/// The first request made the actor panic and may have been processed. The second never reached it,
/// so the next actor can process it.
#[actix::test]
async fn call_error_tells_whether_request_was_processed() {
    let harness = harness(Arc::default());
    let hit = harness.create(None).await;
    *harness.store.panic_on_append.lock().expect("lock is never poisoned: no holder panics") = Some(hit.view.id);
    let (panicking, queued) =
        (send_request(&hit.session, say("boom", None)), send_request(&hit.session, say("hello", None)));
    assert!(matches!(panicking.await, Err(CallError::MaybeProcessed)));
    let Err(CallError::NotProcessed(hello)) = queued.await else { panic!("the request was still in the mailbox") };
    assert!(matches!(send_request(&hit.session, say("late", None)).await, Err(CallError::NotProcessed(_))));
    let again = harness.open(hit.view.id).await.expect("the session is restarted");
    send_request(&again, hello).await.expect("the actor is alive").expect("the request is accepted");
    let is_hello = |event: &&Event| event.body.name() == "message" && event.body.summary_line().contains("hello");
    assert_eq!(harness.events(hit.view.id).await.iter().filter(is_hello).count(), 1);
}

#[actix::test]
async fn journal_rejection_is_reported_and_session_continues_later() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    let before = harness.events(created.view.id).await.len();
    harness.store.fail_writes.store(true, SeqCst);
    let error = created
        .session
        .send(say("too much", None))
        .await
        .expect("the actor replies")
        .expect_err("the journal rejects the request");
    assert_eq!(error.code(), "journal_unavailable", "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert_eq!(
        harness.open(created.view.id).await.expect_err("the session is not restarted yet").code(),
        "journal_unavailable"
    );
    assert_eq!(harness.events(created.view.id).await.len(), before, "nothing changed, and the journal stays readable");
    harness.store.fail_writes.store(false, SeqCst);
    eventually("the session to restart", || async { harness.open(created.view.id).await.is_ok() }).await;
    let restarted = harness.open(created.view.id).await.expect("the session is restarted");
    restarted.send(say("now", None)).await.expect("the actor is alive").expect("the request is accepted");
}

#[actix::test]
async fn user_action_result_names_its_cause_after_restart() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    let id = created.view.id;
    created.session.send(testkit::hello("b")).await.expect("the actor is alive").expect("the hello is accepted");
    let run =
        || Relay { request: ClientRequest::Run { command: "make".into() }, idempotency_key: None, requested_by: None };
    created.session.send(run()).await.expect("the actor is alive").expect("the request is accepted");
    let user_action = harness.first_effect_field("user_action").await;
    *harness.store.panic_on_append.lock().expect("lock is never poisoned: no holder panics") = Some(id);
    created.session.send(run()).await.expect_err("the actor stopped");
    eventually("the session to restart", || async { harness.has_error(id, "session_restarted").await }).await;
    let again = harness.open(id).await.expect("the session is restarted");
    again.send(testkit::hello("b")).await.expect("the actor is alive").expect("the hello is accepted");
    let command = "make".to_owned();
    let seen = ObservationKind::Run {
        command,
        exit_code: Some(0),
        signal: None,
        duration_ms: 1,
        timed_out: false,
        truncated: None,
    };
    let done =
        AgentReport::Event { item: Some(user_action), body: Observation { kind: seen, content: String::new() }.into() };
    report(&again, "b", 1, vec![done]).await.expect("the report is on disk");
    let events = harness.events(id).await;
    let request = events.iter().find(|event| event.body.name() == "run").expect("the request is in the journal");
    assert_eq!(events.last().and_then(|event| event.cause), Some(request.seq));
}

/// The agent works on, although no client may ask for the session.
#[actix::test]
async fn session_of_last_run_restarts_once_journal_is_writable() {
    let store: Arc<FaultyStore> = Arc::default();
    let id = harness(store.clone()).create(None).await.view.id;
    store.fail_writes.store(true, SeqCst);
    let next = harness(store.clone());
    assert_eq!(next.open(id).await.expect_err("the session is not restarted yet").code(), "journal_unavailable");
    assert!(next.directory.send(GetIfRunning { id }).await.expect("the actor is alive").is_none());
    store.fail_writes.store(false, SeqCst);
    let is_running = || async { next.directory.send(GetIfRunning { id }).await.expect("the actor is alive").is_some() };
    eventually("the session to restart by itself", is_running).await;
    assert!(!next.has_error(id, "session_restarted").await, "the actor did not stop unexpectedly");
}

#[actix::test]
async fn crash_looping_session_restarts_with_growing_backoff() {
    let harness = harness(Arc::default());
    let id = harness.create(None).await.view.id;
    let error_count = async || harness.events(id).await.iter().filter(|event| event.body.name() == "error").count();
    let mut durations = Vec::new();
    for stops in 1..=4 {
        let session = harness.open(id).await.expect("the session is restarted");
        *harness.store.panic_on_append.lock().expect("lock is never poisoned: no holder panics") = Some(id);
        session.send(say("boom", None)).await.expect_err("the actor stopped");
        let stopped_at = Instant::now();
        // Requests arrive all the time, as from subscribers.
        eventually("the session to restart and record it", || async {
            let rejection = harness.open(id).await.err();
            assert!(rejection.as_ref().is_none_or(|rejection| rejection.code() == "unavailable"), "{rejection:?}");
            error_count().await == stops
        })
        .await;
        durations.push(stopped_at.elapsed());
    }
    assert!(durations[2] >= Duration::from_millis(150) && durations[3] >= Duration::from_millis(300), "{durations:?}");
}

#[actix::test]
async fn purge_closes_all_subscribers() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    let id = created.view.id;
    created.session.send(End::default()).await.expect("the actor is alive").expect("the session ends");
    let parts = Arc::new(frontend::FrontendServices {
        sessions: Arc::new(harness.directory.clone()),
        store: harness.store.clone(),
        actor_registry: ActorRegistry::default(),
        runs: Default::default(),
        closing: Default::default(),
    });
    let (mut client, mut chat) = (TestClient::attach(&parts, Some(id)).await, TestClient::chat(&parts, id).await);
    client.until(|frame| frame["status"] == "synced").await;
    chat.so_far().await;
    let mut pull = frontend::EventPull::open(parts, id, Seq::MAX).await.expect("the session exists");
    // The subscribers have read all events, so only the session itself can close them.
    harness.directory.send(Purge { id }).await.expect("the actor is alive").expect("the session is purged");
    assert_eq!((client.closed().await, chat.closed().await), (Some(4404), Some(4404)));
    let gone = async { while !matches!(pull.next().await, frontend::PulledItem::Gone(RequestError::NoSession(_))) {} };
    tokio::time::timeout(Duration::from_secs(5), gone).await.expect("the stream ends");
    assert_eq!(harness.open(id).await.expect_err("the session is gone").code(), "not_found");
}

/// A start in flight would create the sandbox after the purge.
#[actix::test]
async fn purge_waits_for_start_in_flight() {
    let harness = harness(Arc::default());
    let id = harness.create(None).await.view.id;
    let session_lock = harness.start_limiter.session_lock(id);
    let start_guard = session_lock.lock().await;
    let mut purged = std::pin::pin!(harness.directory.send(Purge { id }));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut purged).await;
    assert!(early.is_err(), "{early:?}");
    drop(start_guard);
    purged.await.expect("the actor is alive").expect("the session is purged");
}

/// Covers a full disk that a person makes room on.
#[actix::test]
async fn session_with_rejected_end_does_not_restart_during_purge() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    let id = created.view.id;
    let link_count = || harness.links.lock().expect("lock is never poisoned: no holder panics").len();
    let session_lock = harness.start_limiter.session_lock(id);
    let start_guard = session_lock.lock().await;
    harness.store.fail_next_append.store(true, SeqCst);
    let mut purged = std::pin::pin!(harness.directory.send(Purge { id }));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut purged).await;
    assert!(early.is_err(), "{early:?}");
    assert!(!created.session.connected(), "the actor stopped");
    assert_eq!(harness.open(id).await.expect_err("the session is not restarted yet").code(), "unavailable");
    assert_eq!(link_count(), 1);
    drop(start_guard);
    purged.await.expect("the actor is alive").expect("the session is purged");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(harness.open(id).await.expect_err("the session is gone").code(), "not_found");
    assert_eq!(link_count(), 1);
}

#[actix::test]
async fn session_restarts_after_failed_purge() {
    let harness = harness(Arc::default());
    let id = harness.create(None).await.view.id;
    harness.store.fail_next_append.store(true, SeqCst);
    harness.store.fail_forget.store(true, SeqCst);
    harness
        .directory
        .send(Purge { id })
        .await
        .expect("the actor is alive")
        .expect_err("the journal rejects the removal");
    eventually("the session to restart", || async {
        harness.links.lock().expect("lock is never poisoned: no holder panics").len() == 2
    })
    .await;
    harness.store.fail_forget.store(false, SeqCst);
    harness.directory.send(Purge { id }).await.expect("the actor is alive").expect("the session is purged");
    assert_eq!(harness.open(id).await.expect_err("the session is gone").code(), "not_found");
}

/// Covers a full disk and a purge while a restart is scheduled; the restart becomes due during the
/// purge.
#[actix::test]
async fn stopped_session_restarts_after_failed_purge() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    let id = created.view.id;
    harness.store.fail_writes.store(true, SeqCst);
    harness.store.fail_forget.store(true, SeqCst);
    created
        .session
        .send(say("too much", None))
        .await
        .expect("the actor replies")
        .expect_err("the journal rejects the request");
    eventually("the actor to stop", || async { !created.session.connected() }).await;
    let session_lock = harness.start_limiter.session_lock(id);
    let start_guard = session_lock.lock().await;
    let mut purged = std::pin::pin!(harness.directory.send(Purge { id }));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut purged).await;
    assert!(early.is_err(), "{early:?}");
    drop(start_guard);
    purged.await.expect("the actor is alive").expect_err("the journal rejects the removal");
    harness.store.fail_writes.store(false, SeqCst);
    let is_running =
        || async { harness.directory.send(GetIfRunning { id }).await.expect("the actor is alive").is_some() };
    eventually("the session to restart by itself", is_running).await;
}

#[actix::test]
async fn shutdown_stops_session_that_is_restarting() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    harness.store.fail_next_append.store(true, SeqCst);
    created
        .session
        .send(say("too much", None))
        .await
        .expect("the actor replies")
        .expect_err("the journal rejects the request");
    eventually("the actor to stop", || async { !created.session.connected() }).await;
    let reopened = harness.directory.send(Open { id: created.view.id });
    harness.directory.send(ShutDown { stop: true }).await.expect("the actor is alive");
    let view = reopened
        .await
        .expect("the actor is alive")
        .expect("the restart was in flight")
        .send(GetView)
        .await
        .expect("the actor is alive");
    assert_eq!((view.state, view.reason.as_deref()), (AgentState::Stopped, Some("the server ended")));
}
