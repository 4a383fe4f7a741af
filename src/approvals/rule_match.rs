//! Match of a rule with a part of a call.

use globset::GlobBuilder;

use super::{
    ApprovalRule, RuleAction,
    parts::{CallPart, CallPartKind},
    pattern::{CommandPattern, PatternMatch},
    place::Place,
    shell::is_powerful,
};

/// Compares a rule with a part. A rule that allows must match for certain. A rule that asks or
/// denies already matches if one of several places or hosts does.
pub(super) fn compare(
    rule: &ApprovalRule,
    part: &CallPart,
    tools: &[String],
    agent: &str,
    workspace: &str,
) -> PatternMatch {
    let is_strict = rule.action == RuleAction::Allow;
    let mut result = PatternMatch::Yes;
    if rule.agent.as_ref().is_some_and(|wanted| wanted != agent) {
        return PatternMatch::No;
    }
    if let Some(tool) = &rule.tool
        && !matches_tool(tool, part, tools)
    {
        return PatternMatch::No;
    }
    if let Some(pattern) = &rule.command {
        let Some(command) = part.command() else { return PatternMatch::No };
        let pattern = CommandPattern::new(pattern);
        result = match is_strict {
            true if command.variables.iter().any(|name| is_powerful(name)) => PatternMatch::No,
            true if pattern.permits(command) => PatternMatch::Yes,
            true => PatternMatch::No,
            false => pattern.restricts(command),
        };
    }
    // The arguments of a command may be anything, so a path or a host alone allows no command.
    if is_strict && rule.command.is_none() && part.command().is_some() && (rule.path.is_some() || rule.host.is_some()) {
        return PatternMatch::No;
    }
    if let Some(path) = &rule.path {
        result = result.min(match_places(path, &part.places, is_strict, workspace));
    }
    if let Some(host) = &rule.host {
        let is_match = |own: &String| matches_host(host, own);
        let matches = match is_strict {
            true => !part.hosts.is_empty() && part.hosts.iter().all(is_match),
            false => part.hosts.iter().any(is_match),
        };
        result = result.min(if matches { PatternMatch::Yes } else { PatternMatch::No });
    }
    result
}

fn matches_tool(wanted: &str, part: &CallPart, tools: &[String]) -> bool {
    let by_redirection = match part.kind {
        CallPartKind::WrittenFile => ["write", "edit"].contains(&wanted),
        CallPartKind::ReadFile => wanted == "read",
        CallPartKind::Command(_) | CallPartKind::Edit | CallPartKind::Other => false,
    };
    let is_name = |tool: &String| match wanted.strip_suffix('*') {
        Some(start) => tool.starts_with(start),
        None => tool == wanted,
    };
    by_redirection || tools.iter().any(is_name)
}

/// Compares a glob with places. A relative glob, and one below `workspace`, match inside the
/// workspace. Another one matches the absolute path or the path that begins with `~`.
fn match_places(glob: &str, places: &[Place], is_strict: bool, workspace: &str) -> PatternMatch {
    let below = glob.strip_prefix(workspace.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
    let glob = below.unwrap_or(glob);
    let Ok(glob) = GlobBuilder::new(glob.strip_prefix("./").unwrap_or(glob)).literal_separator(true).build() else {
        return if is_strict { PatternMatch::No } else { PatternMatch::Maybe };
    };
    let is_relative = !glob.glob().starts_with(['/', '~']);
    let matcher = glob.compile_matcher();
    let matches = places.iter().map(|place| match place {
        Place::Inside(path) if is_relative => yes_if(matcher.is_match(path)),
        Place::Outside(path) if !is_relative => yes_if(matcher.is_match(path)),
        Place::Inside(_) | Place::Outside(_) => PatternMatch::No,
        Place::Unknown(_) => PatternMatch::Maybe,
    });
    match is_strict {
        true => matches.min().unwrap_or(PatternMatch::No),
        false => matches.max().unwrap_or(PatternMatch::No),
    }
}

fn yes_if(matches: bool) -> PatternMatch {
    if matches { PatternMatch::Yes } else { PatternMatch::No }
}

/// Compares hosts without regard to case. `*.example.org` stands for the host and its subdomains.
fn matches_host(wanted: &str, host: &str) -> bool {
    let wanted = wanted.to_lowercase();
    let is_same = |name: &str| super::place::host_of(&format!("http://{name}/")).is_some_and(|name| name == host);
    match wanted.strip_prefix("*.") {
        _ if wanted == "*" => true,
        Some(domain) => {
            let domain = super::place::host_of(&format!("http://{domain}/")).unwrap_or_default();
            host == domain || host.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'))
        }
        None => is_same(&wanted),
    }
}
