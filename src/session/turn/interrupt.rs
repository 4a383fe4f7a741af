//! How an interrupt gets its way, whatever the agent does about it: by a ladder, each rung harder than the last.

use greenroom_protocol::{
    Action, CONTENT_LIMIT, DeltaKind, Observation, Seen, Source,
    action::brief,
    excerpt, left_out,
    link::Command,
    observation::{Rung, Truncated},
};

use super::{ASK_MS, Core, Interrupting, Life, seen};
use crate::{
    session::{
        decision::{Decision, Ladder, Moment, OpenItem, Order},
        messages::orders::Then,
    },
    store::Seq,
};

/// How long after the first rung the agent has before it is taken away, milliseconds.
const INSIST_MS: u64 = 4_000;

/// An interrupt that seems to have taken longer was timed by another clock, milliseconds.
const A_DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl Core {
    /// The first rung: ask the agent, and cut its model's stream in the same moment.
    pub(super) fn cancel(&mut self, cause: Seq, moment: Moment<'_>, d: &mut Decision) {
        if self.life == Life::Paused {
            self.thaw(d);
        }
        self.drop_acts("the act was interrupted before it began", d);
        self.confirm = None;
        self.interrupting =
            Some(Interrupting { rung: Rung::Cancel, since_ms: moment.now_ms, cause, what: Vec::new(), partial: false });
        if !self.runs() {
            // What had not begun is gone already, and nobody is left who could say that it stopped.
            return self.settle(moment, d);
        }
        self.deliver(Command::Cancel {}, d);
        d.order(Order::Cut);
        d.ladder = Some(Ladder::Arm(ASK_MS));
    }

    pub(super) fn ladder_due(&mut self, moment: Moment<'_>, d: &mut Decision) {
        let Some(interrupting) = &mut self.interrupting else { return };
        match interrupting.rung {
            Rung::Cancel => {
                interrupting.rung = Rung::KillProcesses;
                // Nothing is written down for this, so its name is none of those that are counted: after a kill of the server
                // the next command would have the same, and an agent that knows a name does nothing.
                let name = format!("kill-{}", interrupting.cause);
                self.deliver_as(name, Command::KillProcesses {}, d);
                d.ladder = Some(Ladder::Arm(INSIST_MS));
            }
            Rung::KillProcesses | Rung::RestartAgent | Rung::Sandbox => self.take_away(moment, d),
        }
    }

    /// The last rung: the agent goes, and comes back from the journal.
    pub(super) fn take_away(&mut self, moment: Moment<'_>, d: &mut Decision) {
        self.cut_short(Rung::RestartAgent, moment, d);
        self.life = Life::Starting;
        self.boot = None;
        d.order(Order::Kill(Then::Restart));
    }

    /// Ends everything that runs, from outside: what had been said so far is kept, and marked as cut.
    pub(super) fn cut_short(&mut self, rung: Rung, moment: Moment<'_>, d: &mut Decision) {
        let partial = keep_partials(moment, d);
        let mut what = Vec::new();
        if self.turn.take().is_some() {
            d.turn_is_over = true;
            what.push("the turn".to_owned());
        }
        if let Some(act) = self.act.take() {
            what.push(in_words(&act.action));
        }
        self.drop_acts("its sandbox went away before it began", d);
        self.miss(|_| true);
        self.outgoing.clear();
        self.confirm = None;
        if self.interrupting.is_none() && !what.is_empty() {
            // Whatever took it away was written down first.
            let cause = moment.tail + 1;
            self.interrupting = Some(Interrupting { rung, since_ms: moment.now_ms, cause, what: Vec::new(), partial });
        }
        if let Some(interrupting) = &mut self.interrupting {
            interrupting.rung = rung;
            interrupting.partial |= partial;
            interrupting.what.append(&mut what);
        }
        self.settle(moment, d);
    }

    /// Something that was asked to stop has stopped. When it was the last, the receipt is written.
    pub(super) fn settle(&mut self, moment: Moment<'_>, d: &mut Decision) {
        if self.runs() {
            return;
        }
        let Some(Interrupting { rung, since_ms, cause, what, partial }) = self.interrupting.take() else { return };
        d.ladder = Some(Ladder::Disarm);
        // A clock may have been set meanwhile, and an earlier version counted from a start of its own.
        let stopped_ms = match moment.now_ms.saturating_sub(since_ms) {
            ms @ 0..=A_DAY_MS => ms as u64,
            _ => 0,
        };
        let what = if what.is_empty() { "nothing that was still running".to_owned() } else { what.join(" and ") };
        d.record(Source::Server, Some(cause), None, seen(Seen::Interrupted { what, stopped_ms, rung, partial }));
    }

    /// The user's acts that wait will not begin.
    pub(super) fn drop_acts(&mut self, detail: &str, d: &mut Decision) {
        for act in self.acts.drain(..) {
            let error = Seen::Error { code: "not_begun".to_owned(), detail: detail.to_owned() };
            d.record(Source::Server, Some(act.cause), Some(act.id), seen(error));
        }
    }
}

/// Writes down what the open items had come to, so that what a person has read does not go away. True if there was any.
pub(super) fn keep_partials(moment: Moment<'_>, d: &mut Decision) -> bool {
    let mut any = false;
    for open in moment.open {
        let seen = match open.kind {
            DeltaKind::Text => Seen::Message { partial: true },
            DeltaKind::Thinking => Seen::Think { partial: true },
            DeltaKind::Output => Seen::Error { code: "cut".to_owned(), detail: "the command was cut short".to_owned() },
            // Half of a tool call's input is of no use to anybody: the tool was never called.
            DeltaKind::ToolInput => continue,
        };
        any = true;
        let (content, whole) = kept(open);
        let kept = Observation { seen, content };
        let kept = match whole {
            Some(bytes) => kept.part_of(Truncated { bytes, href: None }),
            None => kept.into(),
        };
        d.record(Source::Agent, None, Some(open.item.clone()), kept);
    }
    any
}

/// What an event holds of an open item, and how long the item is where that is not all of it.
fn kept(open: &OpenItem) -> (String, Option<u64>) {
    let OpenItem { start, text, .. } = open;
    let whole = start + text.len() as u64;
    if *start > 0 {
        let tail = text.ceil_char_boundary(text.len().saturating_sub(CONTENT_LIMIT));
        return (left_out(*start as usize + tail) + &text[tail..], Some(whole));
    }
    match excerpt(text, CONTENT_LIMIT) {
        Some(cut) => (cut.text, Some(whole)),
        None => (text.clone(), None),
    }
}

/// An act of the user, as the receipt names it.
pub(super) fn in_words(action: &Action) -> String {
    match action {
        Action::Run { command } => format!("the command `{}`", brief(command)),
        other => format!("the act `{}`", other.name()),
    }
}
