//! Tests of damaged headers: the footer behind the payload repeats the header.

use super::{
    damage::{all_but, check_short, filled, flip, readable},
    *,
};
use crate::store::local::{
    frame::FRAME_HEADER_LEN,
    replay::LogReplay,
    scan::{ScanItem, ScanUntil, scan},
    segment::{self, LogPosition, SegmentCache, SegmentFileKind},
};

/// Returns the offsets of this event's frame and of its footer.
fn frame_at(log: &Path, target: u64) -> (usize, usize) {
    let (file, mut at) = (fs::File::open(log).unwrap(), None);
    let mut visit = |found: ScanItem<'_>| match found {
        ScanItem::Frame { offset, header, .. } if header.seq == target && header.count > 0 => {
            at = Some((offset as usize, (offset + header.footer_at()) as usize));
        }
        _ => {}
    };
    scan(&file, segment::SEGMENT_HEADER_LEN as u64, ScanUntil::Offset(u64::MAX), &mut visit).unwrap();
    at.unwrap()
}

/// Returns a journal without an index, with flipped bytes in event 3's frame.
///
/// `at` maps the offsets of the frame and its footer to the flipped offset.
async fn flipped_in_event_3(of: u64, at: impl Fn(usize, usize) -> usize) -> (tempfile::TempDir, SessionId) {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", of).await;
    drop(store);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let log = dir.path().join("log/00000001.log");
    let (start, footer) = frame_at(&log, 3);
    flip(&log, at(start, footer), 8);
    (dir, session)
}

#[tokio::test]
async fn damaged_header_loses_nothing_even_at_the_end() {
    for of in [3, 5] {
        for part in ["header", "footer"] {
            let at = |start, footer| if part == "header" { start } else { footer };
            let (dir, session) = flipped_in_event_3(of, at).await;
            for round in 0..3 {
                let store = LocalStore::open(dir.path()).unwrap();
                let (epoch, snapshot) = store.claim(session).await.unwrap();
                assert_eq!(snapshot.tail, of + round, "{part}");
                store.append(session, epoch, of + round, events(session, of + round, 1)).await.unwrap();
                check_whole(&store, session, of + round + 1, part);
            }
        }
    }
}

#[tokio::test]
async fn damaged_header_is_reported() {
    let (dir, session) = flipped_in_event_3(5, |start, _| start).await;
    let mut replay = LogReplay::default();
    replay.replay_from(&SegmentCache::new(dir.path().join("log")), LogPosition::START).unwrap();
    assert!(replay.recovered[0].starts_with(&format!("session `{session}`: event 3")), "{:?}", replay.recovered);
    assert_eq!((replay.recovered.len(), replay.damage), (1, vec![]));
}

#[tokio::test]
async fn damaged_payload_and_header_lose_one_event() {
    for of in [3, 5] {
        let (dir, session) = flipped_in_event_3(of, |start, _| start + FRAME_HEADER_LEN - 4).await;
        // With 5 events, a later commit follows, so the frame is damaged and not torn.
        let store = LocalStore::open(dir.path()).unwrap();
        let tail = store.get(session).await.unwrap().unwrap().tail;
        let (found, damaged) = readable(&store, session, tail);
        assert_eq!((tail, &damaged[..]), if of == 3 { (2, &[][..]) } else { (5, &[3][..]) });
        assert_same(&found, &all_but(session, tail, &damaged), "around the damage");
    }
}

#[tokio::test]
async fn number_of_lost_newest_event_is_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let session = fill(&store, "a", 3).await;
    store.claim(session).await.unwrap();
    drop(store);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let log = dir.path().join("log/00000001.log");
    let (start, footer) = frame_at(&log, 3);
    [start, footer].into_iter().for_each(|at| flip(&log, at, 8));
    let mut replay = LogReplay::default();
    replay.replay_from(&SegmentCache::new(dir.path().join("log")), LogPosition::START).unwrap();
    assert!(replay.damage.contains(&format!("session `{session}`: event 3")), "{:?}", replay.damage);
    check_short(dir.path(), session, 2, 3, "without its header").await;
}

#[tokio::test]
async fn segment_with_damaged_frame_header_archives_completely() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = filled(dir.path()).await;
    let log = segment::path(&dir.path().join("log"), 2, SegmentFileKind::Log);
    flip(&log, segment::SEGMENT_HEADER_LEN, 8);
    let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    sessions.iter().for_each(|session| check_whole(&store, *session, 60, "in the log"));
    store.forget(sessions[0], 1).await.unwrap();
    store.compact().await.unwrap();
    assert!(!log.exists());
    drop(store);
    for index in ["with its index", "without"] {
        let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
        sessions[1..].iter().for_each(|session| check_whole(&store, *session, 60, index));
        assert_eq!(store.get(sessions[0]).await.unwrap(), None, "{index}");
        drop(store);
        fs::remove_dir_all(dir.path().join("index")).unwrap();
    }
}
