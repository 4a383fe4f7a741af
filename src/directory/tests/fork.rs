//! Tests of forks over a store in memory.

use greenroom_protocol::{EventSource, observation::AgentState};
use serde_json::json;

use super::*;
use crate::{
    frontend::tests::fixture::record,
    store::{AppendBatch, ContentSlice, SessionQuery},
};

const CONTENT: &str = "01KAHTXV3M9W6N2Q4ZB8C5R7DE";

fn stored(kind: &'static str, event: serde_json::Value) -> JournalEvent {
    JournalEvent { kind: kind.into(), json: event.to_string().into() }
}

/// Creates an idle session with `count` events of 400 bytes. Event 3 names a large content.
async fn source(store: &FaultyStore, count: u64) -> SessionId {
    let id = SessionId::generate();
    let source = SessionRecord { archived: true, budget_usd: Some(3.0), ..record(id, Some("source".to_owned())) };
    store.create(source).await.expect("the session is created");
    let (epoch, _) = store.claim(id).await.expect("the session is claimed");
    let content = "large ".repeat(200_000);
    store.restore_content(id, epoch, CONTENT, content.into()).await.expect("the content is stored");
    let event = |seq: u64| match seq {
        3 => stored(
            "run",
            json!({ "seq": 3, "at": "2026-01-01T00:00:00.000Z", "source": "agent", "observation": "run", "content": "",
                "extras": { "command": "c", "duration_ms": 1, "truncated": { "bytes": 1_200_000,
                    "href": format!("/api/sessions/{id}/contents/{CONTENT}") } } }),
        ),
        seq => stored(
            "message",
            json!({ "seq": seq, "at": "2026-01-01T00:00:00.000Z", "source": "agent", "observation": "message",
                "extras": {}, "content": "x".repeat(400) }),
        ),
    };
    let events = (1..=count).map(event).collect();
    let batch = AppendBatch { events, ..AppendBatch::default() };
    store.append(id, epoch, 0, batch).await.expect("the write succeeds");
    id
}

impl DirectoryTestHarness {
    async fn fork(&self, from: SessionId) -> Result<CreatedSession, ForkError> {
        let request = ForkRequest { files: Some(ForkFiles::None), ..ForkRequest::default() };
        self.directory.send(Fork { from, request, key: Some("fork".to_owned()) }).await.expect("the actor is alive")
    }

    async fn stored_events(&self, id: SessionId) -> Vec<JournalEvent> {
        let all = ReadLimit { events: usize::MAX, bytes: usize::MAX };
        let events = self.store.read(id, 0, all).await.expect("the journal is readable");
        events.into_iter().map(|(_, event)| event).collect()
    }
}

#[actix::test]
async fn ten_thousand_events_are_copied_with_their_contents() {
    let harness = harness(Arc::default());
    let from = source(&harness.store, 10_000).await;
    let fork = harness.fork(from).await.expect("the session is forked");
    let id = fork.view.id;
    let (old, new) = (harness.stored_events(from).await, harness.stored_events(id).await);
    let moved = |event: &JournalEvent| JournalEvent {
        json: String::from_utf8_lossy(&event.json).replace(&from.to_string(), &id.to_string()).into(),
        ..event.clone()
    };
    assert_eq!(new.len(), 10_002);
    assert!(old.iter().map(moved).eq(new[..10_000].iter().cloned()), "all events are the same");
    let content = async |id| harness.store.content(id, CONTENT, 0, usize::MAX).await.expect("it is readable");
    let ContentSlice { bytes, total } = content(id).await.expect("the content is copied");
    assert_eq!((total, Some(&bytes)), (1_200_000, content(from).await.as_ref().map(|slice| &slice.bytes)));
    let SessionSnapshot { record, tail, .. } = harness.store.get(id).await.expect("a store").expect("a session");
    assert_eq!((tail, record.latest.map(|latest| latest.seq)), (10_002, Some(10_000)));
    assert!(record.journal_usage.bytes > 5_000_000 && !record.archived, "{:?}", record.journal_usage);
    assert_eq!((record.budget_usd, record.idempotency_key.as_deref()), (None, Some("fork")));
    assert_eq!(fork.view.state, AgentState::Stopped);
    let own: Vec<Event> =
        new[10_000..].iter().map(|event| serde_json::from_slice(&event.json).expect("an event")).collect();
    assert!(own.iter().all(|event| event.source == EventSource::Server));
    // The copy is independent of the source.
    harness.directory.send(Purge { id: from }).await.expect("the actor is alive").expect("the session is purged");
    assert_eq!(harness.stored_events(id).await, new);
    assert!(content(id).await.is_some());
    assert_eq!(harness.fork(from).await.expect("the key names the fork").view.id, id);
}

#[actix::test]
async fn failed_or_unfinished_fork_is_removed() {
    let store: Arc<FaultyStore> = Arc::default();
    let first_server = harness(store.clone());
    let from = source(&store, 10).await;
    store.fail_next_append.store(true, SeqCst);
    let error = first_server.fork(from).await.expect_err("the disk is full");
    assert!(matches!(error, ForkError::Request(RequestError::Journal(_))), "{error}");
    let sessions = async || store.mine().await.expect("a store").len();
    assert_eq!(sessions().await, 1);
    // The key is free again. The removal fails too: the next server repeats it.
    store.fail_next_append.store(true, SeqCst);
    store.fail_forget.store(true, SeqCst);
    first_server.fork(from).await.expect_err("the disk is full");
    assert_eq!(sessions().await, 2);
    let listed = async || {
        store.list(SessionQuery { archived: crate::store::ArchiveFilter::Any, ..SessionQuery::default() }).await
    };
    assert_eq!(listed().await.expect("a store").total, 1, "an unfinished fork is not listed");
    let left =
        store.mine().await.expect("a store").into_iter().find(|left| left.record.id != from).expect("it is left");
    let error = first_server.open(left.record.id).await.expect_err("it is not complete");
    assert!(error.to_string().contains("its fork was cut short"), "{error}");
    store.fail_forget.store(false, SeqCst);
    let second_server = harness(store.clone());
    eventually("the removal", || async { sessions().await == 1 }).await;
    let fork = second_server.fork(from).await.expect("the session is forked");
    assert!(fork.is_new && fork.view.id != left.record.id);
}
