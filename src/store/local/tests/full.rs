//! Tests of a full disk: appends fail, reads work, and appends resume once there is space.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use super::*;

/// Small file system of its own; `None` without the right to mount one.
struct SmallFileSystem(tempfile::TempDir);

impl SmallFileSystem {
    fn mount(size: &str) -> Option<SmallFileSystem> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        if !is_mounted {
            eprintln!("skipped: only root can mount a small file system");
        }
        is_mounted.then_some(SmallFileSystem(dir))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        // The index closes its files on a thread of its own, after the store is dropped.
        let until = Instant::now() + Duration::from_secs(10);
        while !Command::new("umount").arg(self.0.path()).status().is_ok_and(|status| status.success()) {
            if std::thread::panicking() {
                return;
            }
            assert!(Instant::now() < until, "the file system is still in use");
            std::thread::yield_now();
        }
    }
}

#[tokio::test]
async fn appends_fail_on_full_disk_and_resume() {
    let Some(disk) = SmallFileSystem::mount("2m") else { return };
    let dir = disk.0.path().join("journal");
    let ballast = disk.0.path().join("ballast");
    let store = LocalStore::open(&dir).unwrap();
    let (session, epoch) = claimed(&store, "a").await;
    store.append(session, epoch, 0, events(session, 0, 10)).await.unwrap();
    store.check().await.unwrap();
    let _ = fs::write(&ballast, vec![0; 2 << 20]);

    let mut at = 10;
    let rejected = loop {
        match store.append(session, epoch, at, events(session, at, 50)).await {
            Ok(tail) => at = tail,
            Err(error) => break error,
        }
        assert!(at < 100_000, "the disk did not fill up");
    };
    assert!(
        matches!(&rejected, AppendError::NotWritten(error) if error.kind() == std::io::ErrorKind::StorageFull),
        "{rejected}"
    );
    let pipelined = [0, 50].map(|more| store.append(session, epoch, at + more, events(session, at + more, 50)));
    for answer in futures::future::join_all(pipelined).await {
        assert!(matches!(answer, Err(AppendError::NotWritten(_) | AppendError::Conflict { .. })), "{answer:?}");
    }
    store.check().await.unwrap_err();
    store.put_content(session, 1, vec![0; 1 << 20].into()).await.unwrap_err();
    check_whole(&store, session, at, "on a full disk");

    fs::remove_file(&ballast).unwrap();
    store.check().await.unwrap();
    assert_eq!(store.append(session, epoch, at, events(session, at, 50)).await.unwrap(), at + 50);
    drop(store);
    let store = LocalStore::open(&dir).unwrap();
    check_whole(&store, session, at + 50, "on a full disk");
}

/// Returns a store with several closed segments, and a last one that has room and is due for
/// closing.
async fn store_worth_closing(dir: &Path) -> (LocalStore, SessionId) {
    let store = LocalStore::open_with(dir, small_sizes()).unwrap();
    let session = fill(&store, "kept", 40).await;
    let purged = fill(&store, "purged", 3).await;
    while !(1100..2500).contains(&store.shared.state().end.offset) {
        append_one_more(&store, session).await;
    }
    store.forget(purged, 1).await.unwrap();
    store.shared.flush_index().unwrap();
    (store, session)
}

/// Appends an event and returns its segment.
async fn append_one_more(store: &LocalStore, session: SessionId) -> u32 {
    let (epoch, tail) = {
        let state = store.shared.state();
        let entry = &state.sessions[&session];
        (entry.epoch, entry.tail)
    };
    store.append(session, epoch, tail, events(session, tail, 1)).await.unwrap();
    store.shared.state().end.segment
}

async fn check_all_appended(store: &LocalStore, session: SessionId) {
    let tail = store.get(session).await.unwrap().unwrap().tail;
    check_whole(store, session, tail, "after all steps");
}

#[tokio::test]
async fn sweep_on_full_disk_keeps_last_segment_open() {
    let Some(disk) = SmallFileSystem::mount("48m") else { return };
    let [spare, ballast] = ["spare", "ballast"].map(|name| disk.0.path().join(name));
    let (store, session) = store_worth_closing(&disk.0.path().join("journal")).await;
    let last = store.shared.state().end.segment;
    fs::write(&spare, vec![0; 4 << 20]).unwrap();
    let _ = fs::write(&ballast, vec![0; 48 << 20]);

    assert_eq!(store.compact().await.unwrap(), CompactionStats::default(), "no archive has space");
    assert_eq!(append_one_more(&store, session).await, last, "the append goes into a page that exists");

    // Space for archives, but too little to begin a segment early.
    fs::remove_file(&spare).unwrap();
    let mut archived = 0;
    // A run skips the segments that failed in the run before.
    for _ in 0..2 {
        archived += store.compact().await.unwrap().segments;
    }
    assert_eq!(archived, last as usize - 1, "all segments but the last are archived");
    assert_eq!(append_one_more(&store, session).await, last);

    fs::remove_file(&ballast).unwrap();
    store.compact().await.unwrap();
    assert_eq!(append_one_more(&store, session).await, last + 1, "the last segment was closed");
    check_all_appended(&store, session).await;
}

/// Same result as a disk that fills up at that moment.
#[tokio::test]
async fn failed_close_does_not_block_archiving() {
    let dir = tempfile::tempdir().unwrap();
    let (store, session) = store_worth_closing(dir.path()).await;
    let last = store.shared.state().end.segment;
    let next = dir.path().join(format!("log/{:08}.log", last + 1));
    fs::create_dir(&next).unwrap();
    assert_eq!(store.compact().await.unwrap().segments, last as usize - 1);
    fs::remove_dir(&next).unwrap();
    assert_eq!(append_one_more(&store, session).await, last + 1, "the log continues in the next segment");
    check_all_appended(&store, session).await;
}
