//! Tests of damaged files: the server starts, reports the damage and serves the rest.

use std::time::Duration;

use super::*;
use crate::store::local::{
    catalog::{Catalog, CatalogSnapshot},
    event_locations::EventLocations,
    frame::FRAME_HEADER_LEN,
    segment::{self, SegmentFileKind},
};

pub(super) fn flip(path: &Path, at: usize, len: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + len].iter_mut().for_each(|byte| *byte ^= 0xff);
    fs::write(path, bytes).unwrap();
}

pub(super) async fn filled(dir: &Path) -> Vec<SessionId> {
    let store = LocalStore::open_with(dir, small_sizes()).unwrap();
    let mut sessions = Vec::new();
    for n in 0..6 {
        sessions.push(fill(&store, &format!("{n}"), 60).await);
    }
    sessions
}

pub(super) fn check_all(dir: &Path, sessions: &[SessionId], what: &str) {
    let store = LocalStore::open_with(dir, small_sizes()).unwrap_or_else(|error| panic!("{what}: {error}"));
    for session in sessions {
        check_whole(&store, *session, 60, what);
    }
}

#[tokio::test]
async fn missing_index_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    check_all(dir.path(), &sessions, "without an index");
    check_all(dir.path(), &sessions, "with the rebuilt index");
}

#[tokio::test]
async fn flipped_index_bytes_lose_no_event() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    for percent in (0..100).step_by(7) {
        for entry in fs::read_dir(dir.path().join("index")).unwrap() {
            let path = entry.unwrap().path();
            let len = fs::metadata(&path).map_or(0, |metadata| metadata.len() as usize);
            if path.is_file() && len > 8 {
                flip(&path, (len - 8) * percent / 100, 8);
                check_all(dir.path(), &sessions, &format!("{} at {percent} %", path.display()));
                break;
            }
        }
    }
}

/// Opens the index with sled.
///
/// sled's lock may outlive the store for a moment: a process that another test starts shares the
/// descriptor until its exec.
fn index(dir: &Path) -> sled::Db {
    let again = |_| sled::open(dir.join("index")).inspect_err(|_| std::thread::sleep(Duration::from_millis(20))).ok();
    (0..100).find_map(again).expect("the index opens")
}

#[tokio::test]
async fn index_with_missing_locations_is_rebuilt_on_use() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    {
        let db = index(dir.path());
        let key = db.scan_prefix(b"p").keys().nth(3).unwrap().unwrap();
        db.remove(key).unwrap();
    }
    check_all(dir.path(), &sessions, "with a hole");
}

#[tokio::test]
async fn index_with_wrong_digest_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    {
        let db = index(dir.path());
        let key = db.scan_prefix(b"s").keys().next().unwrap().unwrap();
        db.remove(key).unwrap();
    }
    check_all(dir.path(), &sessions, "without a session");
}

/// Checks that events which the log lacks stay damaged.
///
/// No number is given again, and no contents are removed.
pub(super) async fn check_short(dir: &Path, session: SessionId, left: u64, tail: u64, what: &str) {
    let orphan = dir.join("contents").join(SessionId::generate().to_string());
    fs::create_dir(&orphan).unwrap();
    let lost: Vec<u64> = (left + 1..=tail).collect();
    for round in 0..3 {
        let store = LocalStore::open(dir).unwrap();
        store.contents.sweep();
        assert!(orphan.exists(), "{what}");
        let (epoch, snapshot) = store.claim(session).await.unwrap();
        assert_eq!(snapshot.tail, tail + round, "{what}");
        let next = store.append(session, epoch, tail + round, events(session, tail + round, 1)).await.unwrap();
        assert_eq!(next, tail + round + 1, "{what}");
        let (found, damaged) = readable(&store, session, next);
        assert_eq!(damaged, lost, "{what}, round {round}");
        assert_same(&found, &all_but(session, next, &lost), what);
    }
}

