//! Counts of passed and failed tests, read from the reports of the test runners.

use std::fmt;

/// Number of tests that passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TestCounts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl TestCounts {
    pub(crate) fn add(&mut self, other: TestCounts) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Reads the totals of nextest's JUnit report.
    ///
    /// Format: `<testsuites tests="3" failures="1" errors="0" …>`.
    ///
    /// Returns `None` if the report has no such element.
    pub(crate) fn from_junit(report: &str) -> Option<TestCounts> {
        let (_, rest) = report.split_once("<testsuites ")?;
        let (attributes, _) = rest.split_once('>')?;
        let number = |name: &str| -> Option<u64> {
            let (_, value) = attributes.split_once(&format!(" {name}=\""))?;
            value.split('"').next()?.parse().ok()
        };
        let failed = number("failures")? + number("errors")?;
        Some(TestCounts { passed: number("tests")?.checked_sub(failed)?, failed })
    }

    /// Reads one line of node's test runner: `# pass 3`, or `ℹ pass 3` on a terminal.
    pub(crate) fn from_node(line: &str) -> TestCounts {
        let count = |word: &str| {
            let summary = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "));
            summary.and_then(|rest| rest.strip_prefix(word)).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
        };
        TestCounts { passed: count("pass "), failed: count("fail ") }
    }
}

impl fmt::Display for TestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_totals_are_read() {
        let check = |report: &str, expected| assert_eq!(TestCounts::from_junit(report), expected, "{report}");
        let head = r#"<?xml version="1.0" encoding="UTF-8"?>"#;
        check(
            &format!(
                r#"{head}<testsuites name="nextest-run" tests="7" failures="2" errors="1" uuid="x"><testsuite tests="1">"#
            ),
            Some(TestCounts { passed: 4, failed: 3 }),
        );
        check(r#"<testsuites name="n" tests="0" failures="0" errors="0">"#, Some(TestCounts::default()));
        check(r#"<testsuites name="n" tests="1">"#, None);
        check("", None);
    }

    #[test]
    fn node_summary_lines_are_read() {
        let check = |line: &str, passed, failed| {
            assert_eq!(TestCounts::from_node(line), TestCounts { passed, failed }, "{line}");
        };
        check("# pass 3", 3, 0);
        check("ℹ fail 2", 0, 2);
        check("# passing by", 0, 0);
        check("10 passed by the window", 0, 0);
    }
}
