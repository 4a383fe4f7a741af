//! Tests of archives: same events as the log, nothing of purged sessions, and damage costs only
//! what it hits.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    damage::{all_but, check_all, filled, flip, readable},
    *,
};
use crate::store::{
    AppendBatch, JournalEvent, SessionRecord,
    local::{
        archive::SegmentArchive,
        reader::JournalReader,
        segment::{self, SegmentFileKind},
        shared::BaseIndex,
    },
};

fn files(dir: &Path, kind: SegmentFileKind) -> BTreeSet<u32> {
    segment::numbers(&dir.join("log"), kind).unwrap()
}

/// Returns the sessions that have frames in an archive.
fn in_archives(dir: &Path) -> BTreeSet<SessionId> {
    let archive =
        |number| SegmentArchive::open(&segment::path(&dir.join("log"), number, SegmentFileKind::Archive)).unwrap();
    let blocks = files(dir, SegmentFileKind::Archive).into_iter().flat_map(|number| archive(number).blocks().to_vec());
    blocks.filter(|block| !block.forgotten).map(|block| block.session).collect()
}

fn size_of(dir: &Path) -> u64 {
    fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

async fn compacted(dir: &Path) -> Vec<SessionId> {
    let sessions = filled(dir).await;
    LocalStore::open_with(dir, small_sizes()).unwrap().compact().await.unwrap();
    sessions
}

/// Reports if lookups use sled. After a lookup led nowhere, they do not.
fn has_index(store: &LocalStore) -> bool {
    matches!(*store.shared.base_index(), BaseIndex::Catalog(_))
}

#[tokio::test]
async fn archives_are_smaller_and_read_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    let (before, logs) = (size_of(dir.path()), files(dir.path(), SegmentFileKind::Log));
    // The current segment stays as it is.
    let store = LocalStore::open_with(dir.path(), StoreSizes { close_purged_bytes: 8 << 10, ..small_sizes() }).unwrap();
    let done = store.compact().await.unwrap();
    assert_eq!(files(dir.path(), SegmentFileKind::Log), BTreeSet::from([*logs.last().unwrap()]));
    assert_eq!(files(dir.path(), SegmentFileKind::Archive).len(), logs.len() - 1);
    assert_eq!((done.segments, done.freed), (logs.len() - 1, before - size_of(dir.path())));
    assert!(done.freed > before / 2, "{} of {before}", done.freed);
    for session in &sessions {
        check_whole(&store, *session, 60, "from archives");
        let page =
            super::super::reader::read(&store.shared, *session, 29, ReadLimit { events: 3, bytes: 1 << 20 }).unwrap();
        assert_same(&page, &expected(*session, 32)[29..], "in the middle");
        // The index does not keep what an archive finds by itself.
        let locations = store.shared.locate(*session, 1).unwrap();
        assert!(locations.len() <= logs.len() + 10, "{} locations in {} segments", locations.len(), logs.len());
    }
    assert!(has_index(&store));
    assert_eq!(store.compact().await.unwrap(), CompactionStats::default(), "nothing is left to compact");
    drop(store);
    check_all(dir.path(), &sessions, "after a restart");
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    check_all(dir.path(), &sessions, "without an index");
}

#[tokio::test]
async fn purged_sessions_leave_archives_and_log() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = compacted(dir.path()).await;
    let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    let late = fill(&store, "late", 9).await;
    let before = size_of(dir.path());
    for gone in [sessions[2], sessions[3], late] {
        store.forget(gone, 1).await.unwrap();
    }
    store.compact().await.unwrap();
    let kept = [0, 1, 4, 5].map(|index| sessions[index]);
    assert_eq!(in_archives(dir.path()), BTreeSet::from(kept));
    assert_eq!(
        files(dir.path(), SegmentFileKind::Log).len(),
        1,
        "the current segment was closed because it had purged data"
    );
    assert!(size_of(dir.path()) < before * 3 / 4, "{} of {before}", size_of(dir.path()));
    drop(store);
    for what in ["with the index", "without"] {
        let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
        assert_eq!(store.list(SessionQuery::default()).await.unwrap().total, kept.len(), "{what}");
        kept.iter().for_each(|session| check_whole(&store, *session, 60, what));
        drop(store);
        fs::remove_dir_all(dir.path().join("index")).unwrap();
    }
}

