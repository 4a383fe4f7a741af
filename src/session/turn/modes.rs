//! Rules for the mode of the session.

use greenroom_protocol::{
    Action, EventSource,
    action::MessageMode,
    approval::ApprovalMode,
    link::{AgentCommand, AgentSettings},
};

use super::{PolicyAnswer, RequestError, SessionState};
use crate::session::transition::{DecisionContext, Transition};

/// Change of the mode.
#[derive(Debug, Clone, PartialEq)]
pub struct ModeChange {
    pub mode: ApprovalMode,
    /// Answers to the open requests that the new mode allows.
    pub answers: Vec<PolicyAnswer>,
}

impl SessionState {
    /// Changes the mode, then queues the message.
    pub(super) fn set_mode(
        &mut self,
        settings: AgentSettings,
        change: ModeChange,
        message: Option<String>,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) -> Result<(), RequestError> {
        self.check_open()?;
        if let Some(content) = &message {
            self.room_for_message(content, &[])?;
        }
        self.change_mode(change, d);
        self.deliver_settings(settings, d);
        match message {
            None => Ok(()),
            Some(content) => self.message(content, MessageMode::Queue, Vec::new(), context, d),
        }
    }

    pub(super) fn change_mode(&mut self, ModeChange { mode, answers }: ModeChange, d: &mut Transition) {
        d.push_event(EventSource::User, None, None, Action::SetMode { mode });
        self.answer_all_by_policy(answers, d);
    }

    /// Delivers the settings to the agent, if there is one. The next agent gets them at its start.
    pub(super) fn deliver_settings(&mut self, settings: AgentSettings, d: &mut Transition) {
        if self.boot.is_some() {
            // Only the newest settings matter, and commands for a paused agent would accumulate.
            self.outgoing.retain(|frame| !matches!(frame.command, AgentCommand::Settings(_)));
            self.deliver(AgentCommand::Settings(settings), d);
        }
    }
}
