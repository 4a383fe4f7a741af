//! Contract of checkpoints, with real workspaces and, for patches, the real git.

mod damage;
mod fork;
mod hostile;
mod left_out;
mod moves;
mod patches;
mod restores;
mod retention;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use greenroom_protocol::{ObservationKind, checkpoint::LeftOutReason};

use super::{
    store::{CheckpointStore, StartState},
    *,
};
use crate::{
    config::Config,
    files::{PathForm, WorkspaceFiles},
};

/// Workspace of one session, and its checkpoints.
struct Fixture {
    dir: tempfile::TempDir,
    session: SessionId,
    checkpoints: Arc<Checkpoints>,
}

/// Restore that came to its end.
#[derive(Debug)]
struct RestoredAll {
    files: RestoredFiles,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut CheckpointsConfig)) -> Fixture {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let session = SessionId::generate();
        fs::create_dir_all(dir.path().join("w").join(session.to_string())).expect("the workspace is created");
        let mut config = Config::with_data_dir(dir.path()).checkpoints;
        change(&mut config);
        let checkpoints = open(dir.path(), config);
        let fixture = Fixture { dir, session, checkpoints };
        fixture.mark_start(StartState::Empty);
        fixture
    }

    /// Records the state of the workspace before the first turn.
    fn mark_start(&self, start: StartState) {
        let mut store = CheckpointStore::open(&self.store()).expect("the store opens");
        store.record_start(start).expect("the file is written");
    }

    /// Returns the checkpoints as another server opens them.
    fn reopened(&self) -> Fixture {
        self.reopened_with(|_| {})
    }

    /// Returns the checkpoints as another server opens them, with another configuration.
    fn reopened_with(&self, change: impl FnOnce(&mut CheckpointsConfig)) -> Fixture {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut config = self.checkpoints.config.clone();
        change(&mut config);
        let checkpoints = open(self.dir.path(), config);
        Fixture { dir, session: self.session, checkpoints }
    }

    fn workspace(&self) -> PathBuf {
        self.checkpoints.dirs.root.join(self.session.to_string())
    }

    fn store(&self) -> PathBuf {
        self.checkpoints.store_dir(self.session)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().expect("a file has a parent")).expect("the directory is created");
        fs::write(path, content).expect("the file is written");
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.workspace().join(path)).ok()
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.workspace().join(path)).expect("the file is removed");
    }

    async fn capture(&self, name: &str) -> TakenCheckpoint {
        self.try_capture(name).await.expect("the workspace is captured")
    }

    async fn try_capture(&self, name: &str) -> Result<TakenCheckpoint, CheckpointError> {
        self.checkpoints.capture(self.session, name.to_owned(), CheckpointKind::Turn, false).await
    }

    async fn diff(&self, from: &str, to: &str) -> WorkspaceDiff {
        self.checkpoints.diff(self.session, range(from, to)).await.expect("the points are compared")
    }

    async fn restore(&self, of: &str, path: Option<&str>) -> Result<RestoredAll, CheckpointError> {
        let scope = path.map(|path| InnerPath::parse(path, PathForm::Plain).expect("a valid path"));
        let names: Vec<String> = self.names().await;
        let request = RestoreRequest {
            of: of.to_owned(),
            name: format!("restore-{}", names.len()),
            before: format!("before-restore-{}", names.len()),
            scope: scope.unwrap_or_default(),
        };
        let CompletedRestore { files, .. } = self.checkpoints.restore(self.session, request).await?;
        Ok(RestoredAll { files: files? })
    }

    async fn file(&self, checkpoint: &str, path: &str) -> Result<Vec<u8>, CheckpointError> {
        let path = InnerPath::parse(path, PathForm::Plain).expect("a valid path");
        self.checkpoints.file(self.session, checkpoint.to_owned(), path).await
    }

    async fn names(&self) -> Vec<String> {
        let list = self.checkpoints.list(self.session).await.expect("the store is readable");
        list.items.into_iter().map(|item| item.checkpoint).collect()
    }
}

