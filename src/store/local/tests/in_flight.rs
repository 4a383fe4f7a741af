//! Tests of two commits in flight at once: what each sync covers, and what a failed sync voids.

use std::{
    io,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use futures::FutureExt;

use super::*;
use crate::store::{
    AppendError, Seq,
    local::segment::{self, SegmentFileKind},
};

/// Long enough for anything that could happen.
const A_WHILE: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(20);

type SyncVerdict = mpsc::Sender<io::Result<()>>;

/// Syncs of a store. Once paused, each sync blocks until it receives a verdict.
struct PausedSyncs {
    /// Channel on which each paused sync announces itself.
    sync_sender: Arc<Mutex<Option<mpsc::Sender<SyncVerdict>>>>,
    syncs: mpsc::Receiver<SyncVerdict>,
}

impl PausedSyncs {
    fn next(&self) -> SyncVerdict {
        self.syncs.recv_timeout(TIMEOUT).expect("a sync starts in time")
    }

    fn expect_no_sync(&self) {
        let sync = self.syncs.recv_timeout(A_WHILE);
        assert!(sync.is_err(), "no further sync may start");
    }

    /// Stops pausing, and releases the syncs that were not taken yet.
    ///
    /// A verdict that was taken must still be given.
    fn release_all(&self) {
        *self.sync_sender.lock().unwrap() = None;
        self.syncs.try_iter().for_each(|verdict| pass(&verdict));
    }
}

fn pass(verdict: &SyncVerdict) {
    verdict.send(Ok(())).unwrap();
}

fn fail(verdict: &SyncVerdict) {
    verdict.send(Err(io::Error::other("the disk is gone"))).unwrap();
}

/// Returns a store with three sessions. Syncs are paused from the first append on.
async fn store_with_paused_syncs(dir: &Path, sizes: StoreSizes) -> (LocalStore, PausedSyncs, [(SessionId, u64); 3]) {
    let sync_sender = Arc::new(Mutex::new(None::<mpsc::Sender<SyncVerdict>>));
    let pausing = sync_sender.clone();
    let sync = move |file: &fs::File| {
        let (verdict, verdict_given) = mpsc::channel();
        let is_held = pausing.lock().unwrap().as_ref().map(|sync_sender| sync_sender.send(verdict).unwrap()).is_some();
        if is_held {
            verdict_given.recv().unwrap()?;
        }
        file.sync_data()
    };
    let store = LocalStore::open_syncing(dir, sizes, Box::new(sync)).unwrap();
    let sessions = [claimed(&store, "a").await, claimed(&store, "b").await, claimed(&store, "c").await];
    let (held, syncs) = mpsc::channel();
    *sync_sender.lock().unwrap() = Some(held);
    (store, PausedSyncs { sync_sender, syncs }, sessions)
}

fn is_unknown(answer: &Result<Seq, AppendError>) -> bool {
    matches!(answer, Err(AppendError::Unknown(_)))
}

#[tokio::test]
async fn sync_covers_everything_written_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), (b, of_b), _]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    let mut first = store.append(a, of_a, 0, events(a, 0, 2));
    let late = syncs.next();
    let pipelined = store.append(a, of_a, 2, events(a, 2, 2));
    let in_time = syncs.next();
    let third = store.append(b, of_b, 0, events(b, 0, 1));
    syncs.expect_no_sync();
    assert!((&mut first).now_or_never().is_none(), "an append is acknowledged only once it is on disk");
    assert_eq!(store.get(a).await.unwrap().unwrap().tail, 0);

    pass(&in_time);
    assert_eq!((first.await.unwrap(), pipelined.await.unwrap()), (2, 4));
    pass(&syncs.next());
    assert_eq!(third.await.unwrap(), 1);
    syncs.release_all();
    pass(&late);
    assert_eq!(store.append(a, of_a, 4, events(a, 4, 3)).await.unwrap(), 7);
    drop(store);
    let store = LocalStore::open(dir.path()).unwrap();
    check_whole(&store, a, 7, "after a restart");
    check_whole(&store, b, 1, "after a restart");
}

#[tokio::test]
async fn check_does_not_wait_for_late_thread() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), ..]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    let first = store.append(a, of_a, 0, events(a, 0, 2));
    let late = syncs.next();
    let (checked, ()) = tokio::join!(store.check(), async { pass(&syncs.next()) });
    checked.unwrap();
    assert_eq!(first.await.unwrap(), 2, "the append is on disk");
    syncs.release_all();
    pass(&late);
}

