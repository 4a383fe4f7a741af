//! Tests of the scan at the end of a segment.

use std::io::Write;

use bytes::Bytes;

use super::*;
use crate::store::{
    AppendBatch, JournalEvent,
    local::{
        frame::{FRAME_HEADER_LEN, FrameHeader, FrameKind, encode_payload},
        scan::{ScanItem, ScanUntil, scan},
        segment,
    },
};

const FRAME: usize = FRAME_HEADER_LEN + 1;

/// Returns a segment of commits with these numbers of frames, in version 1.
///
/// Frame n belongs to the session whose id consists of bytes n. Each frame has `FRAME` bytes.
fn segment_of(commits: &[u8]) -> Vec<u8> {
    let payload = encode_payload(None, None, &[]);
    let mut bytes = vec![0; segment::SEGMENT_HEADER_LEN];
    let mut number = 0;
    for frames in commits {
        let begun = bytes.len();
        for _ in 0..*frames {
            number += 1;
            let (session, back) = (SessionId::from_bytes([number; 16]), (bytes.len() - begun) as u32);
            let (len, crc) = (payload.len() as u32, crc32fast::hash(&payload));
            let has_footer = false;
            let header = FrameHeader {
                kind: FrameKind::Append,
                session,
                seq: 1,
                epoch: 1,
                count: 1,
                len,
                crc,
                back,
                has_footer,
            };
            bytes.extend(header.encode());
            bytes.extend(&payload);
        }
    }
    bytes
}

/// Scans `segment_of(commits)` with flipped bytes. Checks its end, and the damaged and cut frames.
fn check_scan(commits: &[u8], flipped: &[usize], end: usize, damaged: &[u8], cut: &[u8]) {
    let mut bytes = segment_of(commits);
    for at in flipped {
        bytes[segment::SEGMENT_HEADER_LEN + at] ^= 0xff;
    }
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let (mut found_damaged, mut found_cut) = (Vec::new(), Vec::new());
    let mut visit = |found: ScanItem<'_>| match found {
        ScanItem::Damaged { header, .. } => found_damaged.push(header.session.to_bytes()[0]),
        ScanItem::Cut { header } => found_cut.push(header.session.to_bytes()[0]),
        ScanItem::Unreadable { .. } => found_damaged.push(0),
        ScanItem::Frame { .. } | ScanItem::RecoveredHeader { .. } => {}
    };
    let found_end =
        scan(&file, segment::SEGMENT_HEADER_LEN as u64, ScanUntil::TornTail { synced: 0 }, &mut visit).unwrap();
    let what = format!("{commits:?}, {flipped:?}");
    assert_eq!(found_end as usize, segment::SEGMENT_HEADER_LEN + end, "{what}");
    assert_eq!((&found_damaged[..], &found_cut[..]), (damaged, cut), "{what}");
}

#[test]
fn frames_before_later_commit_are_damaged_and_last_commit_is_cut() {
    let (header, payload) = (|n: usize| n * FRAME, |n: usize| n * FRAME + FRAME_HEADER_LEN);
    check_scan(&[1, 3], &[], 4 * FRAME, &[], &[]);
    check_scan(&[1, 3], &[payload(0)], 4 * FRAME, &[1], &[]);
    check_scan(&[1, 3], &[header(0)], 4 * FRAME, &[0], &[]);
    check_scan(&[1, 3], &[payload(1)], FRAME, &[], &[2, 3, 4]);
    check_scan(&[1, 3], &[header(1)], FRAME, &[], &[3, 4]);
    check_scan(&[1, 3], &[payload(2), header(3)], 2 * FRAME, &[], &[3]);
    check_scan(&[1, 3], &[header(3)], 3 * FRAME, &[], &[]);
    check_scan(&[1, 3, 1], &[payload(1), header(3)], 5 * FRAME, &[2, 0], &[]);
    check_scan(&[1, 3, 2], &[payload(1), header(4)], 4 * FRAME, &[2], &[6]);
}