/// The lost bytes are replaced by preallocated zeros, or the file ends before them.
#[tokio::test]
async fn events_lost_from_log_are_damaged_and_numbers_stay_given() {
    for (behind, index) in [(0, "stays"), (100_000, "stays"), (0, "goes"), (100_000, "goes")] {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log/00000001.log");
        let store = LocalStore::open(dir.path()).unwrap();
        let session = fill(&store, "a", 5).await;
        drop(store);
        let mut before = fs::read(&log).unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let (epoch, _) = store.claim(session).await.unwrap();
        store.append(session, epoch, 5, events(session, 5, 5)).await.unwrap();
        drop(store);
        before.resize(before.len() + behind, 0);
        fs::write(&log, before).unwrap();
        if index == "goes" {
            // The next start writes into the log what only the index had.
            drop(LocalStore::open(dir.path()).unwrap());
            fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        check_short(dir.path(), session, 5, 10, &format!("{behind} zeros behind, the index {index}")).await;
    }
}

#[tokio::test]
async fn session_without_log_keeps_its_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 5).await;
    drop(store);
    fs::remove_file(dir.path().join("log/00000001.log")).unwrap();
    check_short(dir.path(), session, 0, 5, "without a log").await;
}

#[tokio::test]
async fn missing_segment_loses_the_same_events_at_every_start() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    fs::remove_file(dir.path().join("log/00000004.log")).unwrap();
    let mut lost = Vec::new();
    for _ in 0..3 {
        let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
        let all = sessions.iter().map(|session| {
            let (found, damaged) = readable(&store, *session, 60);
            assert_same(&found, &all_but(*session, 60, &damaged), "without a segment");
            damaged
        });
        let all: Vec<_> = all.collect();
        assert!(all.iter().any(|damaged| !damaged.is_empty()) && (lost.is_empty() || lost == all), "{all:?}");
        lost = all;
        for session in &sessions {
            assert_eq!(store.get(*session).await.unwrap().unwrap().tail, 60);
        }
    }
}

#[tokio::test]
async fn truncated_segment_keeps_contents_of_unknown_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    let victim = dir.path().join("log/00000004.log");
    let sound = fs::read(&victim).unwrap();
    let orphan = dir.path().join("contents").join(SessionId::generate().to_string());
    for len in (segment::SEGMENT_HEADER_LEN..sound.len()).step_by(97) {
        let what = format!("{len} of {} bytes", sound.len());
        fs::create_dir(&orphan).unwrap();
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        fs::write(&victim, &sound[..len]).unwrap();
        for start in ["first", "second"] {
            let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
            store.compact().await.unwrap();
            drop(store);
            assert!(orphan.exists(), "{what}, {start}: the contents may be those of a lost session");
        }
        fs::write(&victim, &sound).unwrap();
        // The compaction meanwhile lost no byte of other segments.
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        check_all(dir.path(), &sessions, &what);
        LocalStore::open_with(dir.path(), small_sizes()).unwrap().contents.sweep();
        assert!(!orphan.exists(), "{what}: every session is known again");
    }
}

/// Opens the catalog and returns its content.
fn catalog(dir: &Path) -> (Catalog, CatalogSnapshot) {
    drop(index(dir));
    Catalog::open(&dir.join("index")).expect("the index matches its checkpoint")
}