fn open(dir: &Path, config: CheckpointsConfig) -> Arc<Checkpoints> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let dirs = WorkspaceDirs { root: dir.join("w"), shared: None, uid, gid };
    let files = WorkspaceFiles::open(dirs.clone(), dir.join("u")).expect("the directory is created");
    Checkpoints::new(dirs, dir.join("c"), config, files.writer())
}

fn range(from: &str, to: &str) -> DiffRange {
    DiffRange { from: from.to_owned(), to: to.to_owned(), scope: InnerPath::default() }
}

/// Describes the files of a diff, one in a line.
fn in_words(diff: &WorkspaceDiff) -> Vec<String> {
    let line = |file: &DiffedFile| {
        let change = format!("{:?}", file.change).to_lowercase();
        let from = file.from.as_ref().map(|from| format!(" from {}", from.text)).unwrap_or_default();
        let counts =
            file.added.zip(file.removed).map_or("binary".to_owned(), |(added, removed)| format!("+{added} -{removed}"));
        format!("{change} {}{from} {counts}", file.path.text)
    };
    diff.files.iter().map(line).collect()
}

#[tokio::test]
async fn each_turn_has_a_checkpoint_and_any_two_compare() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one\n");
    fixture.write("dir/b.txt", "b\n");
    fixture.capture("turn-1").await;
    fixture.write("a.txt", "one\ntwo\n");
    fixture.remove("dir/b.txt");
    fixture.write("dir/c.bin", [0, 1, 2]);
    let taken = fixture.capture("turn-2").await.observations();
    let [ObservationKind::Checkpoint(checkpoint), ObservationKind::Changes(changes)] = &taken[..] else {
        panic!("a changed turn has two observations: {taken:?}")
    };
    assert_eq!((checkpoint.files, checkpoint.bytes, checkpoint.partial), (2, 11, false));
    assert_eq!((changes.since.as_str(), changes.added, changes.removed), ("turn-1", 1, 1));
    assert!(fixture.capture("turn-3").await.observations().is_empty(), "nothing changed");
    fixture.write("now.txt", "now\n");

    let check = async |from: &str, to: &str, expected: &[&str]| {
        assert_eq!(in_words(&fixture.diff(from, to).await), expected, "{from}..{to}");
    };
    check("start", "turn-1", &["created a.txt +1 -0", "created dir/b.txt +1 -0"]).await;
    let second = ["modified a.txt +1 -0", "deleted dir/b.txt +0 -1", "created dir/c.bin binary"];
    check("turn-1", "turn-2", &second).await;
    check("turn-1", "turn-3", &second).await;
    check("turn-2", "turn-1", &["modified a.txt +0 -1", "created dir/b.txt +1 -0", "deleted dir/c.bin binary"]).await;
    check("turn-2", "turn-3", &[]).await;
    check("turn-3", "now", &["created now.txt +1 -0"]).await;
    check("start", "now", &["created a.txt +2 -0", "created dir/c.bin binary", "created now.txt +1 -0"]).await;
    let diff = fixture.diff("turn-1", "turn-2").await;
    assert_eq!(diff.files[0].diff.as_deref(), Some("@@ -1,1 +1,2 @@\n one\n+two\n"));
    assert_eq!(fixture.file("turn-1", "dir/b.txt").await.expect("the file is kept"), b"b\n");
    fixture.file("turn-2", "dir/b.txt").await.expect_err("the checkpoint has no such file");
    fixture.file("turn-9", "a.txt").await.expect_err("there is no such checkpoint");
}

