//! Short soaks with every run of the tests; `cargo xtask soak` runs a long one.

use std::time::Duration;

use greenroom_testkit::{
    driver::TestDriver,
    soak::{KILL, SoakFaults, SoakPlan, SoakReport, soak},
};

async fn soaked(faults: SoakFaults, sessions: usize) -> SoakReport {
    let plan = SoakPlan { driver: TestDriver::Process, faults, sessions, seed: fastrand::u64(..) };
    let report = soak(plan).await;
    println!("{plan:?}\n{report}");
    assert!(report.broken.is_empty() && report.requests > 0, "{plan:?}\n{report}");
    report
}

#[tokio::test]
async fn promises_hold_under_random_faults() {
    let report = soaked(SoakFaults::All(Duration::from_secs(15)), 6).await;
    assert!(report.faults.contains_key(KILL), "{report}");
}

#[tokio::test]
async fn twenty_server_kills_lose_nothing_in_fifty_sessions() {
    let report = soaked(SoakFaults::KillsOfTheServer(20), 50).await;
    assert_eq!(report.faults[KILL], 20);
    assert!(report.hit > 100, "fewer kills hit sessions at work than required: {report}");
}
