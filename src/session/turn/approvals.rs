//! Rules for approval requests: opened by the agent, ended by a person, the policy or the end of
//! the work.

mod open;

use greenroom_protocol::{
    Action, EventSource, ObservationKind,
    action::ApprovalDecision,
    approval::{ApprovalChoiceKind, DecidedBy},
    link::AgentCommand,
};
use serde_json::Value;

pub use self::open::{OpenApproval, OpenApprovals};
use super::{RequestError, SessionState, observation};
use crate::{
    approvals::ApprovalRule,
    session::transition::{DecisionContext, Transition},
};

/// Number of rules that people have added to one session. Bound: 64. When full: a choice that
/// adds another is rejected.
const MAX_SESSION_RULES: usize = 64;

/// Answer of the policy to an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyAnswer {
    pub request: String,
    pub decision: ApprovalDecision,
    /// Part of the policy that decided.
    pub who: String,
    pub reason: Option<String>,
}

/// Person's answer to an approval request.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalReply {
    pub request: String,
    pub decision: ApprovalDecision,
    pub reason: Option<String>,
    /// Id of a choice. `None`: the first choice of `decision`'s kind.
    pub choice: Option<String>,
    /// Arguments that replace those of the call.
    pub input: Option<Value>,
    /// Browser or token of the person, if known.
    pub who: Option<String>,
}

/// Scope of the rule that a choice adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    Session,
    Project,
}

impl SessionState {
    /// Returns true if the agent's calls may run: a turn runs and is not being interrupted.
    pub fn is_turn_active(&self) -> bool {
        self.turn.is_some() && self.interrupting.is_none()
    }

    /// Returns the open requests, oldest first.
    pub fn open_approvals(&self) -> &[OpenApproval] {
        self.open_approvals.all()
    }

    /// Returns the rules that people have added to the session.
    pub fn session_rules(&self) -> &[ApprovalRule] {
        &self.session_rules
    }

    /// Opens an approval request of the running turn, or answers it at once.
    ///
    /// Any other request would stay open for ever: the agent has not noticed yet that its turn is
    /// over or is being interrupted. Such a request is withdrawn.
    pub(super) fn approval_requested(
        &mut self,
        approval: OpenApproval,
        answer: Option<PolicyAnswer>,
        d: &mut Transition,
    ) {
        if !self.is_turn_active() {
            return push_withdrawn(approval, d);
        }
        // The agent may repeat a request after the call has changed.
        if let Some(oldest) = self.open_approvals.add(approval) {
            push_withdrawn(oldest, d);
        }
        if let Some(answer) = answer {
            self.answer_by_policy(answer, d);
        }
    }

    /// Answers the requests that the policy no longer asks about.
    pub(super) fn answer_all_by_policy(&mut self, answers: Vec<PolicyAnswer>, d: &mut Transition) {
        answers.into_iter().for_each(|answer| self.answer_by_policy(answer, d));
    }

    fn answer_by_policy(&mut self, answer: PolicyAnswer, d: &mut Transition) {
        let PolicyAnswer { request, decision, who, reason } = answer;
        let Some(approval) = self.open_approvals.remove(&request) else { return };
        let confirmed = ObservationKind::Confirmed {
            request: request.clone(),
            decision,
            by: Some(DecidedBy::Policy),
            who: Some(who),
            reason: reason.clone(),
            rule: None,
            edited: false,
            withdrawn: false,
        };
        d.push_event(EventSource::Server, None, approval.item, observation(confirmed));
        self.deliver(AgentCommand::Answer { request, decision, reason, input: None }, d);
    }

    /// Denies the requests that have been open for `timeout_ms`.
    pub(super) fn deny_overdue(&mut self, timeout_ms: i64, context: DecisionContext<'_>, d: &mut Transition) {
        let is_overdue = |approval: &&OpenApproval| approval.since_ms.saturating_add(timeout_ms) <= context.now_ms;
        let overdue: Vec<_> = self.open_approvals().iter().filter(is_overdue).cloned().collect();
        for OpenApproval { request, .. } in overdue {
            let reason = Some("nobody decided in time".to_owned());
            let (decision, who) = (ApprovalDecision::Deny, "timeout".to_owned());
            self.answer_by_policy(PolicyAnswer { request, decision, who, reason }, d);
        }
    }

    /// Ends all open requests without a decision.
    pub(super) fn withdraw_approvals(&mut self, d: &mut Transition) {
        for approval in self.open_approvals.take_all() {
            push_withdrawn(approval, d);
        }
    }

