//! The project's own commands. Light on purpose: it is compiled before everything else.
//!
//! | command | what it does |
//! |---|---|
//! | `cargo xtask test` | sets the machine up, then runs every check in the order of [`steps::Step`] |
//! | `cargo xtask bench` | measures the release binaries; the benches themselves are in `benches/product/` |

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod images;
mod machine;
mod steps;
mod tally;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Greenroom's own commands")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check: format, lints, UI, tests, the agent's dependencies, licences, browser
    Test {
        /// Run this step alone
        #[arg(long, value_enum)]
        only: Option<steps::Step>,
        /// Install no packages; what is missing is left out, and said so
        #[arg(long)]
        no_install: bool,
    },
    /// Measure the release binaries
    Bench {
        /// `start`, `memory`, `tokens`, `interrupt` or `pause`; all of them where none is named
        names: Vec<String>,
    },
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Test { only, no_install } => steps::run(only, machine::Install::from_flag(no_install)),
        Task::Bench { names } => bench(&names),
    }
}

fn bench(names: &[String]) -> ExitCode {
    let machine = machine::Machine::new(machine::Install::Forbidden);
    if let Err(why) = machine.engine().and_then(|()| images::make_all()) {
        println!("without Docker: {why}");
    }
    let status = steps::cargo().args(["bench", "--workspace", "--bench", "product", "--"]).args(names).status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("cargo cannot be started: {e}");
            ExitCode::FAILURE
        }
    }
}
