//! Workspaces of an agent that wants more than its workspace.

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use super::*;

#[tokio::test]
async fn no_link_is_followed() {
    let fixture = Fixture::new();
    let secret = fixture.dir.path().join("secret");
    fs::create_dir(&secret).expect("the directory is created");
    fs::write(secret.join("key"), "secret\n").expect("the file is written");
    symlink(&secret, fixture.workspace().join("dir")).expect("the link is created");
    symlink(secret.join("key"), fixture.workspace().join("key")).expect("the link is created");
    symlink(secret.join("key"), fixture.workspace().join(".gitignore")).expect("the link is created");
    fixture.capture("turn-1").await;
    let diff = fixture.diff("start", "turn-1").await;
    let modes: Vec<_> = diff.files.iter().map(|file| (file.path.text.as_str(), file.new_mode)).collect();
    assert_eq!(modes, [(".gitignore", Some("120000")), ("dir", Some("120000")), ("key", Some("120000"))]);
    assert!(diff.files.iter().all(|file| !file.diff.as_deref().unwrap_or_default().contains("+secret")));
}

#[tokio::test]
async fn restore_writes_through_no_link() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).expect("the directory is created");
    fixture.write("dir/file", "inside\n");
    fixture.capture("turn-1").await;
    fs::remove_dir_all(fixture.workspace().join("dir")).expect("the directory is removed");
    symlink(&outside, fixture.workspace().join("dir")).expect("the link is created");
    let done = fixture.restore("turn-1", None).await.expect("the restore ends");
    assert_eq!(done.files.failed, []);
    assert_eq!(fs::read_dir(&outside).expect("the directory is readable").count(), 0);
    assert_eq!(fixture.read("dir/file").as_deref(), Some("inside\n"), "the link made way");
}

/// A configuration of git could name programs. The stores have no trace of any file of `.git`.
#[tokio::test]
async fn own_repository_is_recorded_and_never_used() {
    let fixture = Fixture::new();
    let marker = fixture.dir.path().join("ran");
    let program = format!("touch {}", marker.display());
    fixture.write(".git/HEAD", "ref: refs/heads/main\n");
    fixture.write(".git/refs/heads/main", "1111111111111111111111111111111111111111\n");
    fixture.write(".git/packed-refs", "# pack-refs\n2222222222222222222222222222222222222222 refs/tags/v1\n");
    fixture.write(
        ".git/config",
        format!("[core]\n\tfsmonitor = {program}\n\thooksPath = hooks\n[filter \"x\"]\n\tclean = {program}\n"),
    );
    fixture.write(".git/hooks/post-checkout", format!("#!/bin/sh\n{program}\n"));
    fixture.write(".gitattributes", "* filter=x\n");
    fixture.write(".gitmodules", format!("[submodule \"s\"]\n\turl = ext::{program}\n"));
    symlink("/etc/passwd", fixture.workspace().join(".git/refs/heads/evil")).expect("the link is created");
    fixture.write("nested/.git/config", "[core]\n");
    fixture.capture("turn-1").await;
    let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
    assert_eq!(list.items[0].head.as_deref(), Some("ref: refs/heads/main"));
    let store = CheckpointStore::open(&fixture.store()).expect("the store opens");
    let git = store.latest().and_then(|record| record.git.clone()).expect("refs are recorded");
    let refs: Vec<_> = git.refs.iter().map(|(name, id)| (name.as_str(), &id[..1])).collect();
    assert_eq!(refs, [("refs/heads/main", "1"), ("refs/tags/v1", "2")]);
    let captured = in_words(&fixture.diff("start", "now").await);
    let names: Vec<_> = captured.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(names, [".gitattributes", ".gitmodules", "nested/.git/config"]);
    fixture.restore("turn-1", None).await.expect("the workspace is restored");
    assert!(!marker.exists(), "no program of the workspace ran");
    assert!(fixture.read(".git/config").is_some(), "a restore leaves the repository alone");
}

#[tokio::test]
async fn links_in_place_of_git_are_not_read() {
    let fixture = Fixture::new();
    let elsewhere = fixture.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("the directory is created");
    fs::write(elsewhere.join("HEAD"), "secret\n").expect("the file is written");
    symlink(&elsewhere, fixture.workspace().join(".git")).expect("the link is created");
    fixture.capture("turn-1").await;
    let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
    assert_eq!(list.items[0].head, None);
    fixture.remove(".git");
    fs::create_dir(fixture.workspace().join(".git")).expect("the directory is created");
    symlink(elsewhere.join("HEAD"), fixture.workspace().join(".git/HEAD")).expect("the link is created");
    fixture.capture("turn-2").await;
    let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
    assert_eq!(list.items[1].head, None);
}

#[tokio::test]
async fn any_name_comes_back() {
    let fixture = Fixture::new();
    let names = [&b"a\xff\n%41"[..], b"\x1b]52;c", b"-rf", b"\\..\\x", "ä ö".as_bytes(), b"\"q\"", b"{}"];
    for name in names {
        fs::write(fixture.workspace().join(OsStr::from_bytes(name)), name).expect("the file is written");
    }
    fixture.capture("turn-1").await;
    for name in names {
        fs::remove_file(fixture.workspace().join(OsStr::from_bytes(name))).expect("the file is removed");
    }
    let done = fixture.restore("turn-1", None).await.expect("the workspace is restored");
    assert_eq!((done.files.restored, done.files.failed), (names.len() as u64, Vec::new()));
    for name in names {
        let content = fs::read(fixture.workspace().join(OsStr::from_bytes(name)));
        assert_eq!(content.expect("the file is back"), name);
    }
}

