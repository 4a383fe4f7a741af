//! Where it cannot be read how a sandbox stands, as when the server's descriptors have run out: nobody is taken for gone.

use std::fmt::Debug;

use greenroom_jailer::sandbox_dir::{EXIT, FROZEN, RUNNING};

use super::*;

/// A file of a sandbox's state that cannot be read. Root reads any file, but nobody reads a directory as one.
struct UnreadableStateFile {
    file: PathBuf,
    aside: PathBuf,
}

impl UnreadableStateFile {
    fn make(place: &SandboxDir, name: &str) -> UnreadableStateFile {
        let (file, aside) = (place.dir().join(name), place.dir().join("aside"));
        fs::rename(&file, &aside).expect("it is there");
        fs::create_dir(&file).expect("it is made");
        UnreadableStateFile { file, aside }
    }

    fn restore(self) {
        fs::remove_dir(&self.file).expect("nobody has touched it");
        fs::rename(self.aside, self.file).expect("it is as before");
    }
}

fn assert_inconclusive<T: Debug>(told: Result<T, SandboxError>) {
    assert!(matches!(told, Err(SandboxError::Inconclusive { .. })), "{told:?}");
}

/// Longer than a watch rests.
const AFTER_RECHECK: Duration = RECHECK_INTERVAL.saturating_add(Duration::from_millis(300));

#[tokio::test]
async fn one_of_which_nothing_can_be_told_is_left_alone() {
    let site = ProcessTestDirs::new();
    let (driver, spec) = (site.driver(), site.spec("echo run >>/workspace/runs; exec sleep 1000"));
    let session = spec.session;
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    let unreadable = UnreadableStateFile::make(&driver.sandbox_dir(session), RUNNING);
    let mut end = driver.wait(session);
    assert!(timeout(AFTER_RECHECK, &mut end).await.is_err(), "its end is not told");
    assert_inconclusive(driver.start(&spec, &|_, _| ()).await);
    assert_inconclusive(driver.presence(session).await);
    assert!(driver.list().await.expect("the others are told").is_empty());
    assert_inconclusive(driver.pause(session).await);
    assert_inconclusive(driver.unpause(session).await);
    assert_inconclusive(driver.stats(session).await);
    assert_inconclusive(driver.stop(session).await);
    assert_inconclusive(driver.remove(session).await);

    unreadable.restore();
    assert_eq!(driver.presence(session).await.expect("it is told"), Some(SandboxPresence::Running));
    let runs = || fs::read_to_string(spec.workspace.join("runs")).unwrap_or_default();
    eventually("it has begun", async || !runs().is_empty()).await;
    assert_eq!(runs(), "run\n", "it is the first one still");
    assert!(timeout(AFTER_RECHECK, &mut end).await.is_err(), "it is watched again");
    driver.stop(session).await.expect("it stops");
    assert!(end.await.expect("its end is told").code.is_some());
    driver.remove(session).await.expect("nothing is left");
}

#[tokio::test]
async fn an_end_that_cannot_be_read_yet_is_told_later() {
    let site = ProcessTestDirs::new();
    let (driver, spec) = (site.driver(), site.spec("exit 3"));
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    driver.wait(spec.session).await.expect("its end is told");
    let unreadable = UnreadableStateFile::make(&driver.sandbox_dir(spec.session), EXIT);
    let mut end = driver.wait(spec.session);
    assert!(timeout(AFTER_RECHECK, &mut end).await.is_err(), "its end is not told");
    tokio::time::pause();
    assert_inconclusive(driver.wait(spec.session).await);
    tokio::time::resume();
    unreadable.restore();
    assert_eq!(end.await.expect("its end is told").code, Some(3));
    driver.remove(spec.session).await.expect("nothing is left");
}

/// By signals. Noted anew, those who are frozen would be the ones who stood still before, whom no thaw wakes.
#[tokio::test]
async fn who_is_frozen_is_not_forgotten() {
    let site = ProcessTestDirs::new();
    let driver = ProcessDriver { cgroups: None, ..site.driver() };
    let spec = site.spec("while :; do : >/workspace/tick; sleep 0.01; done");
    let session = spec.session;
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    driver.pause(session).await.expect("it freezes");
    let unreadable = UnreadableStateFile::make(&driver.sandbox_dir(session), FROZEN);
    assert_inconclusive(driver.presence(session).await);
    assert_inconclusive(driver.stop(session).await);
    driver.pause(session).await.expect_err("it may be frozen already");
    driver.unpause(session).await.expect_err("whom to wake cannot be told");

    unreadable.restore();
    assert_eq!(driver.presence(session).await.expect("it is told"), Some(SandboxPresence::Paused));
    driver.unpause(session).await.expect("it thaws");
    // It may not have come to its first one before.
    let _ = fs::remove_file(spec.workspace.join("tick"));
    eventually("it goes on", async || spec.workspace.join("tick").exists()).await;
    driver.remove(session).await.expect("nothing is left");
}
