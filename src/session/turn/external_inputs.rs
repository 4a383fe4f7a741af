//! What befalls a session: its agent, its sandbox, its time.

use greenroom_protocol::{
    EventSource, Observation, ObservationKind,
    action::abbreviate,
    link::{AgentCommand, WorkOutcome},
    observation::{EscalationStep, SandboxPhase},
};

use super::{
    QueuedMessage, SandboxState, SessionState, SteeringMessage, interrupt::record_partials, observation, sandbox_phase,
};
use crate::{
    sandbox::{SandboxExit, SandboxPresence},
    session::{
        messages::effects::{AfterStop, RecordedSandbox},
        transition::{DecisionContext, Effect, Transition},
    },
};

impl SessionState {
    /// How its sandbox was left.
    pub fn recorded_sandbox(&self) -> RecordedSandbox {
        match self.sandbox_state {
            SandboxState::Up => RecordedSandbox::Up,
            SandboxState::Paused => RecordedSandbox::Paused,
            SandboxState::Starting
            | SandboxState::Stopped { .. }
            | SandboxState::Failed { .. }
            | SandboxState::Ended => RecordedSandbox::Down,
        }
    }

    /// What makes its sandbox what it is to be, where it was seen like this. One that is on its way up will be by itself.
    pub fn reconcile(&self, seen: SandboxPresence) -> Option<Effect> {
        match (&self.sandbox_state, seen) {
            (SandboxState::Up, SandboxPresence::Paused) => Some(Effect::UnpauseSandbox),
            (SandboxState::Paused, SandboxPresence::Running) => Some(Effect::PauseSandbox),
            (SandboxState::Stopped { .. } | SandboxState::Failed { .. } | SandboxState::Ended, SandboxPresence::Running | SandboxPresence::Paused) => {
                Some(Effect::StopSandbox(AfterStop::KeepFiles))
            }
            (SandboxState::Up, SandboxPresence::Running)
            | (SandboxState::Paused, SandboxPresence::Paused)
            | (SandboxState::Starting, SandboxPresence::Running | SandboxPresence::Paused)
            // One that died is noticed by whoever waits for that.
            | (_, SandboxPresence::Exited) => None,
        }
    }

    pub(super) fn hello_received(&mut self, boot: String, moment: DecisionContext<'_>, d: &mut Transition) {
        if self.boot.as_ref() != Some(&boot) {
            if self.boot.is_some() {
                self.agent_restarted(moment, d);
            }
            self.boot = Some(boot.clone());
            // Whatever else an earlier start was told concerned what it was doing; but what was to be cancelled before it had
            // that is to be cancelled still.
            let cancels = self.interrupting.is_some();
            self.outgoing.retain(|n| match n.command {
                AgentCommand::Prompt { .. } | AgentCommand::UserAction { .. } => true,
                AgentCommand::Cancel {} => cancels,
                AgentCommand::Steer { .. }
                | AgentCommand::KillProcesses {}
                | AgentCommand::Settings(_)
                | AgentCommand::Answer { .. } => false,
            });
        }
        // One that was thought to be up may not be here, as on another machine, and was started again.
        let rising = std::mem::take(&mut self.sandbox_starting);
        if self.sandbox_state == SandboxState::Starting || rising {
            d.push_event(EventSource::Server, None, None, observation(sandbox_phase(SandboxPhase::Ready, None)));
        }
        if self.sandbox_state == SandboxState::Starting {
            self.sandbox_state = SandboxState::Up;
        }
        // What was decided shortly before comes on disk before this, and would overtake what is older.
        d.push_effect(Effect::AgentConnected(boot));
        d.effects.extend(self.outgoing.iter().cloned().map(Effect::DeliverToAgent));
    }

    /// The agent died and its sandbox did not. What it had taken on is lost; what it had not got yet is not.
    fn agent_restarted(&mut self, moment: DecisionContext<'_>, d: &mut Transition) {
        let cut = record_partials(moment, d);
        let turn_lost = self.turn.as_ref().is_some_and(|turn| !self.is_in_flight(&turn.id));
        let act_lost = self.user_action.as_ref().is_some_and(|act| !self.is_in_flight(&act.id));
        if turn_lost {
            self.turn = None;
            self.confirm = None;
            d.turn_is_over = true;
        }
        if act_lost {
            self.user_action = None;
        }
        self.requeue_missed(|_| true);
        if turn_lost || act_lost || cut {
            let detail = "the agent stopped unexpectedly and was started again; what it was doing is cut".to_owned();
            let error = ObservationKind::Error { code: "agent_restarted".to_owned(), detail };
            d.push_event(EventSource::Server, None, None, observation(error));
            self.queue_paused = !self.queue.is_empty();
        }
        if let Some(interrupting) = &mut self.interrupting {
            interrupting.partial |= cut;
        }
        self.finish_interrupt(moment, d);
    }

    /// Whether the agent may not have got this turn, or this act, yet.
    fn is_in_flight(&self, wanted: &str) -> bool {
        self.outgoing.iter().any(|numbered| started_id(&numbered.command) == Some(wanted))
    }

    /// What has ended is not begun again, even if the agent never said that it took it on.
    fn drop_commands_of(&mut self, ended: &str) {
        self.outgoing.retain(|numbered| started_id(&numbered.command) != Some(ended));
    }

