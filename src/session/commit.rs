//! Commit pipeline: from a transition to the journal, and from there to clients and link.
//!
//! A transition's events go to the store at once, in order, even while earlier events are in flight
//! to disk. Effects, answers and publication wait until the store has confirmed the transition and
//! everything before it. Only effects that stop something precede the append.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use greenroom_protocol::{EventBody, Observation, ObservationKind, observation::EscalationStep};
use tracing::error;

use super::{
    actor::Session,
    effect::Effect,
    latest::latest_line,
    messages::SessionStopReason,
    pending::{CommitReply, PendingTransition},
    render::RenderedEvents,
    request_error::RequestError,
    transition::{NewEvent, Transition},
};
use crate::{
    clock,
    net::wake_batch::with_batched_wakes,
    store::{AppendBatch, AppendError, LatestActivity, ReportMark, Seq, SessionRecord},
    telemetry::metrics::{METRICS, RestartedPart},
};

/// Bytes of one session in flight to disk.
///
/// Bound: 16 MiB. When full: client requests with content are rejected, and the link stops reading
/// the agent's socket. Other client requests are rejected at twice the bound. All sessions share
/// the disk and the commit queue. Most transitions carry the session record, which contains the
/// queued messages.
pub(super) const IN_FLIGHT_LIMIT: usize = 16 << 20;

impl Session {
    /// Appends a transition to the journal, without waiting. When the transition is on disk,
    /// publishes its events, executes its effects and sends its replies. Effects that only stop
    /// something are executed at once.
    pub(super) fn commit(
        &mut self,
        transition: Transition,
        mark: Option<ReportMark>,
        replies: Vec<CommitReply>,
        ctx: &mut Context<Session>,
    ) {
        let Transition { new_events, effects, escalation, turn_is_over, .. } = transition;
        let mut ended: Vec<_> = turn_is_over.then(|| self.broadcast.end_of_tool_inputs()).into_iter().collect();
        let (early, effects): (Vec<_>, Vec<_>) = effects.into_iter().partition(Effect::precedes_commit);
        let mut rendered = RenderedEvents::new();
        let at = self.tail;
        for new_event in new_events {
            self.tail += 1;
            count_interrupt(&new_event);
            self.note_latest(&new_event);
            self.loops.observe(new_event.source, new_event.item.as_deref(), &new_event.body);
            ended.extend(rendered.add(new_event, self.tail, &mut self.causes));
        }
        let events = rendered.finish();
        self.follow_approvals(ctx);
        self.broadcast.accept_deltas(self.state.has_agent());
        self.broadcast.mark_decided(self.tail, &ended);
        if let Some(mark) = &mark {
            self.mark = Some(mark.clone());
        }
        let has_content = !events.is_empty() || mark.is_some();
        // The append of a record without an event may fail although the next append succeeds. So
        // the next append with content repeats the record.
        let repeat_record = has_content && self.in_flight.record_only > 0;
        let record = self.refresh_record(has_content, repeat_record);
        let nothing = events.is_empty() && mark.is_none() && record.is_none();
        if nothing
            && ended.is_empty()
            && early.is_empty()
            && effects.is_empty()
            && replies.is_empty()
            && escalation.is_none()
        {
            // An agent may repeat `taken` frames without end. An entry in `pending` for each would
            // cost memory without a bound.
            self.update_status();
            return;
        }
        let bytes = events.iter().map(|event| event.json.len()).sum::<usize>()
            + record.as_ref().map_or(0, |record| record.actor_state.as_str().len());
        let is_record_only = events.is_empty() && record.is_some();
        self.in_flight.bytes += bytes;
        self.journal_meter.add(bytes as u64, mark.is_some(), clock::now_ms());
        self.in_flight.record_only += usize::from(is_record_only);
        self.pending.push_back(PendingTransition {
            tail: self.tail,
            mark: mark.clone(),
            ended_items: ended,
            effects,
            escalation,
            replies,
            bytes,
            is_record_only,
            on_disk: nothing,
        });
        self.update_backlog();
        self.update_status();
        early.into_iter().for_each(|effect| self.execute_effect(effect, ctx));
        if nothing {
            self.publish_committed(ctx);
            return;
        }
        let (store, id, tail, count) = (&self.deps.store, self.id, self.tail, events.len() as u64);
        let appended = store.append(id, self.epoch, at, AppendBatch { events, mark, record });
        // One commit answers hundreds of sessions at once, from its own thread.
        ctx.spawn(with_batched_wakes(appended).into_actor(self).map(move |result, session, ctx| {
            if result.is_ok() {
                METRICS.events_appended.inc_by(count);
            }
            session.appended(tail, result, ctx);
        }));
    }

    /// Updates the record's `latest`.
    ///
    /// An action takes the record along to disk, because its command may run for long. Any other
    /// event leaves the write to the next commit that has the record anyway.
    fn note_latest(&mut self, new_event: &NewEvent) {
        let Some(text) = latest_line(new_event) else { return };
        let record = Arc::make_mut(&mut self.record);
        record.latest = Some(LatestActivity { seq: self.tail, text });
        self.record_changed |= matches!(new_event.body, EventBody::Action(_));
    }

