//! Rules for inputs from the agent, the sandbox and the link.

use greenroom_protocol::{
    EventSource, Observation, ObservationKind,
    action::abbreviate,
    link::{AgentCommand, WorkOutcome},
    observation::{EscalationStep, SandboxPhase},
};

use super::{
    QueuedMessage, SandboxState, SessionState, SteeringMessage, deliver_command, interrupt::record_partials,
    observation, sandbox_phase,
};
use crate::{
    sandbox::{SandboxExit, SandboxPresence},
    session::{
        effect::{AfterStop, AgentDelivery, Effect, InFlightStops, RecordedSandbox},
        transition::{DecisionContext, Transition},
    },
};

impl SessionState {
    /// Returns the effect with which a restarted session takes over its sandbox, if it needs one.
    pub fn effect_after_restart(&self) -> Option<Effect> {
        let recorded = match self.sandbox_state {
            SandboxState::Starting => RecordedSandbox::Down,
            SandboxState::Up => RecordedSandbox::Up,
            SandboxState::Paused => RecordedSandbox::Paused,
            SandboxState::Stopped { .. } | SandboxState::Failed { .. } | SandboxState::Ended => return None,
        };
        Some(Effect::StartSandbox { recorded })
    }

    /// Returns the effect that brings a sandbox from the state `observed` into its intended state.
    /// A starting sandbox needs none.
    pub fn reconcile(&self, observed: SandboxPresence, in_flight_stops: &InFlightStops) -> Option<Effect> {
        match (&self.sandbox_state, observed) {
            (SandboxState::Up, SandboxPresence::Paused) => Some(Effect::UnpauseSandbox),
            (SandboxState::Paused, SandboxPresence::Running) => Some(Effect::PauseSandbox),
            (SandboxState::Stopped { .. } | SandboxState::Failed { .. } | SandboxState::Ended, SandboxPresence::Running | SandboxPresence::Paused) => {
                Some(Effect::StopSandbox { then: AfterStop::KeepFiles, in_flight: in_flight_stops.clone() })
            }
            (SandboxState::Up, SandboxPresence::Running)
            | (SandboxState::Paused, SandboxPresence::Paused)
            | (SandboxState::Starting, SandboxPresence::Running | SandboxPresence::Paused)
            // The link's supervisor reports an exited sandbox.
            | (_, SandboxPresence::Exited) => None,
        }
    }

    pub(super) fn hello_received(&mut self, boot: String, context: DecisionContext<'_>, d: &mut Transition) {
        if self.boot.as_ref() != Some(&boot) {
            if self.boot.is_some() {
                self.agent_restarted(context, d);
            }
            self.boot = Some(boot.clone());
            self.leftovers.clear();
            self.terminals.clear();
            // Commands that begin work, and a cancel that was not taken, are still to be delivered.
            // The others concern work of the earlier boot, which is lost.
            let cancels = self.interrupting.is_some();
            self.outgoing.retain(|n| match n.command {
                AgentCommand::Prompt { .. } | AgentCommand::UserAction { .. } => true,
                AgentCommand::Cancel {} => cancels,
                AgentCommand::Steer { .. }
                | AgentCommand::KillProcesses {}
                | AgentCommand::KillProcess { .. }
                | AgentCommand::KillLeftovers {}
                | AgentCommand::Settings(_)
                | AgentCommand::Answer { .. } => false,
            });
        }
        // A sandbox that should be up may have been started again, for example on another machine.
        let was_starting = std::mem::take(&mut self.sandbox_starting);
        if self.sandbox_state == SandboxState::Starting || was_starting {
            d.push_event(EventSource::Server, None, None, observation(sandbox_phase(SandboxPhase::Ready, None)));
        }
        if self.sandbox_state == SandboxState::Starting {
            self.sandbox_state = SandboxState::Up;
        }
        // Commands of transitions in flight are sent before this effect, out of order with older
        // commands. The link drops them, and all commands follow this effect in order.
        d.push_effect(Effect::DeliverToAgent(AgentDelivery::AgentConnected { boot }));
        d.effects.extend(self.outgoing.iter().cloned().map(deliver_command));
    }

