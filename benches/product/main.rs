//! Benches of the product, each beside its own parts: the engine's commands, a model without a
//! supervisor.
//!
//! `cargo xtask bench [NAME …]` runs them on `dist` binaries. Compare ratios of one run:
//! figures move with the machine.

use greenroom_testkit::driver::TestDriver;

mod approvals;
mod back;
mod checkpoints;
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
mod workspace;

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
    if wanted("checkpoints") {
        checkpoints::run().await;
    }
    if wanted("approvals") {
        approvals::run().await;
    }
    if wanted("ui") {
        ui::run().await;
    }
    if wanted("workspace") {
        workspace::run(&drivers).await;
    }
}
