//! Tests of the local journal under the faults that it survives.

mod archives;
mod contents;
mod crash;
mod damage;
mod full;
mod headers;
mod in_flight;
mod index_maintenance;
mod power;
mod read_only;
mod tail;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use super::{LocalStore, StoreSizes, committer::FlushThresholds, log_writer::SegmentSizes};
use crate::store::{
    AppendBatch, AppendError, CompactionStats, ContentPiece, OpenError, ReadLimit, SessionId, SessionQuery,
    SessionRecord, Store, StoreError, StoredEvent,
    contract::{ALL, claim_and_forget, claimed, contract, event, events, expected, record},
};

contract!({
    let dir = tempfile::tempdir().unwrap();
    let store = crate::store::local::LocalStore::open(dir.path()).unwrap();
    (dir, store)
});

/// The contract with segments of a few commits and frequent index flushes.
mod in_small_steps {
    crate::store::contract::contract!({
        let dir = tempfile::tempdir().unwrap();
        let store = crate::store::local::LocalStore::open_with(dir.path(), super::super::small_sizes()).unwrap();
        (dir, store)
    });
}

fn small_sizes() -> StoreSizes {
    let segment = SegmentSizes { max_bytes: 4 << 10, preallocate_bytes: 1 << 10 };
    StoreSizes {
        segment,
        flush_thresholds: FlushThresholds { locations: 20, bytes: 3 << 10 },
        close_purged_bytes: 1 << 10,
    }
}

/// Returns all events of a session, read from the log.
fn from_log(store: &LocalStore, session: SessionId) -> Result<Vec<StoredEvent>, StoreError> {
    super::reader::read(&store.shared, session, 0, ALL)
}

/// Compares the numbers first. The texts would make the failure unreadable.
fn assert_same(found: &[StoredEvent], expected: &[StoredEvent], what: &str) {
    let seqs = |events: &[StoredEvent]| events.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
    assert_eq!(seqs(found), seqs(expected), "{what}");
    let differs = found.iter().zip(expected).find(|(found, expected)| found != expected);
    assert_eq!(differs, None, "{what}");
}

fn check_whole(store: &LocalStore, session: SessionId, tail: u64, what: &str) {
    assert_same(&from_log(store, session).unwrap(), &expected(session, tail), what);
}

async fn fill(store: &LocalStore, title: &str, count: u64) -> SessionId {
    let (session, epoch) = claimed(store, title).await;
    for at in 0..count {
        store.append(session, epoch, at, events(session, at, 1)).await.unwrap();
    }
    session
}

/// Changes the title without an event. `place` is the session, its epoch and its tail.
async fn rename(store: &LocalStore, place: (SessionId, u64, u64), title: &str) {
    let (session, epoch, tail) = place;
    let record = store.get(session).await.unwrap().unwrap().record;
    let record = Some(Arc::new(SessionRecord { title: title.to_owned(), ..record }));
    store.append(session, epoch, tail, AppendBatch { record, ..AppendBatch::default() }).await.unwrap();
}

#[tokio::test]
async fn restart_keeps_everything() {
    for sizes in [StoreSizes::default(), small_sizes()] {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open_with(dir.path(), sizes).unwrap();
        let (a, b, gone) = (fill(&store, "a", 300).await, fill(&store, "b", 5).await, fill(&store, "gone", 9).await);
        rename(&store, (a, 1, 300), "A").await;
        let renamed = store.get(a).await.unwrap().unwrap();
        assert_eq!(renamed.record.title, "A");
        let content = store.put_content(b, 1, vec![1, 2, 3].into()).await.unwrap();
        store.forget(gone, 1).await.unwrap();
        drop(store);

        let store = LocalStore::open_with(dir.path(), sizes).unwrap();
        check_whole(&store, a, 300, "after a restart");
        check_whole(&store, b, 5, "after a restart");
        assert_eq!(store.get(a).await.unwrap().unwrap(), renamed);
        let found = store.content(b, &content, 0, 9).await.unwrap().map(|part| part.bytes);
        assert_eq!(found.as_deref(), Some(&[1, 2, 3][..]));
        assert_eq!(store.get(gone).await.unwrap(), None);
        assert_eq!(store.list(SessionQuery::default()).await.unwrap().total, 2);
        let (epoch, snapshot) = store.claim(a).await.unwrap();
        assert_eq!((epoch, snapshot.tail), (2, 300));
        assert!(matches!(store.append(a, 1, 300, events(a, 300, 1)).await, Err(AppendError::Fenced)));
        assert_eq!(store.append(a, epoch, 300, events(a, 300, 1)).await.unwrap(), 301);
    }
}

#[tokio::test]
async fn restart_replays_only_what_index_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 50).await;
    drop(store);
    let store = LocalStore::open(dir.path()).unwrap();
    assert_eq!(store.shared.state().unflushed.len(), 0);
    check_whole(&store, session, 50, "after a restart");
}

#[tokio::test]
async fn directory_admits_one_server() {
    let dir = tempfile::tempdir().unwrap();
    let first = LocalStore::open(dir.path()).unwrap();
    let second = LocalStore::open(dir.path()).unwrap_err();
    assert!(matches!(&second, OpenError::InUse { path } if path == dir.path()), "{second}");
    drop(first);
    LocalStore::open(dir.path()).unwrap();
}

#[tokio::test]
async fn files_are_private_to_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data").join("journal");
    let store = LocalStore::open(&root).unwrap();
    let session = fill(&store, "a", 1).await;
    store.put_content(session, 1, vec![1].into()).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let contents = root.join("contents").join(session.to_string());
    for path in [&root, &root.join("log"), &root.join("contents"), &contents] {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
    let content = fs::read_dir(&contents).unwrap().next().unwrap().unwrap().path();
    for path in [&root.join("lock"), &root.join("log/00000001.log"), &content] {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
}
