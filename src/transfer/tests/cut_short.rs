//! Tests of imports that are killed midway.

use std::time::Duration;

use greenroom_protocol::observation::AgentState;
use tokio::time::timeout;

use super::*;
use crate::store::{SessionRecord, faulty::FaultyStore};

/// Imports `text` and kills the import after this number of appends.
async fn cut_after(store: &Arc<FaultyStore>, appends: usize, text: &str) {
    store.gate_appends();
    (0..appends).for_each(|_| store.release_one());
    let other: Arc<dyn Store> = store.clone();
    timeout(Duration::from_secs(1), import_text(&other, text)).await.expect_err("the import is killed while it blocks");
    store.gate_appends();
    (0..1000).for_each(|_| store.release_one());
}

async fn record_of(store: &dyn Store, id: SessionId) -> SessionRecord {
    store.get(id).await.expect("the store is readable").expect("the session exists").record
}

fn assert_not_resumable(record: &SessionRecord) {
    assert_eq!(record.state, AgentState::Stopped);
    let reason = record.reason.as_deref().expect("the record has a reason");
    assert_eq!(reason, "its import was cut short; import the file again");
    let state = serde_json::from_str::<String>(record.actor_state.as_str())
        .expect("the state is a string, from which no session starts");
    assert_eq!(state, reason);
}

#[tokio::test(start_paused = true)]
async fn killed_import_is_not_resumable_and_next_import_completes_it() {
    let store = MemoryStore::new();
    for (count, appends, least) in [(0, 0, 0), (5, 0, 0), (3000, 1, 900), (3000, 2, 1800)] {
        let id = SessionId::generate();
        fill(&store, id, count).await;
        let out = text(&store, Some(id)).await;
        let faulty = Arc::new(FaultyStore::default());
        cut_after(&faulty, appends, &with_head(&out)).await;
        let present = faulty.get(id).await.expect("the store is readable").expect("the session exists");
        assert!(
            present.tail >= least && (present.tail < count || count == 0),
            "{} of {count} are written",
            present.tail
        );
        assert_not_resumable(&present.record);

        let other: Arc<dyn Store> = faulty.clone();
        let counts = import_text(&other, &with_head(&out)).await.expect("the import is completed");
        assert_eq!(counts, TransferCounts { sessions: 1, events: count - present.tail, already_present: 0 });
        assert_eq!(text(faulty.as_ref(), None).await, out);
        assert_eq!(record_of(faulty.as_ref(), id).await, record_of(&store, id).await);
        let counts = import_text(&other, &with_head(&out)).await.expect("a repeated import succeeds");
        assert_eq!(counts, TransferCounts { sessions: 0, events: 0, already_present: 1 });
    }
}

#[tokio::test(start_paused = true)]
async fn killed_continuation_is_completed_only_by_newer_file() {
    let (store, faulty) = (MemoryStore::new(), Arc::new(FaultyStore::default()));
    let (id, other): (_, Arc<dyn Store>) = (SessionId::generate(), faulty.clone());
    fill(&store, id, 5).await;
    let older = with_head(&text(&store, None).await);
    import_text(&other, &older).await.expect("the import succeeds");
    fill(&store, id, 3000).await;
    let newer = text(&store, None).await;
    cut_after(&faulty, 2, &with_head(&newer)).await;
    let present = faulty.get(id).await.expect("the store is readable").expect("the session exists");
    assert!(present.tail > 5 && present.tail < 3005, "{} are written", present.tail);
    assert_not_resumable(&present.record);

    assert_eq!(import_text(&other, &older).await.expect("the older file is consistent").already_present, 1);
    assert_not_resumable(&record_of(faulty.as_ref(), id).await);
    import_text(&other, &with_head(&newer)).await.expect("the import is completed");
    assert_eq!(text(faulty.as_ref(), None).await, newer);
}
