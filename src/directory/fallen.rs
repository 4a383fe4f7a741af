//! Sessions whose actors fell, and their way back from the journal.

use std::time::Duration;

use actix::prelude::*;
use tracing::info;

use super::{Directory, Slot};
use crate::{
    session::messages::{Ending, Fell},
    store::SessionId,
};

/// The first wait before a session is brought back that fell; it doubles up to [`COME_BACK_MAX`].
const COME_BACK: Duration = Duration::from_millis(100);
const COME_BACK_MAX: Duration = Duration::from_secs(10);

/// A session that fell.
pub(super) struct Fallen {
    pub(super) how: Ending,
    /// How long to wait before the next try.
    wait: Duration,
    /// The next try is due at some time: whoever asks for the session in between brings no more of them about.
    is_due: bool,
}

impl Directory {
    /// Brings a session back that fell, after a wait. Whether that is new.
    pub(super) fn come_back(&mut self, id: SessionId, ctx: &mut Context<Directory>) -> bool {
        let Some(fallen) = self.fallen.get_mut(&id).filter(|fallen| !fallen.is_due) else { return false };
        ctx.run_later(fallen.wait, move |directory, ctx| {
            if let Some(fallen) = directory.fallen.get_mut(&id) {
                fallen.is_due = false;
                drop(directory.open(id, ctx));
            }
        });
        fallen.wait = (fallen.wait * 2).min(COME_BACK_MAX);
        fallen.is_due = true;
        true
    }
}

impl Handler<Fell> for Directory {
    type Result = ();

    fn handle(&mut self, Fell { id, how }: Fell, ctx: &mut Context<Directory>) {
        // Purged meanwhile: there is nothing to bring back.
        if !self.slots.contains_key(&id) {
            return;
        }
        // The address in the slot may be that of a newer actor already.
        if matches!(self.slots.get(&id), Some(Slot::Live(session)) if !session.connected()) {
            self.slots.remove(&id);
        }
        match how {
            Ending::AtRest => {}
            // The thread that it ran on has ended; the next server brings it back.
            Ending::JournalRefused | Ending::Panicked if self.closing => {}
            Ending::JournalRefused | Ending::Panicked => {
                info!(session = %id, ?how, "a session fell; bringing it back from its journal");
                let is_due = self.fallen.get(&id).is_some_and(|fallen| fallen.is_due);
                self.fallen.insert(id, Fallen { how, wait: COME_BACK, is_due });
                self.come_back(id, ctx);
            }
        }
        self.say_how_it_is();
    }
}
