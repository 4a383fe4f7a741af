//! Short soaks with every run of the tests; `cargo xtask soak` runs a long one.

use std::time::Duration;

use crate::{
    harness::driver::TestDriver,
    soaking::{KILL, SoakFaults, SoakPlan, SoakReport, soak},
};

async fn soaked(faults: SoakFaults, sessions: usize) -> SoakReport {
    let plan = SoakPlan { driver: TestDriver::Process, faults, sessions, seed: fastrand::u64(..) };
    let report = soak(plan).await;
    println!("{plan:?}\n{report}");
    assert!(report.broken.is_empty() && report.requests > 0, "{plan:?}\n{report}");
    report
}

#[tokio::test]
async fn promises_hold_whatever_is_killed() {
    let report = soaked(SoakFaults::All(Duration::from_secs(15)), 6).await;
    assert!(report.faults.contains_key(KILL), "{report}");
}

#[tokio::test]
async fn twenty_kills_of_the_server_cost_fifty_sessions_nothing() {
    let report = soaked(SoakFaults::KillsOfTheServer(20), 50).await;
    assert_eq!(report.faults[KILL], 20);
    assert!(report.hit > 100, "of a thousand times: {report}");
}
