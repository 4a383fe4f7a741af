//! Freezing by signals, where it fails in the middle.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use greenroom_jailer::processes::ProcessIdentity;

use super::*;
use crate::sandbox::process::signal_pause;

/// A sandbox that ticks into a file, and in which a second process sleeps for so long.
struct TickingSandbox {
    site: ProcessTestDirs,
    driver: ProcessDriver,
    spec: SandboxSpec,
}

impl TickingSandbox {
    async fn start(seconds: &str) -> TickingSandbox {
        let site = ProcessTestDirs::new();
        let driver = ProcessDriver { cgroups: None, ..site.driver() };
        let spec = site.spec(&format!(
            "sleep {seconds} & n=0; while :; do n=$((n+1)); echo $n >/workspace/tick; sleep 0.01; done"
        ));
        driver.start(&spec, &|_, _| ()).await.expect("it starts");
        let ticking = TickingSandbox { site, driver, spec };
        ticking.goes_on("at first").await;
        ticking
    }

    fn tick(&self) -> String {
        fs::read_to_string(self.spec.workspace.join("tick")).unwrap_or_default()
    }

    async fn goes_on(&self, when: &str) {
        let before = self.tick();
        eventually(&format!("{when}, it goes on"), async || self.tick() != before).await;
    }

    async fn stands_still(&self) -> bool {
        let before = self.tick();
        tokio::time::sleep(Duration::from_millis(150)).await;
        self.tick() == before
    }

    async fn presence(&self) -> SandboxPresence {
        self.driver.list().await.expect("they are listed")[0].presence
    }

    async fn end(self) {
        self.driver.remove(self.spec.session).await.expect("nothing is left");
        drop(self.site);
    }
}

/// As on a full disk.
#[tokio::test]
async fn a_freeze_that_cannot_be_written_down_stops_nobody() {
    let ticking = TickingSandbox::start("600").await;
    let (driver, session) = (&ticking.driver, ticking.spec.session);
    let in_the_way = driver.sandbox_dir(session).dir().join("frozen.json.new");
    fs::create_dir(&in_the_way).expect("it is made");
    driver.pause(session).await.expect_err("it cannot be written down");
    assert_eq!(ticking.presence().await, SandboxPresence::Running);
    ticking.goes_on("not frozen").await;
    driver.unpause(session).await.expect("there is nothing to thaw");

    fs::remove_dir(&in_the_way).expect("it is removed");
    driver.pause(session).await.expect("it freezes");
    assert!(ticking.stands_still().await);
    driver.unpause(session).await.expect("it thaws");
    ticking.goes_on("thawed").await;
    ticking.end().await;
}

/// The process on this host that was started with these words.
fn process_running(words: &[&str]) -> ProcessIdentity {
    let command: String = words.iter().flat_map(|word| [word, "\0"]).collect();
    let pids = fs::read_dir("/proc").expect("it is mounted").flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.find(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it == command));
    found.and_then(|pid| ProcessIdentity::of(pid).expect("it is read")).expect("it runs")
}

#[tokio::test]
async fn a_freeze_that_comes_to_no_end_lets_all_go_on() {
    let seconds = "98765";
    let ticking = TickingSandbox::start(seconds).await;
    let (driver, session) = (&ticking.driver, ticking.spec.session);
    let restless = process_running(&["sleep", seconds]);
    let init = driver.sandbox_dir(session).running().expect("it is read").expect("it runs").init;
    let enough = Arc::new(AtomicBool::new(false));
    let waking = std::thread::spawn({
        let enough = enough.clone();
        move || while !enough.load(Relaxed) && restless.signal(Signal::CONT).is_ok() {}
    });
    let place = driver.sandbox_dir(session);
    let overdue = tokio::task::spawn_blocking(move || {
        // It may be caught standing still after all.
        while signal_pause::pause(&place, init, Duration::from_millis(50)).is_ok() {
            signal_pause::unpause(&place, init).expect("it thaws");
        }
    });
    overdue.await.expect("it does not panic");
    enough.store(true, Relaxed);
    waking.join().expect("it does not panic");
    assert_eq!(ticking.presence().await, SandboxPresence::Running);
    ticking.goes_on("not frozen").await;
    ticking.end().await;
}

/// The server was killed when it had stopped one of them.
#[tokio::test]
async fn a_freeze_that_was_cut_off_can_be_completed_and_undone() {
    for complete in [true, false] {
        let ticking = TickingSandbox::start("600").await;
        let (driver, session) = (&ticking.driver, ticking.spec.session);
        let place = driver.sandbox_dir(session);
        place.write_pause_record(&[]).expect("it is written");
        place.running().expect("it is read").expect("it runs").init.signal(Signal::STOP).expect("it is stopped");
        if complete {
            driver.pause(session).await.expect("it freezes");
            assert!(ticking.stands_still().await);
        }
        driver.unpause(session).await.expect("it thaws");
        ticking.goes_on("thawed").await;
        assert_eq!(ticking.presence().await, SandboxPresence::Running);
        ticking.end().await;
    }
}
