//! Message handlers of the Session actor. Each forwards to the rules or to the commit pipeline.

#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::prelude::*;
use greenroom_protocol::{EventSource, Observation, ObservationKind, client::ClientRequest};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    actor::Session,
    client_input::{SettingsChange, has_contents},
    commit::IN_FLIGHT_LIMIT,
    messages::*,
    pending::CommitReply,
    request_error::RequestError,
    spending::today,
    transition::Transition,
    turn::{IdempotencyKey, QuotaExceeded, SessionInput},
    usage::{add_call, add_day_cost, budget_notice},
    view::SessionView,
};
use crate::gateway::{GatewayNotice, MeteredUsage, RetryOutcome};

impl Session {
    /// Decides about a client's request, whichever message brought it.
    fn handle_client_request(
        &mut self,
        request: ClientRequest,
        key: Option<String>,
        requested_by: Option<String>,
        ctx: &mut Context<Session>,
    ) -> ResponseFuture<RequestResult> {
        let key = IdempotencyKey::from_client(key, &request);
        match self.to_input(request, requested_by) {
            Ok(input) => self.handle_request(input, key, ctx),
            // A repeated request gets its first answer, even if it would be rejected now.
            // `initialize` is an example.
            Err(error) => self.deduplicated_answer(key.as_ref(), ctx).unwrap_or_else(|| Box::pin(async { Err(error) })),
        }
    }

