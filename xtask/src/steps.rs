//! `cargo xtask test`: runs the checks of one lane in order, and stops at the first failure.

use std::{
    collections::BTreeSet,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::ValueEnum;

use crate::{
    counts::TestCounts,
    images,
    machine::{Install, Machine, on_path, root},
    runner::{Runner, StepOutcome, cargo},
};

/// Set of checks, by how long a developer waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lane {
    /// Format, page, unit and contract tests, in-process integration
    Quick,
    /// Everything that must pass before a merge
    Full,
    /// `full`, the slowest tests, the tools of the OpenAPI document, and five minutes of soak on
    /// each sandbox driver
    All,
}

/// Single check of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// `cargo fmt --check`
    Fmt,
    /// Builds everything with clippy, warnings denied
    Clippy,
    /// The page: types and tests
    Ui,
    /// `cargo nextest`: units, contracts, and the real product in `tests/it`
    Tests,
    /// The agent links neither sled nor bollard nor actix
    Links,
    /// `cargo deny`: advisories, licences, sources
    Deny,
    /// The OpenAPI document under a linter, a generated client and a fuzzer
    Openapi,
    /// The real product in a real browser
    Browser,
    /// Random faults against the real product
    Soak,
}

impl Lane {
    fn steps(self) -> &'static [Step] {
        use Step::{Browser, Clippy, Deny, Fmt, Links, Openapi, Soak, Tests, Ui};
        match self {
            Lane::Quick => &[Fmt, Ui, Tests],
            Lane::Full => &[Fmt, Clippy, Ui, Tests, Links, Deny, Browser],
            Lane::All => &[Fmt, Clippy, Ui, Tests, Links, Deny, Browser, Openapi, Soak],
        }
    }
}

/// Crates that the agent must not link: the agent runs beside hostile code in any image.
const NOT_IN_THE_AGENT: [&str; 5] = ["actix", "actix-web", "actix-web-actors", "bollard", "sled"];

