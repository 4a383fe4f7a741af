//! A full disk: appends are refused, reads work, and it goes on when there is room.

use std::process::Command;

use super::*;

/// A small file system of its own; `None` where nobody may mount one.
struct SmallFileSystem(tempfile::TempDir);

impl SmallFileSystem {
    fn mount(size: &str) -> Option<SmallFileSystem> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        if !is_mounted {
            eprintln!("skipped: a small file system can be mounted by root only");
        }
        is_mounted.then_some(SmallFileSystem(dir))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[tokio::test]
async fn a_full_disk_refuses_appends_and_recovers() {
    let Some(disk) = SmallFileSystem::mount("2m") else { return };
    let dir = disk.0.path().join("journal");
    let ballast = disk.0.path().join("ballast");
    let store = LocalStore::open(&dir).unwrap();
    let (session, epoch) = claimed(&store, "a").await;
    store.append(session, epoch, 0, events(session, 0, 10)).await.unwrap();
    store.check().await.unwrap();
    let _ = fs::write(&ballast, vec![0; 2 << 20]);

    let mut at = 10;
    let refused = loop {
        match store.append(session, epoch, at, events(session, at, 50)).await {
            Ok(tail) => at = tail,
            Err(error) => break error,
        }
        assert!(at < 100_000, "the disk never got full");
    };
    assert!(
        matches!(&refused, AppendError::NotWritten(error) if error.kind() == std::io::ErrorKind::StorageFull),
        "{refused}"
    );
    let pipelined = [0, 50].map(|more| store.append(session, epoch, at + more, events(session, at + more, 50)));
    for answer in futures::future::join_all(pipelined).await {
        assert!(matches!(answer, Err(AppendError::NotWritten(_) | AppendError::Conflict { .. })), "{answer:?}");
    }
    store.check().await.unwrap_err();
    store.put_content(session, vec![0; 1 << 20].into()).await.unwrap_err();
    check_whole(&store, session, at, "on a full disk");

    fs::remove_file(&ballast).unwrap();
    store.check().await.unwrap();
    assert_eq!(store.append(session, epoch, at, events(session, at, 50)).await.unwrap(), at + 50);
    drop(store);
    let store = LocalStore::open(&dir).unwrap();
    check_whole(&store, session, at + 50, "on a full disk");
}

/// Several closed segments, and a last one that is worth closing and has room.
async fn store_worth_closing(dir: &Path) -> (LocalStore, SessionId) {
    let store = LocalStore::open_with(dir, small_sizes()).unwrap();
    let session = fill(&store, "kept", 40).await;
    let purged = fill(&store, "purged", 3).await;
    while !(1100..2500).contains(&store.shared.state().end.offset) {
        append_one_more(&store, session).await;
    }
    store.forget(purged).await.unwrap();
    store.shared.flush_index().unwrap();
    (store, session)
}

/// Returns in which segment it stands.
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
    check_whole(store, session, tail, "after all of it");
}

#[tokio::test]
async fn a_sweep_on_a_full_disk_leaves_the_last_segment_its_room_and_frees_what_it_can() {
    let Some(disk) = SmallFileSystem::mount("48m") else { return };
    let [spare, ballast] = ["spare", "ballast"].map(|name| disk.0.path().join(name));
    let (store, session) = store_worth_closing(&disk.0.path().join("journal")).await;
    let last = store.shared.state().end.segment;
    fs::write(&spare, vec![0; 4 << 20]).unwrap();
    let _ = fs::write(&ballast, vec![0; 48 << 20]);

    assert_eq!(store.compact().await.unwrap(), CompactionStats::default(), "no archive finds room");
    assert_eq!(append_one_more(&store, session).await, last, "the page that it goes into is there");

    // Room for archives, and not so much that a segment is begun without need.
    fs::remove_file(&spare).unwrap();
    let mut archived = 0;
    // Those that failed are left out once.
    for _ in 0..2 {
        archived += store.compact().await.unwrap().segments;
    }
    assert_eq!(archived, last as usize - 1, "all but the last");
    assert_eq!(append_one_more(&store, session).await, last);

    fs::remove_file(&ballast).unwrap();
    store.compact().await.unwrap();
    assert_eq!(append_one_more(&store, session).await, last + 1, "it was worth closing");
    check_all_appended(&store, session).await;
}

/// As where the disk gets full right then.
#[tokio::test]
async fn a_last_segment_that_cannot_be_closed_keeps_no_other_from_its_archive() {
    let dir = tempfile::tempdir().unwrap();
    let (store, session) = store_worth_closing(dir.path()).await;
    let last = store.shared.state().end.segment;
    let next = dir.path().join(format!("log/{:08}.log", last + 1));
    fs::create_dir(&next).unwrap();
    assert_eq!(store.compact().await.unwrap().segments, last as usize - 1);
    fs::remove_dir(&next).unwrap();
    assert_eq!(append_one_more(&store, session).await, last + 1, "it goes on");
    check_all_appended(&store, session).await;
}
