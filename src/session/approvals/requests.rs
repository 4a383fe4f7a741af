//! Approval requests of the agent: stamped, answered by the policy or opened, and denied after a
//! time limit.

use std::time::Duration;

use actix::prelude::*;
use futures::TryFutureExt as _;
use greenroom_protocol::{
    Action, EventBody, Observation, ObservationKind,
    action::ApprovalDecision,
    approval::{ApprovalChoiceKind, ApprovalMode, RiskAssessment},
    link::AgentReport,
};
use serde_json::{Value, json};

use super::{
    super::{
        actor::Session,
        request_error::RequestError,
        reviews::digest_of,
        turn::{ApprovalReply, OpenApproval, PolicyAnswer, RuleScope, SessionInput},
    },
    PolicyDecision, without_contents,
};
use crate::clock;

impl Session {
    /// Returns the assessment that an approval request needs before it is opened. `None` if the
    /// call was reviewed, or if there is nothing to assess.
    pub(in super::super) fn assessment_of_request(
        &mut self,
        report: &AgentReport,
    ) -> Option<impl Future<Output = Option<RiskAssessment>> + use<>> {
        let AgentReport::Event { item, body: EventBody::Observation(Observation { kind, .. }) } = report else {
            return None;
        };
        let ObservationKind::Confirm { call: Some(call), .. } = kind else { return None };
        let reviewed = item.as_deref().and_then(|item| self.reviews.of_item(item));
        if !self.state.is_turn_active() || reviewed.is_some_and(|reviewed| reviewed.digest == digest_of(call)) {
            return None;
        }
        let analyzer = self.analyzer()?;
        Some(self.assess(&*analyzer, call))
    }

    /// Checks the arguments with which a person replaces those of a call.
    ///
    /// # Errors
    /// Returns [`RequestError::BadArgs`] if the arguments do not fit the tool, or if the policy
    /// denies the changed call.
    pub(in super::super) fn check_changed_call(&self, request: &str, input: &Value) -> Result<(), RequestError> {
        let open = self.state.open_approvals().iter().find(|approval| approval.request == request);
        // Without an open request with a tool, the rules reject the answer.
        let Some(tool) = open.and_then(|approval| approval.tool.as_deref()) else { return Ok(()) };
        let changed = serde_json::from_value::<Action>(json!({ "action": tool, "args": input }))
            .map_err(|e| RequestError::BadArgs(format!("`input` does not fit `{tool}`: {e}")))?;
        match self.decide_call(&changed, None, self.mode()) {
            PolicyDecision::Deny { reason, .. } => Err(RequestError::BadArgs(format!(
                "the changed call is denied: {reason}; change it, or deny the request"
            ))),
            PolicyDecision::Allow | PolicyDecision::Ask { .. } => Ok(()),
        }
    }

    /// Fills in what the server says about an approval request. Returns the input of the rules.
    ///
    /// `assessed` is the risk of a call that was not reviewed, or that has changed since.
    pub(in super::super) fn stamp_request(
        &mut self,
        item: Option<&str>,
        kind: &mut ObservationKind,
        assessed: Option<RiskAssessment>,
    ) -> Option<SessionInput> {
        let ObservationKind::Confirm { request, risk, options, choices, asked_by, call, editable, .. } = kind else {
            return None;
        };
        let agent_remembers = options.contains(&ApprovalDecision::AllowAlways);
        let (decision, known_risk, is_forced) = self.decide_request(item, call.as_deref(), assessed);
        let rule = call.as_deref().and_then(|call| (self.deps.policy.propose_rule)(call, &self.workspace()));
        let approval = OpenApproval {
            request: request.clone(),
            item: item.map(str::to_owned),
            since_ms: clock::now_ms(),
            // A person decides about a repetition, whatever the mode becomes.
            call: call.as_deref().filter(|_| !is_forced).and_then(without_contents),
            tool: call.as_deref().map(|call| call.name().to_owned()),
            risk: known_risk.as_ref().map(|risk| RiskAssessment { reasons: Vec::new(), ..risk.clone() }),
            editable: *editable,
            has_project: rule.is_some() && (self.deps.policy.project_of)(&self.record).is_some(),
            rule,
            agent_remembers,
        };
        *risk = known_risk;
        *choices = approval.choices();
        let is_always = |kind: &ApprovalChoiceKind| *kind == ApprovalChoiceKind::AllowAlways;
        *options = vec![ApprovalDecision::Allow];
        options.extend(choices.iter().any(|choice| is_always(&choice.kind)).then_some(ApprovalDecision::AllowAlways));
        options.push(ApprovalDecision::Deny);
        *asked_by = None;
        let answer = |decision, who, reason| PolicyAnswer { request: request.clone(), decision, who, reason };
        let answer = match decision {
            PolicyDecision::Allow => Some(answer(ApprovalDecision::Allow, mode_in_words(self.mode()), None)),
            PolicyDecision::Deny { reason, decided_by } => {
                Some(answer(ApprovalDecision::Deny, decided_by, Some(reason)))
            }
            PolicyDecision::Ask { asked_by: part } => {
                *asked_by = Some(part);
                None
            }
        };
        Some(SessionInput::ApprovalRequested { approval, answer })
    }

