//! Decision about a tool call. Pure.

use greenroom_protocol::{
    Action,
    approval::{ApprovalMode, RiskAssessment, RiskLevel},
};

use super::{
    ApprovalRule, RuleAction, describe,
    parts::{CallPart, CallPartKind, CallParts},
    pattern::PatternMatch,
    rule_match,
    shell::Unclear,
};

/// Facts for a decision about `call`.
#[derive(Debug, Clone, Copy)]
pub struct PolicyInput<'a> {
    pub call: &'a Action,
    pub mode: ApprovalMode,
    /// Working directory of commands, inside the sandbox.
    pub workspace: &'a str,
    /// Name of the session's agent.
    pub agent: &'a str,
    pub risk: Option<&'a RiskAssessment>,
    /// Rules of the session, of its project and of the configuration.
    pub rules: [&'a [ApprovalRule]; 3],
}

/// Decision about a tool call. The texts are for people and for the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyDecision {
    Allow,
    /// A person decides. `asked_by` names the rule, the mode or the analyzer that asked.
    Ask {
        asked_by: String,
    },
    /// `decided_by` names the rule or the mode.
    Deny {
        reason: String,
        decided_by: String,
    },
}

/// Owners of rules, in the order of [`PolicyInput::rules`].
const OWNERS: [&str; 3] = ["session", "project", "configuration"];

/// Place of the configuration's rules in [`PolicyInput::rules`].
const CONFIGURATION: usize = 2;

/// Returns the decision about a call.
///
/// Each part of the call is judged: each simple command, each redirection. The strictest result
/// wins. A part is denied if the first rule of the configuration that matches denies it. Otherwise
/// the first match decides, among the rules of the session, the project and the configuration.
/// Without a match, the mode decides. In mode `plan`, rules allow nothing that changes something.
pub fn decide(input: PolicyInput<'_>) -> PolicyDecision {
    let parts = CallParts::of(input.call, input.workspace);
    let mut strictest = PolicyDecision::Allow;
    let needs_decision = parts.items.iter().any(|part| part.command().is_some() && !part.is_harmless());
    let is_plan = input.mode == ApprovalMode::Plan && !parts.is_read_only;
    for part in &parts.items {
        let decision = match by_rules(input, part, &parts.tools) {
            Some(denied @ PolicyDecision::Deny { .. }) => denied,
            _ if is_plan => plan_denies(),
            Some(decision) => decision,
            // Beside a command that needs a decision, others only print or filter.
            None if needs_decision && part.is_harmless() => by_risk(input),
            None => by_mode(input, part, &parts),
        };
        strictest = stricter(strictest, decision);
    }
    match &parts.unclear {
        Some(unclear) => stricter(strictest, unclear_line(input.mode, unclear)),
        None => strictest,
    }
}

fn by_rules(input: PolicyInput<'_>, part: &CallPart, tools: &[String]) -> Option<PolicyDecision> {
    let matches = |rule: &ApprovalRule| rule_match::compare(rule, part, tools, input.agent, input.workspace);
    let first = |owner: usize| {
        input.rules[owner].iter().find_map(|rule| match matches(rule) {
            PatternMatch::No => None,
            PatternMatch::Maybe if rule.action == RuleAction::Allow => None,
            certainty => Some((owner, rule, certainty)),
        })
    };
    let configured = first(CONFIGURATION);
    // A rule that may deny at run time hides no later rule that denies for certain.
    let denies = |wanted: PatternMatch| {
        let rules = input.rules[CONFIGURATION].iter().map(|rule| (CONFIGURATION, rule, matches(rule)));
        let mut restricting =
            rules.take_while(|(_, rule, certainty)| rule.action == RuleAction::Deny || *certainty != PatternMatch::Yes);
        restricting.find(|(_, rule, certainty)| rule.action == RuleAction::Deny && *certainty == wanted)
    };
    let denied = denies(PatternMatch::Yes).or_else(|| denies(PatternMatch::Maybe));
    let (owner, rule, certainty) = denied.or_else(|| first(0)).or_else(|| first(1)).or(configured)?;
    let name = format!("rule of the {}: {}", OWNERS[owner], describe(rule));
    Some(match (rule.action, certainty) {
        (RuleAction::Allow, _) => PolicyDecision::Allow,
        (RuleAction::Deny, PatternMatch::Yes) => PolicyDecision::Deny {
            reason: rule
                .reason
                .clone()
                .unwrap_or_else(|| format!("a rule of the {} denies {}", OWNERS[owner], describe(rule))),
            decided_by: name,
        },
        (RuleAction::Ask, PatternMatch::Yes) => PolicyDecision::Ask { asked_by: name },
        (RuleAction::Ask | RuleAction::Deny, PatternMatch::Maybe | PatternMatch::No) => {
            PolicyDecision::Ask { asked_by: format!("{name}, which may apply at run time") }
        }
    })
}

/// Returns the decision of the mode about a part that no rule matches.
fn by_mode(input: PolicyInput<'_>, part: &CallPart, parts: &CallParts) -> PolicyDecision {
    let by_mode = || PolicyDecision::Ask { asked_by: format!("mode `{}`", input.mode.name()) };
    let is_inside = !part.places.is_empty() && part.places.iter().all(|place| place.is_inside());
    match input.mode {
        _ if parts.is_read_only => by_risk(input),
        ApprovalMode::Plan => plan_denies(),
        ApprovalMode::Ask => by_mode(),
        ApprovalMode::Edits => match part.kind {
            CallPartKind::Edit | CallPartKind::WrittenFile if is_inside => by_risk(input),
            CallPartKind::ReadFile => by_risk(input),
            CallPartKind::Edit | CallPartKind::WrittenFile | CallPartKind::Command(_) | CallPartKind::Other => {
                by_mode()
            }
        },
        ApprovalMode::Auto => by_risk(input),
    }
}

/// Asks about a high risk.
fn by_risk(input: PolicyInput<'_>) -> PolicyDecision {
    match input.risk {
        Some(risk) if risk.level == RiskLevel::High => {
            PolicyDecision::Ask { asked_by: format!("analyzer `{}`", risk.analyzer) }
        }
        Some(_) | None => PolicyDecision::Allow,
    }
}

fn plan_denies() -> PolicyDecision {
    PolicyDecision::Deny {
        reason: "the session is in plan mode, which only reads and searches; describe the change in the plan"
            .to_owned(),
        decided_by: "mode `plan`".to_owned(),
    }
}

fn unclear_line(mode: ApprovalMode, unclear: &Unclear) -> PolicyDecision {
    match mode {
        ApprovalMode::Plan => plan_denies(),
        ApprovalMode::Ask | ApprovalMode::Edits | ApprovalMode::Auto => {
            PolicyDecision::Ask { asked_by: unclear.0.clone() }
        }
    }
}

/// Returns the stricter decision. Of two equally strict ones, the first, except that the reason for
/// which a line is unclear tells more than a mode.
fn stricter(first: PolicyDecision, second: PolicyDecision) -> PolicyDecision {
    match (&first, &second) {
        (PolicyDecision::Deny { .. }, _) => first,
        (_, PolicyDecision::Deny { .. }) => second,
        (PolicyDecision::Ask { asked_by }, PolicyDecision::Ask { .. }) if asked_by.starts_with("mode ") => second,
        (PolicyDecision::Ask { .. }, _) => first,
        (PolicyDecision::Allow, _) => second,
    }
}

#[cfg(test)]
mod tests;
