//! Sessions that fall, and how they come back.

use std::time::Instant;

use super::*;
use crate::{
    frontend::{self, tests::fixture::TestClient},
    session::{CallError, send_request},
};

#[actix::test]
async fn a_panic_in_one_session_is_its_own_and_it_comes_back() {
    let house = harness(Arc::default());
    let (hit, spared) = (house.create(None).await, house.create(None).await);
    let told = Arc::new(AtomicBool::new(false));
    let listener = PublishedProbe(told.clone()).start().recipient();
    let attached = hit.session.send(Attach { subscriber: listener }).await.expect("it lives");
    *house.store.panic_on_append.lock().expect("nobody panics here") = Some(hit.view.id);
    assert!(hit.session.send(say("boom", None)).await.is_err(), "the actor is gone, and so is its answer");
    eventually("its listeners to be told", || async { told.load(SeqCst) }).await;
    eventually("the session to be back", || async { house.has_error(hit.view.id, "session_restarted").await }).await;
    let again = house.open(hit.view.id).await.expect("it is back");
    again.send(say("hello", None)).await.expect("it lives").expect("it is taken");
    assert!(matches!(attached.subscription.poll(0, &mut Default::default(), 1), crate::session::DeliveryPoll::Closed));
    spared.session.send(say("hello", None)).await.expect("it lives").expect("nothing happened to it");
}

/// Over one wish it fell, which may be done; the other it never saw, so the next actor can be asked.
#[actix::test]
async fn who_asks_a_session_that_falls_knows_whether_it_had_begun() {
    let house = harness(Arc::default());
    let hit = house.create(None).await;
    *house.store.panic_on_append.lock().expect("nobody panics here") = Some(hit.view.id);
    let (over, behind) =
        (send_request(&hit.session, say("boom", None)), send_request(&hit.session, say("hello", None)));
    assert!(matches!(over.await, Err(CallError::MaybeProcessed)));
    let Err(CallError::NotProcessed(hello)) = behind.await else { panic!("it was in the mailbox") };
    assert!(matches!(send_request(&hit.session, say("late", None)).await, Err(CallError::NotProcessed(_))));
    let again = house.open(hit.view.id).await.expect("it is back");
    send_request(&again, hello).await.expect("it lives").expect("it is taken");
    let said = |event: &&Event| event.body.name() == "message" && event.body.summary_line().contains("hello");
    assert_eq!(house.events(hit.view.id).await.iter().filter(said).count(), 1);
}

#[actix::test]
async fn a_journal_that_refuses_is_told_and_the_session_goes_on_when_there_is_room() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    let before = house.events(made.view.id).await.len();
    house.store.fail_writes.store(true, SeqCst);
    let refusal = made.session.send(say("too much", None)).await.expect("an answer").expect_err("it is refused");
    assert_eq!(refusal.code(), "journal_unavailable", "{refusal}");
    assert!(refusal.to_string().contains("no space left"), "{refusal}");
    assert_eq!(house.open(made.view.id).await.expect_err("not yet").code(), "journal_unavailable");
    assert_eq!(house.events(made.view.id).await.len(), before, "nothing was changed, and reading goes on");
    house.store.fail_writes.store(false, SeqCst);
    eventually("the session to be back", || async { house.open(made.view.id).await.is_ok() }).await;
    let back = house.open(made.view.id).await.expect("it is back");
    back.send(say("now", None)).await.expect("it lives").expect("it is taken");
}

