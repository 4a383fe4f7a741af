//! A full disk: appends are refused, reads work, and it goes on when there is room.

use std::process::Command;

use super::*;

/// A small file system of its own; `None` where nobody may mount one.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(dir.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Small(dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[tokio::test]
async fn a_full_disk_refuses_appends_and_recovers() {
    let Some(disk) = Small::mount() else {
        eprintln!("skipped: a small file system can be mounted by root only");
        return;
    };
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
        matches!(&refused, AppendError::Refused(error) if error.kind() == std::io::ErrorKind::StorageFull),
        "{refused}"
    );
    let pipelined = [0, 50].map(|more| store.append(session, epoch, at + more, events(session, at + more, 50)));
    for answer in futures::future::join_all(pipelined).await {
        assert!(matches!(answer, Err(AppendError::Refused(_) | AppendError::Conflict { .. })), "{answer:?}");
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
