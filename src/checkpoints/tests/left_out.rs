//! Entries that a scan does not see are unknown, and never deleted.

use std::os::unix::fs::symlink;

use super::*;
use crate::checkpoints::{
    entry::FileIndex,
    scan::{ContentSink, ScannedWorkspace, WorkspaceScan},
};

/// Sink for a scan whose contents do not matter.
struct AnyContent;

impl ContentSink for AnyContent {
    fn admits(&mut self, _: u64) -> Result<bool, CheckpointError> {
        Ok(true)
    }

    fn has(&self, _: &entry::ContentHash) -> bool {
        true
    }

    fn add(&mut self, _: entry::ContentHash, _: &[u8]) -> Result<(), CheckpointError> {
        Ok(())
    }
}

impl Fixture {
    /// Scans the workspace as a user without privileges.
    fn scan_as_nobody(&self, known: &FileIndex) -> ScannedWorkspace {
        let tree = open_workspace(&self.checkpoints.dirs, self.session).expect("the workspace opens");
        let config = &self.checkpoints.config;
        let scan = || {
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65_534)).expect("root may become nobody");
            }
            WorkspaceScan { tree: &tree, config, known, is_cancelled: &|| false }.run(&mut AnyContent)
        };
        std::thread::scope(|scope| scope.spawn(scan).join()).expect("no panic").expect("the workspace is scanned")
    }

    async fn left_out_of(&self, checkpoint: &str) -> Vec<(String, LeftOutReason)> {
        let list = self.checkpoints.list(self.session).await.expect("the store is readable");
        let item = list.items.into_iter().find(|item| item.checkpoint == checkpoint).expect("it is listed");
        item.left_out.into_iter().map(|entry| (entry.path, entry.reason)).collect()
    }
}

#[tokio::test]
async fn unreadable_directory_is_not_deleted() {
    let fixture = Fixture::new();
    for path in ["closed/deep/a", "unsearchable/b", "gone/c"] {
        fixture.write(path, "x\n");
    }
    fixture.capture("turn-1").await;
    let index = CheckpointStore::open(&fixture.store()).expect("the store opens").latest_index();
    let known = index.expect("the index is intact");
    fs::remove_dir_all(fixture.workspace().join("gone")).expect("the directory is removed");
    for (path, mode) in [("closed", 0o000), ("unsearchable", 0o744)] {
        let path = fixture.workspace().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is changed");
    }
    let scanned = fixture.scan_as_nobody(&known);
    let names: Vec<String> = scanned.index.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["closed/deep/a", "unsearchable/b"]);
    assert_eq!(scanned.files, 0);
    let mut left_out: Vec<_> = scanned.left_out.iter().map(|entry| (entry.path.as_str(), entry.reason)).collect();
    left_out.sort_unstable_by_key(|(path, _)| *path);
    let unreadable = LeftOutReason::Unreadable;
    assert_eq!(left_out, [("closed", unreadable), ("unsearchable", unreadable)]);
}

#[tokio::test]
async fn limit_deletes_nothing() {
    let fixture = Fixture::new();
    for name in 0..40 {
        fixture.write(&format!("{}/{name:02}", name % 4), format!("{name}\n"));
    }
    fixture.capture("turn-1").await;
    // The first limit ends the scan early. The second one does not, so it shows the new names.
    for (max_files, removed) in [(3, 0), (20, 1)] {
        let name = format!("limit-{max_files}");
        let limited = fixture.reopened_with(|config| config.max_files = max_files);
        assert!(limited.capture(&name).await.observations().is_empty());
        assert_eq!(in_words(&limited.diff("turn-1", "now").await), [""; 0]);
        assert!(limited.left_out_of(&name).await.iter().all(|(_, reason)| *reason == LeftOutReason::Limit));
        limited.write("new", "x\n");
        let done = limited.restore(&name, None).await.expect("the workspace is restored");
        assert_eq!(done.files, RestoredFiles { removed, ..RestoredFiles::default() });
        if removed == 0 {
            assert_eq!(limited.read("new").as_deref(), Some("x\n"), "the checkpoint did not see all files");
            limited.remove("new");
        }
        // The next limit begins without the added file.
        fixture.capture(&format!("after-{name}")).await;
    }
    assert_eq!(fs::read_dir(fixture.workspace().join("0")).expect("a directory").count(), 10);
}