#[tokio::test]
async fn scope_limits_a_diff_to_a_directory() {
    let fixture = Fixture::new();
    fixture.write("a/x", "x\n");
    fixture.write("ab", "x2\n");
    fixture.capture("turn-1").await;
    let scope = InnerPath::parse("a", PathForm::Plain).expect("a valid path");
    let diff = fixture.checkpoints.diff(fixture.session, DiffRange { scope, ..range("start", "now") }).await;
    assert_eq!(in_words(&diff.expect("the points are compared")), ["created a/x +1 -0"]);
}

#[tokio::test]
async fn moved_file_names_its_old_path() {
    let fixture = Fixture::new();
    fixture.write("old.txt", "text\n");
    fixture.capture("turn-1").await;
    fs::rename(fixture.workspace().join("old.txt"), fixture.workspace().join("new.txt")).expect("the file is moved");
    assert_eq!(in_words(&fixture.diff("turn-1", "now").await), ["moved new.txt from old.txt +0 -0"]);
}

#[tokio::test]
async fn ignored_large_and_special_files_are_left_out_by_name() {
    let fixture = Fixture::with(|config| config.max_file = bytesize::ByteSize::b(20));
    fixture.write(".gitignore", "*.log\n!kept.log\n");
    fixture.write("sub/.gitignore", "/only\n");
    for path in ["a.log", "kept.log", "sub/only", "sub/deep/only", "node_modules/m/i.js", "target/debug/x"] {
        fixture.write(path, "x");
    }
    fixture.write("large", "x".repeat(21));
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.workspace().join("fifo"), rustix::fs::Mode::RWXU).expect("a FIFO");
    fixture.capture("turn-1").await;
    let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
    let mut left_out: Vec<_> = list.items[0].left_out.iter().map(|entry| (entry.path.as_str(), entry.reason)).collect();
    left_out.sort_unstable_by_key(|(path, _)| *path);
    let expected = [
        ("a.log", LeftOutReason::Ignored),
        ("fifo", LeftOutReason::Special),
        ("large", LeftOutReason::TooLarge),
        ("node_modules", LeftOutReason::Ignored),
        ("sub/only", LeftOutReason::Ignored),
        ("target", LeftOutReason::Ignored),
    ];
    assert_eq!(left_out, expected);
    let captured = in_words(&fixture.diff("start", "turn-1").await);
    let names: Vec<_> = captured.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(names, [".gitignore", "kept.log", "sub/.gitignore", "sub/deep/only"]);
}

#[tokio::test]
async fn unchanged_file_is_not_read_again() {
    let fixture = Fixture::new();
    fixture.write("a", "a\n");
    fixture.capture("turn-1").await;
    let stamps = || {
        let index = CheckpointStore::open(&fixture.store()).expect("the store opens").latest_index();
        index.expect("the index is intact").into_values().map(|file| file.stamp).collect::<Vec<_>>()
    };
    // A file that has just changed has no stamp yet.
    let mut turn = 2;
    while stamps().contains(&None) {
        fixture.capture(&format!("turn-{turn}")).await;
        turn += 1;
    }
    let packs = || {
        let names = fs::read_dir(fixture.store()).expect("the store is readable").flatten();
        names.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "pack")).count()
    };
    assert_eq!(packs(), 1, "later captures have stored no content");
}

