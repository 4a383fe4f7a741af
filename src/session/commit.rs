//! Write down, then tell: the pipeline from a decision to the journal, and from there to everybody else.
//!
//! A decision's events are handed to the store at once, in order, also while earlier ones are still on their way to disk.
//! What follows from it (orders, answers, what listeners may see) waits until the store has acknowledged it and
//! everything before it.

use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::error;

use super::{
    Session,
    broadcast::ItemEnd,
    messages::{DurableReply, RequestAccepted, RequestResult, SessionStopReason, effects},
    render::RenderedEvents,
    transition::{Effect, Escalation, NewEvent, Transition},
    turn::RequestError,
};
use crate::{
    store::{AppendBatch, AppendError, ReportMark, Seq, SessionRecord},
    telemetry::EVENTS_APPENDED,
    wake_batch::with_batched_wakes,
};

/// How much may be on its way to disk in one session, in bytes. One more wish is refused, and the agent's link reads on when
/// there is less: the disk is everybody's, and what waits for it has a bound for all sessions together. (The record goes with
/// much of it, and that holds the messages that wait.)
pub(super) const IN_FLIGHT_LIMIT: usize = 16 << 20;

/// A decision on its way to disk, with all that waits for it.
pub(super) struct PendingTransition {
    /// The newest event once it is on disk.
    tail: Seq,
    mark: Option<ReportMark>,
    ended_items: Vec<ItemEnd>,
    effects: Vec<Effect>,
    escalation: Option<Escalation>,
    replies: Vec<CommitReply>,
    /// How much of it goes to disk.
    bytes: usize,
    /// It is a record without an event, so nothing in the journal tells what follows that it failed.
    is_record_only: bool,
    on_disk: bool,
}

/// What all that is pending comes to.
#[derive(Default)]
pub(super) struct InFlightTotals {
    bytes: usize,
    record_only: usize,
}

/// Somebody who waits for a decision to be on disk.
pub(super) enum CommitReply {
    Request(oneshot::Sender<RequestResult>, RequestAccepted),
    Report(DurableReply),
    /// The gateway, which begins no further call while many wait so.
    Notice(Option<OwnedSemaphorePermit>),
}

impl Session {
    /// Writes a decision down and, once it is on disk, carries it out.
    pub(super) fn commit(
        &mut self,
        decision: Transition,
        mark: Option<ReportMark>,
        replies: Vec<CommitReply>,
        ctx: &mut Context<Session>,
    ) {
        let Transition { new_events: drafts, effects: orders, escalation: ladder, turn_is_over, .. } = decision;
        let mut ended: Vec<_> = turn_is_over.then(|| self.broadcast.end_of_tool_inputs()).into_iter().collect();
        let mut rendered = RenderedEvents::new();
        let at = self.tail;
        for draft in drafts {
            self.tail += 1;
            ended.extend(rendered.add(draft, self.tail, &mut self.causes));
        }
        let events = rendered.finish();
        self.broadcast.accept_deltas(self.state.has_agent());
        self.broadcast.mark_decided(self.tail, &ended);
        if let Some(mark) = &mark {
            self.mark = Some(mark.clone());
        }
        let worth_it = !events.is_empty() || mark.is_some();
        // If a record fails that had no event with it, what follows may still succeed: so it has it, too.
        let owed = worth_it && self.in_flight.record_only > 0;
        let record = self.refresh_record(worth_it, owed);
        let nothing = events.is_empty() && mark.is_none() && record.is_none();
        if nothing && ended.is_empty() && orders.is_empty() && replies.is_empty() && ladder.is_none() {
            // An agent may say again and again what it has taken, and what is kept for that until the disk is done has no bound.
            self.update_status();
            return;
        }
        let bytes = events.iter().map(|event| event.json.len()).sum::<usize>()
            + record.as_ref().map_or(0, |record| record.actor_state.as_str().len());
        let is_silent = events.is_empty() && record.is_some();
        self.in_flight.bytes += bytes;
        self.in_flight.record_only += usize::from(is_silent);
        self.pending.push_back(PendingTransition {
            tail: self.tail,
            mark: mark.clone(),
            ended_items: ended,
            effects: orders,
            escalation: ladder,
            replies,
            bytes,
            is_record_only: is_silent,
            on_disk: nothing,
        });
        self.update_backlog();
        self.update_status();
        if nothing {
            self.publish_committed(ctx);
            return;
        }
        let (store, id, tail, count) = (&self.deps.store, self.id, self.tail, events.len() as u64);
        let appended = store.append(id, self.epoch, at, AppendBatch { events, mark, record });
        // A commit answers hundreds of sessions at once, from its own thread.
        ctx.spawn(with_batched_wakes(appended).into_actor(self).map(move |result, session, ctx| {
            if result.is_ok() {
                EVENTS_APPENDED.inc_by(count);
            }
            session.appended(tail, result, ctx);
        }));
    }

    /// Refuses a wish where more than this is on its way to disk.
    pub(super) fn check_in_flight_limit(&self, most: usize) -> Result<(), RequestError> {
        let waiting = self.in_flight.bytes;
        if waiting <= most {
            return Ok(());
        }
        Err(RequestError::Unavailable(format!(
            "{} MiB of this session wait for the disk already; try again in a moment",
            waiting.div_ceil(1 << 20)
        )))
    }

    fn update_backlog(&self) {
        self.broadcast.set_disk_backlogged(self.in_flight.bytes > IN_FLIGHT_LIMIT);
        self.entry.set_queued(self.pending.len() as u64);
    }

