//! Counts of passed and failed tests, read from what the runners print.

use std::fmt;

/// How many tests passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// What a runner printed about its tests.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// The tests of libtest that failed, as they name themselves.
    pub(crate) failed: Vec<String>,
    passed: Vec<String>,
    begun: u64,
    ended: u64,
}

impl Outcome {
    /// Takes one line of a runner's output into account: libtest's `test a::b ... FAILED` and `test result: ok. 3 passed; 0
    /// failed; …`, or node's `# pass 3` and `# fail 0` (`ℹ pass 3` on a terminal).
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.ended += 1;
            self.tally.passed += count_before(result, " passed");
            self.tally.failed += count_before(result, " failed");
        } else if let Some(test) = line.strip_prefix("test ") {
            if let Some(name) = test.strip_suffix(" ... FAILED") {
                self.failed.push(name.to_owned());
            } else if let Some(name) = test.strip_suffix(" ... ok") {
                self.passed.push(name.to_owned());
            }
        } else if is_beginning(line) {
            self.begun += 1;
        } else if let Some(node) = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ ")) {
            self.tally.passed += count_after(node, "pass ");
            self.tally.failed += count_after(node, "fail ");
        }
    }

    /// Whether each test program came to its end, and told the name of each test that failed.
    pub(crate) fn is_whole(&self) -> bool {
        self.begun == self.ended && self.tally.failed == self.failed.len() as u64
    }

    /// Whether each of these passed.
    pub(crate) fn passed_all(&self, names: &[String]) -> bool {
        self.is_whole() && names.iter().all(|name| self.passed.contains(name))
    }
}

/// libtest's `running 3 tests`.
fn is_beginning(line: &str) -> bool {
    let count = line.strip_prefix("running ").and_then(|rest| rest.split_once(' '));
    count.is_some_and(|(n, what)| n.parse::<u64>().is_ok() && (what == "test" || what == "tests"))
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

fn count_before(text: &str, word: &str) -> u64 {
    let number = text.split(word).next().filter(|before| before.len() < text.len());
    number.and_then(|before| before.rsplit(' ').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn count_after(text: &str, word: &str) -> u64 {
    text.strip_prefix(word).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Outcome {
        let mut outcome = Outcome::default();
        lines.lines().for_each(|line| outcome.read(line));
        outcome
    }

    fn check(lines: &str, passed: u64, failed: u64) {
        assert_eq!(read(lines).tally, Tally { passed, failed }, "{lines}");
    }

    #[test]
    fn runners() {
        check("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s", 12, 0);
        check("test result: FAILED. 5 passed; 2 failed; 0 ignored", 5, 2);
        check("# tests 4\n# pass 3\n# fail 1\n# cancelled 0", 3, 1);
        check("ℹ pass 7\nℹ fail 0", 7, 0);
        check("running 3 tests\n# passing by\n10 passed by the window", 0, 0);
        check("test result: ok. 1 passed; 0 failed\ntest result: ok. 2 passed; 0 failed", 3, 0);
    }
    #[test]
    fn names() {
        let ran = read(
            "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n\
             running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored",
        );
        assert!(ran.is_whole());
        assert_eq!(ran.failed, ["a::c"]);
        assert!(ran.passed_all(&["a::b".to_owned()]));
        assert!(!ran.passed_all(&["a::c".to_owned()]), "it failed");
        assert!(!ran.passed_all(&["a::d".to_owned()]), "it did not run");
        assert!(!read("running 1 test\ntest a ... ok").is_whole(), "the program fell");
        assert!(!read("running 1 test\ntest result: FAILED. 0 passed; 1 failed").is_whole(), "one has no name");
    }
}
