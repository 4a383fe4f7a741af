//! What a walk through a segment makes of its end.

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

/// A segment with commits of so many frames of version 1 each. Frame n is of the session that has n in each byte of its id, and `FRAME`
/// bytes long.
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

/// Of such a segment these bytes are flipped; what then counts, and the frames that are named as damaged and as cut.
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
fn what_a_later_commit_follows_is_damaged_and_of_the_last_one_what_is_cut_is_named() {
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

/// A sector of the log's end, or the way to it, as it may be after any unclean end: many commits stand there.
#[test]
fn what_the_disk_does_not_give_is_no_commit_that_was_torn() {
    const PAGE: usize = 4096;
    // They end in the second page.
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
    assert_eq!(walk(), (read, vec![(lost, prepared)], prepared), "nothing is cut, and what comes is written behind it");
    segment::tests::lose_pages(0..0);
    assert_eq!(walk(), whole, "the disk gives it again");
}

/// When the log is swept for the first time: that closes its segment, and would archive it.
#[derive(Debug, PartialEq)]
enum SweepTime {
    Never,
    /// So what is acknowledged last stands in the next segment.
    BeforeItGoesOn,
    /// So that stands in the same one.
    OnceItWentOn,
}

/// The numbers of what it did not give were given again meanwhile.
#[tokio::test]
async fn what_the_disk_gives_again_hides_nothing_that_was_acknowledged_since() {
    for swept in [SweepTime::Never, SweepTime::BeforeItGoesOn, SweepTime::OnceItWentOn] {
        check_given_again(swept).await;
    }
}

async fn check_given_again(swept: SweepTime) {
    let dir = tempfile::tempdir().unwrap();
    let open =
        || LocalStore::open_with(dir.path(), StoreSizes { close_purged_bytes: 1, ..StoreSizes::default() }).unwrap();
    let without_an_index = || {
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        open()
    };
    let store = open();
    let session = fill(&store, "", 60).await;
    drop(store);
    segment::tests::lose_pages(8192..u64::MAX);
    let store = without_an_index();
    segment::tests::lose_pages(0..0);
    if swept == SweepTime::BeforeItGoesOn {
        store.compact().await.unwrap();
        assert_eq!(store.shared.state().end.segment, 2);
    }
    let (epoch, snapshot) = store.claim(session).await.unwrap();
    let tail = snapshot.tail;
    assert!((10..50).contains(&tail), "{tail} are left");
    let anew = |seq: u64| JournalEvent { kind: "message".into(), json: Bytes::from(format!("\"anew {seq}\"")) };
    for at in tail..tail + 3 {
        let batch = AppendBatch { events: vec![anew(at + 1)], ..AppendBatch::default() };
        store.append(session, epoch, at, batch).await.unwrap();
    }
    let mut whole = expected(session, tail);
    whole.extend((tail + 1..=tail + 3).map(|seq| (seq, anew(seq))));
    let check = |store: &LocalStore, what: &str| {
        assert_same(&from_log(store, session).unwrap(), &whole, &format!("{swept:?}, {what}"));
    };
    if swept == SweepTime::OnceItWentOn {
        store.compact().await.unwrap();
        assert_eq!(store.shared.state().end.segment, 2);
    }
    check(&store, "with the index");
    drop(store);
    let store = without_an_index();
    check(&store, "without");
    if swept != SweepTime::Never {
        store.compact().await.unwrap();
        check(&store, "without, and swept once more");
    }
}