    /// Handles a restart of the agent within a running sandbox. Work is lost if the agent had taken
    /// its command. Other work is delivered to the new agent.
    fn agent_restarted(&mut self, context: DecisionContext<'_>, d: &mut Transition) {
        let cut = record_partials(context, d);
        let turn_lost = self.turn.as_ref().is_some_and(|turn| !self.is_in_flight(&turn.id));
        let user_action_lost = self.user_action.as_ref().is_some_and(|action| !self.is_in_flight(&action.id));
        if turn_lost {
            self.turn_failed = self.interrupting.is_none();
            self.turn = None;
            self.withdraw_approvals(d);
            d.turn_is_over = true;
        }
        if user_action_lost {
            self.user_action = None;
        }
        self.requeue_missed(|_| true);
        if turn_lost || user_action_lost || cut {
            let detail = "the agent stopped unexpectedly and was restarted; its unfinished work was cut off".to_owned();
            let error = ObservationKind::Error { code: "agent_restarted".to_owned(), detail };
            d.push_event(EventSource::Server, None, None, observation(error));
            self.queue_paused = !self.queue.is_empty();
        }
        if let Some(interrupting) = &mut self.interrupting {
            interrupting.partial |= cut;
        }
        self.finish_interrupt(context, d);
    }

    /// Returns true if the agent may not have this turn or user action yet.
    fn is_in_flight(&self, wanted_id: &str) -> bool {
        self.outgoing.iter().any(|frame| started_id(&frame.command) == Some(wanted_id))
    }

    /// Drops the command that began the work `ended`, even if the agent has not confirmed it.
    fn drop_commands_of(&mut self, ended: &str) {
        self.outgoing.retain(|frame| started_id(&frame.command) != Some(ended));
    }

    /// Notes that a budget ends the turn, and reports it once.
    pub(super) fn budget_spent(&mut self, why: String, d: &mut Transition) {
        if self.turn.is_none() || self.budget_spent {
            return;
        }
        self.budget_spent = true;
        let code = "budget_spent".to_owned();
        let notice = ObservationKind::Notice { code, detail: why, attempts: None, waited_ms: None };
        d.push_event(EventSource::Server, None, None, observation(notice));
    }

    pub(super) fn turn_ended(
        &mut self,
        turn: &str,
        outcome: WorkOutcome,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        if self.turn.take_if(|running| running.id == turn).is_some() {
            self.drop_commands_of(turn);
            self.withdraw_approvals(d);
            d.turn_is_over = true;
            if self.budget_spent {
                // No failure: the state's reason reports it. Queued messages would end the same
                // way.
                self.queue_paused = !self.queue.is_empty();
            }
            if let WorkOutcome::Failed { code, detail } = &outcome
                && !(self.budget_spent && matches!(code.as_str(), "budget" | "model_error"))
            {
                let error = ObservationKind::Error { code: code.clone(), detail: detail.clone() };
                d.push_event(EventSource::Agent, None, None, observation(error));
                // An interrupted turn was to end, whatever the agent reports.
                self.turn_failed = self.interrupting.is_none();
            }
            self.work_ended("the turn", outcome, context, d);
        }
    }

    pub(super) fn user_action_ended(
        &mut self,
        user_action: &str,
        outcome: WorkOutcome,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        if self.user_action.take_if(|running| running.id == user_action).is_some() {
            self.drop_commands_of(user_action);
            // The action's own observation has the reason of a failure.
            self.work_ended("the user action", outcome, context, d);
        }
    }

    fn work_ended(&mut self, name: &str, outcome: WorkOutcome, context: DecisionContext<'_>, d: &mut Transition) {
        // A cancel without an interrupt: the append of the interrupt failed after its hint. Whoever
        // sent it does not expect that more work begins.
        if self.interrupting.is_none() && matches!(outcome, WorkOutcome::Cancelled { .. }) {
            self.queue_paused = !self.queue.is_empty();
        }
        let (stopped, cut) = match outcome {
            WorkOutcome::Done => (format!("{name}, which had just ended"), false),
            WorkOutcome::Cancelled { what, partial } => (what, partial),
            WorkOutcome::Failed { .. } => (format!("{name}, which had just failed"), false),
        };
        if let Some(interrupting) = &mut self.interrupting {
            // The agent wrote this text.
            interrupting.what.push(abbreviate(&stopped).into_owned());
            interrupting.partial |= cut;
        }
        self.finish_interrupt(context, d);
    }

    pub(super) fn command_accepted(&mut self, command: &str) {
        self.outgoing.retain(|frame| frame.id != command);
    }

    pub(super) fn steer_missed(&mut self, command: &str) {
        self.command_accepted(command);
        self.requeue_missed(|steering| steering.command == command);
    }

