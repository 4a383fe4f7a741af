//! Forks: the files of one session as the beginning of another.

use std::os::unix::fs::{MetadataExt, symlink};

use super::*;

/// Session with two checkpoints, `turn-1` and `turn-2`, and one change since.
async fn source() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.write("dir/run.sh", "#!/bin/sh\n");
    fs::set_permissions(fixture.workspace().join("dir/run.sh"), fs::Permissions::from_mode(0o755))
        .expect("it is executable");
    symlink("a", fixture.workspace().join("link")).expect("the link is created");
    fixture.capture("turn-1").await;
    fixture.write("a", "2\n");
    fixture.capture("turn-2").await;
    fixture.write("a", "3\n");
    fixture
}

/// Session `to` beside `of`, in the same server.
fn beside(of: &Fixture, to: SessionId) -> Fixture {
    let dir = tempfile::tempdir().expect("a temporary directory");
    Fixture { dir, session: to, checkpoints: of.checkpoints.clone() }
}

async fn fork(from: &Fixture, checkpoint: &str) -> (Fixture, Result<(), CheckpointError>) {
    let to = SessionId::generate();
    let forked = from.checkpoints.fork(from.session, checkpoint, to).await;
    (beside(from, to), forked)
}

#[tokio::test]
async fn fork_begins_with_the_files_of_a_checkpoint_or_of_now() {
    let from = source().await;
    for (checkpoint, content) in [("turn-1", "1\n"), ("turn-2", "2\n"), ("now", "3\n")] {
        let (to, forked) = fork(&from, checkpoint).await;
        forked.expect("the session is forked");
        assert_eq!(to.read("a").as_deref(), Some(content), "{checkpoint}");
        assert_eq!(fs::read_link(to.workspace().join("link")).expect("the link is copied"), Path::new("a"));
        let file = fs::metadata(to.workspace().join("dir/run.sh")).expect("the file is copied");
        let workspace = fs::metadata(to.workspace()).expect("the workspace exists");
        assert_eq!(file.mode() & 0o777, 0o755);
        assert_eq!((file.uid(), file.gid()), (workspace.uid(), workspace.gid()));
        assert_eq!(to.names().await, ["start"]);
        assert_eq!(in_words(&to.diff("start", "now").await), [""; 0]);
        to.write("a", "4\n");
        to.capture("turn-9").await;
        assert_eq!(in_words(&to.diff("start", "turn-9").await), ["modified a +1 -1"]);
        // A repeated call leaves the session alone.
        from.checkpoints.fork(from.session, checkpoint, to.session).await.expect("it is forked already");
        assert_eq!(to.read("a").as_deref(), Some("4\n"));
    }
    assert_eq!(from.names().await, ["turn-1", "turn-2"], "the source stays as it is");
    assert_eq!(from.read("a").as_deref(), Some("3\n"));
}

/// Each state that a killed server may leave.
#[tokio::test]
async fn fork_of_a_killed_server_is_completed() {
    let from = source().await;
    for step in ["marker", "pack", "delta", "half of the files"] {
        let (to, forked) = fork(&from, "turn-2").await;
        forked.expect("the session is forked");
        fs::write(to.store().join("forking"), "").expect("the marker is written");
        match step {
            "half of the files" => to.remove("a"),
            step => {
                fs::remove_dir_all(to.workspace()).expect("the workspace is removed");
                if step != "delta" {
                    fs::remove_file(to.store().join("00000001.delta")).expect("the delta is removed");
                }
                if step == "marker" {
                    fs::remove_file(to.store().join("00000001.pack")).expect("the pack is removed");
                    fs::write(to.store().join("pack.tmp"), "half a pack").expect("the file is written");
                }
            }
        }
        let next = to.reopened();
        let checkpoints = open(from.dir.path(), from.checkpoints.config.clone());
        checkpoints.fork(from.session, "turn-2", next.session).await.expect("the fork is completed");
        assert_eq!((to.read("a").as_deref(), to.names().await), (Some("2\n"), vec!["start".to_owned()]), "{step}");
        assert!(to.workspace().join("link").is_symlink() && !to.store().join("forking").exists(), "{step}");
        assert!(!to.store().join("pack.tmp").exists(), "{step}");
    }
}

#[tokio::test]
async fn fork_that_cannot_be_complete_fails() {
    let from = source().await;
    let (to, forked) = fork(&from, "turn-9").await;
    assert!(matches!(forked.expect_err("there is no such checkpoint"), CheckpointError::NoCheckpoint(_)));
    assert_eq!((to.names().await.len(), fs::read_dir(to.workspace()).expect("it is readable").count()), (0, 0));

    // A workspace in use is never written to.
    let (used, _) = fork(&from, "turn-9").await;
    used.write("mine", "x");
    let error = from.checkpoints.fork(from.session, "turn-1", used.session).await.expect_err("it has a file");
    assert!(matches!(error, CheckpointError::Workspace(FileError::NotEmpty(_))), "{error}");
    assert_eq!(used.read("a"), None);

    let pack = from.store().join("00000001.pack");
    let mut content = fs::read(&pack).expect("the pack is readable");
    content[..8].fill(0xff);
    fs::write(&pack, content).expect("the pack is written");
    let (to, forked) = fork(&from, "turn-1").await;
    assert!(matches!(forked.expect_err("a content is damaged"), CheckpointError::Damaged(_)));
    assert_eq!(to.names().await, [""; 0]);
}
