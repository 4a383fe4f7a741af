//! Child programs of a step: shows their output as it comes and returns the step's outcome.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    process::{Command, ExitStatus, Stdio},
};

use crate::{
    counts::TestCounts,
    machine::{root, target_dir},
};

/// Outcome of one step.
pub(crate) enum StepOutcome {
    Passed(TestCounts),
    /// Could not run on this machine; the text is the reason.
    Skipped(String),
    Failed(TestCounts, String),
}

impl StepOutcome {
    /// Failure outside any test.
    pub(crate) fn failed(reason: String) -> StepOutcome {
        StepOutcome::Failed(TestCounts::default(), reason)
    }
}

/// Cargo without the variables that cargo sets for the programs it runs, xtask among them.
///
/// With them, some build scripts would run again and everything above them would be compiled again.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Program of a step, started at the workspace's root.
pub(crate) struct Runner {
    command: Command,
    name: String,
}

impl Runner {
    pub(crate) fn new(program: &str, args: &[&str]) -> Runner {
        let mut command = if program == "cargo" { cargo() } else { Command::new(program) };
        command.args(args).current_dir(root()).stdin(Stdio::null());
        Runner { command, name: format!("{program} {}", args.join(" ")) }
    }

    pub(crate) fn cargo(args: &[&str]) -> Runner {
        Runner::new("cargo", args)
    }

    pub(crate) fn at(mut self, dir: &str) -> Runner {
        self.command.current_dir(root().join(dir));
        self
    }

    pub(crate) fn with(mut self, (name, value): (&str, &str)) -> Runner {
        self.command.env(name, value);
        self
    }

    /// Runs a program that counts no tests.
    pub(crate) fn outcome(mut self) -> StepOutcome {
        println!("  {}", self.name);
        let status = self.command.status();
        self.judged(status, TestCounts::default())
    }

    /// Runs `cargo nextest run` and reads the counts from its JUnit report.
    pub(crate) fn nextest(mut self) -> StepOutcome {
        println!("  {}", self.name);
        let report = target_dir().join("nextest/default/junit.xml");
        // The report of an earlier run would be read if nothing compiles now.
        if let Err(e) = fs::remove_file(&report)
            && e.kind() != io::ErrorKind::NotFound
        {
            return StepOutcome::failed(format!("`{}`: {e}", report.display()));
        }
        let status = self.command.status();
        let counts = fs::read_to_string(&report).ok().and_then(|text| TestCounts::from_junit(&text));
        match (self.judged(status, counts.unwrap_or_default()), counts) {
            (StepOutcome::Passed(_), None) => {
                StepOutcome::failed(format!("`{}` has no totals of the tests that ran", report.display()))
            }
            (outcome, _) => outcome,
        }
    }

    /// Runs node's test runner and reads the counts from its output.
    pub(crate) fn node_tests(mut self) -> StepOutcome {
        println!("  {}", self.name);
        let mut counts = TestCounts::default();
        let status = self.read_output(|line| counts.add(TestCounts::from_node(line)));
        self.judged(status, counts)
    }

    fn judged(&self, status: io::Result<ExitStatus>, counts: TestCounts) -> StepOutcome {
        match status {
            Ok(status) if status.success() => StepOutcome::Passed(counts),
            Ok(status) => StepOutcome::Failed(counts, format!("`{}` ({status})", self.name)),
            Err(e) => StepOutcome::Failed(counts, format!("`{}` cannot be started: {e}", self.name)),
        }
    }

    fn read_output(&mut self, mut on_line: impl FnMut(&str)) -> io::Result<ExitStatus> {
        let mut child = self.command.stdout(Stdio::piped()).spawn()?;
        if let Some(output) = child.stdout.take() {
            let mut lines = BufReader::new(output);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line)? > 0 {
                io::stdout().write_all(&line)?;
                on_line(String::from_utf8_lossy(&line).trim_end());
                line.clear();
            }
        }
        child.wait()
    }
}