    /// Returns the scope of the rule that an answer adds, and the rule.
    ///
    /// # Errors
    /// Returns an error if the answer does not fit an open request. [`SessionInput::Confirm`] then
    /// returns the same error.
    ///
    /// [`SessionInput::Confirm`]: super::SessionInput::Confirm
    pub fn rule_of_answer(&self, answer: &ApprovalReply) -> Result<Option<(RuleScope, ApprovalRule)>, RequestError> {
        self.check_open()?;
        let approval = self.open_approvals.find(&answer.request);
        let approval = approval.ok_or_else(|| RequestError::NoRequest(answer.request.clone()))?;
        if answer.input.is_some() {
            if !approval.editable {
                return Err(RequestError::BadArgs(format!(
                    "the call of request `{}` cannot be edited; answer without `input`",
                    answer.request
                )));
            }
            if answer.decision == ApprovalDecision::Deny {
                return Err(RequestError::BadArgs("a denied call takes no `input`; leave it out".to_owned()));
            }
        }
        let choice = approval.choice_of(answer)?;
        if answer.input.is_some() && choice != open::ONCE {
            return Err(RequestError::BadArgs("a changed call is allowed once; choose `once`".to_owned()));
        }
        let scope = match choice.as_str() {
            open::SESSION => RuleScope::Session,
            open::PROJECT => RuleScope::Project,
            _ => return Ok(None),
        };
        let full = scope == RuleScope::Session && self.session_rules.len() >= MAX_SESSION_RULES;
        match approval.rule.clone() {
            Some(rule) if full && !self.session_rules.contains(&rule) => Err(RequestError::BadArgs(format!(
                "the session has {MAX_SESSION_RULES} rules, and no room for another; remove one, or choose `once`"
            ))),
            rule => Ok(rule.map(|rule| (scope, rule))),
        }
    }

    pub(super) fn confirm(&mut self, answer: ApprovalReply, d: &mut Transition) -> Result<(), RequestError> {
        let added = self.rule_of_answer(&answer)?;
        let ApprovalReply { request, decision, reason, choice, input, who } = answer;
        let Some(approval) = self.open_approvals.remove(&request) else {
            return Err(RequestError::NoRequest(request));
        };
        let action = Action::Confirm {
            request: request.clone(),
            decision,
            reason: reason.clone(),
            choice,
            input: input.clone(),
        };
        let cause = d.push_event(EventSource::User, None, None, action);
        let confirmed = ObservationKind::Confirmed {
            request: request.clone(),
            decision,
            by: Some(DecidedBy::Person),
            who,
            reason: reason.clone(),
            rule: added.as_ref().map(|(scope, rule)| open::rule_in_words(rule, *scope)),
            edited: input.is_some(),
            withdrawn: false,
        };
        d.push_event(EventSource::Server, Some(cause), approval.item, observation(confirmed));
        if let Some((RuleScope::Session, rule)) = &added
            && !self.session_rules.contains(rule)
        {
            self.session_rules.push(rule.clone());
        }
        // The rule is the server's: the agent asks again, and the policy answers.
        let decision = if added.is_some() { ApprovalDecision::Allow } else { decision };
        self.deliver(AgentCommand::Answer { request, decision, reason, input }, d);
        Ok(())
    }

    /// Removes a rule of the session.
    pub(super) fn remove_rule(&mut self, rule: &ApprovalRule) -> Result<(), RequestError> {
        let Some(index) = self.session_rules.iter().position(|own| own == rule) else {
            return Err(RequestError::BadArgs("the session no longer has the rule; list its rules again".to_owned()));
        };
        self.session_rules.remove(index);
        Ok(())
    }
}

/// Adds the event that a request ended without a decision.
fn push_withdrawn(approval: OpenApproval, d: &mut Transition) {
    let withdrawn = ObservationKind::Confirmed {
        request: approval.request,
        decision: ApprovalDecision::Deny,
        by: None,
        who: None,
        reason: None,
        rule: None,
        edited: false,
        withdrawn: true,
    };
    d.push_event(EventSource::Server, None, approval.item, observation(withdrawn));
}

/// Returns the decision that a choice of this kind means. `None` for a kind of a newer version.
fn decision_of(kind: &ApprovalChoiceKind) -> Option<ApprovalDecision> {
    match kind {
        ApprovalChoiceKind::AllowOnce => Some(ApprovalDecision::Allow),
        ApprovalChoiceKind::AllowAlways => Some(ApprovalDecision::AllowAlways),
        ApprovalChoiceKind::RejectOnce | ApprovalChoiceKind::RejectAlways => Some(ApprovalDecision::Deny),
        ApprovalChoiceKind::Unknown(_) => None,
    }
}
