//! What a client names makes one thing.

use super::*;

#[actix::test]
async fn a_name_that_a_client_gave_makes_one_thing() {
    let store = Arc::new(Faulty::default());
    let house_one = house(store.clone());
    let both = futures::join!(house_one.create(Some("k")), house_one.create(Some("k")));
    assert_eq!(both.0.view.id, both.1.view.id);
    assert_eq!((both.0.fresh, both.1.fresh), (true, false));
    let id = both.0.view.id;
    let first = both.0.session.send(say("once", Some("m"))).await.expect("it lives").expect("it is taken");
    let again = both.0.session.send(say("once", Some("m"))).await.expect("it lives").expect("it is known");
    assert_eq!(first.seq, again.seq);
    // A server after this one knows both names from the journal.
    let house_two = house(store);
    assert_eq!(house_two.create(Some("k")).await.view.id, id);
    let session = house_two.open(id).await.expect("it is back");
    let later = session.send(say("once", Some("m"))).await.expect("it lives").expect("it is known");
    assert_eq!(first.seq, later.seq);
    let said = |event: &Event| event.body.name() == "message";
    assert_eq!(house_two.events(id).await.iter().filter(|event| said(event)).count(), 1);
}

#[actix::test]
async fn a_task_is_given_once_however_often_its_session_is_asked_for() {
    let house = house(Arc::default());
    let make = |task: Option<&str>| {
        let new = NewSession { task: task.map(str::to_owned), ..NewSession::default() };
        house.directory.send(Create { new, key: Some("k".to_owned()), near: None })
    };
    // As where the first answer was lost, and the task with it.
    let made = make(None).await.expect("an answer").expect("it is made");
    for _ in 0..2 {
        let again = make(Some("tidy up")).await.expect("an answer").expect("it is there");
        assert_eq!((again.view.id, again.fresh), (made.view.id, false));
    }
    let events = house.events(made.view.id).await;
    assert_eq!(events.iter().filter(|event| event.body.name() == "start").count(), 1);
}