    pub(super) fn turn_ended(
        &mut self,
        turn: &str,
        outcome: WorkOutcome,
        moment: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        if self.turn.take_if(|running| running.id == turn).is_some() {
            self.drop_commands_of(turn);
            self.confirm = None;
            d.turn_is_over = true;
            if let WorkOutcome::Failed { code, detail } = &outcome {
                let error = ObservationKind::Error { code: code.clone(), detail: detail.clone() };
                d.push_event(EventSource::Agent, None, None, observation(error));
            }
            self.work_ended("the turn", outcome, moment, d);
        }
    }

    pub(super) fn user_action_ended(
        &mut self,
        act: &str,
        outcome: WorkOutcome,
        moment: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        if self.user_action.take_if(|running| running.id == act).is_some() {
            self.drop_commands_of(act);
            // Why one failed, its own observation has said.
            self.work_ended("the act", outcome, moment, d);
        }
    }

    fn work_ended(&mut self, name: &str, outcome: WorkOutcome, moment: DecisionContext<'_>, d: &mut Transition) {
        let (stopped, cut) = match outcome {
            WorkOutcome::Done => (format!("{name}, which had just ended"), false),
            WorkOutcome::Cancelled { what, partial } => (what, partial),
            WorkOutcome::Failed { .. } => (format!("{name}, which had just failed"), false),
        };
        if let Some(interrupting) = &mut self.interrupting {
            // These are the agent's own words.
            interrupting.what.push(abbreviate(&stopped).into_owned());
            interrupting.partial |= cut;
        }
        self.finish_interrupt(moment, d);
    }

    pub(super) fn steered(&mut self, command: &str, d: &mut Transition) {
        let Some(at) = self.steering.iter().position(|steering| steering.command == command) else { return };
        let message = self.steering.remove(at).message;
        let turn = self.turn.as_ref().map(|turn| turn.id.clone());
        let chat = ObservationKind::Chat { attachments: message.item.attachments, turn };
        let chat = Observation { kind: chat, content: message.item.content };
        d.push_event(EventSource::User, Some(message.cause), Some(message.item.item), chat);
    }

    /// These messages steer nothing any more. They wait before those that were to wait anyway, and behind those that fared
    /// so before them: a person is answered in the order in which they spoke. And behind what was to be done instead of them.
    pub(super) fn requeue_missed(&mut self, is_missed: impl Fn(&SteeringMessage) -> bool) {
        let instead = self.queue.iter().take_while(|waiting| waiting.interrupts).count();
        for SteeringMessage { message, .. } in self.steering.extract_if(.., |steering| is_missed(steering)) {
            let last = self.queue.iter().rposition(|waiting| waiting.missed && waiting.cause < message.cause);
            self.queue.insert(last.map_or(0, |last| last + 1).max(instead), QueuedMessage { missed: true, ..message });
        }
    }

    pub(super) fn sandbox_lost(&mut self, exit: SandboxExit, moment: DecisionContext<'_>, d: &mut Transition) {
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
        self.sandbox_failed(reason, lost, moment, d);
    }

    pub(super) fn start_failed(
        &mut self,
        why: String,
        stderr_tail: Option<String>,
        moment: DecisionContext<'_>,
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
        self.sandbox_failed(why, failed, moment, d);
    }

    fn sandbox_failed(
        &mut self,
        reason: String,
        how: ObservationKind,
        moment: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        d.push_event(EventSource::Server, None, None, Observation { kind: how, content: reason.clone() });
        self.abort_work(EscalationStep::Sandbox, moment, d);
        d.push_effect(Effect::AbortModelStreams);
        self.boot = None;
        self.queue_paused = !self.queue.is_empty();
        self.sandbox_state = SandboxState::Failed { reason };
    }

    /// Whether the engine did it nevertheless, and later, nobody knows: what follows makes the sandbox what the session says it is.
    pub(super) fn effect_failed(
        &mut self,
        what: &'static str,
        why: &str,
        moment: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        let detail = format!("the sandbox could not {what}: {why}");
        d.push_event(
            EventSource::Server,
            None,
            None,
            observation(ObservationKind::Error { code: "sandbox".to_owned(), detail: detail.clone() }),
        );
        if what == "freeze" && self.sandbox_state == SandboxState::Paused {
            self.unpause_sandbox(d);
        } else if what == "thaw" && self.sandbox_state == SandboxState::Up {
            if self.unpause_failed {
                self.stop_sandbox(AfterStop::KeepFiles, moment, d);
                self.sandbox_state = SandboxState::Failed { reason: detail };
            } else {
                self.unpause_failed = true;
                self.unpause_sandbox(d);
            }
        }
    }
}

/// The turn or the act that a command begins.
fn started_id(command: &AgentCommand) -> Option<&str> {
    match command {
        AgentCommand::Prompt { turn: id, .. } | AgentCommand::UserAction { user_action: id, .. } => Some(id),
        AgentCommand::Steer { .. }
        | AgentCommand::Cancel {}
        | AgentCommand::KillProcesses {}
        | AgentCommand::Settings(_)
        | AgentCommand::Answer { .. } => None,
    }
}