    pub(super) fn commit_event(
        &mut self,
        draft: NewEvent,
        mark: Option<ReportMark>,
        replies: Vec<CommitReply>,
        ctx: &mut Context<Session>,
    ) {
        let mut decision = Transition::after(self.tail);
        decision.new_events.push(draft);
        self.commit(decision, mark, replies, ctx);
    }

    /// The record, where it is not what the journal has.
    ///
    /// `worth_it`: something goes to disk anyway. What followed from a report must go with its mark: the agent, once told that
    /// it is taken, does not say it again to a server that knows nothing of it.
    /// `owed`: one that was on its way may yet fail.
    fn refresh_record(&mut self, worth_it: bool, owed: bool) -> Option<Arc<SessionRecord>> {
        let changed = owed || self.record_changed || self.state.visible_state() != self.record.state;
        // What the agent has taken alone is worth no disk write: it goes with the next event.
        if !(changed || worth_it && self.state_changed) {
            return None;
        }
        self.record_changed = false;
        self.state_changed = false;
        let record = Arc::make_mut(&mut self.record);
        record.actor_state = self.state.to_opaque_state();
        record.state = self.state.visible_state();
        record.reason = self.state.reason();
        record.updated_at = crate::clock::now();
        Some(self.record.clone())
    }

    fn appended(&mut self, tail: Seq, result: Result<Seq, AppendError>, ctx: &mut Context<Session>) {
        match result {
            Ok(_) => {
                // Two may end at the same event where the later holds none; the store answers in order.
                if let Some(pending) = self.pending.iter_mut().find(|p| !p.on_disk && p.tail == tail) {
                    pending.on_disk = true;
                }
                self.publish_committed(ctx);
            }
            Err(e) => self.stop_on_journal_error(&e, ctx),
        }
    }

    /// Carries out every decision that is on disk and has only such before it.
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
            for order in pending.effects {
                self.execute_effect(order, ctx);
            }
            if let Some(ladder) = pending.escalation {
                self.set_escalation(ladder, ctx);
            }
            for reply in pending.replies {
                reply.confirm();
            }
        }
        if self.pending.is_empty() {
            // Most sessions wait, and room for four decisions is 0.6 KiB.
            self.pending.shrink_to_fit();
        }
        self.update_backlog();
    }

    /// The journal did not take an event. What is decided since the last that it took is void, and so is this actor: whoever
    /// asks for the session next has it brought back as the journal tells it, once that can be written again.
    pub(super) fn stop_on_journal_error(&mut self, error: &AppendError, ctx: &mut Context<Session>) {
        error!(session = %self.id, "the journal did not take an event; the session stops until it does: {error}");
        for pending in self.pending.drain(..) {
            pending.replies.into_iter().for_each(|reply| reply.reject(error));
        }
        self.stop_reason = SessionStopReason::JournalRejected;
        ctx.terminate();
    }

    pub(super) fn execute_effect(&mut self, order: Effect, ctx: &mut Context<Session>) {
        let image = self.record.image.clone();
        // A link's mailbox is not bounded by `do_send`, but what a session orders is: one order for each event at most, and
        // events wait for the disk.
        let link = self.link(ctx);
        match order {
            Effect::StartSandbox => {
                link.start_sandbox.do_send(effects::StartSandbox { image, recorded: effects::RecordedSandbox::Down })
            }
            Effect::AgentConnected(boot) => {
                link.deliver_to_agent.do_send(effects::DeliverToAgent::AgentConnected { boot })
            }
            Effect::DeliverToAgent(numbered) => {
                link.deliver_to_agent.do_send(effects::DeliverToAgent::Command(Box::new(numbered)))
            }
            Effect::AbortModelStreams => link.abort_model_streams.do_send(effects::AbortModelStreams),
            Effect::PauseSandbox => link.pause_sandbox.do_send(effects::PauseSandbox),
            Effect::UnpauseSandbox => link.unpause_sandbox.do_send(effects::UnpauseSandbox),
            Effect::StopSandbox(then) => self.stop_sandbox(then, ctx),
        }
    }

    /// Whether the sandbox that is there is to go, be it only decided yet.
    pub(super) fn is_stopping_sandbox(&self) -> bool {
        let kills =
            |pending: &PendingTransition| pending.effects.iter().any(|order| matches!(order, Effect::StopSandbox(_)));
        self.in_flight_stops.any_in_flight() || self.pending.iter().any(kills)
    }

    fn stop_sandbox(&mut self, then: effects::AfterStop, ctx: &mut Context<Session>) {
        let under_way = self.in_flight_stops.clone();
        self.link(ctx).stop_sandbox.do_send(effects::StopSandbox { then, in_flight: under_way });
    }
}

impl CommitReply {
    // An answer that nobody waits for any more is not missed: the client went away, the journal has it.
    fn confirm(self) {
        match self {
            CommitReply::Request(asker, accepted) => drop(asker.send(Ok(accepted))),
            CommitReply::Report(agent) => drop(agent.send(Ok(()))),
            CommitReply::Notice(unwritten) => drop(unwritten),
        }
    }

    fn reject(self, error: &AppendError) {
        match self {
            CommitReply::Request(asker, _) => drop(asker.send(Err(RequestError::Journal(error.to_string())))),
            // Dropped: the report is not acknowledged, so the agent keeps it.
            CommitReply::Report(_) | CommitReply::Notice(_) => {}
        }
    }
}
