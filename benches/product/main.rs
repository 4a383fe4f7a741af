//! What the product costs, measured beside what it is made of: an engine's own commands, a model without a supervisor.
//!
//! `cargo xtask bench [NAME …]` runs it on release binaries. Ratios of one run are what counts; the figures move with the
//! machine.

use harness::driver::TestDriver;

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the harness is shared with the integration tests, which use the rest of it"
)]
#[path = "../../tests/harness/mod.rs"]
mod harness;

#[allow(dead_code, reason = "shared with the tests of the page, which use the rest of it")]
#[path = "../../tests/browser/chromium.rs"]
mod chromium;

mod back;
mod crowd;
mod faults;
mod figures;
mod interrupt;
mod memory;
mod pause;
mod relay;
mod replay;
mod start;
mod tokens;
mod ui;

#[tokio::main]
async fn main() {
    // Cargo adds flags of its own.
    let names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|given| given == name);
    let mut drivers = vec![TestDriver::Process];
    if TestDriver::Docker.is_here().await {
        drivers.push(TestDriver::Docker);
    } else {
        println!("(no Docker engine with the test image: its lines are left out)\n");
    }
    println!("{}\n", figures::machine());
    if wanted("start") {
        start::run(&drivers).await;
    }
    if wanted("back") {
        back::run(&drivers).await;
    }
    if wanted("replay") {
        replay::run().await;
    }
    if wanted("memory") {
        memory::run(&drivers).await;
    }
    if wanted("tokens") {
        tokens::run().await;
    }
    if wanted("relay") {
        relay::run().await;
    }
    if wanted("flood") {
        relay::flood::run().await;
    }
    if wanted("interrupt") {
        interrupt::run(&drivers).await;
    }
    if wanted("faults") {
        faults::run(&drivers).await;
    }
    if wanted("pause") {
        pause::run(&drivers).await;
    }
    if wanted("ui") {
        ui::run().await;
    }
}
