//! Restores while others change the workspace, and of what is hard to change.

use std::time::Instant;

use std::os::unix::fs::MetadataExt;

use rustix::fs::IFlags;

use super::*;

impl Fixture {
    /// Restores with a change by somebody else, after the checkpoint before the restore.
    async fn restore_with_change(&self, of: &str, change: impl FnOnce(&Fixture)) -> RestoredFiles {
        self.capture("before-restore").await;
        let store = CheckpointStore::open(&self.store()).expect("the store opens");
        let scope = InnerPath::default();
        let plan = RestorePlan::new(&store, of, &scope).expect("the restore is planned");
        change(self);
        let tree = open_workspace(&self.checkpoints.dirs, self.session).expect("the workspace opens");
        let Checkpoints { config, writer, .. } = &*self.checkpoints;
        // Writers block, as everywhere else on a thread of their own.
        let restored = std::thread::scope(|scope| {
            let restore = || {
                let context = CaptureContext { tree: &tree, config, is_cancelled: &|| false, is_late: &|| false };
                plan.run(&RestoreTarget { writer, session: self.session }, context)
            };
            scope.spawn(restore).join()
        });
        restored.expect("no panic").expect("the restore comes to its end")
    }
}

fn failed_paths(restored: &RestoredFiles) -> Vec<&str> {
    restored.failed.iter().map(|failed| failed.path.text.as_str()).collect()
}

#[tokio::test]
async fn change_after_the_checkpoint_before_stays() {
    let fixture = Fixture::new();
    for path in ["edited", "same", "moved", "freed"] {
        fixture.write(path, "old\n");
    }
    fixture.capture("turn-1").await;
    for path in ["edited", "same", "moved", "added", "added-too"] {
        fixture.write(path, "new\n");
    }
    fixture.remove("freed");
    let restored = fixture.restore_with_change("turn-1", |fixture| {
        fixture.write("edited", "later\n");
        fixture.write("added", "later\n");
        fixture.write("freed", "later\n");
        let at = |path: &str| fixture.workspace().join(path);
        fs::rename(at("moved"), at("elsewhere")).expect("the file is moved");
        // The same content in another file loses nothing.
        fs::copy(at("same"), at("copy")).expect("the file is copied");
        fs::rename(at("copy"), at("same")).expect("the file is moved");
    });
    let restored = restored.await;
    assert_eq!(failed_paths(&restored), ["added", "edited", "freed"]);
    assert!(restored.failed.iter().all(|failed| failed.reason.contains("changed meanwhile")), "{restored:?}");
    assert_eq!((restored.restored, restored.removed), (2, 1));
    let texts = ["edited", "added", "freed", "same", "moved", "elsewhere"].map(|path| fixture.read(path));
    let expected = ["later\n", "later\n", "later\n", "old\n", "old\n", "new\n"];
    assert_eq!(texts.map(Option::unwrap_or_default), expected);
    assert!(!fixture.workspace().join("added-too").exists());
}

#[tokio::test]
async fn directory_that_becomes_a_link_is_not_followed() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).expect("the directory is created");
    fixture.write("dir/a", "old\n");
    fixture.write("dir/gone", "old\n");
    fixture.capture("turn-1").await;
    fixture.write("dir/a", "new\n");
    fixture.write("dir/added", "new\n");
    fixture.remove("dir/gone");
    for name in ["a", "added"] {
        fs::write(outside.join(name), "new\n").expect("the file is written");
    }
    let restored = fixture.restore_with_change("turn-1", |fixture| {
        let dir = fixture.workspace().join("dir");
        fs::rename(&dir, fixture.workspace().join("away")).expect("the directory is moved");
        std::os::unix::fs::symlink(&outside, &dir).expect("the link is created");
    });
    let restored = restored.await;
    assert_eq!(failed_paths(&restored), ["dir/added", "dir/a", "dir/gone"]);
    for name in ["a", "added"] {
        assert_eq!(fs::read(outside.join(name)).expect("the file is there"), b"new\n");
    }
    assert!(!outside.join("gone").exists());
}

#[tokio::test]
async fn other_name_outside_of_the_workspace_keeps_its_content() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    fixture.write("a", "old\n");
    fixture.capture("turn-1").await;
    fs::write(&outside, "new\n").expect("the file is written");
    fixture.remove("a");
    fs::hard_link(&outside, fixture.workspace().join("a")).expect("the name is added");
    fs::hard_link(&outside, fixture.workspace().join("added")).expect("the name is added");
    let done = fixture.restore("turn-1", None).await.expect("the workspace is restored");
    assert_eq!(done.files, RestoredFiles { restored: 1, removed: 1, failed: Vec::new() });
    assert_eq!(fs::read(&outside).expect("the file is there"), b"new\n");
    assert_eq!(fs::metadata(&outside).expect("the file is there").nlink(), 1);
    assert_eq!(fixture.read("a").as_deref(), Some("old\n"));
}