#[actix::test]
async fn the_result_of_an_act_names_its_cause_also_where_the_session_fell_meanwhile() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    let id = made.view.id;
    made.session.send(greet("b")).await.expect("it lives").expect("it is welcomed");
    let run = || Relay { request: ClientRequest::Run { command: "make".into() }, idempotency_key: None };
    made.session.send(run()).await.expect("it lives").expect("it is taken");
    let act = house.ordered("user_action").await;
    *house.store.panic_on_append.lock().expect("nobody panics here") = Some(id);
    made.session.send(run()).await.expect_err("the actor is gone");
    eventually("the session to be back", || async { house.has_error(id, "session_restarted").await }).await;
    let again = house.open(id).await.expect("it is back");
    again.send(greet("b")).await.expect("it lives").expect("it is welcomed");
    let command = "make".to_owned();
    let seen = ObservationKind::Run { command, exit_code: Some(0), duration_ms: 1, timed_out: false, truncated: None };
    let done = AgentReport::Event { item: Some(act), body: Observation { kind: seen, content: String::new() }.into() };
    report(&again, "b", 1, vec![done]).await.expect("it is on disk");
    let events = house.events(id).await;
    let asked = events.iter().find(|event| event.body.name() == "run").expect("it was asked for");
    assert_eq!(events.last().and_then(|event| event.cause), Some(asked.seq));
}

/// Its agent works on, and nobody may come who asks for it.
#[actix::test]
async fn a_session_of_the_last_run_is_back_once_its_journal_can_be_written() {
    let store: Arc<FaultyStore> = Arc::default();
    let id = harness(store.clone()).create(None).await.view.id;
    store.fail_writes.store(true, SeqCst);
    let next = harness(store.clone());
    assert_eq!(next.open(id).await.expect_err("not yet").code(), "journal_unavailable");
    assert!(next.directory.send(GetIfRunning { id }).await.expect("it lives").is_none());
    store.fail_writes.store(false, SeqCst);
    let is_back = || async { next.directory.send(GetIfRunning { id }).await.expect("it lives").is_some() };
    eventually("the session to be back by itself", is_back).await;
    assert!(!next.has_error(id, "session_restarted").await, "it did not fall");
}

#[actix::test]
async fn a_session_that_falls_whenever_it_is_back_comes_back_ever_more_slowly_whoever_asks() {
    let house = harness(Arc::default());
    let id = house.create(None).await.view.id;
    let told = async || house.events(id).await.iter().filter(|event| event.body.name() == "error").count();
    let mut took = Vec::new();
    for falls in 1..=4 {
        let session = house.open(id).await.expect("it is back");
        *house.store.panic_on_append.lock().expect("nobody panics here") = Some(id);
        session.send(say("boom", None)).await.expect_err("the actor is gone");
        let fell = Instant::now();
        // Somebody asks for it all the time, as its listeners do.
        eventually("the session to be back, and to say so", || async {
            let held = house.open(id).await.err();
            assert!(held.as_ref().is_none_or(|held| held.code() == "unavailable"), "{held:?}");
            told().await == falls
        })
        .await;
        took.push(fell.elapsed());
    }
    assert!(took[2] >= Duration::from_millis(150) && took[3] >= Duration::from_millis(300), "{took:?}");
}

#[actix::test]
async fn whoever_listens_to_a_session_that_is_purged_is_told() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    let id = made.view.id;
    made.session.send(End::default()).await.expect("it lives").expect("it ends");
    let parts = Arc::new(frontend::FrontendServices {
        sessions: Arc::new(house.directory.clone()),
        store: house.store.clone(),
        actor_registry: ActorRegistry::default(),
        closing: Default::default(),
    });
    let (mut client, mut chat) = (TestClient::attach(&parts, Some(id)).await, TestClient::chat(&parts, id).await);
    client.until(|frame| frame["status"] == "synced").await;
    chat.so_far().await;
    let mut pull = frontend::EventPull::open(parts, id, Seq::MAX).await.expect("it is there");
    // They have read all that there is, so nothing but the session itself can tell them.
    house.directory.send(Purge { id }).await.expect("it lives").expect("it is purged");
    assert_eq!((client.closed().await, chat.closed().await), (Some(4404), Some(4404)));
    let gone = async { while !matches!(pull.next().await, frontend::PulledItem::Gone(RequestError::NoSession(_))) {} };
    tokio::time::timeout(Duration::from_secs(5), gone).await.expect("the stream ends");
    assert_eq!(house.open(id).await.expect_err("no trace").code(), "not_found");
}

