//! Rules for terminals. Their bytes pass the session by; it starts their sandbox, and names those
//! that a restart of the agent ends.

use greenroom_protocol::{Action, EventSource, terminal::TERMINALS_LIMIT};

use super::{RequestError, SandboxState, SessionState, start_sandbox};
use crate::session::transition::Transition;

impl SessionState {
    /// Starts a stopped or failed sandbox. A paused queue stays paused.
    pub(super) fn start_for_terminal(&mut self, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        if let SandboxState::Stopped { .. } | SandboxState::Failed { .. } = self.sandbox_state {
            d.push_event(EventSource::User, None, None, Action::Resume {});
            self.sandbox_state = SandboxState::Starting;
            d.push_effect(start_sandbox());
        }
        Ok(())
    }

    /// Takes the names of the open terminals.
    pub(super) fn terminals_listed(&mut self, mut names: Vec<String>) {
        names.truncate(TERMINALS_LIMIT);
        if matches!(self.sandbox_state, SandboxState::Up | SandboxState::Paused) {
            self.terminals = names;
        }
    }

    /// Describes the open terminals for a receipt.
    pub(super) fn terminals_in_words(&self) -> Option<String> {
        let names: Vec<String> = self.terminals.iter().map(|name| format!("`{name}`")).collect();
        let noun = if names.len() == 1 { "terminal" } else { "terminals" };
        (!names.is_empty()).then(|| format!("the {noun} {}", names.join(", ")))
    }
}
