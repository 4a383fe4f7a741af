//! Rules for client requests, and for the sweeper's requests.

use greenroom_protocol::{
    Action, EventSource, Observation,
    action::MessageMode,
    link::{AgentCommand, AgentSettings},
    observation::{EscalationStep, QueueItem, SandboxPhase},
    plan::plan_observation,
};

use super::{
    ModeChange, QueuedMessage, RequestError, SandboxState, SessionState, SteeringMessage, UserAction, sandbox_phase,
    start_sandbox,
};
use crate::session::{
    effect::{AfterStop, Effect},
    transition::{DecisionContext, Transition},
};

impl SessionState {
    pub(super) fn start(&mut self, task: String, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        if self.turn.is_some() || !self.queue.is_empty() {
            return Err(RequestError::Busy);
        }
        self.room_for_message(&task, &[])?;
        let item = QueueItem { item: self.next_name("message"), content: task.clone(), attachments: Vec::new() };
        let cause = d.push_event(EventSource::User, None, Some(item.item.clone()), Action::Start { task });
        self.queue.push_back(QueuedMessage { item, cause, missed: false, interrupts: false });
        self.wake(d);
        Ok(())
    }

    pub(super) fn message(
        &mut self,
        content: String,
        mode: MessageMode,
        attachments: Vec<String>,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) -> Result<(), RequestError> {
        self.check_open()?;
        self.room_for_message(&content, &attachments)?;
        let item =
            QueueItem { item: self.next_name("message"), content: content.clone(), attachments: attachments.clone() };
        let action = Action::Message { content: content.clone(), mode, attachments: attachments.clone() };
        let cause = d.push_event(EventSource::User, None, Some(item.item.clone()), action);
        let message = QueuedMessage { item, cause, missed: false, interrupts: false };
        let running = self.turn.is_some() && self.interrupting.is_none();
        match mode {
            MessageMode::Steer if running => {
                let command = self.deliver(AgentCommand::Steer { content, attachments }, d);
                self.steering.push(SteeringMessage { command, message });
            }
            MessageMode::Interrupt if self.is_running() => {
                // Behind earlier interrupting messages: the newest is to be answered last.
                let before = self.queue.iter().take_while(|queued| queued.interrupts).count();
                self.queue.insert(before, QueuedMessage { interrupts: true, ..message });
                if self.interrupting.is_none() {
                    self.cancel(cause, context, d);
                }
                self.queue_paused = false;
            }
            MessageMode::Queue | MessageMode::Steer | MessageMode::Interrupt => {
                self.queue.push_back(message);
                self.wake(d);
            }
        }
        Ok(())
    }

    pub(super) fn queue_user_action(&mut self, action: Action, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        self.room_for_user_action(&action)?;
        // Wire name: ids of user actions begin with `act-`.
        let id = self.next_name("act");
        let cause = d.push_event(EventSource::User, None, Some(id.clone()), action.clone());
        self.queued_user_actions.push_back(UserAction { id, action, cause });
        let queue_paused = self.queue_paused;
        self.wake(d);
        self.queue_paused = queue_paused;
        Ok(())
    }

    /// Continues the queue after a person's input. Starts a stopped or failed sandbox, and unpauses
    /// a sandbox that was paused without work.
    pub(super) fn wake(&mut self, d: &mut Transition) {
        self.queue_paused = false;
        match self.sandbox_state {
            SandboxState::Stopped { .. } | SandboxState::Failed { .. } => {
                self.sandbox_state = SandboxState::Starting;
                d.push_effect(start_sandbox());
            }
            // A sandbox paused during work stays paused: only `resume` continues the work.
            SandboxState::Paused if !self.is_running() => {
                self.unpause_sandbox(d);
            }
            SandboxState::Starting | SandboxState::Up | SandboxState::Paused | SandboxState::Ended => {}
        }
    }

