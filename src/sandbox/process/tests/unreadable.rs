//! State files that cannot be read, for example because descriptors have run out. No sandbox counts
//! as dead then.

use std::fmt::Debug;

use greenroom_jailer::sandbox_dir::{EXIT, FROZEN, RUNNING};

use super::*;

/// Unreadable state file of a sandbox. A directory in its place is unreadable even for root.
struct UnreadableStateFile {
    file: PathBuf,
    aside: PathBuf,
}

impl UnreadableStateFile {
    fn make(dir: &SandboxDir, name: &str) -> UnreadableStateFile {
        let (file, aside) = (dir.dir().join(name), dir.dir().join("aside"));
        fs::rename(&file, &aside).expect("file exists");
        fs::create_dir(&file).expect("directory is created");
        UnreadableStateFile { file, aside }
    }

    fn restore(self) {
        fs::remove_dir(&self.file).expect("directory is empty");
        fs::rename(self.aside, self.file).expect("file is moved back");
    }
}

fn assert_inconclusive<T: Debug>(result: Result<T, SandboxError>) {
    assert!(matches!(result, Err(SandboxError::Inconclusive { .. })), "{result:?}");
}

/// Time in which a wait has inspected again.
const AFTER_RECHECK: Duration = RECHECK_INTERVAL.saturating_add(Duration::from_millis(300));

#[tokio::test]
async fn sandbox_with_unreadable_state_is_left_alone() {
    let dirs = ProcessTestDirs::new();
    let (driver, spec) = (dirs.driver(), dirs.spec("echo run >>/workspace/runs; exec sleep 1000"));
    let session = spec.session;
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    let unreadable = UnreadableStateFile::make(&driver.sandbox_dir(session), RUNNING);
    let mut wait = driver.wait(session);
    assert!(timeout(AFTER_RECHECK, &mut wait).await.is_err(), "the exit is not reported");
    assert_inconclusive(driver.start(&spec, &|_, _| ()).await);
    assert_inconclusive(driver.presence(session).await);
    assert!(driver.list().await.expect("list reports the other sandboxes").is_empty());
    assert_inconclusive(driver.pause(session).await);
    assert_inconclusive(driver.unpause(session).await);
    assert_inconclusive(driver.stats(session).await);
    assert_inconclusive(driver.stop(session).await);
    assert_inconclusive(driver.remove(session).await);

    unreadable.restore();
    assert_eq!(driver.presence(session).await.expect("state is reported"), Some(SandboxPresence::Running));
    let runs = || fs::read_to_string(spec.workspace.join("runs")).unwrap_or_default();
    eventually("the script has started", async || !runs().is_empty()).await;
    assert_eq!(runs(), "run\n", "no second sandbox was started");
    assert!(timeout(AFTER_RECHECK, &mut wait).await.is_err(), "the wait continues");
    driver.stop(session).await.expect("stop succeeds");
    assert!(wait.await.expect("exit is reported").code.is_some());
    driver.remove(session).await.expect("remove succeeds");
}

#[tokio::test]
async fn unreadable_exit_record_is_reported_later() {
    let dirs = ProcessTestDirs::new();
    let (driver, spec) = (dirs.driver(), dirs.spec("exit 3"));
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    driver.wait(spec.session).await.expect("exit is reported");
    let unreadable = UnreadableStateFile::make(&driver.sandbox_dir(spec.session), EXIT);
    let mut wait = driver.wait(spec.session);
    assert!(timeout(AFTER_RECHECK, &mut wait).await.is_err(), "the exit is not reported");
    tokio::time::pause();
    assert_inconclusive(driver.wait(spec.session).await);
    tokio::time::resume();
    unreadable.restore();
    assert_eq!(wait.await.expect("exit is reported").code, Some(3));
    driver.remove(spec.session).await.expect("remove succeeds");
}

/// Pauses by signals. A new record would list the paused processes as already stopped, and no
/// unpause would continue them.
#[tokio::test]
async fn unreadable_pause_record_is_not_overwritten() {
    let dirs = ProcessTestDirs::new();
    let driver = ProcessDriver { cgroups: None, ..dirs.driver() };
    let spec = dirs.spec("while :; do : >/workspace/tick; sleep 0.01; done");
    let session = spec.session;
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    driver.pause(session).await.expect("pause succeeds");
    let unreadable = UnreadableStateFile::make(&driver.sandbox_dir(session), FROZEN);
    assert_inconclusive(driver.presence(session).await);
    assert_inconclusive(driver.stop(session).await);
    driver.pause(session).await.expect_err("pause record is unreadable");
    driver.unpause(session).await.expect_err("pause record is unreadable");

    unreadable.restore();
    assert_eq!(driver.presence(session).await.expect("state is reported"), Some(SandboxPresence::Paused));
    driver.unpause(session).await.expect("unpause succeeds");
    // The script may not have created the file before the pause.
    let _ = fs::remove_file(spec.workspace.join("tick"));
    eventually("the script continues", async || spec.workspace.join("tick").exists()).await;
    driver.remove(session).await.expect("remove succeeds");
}
