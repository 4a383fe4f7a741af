//! The project's own commands. Light on purpose: it is compiled before everything else.
//!
//! | command | what it does |
//! |---|---|
//! | `cargo xtask test` | sets the machine up, then runs every check in the order of [`steps::Step`] |
//! | `cargo xtask bench` | measures the release binaries; the benches themselves are in `benches/product/` |
//! | `cargo xtask soak` | works, kills at random and checks what is promised, for as long as is wanted; see `tests/soak/` |

use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

mod images;
mod machine;
mod runner;
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
        /// `start`, `back`, `replay`, `memory`, `tokens`, `relay`, `flood`, `interrupt`, `faults`, `pause` or `ui`; all of
        /// them where none is named
        names: Vec<String>,
    },
    /// Kill at random whatever can be killed, and check what is promised
    Soak {
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        #[arg(long, default_value_t = 20)]
        sessions: u64,
        /// Repeats what is done, though not when it happens
        #[arg(long)]
        seed: Option<u64>,
        /// In containers, in place of the process sandbox
        #[arg(long)]
        docker: bool,
    },
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Test { only, no_install } => steps::run(only, machine::Install::from_flag(no_install)),
        Task::Bench { names } => bench(&names),
        Task::Soak { minutes, sessions, seed, docker } => soak(minutes, sessions, seed, docker),
    }
}

fn bench(names: &[String]) -> ExitCode {
    let machine = machine::Machine::new(machine::Install::Forbidden);
    if let Err(why) = machine.engine().and_then(|()| images::make_all()) {
        println!("without Docker: {why}");
    }
    run(runner::cargo().args(["bench", "--workspace", "--bench", "product", "--"]).args(names))
}

fn soak(minutes: u64, sessions: u64, seed: Option<u64>, docker: bool) -> ExitCode {
    let machine = machine::Machine::new(machine::Install::Forbidden);
    if docker && let Err(why) = machine.engine().and_then(|()| images::make_all()) {
        eprintln!("without Docker there is no such soak: {why}");
        return ExitCode::FAILURE;
    }
    let mut cargo = runner::cargo();
    cargo.args(["bench", "--workspace", "--bench", "soak", "--"]);
    cargo.args(["--minutes", &minutes.to_string(), "--sessions", &sessions.to_string()]);
    if let Some(seed) = seed {
        cargo.args(["--seed", &seed.to_string()]);
    }
    if docker {
        cargo.arg("--docker");
    }
    run(&mut cargo)
}

fn run(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("cargo cannot be started: {e}");
            ExitCode::FAILURE
        }
    }
}
