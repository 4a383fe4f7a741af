//! `cargo xtask test`: every check, one after the other, each named and timed; the first that fails is the last.

use std::{
    collections::BTreeSet,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::ValueEnum;

use crate::{
    images,
    machine::{Install, Machine, on_path, root},
    runner::{Runner, Went, cargo},
    tally::Tally,
};

/// The steps, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// `cargo fmt --check`
    Fmt,
    /// `cargo clippy`, where a warning is an error
    Clippy,
    /// The web UI: types and unit tests
    Ui,
    /// `cargo test`: units, layers, and the real product in `tests/it`
    Tests,
    /// The agent links neither sled nor bollard nor actix
    Links,
    /// `cargo deny`: advisories, licences, sources
    Deny,
    /// The real product in a real browser
    Browser,
}

/// What the agent, which runs beside hostile code in any image, must not bring along.
const NOT_IN_THE_AGENT: [&str; 5] = ["actix", "actix-web", "actix-web-actors", "bollard", "sled"];

/// Runs one step or all of them; the last line printed is `N passed, N failed`.
pub(crate) fn run(only: Option<Step>, install: Install) -> ExitCode {
    let machine = Machine::new(install);
    let steps: Vec<Step> = only.map_or_else(|| Step::value_variants().to_vec(), |step| vec![step]);
    let mut total = Tally::default();
    let mut summary = Vec::new();
    let mut failed = false;
    for step in steps {
        println!("\n== {}", step.name());
        let began = Instant::now();
        let went = step.run(&machine);
        let took = began.elapsed();
        let (tally, line) = match went {
            Went::Well(tally) => (tally, format!("ok{}", counted(tally))),
            Went::AtLast(tally, names) => (tally, format!("ok{}; UNSTEADY: {}", counted(tally), names.join(", "))),
            Went::LeftOut(why) => (Tally::default(), format!("left out: {why}")),
            Went::Wrong(tally, why) => {
                failed = true;
                (Tally { failed: tally.failed.max(1), ..tally }, format!("FAILED: {why}"))
            }
        };
        total.add(tally);
        let line = format!("{:<8} {:>7} {line}", step.name(), seconds(took));
        println!("== {line}");
        summary.push(line);
        if failed {
            break;
        }
    }
    drop(machine);
    println!("\n{}\n{total}", summary.join("\n"));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn run(self, machine: &Machine) -> Went {
        match self {
            Step::Fmt => Runner::cargo(&["fmt", "--all", "--check"]).went(),
            Step::Clippy => clippy(machine),
            Step::Ui => ui(machine),
            Step::Tests => tests(machine),
            Step::Links => links(),
            Step::Deny if !on_path("cargo-deny") => {
                Went::LeftOut("`cargo-deny` is not installed (`cargo install cargo-deny`)".to_owned())
            }
            Step::Deny => Runner::cargo(&["deny", "check"]).went(),
            Step::Browser => browser(machine),
        }
    }
}

fn clippy(machine: &Machine) -> Went {
    // The build script of the server builds the web UI.
    if let Err(why) = machine.ui() {
        return Went::Wrong(Tally::default(), why);
    }
    Runner::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).went()
}

fn ui(machine: &Machine) -> Went {
    if let Err(why) = machine.ui() {
        return Went::Wrong(Tally::default(), why);
    }
    let npm = |args: &[&str]| Runner::new("npm", args).at("static").went();
    // The lints before built the server, and its build script installed the packages; alone, this step does it.
    if !root().join("static/node_modules").is_dir()
        && let Went::Wrong(tally, why) = npm(&["ci", "--no-audit", "--no-fund"])
    {
        return Went::Wrong(tally, why);
    }
    match npm(&["run", "check"]) {
        Went::Well(_) => npm(&["test"]),
        other => other,
    }
}

/// The variable that makes a test fail, instead of leaving Docker out, where no engine answers.
const ENGINE_IS_THERE: (&str, &str) = ("GREENROOM_TEST_DOCKER", "required");

fn tests(machine: &Machine) -> Went {
    if let Err(why) = machine.clock() {
        println!("  no clock is set: {why}");
    }
    let docker = machine.engine().and_then(|()| images::make_all());
    // One more at a time than there are cores: many wait, for an agent, a disk, a deadline.
    let at_a_time = std::thread::available_parallelism().map_or(2, |cores| cores.get() + 1).to_string();
    let runner =
        Runner::cargo(&["test", "--workspace", "--no-fail-fast"]).with(("RUST_TEST_THREADS", at_a_time.as_str()));
    match docker {
        Ok(()) => runner.with(ENGINE_IS_THERE).went_once_more(),
        Err(why) => {
            println!("  without Docker: {why}");
            runner.went_once_more()
        }
    }
}

fn browser(machine: &Machine) -> Went {
    match machine.browser() {
        Ok(()) => Runner::cargo(&["test", "--workspace", "--test", "browser", "--", "--ignored"]).went_once_more(),
        Err(why) => Went::LeftOut(why),
    }
}

fn links() -> Went {
    let args = ["tree", "--package", "greenroom-agent", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let output = match cargo().args(args).current_dir(root()).output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => return Went::Wrong(Tally::default(), String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(e) => return Went::Wrong(Tally::default(), format!("cargo cannot be started: {e}")),
    };
    let tree = String::from_utf8_lossy(&output.stdout);
    let linked: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let wrong: Vec<&str> = NOT_IN_THE_AGENT.into_iter().filter(|name| linked.contains(name)).collect();
    if wrong.is_empty() {
        return Went::Well(Tally::default());
    }
    let why = format!(
        "greenroom-agent links {}; the agent is small and runs in any image: move what needs it to the server, and see \
         who brings it with `cargo tree -p greenroom-agent -e normal -i {}`",
        wrong.join(", "),
        wrong[0]
    );
    Went::Wrong(Tally::default(), why)
}

fn counted(tally: Tally) -> String {
    if tally == Tally::default() { String::new() } else { format!(", {tally}") }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