#[tokio::test]
async fn restore_goes_back_and_can_be_taken_back() {
    let fixture = Fixture::new();
    fixture.write("a", "old\n");
    fixture.write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(fixture.workspace().join("run.sh"), fs::Permissions::from_mode(0o755))
        .expect("it is executable");
    std::os::unix::fs::symlink("a", fixture.workspace().join("link")).expect("the link is created");
    fixture.write("node_modules/x", "left out\n");
    fixture.capture("turn-1").await;
    fixture.write("a", "new\n");
    fixture.remove("run.sh");
    fixture.remove("link");
    fixture.write("added/b", "b\n");
    let done = fixture.restore("turn-1", None).await.expect("the workspace is restored");
    let expected = RestoredFiles { restored: 3, removed: 1, failed: Vec::new() };
    assert_eq!(done.files, expected);
    assert_eq!(fixture.read("a").as_deref(), Some("old\n"));
    assert_eq!(fixture.read("node_modules/x").as_deref(), Some("left out\n"));
    assert!(!fixture.workspace().join("added").exists(), "the emptied directory is gone");
    assert_eq!(fs::read_link(fixture.workspace().join("link")).expect("the link is back"), Path::new("a"));
    let mode = fs::metadata(fixture.workspace().join("run.sh")).expect("the file is back").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(fixture.names().await, ["turn-1", "before-restore-1", "restore-1"]);
    assert_eq!(in_words(&fixture.diff("turn-1", "now").await), [""; 0]);

    fixture.restore("before-restore-1", Some("a")).await.expect("one file is restored");
    assert_eq!((fixture.read("a").as_deref(), fixture.read("added/b")), (Some("new\n"), None));
    fixture.restore("turn-9", None).await.expect_err("there is no such checkpoint");
}

#[tokio::test]
async fn restore_keeps_what_is_left_out_now() {
    let fixture = Fixture::with(|config| config.max_file = bytesize::ByteSize::b(10));
    fixture.write("a", "small\n");
    fixture.capture("turn-1").await;
    fixture.write("a", "large and only here\n");
    let done = fixture.restore("turn-1", None).await.expect("the rest is restored");
    assert_eq!((done.files.restored, done.files.failed.len()), (0, 1));
    assert_eq!(fixture.read("a").as_deref(), Some("large and only here\n"));
}

#[tokio::test]
async fn start_is_the_workspace_before_the_first_turn() {
    let fixture = Fixture::new();
    fs::remove_dir_all(fixture.store()).expect("the store is removed");
    fixture.write("uploaded", "u\n");
    fixture.checkpoints.capture_start(fixture.session).await.expect("the start is captured");
    fixture.write("made", "m\n");
    fixture.checkpoints.capture_start(fixture.session).await.expect("a later start is ignored");
    fixture.capture("turn-1").await;
    assert_eq!(in_words(&fixture.diff("start", "now").await), ["created made +1 -0"]);
    assert_eq!(fixture.names().await, ["start", "turn-1"]);
}

#[tokio::test]
async fn empty_start_is_recorded_and_an_unknown_one_is_never_empty() {
    for is_known in [true, false] {
        let fixture = Fixture::new();
        fs::remove_dir_all(fixture.store()).expect("the store is removed");
        if is_known {
            fixture.checkpoints.capture_start(fixture.session).await.expect("an empty workspace has a start");
        }
        fixture.write("a", "a\n");
        let taken = fixture.capture("turn-1").await.observations();
        assert_eq!(taken.len(), if is_known { 2 } else { 0 }, "an unknown start has no changes: {taken:?}");
        // The sandbox starts again. This is no start any more.
        fixture.checkpoints.capture_start(fixture.session).await.expect("a later start is ignored");
        assert_eq!(fixture.names().await, ["turn-1"]);
        let diff = fixture.checkpoints.diff(fixture.session, range("start", "now")).await;
        let restored = fixture.restore("start", None).await;
        if is_known {
            assert_eq!(in_words(&diff.expect("the points are compared")), ["created a +1 -0"]);
            restored.expect("the workspace is restored");
            assert_eq!(fixture.read("a"), None);
        } else {
            for error in [diff.expect_err("the start is unknown"), restored.expect_err("the start is unknown")] {
                assert!(matches!(&error, CheckpointError::NoCheckpoint(name) if name == "start"), "{error}");
            }
            assert_eq!(fixture.read("a").as_deref(), Some("a\n"));
        }
    }
}

