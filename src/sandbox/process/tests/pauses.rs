//! Pauses by signals that fail in the middle.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use greenroom_jailer::processes::ProcessIdentity;

use super::*;
use crate::sandbox::process::signal_pause;

/// Sandbox that counts in a file, with a second process that sleeps for the given time.
struct TickingSandbox {
    dirs: ProcessTestDirs,
    driver: ProcessDriver,
    spec: SandboxSpec,
}

impl TickingSandbox {
    async fn start(seconds: &str) -> TickingSandbox {
        let dirs = ProcessTestDirs::new();
        let driver = ProcessDriver { cgroups: None, ..dirs.driver() };
        let spec = dirs.spec(&format!(
            "sleep {seconds} & n=0; while :; do n=$((n+1)); echo $n >/workspace/tick; sleep 0.01; done"
        ));
        driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
        let ticking = TickingSandbox { dirs, driver, spec };
        ticking.continues("after the start").await;
        ticking
    }

    fn tick(&self) -> String {
        fs::read_to_string(self.spec.workspace.join("tick")).unwrap_or_default()
    }

    async fn continues(&self, when: &str) {
        let before = self.tick();
        eventually(&format!("{when}, the script continues"), async || self.tick() != before).await;
    }

    async fn is_paused(&self) -> bool {
        let before = self.tick();
        tokio::time::sleep(Duration::from_millis(150)).await;
        self.tick() == before
    }

    async fn presence(&self) -> SandboxPresence {
        self.driver.list().await.expect("list succeeds")[0].presence
    }

    async fn remove(self) {
        self.driver.remove(self.spec.session).await.expect("remove succeeds");
        drop(self.dirs);
    }
}

/// Simulates a full disk.
#[tokio::test]
async fn pause_without_a_record_stops_no_process() {
    let ticking = TickingSandbox::start("600").await;
    let (driver, session) = (&ticking.driver, ticking.spec.session);
    let obstacle = driver.sandbox_dir(session).dir().join("frozen.json.new");
    fs::create_dir(&obstacle).expect("directory is created");
    driver.pause(session).await.expect_err("pause record is not writable");
    assert_eq!(ticking.presence().await, SandboxPresence::Running);
    ticking.continues("after a failed pause").await;
    driver.unpause(session).await.expect("unpause of a running sandbox is no error");

    fs::remove_dir(&obstacle).expect("directory is removed");
    driver.pause(session).await.expect("pause succeeds");
    assert!(ticking.is_paused().await);
    driver.unpause(session).await.expect("unpause succeeds");
    ticking.continues("after an unpause").await;
    ticking.remove().await;
}

/// Returns the process on this host with these arguments.
fn process_running(args: &[&str]) -> ProcessIdentity {
    let command: String = args.iter().flat_map(|arg| [arg, "\0"]).collect();
    let pids = fs::read_dir("/proc").expect("`/proc` is mounted").flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found =
        pids.find(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|cmdline| cmdline == command));
    found.and_then(|pid| ProcessIdentity::of(pid).expect("state is readable")).expect("process runs")
}

#[tokio::test]
async fn failed_pause_continues_all_processes() {
    let seconds = "98765";
    let ticking = TickingSandbox::start(seconds).await;
    let (driver, session) = (&ticking.driver, ticking.spec.session);
    let never_stopped = process_running(&["sleep", seconds]);
    let init = driver.sandbox_dir(session).running().expect("state is readable").expect("sandbox runs").init;
    let is_done = Arc::new(AtomicBool::new(false));
    let waking = std::thread::spawn({
        let is_done = is_done.clone();
        move || while !is_done.load(Relaxed) && never_stopped.signal(Signal::CONT).is_ok() {}
    });
    let dir = driver.sandbox_dir(session);
    let failed_pause = tokio::task::spawn_blocking(move || {
        // A pause may succeed by chance.
        while signal_pause::pause(&dir, init, Duration::from_millis(50)).is_ok() {
            signal_pause::unpause(&dir, init).expect("unpause succeeds");
        }
    });
    failed_pause.await.expect("task does not panic");
    is_done.store(true, Relaxed);
    waking.join().expect("task does not panic");
    assert_eq!(ticking.presence().await, SandboxPresence::Running);
    ticking.continues("after a failed pause").await;
    ticking.remove().await;
}

/// The server was killed after it had stopped one process.
#[tokio::test]
async fn interrupted_pause_can_be_completed_or_undone() {
    for complete in [true, false] {
        let ticking = TickingSandbox::start("600").await;
        let (driver, session) = (&ticking.driver, ticking.spec.session);
        let dir = driver.sandbox_dir(session);
        dir.write_pause_record(&[]).expect("file is written");
        dir.running()
            .expect("state is readable")
            .expect("sandbox runs")
            .init
            .signal(Signal::STOP)
            .expect("signal is sent");
        if complete {
            driver.pause(session).await.expect("pause succeeds");
            assert!(ticking.is_paused().await);
        }
        driver.unpause(session).await.expect("unpause succeeds");
        ticking.continues("after an unpause").await;
        assert_eq!(ticking.presence().await, SandboxPresence::Running);
        ticking.remove().await;
    }
}
