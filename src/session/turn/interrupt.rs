//! How an interrupt gets its way, whatever the agent does about it: by a ladder, each rung harder than the last.

use greenroom_protocol::{
    Action, CONTENT_LIMIT, DeltaKind, EventSource, Observation, ObservationKind,
    action::abbreviate,
    excerpt,
    link::AgentCommand,
    observation::{EscalationStep, TruncationMark},
    omission_marker,
};

use super::{CANCEL_GRACE_MS, PendingInterrupt, SandboxState, SessionState, observation};
use crate::{
    session::{
        messages::effects::AfterStop,
        transition::{DecisionContext, Effect, Escalation, OpenItem, Transition},
    },
    store::Seq,
};

/// How long after the first rung the agent has before it is taken away, milliseconds.
const KILL_GRACE_MS: u64 = 4_000;

/// An interrupt that seems to have taken longer was timed by another clock, milliseconds.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl SessionState {
    /// The first rung: ask the agent, and cut its model's stream in the same moment.
    pub(super) fn cancel(&mut self, cause: Seq, moment: DecisionContext<'_>, d: &mut Transition) {
        if self.sandbox_state == SandboxState::Paused {
            self.unpause_sandbox(d);
        }
        self.drop_user_actions("the act was interrupted before it began", d);
        self.confirm = None;
        self.interrupting = Some(PendingInterrupt {
            step: EscalationStep::Cancel,
            since_ms: moment.now_ms,
            cause,
            what: Vec::new(),
            partial: false,
        });
        if !self.is_running() {
            // What had not begun is gone already, and nobody is left who could say that it stopped.
            return self.finish_interrupt(moment, d);
        }
        self.deliver(AgentCommand::Cancel {}, d);
        d.push_effect(Effect::AbortModelStreams);
        d.escalation = Some(Escalation::Arm(CANCEL_GRACE_MS));
    }

    pub(super) fn escalate(&mut self, moment: DecisionContext<'_>, d: &mut Transition) {
        let Some(interrupting) = &mut self.interrupting else { return };
        match interrupting.step {
            EscalationStep::Cancel => {
                interrupting.step = EscalationStep::KillProcesses;
                // Nothing is written down for this, so its name is none of those that are counted: after a kill of the server
                // the next command would have the same, and an agent that knows a name does nothing.
                let name = format!("kill-{}", interrupting.cause);
                self.deliver_with_id(name, AgentCommand::KillProcesses {}, d);
                d.escalation = Some(Escalation::Arm(KILL_GRACE_MS));
            }
            EscalationStep::KillProcesses | EscalationStep::RestartAgent | EscalationStep::Sandbox => {
                self.restart_agent(moment, d)
            }
        }
    }

    /// The last rung: the agent goes, and comes back from the journal.
    pub(super) fn restart_agent(&mut self, moment: DecisionContext<'_>, d: &mut Transition) {
        self.abort_work(EscalationStep::RestartAgent, moment, d);
        self.sandbox_state = SandboxState::Starting;
        self.boot = None;
        d.push_effect(Effect::StopSandbox(AfterStop::Restart));
    }

    /// Ends everything that runs, from outside: what had been said so far is kept, and marked as cut.
    pub(super) fn abort_work(&mut self, rung: EscalationStep, moment: DecisionContext<'_>, d: &mut Transition) {
        let partial = record_partials(moment, d);
        let mut what = Vec::new();
        if self.turn.take().is_some() {
            d.turn_is_over = true;
            what.push("the turn".to_owned());
        }
        if let Some(act) = self.user_action.take() {
            what.push(in_words(&act.action));
        }
        self.drop_user_actions("its sandbox went away before it began", d);
        self.requeue_missed(|_| true);
        self.outgoing.clear();
        self.confirm = None;
        if self.interrupting.is_none() && !what.is_empty() {
            // Whatever took it away was written down first.
            let cause = moment.tail + 1;
            self.interrupting =
                Some(PendingInterrupt { step: rung, since_ms: moment.now_ms, cause, what: Vec::new(), partial });
        }
        if let Some(interrupting) = &mut self.interrupting {
            interrupting.step = rung;
            interrupting.partial |= partial;
            interrupting.what.append(&mut what);
        }
        self.finish_interrupt(moment, d);
    }

    /// Something that was asked to stop has stopped. When it was the last, the receipt is written.
    pub(super) fn finish_interrupt(&mut self, moment: DecisionContext<'_>, d: &mut Transition) {
        if self.is_running() {
            return;
        }
        let Some(PendingInterrupt { step: rung, since_ms, cause, what, partial }) = self.interrupting.take() else {
            return;
        };
        d.escalation = Some(Escalation::Disarm);
        // A clock may have been set meanwhile, and an earlier version counted from a start of its own.
        let stopped_ms = match moment.now_ms.saturating_sub(since_ms) {
            ms @ 0..=DAY_MS => ms as u64,
            _ => 0,
        };
        let what = if what.is_empty() { "nothing that was still running".to_owned() } else { what.join(" and ") };
        d.push_event(
            EventSource::Server,
            Some(cause),
            None,
            observation(ObservationKind::Interrupted { what, stopped_ms, escalation_step: rung, partial }),
        );
    }

    /// The user's acts that wait will not begin.
    pub(super) fn drop_user_actions(&mut self, detail: &str, d: &mut Transition) {
        for act in self.queued_user_actions.drain(..) {
            let error = ObservationKind::Error { code: "not_begun".to_owned(), detail: detail.to_owned() };
            d.push_event(EventSource::Server, Some(act.cause), Some(act.id), observation(error));
        }
    }
}

/// Writes down what the open items had come to, so that what a person has read does not go away. True if there was any.
pub(super) fn record_partials(moment: DecisionContext<'_>, d: &mut Transition) -> bool {
    let mut any = false;
    for open in moment.open {
        let seen = match open.kind {
            DeltaKind::Text => ObservationKind::Message { partial: true },
            DeltaKind::Thinking => ObservationKind::Think { partial: true },
            DeltaKind::Output => {
                ObservationKind::Error { code: "cut".to_owned(), detail: "the command was cut short".to_owned() }
            }
            // Half of a tool call's input is of no use to anybody: the tool was never called.
            DeltaKind::ToolInput => continue,
        };
        any = true;
        let (content, whole) = partial_content(open);
        let kept = Observation { kind: seen, content };
        let kept = match whole {
            Some(bytes) => kept.with_truncation(TruncationMark { bytes, href: None }),
            None => kept.into(),
        };
        d.push_event(EventSource::Agent, None, Some(open.item.clone()), kept);
    }
    any
}

/// What an event holds of an open item, and how long the item is where that is not all of it.
fn partial_content(open: &OpenItem) -> (String, Option<u64>) {
    let OpenItem { start, text, .. } = open;
    let whole = start + text.len() as u64;
    if *start > 0 {
        let tail = text.ceil_char_boundary(text.len().saturating_sub(CONTENT_LIMIT));
        return (omission_marker(*start as usize + tail) + &text[tail..], Some(whole));
    }
    match excerpt(text, CONTENT_LIMIT) {
        Some(cut) => (cut.text, Some(whole)),
        None => (text.clone(), None),
    }
}

/// An act of the user, as the receipt names it.
pub(super) fn in_words(action: &Action) -> String {
    match action {
        Action::Run { command } => format!("the command `{}`", abbreviate(command)),
        other => format!("the act `{}`", other.name()),
    }
}
