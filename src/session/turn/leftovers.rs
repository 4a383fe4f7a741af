//! Rules for processes that commands left behind.

use greenroom_protocol::{Action, EventSource, link::AgentCommand, observation::EscalationStep};

use super::{CANCEL_GRACE_MS, PendingInterrupt, RequestError, SessionState};
use crate::{
    session::transition::{DecisionContext, Escalation, Transition},
    store::Seq,
};

impl SessionState {
    /// Takes the agent's list. An empty list ends an interrupt of leftovers.
    pub(super) fn leftovers_reported(&mut self, pids: Vec<i32>, context: DecisionContext<'_>, d: &mut Transition) {
        self.leftovers = pids;
        if self.leftovers.is_empty() && !self.is_running() {
            self.finish_interrupt(context, d);
        }
    }

    pub(super) fn kill_process(&mut self, pid: i32, d: &mut Transition) -> Result<(), RequestError> {
        self.check_open()?;
        if !self.leftovers.contains(&pid) {
            return Err(RequestError::NoProcess(pid));
        }
        d.push_event(EventSource::User, None, None, Action::KillProcess { pid });
        // Commands for a paused agent would accumulate.
        self.outgoing
            .retain(|frame| !matches!(frame.command, AgentCommand::KillProcess { pid: other } if other == pid));
        self.deliver(AgentCommand::KillProcess { pid }, d);
        Ok(())
    }

    /// Ends all leftovers. The agent's next list ends the interrupt.
    pub(super) fn end_leftovers(&mut self, cause: Seq, context: DecisionContext<'_>, d: &mut Transition) {
        let what = match self.leftovers.len() {
            1 => "a process that a command had left running".to_owned(),
            count => format!("{count} processes that commands had left running"),
        };
        self.interrupting = Some(PendingInterrupt {
            step: EscalationStep::Cancel,
            since_ms: context.now_ms,
            cause,
            what: vec![what],
            partial: false,
        });
        self.deliver(AgentCommand::KillLeftovers {}, d);
        d.escalation = Some(Escalation::Arm(CANCEL_GRACE_MS));
    }
}