/// The disk, or the path to it, loses a sector at the end of the log. Many commits are in it.
#[test]
fn unreadable_bytes_are_not_a_torn_commit() {
    const PAGE: usize = 4096;
    // The frames end in the second page.
    const COUNT: usize = (2 * PAGE - segment::SEGMENT_HEADER_LEN) / FRAME;
    let mut bytes = segment_of(&[1; COUNT]);
    let prepared = 3 * PAGE;
    bytes.resize(prepared, 0);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let walk = || {
        let (mut frames, mut unreadable) = (0, Vec::new());
        let mut visit = |found: ScanItem<'_>| match found {
            ScanItem::Frame { .. } => frames += 1,
            ScanItem::Unreadable { offset, until } => unreadable.push((offset as usize, until as usize)),
            other => panic!("{other:?}"),
        };
        let end =
            scan(&file, segment::SEGMENT_HEADER_LEN as u64, ScanUntil::TornTail { synced: 0 }, &mut visit).unwrap();
        (frames, unreadable, end as usize)
    };
    let whole = (COUNT, Vec::new(), segment::SEGMENT_HEADER_LEN + COUNT * FRAME);
    assert_eq!(walk(), whole);
    segment::tests::lose_pages(PAGE as u64..2 * PAGE as u64);
    let read = (PAGE - segment::SEGMENT_HEADER_LEN) / FRAME;
    let lost = segment::SEGMENT_HEADER_LEN + read * FRAME;
    assert_eq!(
        walk(),
        (read, vec![(lost, prepared)], prepared),
        "nothing is cut, and the log continues behind the lost bytes"
    );
    segment::tests::lose_pages(0..0);
    assert_eq!(walk(), whole, "the disk returns the page again");
}

/// Time of the first sweep. The sweep closes the segment and would archive it.
#[derive(Debug, PartialEq)]
enum SweepTime {
    Never,
    /// The events acknowledged last are in the next segment.
    BeforeNewEvents,
    /// The events acknowledged last are in the same segment.
    AfterNewEvents,
}

/// Numbers of events that the disk did not return were given again meanwhile.
#[tokio::test]
async fn returned_bytes_do_not_hide_later_events() {
    for swept in [SweepTime::Never, SweepTime::BeforeNewEvents, SweepTime::AfterNewEvents] {
        check_returned_bytes(swept).await;
    }
}

async fn check_returned_bytes(swept: SweepTime) {
    let dir = tempfile::tempdir().unwrap();
    let open =
        || LocalStore::open_with(dir.path(), StoreSizes { close_purged_bytes: 1, ..StoreSizes::default() }).unwrap();
    let open_without_index = || {
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        open()
    };
    let store = open();
    let session = fill(&store, "", 60).await;
    drop(store);
    segment::tests::lose_pages(8192..u64::MAX);
    let store = open_without_index();
    segment::tests::lose_pages(0..0);
    if swept == SweepTime::BeforeNewEvents {
        store.compact().await.unwrap();
        assert_eq!(store.shared.state().end.segment, 2);
    }
    let (epoch, snapshot) = store.claim(session).await.unwrap();
    let tail = snapshot.tail;
    assert!((10..50).contains(&tail), "{tail} are left");
    let new_event = |seq: u64| JournalEvent { kind: "message".into(), json: Bytes::from(format!("\"anew {seq}\"")) };
    for at in tail..tail + 3 {
        let batch = AppendBatch { events: vec![new_event(at + 1)], ..AppendBatch::default() };
        store.append(session, epoch, at, batch).await.unwrap();
    }
    let mut whole = expected(session, tail);
    whole.extend((tail + 1..=tail + 3).map(|seq| (seq, new_event(seq))));
    let check = |store: &LocalStore, what: &str| {
        assert_same(&from_log(store, session).unwrap(), &whole, &format!("{swept:?}, {what}"));
    };
    if swept == SweepTime::AfterNewEvents {
        store.compact().await.unwrap();
        assert_eq!(store.shared.state().end.segment, 2);
    }
    check(&store, "with the index");
    drop(store);
    let store = open_without_index();
    check(&store, "without the index");
    if swept != SweepTime::Never {
        store.compact().await.unwrap();
        check(&store, "without the index, after another sweep");
    }
}
