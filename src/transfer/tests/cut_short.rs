//! Imports that are killed in the middle.

use std::time::Duration;

use greenroom_protocol::observation::AgentState;
use tokio::time::timeout;

use super::*;
use crate::store::{SessionRecord, faulty::FaultyStore};

/// Takes `text` in, of which no more is written than so many appends.
async fn cut_after(store: &Arc<FaultyStore>, appends: usize, text: &str) {
    store.gate_appends();
    (0..appends).for_each(|_| store.release_one());
    let other: Arc<dyn Store> = store.clone();
    timeout(Duration::from_secs(1), import_text(&other, text)).await.expect_err("it is killed while it waits");
    store.gate_appends();
    (0..1000).for_each(|_| store.release_one());
}

async fn record_of(store: &dyn Store, id: SessionId) -> SessionRecord {
    store.get(id).await.expect("it answers").expect("it is there").record
}

fn assert_not_resumable(record: &SessionRecord) {
    assert_eq!(record.state, AgentState::Stopped);
    let why = record.reason.as_deref().expect("it says why");
    assert_eq!(why, "its import was cut short; import the file again");
    let memory = serde_json::from_str::<String>(record.actor_state.as_str()).expect("no session starts from a text");
    assert_eq!(memory, why);
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_import_left_is_nobodys_to_go_on_with_and_the_next_one_finishes_it() {
    let store = MemoryStore::new();
    for (count, appends, left) in [(0, 0, 0), (5, 0, 0), (3000, 1, 900), (3000, 2, 1800)] {
        let id = SessionId::generate();
        fill(&store, id, count).await;
        let out = text(&store, Some(id)).await;
        let faulty = Arc::new(FaultyStore::default());
        cut_after(&faulty, appends, &with_head(&out)).await;
        let here = faulty.get(id).await.expect("it answers").expect("it is there");
        assert!(here.tail >= left && (here.tail < count || count == 0), "{} of {count} are written", here.tail);
        assert_not_resumable(&here.record);

        let other: Arc<dyn Store> = faulty.clone();
        let moved = import_text(&other, &with_head(&out)).await.expect("it is finished");
        assert_eq!(moved, TransferCounts { sessions: 1, events: count - here.tail, already_present: 0 });
        assert_eq!(text(faulty.as_ref(), None).await, out);
        assert_eq!(record_of(faulty.as_ref(), id).await, record_of(&store, id).await);
        let moved = import_text(&other, &with_head(&out)).await.expect("it is known");
        assert_eq!(moved, TransferCounts { sessions: 0, events: 0, already_present: 1 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_an_import_was_to_go_on_with_is_finished_too_and_not_by_an_older_file() {
    let (store, faulty) = (MemoryStore::new(), Arc::new(FaultyStore::default()));
    let (id, other): (_, Arc<dyn Store>) = (SessionId::generate(), faulty.clone());
    fill(&store, id, 5).await;
    let older = with_head(&text(&store, None).await);
    import_text(&other, &older).await.expect("it is imported");
    fill(&store, id, 3000).await;
    let newer = text(&store, None).await;
    cut_after(&faulty, 2, &with_head(&newer)).await;
    let here = faulty.get(id).await.expect("it answers").expect("it is there");
    assert!(here.tail > 5 && here.tail < 3005, "{} are written", here.tail);
    assert_not_resumable(&here.record);

    assert_eq!(import_text(&other, &older).await.expect("it says the same").already_present, 1);
    assert_not_resumable(&record_of(faulty.as_ref(), id).await);
    import_text(&other, &with_head(&newer)).await.expect("it is finished");
    assert_eq!(text(faulty.as_ref(), None).await, newer);
}
