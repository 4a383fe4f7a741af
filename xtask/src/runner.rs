//! Other programs that are run: their output is shown as it comes, and read for what passed and failed.

use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Command, ExitStatus, Stdio},
};

use crate::{
    machine::root,
    tally::{Outcome, Tally},
};

/// More tests than this that fail at once are no matter of chance, and are not run once more.
const BY_CHANCE: usize = 3;

/// How a step went.
pub(crate) enum Went {
    Well(Tally),
    /// Well, but for tests of these names, which failed among the others and passed alone.
    AtLast(Tally, Vec<String>),
    /// Could not be done here, for this reason.
    LeftOut(String),
    Wrong(Tally, String),
}

/// Cargo, as a person would start it: without what it tells programs that it runs, such as this one. There are build scripts
/// that would run again for that, and everything above them would be compiled again.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|told| name.to_string_lossy().starts_with(told)) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// A program whose output is shown as it comes, and read.
pub(crate) struct Runner {
    command: Command,
    name: String,
}

impl Runner {
    pub(crate) fn new(program: &str, args: &[&str]) -> Runner {
        let mut command = if program == "cargo" { cargo() } else { Command::new(program) };
        command.args(args).current_dir(root()).stdin(Stdio::null()).stdout(Stdio::piped());
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

    pub(crate) fn went(mut self) -> Went {
        println!("  {}", self.name);
        let mut outcome = Outcome::default();
        self.run(&mut outcome).map_or_else(|why| Went::Wrong(outcome.tally, why), |()| Went::Well(outcome.tally))
    }

    /// Runs a test command of cargo; the few tests that fail run once more, alone. Most tests run the real product beside
    /// others of its kind against real deadlines, and where a machine stands still for seconds one of them may see that. Such
    /// a test is named in the summary: it is unsteady, which is to be mended, and no reason to hold up a change.
    pub(crate) fn went_once_more(mut self) -> Went {
        println!("  {}", self.name);
        let mut first = Outcome::default();
        let Err(why) = self.run(&mut first) else { return Went::Well(first.tally) };
        if !first.is_whole() || first.failed.is_empty() || first.failed.len() > BY_CHANCE {
            return Went::Wrong(first.tally, why);
        }
        let mut second = Outcome::default();
        if !self.name.contains(" -- ") {
            self.command.arg("--");
        }
        self.command.arg("--exact").args(&first.failed).env("RUST_TEST_THREADS", "1");
        println!("\n  once more, alone: {}", first.failed.join(", "));
        match self.run(&mut second) {
            Ok(()) if second.passed_all(&first.failed) => {
                let failed = first.failed.len() as u64;
                let tally = Tally { passed: first.tally.passed + failed, failed: first.tally.failed - failed };
                Went::AtLast(tally, first.failed)
            }
            Ok(()) | Err(_) => Went::Wrong(first.tally, why),
        }
    }

    fn run(&mut self, outcome: &mut Outcome) -> Result<(), String> {
        match self.status(outcome) {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`{}` ({status})", self.name)),
            Err(e) => Err(format!("`{}` cannot be run: {e}", self.name)),
        }
    }

    fn status(&mut self, outcome: &mut Outcome) -> io::Result<ExitStatus> {
        let mut child = self.command.spawn()?;
        if let Some(output) = child.stdout.take() {
            let mut lines = BufReader::new(output);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line)? > 0 {
                io::stdout().write_all(&line)?;
                outcome.read(String::from_utf8_lossy(&line).trim_end());
                line.clear();
            }
        }
        child.wait()
    }
}
