//! Tests of large contents: leftovers of a crash are removed, unfinished contents in use stay.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use greenroom_protocol::observation::AgentState;

use super::*;
use crate::store::SessionRecord;

const NAME: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// Returns the path of a content, or with a suffix of a file beside it.
fn file(dir: &Path, session: SessionId, suffix: &str) -> std::path::PathBuf {
    dir.join("contents").join(session.to_string()).join(format!("{NAME}{suffix}"))
}

async fn read_content(store: &LocalStore, session: SessionId) -> Option<Bytes> {
    store.content(session, NAME, 0, usize::MAX >> 1).await.unwrap().map(|part| part.bytes)
}

#[tokio::test]
async fn sweep_removes_leftovers_of_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 1).await;
    let name = store.put_content(session, 1, vec![1].into()).await.unwrap();
    drop(store);
    let contents = dir.path().join("contents");
    let orphan = contents.join(SessionId::generate().to_string());
    fs::create_dir(&orphan).unwrap();
    let unfinished = contents.join(session.to_string()).join("01ARZ3NDEKTSV4RRFFQ69G5FAV.part");
    fs::write(&unfinished, "half").unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    assert!(orphan.exists() && unfinished.exists(), "the start does not remove them");
    store.compact().await.unwrap();
    assert!(!orphan.exists() && !unfinished.exists());
    assert!(store.content(session, &name, 0, 9).await.unwrap().is_some());
}

/// The session may have been paused for weeks before the restart.
#[tokio::test]
async fn unfinished_content_survives_long_pause_and_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 1).await;
    store
        .extend_content(session, 1, NAME, ContentPiece { offset: 0, bytes: Bytes::from_static(b"before, ") })
        .await
        .unwrap();
    drop(store);
    let long_ago = SystemTime::now() - Duration::from_secs(40 * 24 * 3600);
    let unfinished = fs::File::options().write(true).open(file(dir.path(), session, ".growing")).unwrap();
    unfinished.set_modified(long_ago).unwrap();

    let store = LocalStore::open(dir.path()).unwrap();
    store
        .extend_content(session, 1, NAME, ContentPiece { offset: 8, bytes: Bytes::from_static(b"after") })
        .await
        .unwrap();
    assert!(store.finish_content(session, 1, NAME).await.unwrap());
    assert_eq!(read_content(&store, session).await.as_deref(), Some(&b"before, after"[..]));
}

/// The session was stopped when the server started, and continues before the sweep reaches it.
#[tokio::test]
async fn sweep_keeps_contents_written_in_this_run() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = store
        .create(SessionRecord { state: AgentState::Stopped, ..record("a") })
        .await
        .unwrap()
        .into_snapshot()
        .record
        .id;
    store.claim(session).await.unwrap();
    store
        .extend_content(session, 1, NAME, ContentPiece { offset: 0, bytes: Bytes::from_static(b"of an earlier run") })
        .await
        .unwrap();
    let unfinished = file(dir.path(), session, ".sums.part");
    fs::write(&unfinished, "half").unwrap();
    drop(store);

    let store = LocalStore::open(dir.path()).unwrap();
    store
        .extend_content(session, 1, NAME, ContentPiece { offset: 0, bytes: Bytes::from_static(b"now") })
        .await
        .unwrap();
    assert!(!unfinished.exists(), "the first writer sweeps its session");
    fs::write(&unfinished, "half of the next file").unwrap();
    store.compact().await.unwrap();
    assert!(unfinished.exists());
    assert!(store.finish_content(session, 1, NAME).await.unwrap());
    assert_eq!(read_content(&store, session).await.as_deref(), Some(&b"now"[..]));
}

#[tokio::test]
async fn sweep_after_start_drops_unfinished_contents_of_stopped_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    for state in [AgentState::Stopped, AgentState::Failed, AgentState::Ended] {
        let session = store.create(SessionRecord { state, ..record("a") }).await.unwrap().into_snapshot().record.id;
        store.claim(session).await.unwrap();
        store
            .extend_content(session, 1, NAME, ContentPiece { offset: 0, bytes: Bytes::from_static(b"half") })
            .await
            .unwrap();
    }
    let pieces = || {
        let sessions = fs::read_dir(dir.path().join("contents")).unwrap();
        sessions.map(|session| fs::read_dir(session.unwrap().path()).unwrap().count()).sum::<usize>()
    };
    assert_eq!(pieces(), 3);
    drop(store);
    LocalStore::open(dir.path()).unwrap().compact().await.unwrap();
    assert_eq!(pieces(), 0);
}

/// The crash came between the rename and the checksums.
#[tokio::test]
async fn finish_adds_checksums_that_a_crash_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 1).await;
    store
        .extend_content(session, 1, NAME, ContentPiece { offset: 0, bytes: Bytes::from_static(b"text") })
        .await
        .unwrap();
    fs::rename(file(dir.path(), session, ".growing"), file(dir.path(), session, "")).unwrap();
    assert!(store.finish_content(session, 1, NAME).await.unwrap());
    assert_eq!(read_content(&store, session).await.as_deref(), Some(&b"text"[..]));
    fs::write(file(dir.path(), session, ""), "TEXT").unwrap();
    let read = store.content(session, NAME, 0, 9).await;
    assert!(matches!(read, Err(StoreError::DamagedContent { at: 0, .. })), "{read:?}");
}

#[tokio::test]
async fn failed_sweep_does_not_block_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let [known, other] = [fill(&store, "known", 1).await, fill(&store, "other", 1).await];
    drop(store);
    let contents = dir.path().join("contents");
    let files = [known, SessionId::generate()].map(|session| contents.join(session.to_string()));
    files.iter().for_each(|file| fs::write(file, "no directory").unwrap());
    let store = LocalStore::open(dir.path()).unwrap();
    store.compact().await.unwrap();
    assert!(files.iter().all(|file| file.exists()));
    store.put_content(other, 1, vec![1].into()).await.unwrap();
}