#[tokio::test]
async fn next_start_completes_killed_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    let logs: Vec<(u32, Vec<u8>)> = files(dir.path(), SegmentFileKind::Log)
        .into_iter()
        .map(|number| (number, fs::read(segment::path(&dir.path().join("log"), number, SegmentFileKind::Log)).unwrap()))
        .collect();
    LocalStore::open_with(dir.path(), small_sizes()).unwrap().compact().await.unwrap();

    // Segments that were not removed yet, and half of the next archive.
    let log = dir.path().join("log");
    for (number, bytes) in &logs[..3] {
        fs::write(segment::path(&log, *number, SegmentFileKind::Log), bytes).unwrap();
    }
    fs::write(log.join("00000002.part"), "half").unwrap();
    check_all(dir.path(), &sessions, "with leftovers");
    assert_eq!(files(dir.path(), SegmentFileKind::Log).len(), 1);
    assert!(!log.join("00000002.part").exists());
}

#[tokio::test]
async fn damaged_archive_loses_only_damaged_events() {
    let origin = tempfile::tempdir().unwrap();
    let sessions = compacted(origin.path()).await;
    let victim = segment::path(&origin.path().join("log"), 3, SegmentFileKind::Archive);
    let sound = fs::read(&victim).unwrap();
    for (at, with_index) in (0..sound.len() - 8).step_by(5).zip([true, false].into_iter().cycle()) {
        fs::write(&victim, &sound).unwrap();
        flip(&victim, at, 8);
        if !with_index {
            fs::remove_dir_all(origin.path().join("index")).unwrap();
        }
        let what = format!("byte {at} of {}, index {with_index}", sound.len());
        let store = LocalStore::open_with(origin.path(), small_sizes()).unwrap();
        for session in &sessions {
            assert_eq!(store.get(*session).await.unwrap().unwrap().tail, 60, "{what}");
            let (found, damaged) = readable(&store, *session, 60);
            assert_same(&found, &all_but(*session, 60, &damaged), &what);
        }
        store.compact().await.unwrap();
        drop(store);
        fs::write(&victim, &sound).unwrap();
        check_all(origin.path(), &sessions, &what);
    }
}

/// No number is given twice, and no contents are removed.
#[tokio::test]
async fn truncated_archive_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = compacted(dir.path()).await;
    let victim = segment::path(&dir.path().join("log"), 3, SegmentFileKind::Archive);
    let sound = fs::read(&victim).unwrap();
    let blocks = SegmentArchive::open(&victim).unwrap().blocks().len();
    let orphan = dir.path().join("contents").join(SessionId::generate().to_string());
    for len in (segment::SEGMENT_HEADER_LEN..sound.len()).step_by(23) {
        let what = format!("{len} of {} bytes", sound.len());
        fs::write(&victim, &sound[..len]).unwrap();
        let archive = SegmentArchive::open(&victim).unwrap();
        let lost_blocks = archive.blocks().len() < blocks;
        assert!(!(lost_blocks && archive.is_fully_readable()), "{what}");
        drop(archive);
        for round in 0..3 {
            let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
            for session in &sessions {
                assert_eq!(store.get(*session).await.unwrap().unwrap().tail, 60, "{what}, round {round}");
                let (found, damaged) = readable(&store, *session, 60);
                assert_same(&found, &all_but(*session, 60, &damaged), &what);
            }
        }
        if lost_blocks {
            fs::create_dir(&orphan).unwrap();
            fs::remove_dir_all(dir.path().join("index")).unwrap();
            LocalStore::open_with(dir.path(), small_sizes()).unwrap().contents.sweep();
            assert!(orphan.exists(), "{what}: the contents may be those of a lost session");
            fs::remove_dir_all(dir.path().join("index")).unwrap();
            fs::remove_dir(&orphan).unwrap();
        }
        fs::write(&victim, &sound).unwrap();
        check_all(dir.path(), &sessions, &what);
    }
}

/// Returns three archived sessions with interleaved events.
async fn interleaved(dir: &Path) -> [SessionId; 3] {
    let store = LocalStore::open_with(dir, small_sizes()).unwrap();
    let mut sessions = Vec::new();
    for title in ["a", "b", "c"] {
        sessions.push(claimed(&store, title).await);
    }
    for at in 0..60 {
        for (session, epoch) in &sessions {
            store.append(*session, *epoch, at, events(*session, at, 1)).await.unwrap();
        }
    }
    store.compact().await.unwrap();
    [0, 1, 2].map(|index| sessions[index].0)
}

