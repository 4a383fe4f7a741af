use super::*;

/// Workspace of the corpus.
const WORKSPACE: &str = "/workspace";

/// Returns the commands of the corpus with their expected risk.
fn corpus() -> Vec<(RiskLevel, String)> {
    let lines = include_str!("corpus.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| {
        let (level, command) = line.split_once('\t').unwrap_or_else(|| panic!("`{line}` has no tab"));
        let level = serde_json::from_value(level.into()).unwrap_or_else(|e| panic!("`{line}`: {e}"));
        let command = command.replace("\\n", "\n").replace("\\r", "\r").replace("\\e", "\u{1b}");
        (level, command.replace("\\u{200b}", "\u{200b}"))
    });
    entries.collect()
}

#[test]
fn commands_of_the_corpus_have_the_expected_risk() {
    let corpus = corpus();
    assert!(corpus.len() >= 150, "the corpus has {} commands", corpus.len());
    let wrong = corpus.iter().filter_map(|(expected, command)| {
        let (level, reasons) = assess(&Action::Run { command: command.clone() }, WORKSPACE);
        let has_reason = (level == RiskLevel::Low) == reasons.is_empty();
        (level != *expected || !has_reason)
            .then(|| format!("{command:?}: {level:?} {reasons:?}, expected {expected:?}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), corpus.len(), wrong.join("\n"));
}

#[test]
fn tools_have_the_expected_risk() {
    let check = |call: serde_json::Value, expected: RiskLevel, reason: &str| {
        let action: Action = serde_json::from_value(call.clone()).expect("the call is an action");
        let (level, reasons) = assess(&action, WORKSPACE);
        assert_eq!(level, expected, "{call}: {reasons:?}");
        assert!(reasons.iter().any(|found| found.contains(reason)) || reason.is_empty(), "{call}: {reasons:?}");
    };
    let action = |name: &str, args: serde_json::Value| serde_json::json!({ "action": name, "args": args });
    let tool = |kind: &str, input: serde_json::Value, path: &str| {
        let locations = if path.is_empty() { serde_json::json!([]) } else { serde_json::json!([{ "path": path }]) };
        action("tool", serde_json::json!({ "kind": kind, "title": "t", "input": input, "locations": locations }))
    };
    use serde_json::json;
    check(action("write", json!({ "path": "src/a.rs", "content": "rm -rf /" })), RiskLevel::Low, "");
    check(action("write", json!({ "path": "../a.rs", "content": "" })), RiskLevel::Medium, "outside the workspace");
    check(action("write", json!({ "path": "/etc/passwd", "content": "" })), RiskLevel::High, "writes to the system");
    check(
        action("write", json!({ "path": ".git/hooks/post-merge", "content": "" })),
        RiskLevel::High,
        "which git runs",
    );
    check(action("write", json!({ "path": "/home/agent/.bashrc", "content": "" })), RiskLevel::High, "at sign-in");
    check(action("write", json!({ "path": "/tmp/a", "content": "" })), RiskLevel::Low, "");
    check(action("read", json!({ "path": "src/a.rs" })), RiskLevel::Low, "");
    check(action("read", json!({ "path": "~/.ssh/id_rsa" })), RiskLevel::High, "file with secrets");
    check(action("read", json!({ "path": ".env" })), RiskLevel::Medium, "file with secrets");
    check(action("browse", json!({ "url": "https://docs.example.org/a" })), RiskLevel::Low, "");
    check(action("browse", json!({ "url": "http://169.254.169.254/latest" })), RiskLevel::High, "credentials");
    check(action("browse", json!({ "url": "http://2852039166/latest" })), RiskLevel::High, "credentials");
    check(action("browse", json!({ "url": "file:///etc/passwd" })), RiskLevel::Medium, "through an address");
    check(
        action("browse", json!({ "url": "https://a.example/?k=AKIAIOSFODNN7EXAMPLE" })),
        RiskLevel::High,
        "an AWS key",
    );
    check(action("plan", json!({ "content": "rm -rf /" })), RiskLevel::Low, "");
    check(tool("execute", json!({ "command": "rm -rf /" }), ""), RiskLevel::High, "outside the workspace");
    check(
        tool("execute", json!({ "command": ["bash", "-lc", "git push --force"] }), ""),
        RiskLevel::High,
        "rewrites history",
    );
    check(tool("execute", json!({}), ""), RiskLevel::Medium, "does not name");
    check(tool("delete", json!({}), "src/a"), RiskLevel::Medium, "deletes a file");
    check(tool("edit", json!({}), "/etc/hosts"), RiskLevel::High, "writes to the system");
    check(tool("fetch", json!({ "url": "http://metadata.google.internal/" }), ""), RiskLevel::High, "credentials");
    check(tool("search", json!({ "pattern": "x" }), ""), RiskLevel::Low, "");
}

/// Time is bounded by limits on size and depth. The commands must be judged at all.
#[test]
fn hostile_lines_have_a_high_risk() {
    for line in ["$(".repeat(500_000), "(".repeat(1 << 20), "a;".repeat(30_000), format!("{}ls", "eval ".repeat(50))] {
        let (level, reasons) = assess(&Action::Run { command: line }, WORKSPACE);
        assert_eq!((level, reasons.is_empty()), (RiskLevel::High, false));
    }
}
