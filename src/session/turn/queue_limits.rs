//! Limits of the queued messages and user actions of a session: number and bytes.

use serde::Serialize;

use super::{RequestError, SessionState};

/// Queued messages, steering messages included, and queued user actions.
///
/// Bound: 100 of each. When full: the request is rejected.
const MAX_WAITING: usize = 100;

/// Bytes of all queued messages and user actions, as JSON in the journal.
///
/// Bound: 1.5 MiB. When full: the request is rejected. Every transition of the session writes all
/// queued bytes, so the limit protects the disk, which all sessions share. The event `queue` lists
/// all queued messages, and an event above 2 MiB would be left out. An empty queue has room for the
/// largest client frame (1 MiB).
const MAX_WAITING_BYTES: usize = 1536 * 1024;

impl SessionState {
    pub(super) fn room_for_message(&self, content: &str, attachments: &[String]) -> Result<(), RequestError> {
        if self.queue.len() + self.steering.len() >= MAX_WAITING {
            return Err(RequestError::BadArgs(format!(
                "{MAX_WAITING} messages are already queued; wait until the agent has taken some"
            )));
        }
        self.room_for(journal_bytes(&(content, attachments)))
    }

    pub(super) fn room_for_user_action(&self, action: &impl Serialize) -> Result<(), RequestError> {
        if self.queued_user_actions.len() >= MAX_WAITING {
            return Err(RequestError::BadArgs(format!(
                "{MAX_WAITING} user actions are already queued; wait until some have ended"
            )));
        }
        self.room_for(journal_bytes(action))
    }

    /// Checks that `content` may replace the queued text `waiting`.
    pub(super) fn room_for_change(&self, waiting: &str, content: &str) -> Result<(), RequestError> {
        match journal_bytes(content).saturating_sub(journal_bytes(waiting)) {
            0 => Ok(()),
            added => self.room_for(added),
        }
    }

    fn room_for(&self, added: usize) -> Result<(), RequestError> {
        let bytes = journal_bytes(&(&self.queue, &self.steering, &self.queued_user_actions)) + added;
        if bytes <= MAX_WAITING_BYTES {
            return Ok(());
        }
        Err(RequestError::BadArgs(format!(
            "{} KiB of messages and user actions would be queued, at most {} KiB are allowed; wait until the agent has \
             taken some, or pass a long text as a file",
            bytes.div_ceil(1024),
            MAX_WAITING_BYTES / 1024
        )))
    }
}

/// Returns the length of `value` as JSON in the journal. A control character takes six bytes.
fn journal_bytes(value: &(impl Serialize + ?Sized)) -> usize {
    // Invariant: queued data is plain data with string keys.
    serde_json::to_string(value).expect("queued data serializes without errors").len()
}
