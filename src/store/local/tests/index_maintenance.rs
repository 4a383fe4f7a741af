//! Test of an index that can be neither written nor rebuilt for a while: no location is lost.

use std::{fs::File, os::fd::AsRawFd};

use super::*;

/// Makes the disk full for the index of this store, and for no other file.
fn fill_up_index(dir: &Path) {
    let db = dir.join("index/db").canonicalize().unwrap();
    let full = File::options().read(true).write(true).open("/dev/full").unwrap();
    let mut found = 0;
    for fd in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if fs::read_link(fd.path()).is_ok_and(|path| path == db) {
            let fd = fd.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: sled's descriptor stays valid for reading and writing; only the file behind
            // it changes.
            assert_eq!(unsafe { libc::dup2(full.as_raw_fd(), fd) }, fd);
            found += 1;
        }
    }
    assert!(found > 0, "sled has its file open");
}

#[tokio::test]
async fn index_that_fails_twice_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let (session, gone) = (fill(&store, "a", 30).await, fill(&store, "gone", 3).await);
    store.shared.flush_index().unwrap();
    let (epoch, _) = store.claim(session).await.unwrap();
    let append = |at| store.append(session, epoch, at, events(session, at, 10));
    append(30).await.unwrap();
    rename(&store, (session, epoch, 40), "renamed").await;
    store.forget(gone, 1).await.unwrap();
    let check = |what: &str, tail| check_whole(&store, session, tail, what);

    fill_up_index(dir.path());
    let (log, aside) = (dir.path().join("log/00000001.log"), dir.path().join("aside"));
    fs::rename(&log, &aside).unwrap();
    fs::create_dir(&log).unwrap();
    store.shared.segments.evict(1);
    store.shared.flush_index().expect_err("neither the index nor the log is usable");
    fs::remove_dir(&log).unwrap();
    fs::rename(&aside, &log).unwrap();
    store.shared.segments.evict(1);

    check("after the failure", 40);
    append(40).await.unwrap();
    check("beside newer events", 50);
    store.shared.flush_index().expect("the log can be read again");
    check("with an index in memory", 50);
    drop(store);
    let store = LocalStore::open(dir.path()).unwrap();
    check_whole(&store, session, 50, "after a restart");
    assert_eq!(store.get(session).await.unwrap().unwrap().record.title, "renamed");
    assert_eq!(store.get(gone).await.unwrap(), None);
}