/// The kernel reports a lost page once per file description.
///
/// The page may belong to a later commit than the one that the sync waited for.
#[tokio::test]
async fn late_failed_sync_voids_commits_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), (b, of_b), (c, of_c)]) =
        store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    let first = store.append(a, of_a, 0, events(a, 0, 2));
    let late = syncs.next();
    let second = store.append(b, of_b, 0, events(b, 0, 2));
    pass(&syncs.next());
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (2, 2));
    let third = store.append(a, of_a, 2, events(a, 2, 2));
    let newer = syncs.next();
    syncs.release_all();
    fail(&late);
    assert!(is_unknown(&third.await));
    pass(&newer);
    assert_eq!(store.append(c, of_c, 0, events(c, 0, 1)).await.unwrap(), 1);
    assert_eq!(store.shared.state().end.segment, 2, "a file that could not be synced is not written again");
    assert_eq!(store.append(a, of_a, 2, events(a, 2, 1)).await.unwrap(), 3);
    drop(store);
    let store = LocalStore::open(dir.path()).unwrap();
    check_whole(&store, a, 3, "after a restart");
    check_whole(&store, b, 2, "after a restart");
}

#[tokio::test]
async fn rejection_based_on_failed_commit_is_withdrawn() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), ..]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    let (claimed, fenced) = tokio::join!(store.claim(a), async {
        let failing = syncs.next();
        let fenced = store.append(a, of_a, 0, events(a, 0, 1));
        // The rejection is held back until the commit that it rests on is decided.
        tokio::time::sleep(A_WHILE).await;
        syncs.release_all();
        fail(&failing);
        fenced.await
    });
    claimed.unwrap_err();
    assert!(matches!(fenced, Err(AppendError::NotWritten(_))), "{fenced:?}");
    assert_eq!(
        store.append(a, of_a, 0, events(a, 0, 1)).await.unwrap(),
        1,
        "the failed claim did not change the owner"
    );
}

/// The other thread may fail the request that a thread sleeps for, right when the store is dropped.
#[tokio::test]
async fn drop_returns_after_queued_requests_failed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), (b, of_b), _]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    // Both requests go into one commit.
    while !store.queue.take_idle_turn() {
        std::thread::yield_now();
    }
    let (written, behind) = (store.append(b, of_b, 0, events(b, 0, 1)), store.append(a, of_a, 7, events(a, 7, 1)));
    store.queue.end_turn();
    let held = syncs.next();
    let more = store.append(a, of_a, 8, events(a, 8, 1));
    tokio::time::sleep(A_WHILE).await;
    syncs.release_all();
    let (ended, has_ended) = mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        ended.send(()).unwrap();
    });
    tokio::time::sleep(A_WHILE).await;
    pass(&held);
    written.await.unwrap();
    for answer in [behind.await, more.await] {
        assert!(matches!(answer, Err(AppendError::Conflict { tail: 0 })), "{answer:?}");
    }
    has_ended.recv_timeout(TIMEOUT).expect("the drop of the store returns");
}

#[tokio::test]
async fn failed_sync_voids_all_commits_in_flight() {
    for (fails_first, both) in [(true, false), (false, false), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (store, syncs, [(a, of_a), (b, of_b), (c, of_c)]) =
            store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
        let first = store.append(a, of_a, 0, events(a, 0, 2));
        let older = syncs.next();
        let behind = store.append(a, of_a, 2, events(a, 2, 2));
        let newer = syncs.next();
        let waiting = [
            store.append(a, of_a, 4, events(a, 4, 1)),
            store.append(b, of_b, 0, events(b, 0, 1)),
            store.append(c, of_c, 9, events(c, 9, 1)),
        ];
        syncs.release_all();
        let (failing, other) = if fails_first { (older, newer) } else { (newer, older) };
        fail(&failing);
        assert!(is_unknown(&first.await) && is_unknown(&behind.await));
        if !both {
            pass(&other);
        }
        let [after, unconcerned, elsewhere] = waiting;
        assert!(matches!(after.await, Err(AppendError::NotWritten(_))), "the append relied on a failed one");
        assert_eq!(unconcerned.await.unwrap(), 1);
        assert!(matches!(elsewhere.await, Err(AppendError::Conflict { tail: 0 })));
        assert_eq!(store.get(a).await.unwrap().unwrap().tail, 0);

        if both {
            // The failure belongs to a segment that is abandoned already.
            fail(&other);
        }
        assert_eq!(store.append(a, of_a, 0, events(a, 0, 3)).await.unwrap(), 3);
        assert_eq!(store.shared.state().end.segment, 2, "a file that could not be synced is not written again");
        drop(store);
        let store = LocalStore::open(dir.path()).unwrap();
        check_whole(&store, a, 3, "after a restart");
        check_whole(&store, b, 1, "after a restart");
        assert_eq!(store.get(c).await.unwrap().unwrap().tail, 0);
    }
}

