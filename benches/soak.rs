//! `cargo xtask soak`: see [`soak`].

use std::{process::ExitCode, time::Duration};

use greenroom_testkit::{driver::TestDriver, soak};

/// Flags: `--minutes 10`, `--sessions 20`, `--seed 1`, `--docker`.
#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)?.parse().ok());
    let plan = soak::SoakPlan {
        driver: if args.iter().any(|arg| arg == "--docker") { TestDriver::Docker } else { TestDriver::Process },
        faults: soak::SoakFaults::All(Duration::from_secs(60 * number("--minutes").unwrap_or(10))),
        sessions: number("--sessions").unwrap_or(20) as usize,
        seed: number("--seed").unwrap_or_else(|| fastrand::u64(..)),
    };
    println!("{plan:?}");
    let report = soak::soak(plan).await;
    println!("{report}");
    if report.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
