//! How much may wait in a session: so many messages and acts, and so many bytes of both together.

use serde::Serialize;

use super::{RequestError, SessionState};

/// How many messages, and how many acts of the user, may wait. One more is refused.
const MAX_WAITING: usize = 100;

/// How many bytes may wait, as they stand in the journal. All of it is written down with each decision of the session, so it is
/// a share of what the disk has to take from everybody; and an event shows all messages that wait, which is left out where it
/// is larger than 2 MiB. A frame of a client, of 1 MiB at most, has room where nothing waits.
const MAX_WAITING_BYTES: usize = 1536 * 1024;

impl SessionState {
    pub(super) fn room_for_message(&self, content: &str, attachments: &[String]) -> Result<(), RequestError> {
        if self.queue.len() + self.steering.len() >= MAX_WAITING {
            return Err(RequestError::BadArgs(format!(
                "{MAX_WAITING} messages are waiting already; let the agent take some"
            )));
        }
        self.room_for(journal_bytes(&(content, attachments)))
    }

    pub(super) fn room_for_user_action(&self, action: &impl Serialize) -> Result<(), RequestError> {
        if self.queued_user_actions.len() >= MAX_WAITING {
            return Err(RequestError::BadArgs(format!("{MAX_WAITING} acts are waiting already; let some of them end")));
        }
        self.room_for(journal_bytes(action))
    }

    /// Room for `content` in place of what waits already.
    pub(super) fn room_for_change(&self, waiting: &str, content: &str) -> Result<(), RequestError> {
        match journal_bytes(content).saturating_sub(journal_bytes(waiting)) {
            0 => Ok(()),
            more => self.room_for(more),
        }
    }

    fn room_for(&self, more: usize) -> Result<(), RequestError> {
        let bytes = journal_bytes(&(&self.queue, &self.steering, &self.queued_user_actions)) + more;
        if bytes <= MAX_WAITING_BYTES {
            return Ok(());
        }
        Err(RequestError::BadArgs(format!(
            "{} KiB of messages and acts would wait, and at most {} KiB may; let the agent take some, or give it a long text \
             as a file",
            bytes.div_ceil(1024),
            MAX_WAITING_BYTES / 1024
        )))
    }
}

/// How many bytes it has in the journal, where a control character takes six.
fn journal_bytes(what: &(impl Serialize + ?Sized)) -> usize {
    // What waits is plain data with string keys, so this cannot fail.
    serde_json::to_string(what).expect("it is JSON").len()
}
