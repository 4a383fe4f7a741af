//! Decision about a tool call. Pure.

use greenroom_protocol::{
    Action,
    approval::{ApprovalMode, RiskAssessment, RiskLevel},
    tool::ToolKind,
};

use super::ApprovalRule;

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

/// Returns the decision about a call.
pub fn decide(input: PolicyInput<'_>) -> PolicyDecision {
    let asked_by = || PolicyDecision::Ask { asked_by: format!("mode `{}`", input.mode.name()) };
    match input.mode {
        _ if is_read_only(input.call) => PolicyDecision::Allow,
        ApprovalMode::Plan => PolicyDecision::Deny {
            reason: "the session is in plan mode, which only reads and searches; describe the change in the plan"
                .to_owned(),
            decided_by: "mode `plan`".to_owned(),
        },
        ApprovalMode::Ask => asked_by(),
        ApprovalMode::Edits if matches!(input.call, Action::Write { .. } | Action::Edit { .. }) => {
            PolicyDecision::Allow
        }
        ApprovalMode::Edits => asked_by(),
        ApprovalMode::Auto => match input.risk {
            Some(risk) if risk.level == RiskLevel::High => {
                PolicyDecision::Ask { asked_by: format!("analyzer `{}`", risk.analyzer) }
            }
            Some(_) | None => PolicyDecision::Allow,
        },
    }
}

/// Returns true if the call changes nothing inside the sandbox.
fn is_read_only(call: &Action) -> bool {
    match call {
        Action::Tool { kind, .. } => {
            matches!(kind, ToolKind::Read | ToolKind::Search | ToolKind::Think | ToolKind::Fetch)
        }
        other => matches!(
            other,
            Action::Read { .. }
                | Action::Browse { .. }
                | Action::Think { .. }
                | Action::Plan { .. }
                | Action::Finish { .. }
        ),
    }
}