    pub(super) fn steered(&mut self, command: &str, d: &mut Transition) {
        // The report implies that the agent has the command, even if no `taken` came.
        self.command_accepted(command);
        let Some(at) = self.steering.iter().position(|steering| steering.command == command) else { return };
        let message = self.steering.remove(at).message;
        let turn = self.turn.as_ref().map(|turn| turn.id.clone());
        let chat = ObservationKind::Chat { attachments: message.item.attachments, turn };
        let chat = Observation { kind: chat, content: message.item.content };
        d.push_event(EventSource::User, Some(message.cause), Some(message.item.item), chat);
    }

    /// Returns missed steering messages to the queue.
    ///
    /// A person's messages are answered in the order sent. So these messages precede the queued
    /// ones, and follow messages missed before. They also follow the messages that interrupted the
    /// turn.
    pub(super) fn requeue_missed(&mut self, is_missed: impl Fn(&SteeringMessage) -> bool) {
        let instead = self.queue.iter().take_while(|queued| queued.interrupts).count();
        for SteeringMessage { message, .. } in self.steering.extract_if(.., |steering| is_missed(steering)) {
            let last = self.queue.iter().rposition(|queued| queued.missed && queued.cause < message.cause);
            self.queue.insert(last.map_or(0, |last| last + 1).max(instead), QueuedMessage { missed: true, ..message });
        }
    }

    pub(super) fn sandbox_lost(&mut self, exit: SandboxExit, context: DecisionContext<'_>, d: &mut Transition) {
        if !self.needs_sandbox() {
            return;
        }
        let SandboxExit { code, out_of_memory, stderr_tail } = exit;
        let reason = match code {
            _ if out_of_memory => "the sandbox ran out of memory".to_owned(),
            Some(code) => format!("the sandbox died with exit code {code}"),
            None => "the sandbox is gone".to_owned(),
        };
        let lost = ObservationKind::Sandbox {
            phase: SandboxPhase::Lost,
            exit_code: code,
            out_of_memory,
            stderr_tail: (!stderr_tail.is_empty()).then_some(stderr_tail),
            isolation: None,
        };
        self.record_sandbox_failure(reason, lost, context, d);
    }

    pub(super) fn sandbox_failed(
        &mut self,
        reason: String,
        stderr_tail: Option<String>,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        if !self.needs_sandbox() {
            return;
        }
        let failed = ObservationKind::Sandbox {
            phase: SandboxPhase::Failed,
            exit_code: None,
            out_of_memory: false,
            stderr_tail,
            isolation: None,
        };
        self.record_sandbox_failure(reason, failed, context, d);
    }

    fn record_sandbox_failure(
        &mut self,
        reason: String,
        kind: ObservationKind,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        d.push_event(EventSource::Server, None, None, Observation { kind, content: reason.clone() });
        self.turn_failed |= self.turn.is_some() && self.interrupting.is_none();
        self.abort_work(EscalationStep::Sandbox, context, d);
        d.push_effect(Effect::AbortModelStreams);
        self.boot = None;
        self.queue_paused = !self.queue.is_empty();
        self.sandbox_state = SandboxState::Failed { reason };
    }

    /// Reports a failed effect and makes the sandbox what the session's state says.
    ///
    /// The engine may still execute the failed effect later. `what` is the link's name of the
    /// effect: see [`EffectFailed`](crate::session::messages::EffectFailed).
    pub(super) fn effect_failed(
        &mut self,
        what: &'static str,
        reason: &str,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        let detail = format!("the sandbox could not {what}: {reason}");
        d.push_event(
            EventSource::Server,
            None,
            None,
            observation(ObservationKind::Error { code: "sandbox".to_owned(), detail: detail.clone() }),
        );
        if what == "pause" && self.sandbox_state == SandboxState::Paused {
            self.unpause_sandbox(d);
        } else if what == "unpause" && self.sandbox_state == SandboxState::Up {
            if self.unpause_failed {
                self.stop_sandbox(AfterStop::KeepFiles, context, d);
                self.sandbox_state = SandboxState::Failed { reason: detail };
            } else {
                self.unpause_failed = true;
                self.unpause_sandbox(d);
            }
        }
    }
}

/// Returns the id of the turn or user action that a command begins.
fn started_id(command: &AgentCommand) -> Option<&str> {
    match command {
        AgentCommand::Prompt { turn: id, .. } | AgentCommand::UserAction { user_action: id, .. } => Some(id),
        AgentCommand::Steer { .. }
        | AgentCommand::Cancel {}
        | AgentCommand::KillProcesses {}
        | AgentCommand::KillProcess { .. }
        | AgentCommand::KillLeftovers {}
        | AgentCommand::Settings(_)
        | AgentCommand::Answer { .. } => None,
    }
}