    /// Checks that at most `limit` bytes are in flight to disk.
    ///
    /// # Errors
    /// Returns [`RequestError::Unavailable`] if more are in flight.
    pub(super) fn check_in_flight_limit(&self, limit: usize) -> Result<(), RequestError> {
        let in_flight = self.in_flight.bytes;
        if in_flight <= limit {
            return Ok(());
        }
        Err(RequestError::Unavailable(format!(
            "{} MiB of this session are still being written to disk; try again in a moment",
            in_flight.div_ceil(1 << 20)
        )))
    }

    fn update_backlog(&self) {
        self.broadcast.set_disk_backlogged(self.in_flight.bytes > IN_FLIGHT_LIMIT);
        self.entry.set_queued(self.pending.len() as u64);
    }

    pub(super) fn commit_event(
        &mut self,
        new_event: NewEvent,
        mark: Option<ReportMark>,
        replies: Vec<CommitReply>,
        ctx: &mut Context<Session>,
    ) {
        let mut transition = Transition::after(self.tail);
        transition.new_events.push(new_event);
        self.commit(transition, mark, replies, ctx);
    }

    /// Returns the session record, if it differs from the record in the journal.
    ///
    /// - `has_content`: an event or a mark goes to disk anyway. The record must go with the mark of
    ///   the report that changed it. An agent does not repeat an acknowledged report to a server
    ///   that lost the change.
    /// - `repeat_record`: a record without an event is in flight and may still fail.
    fn refresh_record(&mut self, has_content: bool, repeat_record: bool) -> Option<Arc<SessionRecord>> {
        let is_state_new = self.state.visible_state() != self.record.state;
        let changed = repeat_record || self.record_changed || is_state_new;
        // If the agent has taken a command and nothing else changed, no write is worth it. The
        // change goes to disk with the next event.
        if !(changed || has_content && self.state_changed) {
            return None;
        }
        self.record_changed = false;
        self.state_changed = false;
        let record = Arc::make_mut(&mut self.record);
        record.actor_state = self.state.to_opaque_state();
        record.state = self.state.visible_state();
        record.reason = self.state.reason();
        record.journal_usage = self.journal_meter.usage.clone();
        // A new title or archived mark is no activity. An archived session that comes back keeps
        // its place in the list.
        if has_content || is_state_new {
            record.updated_at = clock::now();
        }
        Some(self.record.clone())
    }

    fn appended(&mut self, tail: Seq, result: Result<Seq, AppendError>, ctx: &mut Context<Session>) {
        match result {
            Ok(_) => {
                // Two transitions may end at the same event, if the later has no events. The store
                // answers in order.
                if let Some(pending) = self.pending.iter_mut().find(|p| !p.on_disk && p.tail == tail) {
                    pending.on_disk = true;
                }
                self.publish_committed(ctx);
            }
            Err(e) => self.stop_on_journal_error(&e, ctx),
        }
    }

    /// Publishes and executes, oldest first, every transition that is on disk together with all
    /// transitions before it.
    fn publish_committed(&mut self, ctx: &mut Context<Session>) {
        while self.pending.front().is_some_and(|pending| pending.on_disk)
            && let Some(pending) = self.pending.pop_front()
        {
            self.in_flight.bytes -= pending.bytes;
            self.in_flight.record_only -= usize::from(pending.is_record_only);
            self.broadcast.publish(pending.tail, &pending.ended_items);
            if pending.mark.is_some() {
                self.durable_mark = pending.mark;
            }
            for effect in pending.effects {
                self.execute_effect(effect, ctx);
            }
            if let Some(escalation) = pending.escalation {
                self.set_escalation(escalation, ctx);
            }
            for reply in pending.replies {
                reply.confirm();
            }
        }
        if self.pending.is_empty() {
            // Most sessions are idle, and room for four transitions takes 0.6 KiB.
            self.pending.shrink_to_fit();
        }
        self.update_backlog();
    }

    /// Stops the actor after the journal rejected an append.
    ///
    /// Everything decided since the last successful append is void. The Directory restarts the
    /// session from the journal when the journal accepts appends again.
    pub(super) fn stop_on_journal_error(&mut self, error: &AppendError, ctx: &mut Context<Session>) {
        error!(session = %self.id, "the journal rejected an append; the session stops until appends succeed: {error}");
        for pending in self.pending.drain(..) {
            pending.replies.into_iter().for_each(|reply| reply.reject(error));
        }
        self.stop_reason = SessionStopReason::JournalRejected;
        ctx.terminate();
    }

    /// Sends an effect to the link. `do_send` has no bound: the session's transitions in flight to
    /// disk limit its effects.
    pub(super) fn execute_effect(&mut self, effect: Effect, ctx: &mut Context<Session>) {
        self.link(ctx).effects.do_send(effect);
    }

    /// Returns true if a stop of the sandbox is decided or in flight.
    pub(super) fn is_stopping_sandbox(&self) -> bool {
        self.in_flight_stops.any_in_flight()
    }
}

/// Counts a new event, if it is the receipt of an interrupt.
fn count_interrupt(new_event: &NewEvent) {
    let EventBody::Observation(Observation {
        kind: ObservationKind::Interrupted { stopped_ms, escalation_step, .. },
        ..
    }) = &new_event.body
    else {
        return;
    };
    METRICS.interrupt.observe(Duration::from_millis(*stopped_ms).as_secs_f64());
    match escalation_step {
        EscalationStep::Cancel | EscalationStep::KillProcesses | EscalationStep::Sandbox => {}
        EscalationStep::RestartAgent => METRICS.count_restart(RestartedPart::Agent),
    }
}