/// The capture of the start fails, and so does that of the first turn.
#[tokio::test]
async fn start_after_a_failed_turn_is_not_captured() {
    let fixture = Fixture::with(|config| config.disk = bytesize::ByteSize::b(40));
    fs::remove_dir_all(fixture.store()).expect("the store is removed");
    fixture.write("a", (0..=255).collect::<Vec<u8>>());
    fixture.checkpoints.capture_start(fixture.session).await.expect_err("the content is too large");
    fixture.try_capture("turn-1").await.expect_err("the content is too large");
    fixture.remove("a");
    fixture.checkpoints.capture_start(fixture.session).await.expect("a later start is ignored");
    fixture.checkpoints.diff(fixture.session, range("start", "now")).await.expect_err("the start is unknown");
}

/// A capture goes on after two seconds, and is then not yet marked. One that has read enough leaves
/// out the rest, and the next one takes it up.
#[tokio::test]
async fn capture_has_a_budget_and_the_next_one_continues() {
    let fixture = Fixture::with(|config| config.max_bytes = bytesize::ByteSize::b(10));
    fixture.write("a", "12345678");
    fixture.write("b", "12345678");
    let captured = async |name: &str| {
        fixture.capture(name).await;
        let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
        let last = list.items.into_iter().next_back().expect("a checkpoint");
        let left_out: Vec<_> = last.left_out.into_iter().map(|entry| (entry.path, entry.reason)).collect();
        (last.files, last.partial, left_out.len(), left_out.first().map(|(_, reason)| *reason))
    };
    assert_eq!(captured("turn-1").await, (1, true, 1, Some(LeftOutReason::Limit)));
    let error = fixture.restore("start", None).await.expect_err("the present files are not captured");
    assert!(matches!(error, CheckpointError::OverBudget), "{error}");
    assert!(fixture.read("a").is_some() && fixture.read("b").is_some(), "no file was touched");
    let mut turn = 2;
    while captured(&format!("turn-{turn}")).await != (2, false, 0, None) {
        turn += 1;
    }
    // A file that is left out is unknown there, and not deleted.
    fixture.write("a", "more than ten bytes");
    let (_, is_partial, _, reason) = captured("large").await;
    assert_eq!((is_partial, reason), (true, Some(LeftOutReason::Limit)));
    let error = fixture.file("large", "a").await.expect_err("its content is not captured");
    assert!(matches!(error, CheckpointError::NoFile { .. }), "{error}");
    assert_eq!(in_words(&fixture.diff(&format!("turn-{turn}"), "large").await), [""; 0]);
}

#[tokio::test]
async fn repeated_capture_returns_the_first_one() {
    let fixture = Fixture::new();
    fixture.write("a", "a\n");
    fixture.capture("turn-1").await;
    fixture.write("b", "b\n");
    assert_eq!(fixture.reopened().capture("turn-1").await.observations().len(), 2);
    assert_eq!(fixture.names().await, ["turn-1"]);
    assert_eq!(in_words(&fixture.diff("turn-1", "now").await), ["created b +1 -0"]);
}

#[tokio::test]
async fn shared_workspace_has_no_checkpoints() {
    let mut fixture = Fixture::new();
    let workspace = fixture.workspace();
    let config = fixture.checkpoints.config.clone();
    let dirs = WorkspaceDirs { shared: Some(workspace), ..fixture.checkpoints.dirs.clone() };
    let writer = fixture.checkpoints.writer.clone();
    fixture.checkpoints = Checkpoints::new(dirs, fixture.dir.path().join("c"), config, writer);
    let error = fixture.try_capture("turn-1").await.expect_err("all sessions share the workspace");
    assert!(matches!(error, CheckpointError::NotOffered(_)), "{error}");
}

#[tokio::test]
async fn purge_removes_everything() {
    let fixture = Fixture::new();
    fixture.write("a", "a\n");
    fixture.capture("turn-1").await;
    fs::remove_dir_all(fixture.workspace()).expect("the workspace is removed");
    fixture.checkpoints.purge(fixture.session).await.expect("the store is removed");
    fixture.try_capture("turn-2").await.expect_err("the workspace is gone");
    assert!(!fixture.store().exists());
}
