//! Decisions: passes an input to the rules, and keeps record and timer in step with the result.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use greenroom_protocol::{EventBody, EventSource, Observation, ObservationKind};
use tracing::error;

use super::{
    actor::Session,
    names::{check_name, check_title},
    pending::CommitReply,
    request_error::RequestError,
    title::title_of,
    transition::{DecisionContext, Escalation, NewEvent, Transition},
    turn::SessionInput,
};
use crate::{
    clock,
    sandbox::SandboxIsolation,
    store::{Seq, SessionRecord},
};

impl Session {
    /// Decides and commits an input that has no sender to answer.
    pub(super) fn apply(&mut self, input: SessionInput, ctx: &mut Context<Session>) {
        if let Err(error) = self.decide(input).map(|transition| self.commit(transition, None, Vec::new(), ctx)) {
            // Only client requests can be rejected, and those are answered by `handle_request`.
            error!(session = %self.id, "an input without a sender was rejected: {error}");
        }
    }

    pub(super) fn decide(&mut self, input: SessionInput) -> Result<Transition, RequestError> {
        self.decide_behind(0, input)
    }

    /// Decides as [`Session::decide`] does, for a transition that has `events` already.
    pub(super) fn decide_behind(&mut self, events: Seq, input: SessionInput) -> Result<Transition, RequestError> {
        if let SessionInput::SetModel { settings, title, .. } = &input {
            check_name("model", &settings.model)?;
            check_title(title.as_deref())?;
        }
        let open = self.broadcast.open_items();
        let now_ms = clock::now_ms();
        let record = self.record_after(&input);
        self.state_changed = true;
        let context = DecisionContext {
            tail: self.tail + events,
            now_ms,
            open: &open,
            captures_turns: self.deps.captures_turns,
            in_flight_stops: &self.in_flight_stops,
        };
        let transition = self.state.decide(input, context)?;
        if let Some(record) = record {
            self.record = Arc::new(record);
            self.record_changed = true;
        }
        Ok(transition)
    }

    /// Returns the record after `input`, if `input` changes more of the record than its state.
    fn record_after(&self, input: &SessionInput) -> Option<SessionRecord> {
        match input {
            SessionInput::SetModel { settings, title, analyzer, mode } => {
                let mut record = SessionRecord::clone(&self.record);
                record.model = settings.model.clone();
                record.effort = settings.effort;
                record.title = title.clone().unwrap_or(record.title);
                record.analyzer = analyzer.clone().or(record.analyzer);
                record.mode = mode.as_ref().map(|change| change.mode).or(record.mode);
                Some(record)
            }
            SessionInput::SetMode { change, message, .. } => {
                let mut record = SessionRecord { mode: Some(change.mode), ..SessionRecord::clone(&self.record) };
                if let (true, Some(text)) = (record.title.is_empty(), message) {
                    record.title = title_of(text);
                }
                Some(record)
            }
            SessionInput::SetBudget { usd } => {
                Some(SessionRecord { budget_usd: *usd, ..SessionRecord::clone(&self.record) })
            }
            SessionInput::Start { task: text } | SessionInput::Message { content: text, .. }
                if self.record.title.is_empty() =>
            {
                Some(SessionRecord { title: title_of(text), ..SessionRecord::clone(&self.record) })
            }
            SessionInput::SandboxPhaseChanged { isolation: Some(SandboxIsolation { driver, uid, .. }), .. }
                if self.record.sandbox != *driver || self.record.sandbox_uid != Some(*uid) =>
            {
                let (sandbox, sandbox_uid) = ((*driver).to_owned(), Some(*uid));
                Some(SessionRecord { sandbox, sandbox_uid, ..SessionRecord::clone(&self.record) })
            }
            _ => None,
        }
    }

    /// Commits an observation that needs no decision.
    pub(super) fn commit_observation(
        &mut self,
        kind: ObservationKind,
        replies: Vec<CommitReply>,
        ctx: &mut Context<Session>,
    ) {
        let body: EventBody = Observation { kind, content: String::new() }.into();
        self.commit_event(
            NewEvent { source: EventSource::Server, cause: None, item: None, risk: None, body },
            None,
            replies,
            ctx,
        );
    }

    pub(super) fn set_escalation(&mut self, escalation: Escalation, ctx: &mut Context<Session>) {
        if let Some(armed) = self.escalation_timer.take() {
            ctx.cancel_future(armed);
        }
        if let Escalation::Arm(ms) = escalation {
            let due = |session: &mut Session, ctx: &mut Context<Session>| {
                session.escalation_timer = None;
                session.apply(SessionInput::EscalationDue, ctx);
            };
            self.escalation_timer = Some(ctx.run_later(Duration::from_millis(ms), due));
        }
    }
}
