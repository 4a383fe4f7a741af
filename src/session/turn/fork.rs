//! State of a session at its beginning as a fork.

use super::{SandboxState, SessionState};

/// Reason of the state `stopped` of a fork without a message.
const FORKED: &str = "a fork starts with its first message";

impl SessionState {
    /// Returns the state of a new fork: without a sandbox, work, queue, rules and keys.
    ///
    /// The copied events name messages and turns, so the fork goes on with the source's counter.
    pub fn of_fork(&self) -> SessionState {
        SessionState {
            sandbox_state: SandboxState::Stopped { reason: Some(FORKED.to_owned()) },
            name_counter: self.name_counter,
            ..SessionState::default()
        }
    }

    /// Returns true if the capture of this checkpoint has not ended.
    pub fn is_capturing(&self, checkpoint: &str) -> bool {
        self.captures.contains(checkpoint)
    }
}