    pub(super) fn interrupt(&mut self, context: DecisionContext<'_>, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        let has_leftovers = self.sandbox_state == SandboxState::Up && !self.leftovers.is_empty();
        let has_target = self.has_work() || self.interrupting.is_some() || has_leftovers;
        if !has_target || self.sandbox_state == SandboxState::Starting {
            return Err(RequestError::NothingToInterrupt);
        }
        let cause = d.push_event(EventSource::User, None, None, Action::Interrupt {});
        // Pauses the queue also for messages sent since an earlier interrupt, because the newest
        // request was to stop.
        self.queue_paused = !self.queue.is_empty() || !self.steering.is_empty();
        if self.interrupting.is_some() {
            self.restart_agent(context, d);
        } else if self.has_work() {
            self.cancel(cause, context, d);
        } else {
            self.end_leftovers(cause, context, d);
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        match self.sandbox_state {
            SandboxState::Up if self.interrupting.is_none() => {
                d.push_event(EventSource::User, None, None, Action::Pause {});
                self.pause_sandbox(None, d);
                Ok(())
            }
            SandboxState::Paused => Err(RequestError::AlreadyInState("paused")),
            SandboxState::Up => Err(self.wrong_state("be paused", "wait until the interrupt has ended")),
            SandboxState::Starting => Err(self.wrong_state("be paused", "wait until it is up")),
            SandboxState::Stopped { .. } | SandboxState::Failed { .. } => {
                Err(self.wrong_state("be paused", "its sandbox is not running"))
            }
            SandboxState::Ended => Err(RequestError::Ended),
        }
    }

    /// Pauses the sandbox. `idle_reason` is `None` if a person requested the pause.
    fn pause_sandbox(&mut self, idle_reason: Option<String>, d: &mut Transition) {
        self.sandbox_state = SandboxState::Paused;
        self.idle_reason = idle_reason;
        self.unpause_failed = false;
        d.push_effect(Effect::PauseSandbox);
    }

    pub(super) fn unpause_sandbox(&mut self, d: &mut Transition) {
        self.sandbox_state = SandboxState::Up;
        d.push_effect(Effect::UnpauseSandbox);
    }

    pub(super) fn resume(&mut self, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        let (next_state, effect) = match self.sandbox_state {
            SandboxState::Paused => (SandboxState::Up, Some(Effect::UnpauseSandbox)),
            SandboxState::Stopped { .. } | SandboxState::Failed { .. } => {
                (SandboxState::Starting, Some(start_sandbox()))
            }
            SandboxState::Up if self.queue_paused => (SandboxState::Up, None),
            SandboxState::Up | SandboxState::Starting => return Err(RequestError::AlreadyInState("up")),
            SandboxState::Ended => return Err(RequestError::Ended),
        };
        d.push_event(EventSource::User, None, None, Action::Resume {});
        self.queue_paused = false;
        self.sandbox_state = next_state;
        d.effects.extend(effect);
        Ok(())
    }

    pub(super) fn stop(
        &mut self,
        reason: Option<String>,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) -> Result<(), RequestError> {
        self.check_open()?;
        if matches!(self.sandbox_state, SandboxState::Stopped { .. }) {
            return Err(RequestError::AlreadyInState("stopped"));
        }
        let source = if reason.is_some() { EventSource::Server } else { EventSource::User };
        d.push_event(source, None, None, Action::Stop {});
        self.stop_sandbox(AfterStop::KeepFiles, context, d);
        self.sandbox_state = SandboxState::Stopped { reason };
        Ok(())
    }

    pub(super) fn end(&mut self, context: DecisionContext<'_>, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        d.push_event(EventSource::User, None, None, Action::End {});
        self.stop_sandbox(AfterStop::Remove, context, d);
        self.queue.clear();
        self.sandbox_state = SandboxState::Ended;
        Ok(())
    }

    /// Stops the sandbox, and ends everything that ran in it.
    pub(super) fn stop_sandbox(&mut self, then: AfterStop, context: DecisionContext<'_>, d: &mut Transition) {
        self.stop_early(d);
        self.abort_work(EscalationStep::Sandbox, context, d);
        self.queue_paused = !self.queue.is_empty();
        self.boot = None;
        d.push_effect(Effect::StopSandbox { then, in_flight: context.in_flight_stops.clone() });
    }

    pub(super) fn pause_idle(&mut self, reason: String, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        if self.has_work() || !self.queue.is_empty() || !self.open_approvals.is_empty() {
            return Err(RequestError::Busy);
        }
        match self.sandbox_state {
            SandboxState::Up => {
                let paused = Observation { kind: sandbox_phase(SandboxPhase::Paused, None), content: reason.clone() };
                d.push_event(EventSource::Server, None, None, paused);
                self.pause_sandbox(Some(reason), d);
                Ok(())
            }
            SandboxState::Starting
            | SandboxState::Paused
            | SandboxState::Stopped { .. }
            | SandboxState::Failed { .. }
            | SandboxState::Ended => Err(self.wrong_state("be paused", "its sandbox is not running")),
        }
    }

    pub(super) fn edit_queue(&mut self, item: &str, content: Option<String>, remove: bool) -> Result<(), RequestError> {
        self.check_open()?;
        let at = self.queue.iter().position(|queued| queued.item.item == item);
        let at = at.ok_or_else(|| RequestError::NotQueued(item.to_owned()))?;
        match (content, remove) {
            (None, true) => {
                self.queue.remove(at);
            }
            (Some(content), false) => {
                self.room_for_change(&self.queue[at].item.content, &content)?;
                self.queue[at].item.content = content;
            }
            (None, false) | (Some(_), true) => {
                return Err(RequestError::BadArgs("give either `content` or `remove: true`".to_owned()));
            }
        }
        self.queue_paused &= !self.queue.is_empty();
        Ok(())
    }

    pub(super) fn set_model(
        &mut self,
        settings: AgentSettings,
        mode: Option<ModeChange>,
        d: &mut Transition,
    ) -> Result<(), RequestError> {
        self.check_open()?;
        self.budget_spent = false;
        d.push_event(
            EventSource::User,
            None,
            None,
            Action::SetModel { model: settings.model.clone(), effort: settings.effort },
        );
        if let Some(change) = mode {
            self.change_mode(change, d);
        }
        self.deliver_settings(settings, d);
        Ok(())
    }

    /// Records a plan that the user saved.
    pub(super) fn plan_saved(&self, path: String, markdown: String, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        d.push_event(EventSource::User, None, None, plan_observation(path, markdown));
        Ok(())
    }

    /// Changes the limit on the session's cost. `None` removes the limit.
    pub(super) fn set_budget(&mut self, usd: Option<f64>, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        if usd.is_some_and(|usd| !usd.is_finite() || usd <= 0.0) {
            return Err(RequestError::BadArgs("`usd` must be a number above 0, or `null` for no budget".to_owned()));
        }
        self.budget_spent = false;
        d.push_event(EventSource::User, None, None, Action::SetBudget { usd });
        Ok(())
    }

    /// Rejects requests to an ended session.
    pub(super) fn check_open(&self) -> Result<(), RequestError> {
        if self.sandbox_state == SandboxState::Ended { Err(RequestError::Ended) } else { Ok(()) }
    }

    fn wrong_state(&self, request: &'static str, way_out: &'static str) -> RequestError {
        RequestError::WrongState { state: self.visible_state().name(), request, way_out }
    }
}
