//! Test kit: starts the real server binary and uses it over stdout, HTTP and WebSockets, with a
//! scripted model.
//!
//! Shared by the integration tests, the browser tests, the benches and the soak. Every wait has a
//! deadline ([`DEADLINE`]) and names the awaited condition when it passes.

use std::{future::Future, path::PathBuf, time::Duration};

pub mod chromium;
pub mod disk;
pub mod driver;
pub mod engine;
pub mod git_server;
pub mod host;
pub mod leftovers;
pub mod model;
pub mod proxy;
pub mod puppet;
pub mod rest;
pub mod server;
pub mod soak;
pub mod socket;
mod sse;
pub mod stand_in;
pub mod tls;

/// Root of the workspace, with `tests/scenarios/` and `static/` below.
pub const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the path of the server binary that cargo built beside the running test or bench.
///
/// Cargo passes the path at compile time to the root package's own tests only, so the path follows
/// from the layout of the target directory: `PROFILE/deps/test-HASH` and `PROFILE/greenroom`.
pub fn greenroom_binary() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let profile = test.ancestors().nth(2).expect("a test lies in `PROFILE/deps`");
    profile.join("greenroom")
}

/// Deadline of every wait. Long enough for a cold start on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(45);

/// Awaits `future` for at most [`DEADLINE`]. Panics with `what` when the deadline passes.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("timed out after {} s waiting for {what}", DEADLINE.as_secs()),
    }
}

/// Polls `holds` every 20 ms until it returns true.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    within(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
