//! Notes for the agent that a person has restored files of the workspace.

use greenroom_protocol::ObservationKind;
use serde::{Deserialize, Serialize};

use super::SessionState;

/// Note for the next prompt of a running agent. Another agent reads the restore in its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RestoreNote {
    /// Boot id of the agent.
    boot: String,
    text: String,
}

impl SessionState {
    /// Keeps a note if the observation is the end of a restore. The newest note counts.
    pub(super) fn note_restore(&mut self, kind: &ObservationKind) {
        if let ObservationKind::Checkpoint(checkpoint) = kind
            && let (Some(boot), Some(text)) = (self.boot.clone(), checkpoint.restore_note())
        {
            self.restore_note = Some(RestoreNote { boot, text });
        }
    }

    /// Returns the content of a prompt, with the note. The content is first: it may be a command.
    pub(super) fn with_restore_note(&mut self, content: String) -> String {
        match self.restore_note.take() {
            Some(RestoreNote { boot, text }) if self.boot.as_ref() == Some(&boot) => format!("{content}\n\n{text}"),
            Some(_) | None => content,
        }
    }
}
