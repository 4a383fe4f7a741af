//! Short soaks with every run of the tests; `cargo xtask soak` runs a long one.

use std::time::Duration;

use crate::{
    harness::driver::Driver,
    soaking::{Faults, KILL, Plan, Report, soak},
};

async fn soaked(faults: Faults, sessions: usize) -> Report {
    let plan = Plan { driver: Driver::Process, faults, sessions, seed: fastrand::u64(..) };
    let report = soak(plan).await;
    println!("{plan:?}\n{report}");
    assert!(report.broken.is_empty() && report.wishes > 0, "{plan:?}\n{report}");
    report
}

#[tokio::test]
async fn promises_hold_whatever_is_killed() {
    let report = soaked(Faults::All(Duration::from_secs(15)), 6).await;
    assert!(report.faults.contains_key(KILL), "{report}");
}

#[tokio::test]
async fn twenty_kills_of_the_server_cost_fifty_sessions_nothing() {
    let report = soaked(Faults::KillsOfTheServer(20), 50).await;
    assert_eq!(report.faults[KILL], 20);
    assert!(report.hit > 100, "of a thousand times: {report}");
}
