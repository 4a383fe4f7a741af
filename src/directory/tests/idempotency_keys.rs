//! Tests of idempotency keys of sessions and of requests.

use std::time::Instant;

use super::*;
use crate::{frontend::tests::fixture::record, store::contract::claim_and_forget};

#[actix::test]
async fn keys_act_once_across_servers() {
    let store = Arc::new(FaultyStore::default());
    let first_server = harness(store.clone());
    let both = futures::join!(first_server.create(Some("k")), first_server.create(Some("k")));
    assert_eq!(both.0.view.id, both.1.view.id);
    assert_eq!((both.0.is_new, both.1.is_new), (true, false));
    let id = both.0.view.id;
    let first = both
        .0
        .session
        .send(say("once", Some("m")))
        .await
        .expect("the actor is alive")
        .expect("the request is accepted");
    let again = both
        .0
        .session
        .send(say("once", Some("m")))
        .await
        .expect("the actor is alive")
        .expect("the repeated request is accepted");
    assert_eq!(first.seq, again.seq);
    // The next server reads both keys from the journal.
    let second_server = harness(store);
    assert_eq!(second_server.create(Some("k")).await.view.id, id);
    let session = second_server.open(id).await.expect("the session is restarted");
    let later = session
        .send(say("once", Some("m")))
        .await
        .expect("the actor is alive")
        .expect("the repeated request is accepted");
    assert_eq!(first.seq, later.seq);
    let is_message = |event: &Event| event.body.name() == "message";
    assert_eq!(second_server.events(id).await.iter().filter(|event| is_message(event)).count(), 1);
}

/// Over the first socket, and over a second one after a cut.
#[actix::test]
async fn repeated_initialize_changes_nothing() {
    let initialize = |image: Option<&str>| ClientRequest::Initialize {
        model: None,
        directory: None,
        agent_cls: None,
        image: image.map(str::to_owned),
        title: Some("mine".to_owned()),
        effort: None,
        mode: None,
        analyzer: None,
        repo: None,
        reference: None,
    };
    for request in [initialize(None), initialize(Some("debian"))] {
        let store = Arc::new(FaultyStore::default());
        let first_server = harness(store.clone());
        let (id, session) =
            first_server.directory.create(&request, Some("a".to_owned())).await.expect("the session is created");
        let again = Relay { request: request.clone(), idempotency_key: Some("a".to_owned()), requested_by: None };
        let accepted =
            session.send(again.clone()).await.expect("the actor is alive").expect("the repeated request is accepted");
        assert_eq!(accepted.seq, None);
        let second_server = harness(store);
        let session = second_server.open(id).await.expect("the session is restarted");
        session.send(again).await.expect("the actor is alive").expect("the repeated request is accepted");
        assert!(!second_server.events(id).await.iter().any(|event| event.body.name() == "set_model"));
        let other = Relay {
            request: ClientRequest::Start { task: "go".to_owned() },
            idempotency_key: Some("a".to_owned()),
            requested_by: None,
        };
        assert_eq!(session.send(other).await.expect("the actor is alive"), Err(RequestError::IdReused("a".to_owned())));
    }
}

#[actix::test]
async fn task_of_repeated_create_starts_once() {
    let harness = harness(Arc::default());
    let make = |task: Option<&str>| {
        let new = NewSession { task: task.map(str::to_owned), ..NewSession::default() };
        harness.directory.send(Create { new, key: Some("k".to_owned()), dedup_key: None, preferred_thread: None })
    };
    // The first reply was lost, and the task with it.
    let created = make(None).await.expect("the Directory replies").expect("the session is created");
    for _ in 0..2 {
        let again = make(Some("tidy up")).await.expect("the Directory replies").expect("the session exists");
        assert_eq!((again.view.id, again.is_new), (created.view.id, false));
    }
    let events = harness.events(created.view.id).await;
    assert_eq!(events.iter().filter(|event| event.body.name() == "start").count(), 1);
}

#[actix::test]
async fn key_of_ended_session_survives_restart() {
    let store = Arc::new(FaultyStore::default());
    let first = harness(store.clone());
    let create = |harness: &DirectoryTestHarness| {
        let new = NewSession { task: Some("tidy up".to_owned()), ..NewSession::default() };
        harness.directory.send(Create { new, key: Some("k".to_owned()), dedup_key: None, preferred_thread: None })
    };
    let created = create(&first).await.expect("the Directory replies").expect("the session is created");
    let archive = UpdateMetadata { archived: Some(true), ..UpdateMetadata::default() };
    created.session.send(archive).await.expect("the actor is alive").expect("the session is archived");
    created.session.send(End::default()).await.expect("the actor is alive").expect("the session ends");
    let second = harness(store);
    let again = create(&second).await.expect("the Directory replies").expect("the session exists");
    assert_eq!((again.view.id, again.is_new), (created.view.id, false));
    let events = second.events(created.view.id).await;
    assert_eq!(events.iter().filter(|event| event.body.name() == "start").count(), 1);
}

/// The session was purged while a starting server loaded the keys.
#[actix::test]
async fn key_of_purged_session_creates_another() {
    let (store, purged) = (Arc::new(FaultyStore::default()), SessionId::generate());
    let record = SessionRecord { state: AgentState::Ended, ..record(purged, Some("k".to_owned())) };
    store.create(record).await.expect("the session is created");
    let harness = harness(store.clone());
    // A request with a key waits until all keys are loaded.
    harness.create(Some("another")).await;
    claim_and_forget(&*store, purged).await;
    let created = harness.create(Some("k")).await;
    assert!(created.is_new && created.view.id != purged, "{created:?}");
    assert_eq!(harness.create(Some("k")).await.view.id, created.view.id);
}

#[actix::test]
async fn keys_of_thousands_of_sessions_load_quickly() {
    let store = Arc::new(FaultyStore::default());
    let ended = |n: usize| {
        let record = record(SessionId::generate(), Some(format!("k-{n}")));
        SessionRecord { state: AgentState::Ended, archived: n.is_multiple_of(2), ..record }
    };
    let ended: Vec<_> = (0..3000).map(ended).collect();
    for record in &ended {
        store.create(record.clone()).await.expect("the session is created");
    }
    let started = Instant::now();
    let harness = harness(store);
    for n in [0, 1, 1234, 2999] {
        assert_eq!(harness.create(Some(&format!("k-{n}"))).await.view.id, ended[n].id);
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}
