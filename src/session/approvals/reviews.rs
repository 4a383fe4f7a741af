//! Reviews of tool calls.

use std::time::Instant;

use actix::prelude::*;
use greenroom_protocol::{
    Action, EventSource, Observation, ObservationKind,
    action::ApprovalDecision,
    approval::{DecidedBy, ReviewRequest, RiskAssessment, Verdict},
};

use super::{
    super::{
        actor::Session,
        messages::ReviewToolCall,
        reviews::{ReviewedCall, digest_of, verdict},
        transition::NewEvent,
    },
    PolicyDecision,
};
use crate::approvals::Analyzer;

/// Reason of a denied call whose turn is over or is being interrupted.
const TURN_OVER: &str = "the turn was interrupted";

fn turn_over() -> Verdict {
    Verdict::Deny { reason: TURN_OVER.to_owned() }
}

impl Session {
    /// Assesses a call. Returns `None` if the turn ends or is interrupted before.
    pub(super) fn assess(
        &mut self,
        analyzer: &dyn Analyzer,
        call: &Action,
    ) -> impl Future<Output = Option<RiskAssessment>> + use<> {
        let assessment = self.assessment(analyzer, call);
        let ended = self.reviews.end_token();
        async move {
            tokio::select! {
                biased;
                risk = assessment => Some(risk),
                () = ended.cancelled() => None,
            }
        }
    }

    /// Decides about a reviewed call. An allowed call causes no event, so it costs no write.
    fn conclude_review(
        &mut self,
        review: ReviewRequest,
        digest: u64,
        risk: Option<RiskAssessment>,
        ctx: &mut Context<Session>,
    ) -> Verdict {
        // The agent may have repeated the review on another connection.
        if let Some(verdict) = self.reviews.verdict_of(&review.id, digest) {
            return verdict;
        }
        let ReviewRequest { id, item, action } = review;
        let decision = self.decide_call(&action, risk.as_ref(), self.mode());
        let (decision, is_forced) = self.force_question(decision);
        if let PolicyDecision::Deny { reason, decided_by } = &decision {
            let denied = ObservationKind::Confirmed {
                request: id.clone(),
                decision: ApprovalDecision::Deny,
                by: Some(DecidedBy::Policy),
                who: Some(decided_by.clone()),
                reason: Some(reason.clone()),
                rule: None,
                edited: false,
                withdrawn: false,
            };
            let body = Observation { kind: denied, content: String::new() }.into();
            let (source, item) = (EventSource::Server, item.clone());
            let new_event = NewEvent { source, cause: None, item, risk: risk.clone(), body };
            self.commit_event(new_event, None, Vec::new(), ctx);
        }
        let verdict = verdict(&decision);
        self.reviews.remember(ReviewedCall { review: id, item, digest, risk, decision, is_forced });
        verdict
    }

    /// Turns the decision into a question if the agent repeats itself and was told so. Returns also
    /// if it did.
    pub(super) fn force_question(&mut self, decision: PolicyDecision) -> (PolicyDecision, bool) {
        if matches!(decision, PolicyDecision::Deny { .. }) {
            return (decision, false);
        }
        match self.loops.take_question() {
            Some(what) => (PolicyDecision::Ask { asked_by: format!("loop: {what}") }, true),
            None => (decision, false),
        }
    }
}

impl Handler<ReviewToolCall> for Session {
    type Result = ActorResponse<Session, Verdict>;

    fn handle(&mut self, ReviewToolCall { review }: ReviewToolCall, ctx: &mut Context<Session>) -> Self::Result {
        self.entry.record_handled();
        self.last_active = Instant::now();
        if !self.state.is_turn_active() {
            return ActorResponse::reply(turn_over());
        }
        let digest = digest_of(&review.action);
        if let Some(verdict) = self.reviews.verdict_of(&review.id, digest) {
            return ActorResponse::reply(verdict);
        }
        let Some(analyzer) = self.analyzer() else {
            return ActorResponse::reply(self.conclude_review(review, digest, None, ctx));
        };
        let assessed = self.assess(&*analyzer, &review.action);
        ActorResponse::r#async(assessed.into_actor(self).map(move |risk, session, ctx| match risk {
            Some(risk) if session.state.is_turn_active() => session.conclude_review(review, digest, Some(risk), ctx),
            Some(_) | None => turn_over(),
        }))
    }
}
