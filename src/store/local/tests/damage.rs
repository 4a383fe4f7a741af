//! Damaged files: the server starts, what is damaged is named, the rest is served.

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
async fn an_index_that_is_gone_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    check_all(dir.path(), &sessions, "without an index");
    check_all(dir.path(), &sessions, "with the new one");
}

#[tokio::test]
async fn an_index_with_flipped_bytes_costs_nothing() {
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

/// The index itself. Its lock may outlive the store for a moment: a process that another test is just starting shares the
/// descriptor until its exec.
fn index(dir: &Path) -> sled::Db {
    let again = |_| sled::open(dir.join("index")).inspect_err(|_| std::thread::sleep(Duration::from_millis(20))).ok();
    (0..100).find_map(again).expect("the index opens")
}

#[tokio::test]
async fn an_index_that_lost_places_is_noticed_when_it_is_used() {
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
async fn an_index_of_another_time_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    {
        let db = index(dir.path());
        let key = db.scan_prefix(b"s").keys().next().unwrap().unwrap();
        db.remove(key).unwrap();
    }
    check_all(dir.path(), &sessions, "without a session");
}

/// What the log lacks is damaged, and stays so; no number is given again, and nobody's contents go.
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

/// There stands what is prepared behind every log, or nothing.
#[tokio::test]
async fn what_the_log_lost_and_the_index_knows_is_damaged_and_no_number_is_given_twice() {
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
            // What it alone knew, the next start has the log say again.
            drop(LocalStore::open(dir.path()).unwrap());
            fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        check_short(dir.path(), session, 5, 10, &format!("{behind} zeros behind, the index {index}")).await;
    }
}

#[tokio::test]
async fn a_session_of_which_the_log_has_nothing_left_is_there_with_its_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 5).await;
    drop(store);
    fs::remove_file(dir.path().join("log/00000001.log")).unwrap();
    check_short(dir.path(), session, 0, 5, "without a log").await;
}

#[tokio::test]
async fn a_segment_that_is_gone_costs_what_stood_in_it_at_every_start() {
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
async fn a_segment_that_lost_its_end_is_known_to_have() {
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
            assert!(orphan.exists(), "{what}, {start}: it may be of a session that stood there");
        }
        fs::write(&victim, &sound).unwrap();
        // What was compacted meanwhile has lost nothing that it had.
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        check_all(dir.path(), &sessions, &what);
        LocalStore::open_with(dir.path(), small_sizes()).unwrap().contents.sweep();
        assert!(!orphan.exists(), "{what}: all of it is known again");
    }
}

/// The same, with what it knows.
fn catalog(dir: &Path) -> (Catalog, CatalogSnapshot) {
    drop(index(dir));
    Catalog::open(&dir.join("index")).expect("the index is whole")
}

/// Killed between two batches of sessions: some are as they were, some ahead of the checkpoint, and one is gone.
#[tokio::test]
async fn an_index_that_was_half_written_is_gone_on_with() {
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
        let (epoch, snapshot) = store.claim(*session).await.unwrap();
        store.append(*session, epoch, 3, events(*session, 3, 2)).await.unwrap();
        let record = crate::store::SessionRecord { title: "again".into(), ..snapshot.record };
        store.put(record, snapshot.revision).await.unwrap();
    }
    store.forget(gone).await.unwrap();
    drop(store);
    let (after, _) = catalog(dir.path());
    let behind = sessions.iter().step_by(2).map(|session| (*session, known.sessions.get(session).cloned())).collect();
    after.write(&EventLocations::default(), &behind, known.end).unwrap();
    after.close();

    for what in ["half written", "whole again"] {
        let store = LocalStore::open(dir.path()).unwrap();
        let from = store.shared.state().flushed_to;
        assert_eq!(from == known.end, what == "half written", "it is believed up to its checkpoint");
        for session in &sessions {
            let found = store.get(*session).await.unwrap().unwrap();
            assert_eq!((found.tail, found.record.title.as_str()), (5, "again"), "{what}");
            check_whole(&store, *session, 5, what);
        }
        assert_eq!(store.get(gone).await.unwrap(), None, "{what}");
    }
}

/// The events that can be read, skipping those that are named as damaged.
pub(super) fn readable(store: &LocalStore, session: SessionId, tail: u64) -> (Vec<StoredEvent>, Vec<u64>) {
    let (mut found, mut damaged, mut after) = (Vec::new(), Vec::new(), 0);
    while after < tail {
        match super::super::reader::read(&store.shared, session, after, ALL) {
            Ok(events) => {
                after = events.last().map_or(tail, |(seq, _)| *seq);
                found.extend(events);
            }
            Err(StoreError::Damaged { session: of, seq, .. }) => {
                assert_eq!((of, seq), (session, after + 1));
                damaged.push(seq);
                after = seq;
            }
            Err(other) => panic!("{other}"),
        }
    }
    (found, damaged)
}

/// One record is damaged; `with_index` says whether the index of before is still there.
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
async fn a_damaged_record_costs_that_record_and_is_named() {
    for with_index in [true, false] {
        for percent in [10, 33, 50, 77, 90] {
            check_damaged_log(with_index, percent).await;
        }
    }
}

/// Frames of one commit follow each other; what tells damage from a torn tail comes only after all of them.
#[tokio::test]
async fn a_damaged_record_of_a_commit_of_many_costs_that_record() {
    for percent in (5..85).step_by(5) {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let mut sessions = Vec::new();
        for n in 0..12 {
            let session = fill(&store, &format!("{n}"), 1).await;
            sessions.push((session, store.claim(session).await.unwrap().0));
        }
        for tail in 1..6 {
            // Together, so that those that come while the first is on its way to disk are one commit.
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
async fn what_was_synced_at_the_end_is_damaged_and_not_torn() {
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
async fn a_segment_with_a_damaged_beginning_or_none_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    flip(&dir.path().join("log/00000003.log"), 3, 8);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    check_all(dir.path(), &sessions, "a preface");

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
async fn a_segment_under_the_name_of_another_is_left_out() {
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
async fn a_journal_of_a_newer_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(LocalStore::open(dir.path()).unwrap());
    let log = dir.path().join("log/00000001.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(&log, &bytes).unwrap();
    let refused = LocalStore::open(dir.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { .. }), "{refused}");
    assert_eq!(fs::read(&log).unwrap(), bytes);
}

#[tokio::test]
async fn a_crash_while_a_segment_is_begun_costs_nothing() {
    for begun in [0, 10, 32] {
        let dir = tempfile::tempdir().unwrap();
        let sessions = filled(dir.path()).await;
        let last = *segment::numbers(&dir.path().join("log"), SegmentFileKind::Log).unwrap().last().unwrap();
        fs::write(segment::path(&dir.path().join("log"), last + 1, SegmentFileKind::Log), vec![0; begun]).unwrap();
        check_all(dir.path(), &sessions, "an unfinished preface");
    }
}
