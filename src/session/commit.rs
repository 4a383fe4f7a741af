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
    audience::Ended,
    decision::{Decision, Draft, Ladder, Order},
    messages::{Accepted, Answer, Durable, Ending, orders},
    render::Rendered,
    turn::Refusal,
};
use crate::{
    store::{AppendError, Batch, Mark, Record, Seq},
    telemetry::EVENTS_APPENDED,
    wakeups::gathered,
};

/// How much may be on its way to disk in one session, in bytes. One more wish is refused, and the agent's link reads on when
/// there is less: the disk is everybody's, and what waits for it has a bound for all sessions together. (The record goes with
/// much of it, and that holds the messages that wait.)
pub(super) const ON_THE_WAY: usize = 16 << 20;

/// A decision on its way to disk, with all that waits for it.
pub(super) struct Pending {
    /// The newest event once it is on disk.
    tail: Seq,
    mark: Option<Mark>,
    ended: Vec<Ended>,
    orders: Vec<Order>,
    ladder: Option<Ladder>,
    replies: Vec<Reply>,
    /// How much of it goes to disk.
    bytes: usize,
    /// It is a record without an event, so nothing in the journal tells what follows that it failed.
    is_silent: bool,
    on_disk: bool,
}

/// What all that is pending comes to.
#[derive(Default)]
pub(super) struct OnTheWay {
    bytes: usize,
    silent: usize,
}

/// Somebody who waits for a decision to be on disk.
pub(super) enum Reply {
    Wish(oneshot::Sender<Answer>, Accepted),
    Report(Durable),
    /// The gateway, which begins no further call while many wait so.
    Noticed(Option<OwnedSemaphorePermit>),
}

impl Session {
    /// Writes a decision down and, once it is on disk, carries it out.
    pub(super) fn commit(
        &mut self,
        decision: Decision,
        mark: Option<Mark>,
        replies: Vec<Reply>,
        ctx: &mut Context<Session>,
    ) {
        let Decision { drafts, orders, ladder, turn_is_over, .. } = decision;
        let mut ended: Vec<_> = turn_is_over.then(|| self.shared.end_of_inputs()).into_iter().collect();
        let mut rendered = Rendered::new();
        let at = self.tail;
        for draft in drafts {
            self.tail += 1;
            ended.extend(rendered.add(draft, self.tail, &mut self.causes));
        }
        let events = rendered.finish();
        self.shared.hear_the_agent(self.core.has_an_agent());
        self.shared.decide(self.tail, &ended);
        if let Some(mark) = &mark {
            self.mark = Some(mark.clone());
        }
        let worth_it = !events.is_empty() || mark.is_some();
        // If a record fails that had no event with it, what follows may still succeed: so it has it, too.
        let owed = worth_it && self.on_the_way.silent > 0;
        let record = self.refresh_record(worth_it, owed);
        let nothing = events.is_empty() && mark.is_none() && record.is_none();
        if nothing && ended.is_empty() && orders.is_empty() && replies.is_empty() && ladder.is_none() {
            // An agent may say again and again what it has taken, and what is kept for that until the disk is done has no bound.
            self.say_how_it_is();
            return;
        }
        let bytes = events.iter().map(|event| event.json.len()).sum::<usize>()
            + record.as_ref().map_or(0, |record| record.core.as_str().len());
        let is_silent = events.is_empty() && record.is_some();
        self.on_the_way.bytes += bytes;
        self.on_the_way.silent += usize::from(is_silent);
        self.pending.push_back(Pending {
            tail: self.tail,
            mark: mark.clone(),
            ended,
            orders,
            ladder,
            replies,
            bytes,
            is_silent,
            on_disk: nothing,
        });
        self.say_what_waits();
        self.say_how_it_is();
        if nothing {
            self.tell(ctx);
            return;
        }
        let (store, id, tail, count) = (&self.parts.store, self.id, self.tail, events.len() as u64);
        let appended = store.append(id, self.epoch, at, Batch { events, mark, record });
        // A commit answers hundreds of sessions at once, from its own thread.
        ctx.spawn(gathered(appended).into_actor(self).map(move |result, session, ctx| {
            if result.is_ok() {
                EVENTS_APPENDED.inc_by(count);
            }
            session.appended(tail, result, ctx);
        }));
    }

    /// Refuses a wish where more than this is on its way to disk.
    pub(super) fn room_on_the_way(&self, most: usize) -> Result<(), Refusal> {
        let waiting = self.on_the_way.bytes;
        if waiting <= most {
            return Ok(());
        }
        Err(Refusal::Unavailable(format!(
            "{} MiB of this session wait for the disk already; try again in a moment",
            waiting.div_ceil(1 << 20)
        )))
    }

    fn say_what_waits(&self) {
        self.shared.waits_for_the_disk(self.on_the_way.bytes > ON_THE_WAY);
        self.entry.queued(self.pending.len() as u64);
    }

