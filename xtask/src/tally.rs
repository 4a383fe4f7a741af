//! Counts of passed and failed tests, read from what the runners print.

use std::fmt;

/// How many tests passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// Takes one line of a runner's output into account: libtest's `test result: ok. 3 passed; 0 failed; …`, or node's
    /// `# pass 3` and `# fail 0` (`ℹ pass 3` on a terminal).
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count_before(result, " passed");
            self.failed += count_before(result, " failed");
        } else if let Some(node) = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ ")) {
            self.passed += count_after(node, "pass ");
            self.failed += count_after(node, "fail ");
        }
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
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

    fn check(lines: &str, passed: u64, failed: u64) {
        let mut tally = Tally::default();
        lines.lines().for_each(|line| tally.read(line));
        assert_eq!(tally, Tally { passed, failed }, "{lines}");
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
}
