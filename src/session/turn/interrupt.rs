//! Escalation of an interrupt: steps of rising force, until all work has stopped.
//!
//! 1. The end of the agent's model streams and a cancel hint, at once. A `cancel` command follows
//!    when the interrupt is on disk.
//! 2. After 1 s: a command to kill every remaining process of the turn.
//! 3. After 4 s more, or at a second interrupt: the restart of the sandbox and its agent.
//!
//! At the end, the receipt (event `interrupted`) states what was stopped, how fast and by which
//! step.

use greenroom_protocol::{
    Action, CONTENT_LIMIT, DeltaKind, EventSource, Observation, ObservationKind,
    action::abbreviate,
    json_excerpt, json_tail,
    link::{AgentCommand, CancelHint},
    observation::{EscalationStep, TruncationMark},
    omission_marker,
};

use super::{CANCEL_GRACE_MS, PendingInterrupt, SandboxState, SessionState, observation};
use crate::{
    session::{
        effect::{AfterStop, AgentDelivery, Effect},
        transition::{DecisionContext, Escalation, OpenItem, Transition},
    },
    store::Seq,
};

/// Time from the second step to the third, in milliseconds.
const KILL_GRACE_MS: u64 = 4_000;

/// Longest plausible interrupt, in milliseconds. A longer time means that the clock was changed.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl SessionState {
    /// First step: stops the agent's work and its model's streams at the same moment.
    pub(super) fn cancel(&mut self, cause: Seq, context: DecisionContext<'_>, d: &mut Transition) {
        if self.sandbox_state == SandboxState::Paused {
            self.unpause_sandbox(d);
        }
        self.drop_user_actions("the user action was interrupted before it began", d);
        self.withdraw_approvals(d);
        self.interrupting = Some(PendingInterrupt {
            step: EscalationStep::Cancel,
            since_ms: context.now_ms,
            cause,
            what: Vec::new(),
            partial: false,
        });
        if !self.is_running() {
            // Nothing had begun, so no report of an end will come.
            return self.finish_interrupt(context, d);
        }
        self.stop_early(d);
        self.deliver(AgentCommand::Cancel {}, d);
        d.escalation = Some(Escalation::Arm(CANCEL_GRACE_MS));
    }

    /// Adds the effects that stop the running work before the disk has answered. The hint precedes
    /// the abort, so the agent does not take the end of its stream for a failure of the model.
    ///
    /// If the append fails then, the agent was cancelled, and its queued messages wait.
    pub(super) fn stop_early(&self, d: &mut Transition) {
        if self.is_running() {
            let turn = self.turn.as_ref().map(|turn| turn.id.clone());
            let user_action = self.user_action.as_ref().map(|action| action.id.clone());
            let hint = Box::new(CancelHint { turn, user_action });
            d.push_effect(Effect::DeliverToAgent(AgentDelivery::CancelHint(hint)));
        }
        d.push_effect(Effect::AbortModelStreams);
    }

    pub(super) fn escalate(&mut self, context: DecisionContext<'_>, d: &mut Transition) {
        let Some(interrupting) = &mut self.interrupting else { return };
        match interrupting.step {
            EscalationStep::Cancel => {
                interrupting.step = EscalationStep::KillProcesses;
                // This transition has no event, so a killed server may lose its state with the name
                // counter. A counted name could then be used twice, and the agent ignores a command
                // whose id it knows.
                let name = format!("kill-{}", interrupting.cause);
                self.deliver_with_id(name, AgentCommand::KillProcesses {}, d);
                d.escalation = Some(Escalation::Arm(KILL_GRACE_MS));
            }
            EscalationStep::KillProcesses | EscalationStep::RestartAgent | EscalationStep::Sandbox => {
                self.restart_agent(context, d)
            }
        }
    }

    /// Third step: restarts the agent's sandbox. The new agent continues from the journal.
    pub(super) fn restart_agent(&mut self, context: DecisionContext<'_>, d: &mut Transition) {
        self.abort_work(EscalationStep::RestartAgent, context, d);
        self.sandbox_state = SandboxState::Starting;
        self.boot = None;
        d.push_effect(Effect::StopSandbox { then: AfterStop::Restart, in_flight: context.in_flight_stops.clone() });
    }

    /// Ends all running work without the agent, whose sandbox is stopped or gone. Partial texts are
    /// kept and marked as partial.
    pub(super) fn abort_work(&mut self, step: EscalationStep, context: DecisionContext<'_>, d: &mut Transition) {
        let partial = record_partials(context, d);
        let mut what = Vec::new();
        if self.turn.take().is_some() {
            d.turn_is_over = true;
            what.push("the turn".to_owned());
        }
        if let Some(user_action) = self.user_action.take() {
            what.push(in_words(&user_action.action));
        }
        self.drop_user_actions("the sandbox stopped before the user action began", d);
        self.requeue_missed(|_| true);
        self.leftovers.clear();
        if step == EscalationStep::RestartAgent {
            what.extend(self.terminals_in_words());
        }
        self.terminals.clear();
        self.outgoing.clear();
        self.withdraw_approvals(d);
        if self.interrupting.is_none() && !what.is_empty() {
            // The cause is the first event of this transition.
            let cause = context.tail + 1;
            self.interrupting =
                Some(PendingInterrupt { step, since_ms: context.now_ms, cause, what: Vec::new(), partial });
        }
        if let Some(interrupting) = &mut self.interrupting {
            interrupting.step = step;
            interrupting.partial |= partial;
            interrupting.what.append(&mut what);
        }
        self.finish_interrupt(context, d);
    }

    /// Writes the receipt if an interrupt is pending and neither a turn nor a user action runs.
    pub(super) fn finish_interrupt(&mut self, context: DecisionContext<'_>, d: &mut Transition) {
        if self.is_running() {
            return;
        }
        let Some(PendingInterrupt { step, since_ms, cause, what, partial }) = self.interrupting.take() else {
            return;
        };
        d.escalation = Some(Escalation::Disarm);
        // The clock may have been set meanwhile. An earlier version of Greenroom stored
        // milliseconds since its own start.
        let stopped_ms = match context.now_ms.saturating_sub(since_ms) {
            ms @ 0..=DAY_MS => ms as u64,
            _ => 0,
        };
        let what = if what.is_empty() { "nothing that was still running".to_owned() } else { what.join(" and ") };
        d.push_event(
            EventSource::Server,
            Some(cause),
            None,
            observation(ObservationKind::Interrupted { what, stopped_ms, escalation_step: step, partial }),
        );
    }

    /// Drops the queued user actions, with an error event for each.
    pub(super) fn drop_user_actions(&mut self, detail: &str, d: &mut Transition) {
        for user_action in self.queued_user_actions.drain(..) {
            let error = ObservationKind::Error { code: "not_begun".to_owned(), detail: detail.to_owned() };
            d.push_event(EventSource::Server, Some(user_action.cause), Some(user_action.id), observation(error));
        }
    }
}

