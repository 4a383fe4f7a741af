//! A session over a store that keeps nothing, and a link that does nothing.

use std::sync::atomic::Ordering::SeqCst;

use futures::future::join_all;
use greenroom_protocol::{Observation, link::AgentReport};

use super::*;
use crate::{
    session::test_session,
    store::{Store, faulty::FaultyStore, in_memory::MemoryStore},
};

struct RequestFixture {
    session: Addr<Session>,
}

impl RequestFixture {
    /// A session whose agent is there and has nothing to do.
    async fn idle() -> RequestFixture {
        let (_, session) = test_session::idle_session(Arc::new(MemoryStore::new())).await;
        RequestFixture { session }
    }

    async fn request(&self, wish: ClientRequest, key: Option<&str>) -> RequestResult {
        self.session.send(Relay { request: wish, idempotency_key: key.map(str::to_owned) }).await.expect("it lives")
    }
}

fn say(content: &str) -> ClientRequest {
    ClientRequest::Message { content: content.into(), mode: Default::default(), attachments: vec![] }
}

fn code(answer: RequestResult) -> &'static str {
    answer.map_or_else(|refusal| refusal.code(), |_| "taken")
}

#[actix::test]
async fn one_sessions_wishes_fill_their_own_share_of_the_disks_queue_and_no_more() {
    let stage = RequestFixture::idle().await;
    assert_eq!(code(stage.request(say("work"), None).await), "taken");
    let waits = stage.request(say(&"x".repeat(1 << 20)), None).await;
    assert_eq!(code(waits), "taken");
    let edit = |n: usize| ClientRequest::EditQueue {
        item: "message-4".into(),
        content: Some(n.to_string().repeat(1 << 19)),
        remove: false,
    };
    // All are heard before the first is on disk.
    let edits = (10..50).map(|n| stage.request(edit(n), None));
    let (edits, stopped) = tokio::join!(join_all(edits), async { stage.session.send(Interrupt::default()).await });
    let taken = edits.iter().filter(|answer| answer.is_ok()).count();
    assert!((2..20).contains(&taken), "{taken} of forty, of two MiB each");
    assert!(edits.into_iter().all(|answer| ["taken", "unavailable"].contains(&code(answer))));
    assert_eq!(code(stopped.expect("it lives")), "taken");
    assert_eq!(code(stage.request(edit(50), None).await), "taken", "once they are on disk");
}

#[actix::test]
async fn what_has_no_contents_has_its_share_as_well() {
    let stage = RequestFixture::idle().await;
    assert_eq!(code(stage.request(say("work"), None).await), "taken");
    assert_eq!(code(stage.request(say(&"x".repeat(1 << 20)), None).await), "taken");
    let amend =
        |n: usize| stage.session.send(UpdateMetadata { title: Some(n.to_string()), archived: None, model: None });
    let pause = |n: usize| {
        stage.request(if n.is_multiple_of(2) { ClientRequest::Pause {} } else { ClientRequest::Resume {} }, None)
    };
    let (amended, paused) = tokio::join!(join_all((0..100).map(amend)), join_all((0..100).map(pause)));
    let amended = amended.into_iter().map(|answer| answer.expect("it lives"));
    let (taken, refused): (Vec<_>, Vec<_>) = amended.partition(Result::is_ok);
    assert!((10..20).contains(&taken.len()), "{} of a hundred, of a MiB each", taken.len());
    assert!(refused.into_iter().all(|answer| answer.err().is_some_and(|refusal| refusal.code() == "unavailable")));
    let paused = paused.into_iter().map(code).collect::<Vec<_>>();
    let taken = paused.iter().filter(|code| **code == "taken").count();
    assert!((10..20).contains(&taken), "as many again: {paused:?}");
    assert!(paused.contains(&"unavailable"), "{paused:?}");
    assert!(amend(100).await.expect("it lives").is_ok(), "once they are on disk");
}

#[actix::test]
async fn the_gateway_is_told_when_its_notices_are_on_disk() {
    let store = Arc::new(FaultyStore::default());
    let (_, session) = test_session::idle_session(store.clone()).await;
    let room = Arc::new(tokio::sync::Semaphore::new(1));
    store.gate_appends();
    let unwritten = room.clone().try_acquire_owned().ok();
    let notice = GatewayNotice::Retrying { attempt: 2, wait_ms: 1, why: "busy".into() };
    session.send(NoticeReceived { notice, permit: unwritten }).await.expect("it lives");
    session.send(GetView).await.expect("it lives");
    assert_eq!(room.available_permits(), 0, "the disk does not have it");
    store.release_one();
    drop(room.acquire().await.expect("it is open"));
}

#[actix::test]
async fn what_follows_a_record_that_failed_has_it_too() {
    let store = Arc::new(FaultyStore::default());
    let (id, session) = test_session::idle_session(store.clone()).await;
    store.fail_next_append.store(true, SeqCst);
    // Both are decided before the session hears that the first was refused.
    let amended = session.send(UpdateMetadata { title: Some("new".into()), archived: None, model: None });
    let (durable, _) = oneshot::channel();
    let think = Observation { kind: ObservationKind::Think { partial: false }, content: "hm".into() };
    let reports = vec![AgentReport::Event { item: None, body: think.into() }];
    let reported = session.send(Reported { boot: "b".into(), n: 1, reports, durable });
    let (amended, reported) = tokio::join!(amended, reported);
    assert!(amended.expect("it answers").is_err() && reported.is_ok());
    let snapshot = store.get(id).await.expect("it is read").expect("it is there");
    assert_eq!(snapshot.mark.map(|mark| mark.n), Some(1), "the report is taken");
    assert_eq!(snapshot.record.title, "new", "and with it all that led to its decision");
}

#[actix::test]
async fn what_says_nothing_is_refused_also_in_the_queue() {
    let stage = RequestFixture::idle().await;
    for content in ["work", "later"] {
        assert_eq!(code(stage.request(say(content), None).await), "taken");
    }
    let edit = |content: &str| ClientRequest::EditQueue {
        item: "message-4".into(),
        content: Some(content.into()),
        remove: false,
    };
    for wish in [say(" "), edit(""), edit(" \n")] {
        let refused = stage.request(wish, None).await.expect_err("it says nothing");
        assert_eq!((refused.code(), &*refused.to_string()), ("invalid_args", "`content` is empty"));
    }
    assert_eq!(code(stage.request(edit("more"), None).await), "taken");
}

#[actix::test]
async fn an_id_belongs_to_one_wish() {
    let stage = RequestFixture::idle().await;
    let seq = |answer: RequestResult| answer.expect("it is taken").seq;
    let first = seq(stage.request(say("one"), Some("1")).await);
    assert!(first.is_some());
    assert_eq!(seq(stage.request(say("one"), Some("1")).await), first, "the same again acts once");
    assert_eq!(code(stage.request(say("two"), Some("1")).await), "id_reused");
    assert_eq!(code(stage.request(ClientRequest::Run { command: "one".into() }, Some("1")).await), "id_reused");
    let interrupt = || stage.session.send(Interrupt { idempotency_key: Some("1".into()) });
    assert_eq!(code(interrupt().await.expect("it lives")), "id_reused");
    assert_ne!(seq(stage.request(say("two"), Some("2")).await), first);
    let refused = stage.request(say("three"), Some("1")).await.expect_err("it is another wish");
    assert!(refused.to_string().contains("`1`"), "{refused}");
}
