//! Approvals in the session's actor: applies the policy to tool calls and to approval requests.
//!
//! - This file: decisions of the policy.
//! - [`reviews`]: reviews of tool calls.
//! - [`requests`]: approval requests of the agent, their time limit, and people's answers.
//! - [`security`]: messages about mode, analyzer and rules.
//!
//! See docs/internals/link.md, "Reviews".

mod requests;
mod reviews;
pub mod security;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use greenroom_protocol::{
    Action,
    action::{EditTarget, FileEdit},
    approval::{ApprovalMode, RiskAssessment},
};

use super::actor::Session;
use crate::approvals::{Analyzer, AssessedCall, PolicyDecision, PolicyInput, decide};

/// Longest call that an open request keeps for another decision, as JSON, in bytes.
const KEPT_CALL_LIMIT: usize = 1024;

impl Session {
    /// Returns the mode of the session.
    pub(super) fn mode(&self) -> ApprovalMode {
        self.record.mode.unwrap_or(self.deps.policy.default_mode)
    }

    fn analyzer_name(&self) -> &str {
        self.record.analyzer.as_deref().unwrap_or(&self.deps.policy.default_analyzer)
    }

    /// Returns the analyzer of the session, if it has one. An analyzer that this server no longer
    /// has is replaced by the default.
    fn analyzer(&self) -> Option<Arc<dyn Analyzer>> {
        let policy = &self.deps.policy;
        let named = (policy.analyzer)(self.analyzer_name());
        named.or_else(|_| (policy.analyzer)(&policy.default_analyzer)).unwrap_or_default()
    }

    fn workspace(&self) -> String {
        (self.deps.settings_for)(&self.record).directory
    }

    /// Begins the assessment of a call.
    fn assessment(&self, analyzer: &dyn Analyzer, call: &Action) -> BoxFuture<'static, RiskAssessment> {
        let (session, workspace) = (self.id.to_string(), self.workspace());
        let call = AssessedCall { call, session: &session, workspace: &workspace, agent: &self.record.agent };
        analyzer.assess(call)
    }

    /// Applies the policy to a call.
    fn decide_call(&self, call: &Action, risk: Option<&RiskAssessment>, mode: ApprovalMode) -> PolicyDecision {
        let policy = &self.deps.policy;
        let project = (policy.project_of)(&self.record).map(|project| policy.project_rules.rules(&project));
        decide(PolicyInput {
            call,
            mode,
            workspace: &self.workspace(),
            agent: &self.record.agent,
            risk,
            rules: [self.state.session_rules(), project.as_deref().unwrap_or_default(), &policy.rules],
        })
    }
}

/// Returns a call without what the policy does not read: contents of files. `None` if the rest is
/// still too long to be kept.
fn without_contents(call: &Action) -> Option<Box<Action>> {
    let call = match call {
        Action::Write { path, .. } => Action::Write { path: path.clone(), content: String::new() },
        Action::Edit { path, .. } => {
            Action::Edit { path: path.clone(), edit: FileEdit::Delete { at: EditTarget::default() } }
        }
        call => call.clone(),
    };
    let len = serde_json::to_string(&call).map_or(usize::MAX, |json| json.len());
    (len <= KEPT_CALL_LIMIT).then(|| Box::new(call))
}