/// Flips a bit in a block of this session.
fn damage_block(archive: &Path, session: SessionId) {
    let open = SegmentArchive::open(archive).unwrap();
    let block =
        open.blocks().iter().find(|block| block.session == session).expect("the session has a block in this archive");
    let compressed = open.compressed(block).unwrap();
    let bytes = fs::read(archive).unwrap();
    let at = bytes.windows(compressed.len()).position(|bytes| bytes == compressed).unwrap();
    flip(archive, at + compressed.len() / 2, 1);
}

#[tokio::test]
async fn damaged_block_does_not_keep_purged_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let [damaged, purged, sound] = interleaved(dir.path()).await;
    let archives = files(dir.path(), SegmentFileKind::Archive);
    let newest = segment::path(&dir.path().join("log"), *archives.last().unwrap(), SegmentFileKind::Archive);
    damage_block(&newest, damaged);
    let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    let (_, lost) = readable(&store, damaged, 60);
    store.forget(purged, 1).await.unwrap();
    let done = store.compact().await.unwrap();
    assert!(archives.len() > 2 && done.segments >= archives.len(), "{done:?} of {archives:?}");
    assert_eq!(in_archives(dir.path()), BTreeSet::from([damaged, sound]));
    assert_eq!(store.compact().await.unwrap(), CompactionStats::default(), "nothing is left to compact");
    drop(store);
    for what in ["with the index", "without"] {
        let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
        check_whole(&store, sound, 60, what);
        let (found, named) = readable(&store, damaged, 60);
        assert_eq!(named, lost, "{what}: the damage is still reported");
        assert_same(&found, &all_but(damaged, 60, &lost), what);
        drop(store);
        fs::remove_dir_all(dir.path().join("index")).unwrap();
    }
    assert!(!lost.is_empty());
}

#[tokio::test]
async fn unreadable_segment_does_not_block_others() {
    let dir = tempfile::tempdir().unwrap();
    let [_, purged, _] = interleaved(dir.path()).await;
    let archives = files(dir.path(), SegmentFileKind::Archive);
    let newest = segment::path(&dir.path().join("log"), *archives.last().unwrap(), SegmentFileKind::Archive);
    let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    store.forget(purged, 1).await.unwrap();
    let aside = dir.path().join("aside");
    fs::rename(&newest, &aside).unwrap();
    fs::create_dir(&newest).unwrap();
    let done = store.compact().await.unwrap();
    assert!(archives.len() > 2 && done.segments >= archives.len() - 1, "{done:?} of {archives:?}");

    fs::remove_dir(&newest).unwrap();
    fs::rename(&aside, &newest).unwrap();
    assert!(in_archives(dir.path()).contains(&purged));
    store.compact().await.unwrap();
    store.compact().await.unwrap();
    assert!(!in_archives(dir.path()).contains(&purged), "the failed segment was tried again");
}

/// The journal is incomplete, so only the log tells which sessions are gone.
#[tokio::test]
async fn unarchived_segment_still_names_purged_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let [_, purged, _] = interleaved(dir.path()).await;
    fs::write(dir.path().join("incomplete"), "").unwrap();
    let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    store.forget(purged, 1).await.unwrap();
    let forgetting_segment = store.shared.state().end.segment;
    fill(&store, "late", 60).await;
    assert!(store.shared.state().end.segment > forgetting_segment + 1);
    // Blocks the path of the archive.
    fs::create_dir(dir.path().join(format!("log/{forgetting_segment:08}.part"))).unwrap();
    store.compact().await.unwrap();
    assert!(
        files(dir.path(), SegmentFileKind::Log).contains(&forgetting_segment),
        "the segment must not be archived for this test"
    );
    assert!(!in_archives(dir.path()).contains(&purged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_does_not_disturb_readers() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    let store = std::sync::Arc::new(LocalStore::open_with(dir.path(), small_sizes()).unwrap());
    let reading = sessions.iter().map(|session| {
        let (store, session) = (store.clone(), *session);
        tokio::task::spawn_blocking(move || {
            for _ in 0..60 {
                check_whole(&store, session, 60, "meanwhile");
            }
        })
    });
    let reading: Vec<_> = reading.collect();
    for gone in 0..4 {
        store.compact().await.unwrap();
        let gone = fill(&store, &gone.to_string(), 40).await;
        store.forget(gone, 1).await.unwrap();
    }
    futures::future::try_join_all(reading).await.unwrap();
    assert!(has_index(&store), "no lookup led nowhere");
}

#[tokio::test]
async fn open_reader_continues_in_archive() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    let few = ReadLimit { events: 3, bytes: 1 << 20 };
    let mut reader = JournalReader::for_session(&store.shared, sessions[0]).unwrap();
    assert_same(&reader.read(0, few).unwrap(), &expected(sessions[0], 3), "from the log");
    store.compact().await.unwrap();
    assert_same(&reader.read(3, few).unwrap(), &expected(sessions[0], 6)[3..], "from its archive");
    assert!(has_index(&store));
}

