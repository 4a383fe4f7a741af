//! A short soak with every run of the tests; `cargo xtask soak` runs a long one.

use std::time::Duration;

use crate::{
    harness::driver::Driver,
    soaking::{Plan, soak},
};

#[tokio::test]
async fn promises_hold_whatever_is_killed() {
    let plan = Plan { driver: Driver::Process, time: Duration::from_secs(15), sessions: 6, seed: fastrand::u64(..) };
    let report = soak(plan).await;
    println!("{plan:?}\n{report}");
    assert!(report.broken.is_empty() && report.wishes > 0, "{plan:?}\n{report}");
    assert!(report.faults.contains_key("the server was killed"), "{plan:?}\n{report}");
}
