//! A session over a store that keeps nothing, and a link that does nothing.

use futures::future::join_all;

use super::*;
use crate::{session::stage, store::memory::MemoryStore};

struct Stage {
    session: Addr<Session>,
}

impl Stage {
    /// A session whose agent is there and has nothing to do.
    async fn idle() -> Stage {
        let (_, session) = stage::idle(Arc::new(MemoryStore::new())).await;
        Stage { session }
    }

    async fn wish(&self, wish: Wish, key: Option<&str>) -> Answer {
        self.session.send(Relay { wish, key: key.map(str::to_owned) }).await.expect("it lives")
    }
}

fn say(content: &str) -> Wish {
    Wish::Message { content: content.into(), mode: Default::default(), attachments: vec![] }
}

fn code(answer: Answer) -> &'static str {
    answer.map_or_else(|refusal| refusal.code(), |_| "taken")
}

#[actix::test]
async fn one_sessions_wishes_fill_their_own_share_of_the_disks_queue_and_no_more() {
    let stage = Stage::idle().await;
    assert_eq!(code(stage.wish(say("work"), None).await), "taken");
    let waits = stage.wish(say(&"x".repeat(1 << 20)), None).await;
    assert_eq!(code(waits), "taken");
    let edit = |n: usize| Wish::EditQueue {
        item: "message-4".into(),
        content: Some(n.to_string().repeat(1 << 19)),
        remove: false,
    };
    // All are heard before the first is on disk.
    let edits = (10..50).map(|n| stage.wish(edit(n), None));
    let (edits, stopped) = tokio::join!(join_all(edits), async { stage.session.send(Interrupt::default()).await });
    let taken = edits.iter().filter(|answer| answer.is_ok()).count();
    assert!((2..20).contains(&taken), "{taken} of forty, of two MiB each");
    assert!(edits.into_iter().all(|answer| ["taken", "unavailable"].contains(&code(answer))));
    assert_eq!(code(stopped.expect("it lives")), "taken");
    assert_eq!(code(stage.wish(edit(50), None).await), "taken", "once they are on disk");
}

#[actix::test]
async fn what_says_nothing_is_refused_also_in_the_queue() {
    let stage = Stage::idle().await;
    for content in ["work", "later"] {
        assert_eq!(code(stage.wish(say(content), None).await), "taken");
    }
    let edit =
        |content: &str| Wish::EditQueue { item: "message-4".into(), content: Some(content.into()), remove: false };
    for wish in [say(" "), edit(""), edit(" \n")] {
        let refused = stage.wish(wish, None).await.expect_err("it says nothing");
        assert_eq!((refused.code(), &*refused.to_string()), ("invalid_args", "`content` is empty"));
    }
    assert_eq!(code(stage.wish(edit("more"), None).await), "taken");
}

#[actix::test]
async fn an_id_belongs_to_one_wish() {
    let stage = Stage::idle().await;
    let seq = |answer: Answer| answer.expect("it is taken").seq;
    let first = seq(stage.wish(say("one"), Some("1")).await);
    assert!(first.is_some());
    assert_eq!(seq(stage.wish(say("one"), Some("1")).await), first, "the same again acts once");
    assert_eq!(code(stage.wish(say("two"), Some("1")).await), "id_reused");
    assert_eq!(code(stage.wish(Wish::Run { command: "one".into() }, Some("1")).await), "id_reused");
    let interrupt = || stage.session.send(Interrupt { key: Some("1".into()) });
    assert_eq!(code(interrupt().await.expect("it lives")), "id_reused");
    assert_ne!(seq(stage.wish(say("two"), Some("2")).await), first);
    let refused = stage.wish(say("three"), Some("1")).await.expect_err("it is another wish");
    assert!(refused.to_string().contains("`1`"), "{refused}");
}
