//! Greenroom's own commands. Few dependencies: this crate is compiled before everything else.
//!
//! | command | purpose |
//! |---|---|
//! | `cargo xtask test` | sets the machine up and runs the checks of a [`steps::Lane`] in order |
//! | `cargo xtask bench` | measures the `dist` binaries; the benches are in `benches/product/` |
//! | `cargo xtask dist` | builds a program for other machines, and packs it with its documents |
//! | `cargo xtask wire` | renews the files generated from `agent/protocol` |
//! | `cargo xtask soak` | injects random faults; checks the promises (`tests/testkit/src/soak/`) |

use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

mod archive;
mod counts;
mod dist;
mod images;
mod machine;
mod runner;
mod steps;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Greenroom's own commands")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the checks: format, lints, page, tests, the agent's dependencies, licences, API, browser
    Test {
        /// Set of checks to run
        #[arg(value_enum, default_value_t = steps::Lane::Full)]
        lane: steps::Lane,
        /// Run only this step
        #[arg(long, value_enum)]
        only: Option<steps::Step>,
        /// Install no packages; skip the checks that need one, and name them
        #[arg(long)]
        no_install: bool,
    },
    /// Measure the optimised binaries
    Bench {
        /// `start`, `back`, `replay`, `memory`, `tokens`, `relay`, `flood`, `interrupt`,
        /// `faults`, `pause`, `ui` or `workspace`; without a name, all of them
        names: Vec<String>,
    },
    /// Build a static program and pack it with its documents into a `.tar.gz`
    Dist {
        /// Profile of cargo; `dev` builds faster
        #[arg(long, default_value = dist::DIST_PROFILE)]
        profile: String,
    },
    /// Renew the page's types, the schemas of the OpenAPI document and the tables of the protocol
    Wire,
    /// Inject random faults and check the promises
    Soak {
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        #[arg(long, default_value_t = 20)]
        sessions: u64,
        /// Repeats the sequence of actions, though not their timing
        #[arg(long)]
        seed: Option<u64>,
        /// Run in Docker containers instead of the process sandbox
        #[arg(long)]
        docker: bool,
    },
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Test { lane, only, no_install } => steps::run(lane, only, machine::Install::from_flag(no_install)),
        Task::Bench { names } => bench(&names),
        Task::Dist { profile } => match dist::dist(&profile) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("{reason}");
                ExitCode::FAILURE
            }
        },
        Task::Wire => run(runner::cargo()
            .args(["test", "-p", "greenroom-protocol", "--lib", "generated_files"])
            .env("RENEW_WIRE", "1")),
        Task::Soak { minutes, sessions, seed, docker } => soak(minutes, sessions, seed, docker),
    }
}

fn bench(names: &[String]) -> ExitCode {
    let machine = machine::Machine::new(machine::Install::Forbidden);
    if let Err(reason) = machine.engine().and_then(|()| images::make_all()) {
        println!("without Docker: {reason}");
    }
    run(runner::cargo().args(["bench", "--profile", "dist", "--workspace", "--bench", "product", "--"]).args(names))
}

fn soak(minutes: u64, sessions: u64, seed: Option<u64>, docker: bool) -> ExitCode {
    let machine = machine::Machine::new(machine::Install::Forbidden);
    if docker && let Err(reason) = machine.engine().and_then(|()| images::make_all()) {
        eprintln!("the Docker soak needs an engine: {reason}");
        return ExitCode::FAILURE;
    }
    let mut cargo = runner::cargo();
    cargo.args(["bench", "--profile", "dist", "--workspace", "--bench", "soak", "--"]);
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
