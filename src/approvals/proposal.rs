//! Rules that a person may add with "always", and rules in words.

use greenroom_protocol::{
    Action,
    approval::{ApprovalMode, RiskAssessment},
};

use super::{
    ApprovalRule, PolicyDecision, PolicyInput, RuleAction, decide,
    parts::{CallPartKind, CallParts},
    pattern::quoted,
    place::Place,
    shell::{CommandRole, ShellCommand},
};

/// Programs whose first argument names what they do. A rule covers that with any arguments.
const PROGRAMS_WITH_SUBCOMMANDS: [&str; 24] = [
    "apt", "apt-get", "brew", "bun", "bundle", "cargo", "composer", "deno", "dotnet", "gh", "git", "go", "gradle",
    "helm", "just", "make", "mvn", "npm", "pip", "pip3", "pnpm", "poetry", "uv", "yarn",
];

/// Subcommands that run any program. A rule covers one more word.
const RUNNING_SUBCOMMANDS: [&str; 6] = ["run", "exec", "x", "dlx", "tool", "run-script"];

/// Programs that run any code of their arguments. No rule is offered for them.
const CODE_RUNNERS: [&str; 20] = [
    ".", "awk", "bunx", "chroot", "docker", "doas", "env", "eval", "exec", "find", "gdb", "kubectl", "npx", "podman",
    "source", "ssh", "su", "sudo", "uvx", "xargs",
];

/// Interpreters. A rule for one names its script, never code in an argument.
const INTERPRETERS: [&str; 16] = [
    "ash", "bash", "dash", "fish", "ksh", "lua", "node", "perl", "php", "python", "python2", "python3", "ruby", "sh",
    "tclsh", "zsh",
];

/// Longest command for which a rule is offered, in bytes.
const PROPOSAL_LIMIT: usize = 200;

/// Returns the rule that allows calls like this one from now on. `None` if no narrow rule would.
pub fn propose_rule(call: &Action, workspace: &str) -> Option<ApprovalRule> {
    let parts = CallParts::of(call, workspace);
    if parts.unclear.is_some() {
        return None;
    }
    let mut items = parts.items.iter().filter(|part| !part.is_harmless());
    let part = match (items.next(), items.next()) {
        (Some(part), None) => part,
        // A line that only prints, or several commands: one rule cannot say what is meant.
        (None, _) if parts.items.len() == 1 => &parts.items[0],
        (Some(_) | None, _) => return None,
    };
    let rule = match (&part.kind, call) {
        (CallPartKind::Command(command), _) => ApprovalRule { command: Some(command_pattern(command)?), ..allow() },
        (CallPartKind::Edit, _) => {
            let [place] = &part.places[..] else { return None };
            ApprovalRule { tool: Some("edit".to_owned()), path: Some(path_glob(place)?), ..allow() }
        }
        (_, Action::Browse { .. }) => {
            ApprovalRule { tool: Some("browse".to_owned()), host: Some(part.hosts.first()?.clone()), ..allow() }
        }
        (CallPartKind::Other, Action::Tool { name: Some(name), .. })
            if parts.items.len() == 1 && !name.contains('*') =>
        {
            ApprovalRule { tool: Some(name.clone()), ..allow() }
        }
        (CallPartKind::Other | CallPartKind::ReadFile | CallPartKind::WrittenFile, _) => return None,
    };
    (rule.check().is_ok() && allows(&rule, call, workspace)).then_some(rule)
}

fn allow() -> ApprovalRule {
    ApprovalRule {
        tool: None,
        command: None,
        path: None,
        host: None,
        agent: None,
        action: RuleAction::Allow,
        reason: None,
    }
}

/// Returns true if the rule lets the call run in the strictest mode that has exceptions.
fn allows(rule: &ApprovalRule, call: &Action, workspace: &str) -> bool {
    let risk = None::<&RiskAssessment>;
    let rules = [std::slice::from_ref(rule), &[], &[]];
    let input = PolicyInput { call, mode: ApprovalMode::Ask, workspace, agent: "", risk, rules };
    decide(input) == PolicyDecision::Allow
}

/// Returns the pattern for a command: `git push *`, or the exact words.
fn command_pattern(command: &ShellCommand) -> Option<String> {
    let (name, arguments) = command.words.split_first()?;
    let program = command.name();
    let is_code = CODE_RUNNERS.contains(&program) || command.role == CommandRole::PowerfulWrapper;
    if is_code || (name.text.contains('/') && !name.text.starts_with('.') && !name.text.starts_with('/')) {
        return None;
    }
    if INTERPRETERS.contains(&program) {
        let script = arguments.first()?;
        // An option may be code, such as that of `python -c`.
        if script.text.starts_with('-') {
            return None;
        }
    }
    let shown = if name.text.starts_with('.') || name.text.starts_with('/') { name.text.as_str() } else { program };
    let exact = |words: &[super::shell::ShellWord]| {
        let words = words.iter().map(|word| quoted(word.value()?));
        let text: Option<Vec<String>> = std::iter::once(quoted(shown)).chain(words).collect();
        text.map(|words| words.join(" ")).filter(|text| text.len() <= PROPOSAL_LIMIT)
    };
    if !PROGRAMS_WITH_SUBCOMMANDS.contains(&program) {
        return exact(arguments);
    }
    let subcommand = arguments.first().and_then(|word| word.value());
    match subcommand {
        Some(word) if word.starts_with(['-', '+']) => exact(arguments),
        None => exact(arguments),
        Some(word) if RUNNING_SUBCOMMANDS.contains(&word) => match arguments.get(1).and_then(|word| word.value()) {
            Some(target) if !target.starts_with('-') => Some(format!("{} *", exact(&arguments[..2])?)),
            Some(_) | None => exact(arguments),
        },
        Some(_) => Some(format!("{} *", exact(&arguments[..1])?)),
    }
}