    /// Decides about a requested input. The answer arrives when the transition is on disk.
    pub(super) fn handle_request(
        &mut self,
        input: SessionInput,
        key: Option<IdempotencyKey>,
        ctx: &mut Context<Session>,
    ) -> ResponseFuture<RequestResult> {
        self.entry.record_handled();
        self.last_active = Instant::now();
        if let Some(answer) = self.deduplicated_answer(key.as_ref(), ctx) {
            return answer;
        }
        let limit = if has_contents(&input) { IN_FLIGHT_LIMIT } else { 2 * IN_FLIGHT_LIMIT };
        let checked = self.check_in_flight_limit(limit).and_then(|()| self.check_room_for(&input));
        if let Err(error) = checked {
            return Box::pin(async { Err(error) });
        }
        let SessionInput::Confirm(answer) = &input else { return self.decide_request_input(input, key, ctx) };
        match self.project_rule_of(answer) {
            Ok(None) => self.decide_request_input(input, key, ctx),
            Ok(Some(stored)) => self.decide_after(stored, input, key, ctx),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    /// Decides about an answer when its rule is on disk. Another answer may come first.
    fn decide_after(
        &self,
        stored: impl Future<Output = Result<(), RequestError>> + 'static,
        input: SessionInput,
        key: Option<IdempotencyKey>,
        ctx: &mut Context<Session>,
    ) -> ResponseFuture<RequestResult> {
        let (reply_to, reply) = oneshot::channel();
        ctx.spawn(stored.into_actor(self).map(|stored, session, ctx| {
            let answer = stored.map(|()| session.decide_request_input(input, key, ctx));
            // The client may be gone.
            let _ = reply_to.send(answer);
        }));
        Box::pin(async move {
            match reply.await {
                Ok(Ok(answer)) => answer.await,
                Ok(Err(error)) => Err(error),
                Err(_) => Err(RequestError::Unanswered),
            }
        })
    }

    fn decide_request_input(
        &mut self,
        input: SessionInput,
        key: Option<IdempotencyKey>,
        ctx: &mut Context<Session>,
    ) -> ResponseFuture<RequestResult> {
        let first = self.tail + 1;
        let is_answer = matches!(input, SessionInput::Confirm(_));
        let transition = match self.decide(input) {
            Ok(transition) => transition,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let seq = (!transition.new_events.is_empty()).then_some(first);
        if let Some(key) = key {
            self.state.add_to_dedup_cache(key, seq);
            self.state_changed = true;
        }
        let answer = self.commit_and_answer(transition, seq, ctx);
        if is_answer {
            self.apply_new_rule(ctx);
        }
        answer
    }

    /// Checks that the disk has room for an input's contents. Its last space is for other inputs.
    fn check_room_for(&self, input: &SessionInput) -> Result<(), RequestError> {
        if !has_contents(input) || self.deps.store.has_room_for_content() {
            return Ok(());
        }
        let reason = "No space left on device: what is left is kept for interrupts and stops; free space there";
        Err(RequestError::Journal(format!("the journal cannot be written: {reason}")))
    }

    /// Returns the answer to a repeated idempotency key, of the same request or of another one.
    fn deduplicated_answer(
        &mut self,
        key: Option<&IdempotencyKey>,
        ctx: &mut Context<Session>,
    ) -> Option<ResponseFuture<RequestResult>> {
        match self.state.find_in_dedup_cache(key?) {
            Ok(None) => None,
            Ok(Some(seq)) => Some(self.answer_after_flush(seq, ctx)),
            Err(error) => Some(Box::pin(async { Err(error) })),
        }
    }

    fn answer_after_flush(&mut self, seq: Option<u64>, ctx: &mut Context<Session>) -> ResponseFuture<RequestResult> {
        let nothing = Transition::after(self.tail);
        self.commit_and_answer(nothing, seq, ctx)
    }

    pub(super) fn commit_and_answer(
        &mut self,
        transition: Transition,
        seq: Option<u64>,
        ctx: &mut Context<Session>,
    ) -> ResponseFuture<RequestResult> {
        let (reply_to, answer) = oneshot::channel();
        let accepted = RequestAccepted { seq, state: self.state.visible_state() };
        self.commit(transition, None, vec![CommitReply::Request(reply_to, accepted)], ctx);
        Box::pin(async move { answer.await.unwrap_or(Err(RequestError::Unanswered)) })
    }

    fn add_usage(&mut self, metered: MeteredUsage, permit: Option<OwnedSemaphorePermit>, ctx: &mut Context<Session>) {
        let record = Arc::make_mut(&mut self.record);
        add_day_cost(&mut record.spent_on, today(), metered.cost_usd.unwrap_or_default());
        let usage = add_call(&mut record.usage, metered);
        let notice = budget_notice(record);
        self.record_changed = true;
        let mut transition = Transition::after(self.tail);
        let usage = Observation { kind: ObservationKind::Usage(usage), content: String::new() };
        for observation in [Some(usage), notice].into_iter().flatten() {
            transition.push_event(EventSource::Server, None, None, observation);
        }
        self.commit(transition, None, vec![CommitReply::Notice(permit)], ctx);
    }
}

impl Handler<Relay> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(
        &mut self,
        Relay { request, idempotency_key, requested_by }: Relay,
        ctx: &mut Context<Session>,
    ) -> Self::Result {
        self.handle_client_request(request, idempotency_key, requested_by, ctx)
    }
}

impl Handler<Interrupt> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, Interrupt { idempotency_key }: Interrupt, ctx: &mut Context<Session>) -> Self::Result {
        self.handle_client_request(ClientRequest::Interrupt {}, idempotency_key, None, ctx)
    }
}

impl Handler<Pause> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, Pause { idempotency_key }: Pause, ctx: &mut Context<Session>) -> Self::Result {
        self.handle_client_request(ClientRequest::Pause {}, idempotency_key, None, ctx)
    }
}

impl Handler<Resume> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, Resume { idempotency_key }: Resume, ctx: &mut Context<Session>) -> Self::Result {
        self.handle_client_request(ClientRequest::Resume {}, idempotency_key, None, ctx)
    }
}

impl Handler<Stop> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, Stop { idempotency_key, reason }: Stop, ctx: &mut Context<Session>) -> Self::Result {
        match reason {
            None => self.handle_client_request(ClientRequest::Stop {}, idempotency_key, None, ctx),
            // The server's own request.
            reason => self.handle_request(SessionInput::Stop { reason }, None, ctx),
        }
    }
}

impl Handler<End> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, End { idempotency_key }: End, ctx: &mut Context<Session>) -> Self::Result {
        self.handle_client_request(ClientRequest::End {}, idempotency_key, None, ctx)
    }
}

