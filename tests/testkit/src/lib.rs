//! Starts the real product and talks to it as its users do: over stdout, HTTP and WebSockets, beside a scripted model.
//!
//! Every wait has a deadline ([`DEADLINE`]), and says what it waited for when it passes.

use std::{future::Future, time::Duration};

pub(crate) mod disk;
pub(crate) mod driver;
pub(crate) mod engine;
pub(crate) mod host;
pub(crate) mod leftovers;
pub(crate) mod model;
pub(crate) mod puppet;
pub(crate) mod rest;
pub(crate) mod server;
pub(crate) mod socket;
mod sse;
pub(crate) mod stand_in;

/// Long enough for a cold start on a busy machine, short enough to find out.
pub(crate) const DEADLINE: Duration = Duration::from_secs(45);

/// `what` is said when it does not come in time.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {} s in vain for {what}", DEADLINE.as_secs()),
    }
}

/// Asks again and again until it holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    within(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