#[tokio::test]
async fn files_beyond_the_limit_are_left_out() {
    let fixture = Fixture::with(|config| config.max_files = 3);
    for name in 0..20 {
        fixture.write(&format!("d/{name:02}"), "x");
    }
    fixture.capture("turn-1").await;
    let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
    assert_eq!(list.items[0].files, 3);
    assert!(list.items[0].left_out.iter().all(|entry| entry.reason == LeftOutReason::Limit));
    assert!(!list.items[0].left_out.is_empty());
}

#[tokio::test]
async fn hostile_gitignore_is_bounded() {
    let fixture = Fixture::new();
    // More than is read, lines that are no patterns, and patterns that are expensive elsewhere.
    let slow = "**/*a*a*a*a*a*a*a*a*a*a*a*b/**\n(a+)+$\n[z-a]\n\\\n!\n{a,b}{a,b}{a,b}\n".repeat(100_000);
    fixture.write(".gitignore", slow);
    fixture.write("sub/.gitignore", [0xff; 70_000]);
    fixture.write(&"a".repeat(200), "x\n");
    fixture.write("sub/file", "x\n");
    let taken = fixture.capture("turn-1").await.observations();
    let Some(ObservationKind::Checkpoint(checkpoint)) = taken.first() else { panic!("{taken:?}") };
    assert_eq!(checkpoint.files, 4, "the large `.gitignore` has a size that checkpoints take");
}

/// The kernel accepts paths of 4,095 bytes, and directories can be nested deeper.
#[tokio::test]
async fn deep_directories_are_read_as_far_as_paths_go() {
    let fixture = Fixture::new();
    fixture.write(&format!("{}f", "d/".repeat(1_000)), "deep\n");
    let name = "n".repeat(250);
    let mut dir = fs::File::open(fixture.workspace()).expect("the workspace opens");
    for _ in 0..20 {
        rustix::fs::mkdirat(&dir, &name, rustix::fs::Mode::RWXU).expect("the directory is created");
        let flags = rustix::fs::OFlags::DIRECTORY;
        dir = rustix::fs::openat(&dir, &name, flags, rustix::fs::Mode::empty()).expect("the directory opens").into();
    }
    fixture.capture("turn-1").await;
    let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
    assert_eq!(list.items[0].files, 1);
    assert_eq!(list.items[0].left_out[0].reason, LeftOutReason::Limit);
    fs::remove_dir_all(fixture.workspace().join("d")).expect("the directories are removed");
    let done = fixture.restore("turn-1", None).await.expect("the workspace is restored");
    assert_eq!((done.files.restored, done.files.failed), (1, Vec::new()));
    assert_eq!(fixture.read(&format!("{}f", "d/".repeat(1_000))).as_deref(), Some("deep\n"));
}

#[tokio::test]
async fn file_that_grows_all_the_time_ends_no_capture() {
    let fixture = Fixture::with(|config| config.max_file = bytesize::ByteSize::kib(64));
    fixture.write("growing", "");
    let path = fixture.workspace().join("growing");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let mut file = fs::OpenOptions::new().append(true).open(path).expect("the file opens");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && file.metadata().is_ok_and(|m| m.len() < 1 << 30) {
                std::io::Write::write_all(&mut file, &[b'x'; 4096]).expect("the file is written");
            }
        }
    });
    for turn in 0..20 {
        fixture.capture(&format!("turn-{turn}")).await;
        fixture.diff("start", "now").await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().expect("the writer ends");
    fixture.capture("last").await;
    let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
    let last = list.items.last().expect("it is listed");
    assert_eq!(last.left_out.first().map(|entry| entry.reason), Some(LeftOutReason::TooLarge));
}

#[tokio::test]
async fn sockets_and_devices_are_not_opened() {
    let fixture = Fixture::new();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.workspace().join("socket")).expect("a socket");
    let device = rustix::fs::mknodat(
        rustix::fs::CWD,
        fixture.workspace().join("device"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::RWXU,
        rustix::fs::makedev(1, 5),
    );
    fixture.capture("turn-1").await;
    let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
    let expected = if device.is_ok() { 2 } else { 1 };
    assert_eq!((list.items[0].files, list.items[0].left_out.len()), (0, expected));
    assert!(list.items[0].left_out.iter().all(|entry| entry.reason == LeftOutReason::Special));
}

/// Takes half a minute.
#[tokio::test]
#[ignore = "slow: 100,000 files"]
async fn hundred_thousand_files_are_captured_and_restored() {
    let fixture = Fixture::new();
    for name in 0..100_000 {
        fixture.write(&format!("{}/{name}", name % 100), format!("{name}\n"));
    }
    fixture.capture("turn-1").await;
    fixture.write("5/5", "changed\n");
    fixture.capture("turn-2").await;
    assert_eq!(in_words(&fixture.diff("turn-1", "turn-2").await), ["modified 5/5 +1 -1"]);
    fixture.restore("turn-1", Some("5/5")).await.expect("the file is restored");
    assert_eq!(fixture.read("5/5").as_deref(), Some("5\n"));
}