/// It would have its sandbox after everything of it was removed.
#[actix::test]
async fn a_session_is_not_purged_amid_its_start() {
    let house = harness(Arc::default());
    let id = house.create(None).await.view.id;
    let turn = house.starts.session_lock(id);
    let under_way = turn.lock().await;
    let mut purged = std::pin::pin!(house.directory.send(Purge { id }));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut purged).await;
    assert!(early.is_err(), "{early:?}");
    drop(under_way);
    purged.await.expect("it lives").expect("it is purged");
}

/// A full disk, and a person who makes room on it.
#[actix::test]
async fn a_session_whose_end_the_journal_refuses_does_not_come_back_while_it_is_purged() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    let id = made.view.id;
    let lives = || house.links.lock().expect("nobody panics here").len();
    let turn = house.starts.session_lock(id);
    let removing = turn.lock().await;
    house.store.fail_next_append.store(true, SeqCst);
    let mut purged = std::pin::pin!(house.directory.send(Purge { id }));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut purged).await;
    assert!(early.is_err(), "{early:?}");
    assert!(!made.session.connected(), "it fell");
    assert_eq!(house.open(id).await.expect_err("not yet").code(), "unavailable");
    assert_eq!(lives(), 1);
    drop(removing);
    purged.await.expect("it lives").expect("it is purged");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(house.open(id).await.expect_err("no trace").code(), "not_found");
    assert_eq!(lives(), 1);
}

#[actix::test]
async fn a_session_that_could_not_be_purged_comes_back() {
    let house = harness(Arc::default());
    let id = house.create(None).await.view.id;
    house.store.fail_next_append.store(true, SeqCst);
    house.store.fail_forget.store(true, SeqCst);
    house.directory.send(Purge { id }).await.expect("it lives").expect_err("the journal refuses");
    eventually("it to be back", || async { house.links.lock().expect("nobody panics here").len() == 2 }).await;
    house.store.fail_forget.store(false, SeqCst);
    house.directory.send(Purge { id }).await.expect("it lives").expect("it is purged");
    assert_eq!(house.open(id).await.expect_err("no trace").code(), "not_found");
}

/// A full disk: it was waiting for its next try when it was to be purged, and that was due meanwhile.
#[actix::test]
async fn a_session_that_had_fallen_and_could_not_be_purged_comes_back() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    let id = made.view.id;
    house.store.fail_writes.store(true, SeqCst);
    house.store.fail_forget.store(true, SeqCst);
    made.session.send(say("too much", None)).await.expect("an answer").expect_err("it is refused");
    eventually("it to be gone", || async { !made.session.connected() }).await;
    let turn = house.starts.session_lock(id);
    let removing = turn.lock().await;
    let mut purged = std::pin::pin!(house.directory.send(Purge { id }));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut purged).await;
    assert!(early.is_err(), "{early:?}");
    drop(removing);
    purged.await.expect("it lives").expect_err("the journal refuses");
    house.store.fail_writes.store(false, SeqCst);
    let is_back = || async { house.directory.send(GetIfRunning { id }).await.expect("it lives").is_some() };
    eventually("it to be back by itself", is_back).await;
}

#[actix::test]
async fn a_server_that_goes_stops_also_what_is_on_its_way_back() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    house.store.fail_next_append.store(true, SeqCst);
    made.session.send(say("too much", None)).await.expect("an answer").expect_err("it is refused");
    eventually("it to be gone", || async { !made.session.connected() }).await;
    let back = house.directory.send(Open { id: made.view.id });
    house.directory.send(ShutDown { stop: true }).await.expect("it lives");
    let view = back.await.expect("it lives").expect("it was on its way").send(GetView).await.expect("it lives");
    assert_eq!((view.state, view.reason.as_deref()), (AgentState::Stopped, Some("the server ended")));
}