/// Runs the steps of a lane, or one step of it. The last line printed is `N passed, N failed`.
pub(crate) fn run(lane: Lane, only: Option<Step>, install: Install) -> ExitCode {
    let machine = Machine::new(install);
    let steps = only.map_or_else(|| lane.steps().to_vec(), |step| vec![step]);
    let mut total = TestCounts::default();
    let mut summary = Vec::new();
    let mut failed = false;
    for step in steps {
        println!("\n== {}", step.name());
        let began = Instant::now();
        let outcome = step.run(lane, &machine);
        let took = began.elapsed();
        let (counts, text) = match outcome {
            StepOutcome::Passed(counts) => (counts, format!("ok{}", counted(counts))),
            StepOutcome::Skipped(reason) => (TestCounts::default(), format!("skipped: {reason}")),
            StepOutcome::Failed(counts, reason) => {
                failed = true;
                (TestCounts { failed: counts.failed.max(1), ..counts }, format!("FAILED: {reason}"))
            }
        };
        total.add(counts);
        let line = format!("{:<8} {:>7} {text}", step.name(), seconds(took));
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

    fn run(self, lane: Lane, machine: &Machine) -> StepOutcome {
        match self {
            Step::Fmt => Runner::cargo(&["fmt", "--all", "--check"]).outcome(),
            Step::Clippy => clippy(machine),
            Step::Ui => ui(machine),
            Step::Tests => tests(lane, machine),
            Step::Links => links(),
            Step::Deny if !on_path("cargo-deny") => {
                StepOutcome::Skipped("`cargo-deny` is not installed (`cargo install cargo-deny`)".to_owned())
            }
            Step::Deny => Runner::cargo(&["deny", "check"]).outcome(),
            Step::Openapi => openapi(machine),
            Step::Browser => browser(machine),
            Step::Soak => soak(machine),
        }
    }
}

fn clippy(machine: &Machine) -> StepOutcome {
    // The build script of the server builds the web UI.
    if let Err(reason) = machine.ui() {
        return StepOutcome::failed(reason);
    }
    linting_cargo(&["build", "--workspace", "--all-targets"]).outcome()
}

/// Cargo with clippy's compiler, warnings denied. It builds what it lints, so lints, tests and the
/// browser's tests share one build. `cargo clippy` would check every crate once more.
fn linting_cargo(args: &[&str]) -> Runner {
    // What `cargo clippy -- -D warnings` sets (rust-clippy, `src/main.rs`).
    let clippy_args = ["-D", "warnings", ""].join("__CLIPPY_HACKERY__");
    Runner::cargo(args).with(("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")).with(("CLIPPY_ARGS", &clippy_args))
}

fn ui(machine: &Machine) -> StepOutcome {
    if let Err(reason) = machine.ui() {
        return StepOutcome::failed(reason);
    }
    let npm = |args: &[&str]| Runner::new("npm", args).at("static");
    // The server's build script installs the packages. This step may run before any build.
    if !root().join("static/node_modules").is_dir()
        && let StepOutcome::Failed(counts, reason) = npm(&["ci", "--no-audit", "--no-fund"]).outcome()
    {
        return StepOutcome::Failed(counts, reason);
    }
    match npm(&["run", "check"]).outcome() {
        StepOutcome::Passed(_) => npm(&["test"]).node_tests(),
        other => other,
    }
}

/// Makes a test fail if it needs Docker and no engine answers. Unset, the test is left out.
const DOCKER_REQUIRED: (&str, &str) = ("GREENROOM_TEST_DOCKER", "required");

/// Makes a test fail if it needs a reverse proxy and the program is missing. Unset, the test is
/// left out.
const PROXIES_REQUIRED: (&str, &str) = ("GREENROOM_TEST_PROXIES", "required");

/// Tests of the lane `all` alone: each takes longer than 45 s and rarely finds a fault.
const OPT_IN_TESTS: &str = "test(=greedy::clients_that_do_not_read_delay_no_one_and_catch_up) \
     or test(=deaths::stopped_agent_fails_and_busy_agent_continues) \
     or test(=overload::half_open_clients_are_detected) \
     or test(=soak::twenty_server_kills_lose_nothing_in_fifty_sessions) \
     or test(=workspaces::sparse_file_of_2_gb_needs_little_memory) \
     or test(=files::listing::tests::million_entries_are_listed_page_by_page)";

/// Everything but the real product: no engine, no browser, no server process.
const QUICK_TESTS: &str = "not binary_id(greenroom::it) and not test(/(^|::)docker::/)";

fn tests(lane: Lane, machine: &Machine) -> StepOutcome {
    if let Err(reason) = machine.nextest() {
        return StepOutcome::failed(reason);
    }
    // Twice as many tests as there are cores: most of their time they wait for an agent, a disk or
    // a deadline.
    let threads = std::thread::available_parallelism().map_or(4, |cores| 2 * cores.get()).to_string();
    let nextest = |args: &[&str]| {
        let all = [&["nextest", "run", "--workspace", "--test-threads", &threads], args].concat();
        linting_cargo(&all)
    };
    if lane == Lane::Quick {
        return nextest(&["--filterset", QUICK_TESTS]).nextest();
    }
    if let Err(reason) = machine.fake_clock() {
        println!("  tests that set the clock are left out: {reason}");
    }
    let mut required = Vec::new();
    match machine.proxies() {
        Ok(()) => required.push(PROXIES_REQUIRED),
        Err(reason) => println!("  tests behind proxies are left out: {reason}"),
    }
    match machine.engine().and_then(|()| images::make_all()) {
        Ok(()) => required.push(DOCKER_REQUIRED),
        Err(reason) => println!("  without Docker: {reason}"),
    }
    let without_opt_in = format!("not ({OPT_IN_TESTS})");
    let run = match lane {
        Lane::All => nextest(&[]),
        Lane::Quick | Lane::Full => nextest(&["--filterset", &without_opt_in]),
    };
    required.into_iter().fold(run, Runner::with).nextest()
}

/// Tests that need tools beside cargo, in the test binary of that name.
fn tests_with_tools(binary: &str) -> Runner {
    let filter = format!("binary_id(greenroom::{binary})");
    linting_cargo(&["nextest", "run", "--workspace", "--run-ignored", "only", "--filterset", &filter])
}

fn openapi(machine: &Machine) -> StepOutcome {
    if let Err(reason) = machine.nextest() {
        return StepOutcome::failed(reason);
    }
    match machine.openapi_tools() {
        Ok(schemathesis) => {
            tests_with_tools("openapi").with(("GREENROOM_SCHEMATHESIS", &schemathesis.to_string_lossy())).nextest()
        }
        Err(reason) => StepOutcome::Skipped(reason),
    }
}

fn browser(machine: &Machine) -> StepOutcome {
    if let Err(reason) = machine.nextest() {
        return StepOutcome::failed(reason);
    }
    match machine.browser() {
        Ok(()) => tests_with_tools("browser").nextest(),
        Err(reason) => StepOutcome::Skipped(reason),
    }
}

fn soak(machine: &Machine) -> StepOutcome {
    let soak = |driver: &[&str]| {
        let args = [&["bench", "--profile", "dist", "--workspace", "--bench", "soak", "--", "--minutes", "5"], driver]
            .concat();
        Runner::cargo(&args).outcome()
    };
    match (soak(&[]), machine.engine().and_then(|()| images::make_all())) {
        (StepOutcome::Passed(_), Ok(())) => soak(&["--docker"]),
        (StepOutcome::Passed(counts), Err(reason)) => {
            println!("  without Docker: {reason}");
            StepOutcome::Passed(counts)
        }
        (other, _) => other,
    }
}

fn links() -> StepOutcome {
    let args = ["tree", "--package", "greenroom-agent", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let output = match cargo().args(args).current_dir(root()).output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => return StepOutcome::failed(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(e) => return StepOutcome::failed(format!("cargo cannot be started: {e}")),
    };
    let tree = String::from_utf8_lossy(&output.stdout);
    let linked: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let wrong: Vec<&str> = NOT_IN_THE_AGENT.into_iter().filter(|name| linked.contains(name)).collect();
    if wrong.is_empty() {
        return StepOutcome::Passed(TestCounts::default());
    }
    StepOutcome::failed(format!(
        "greenroom-agent links {}; the agent is small and runs in any image: move the code that needs it to the server, \
         and find the path with `cargo tree -p greenroom-agent -e normal -i {}`",
        wrong.join(", "),
        wrong[0]
    ))
}

fn counted(counts: TestCounts) -> String {
    if counts == TestCounts::default() { String::new() } else { format!(", {counts}") }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opt_in_tests_exist() {
        let names: Vec<&str> = OPT_IN_TESTS.split("test(=").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        assert!(!names.is_empty(), "{OPT_IN_TESTS}");
        for name in names {
            let (module, test) = name.rsplit_once("::").expect("a name has its module");
            // Modules of the integration binary have one part.
            let dir = if module.contains("::") { "src" } else { "tests/it" };
            let path = root().join(format!("{dir}/{}.rs", module.replace("::", "/")));
            let source = std::fs::read_to_string(&path).expect("the module exists");
            assert!(source.contains(&format!("async fn {test}()")), "no test `{test}` in `{}`", path.display());
        }
    }
}