    pub(super) fn note_draft(
        &mut self,
        draft: Draft,
        mark: Option<Mark>,
        replies: Vec<Reply>,
        ctx: &mut Context<Session>,
    ) {
        let mut decision = Decision::after(self.tail);
        decision.drafts.push(draft);
        self.commit(decision, mark, replies, ctx);
    }

    /// The record, where it is not what the journal has.
    ///
    /// `worth_it`: something goes to disk anyway. What followed from a report must go with its mark: the agent, once told that
    /// it is taken, does not say it again to a server that knows nothing of it.
    /// `owed`: one that was on its way may yet fail.
    fn refresh_record(&mut self, worth_it: bool, owed: bool) -> Option<Arc<Record>> {
        let changed = owed || self.record_changed || self.core.state() != self.record.state;
        // What the agent has taken alone is worth no disk write: it goes with the next event.
        if !(changed || worth_it && self.core_changed) {
            return None;
        }
        self.record_changed = false;
        self.core_changed = false;
        let record = Arc::make_mut(&mut self.record);
        record.core = self.core.to_memory();
        record.state = self.core.state();
        record.reason = self.core.reason();
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
                self.tell(ctx);
            }
            Err(e) => self.give_up(&e, ctx),
        }
    }

    /// Carries out every decision that is on disk and has only such before it.
    fn tell(&mut self, ctx: &mut Context<Session>) {
        while self.pending.front().is_some_and(|pending| pending.on_disk)
            && let Some(pending) = self.pending.pop_front()
        {
            self.on_the_way.bytes -= pending.bytes;
            self.on_the_way.silent -= usize::from(pending.is_silent);
            self.shared.publish(pending.tail, &pending.ended);
            if pending.mark.is_some() {
                self.durable_mark = pending.mark;
            }
            for order in pending.orders {
                self.give(order, ctx);
            }
            if let Some(ladder) = pending.ladder {
                self.set_ladder(ladder, ctx);
            }
            for reply in pending.replies {
                reply.on_disk();
            }
        }
        if self.pending.is_empty() {
            // Most sessions wait, and room for four decisions is 0.6 KiB.
            self.pending.shrink_to_fit();
        }
        self.say_what_waits();
    }

    /// The journal did not take an event. What is decided since the last that it took is void, and so is this actor: whoever
    /// asks for the session next has it brought back as the journal tells it, once that can be written again.
    pub(super) fn give_up(&mut self, error: &AppendError, ctx: &mut Context<Session>) {
        error!(session = %self.id, "the journal did not take an event; the session stops until it does: {error}");
        for pending in self.pending.drain(..) {
            pending.replies.into_iter().for_each(|reply| reply.refused(error));
        }
        self.ending = Ending::JournalRefused;
        ctx.terminate();
    }

    pub(super) fn give(&mut self, order: Order, ctx: &mut Context<Session>) {
        let image = self.record.image.clone();
        // A link's mailbox is not bounded by `do_send`, but what a session orders is: one order for each event at most, and
        // events wait for the disk.
        let link = self.link(ctx);
        match order {
            Order::Raise => link.raise.do_send(orders::Raise { image, was: orders::Was::Down }),
            Order::Anew(boot) => link.deliver.do_send(orders::Deliver::Anew { boot }),
            Order::Deliver(numbered) => link.deliver.do_send(orders::Deliver::Command(Box::new(numbered))),
            Order::Cut => link.cut.do_send(orders::Cut),
            Order::Freeze => link.freeze.do_send(orders::Freeze),
            Order::Thaw => link.thaw.do_send(orders::Thaw),
            Order::Kill(then) => self.kill(then, ctx),
        }
    }

    /// Whether the sandbox that is there is to go, be it only decided yet.
    pub(super) fn takes_it_away(&self) -> bool {
        let kills = |pending: &Pending| pending.orders.iter().any(|order| matches!(order, Order::Kill(_)));
        self.kills.is_any() || self.pending.iter().any(kills)
    }

    fn kill(&mut self, then: orders::Then, ctx: &mut Context<Session>) {
        let under_way = self.kills.clone();
        self.link(ctx).kill.do_send(orders::Kill { then, under_way });
    }
}

impl Reply {
    // An answer that nobody waits for any more is not missed: the client went away, the journal has it.
    fn on_disk(self) {
        match self {
            Reply::Wish(asker, accepted) => drop(asker.send(Ok(accepted))),
            Reply::Report(agent) => drop(agent.send(Ok(()))),
            Reply::Noticed(unwritten) => drop(unwritten),
        }
    }

    fn refused(self, error: &AppendError) {
        match self {
            Reply::Wish(asker, _) => drop(asker.send(Err(Refusal::Journal(error.to_string())))),
            // Dropped: the report is not acknowledged, so the agent keeps it.
            Reply::Report(_) | Reply::Noticed(_) => {}
        }
    }
}