/// Returns the glob for an edit: the directory inside the workspace, or the file itself.
fn path_glob(place: &Place) -> Option<String> {
    let path = escape_glob(place.text());
    let is_hidden = place.text().split('/').any(|part| part.starts_with('.') || part.is_empty());
    match (place, path.rsplit_once('/')) {
        (Place::Inside(_), Some((dir, _))) if !is_hidden => Some(format!("{dir}/**")),
        (Place::Inside(_) | Place::Outside(_), _) if !path.is_empty() => Some(path),
        (Place::Inside(_) | Place::Outside(_) | Place::Unknown(_), _) => None,
    }
}

fn escape_glob(path: &str) -> String {
    globset::escape(path)
}

/// Returns what a rule covers, in words: "`git push *`", "edits of `src/**`".
pub fn describe(rule: &ApprovalRule) -> String {
    let covers = match (&rule.command, &rule.path, &rule.host) {
        (Some(command), ..) => format!("`{command}`"),
        (None, Some(path), _) => match rule.tool.as_deref() {
            None => format!("calls on `{path}`"),
            Some("edit" | "write") => format!("edits of `{path}`"),
            Some("read") => format!("reads of `{path}`"),
            Some(tool) => format!("`{tool}` on `{path}`"),
        },
        (None, None, Some(host)) => format!("addresses at `{host}`"),
        (None, None, None) => match &rule.tool {
            Some(tool) => format!("calls of `{tool}`"),
            None => "all calls".to_owned(),
        },
    };
    match &rule.agent {
        Some(agent) => format!("{covers} by agent `{agent}`"),
        None => covers,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(command: &str) -> Action {
        Action::Run { command: command.to_owned() }
    }

    #[test]
    fn narrow_rules_are_proposed() {
        let check = |call: Action, expected: Option<&str>| {
            let rule = propose_rule(&call, "/workspace");
            assert_eq!(rule.as_ref().map(describe).as_deref(), expected, "{call:?}");
            if let Some(rule) = rule {
                assert!(allows(&rule, &call, "/workspace"), "{rule:?}");
            }
        };
        check(run("git push origin main"), Some("`git push *`"));
        check(run("cd sub && cargo test -- --nocapture 2>&1 | tail -20"), Some("`cargo test *`"));
        check(run("timeout 60 npm run build"), Some("`npm run build *`"));
        check(run("rm -rf 'my dir'"), Some("`rm -rf 'my dir'`"));
        check(run("./configure --prefix=/usr"), Some("`./configure --prefix=/usr`"));
        check(run("python manage.py migrate"), Some("`python manage.py migrate`"));
        check(run("ls -la"), Some("`ls -la`"));
        for never in [
            "sh",
            "sudo ls",
            "sudo",
            "python -c 'print(1)'",
            "bash -c ls",
            "env ls",
            "node -e 1",
            "perl -e 1",
            "eval ls",
            "docker run x",
            "ssh host ls",
            "find . -exec rm {} ;",
            "rm $X",
            "rm *.o",
            "PATH=/x git push",
            "git push; npm publish",
            "git push > log",
            "echo 'unclosed",
            "npx thing",
        ] {
            check(run(never), None);
        }
        check(run("env A=1 sh -c 'git status'"), Some("`git status *`"));
        check(Action::Write { path: "src/a/b.rs".into(), content: String::new() }, Some("edits of `src/a/**`"));
        check(Action::Write { path: "README.md".into(), content: String::new() }, Some("edits of `README.md`"));
        check(Action::Write { path: ".git/hooks/x".into(), content: String::new() }, Some("edits of `.git/hooks/x`"));
        check(Action::Write { path: "/etc/hosts".into(), content: String::new() }, Some("edits of `/etc/hosts`"));
        check(Action::Write { path: "a[1]/b.rs".into(), content: String::new() }, Some("edits of `a[[]1[]]/**`"));
        check(Action::Browse { url: "https://docs.example.org/a?b".into() }, Some("addresses at `docs.example.org`"));
        let tool = |name: Option<&str>| Action::Tool {
            kind: greenroom_protocol::tool::ToolKind::Other,
            title: "Deploy".into(),
            name: name.map(str::to_owned),
            input: json!({}),
            locations: Vec::new(),
        };
        check(tool(Some("mcp__deploy")), Some("calls of `mcp__deploy`"));
        check(tool(None), None);
    }
}