/// Commits the partial texts of the open items, so that text which a person has read stays. Returns
/// true if there was any.
pub(super) fn record_partials(context: DecisionContext<'_>, d: &mut Transition) -> bool {
    let mut any = false;
    for open in context.open {
        let kind = match open.kind {
            DeltaKind::Text => ObservationKind::Message { partial: true },
            DeltaKind::Thinking => ObservationKind::Think { partial: true },
            DeltaKind::Output => {
                ObservationKind::Error { code: "cut".to_owned(), detail: "the command was cut short".to_owned() }
            }
            // Half an input is of no use: the tool was never called.
            DeltaKind::ToolInput => continue,
        };
        any = true;
        let (content, full_bytes) = partial_content(open);
        let partial = Observation { kind, content };
        let partial = match full_bytes {
            Some(bytes) => partial.with_truncation(TruncationMark { bytes, href: None }),
            None => partial.into(),
        };
        d.push_event(EventSource::Agent, None, Some(open.item.clone()), partial);
    }
    any
}

/// Room for the line that replaces omitted bytes, as JSON.
const MARKER_LIMIT: usize = 64;

/// Returns an event's text for an open item. If the text is truncated, returns also the item's
/// length, in bytes.
fn partial_content(open: &OpenItem) -> (String, Option<u64>) {
    let OpenItem { start, text, .. } = open;
    let full_bytes = start + text.len() as u64;
    if *start > 0 {
        let tail = json_tail(text, CONTENT_LIMIT - MARKER_LIMIT);
        return (omission_marker(full_bytes as usize - tail.len()) + tail, Some(full_bytes));
    }
    match json_excerpt(text, None, CONTENT_LIMIT) {
        Some(cut) => (cut.text, Some(full_bytes)),
        None => (text.clone(), None),
    }
}

/// Describes a user action for the receipt.
pub(super) fn in_words(action: &Action) -> String {
    match action {
        Action::Run { command } => format!("the command `{}`", abbreviate(command)),
        other => format!("the user action `{}`", other.name()),
    }
}