#[tokio::test]
async fn kinds_of_entries_change_in_both_directions() {
    let fixture = Fixture::new();
    fixture.write("dir/a", "a\n");
    fixture.write("file", "file\n");
    std::os::unix::fs::symlink("file", fixture.workspace().join("link")).expect("the link is created");
    fixture.capture("turn-1").await;
    fs::remove_dir_all(fixture.workspace().join("dir")).expect("the directory is removed");
    fixture.write("dir", "a file\n");
    fixture.remove("file");
    fixture.write("file/b", "b\n");
    fs::create_dir(fixture.workspace().join("file/empty")).expect("the directory is created");
    fixture.remove("link");
    fixture.write("link", "text\n");
    fixture.capture("turn-2").await;
    let done = fixture.restore("turn-1", None).await.expect("the workspace is restored");
    // An empty directory is no content, but only the outermost one makes way.
    assert_eq!(failed_paths(&done.files), ["file"]);
    fs::remove_dir(fixture.workspace().join("file/empty")).expect("the directory is empty");
    let done = fixture.restore("turn-1", None).await.expect("the workspace is restored");
    assert_eq!(done.files, RestoredFiles { restored: 1, removed: 0, failed: Vec::new() });
    assert_eq!(in_words(&fixture.diff("turn-1", "now").await), [""; 0]);
    fixture.restore("turn-2", None).await.expect("the workspace is restored");
    assert_eq!(in_words(&fixture.diff("turn-2", "now").await), [""; 0]);
}

#[tokio::test]
async fn wanted_checkpoint_survives_the_one_before() {
    let fixture = Fixture::with(|config| config.keep = 3);
    for turn in 1..=3 {
        fixture.write("a", format!("{turn}\n"));
        fixture.capture(&format!("turn-{turn}")).await;
    }
    fixture.write("a", "4\n");
    fixture.restore("turn-2", None).await.expect("the checkpoint is kept until then");
    assert_eq!(fixture.read("a").as_deref(), Some("2\n"));
}

#[tokio::test]
async fn unknown_path_and_checkpoint_change_nothing() {
    let fixture = Fixture::new();
    fixture.write("a", "old\n");
    fixture.capture("turn-1").await;
    fixture.write("a", "new\n");
    let error = fixture.restore("turn-1", Some("b")).await.expect_err("there is no such file").to_string();
    assert!(error.starts_with("checkpoint `turn-1` has no file `b`; `GET"), "{error}");
    let error = fixture.restore("turn-9", None).await.expect_err("there is no such checkpoint").to_string();
    assert!(error.contains("`turn-9`") && error.contains("lists those that are kept"), "{error}");
    assert_eq!(fixture.read("a").as_deref(), Some("new\n"));
}

#[tokio::test]
async fn file_that_nobody_may_change_is_named() {
    let fixture = Fixture::new();
    fixture.write("a", "old\n");
    fixture.write("b", "old\n");
    fixture.capture("turn-1").await;
    fixture.write("a", "new\n");
    fixture.write("b", "new\n");
    let file = fs::File::open(fixture.workspace().join("a")).expect("the file opens");
    if rustix::fs::ioctl_setflags(&file, IFlags::IMMUTABLE).is_err() {
        eprintln!("skipped: the file system has no immutable files, or the test no right to make them");
        return;
    }
    let done = fixture.restore("turn-1", None).await;
    rustix::fs::ioctl_setflags(&file, IFlags::empty()).expect("the mark is removed");
    let done = done.expect("the rest is restored");
    assert_eq!(failed_paths(&done.files), ["a"]);
    assert!(done.files.failed[0].reason.contains("cannot be accessed"), "{done:?}");
    assert_eq!(fixture.read("b").as_deref(), Some("old\n"));
}

/// Takes some seconds.
#[tokio::test]
#[ignore = "slow: prints the time of a restore"]
async fn thousand_files_are_restored() {
    let fixture = Fixture::new();
    for name in 0..1_000 {
        fixture.write(&format!("{}/{name}", name % 20), format!("{name}\n").repeat(100));
    }
    fixture.capture("turn-1").await;
    for name in 0..1_000 {
        fixture.write(&format!("{}/{name}", name % 20), format!("new {name}\n"));
    }
    let began = Instant::now();
    let done = fixture.restore("turn-1", None).await.expect("the workspace is restored");
    eprintln!("restored {} files in {:?}", done.files.restored, began.elapsed());
    assert_eq!(done.files.restored, 1_000);
}