impl Handler<PauseOrStopIfIdle> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(
        &mut self,
        PauseOrStopIfIdle { pause_after, stop_after, server_awake }: PauseOrStopIfIdle,
        ctx: &mut Context<Session>,
    ) -> Self::Result {
        let idle = self.last_active.elapsed().min(server_awake);
        let (long_enough, input) = if self.state.is_paused() {
            let reason = Some(format!("nothing happened for {}", in_words(idle)));
            (idle >= stop_after, SessionInput::StopIdle { reason })
        } else {
            (
                idle >= pause_after,
                SessionInput::PauseIdle { reason: format!("nothing happened for {}", in_words(idle)) },
            )
        };
        if !long_enough || self.broadcast.subscriber_count() > 0 {
            return Box::pin(async { Err(RequestError::Busy) });
        }
        let active = self.last_active;
        let answer = self.handle_request(input, None, ctx);
        // The sweeper's request does not count as activity.
        self.last_active = active;
        answer
    }
}

/// Formats an idle time for a person.
fn in_words(idle: Duration) -> String {
    match idle.as_secs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    }
}

impl Handler<UpdateMetadata> for Session {
    type Result = ResponseFuture<Result<SessionView, RequestError>>;

    fn handle(
        &mut self,
        UpdateMetadata { title, archived, model, effort, mode, analyzer }: UpdateMetadata,
        ctx: &mut Context<Session>,
    ) -> Self::Result {
        let change = SettingsChange { model, effort, title: None, analyzer: analyzer.clone(), mode };
        let transition = self
            .check_in_flight_limit(IN_FLIGHT_LIMIT)
            .and_then(|()| self.change_settings(change))
            .and_then(|input| input.map(|input| self.decide(input)).transpose());
        let transition = match transition {
            Ok(transition) => transition.unwrap_or_else(|| Transition::after(self.tail)),
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let record = Arc::make_mut(&mut self.record);
        record.title = title.unwrap_or_else(|| record.title.clone());
        record.archived = archived.unwrap_or(record.archived);
        record.analyzer = analyzer.or(record.analyzer.take());
        self.record_changed = true;
        let answer = self.commit_and_answer(transition, None, ctx);
        let view = self.view();
        Box::pin(async move { answer.await.map(|_| view) })
    }
}

impl Handler<Attach> for Session {
    type Result = MessageResult<Attach>;

    fn handle(&mut self, Attach { subscriber }: Attach, _: &mut Context<Session>) -> Self::Result {
        self.entry.record_handled();
        let subscription = self.broadcast.subscribe(subscriber);
        MessageResult(AttachReply { view: self.view(), subscription })
    }
}

impl Handler<GetView> for Session {
    type Result = MessageResult<GetView>;

    fn handle(&mut self, _: GetView, _: &mut Context<Session>) -> Self::Result {
        MessageResult(self.view())
    }
}

impl Handler<StartTask> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, StartTask { task }: StartTask, ctx: &mut Context<Session>) -> Self::Result {
        if self.state.has_received_input() {
            self.answer_after_flush(None, ctx)
        } else {
            self.handle_request(SessionInput::Start { task }, None, ctx)
        }
    }
}

impl Handler<Flush> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, _: Flush, ctx: &mut Context<Session>) -> Self::Result {
        self.answer_after_flush(None, ctx)
    }
}

impl Handler<Reconcile> for Session {
    type Result = bool;

    fn handle(&mut self, Reconcile { observed }: Reconcile, ctx: &mut Context<Session>) -> bool {
        if !self.pending.is_empty() || self.is_stopping_sandbox() {
            return false;
        }
        let effect = self.state.reconcile(observed, &self.in_flight_stops);
        effect.map(|effect| self.execute_effect(effect, ctx)).is_some()
    }
}

impl Handler<WorkspaceFull> for Session {
    type Result = ();

    fn handle(&mut self, WorkspaceFull { reason }: WorkspaceFull, ctx: &mut Context<Session>) {
        self.apply(SessionInput::QuotaExceeded(QuotaExceeded { reason, is_hard: false }), ctx);
    }
}

impl Handler<ReportsWaitForDisk> for Session {
    type Result = ();

