//! Approvals over REST: rules, and the security of a session.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{approvals::ApprovalRule, web::route_table::DocumentedRoutes};

mod analyzer_passage;
mod findings;
mod rules;
mod security;

/// Returns the documented routes of approvals.
pub(in crate::web) fn documented() -> DocumentedRoutes {
    rules::documented().merge(security::documented()).merge(analyzer_passage::documented())
}

/// Rule about tool calls. A call matches if all fields that are set match.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = ApprovalRule)]
struct RuleRow {
    /// Id by which the rule can be removed. Absent for rules of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Name of the tool, or kind of a generic tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// Pattern of a simple command.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// Glob of a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Host of an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// Name of the session's agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// Effect: `allow`, `ask` or `deny`.
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl RuleRow {
    fn new(rule: &ApprovalRule, id: Option<String>) -> RuleRow {
        let ApprovalRule { tool, command, path, host, agent, action, reason } = rule.clone();
        RuleRow { id, tool, command, path, host, agent, action: action.into(), reason }
    }
}

/// Returns the rules of a list with their ids.
fn removable(scope: &str, rules: &[ApprovalRule]) -> Vec<RuleRow> {
    rules.iter().map(|rule| RuleRow::new(rule, Some(rule_id(scope, rule)))).collect()
}

/// Returns the id of a rule, which follows from its content: a repeated removal removes no other
/// rule. `scope` names the session or the project.
fn rule_id(scope: &str, rule: &ApprovalRule) -> String {
    // A rule has string keys and plain values, so serialization cannot fail.
    let rule = serde_json::to_string(rule).expect("a rule is JSON");
    let digest = Sha256::digest(format!("{scope}\0{rule}"));
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the position of the rule with this id.
fn rule_of<'a>(id: &str, scope: &str, rules: &'a [ApprovalRule]) -> Option<&'a ApprovalRule> {
    rules.iter().find(|rule| rule_id(scope, rule) == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approvals::RuleAction;

    #[test]
    fn id_of_a_rule_follows_from_scope_and_content() {
        let rule = |command: &str| ApprovalRule {
            tool: None,
            command: Some(command.to_owned()),
            path: None,
            host: None,
            agent: None,
            action: RuleAction::Allow,
            reason: None,
        };
        let rules = [rule("git push*"), rule("make")];
        let ids: Vec<Option<String>> = removable("/srv", &rules).into_iter().map(|row| row.id).collect();
        let second = ids[1].clone().expect("a rule of a project has an id");
        assert_ne!(ids[0], ids[1]);
        assert_eq!(rule_of(&second, "/srv", &rules), Some(&rules[1]));
        assert_eq!(rule_of(&second, "/srv", &rules[1..]), Some(&rules[1]), "the id does not depend on the position");
        assert_eq!(rule_of(&second, "/home", &rules), None);
        assert_eq!(rule_of("", "/srv", &rules), None);
    }
}