#[tokio::test]
async fn file_that_is_left_out_is_neither_deleted_nor_old() {
    let fixture = Fixture::with(|config| config.max_file = bytesize::ByteSize::b(18));
    for path in ["grown", "ignored", "special", "dir/f"] {
        fixture.write(path, "small\n");
    }
    fixture.capture("turn-1").await;
    fixture.write("grown", "large and only here\n");
    fixture.remove("special");
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.workspace().join("special"), rustix::fs::Mode::RWXU).expect("a FIFO");
    fixture.write("ignored", "new\n");
    fixture.write(".gitignore", "/ignored\n/dir\n");
    fixture.write("dir/g", "only here\n");
    fixture.capture("turn-2").await;
    assert_eq!(in_words(&fixture.diff("turn-1", "turn-2").await), ["created .gitignore +2 -0"]);
    fixture.file("turn-2", "grown").await.expect_err("the checkpoint does not know it");

    let done = fixture.restore("turn-1", None).await.expect("the rest is restored");
    assert_eq!((done.files.restored, done.files.removed), (0, 1));
    let failed: Vec<_> = done.files.failed.iter().map(|failed| failed.path.text.as_str()).collect();
    assert_eq!(failed, ["grown", "ignored", "special"]);
    let left = ["grown", "ignored", "dir/g"].map(|path| fixture.read(path).unwrap_or_default());
    assert_eq!(left, ["large and only here\n", "new\n", "only here\n"]);

    // A left-out file that is gone is deleted.
    fixture.write(".gitignore", "/ignored\n/dir\n");
    fixture.capture("turn-3").await;
    fixture.remove("grown");
    fs::remove_dir_all(fixture.workspace().join("dir")).expect("the directory is removed");
    fixture.capture("turn-4").await;
    let deleted = ["deleted dir/f +0 -1", "deleted dir/g +0 -1", "deleted grown +0 -1"];
    assert_eq!(in_words(&fixture.diff("turn-3", "turn-4").await), deleted);
}

#[tokio::test]
async fn restore_keeps_what_the_checkpoint_has_left_out() {
    let fixture = Fixture::new();
    fixture.write(".gitignore", "*.log\n/build/\n");
    for name in 0..300 {
        fixture.write(&format!("{name:03}.log"), "x\n");
    }
    fixture.write("build/deep/out", "x\n");
    fixture.capture("turn-1").await;
    fixture.remove(".gitignore");
    fixture.write("added", "x\n");
    fixture.capture("turn-2").await;
    // Nobody created or deleted these files.
    let words = in_words(&fixture.diff("turn-1", "turn-2").await);
    assert_eq!(words, ["deleted .gitignore +0 -2", "created added +1 -0"]);
    let back = ["created .gitignore +2 -0", "deleted added +0 -1"];
    assert_eq!(in_words(&fixture.diff("turn-2", "turn-1").await), back);
    let done = fixture.restore("turn-1", None).await.expect("the workspace is restored");
    assert_eq!(done.files, RestoredFiles { restored: 1, removed: 1, failed: Vec::new() });
    assert!(fixture.workspace().join("build/deep/out").exists());
    assert_eq!(fs::read_dir(fixture.workspace()).expect("a directory").count(), 302);
}

#[tokio::test]
async fn link_in_place_of_a_directory_is_seen() {
    let fixture = Fixture::new();
    fixture.write("dir/f", "x\n");
    fixture.capture("turn-1").await;
    fs::remove_dir_all(fixture.workspace().join("dir")).expect("the directory is removed");
    symlink("/etc", fixture.workspace().join("dir")).expect("the link is created");
    let words = in_words(&fixture.diff("turn-1", "now").await);
    assert_eq!(words, ["created dir +1 -0", "deleted dir/f +0 -1"]);
}
