//! Messages about the mode, the analyzer and the rules of a session.

use actix::prelude::*;
use greenroom_protocol::{
    Action,
    approval::{ApprovalMode, RiskAssessment},
};

use super::{
    super::{
        actor::Session,
        messages::RequestResult,
        turn::{OpenApproval, SessionInput},
    },
    PolicyDecision,
};
use crate::approvals::ApprovalRule;

/// Requests mode, analyzer, rules and open requests of the session.
#[derive(Debug, Clone, Message)]
#[rtype(result = "SessionSecurity")]
pub struct GetSecurity;

/// Mode, analyzer, rules and open requests of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSecurity {
    pub mode: ApprovalMode,
    /// Name of the analyzer.
    pub analyzer: String,
    /// Rules that people have added to the session. Each is named by its index.
    pub rules: Vec<ApprovalRule>,
    /// Source of the workspace, by which project rules are kept.
    pub project: Option<String>,
    /// Open approval requests, oldest first.
    pub requests: Vec<OpenApproval>,
}

/// Removes a rule of the session.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct RemoveSessionRule {
    /// Rule of [`SessionSecurity::rules`].
    pub rule: ApprovalRule,
}

/// Assesses a call and applies the policy, without any effect.
#[derive(Debug, Message)]
#[rtype(result = "CallAnalysis")]
pub struct AnalyzeCall {
    pub call: Action,
}

/// Risk of a call, and the decision of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct CallAnalysis {
    /// `None` without an analyzer.
    pub risk: Option<RiskAssessment>,
    pub decision: PolicyDecision,
}

impl Handler<GetSecurity> for Session {
    type Result = MessageResult<GetSecurity>;

    fn handle(&mut self, _: GetSecurity, _: &mut Context<Session>) -> Self::Result {
        MessageResult(SessionSecurity {
            mode: self.mode(),
            analyzer: self.analyzer_name().to_owned(),
            rules: self.state.session_rules().to_vec(),
            project: (self.deps.policy.project_of)(&self.record),
            requests: self.state.open_approvals().to_vec(),
        })
    }
}

impl Handler<RemoveSessionRule> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, RemoveSessionRule { rule }: RemoveSessionRule, ctx: &mut Context<Session>) -> Self::Result {
        // The state alone changes, and must not wait for the next event.
        self.record_changed = true;
        self.handle_request(SessionInput::RemoveRule { rule }, None, ctx)
    }
}

impl Handler<AnalyzeCall> for Session {
    type Result = ActorResponse<Session, CallAnalysis>;

    fn handle(&mut self, AnalyzeCall { call }: AnalyzeCall, _: &mut Context<Session>) -> Self::Result {
        let analyzer = self.analyzer();
        let assessment = analyzer.map(|analyzer| self.assessment(&*analyzer, &call));
        let risk = async move {
            match assessment {
                Some(assessment) => Some(assessment.await),
                None => None,
            }
        };
        ActorResponse::r#async(risk.into_actor(self).map(move |risk, session, _| {
            let decision = session.decide_call(&call, risk.as_ref(), session.mode());
            CallAnalysis { risk, decision }
        }))
    }
}
