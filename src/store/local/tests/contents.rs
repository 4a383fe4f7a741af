//! Large contents: what a crash left goes, and what somebody still goes on with stays.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use greenroom_protocol::observation::AgentState;

use super::*;
use crate::store::SessionRecord;

const NAME: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// The file of a content, or of what will be one.
fn file(dir: &Path, session: SessionId, suffix: &str) -> std::path::PathBuf {
    dir.join("contents").join(session.to_string()).join(format!("{NAME}{suffix}"))
}

async fn read_content(store: &LocalStore, session: SessionId) -> Option<Bytes> {
    store.content(session, NAME, 0, usize::MAX >> 1).await.unwrap().map(|part| part.bytes)
}

#[tokio::test]
async fn contents_that_a_crash_left_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 1).await;
    let name = store.put_content(session, vec![1].into()).await.unwrap();
    drop(store);
    let contents = dir.path().join("contents");
    let orphan = contents.join(SessionId::generate().to_string());
    fs::create_dir(&orphan).unwrap();
    let unfinished = contents.join(session.to_string()).join("01ARZ3NDEKTSV4RRFFQ69G5FAV.part");
    fs::write(&unfinished, "half").unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    assert!(orphan.exists() && unfinished.exists(), "nobody waits for them to go");
    store.compact().await.unwrap();
    assert!(!orphan.exists() && !unfinished.exists());
    assert!(store.content(session, &name, 0, 9).await.unwrap().is_some());
}

/// Its session may have been paused for weeks before the server was started again.
#[tokio::test]
async fn pieces_outlive_a_long_pause_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 1).await;
    store.extend_content(session, NAME, 0, Bytes::from_static(b"before, ")).await.unwrap();
    drop(store);
    let long_ago = SystemTime::now() - Duration::from_secs(40 * 24 * 3600);
    let growing = fs::File::options().write(true).open(file(dir.path(), session, ".growing")).unwrap();
    growing.set_modified(long_ago).unwrap();

    let store = LocalStore::open(dir.path()).unwrap();
    store.extend_content(session, NAME, 8, Bytes::from_static(b"after")).await.unwrap();
    assert!(store.finish_content(session, NAME).await.unwrap());
    assert_eq!(read_content(&store, session).await.as_deref(), Some(&b"before, after"[..]));
}

/// The session was at rest when the server started, and goes on before the sweep comes to it.
#[tokio::test]
async fn what_is_being_written_is_no_leftover() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = store.create(SessionRecord { state: AgentState::Stopped, ..record("a") }).await.unwrap().record.id;
    store.extend_content(session, NAME, 0, Bytes::from_static(b"of an earlier life")).await.unwrap();
    let unfinished = file(dir.path(), session, ".sums.part");
    fs::write(&unfinished, "half").unwrap();
    drop(store);

    let store = LocalStore::open(dir.path()).unwrap();
    store.extend_content(session, NAME, 0, Bytes::from_static(b"now")).await.unwrap();
    assert!(!unfinished.exists(), "whoever writes first does what the sweep would");
    fs::write(&unfinished, "it is being written").unwrap();
    store.compact().await.unwrap();
    assert!(unfinished.exists());
    assert!(store.finish_content(session, NAME).await.unwrap());
    assert_eq!(read_content(&store, session).await.as_deref(), Some(&b"now"[..]));
}

#[tokio::test]
async fn pieces_of_a_session_at_rest_go_with_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    for state in [AgentState::Stopped, AgentState::Failed, AgentState::Ended] {
        let session = store.create(SessionRecord { state, ..record("a") }).await.unwrap().record.id;
        store.extend_content(session, NAME, 0, Bytes::from_static(b"half")).await.unwrap();
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

/// Cut off between its name and its checksums.
#[tokio::test]
async fn a_content_that_was_made_whole_and_no_more_gets_its_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 1).await;
    store.extend_content(session, NAME, 0, Bytes::from_static(b"text")).await.unwrap();
    fs::rename(file(dir.path(), session, ".growing"), file(dir.path(), session, "")).unwrap();
    assert!(store.finish_content(session, NAME).await.unwrap());
    assert_eq!(read_content(&store, session).await.as_deref(), Some(&b"text"[..]));
    fs::write(file(dir.path(), session, ""), "TEXT").unwrap();
    let read = store.content(session, NAME, 0, 9).await;
    assert!(matches!(read, Err(StoreError::DamagedContent { at: 0, .. })), "{read:?}");
}

#[tokio::test]
async fn what_cannot_be_swept_keeps_no_server_from_starting() {
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
    store.put_content(other, vec![1].into()).await.unwrap();
}