/// A kill between two batches: some sessions are old, some ahead of the checkpoint, and one is
/// gone.
#[tokio::test]
async fn half_written_index_is_used_up_to_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let mut sessions = Vec::new();
    for n in 0..40 {
        sessions.push(fill(&store, &format!("{n}"), 3).await);
    }
    let gone = fill(&store, "gone", 3).await;
    drop(store);
    let (before, known) = catalog(dir.path());
    before.close();

    let store = LocalStore::open(dir.path()).unwrap();
    for session in &sessions {
        let (epoch, _) = store.claim(*session).await.unwrap();
        store.append(*session, epoch, 3, events(*session, 3, 2)).await.unwrap();
        rename(&store, (*session, epoch, 5), "again").await;
    }
    store.forget(gone, 1).await.unwrap();
    drop(store);
    let (after, _) = catalog(dir.path());
    let behind = sessions.iter().step_by(2).map(|session| (*session, known.sessions.get(session).cloned())).collect();
    after.write(&EventLocations::default(), &behind, known.end).unwrap();
    after.close();

    for what in ["half written", "complete again"] {
        let store = LocalStore::open(dir.path()).unwrap();
        let from = store.shared.state().flushed_to;
        assert_eq!(from == known.end, what == "half written", "the index is used up to its checkpoint");
        for session in &sessions {
            let found = store.get(*session).await.unwrap().unwrap();
            assert_eq!((found.tail, found.record.title.as_str()), (5, "again"), "{what}");
            check_whole(&store, *session, 5, what);
        }
        assert_eq!(store.get(gone).await.unwrap(), None, "{what}");
    }
}

/// Returns the readable events, and the numbers of those reported as damaged.
pub(super) fn readable(store: &LocalStore, session: SessionId, tail: u64) -> (Vec<StoredEvent>, Vec<u64>) {
    let (mut found, mut damaged, mut after) = (Vec::new(), Vec::new(), 0);
    while after < tail {
        match super::super::reader::read(&store.shared, session, after, ALL) {
            Ok(events) => {
                after = events.last().map_or(tail, |(seq, _)| *seq);
                found.extend(events);
            }
            Err(StoreError::Damaged { session: owner, seq, .. }) => {
                assert_eq!((owner, seq), (session, after + 1));
                damaged.push(seq);
                after = seq;
            }
            Err(other) => panic!("{other}"),
        }
    }
    (found, damaged)
}

/// Damages one frame and checks the rest. `with_index` keeps the index.
async fn check_damaged_log(with_index: bool, percent: usize) {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 200).await;
    drop(store);
    if !with_index {
        fs::remove_dir_all(dir.path().join("index")).unwrap();
    }
    let log = dir.path().join("log/00000001.log");
    let len = fs::metadata(&log).unwrap().len() as usize;
    flip(&log, len * percent / 100, 8);

    let store = LocalStore::open(dir.path()).unwrap();
    let tail = store.get(session).await.unwrap().unwrap().tail;
    assert_eq!(tail, 200);
    let (found, damaged) = readable(&store, session, tail);
    assert!(damaged.len() <= 1, "index {with_index}, {percent} %: {damaged:?}");
    assert_same(&found, &all_but(session, 200, &damaged), "around the damage");
    let (epoch, _) = store.claim(session).await.unwrap();
    assert_eq!(store.append(session, epoch, 200, events(session, 200, 1)).await.unwrap(), 201);
}

#[tokio::test]
async fn damaged_frame_loses_one_event_and_is_reported() {
    for with_index in [true, false] {
        for percent in [10, 33, 50, 77, 90] {
            check_damaged_log(with_index, percent).await;
        }
    }
}

/// Frames of one commit follow each other. Only a frame behind all of them tells damage from a torn
/// tail.
#[tokio::test]
async fn damaged_frame_in_large_commit_loses_one_event() {
    for percent in (5..85).step_by(5) {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let mut sessions = Vec::new();
        for n in 0..12 {
            let session = fill(&store, &format!("{n}"), 1).await;
            sessions.push((session, store.claim(session).await.unwrap().0));
        }
        for tail in 1..6 {
            // Concurrent, so appends that arrive during the first commit form one commit.
            let appends = sessions.iter().map(|&(id, epoch)| store.append(id, epoch, tail, events(id, tail, 1)));
            for appended in futures::future::join_all(appends).await {
                assert_eq!(appended.unwrap(), tail + 1);
            }
        }
        drop(store);
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        let log = dir.path().join("log/00000001.log");
        let len = fs::metadata(&log).unwrap().len() as usize;
        flip(&log, len * percent / 100, 8);

        let store = LocalStore::open(dir.path()).unwrap();
        assert_eq!(fs::metadata(&log).unwrap().len() as usize, len, "{percent} %: nothing is cut");
        let mut lost = 0;
        for (session, _) in &sessions {
            let Some(snapshot) = store.get(*session).await.unwrap() else { continue };
            assert_eq!(snapshot.tail, 6, "{percent} %");
            let (found, damaged) = readable(&store, *session, 6);
            assert_same(&found, &all_but(*session, 6, &damaged), "around the damage");
            lost += damaged.len();
        }
        assert!(lost <= 1, "{percent} %: {lost} events are lost");
    }
}

