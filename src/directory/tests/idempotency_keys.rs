//! What a client names makes one thing.

use std::time::Instant;

use super::*;
use crate::frontend::tests::fixture::record;

#[actix::test]
async fn a_name_that_a_client_gave_makes_one_thing() {
    let store = Arc::new(FaultyStore::default());
    let house_one = harness(store.clone());
    let both = futures::join!(house_one.create(Some("k")), house_one.create(Some("k")));
    assert_eq!(both.0.view.id, both.1.view.id);
    assert_eq!((both.0.is_new, both.1.is_new), (true, false));
    let id = both.0.view.id;
    let first = both.0.session.send(say("once", Some("m"))).await.expect("it lives").expect("it is taken");
    let again = both.0.session.send(say("once", Some("m"))).await.expect("it lives").expect("it is known");
    assert_eq!(first.seq, again.seq);
    // A server after this one knows both names from the journal.
    let house_two = harness(store);
    assert_eq!(house_two.create(Some("k")).await.view.id, id);
    let session = house_two.open(id).await.expect("it is back");
    let later = session.send(say("once", Some("m"))).await.expect("it lives").expect("it is known");
    assert_eq!(first.seq, later.seq);
    let said = |event: &Event| event.body.name() == "message";
    assert_eq!(house_two.events(id).await.iter().filter(|event| said(event)).count(), 1);
}

/// Over the socket on which it was said first, and over another one after a cut.
#[actix::test]
async fn what_made_a_session_is_said_to_it_again_and_changes_nothing() {
    let initialize = |image: Option<&str>| ClientRequest::Initialize {
        model: None,
        directory: None,
        agent_cls: None,
        image: image.map(str::to_owned),
        title: Some("mine".to_owned()),
    };
    for wish in [initialize(None), initialize(Some("debian"))] {
        let store = Arc::new(FaultyStore::default());
        let house_one = harness(store.clone());
        let (id, session) = house_one.directory.create(&wish, Some("a".to_owned())).await.expect("it is made");
        let again = Relay { request: wish.clone(), idempotency_key: Some("a".to_owned()) };
        let answer = session.send(again.clone()).await.expect("it lives").expect("it is known");
        assert_eq!(answer.seq, None);
        let house_two = harness(store);
        let session = house_two.open(id).await.expect("it is back");
        session.send(again).await.expect("it lives").expect("it is known");
        assert!(!house_two.events(id).await.iter().any(|event| event.body.name() == "set_model"));
        let other =
            Relay { request: ClientRequest::Start { task: "go".to_owned() }, idempotency_key: Some("a".to_owned()) };
        assert_eq!(session.send(other).await.expect("it lives"), Err(RequestError::IdReused("a".to_owned())));
    }
}

#[actix::test]
async fn a_task_is_given_once_however_often_its_session_is_asked_for() {
    let house = harness(Arc::default());
    let make = |task: Option<&str>| {
        let new = NewSession { task: task.map(str::to_owned), ..NewSession::default() };
        house.directory.send(Create { new, key: Some("k".to_owned()), dedup_key: None, preferred_thread: None })
    };
    // As where the first answer was lost, and the task with it.
    let made = make(None).await.expect("an answer").expect("it is made");
    for _ in 0..2 {
        let again = make(Some("tidy up")).await.expect("an answer").expect("it is there");
        assert_eq!((again.view.id, again.is_new), (made.view.id, false));
    }
    let events = house.events(made.view.id).await;
    assert_eq!(events.iter().filter(|event| event.body.name() == "start").count(), 1);
}

#[actix::test]
async fn a_key_is_known_after_its_session_has_ended_and_the_server_was_started_again() {
    let store = Arc::new(FaultyStore::default());
    let first = harness(store.clone());
    let create = |house: &DirectoryTestHarness| {
        let new = NewSession { task: Some("tidy up".to_owned()), ..NewSession::default() };
        house.directory.send(Create { new, key: Some("k".to_owned()), dedup_key: None, preferred_thread: None })
    };
    let made = create(&first).await.expect("an answer").expect("it is made");
    let archive = UpdateMetadata { archived: Some(true), ..UpdateMetadata::default() };
    made.session.send(archive).await.expect("it lives").expect("it is archived");
    made.session.send(End::default()).await.expect("it lives").expect("it ends");
    let second = harness(store);
    let again = create(&second).await.expect("an answer").expect("it is there");
    assert_eq!((again.view.id, again.is_new), (made.view.id, false));
    let events = second.events(made.view.id).await;
    assert_eq!(events.iter().filter(|event| event.body.name() == "start").count(), 1);
}

/// As where it was purged while a server that has just started read what clients had asked for.
#[actix::test]
async fn a_key_whose_session_is_there_no_more_makes_another() {
    let (store, gone) = (Arc::new(FaultyStore::default()), SessionId::generate());
    let record = SessionRecord { state: AgentState::Ended, ..record(gone, Some("k".to_owned())) };
    store.create(record).await.expect("it is made");
    let house = harness(store.clone());
    // Whoever comes with a key waits until all are known.
    house.create(Some("another")).await;
    store.forget(gone).await.expect("it is forgotten");
    let made = house.create(Some("k")).await;
    assert!(made.is_new && made.view.id != gone, "{made:?}");
    assert_eq!(house.create(Some("k")).await.view.id, made.view.id);
}

#[actix::test]
async fn a_server_that_has_made_thousands_of_sessions_knows_their_keys_at_once() {
    let store = Arc::new(FaultyStore::default());
    let ended = |n: usize| {
        let record = record(SessionId::generate(), Some(format!("k-{n}")));
        SessionRecord { state: AgentState::Ended, archived: n.is_multiple_of(2), ..record }
    };
    let ended: Vec<_> = (0..3000).map(ended).collect();
    for record in &ended {
        store.create(record.clone()).await.expect("it is made");
    }
    let started = Instant::now();
    let house = harness(store);
    for n in [0, 1, 1234, 2999] {
        assert_eq!(house.create(Some(&format!("k-{n}"))).await.view.id, ended[n].id);
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}
