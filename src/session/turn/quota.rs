//! Rule for a session that has exceeded a disk quota.

use greenroom_protocol::{EventSource, ObservationKind};

use super::{SandboxState, SessionState, observation};
use crate::session::{
    effect::AfterStop,
    transition::{DecisionContext, Transition},
};

/// Disk quota that a session has exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Quota and way out, for the user.
    pub reason: String,
    /// True if an interrupt would not help: nothing runs that it could stop, or the session has
    /// gone on for too long.
    pub is_hard: bool,
}

impl SessionState {
    /// Interrupts the running work, as a person would. A hard excess stops the sandbox.
    pub(super) fn quota_exceeded(
        &mut self,
        QuotaExceeded { reason, is_hard }: QuotaExceeded,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        // A paused sandbox writes nothing, and must not be unpaused to be interrupted.
        let can_interrupt = self.interrupting.is_none() && self.sandbox_state == SandboxState::Up;
        let writes_files = self.is_running() || !self.leftovers.is_empty();
        if !(self.needs_sandbox() && (is_hard || can_interrupt && writes_files)) {
            return;
        }
        let error = ObservationKind::Error { code: "quota".to_owned(), detail: reason.clone() };
        let cause = d.push_event(EventSource::Server, None, None, observation(error));
        self.queue_paused = !self.queue.is_empty() || !self.steering.is_empty();
        if is_hard {
            self.stop_sandbox(AfterStop::KeepFiles, context, d);
            self.sandbox_state = SandboxState::Failed { reason };
        } else {
            self.quota_exceeded = true;
            if self.is_running() {
                self.cancel(cause, context, d);
            } else {
                self.end_leftovers(cause, context, d);
            }
        }
    }
}
