//! How much may wait in a session: so many messages and acts, and so many bytes of both together.

use serde::Serialize;

use super::{Core, Refusal};

/// How many messages, and how many acts of the user, may wait. One more is refused.
const WAITING: usize = 100;

/// How many bytes may wait, as they stand in the journal. All of it is written down with each decision of the session, so it is
/// a share of what the disk has to take from everybody; and an event shows all messages that wait, which is left out where it
/// is larger than 2 MiB. A frame of a client, of 1 MiB at most, has room where nothing waits.
const WAITING_BYTES: usize = 1536 * 1024;

impl Core {
    pub(super) fn room_for_message(&self, content: &str, attachments: &[String]) -> Result<(), Refusal> {
        if self.queue.len() + self.steering.len() >= WAITING {
            return Err(Refusal::BadArgs(format!("{WAITING} messages are waiting already; let the agent take some")));
        }
        self.room_for(weight(&(content, attachments)))
    }

    pub(super) fn room_for_act(&self, action: &impl Serialize) -> Result<(), Refusal> {
        if self.acts.len() >= WAITING {
            return Err(Refusal::BadArgs(format!("{WAITING} acts are waiting already; let some of them end")));
        }
        self.room_for(weight(action))
    }

    /// Room for `content` in place of what waits already.
    pub(super) fn room_for_change(&self, waiting: &str, content: &str) -> Result<(), Refusal> {
        match weight(content).saturating_sub(weight(waiting)) {
            0 => Ok(()),
            more => self.room_for(more),
        }
    }

    fn room_for(&self, more: usize) -> Result<(), Refusal> {
        let bytes = weight(&(&self.queue, &self.steering, &self.acts)) + more;
        if bytes <= WAITING_BYTES {
            return Ok(());
        }
        Err(Refusal::BadArgs(format!(
            "{} KiB of messages and acts would wait, and at most {} KiB may; let the agent take some, or give it a long text \
             as a file",
            bytes.div_ceil(1024),
            WAITING_BYTES / 1024
        )))
    }
}

/// How many bytes it has in the journal, where a control character takes six.
fn weight(what: &(impl Serialize + ?Sized)) -> usize {
    // What waits is plain data with string keys, so this cannot fail.
    serde_json::to_string(what).expect("it is JSON").len()
}