    fn handle(&mut self, _: ReportsWaitForDisk, ctx: &mut Context<Session>) {
        if !self.state.has_work() {
            return;
        }
        let detail = "the server's disk is nearly full: the agent's output waits until space is free there".to_owned();
        let notice = ObservationKind::Notice { code: "disk_full".to_owned(), detail, attempts: None, waited_ms: None };
        self.commit_observation(notice, Vec::new(), ctx);
    }
}

impl Handler<Passivate> for Session {
    type Result = bool;

    fn handle(&mut self, _: Passivate, ctx: &mut Context<Session>) -> bool {
        let is_used = self.broadcast.subscriber_count() > 0 || Arc::strong_count(&self.user_calls) > 1;
        let is_idle = !self.state.needs_sandbox() && self.pending.is_empty() && !is_used;
        // The next actor of this session has its own link. A late stop of this link must not reach
        // that link's sandbox.
        let can_stop = is_idle && !self.is_stopping_sandbox();
        if can_stop {
            self.stop_reason = SessionStopReason::Passivated;
            ctx.stop();
        }
        can_stop
    }
}

impl Handler<Purged> for Session {
    type Result = ();

    fn handle(&mut self, _: Purged, ctx: &mut Context<Session>) {
        self.stop_reason = SessionStopReason::Passivated;
        ctx.stop();
    }
}

impl Handler<CommandAccepted> for Session {
    type Result = ();

    fn handle(&mut self, CommandAccepted { command }: CommandAccepted, ctx: &mut Context<Session>) {
        self.apply(SessionInput::CommandAccepted { command }, ctx);
    }
}

impl Handler<SandboxPhaseChanged> for Session {
    type Result = ();

    fn handle(
        &mut self,
        SandboxPhaseChanged { phase, detail, isolation }: SandboxPhaseChanged,
        ctx: &mut Context<Session>,
    ) {
        self.apply(SessionInput::SandboxPhaseChanged { phase, detail, isolation }, ctx);
    }
}

impl Handler<SandboxFailed> for Session {
    type Result = ();

    fn handle(&mut self, SandboxFailed { why, stderr_tail }: SandboxFailed, ctx: &mut Context<Session>) {
        // The sandbox is being stopped, and what follows the stop is decided already.
        if !self.is_stopping_sandbox() {
            self.apply(SessionInput::SandboxFailed { why, stderr_tail }, ctx);
        }
    }
}

impl Handler<SandboxLost> for Session {
    type Result = ();

    fn handle(&mut self, SandboxLost { exit }: SandboxLost, ctx: &mut Context<Session>) {
        if !self.is_stopping_sandbox() {
            self.apply(SessionInput::SandboxLost(exit), ctx);
        }
    }
}

impl Handler<EffectFailed> for Session {
    type Result = ();

    fn handle(&mut self, EffectFailed { what, why }: EffectFailed, ctx: &mut Context<Session>) {
        self.apply(SessionInput::EffectFailed { what, why }, ctx);
    }
}

impl Handler<NoticeReceived> for Session {
    type Result = ();

    fn handle(&mut self, NoticeReceived { notice, permit }: NoticeReceived, ctx: &mut Context<Session>) {
        match notice {
            GatewayNotice::Used(metered) => self.add_usage(metered, permit, ctx),
            GatewayNotice::Retrying(frame) => self.broadcast.set_retry(frame),
            GatewayNotice::RetriesEnded { call, outcome } => {
                self.broadcast.clear_retry(call);
                if let Some(RetryOutcome { attempts, waited_ms, why }) = outcome {
                    let detail = format!("{why}; the model answered at attempt {attempts}");
                    let (code, attempts, waited_ms) = ("provider_retried".to_owned(), Some(attempts), Some(waited_ms));
                    let retried = ObservationKind::Notice { code, detail, attempts, waited_ms };
                    self.commit_observation(retried, vec![CommitReply::Notice(permit)], ctx);
                }
            }
            GatewayNotice::Rejected { why, .. } => self.provider_error = Some(why),
            GatewayNotice::BudgetSpent { why } => self.apply(SessionInput::BudgetSpent { why }, ctx),
        }
    }
}
