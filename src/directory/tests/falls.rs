//! Sessions that fall, and how they come back.

use super::*;

#[actix::test]
async fn a_panic_in_one_session_is_its_own_and_it_comes_back() {
    let house = house(Arc::default());
    let (hit, spared) = (house.create(None).await, house.create(None).await);
    let told = Arc::new(AtomicBool::new(false));
    let listener = Listener(told.clone()).start().recipient();
    let attached = hit.session.send(Attach { listener }).await.expect("it lives");
    *house.store.panics.lock().expect("nobody panics here") = Some(hit.view.id);
    assert!(hit.session.send(say("boom", None)).await.is_err(), "the actor is gone, and so is its answer");
    eventually("its listeners to be told", || async { told.load(SeqCst) }).await;
    eventually("the session to be back", || async { house.has(hit.view.id, "session_restarted").await }).await;
    let again = house.open(hit.view.id).await.expect("it is back");
    again.send(say("hello", None)).await.expect("it lives").expect("it is taken");
    assert!(matches!(attached.listening.look(0, &mut Default::default(), 1), crate::session::Look::Closed));
    spared.session.send(say("hello", None)).await.expect("it lives").expect("nothing happened to it");
}

#[actix::test]
async fn a_journal_that_refuses_is_told_and_the_session_goes_on_when_there_is_room() {
    let house = house(Arc::default());
    let made = house.create(None).await;
    let before = house.events(made.view.id).await.len();
    house.store.refuses.store(true, SeqCst);
    let refusal = made.session.send(say("too much", None)).await.expect("an answer").expect_err("it is refused");
    assert_eq!(refusal.code(), "journal_unavailable", "{refusal}");
    assert!(refusal.to_string().contains("no space left"), "{refusal}");
    assert_eq!(house.open(made.view.id).await.expect_err("not yet").code(), "journal_unavailable");
    assert_eq!(house.events(made.view.id).await.len(), before, "nothing was changed, and reading goes on");
    house.store.refuses.store(false, SeqCst);
    eventually("the session to be back", || async { house.open(made.view.id).await.is_ok() }).await;
    let back = house.open(made.view.id).await.expect("it is back");
    back.send(say("now", None)).await.expect("it lives").expect("it is taken");
}