    /// Decides about the call of a request, with its review. Returns also the risk, and if the
    /// question was forced by a repetition.
    fn decide_request(
        &mut self,
        item: Option<&str>,
        call: Option<&Action>,
        assessed: Option<RiskAssessment>,
    ) -> (PolicyDecision, Option<RiskAssessment>, bool) {
        let reviewed = item.and_then(|item| self.reviews.of_item(item)).cloned();
        let reviewed_risk = reviewed.as_ref().and_then(|reviewed| reviewed.risk.clone());
        let is_same = |digest: u64| call.is_none_or(|call| digest_of(call) == digest);
        let (decision, risk) = match (call, &reviewed) {
            (None, None) => (PolicyDecision::Ask { asked_by: "the agent".to_owned() }, None),
            (_, Some(reviewed)) if reviewed.is_forced => return (reviewed.decision.clone(), reviewed_risk, true),
            (None, Some(reviewed)) => (reviewed.decision.clone(), reviewed_risk),
            (Some(call), Some(reviewed)) if is_same(reviewed.digest) => {
                (self.decide_call(call, reviewed_risk.as_ref(), self.mode()), reviewed_risk)
            }
            // The call has changed, or was shortened for people. The stricter judgement counts.
            (Some(call), Some(reviewed)) => {
                let risk = [reviewed_risk, assessed].into_iter().flatten().max_by_key(|risk| risk.level);
                let decision = self.decide_call(call, risk.as_ref(), self.mode());
                (stricter(decision, reviewed.decision.clone()), risk)
            }
            (Some(call), None) => (self.decide_call(call, assessed.as_ref(), self.mode()), assessed),
        };
        let (decision, is_forced) = self.force_question(decision);
        (decision, risk, is_forced)
    }

    /// Returns the answers to the open requests that the policy allows in `mode`.
    pub(in super::super) fn answers_of_policy(&self, mode: ApprovalMode) -> Vec<PolicyAnswer> {
        let allowed = self.state.open_approvals().iter().filter(|approval| {
            let decide = |call: &Action| self.decide_call(call, approval.risk.as_ref(), mode);
            approval.call.as_deref().map(decide) == Some(PolicyDecision::Allow)
        });
        let answer = |approval: &OpenApproval| PolicyAnswer {
            request: approval.request.clone(),
            decision: ApprovalDecision::Allow,
            who: mode_in_words(mode),
            reason: None,
        };
        allowed.map(answer).collect()
    }

    /// Returns the work that stores the rule of an answer, if the answer adds one to the project.
    ///
    /// # Errors
    /// Returns an error if the answer does not fit an open request.
    pub(in super::super) fn project_rule_of(
        &self,
        answer: &ApprovalReply,
    ) -> Result<Option<impl Future<Output = Result<(), RequestError>> + use<>>, RequestError> {
        let Some((RuleScope::Project, rule)) = self.state.rule_of_answer(answer)? else { return Ok(None) };
        let policy = &self.deps.policy;
        let project = (policy.project_of)(&self.record);
        let project = project.ok_or_else(|| RequestError::BadArgs("the workspace has no project".to_owned()))?;
        let added = policy.project_rules.add(&project, rule);
        Ok(Some(added.map_err(|e| {
            RequestError::Unavailable(format!("the rule cannot be stored: {e}; choose another choice than `project`"))
        })))
    }

    /// Answers the open requests that a rule of the newest answer allows.
    pub(in super::super) fn apply_new_rule(&mut self, ctx: &mut Context<Session>) {
        let answers = self.answers_of_policy(self.mode());
        if !answers.is_empty() {
            self.apply(SessionInput::PolicyAnswered(answers), ctx);
        }
    }

    /// Ends the reviews of a turn that is over, and keeps the timer in step with the open requests.
    pub(in super::super) fn follow_approvals(&mut self, ctx: &mut Context<Session>) {
        if !self.state.is_turn_active() {
            self.reviews.end_pending();
        }
        let timeout = self.deps.policy.timeout;
        let oldest = self.state.open_approvals().first().map(|approval| approval.since_ms);
        let oldest = oldest.filter(|_| !timeout.is_zero());
        if self.approval_timer.map(|(since_ms, _)| since_ms) == oldest {
            return;
        }
        if let Some((_, timer)) = self.approval_timer.take() {
            ctx.cancel_future(timer);
        }
        let Some(since_ms) = oldest else { return };
        let timeout_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        let left = since_ms.saturating_add(timeout_ms).saturating_sub(clock::now_ms());
        // A clock that was set back must not make the request wait for longer than the limit.
        let left = Duration::from_millis(left.clamp(0, timeout_ms).unsigned_abs());
        let timer = ctx.run_later(left, move |session, ctx| {
            session.approval_timer = None;
            session.apply(SessionInput::ApprovalsDue { timeout_ms }, ctx);
        });
        self.approval_timer = Some((since_ms, timer));
    }
}

/// Names the mode as the part of the policy that decided.
fn mode_in_words(mode: ApprovalMode) -> String {
    format!("mode `{}`", mode.name())
}

/// Returns the stricter of two decisions.
fn stricter(one: PolicyDecision, other: PolicyDecision) -> PolicyDecision {
    let rank = |decision: &PolicyDecision| match decision {
        PolicyDecision::Allow => 0,
        PolicyDecision::Ask { .. } => 1,
        PolicyDecision::Deny { .. } => 2,
    };
    if rank(&other) > rank(&one) { other } else { one }
}