#[tokio::test]
async fn segment_begins_after_previous_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), (b, of_b), _]) = store_with_paused_syncs(dir.path(), small_sizes()).await;
    let large = |session| events(session, 0, 40);
    let first = store.append(a, of_a, 0, large(a));
    let older = syncs.next();
    let second = store.append(b, of_b, 0, large(b));
    syncs.expect_no_sync();
    let path = |number| segment::path(&dir.path().join("log"), number, SegmentFileKind::Log);
    let last = (1..).take_while(|number| path(*number).exists()).last().unwrap();
    assert!(!path(last + 1).exists());
    pass(&older);
    assert_eq!(first.await.unwrap(), 40);
    pass(&syncs.next());
    assert_eq!(second.await.unwrap(), 40);
    assert!(path(last + 1).exists());
    // After a failed sync of the current segment, the commit for the next one is not written.
    let third = store.append(a, of_a, 40, events(a, 40, 40));
    let older = syncs.next();
    let fourth = store.append(b, of_b, 40, events(b, 40, 40));
    syncs.expect_no_sync();
    syncs.release_all();
    fail(&older);
    assert!(is_unknown(&third.await));
    assert!(matches!(fourth.await, Err(AppendError::NotWritten(_))));
    store.check().await.unwrap();
    assert_eq!(store.append(b, of_b, 40, events(b, 40, 1)).await.unwrap(), 41);
    check_whole(&store, a, 40, "after the recovery");
}

#[tokio::test]
async fn power_cut_that_loses_older_commit_drops_both() {
    let dir = tempfile::tempdir().unwrap();
    // The file ends with the log.
    let sizes =
        StoreSizes { segment: SegmentSizes { preallocate_bytes: 0, ..SegmentSizes::DEFAULT }, ..StoreSizes::default() };
    let (store, syncs, [(a, of_a), (b, of_b), _]) = store_with_paused_syncs(dir.path(), sizes).await;
    let written = || fs::read(dir.path().join("log/00000001.log")).unwrap();
    let begun = written().len();
    let first = store.append(a, of_a, 0, events(a, 0, 2));
    let older = syncs.next();
    let middle = written().len();
    let second = store.append(a, of_a, 2, events(a, 2, 2));
    let newer = syncs.next();
    // After a power cut, any unsynced page may be on disk.
    let lost = tempfile::tempdir().unwrap();
    fs::create_dir(lost.path().join("log")).unwrap();
    let mut bytes = written();
    assert!(begun < middle && middle < bytes.len());
    bytes[begun..middle].fill(0);
    fs::write(lost.path().join("log/00000001.log"), bytes).unwrap();
    let cut = LocalStore::open(lost.path()).unwrap();
    assert_eq!(cut.get(a).await.unwrap().unwrap().tail, 0, "no gap is left");
    assert_eq!(cut.append(a, of_a, 0, events(a, 0, 1)).await.unwrap(), 1);

    pass(&older);
    pass(&newer);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (2, 4));
    // The third commit was written after a sync of the first. The first is damaged and not torn.
    let third = store.append(b, of_b, 0, events(b, 0, 1));
    pass(&syncs.next());
    third.await.unwrap();
    let kept = tempfile::tempdir().unwrap();
    fs::create_dir(kept.path().join("log")).unwrap();
    let mut bytes = written();
    bytes[begun..middle].fill(0);
    fs::write(kept.path().join("log/00000001.log"), bytes).unwrap();
    let kept = LocalStore::open(kept.path()).unwrap();
    assert_eq!(kept.get(a).await.unwrap().unwrap().tail, 4);
    assert_eq!(kept.get(b).await.unwrap().unwrap().tail, 1);
    syncs.release_all();
}

#[tokio::test]
async fn drop_completes_commits_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), _, _]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    let first = store.append(a, of_a, 0, events(a, 0, 2));
    let older = syncs.next();
    let second = store.append(a, of_a, 2, events(a, 2, 2));
    let newer = syncs.next();
    let third = store.append(a, of_a, 4, events(a, 4, 2));
    syncs.release_all();
    let ended = std::thread::spawn(move || drop(store));
    pass(&older);
    pass(&newer);
    assert_eq!((first.await.unwrap(), second.await.unwrap(), third.await.unwrap()), (2, 4, 6));
    ended.join().unwrap();
    check_whole(&LocalStore::open(dir.path()).unwrap(), a, 6, "after a restart");
}
