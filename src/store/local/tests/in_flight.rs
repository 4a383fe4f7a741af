//! Two commits on their way to disk at once: which sync answers for what, and what a sync that fails takes with it.

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

/// Long enough for whatever is going to happen.
const A_WHILE: Duration = Duration::from_millis(200);
const MUST_COME: Duration = Duration::from_secs(20);

type SyncVerdict = mpsc::Sender<io::Result<()>>;

/// The syncs of a store, once they are held: each waits for its verdict.
struct PausedSyncs {
    /// Where each says that it has come, while they are held.
    sync_sender: Arc<Mutex<Option<mpsc::Sender<SyncVerdict>>>>,
    syncs: mpsc::Receiver<SyncVerdict>,
}

impl PausedSyncs {
    fn next(&self) -> SyncVerdict {
        self.syncs.recv_timeout(MUST_COME).expect("a sync")
    }

    fn expect_no_sync(&self) {
        let came = self.syncs.recv_timeout(A_WHILE);
        assert!(came.is_err(), "one sync too many");
    }

    /// Those that nobody looked at, and all that come; who has the verdict of one still has to say it.
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

/// A store whose syncs are held from the first append on, and sessions in it.
async fn store_with_paused_syncs(dir: &Path, sizes: StoreSizes) -> (LocalStore, PausedSyncs, [(SessionId, u64); 3]) {
    let say = Arc::new(Mutex::new(None::<mpsc::Sender<SyncVerdict>>));
    let holder = say.clone();
    let sync = move |file: &fs::File| {
        let (verdict, told) = mpsc::channel();
        let is_held = holder.lock().unwrap().as_ref().map(|say| say.send(verdict).unwrap()).is_some();
        if is_held {
            told.recv().unwrap()?;
        }
        file.sync_data()
    };
    let store = LocalStore::open_syncing(dir, sizes, Box::new(sync)).unwrap();
    let sessions = [claimed(&store, "a").await, claimed(&store, "b").await, claimed(&store, "c").await];
    let (held, coming) = mpsc::channel();
    *say.lock().unwrap() = Some(held);
    (store, PausedSyncs { sync_sender: say, syncs: coming }, sessions)
}

fn is_unknown(answer: &Result<Seq, AppendError>) -> bool {
    matches!(answer, Err(AppendError::Unknown(_)))
}

#[tokio::test]
async fn a_sync_answers_for_all_that_was_written_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), (b, of_b), _]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    let mut first = store.append(a, of_a, 0, events(a, 0, 2));
    let late = syncs.next();
    let pipelined = store.append(a, of_a, 2, events(a, 2, 2));
    let in_time = syncs.next();
    let third = store.append(b, of_b, 0, events(b, 0, 1));
    syncs.expect_no_sync();
    assert!((&mut first).now_or_never().is_none(), "nothing is acknowledged that is not on disk");
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
async fn who_asks_how_the_journal_is_does_not_wait_for_a_thread_that_is_late() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), ..]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    let first = store.append(a, of_a, 0, events(a, 0, 2));
    let late = syncs.next();
    let (checked, ()) = tokio::join!(store.check(), async { pass(&syncs.next()) });
    checked.unwrap();
    assert_eq!(first.await.unwrap(), 2, "and has it on disk");
    syncs.release_all();
    pass(&late);
}

/// The kernel tells each that waits of a page that it lost, once: it may be one of a later commit than that which was waited for.
#[tokio::test]
async fn a_late_sync_that_fails_speaks_of_what_is_on_its_way_now() {
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
async fn no_rejection_stands_on_what_failed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), ..]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    let (claimed, fenced) = tokio::join!(store.claim(a), async {
        let failing = syncs.next();
        let fenced = store.append(a, of_a, 0, events(a, 0, 1));
        // It waits for what it was decided on.
        tokio::time::sleep(A_WHILE).await;
        syncs.release_all();
        fail(&failing);
        fenced.await
    });
    claimed.unwrap_err();
    assert!(matches!(fenced, Err(AppendError::NotWritten(_))), "{fenced:?}");
    assert_eq!(store.append(a, of_a, 0, events(a, 0, 1)).await.unwrap(), 1, "it was never taken from its owner");
}

/// What a thread sleeps for may be failed by the other, right when the store ends.
#[tokio::test]
async fn a_store_ends_though_nothing_is_left_of_what_waited() {
    let dir = tempfile::tempdir().unwrap();
    let (store, syncs, [(a, of_a), (b, of_b), _]) = store_with_paused_syncs(dir.path(), StoreSizes::default()).await;
    // One commit of both.
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
    has_ended.recv_timeout(MUST_COME).expect("the store ends");
}

#[tokio::test]
async fn a_sync_that_fails_takes_all_with_it_that_is_on_its_way() {
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
        assert!(matches!(after.await, Err(AppendError::NotWritten(_))), "it counted on what failed");
        assert_eq!(unconcerned.await.unwrap(), 1);
        assert!(matches!(elsewhere.await, Err(AppendError::Conflict { tail: 0 })));
        assert_eq!(store.get(a).await.unwrap().unwrap().tail, 0);

        if both {
            // Of a segment that is given up already.
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
async fn a_segment_is_begun_when_the_one_before_is_synced() {
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
    // And where the one before cannot be synced, what was to begin the next is not written.
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
    check_whole(&store, a, 40, "once it goes on");
}

#[tokio::test]
async fn a_power_cut_may_take_the_older_and_leave_the_newer() {
    let dir = tempfile::tempdir().unwrap();
    // The file ends where the log does.
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
    // As the disk would have it: of pages that nobody has synced any may be there.
    let lost = tempfile::tempdir().unwrap();
    fs::create_dir(lost.path().join("log")).unwrap();
    let mut bytes = written();
    assert!(begun < middle && middle < bytes.len());
    bytes[begun..middle].fill(0);
    fs::write(lost.path().join("log/00000001.log"), bytes).unwrap();
    let cut = LocalStore::open(lost.path()).unwrap();
    assert_eq!(cut.get(a).await.unwrap().unwrap().tail, 0, "there is no gap");
    assert_eq!(cut.append(a, of_a, 0, events(a, 0, 1)).await.unwrap(), 1);

    pass(&older);
    pass(&newer);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (2, 4));
    // What was written when the first was on disk proves that it was: there it is damage, and costs itself only.
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
async fn a_store_ends_with_what_is_on_its_way() {
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