#[tokio::test]
async fn missing_next_archive_does_not_hide_this_one() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        LocalStore::open_with(dir.path(), StoreSizes { close_purged_bytes: 1, ..StoreSizes::default() }).unwrap();
    let record = crate::store::contract::record("long");
    let session = record.id;
    store.create(record).await.unwrap();
    let (epoch, _) = store.claim(session).await.unwrap();
    let mut tail = 0;
    for segment in 1..=2u64 {
        for _ in 0..200 {
            let event = JournalEvent { kind: "run".into(), json: vec![b'x'; 1000].into() };
            let batch = AppendBatch { events: vec![event], mark: None, record: None };
            tail = store.append(session, epoch, tail, batch).await.unwrap();
        }
        let purged = fill(&store, &format!("purged {segment}"), 3).await;
        store.forget(purged, 1).await.unwrap();
        assert_eq!(store.compact().await.unwrap().segments, 1);
    }
    fs::remove_file(segment::path(&dir.path().join("log"), 2, SegmentFileKind::Archive)).unwrap();
    store.shared.segments.evict(2);
    let read = |after| {
        JournalReader::for_session(&store.shared, session)
            .unwrap()
            .read(after, ReadLimit { events: 1000, bytes: 1 << 30 })
    };
    assert_eq!(read(0).unwrap().len(), 200, "over several blocks");
    assert!(matches!(read(200), Err(StoreError::Damaged { seq: 201, .. })));
}

#[derive(Debug, Clone)]
enum CompactionStep {
    Append { session: usize, count: u64 },
    Purge { session: usize },
    Compact,
    Restart { with_index: bool },
}

fn steps() -> impl Strategy<Value = Vec<CompactionStep>> {
    let step = prop_oneof![
        8 => (0..5usize, 1..12u64).prop_map(|(session, count)| CompactionStep::Append { session, count }),
        1 => (0..5usize).prop_map(|session| CompactionStep::Purge { session }),
        2 => Just(CompactionStep::Compact),
        1 => any::<bool>().prop_map(|with_index| CompactionStep::Restart { with_index }),
    ];
    prop::collection::vec(step, 1..80)
}

/// Runs the steps and checks every session after each.
///
/// A purged session may come back under its old id, as after an import. No event of the purged
/// session may reappear.
async fn play(steps: Vec<CompactionStep>) {
    let dir = tempfile::tempdir().unwrap();
    let open = || LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    let ids: Vec<SessionId> = (0..5).map(|n| SessionId::from_bytes([n + 1; 16])).collect();
    let (mut store, mut tails) = (open(), BTreeMap::<SessionId, u64>::new());
    for step in steps {
        match step {
            CompactionStep::Append { session, count } => {
                let id = ids[session];
                if !tails.contains_key(&id) {
                    store.create(SessionRecord { id, ..record("a") }).await.unwrap();
                }
                let tail = tails.entry(id).or_default();
                let (epoch, _) = store.claim(id).await.unwrap();
                for _ in 0..count {
                    *tail = store.append(id, epoch, *tail, events(id, *tail, 1)).await.unwrap();
                }
            }
            CompactionStep::Purge { session } => {
                if tails.contains_key(&ids[session]) {
                    claim_and_forget(&store, ids[session]).await;
                }
                tails.remove(&ids[session]);
            }
            CompactionStep::Compact => {
                store.compact().await.unwrap();
                let archived = in_archives(dir.path());
                assert!(
                    archived.iter().all(|session| tails.contains_key(session)),
                    "purged sessions are in no archive"
                );
            }
            CompactionStep::Restart { with_index } => {
                drop(store);
                if !with_index {
                    fs::remove_dir_all(dir.path().join("index")).unwrap();
                }
                store = open();
            }
        }
        for id in &ids {
            match tails.get(id) {
                Some(tail) => check_whole(&store, *id, *tail, "after a step"),
                None => assert_eq!(store.get(*id).await.unwrap(), None),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_steps_keep_live_sessions_and_no_purged_ones(steps in steps()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(play(steps));
    }
}
