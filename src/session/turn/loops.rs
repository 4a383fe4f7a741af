//! Rule for an agent that repeats itself.

use greenroom_protocol::{EventSource, ObservationKind, link::AgentCommand};

use super::{SessionState, observation};
use crate::session::transition::Transition;

impl SessionState {
    /// Tells the running agent that it repeats itself. `what` names the repetition.
    ///
    /// The message is no person's, so its receipt causes no `chat` event.
    pub(super) fn loop_noted(&mut self, what: &str, d: &mut Transition) {
        if !self.is_turn_active() {
            return;
        }
        let (code, detail) = ("loop_noted".to_owned(), what.to_owned());
        let notice = ObservationKind::Notice { code, detail, attempts: None, waited_ms: None };
        d.push_event(EventSource::Server, None, None, observation(notice));
        let content = format!(
            "Note from the server, not from the user: {what}. Try another way. If you cannot go on, end the turn and say \
             what is missing. If this repeats, the user is asked before your next tool call."
        );
        self.deliver(AgentCommand::Steer { content, attachments: Vec::new() }, d);
    }
}