#[tokio::test]
async fn synced_end_is_damaged_and_not_torn() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 3).await;
    drop(store);
    let log = dir.path().join("log/00000001.log");
    flip(&log, fs::metadata(&log).unwrap().len() as usize - FRAME_HEADER_LEN - 8, 8);
    let store = LocalStore::open(dir.path()).unwrap();
    let (found, damaged) = readable(&store, session, 3);
    assert_eq!(damaged, [3]);
    assert_same(&found, &expected(session, 2), "before the damage");
}

#[tokio::test]
async fn damaged_or_missing_segment_keeps_other_segments_readable() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    flip(&dir.path().join("log/00000003.log"), 3, 8);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    check_all(dir.path(), &sessions, "a damaged segment header");

    fs::remove_file(dir.path().join("log/00000004.log")).unwrap();
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    let mut lost = 0;
    for session in sessions {
        let tail = store.get(session).await.unwrap().map_or(0, |snapshot| snapshot.tail);
        let (found, damaged) = if tail == 0 { Default::default() } else { readable(&store, session, tail) };
        lost += damaged.len();
        assert_same(&found, &all_but(session, tail, &damaged), "without a segment");
    }
    assert_ne!(lost, 0);
}

pub(super) fn all_but(session: SessionId, tail: u64, damaged: &[u64]) -> Vec<StoredEvent> {
    expected(session, tail).into_iter().filter(|(seq, _)| !damaged.contains(seq)).collect()
}

#[tokio::test]
async fn segment_copy_under_other_number_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    let log = dir.path().join("log");
    let last = *segment::numbers(&log, SegmentFileKind::Log).unwrap().last().unwrap();
    let copy = segment::path(&log, last + 2, SegmentFileKind::Log);
    let bytes = fs::read(log.join("00000002.log")).unwrap();
    let aside = || {
        let files = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.to_string_lossy().contains("misnamed")).collect::<Vec<_>>()
    };
    for (index, count) in [("with its index", 1), ("without", 2)] {
        fs::write(&copy, &bytes).unwrap();
        if index == "without" {
            fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        check_all(dir.path(), &sessions, index);
        assert!(!copy.exists());
        assert_eq!(aside().len(), count);
        assert!(aside().iter().all(|path| fs::read(path).unwrap() == bytes));
    }
}

#[tokio::test]
async fn newer_journal_is_left_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    drop(LocalStore::open(dir.path()).unwrap());
    let log = dir.path().join("log/00000001.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(&log, &bytes).unwrap();
    let rejected = LocalStore::open(dir.path()).unwrap_err();
    assert!(matches!(rejected, OpenError::Newer { .. }), "{rejected}");
    assert_eq!(fs::read(&log).unwrap(), bytes);
}

#[tokio::test]
async fn crash_while_segment_begins_loses_nothing() {
    for header_len in [0, 10, 32] {
        let dir = tempfile::tempdir().unwrap();
        let sessions = filled(dir.path()).await;
        let last = *segment::numbers(&dir.path().join("log"), SegmentFileKind::Log).unwrap().last().unwrap();
        fs::write(segment::path(&dir.path().join("log"), last + 1, SegmentFileKind::Log), vec![0; header_len]).unwrap();
        check_all(dir.path(), &sessions, "an unfinished segment header");
    }
}
