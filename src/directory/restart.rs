//! Sessions whose actors fell, and their way back from the journal.

use std::time::{Duration, Instant};

use actix::prelude::*;
use tracing::{info, warn};

use super::{Directory, Slot};
use crate::{
    session::{
        Refusal, Session,
        messages::{Ending, Fell},
    },
    store::SessionId,
};

/// The first wait before a session is brought back that fell; it doubles up to [`COME_BACK_MAX`].
const COME_BACK: Duration = Duration::from_millis(100);
const COME_BACK_MAX: Duration = Duration::from_secs(10);
/// A session that has lived for so long since it came back is as good as new: what it falls of later is something else.
const STEADY: Duration = Duration::from_secs(60);

/// A session that fell, and may fall again as soon as it is back.
pub(super) struct Fallen {
    how: Ending,
    /// How long to wait before the next try.
    wait: Duration,
    /// The next try is due at some time: whoever asks for the session in between brings no more of them about.
    is_due: bool,
    /// It fell when it was just back. Until the next try is due nobody gets it: those who listen to it would bring it back, and
    /// down, many times a second.
    falls_at_once: bool,
    /// Since when it is back.
    back: Option<Instant>,
}

impl Fallen {
    fn new(how: Ending) -> Fallen {
        Fallen { how, wait: COME_BACK, is_due: false, falls_at_once: false, back: None }
    }

    fn fell(&mut self, how: Ending, now: Instant) {
        match self.back {
            Some(back) if now - back >= STEADY => *self = Fallen { is_due: self.is_due, ..Fallen::new(how) },
            Some(_) | None => (self.how, self.back, self.falls_at_once) = (how, None, true),
        }
    }

    /// How long to wait for the next try, where none is due yet.
    fn next_try(&mut self) -> Option<Duration> {
        let wait = (!std::mem::replace(&mut self.is_due, true)).then_some(self.wait)?;
        self.wait = (wait * 2).min(COME_BACK_MAX);
        Some(wait)
    }

    fn tries(&mut self) {
        (self.is_due, self.falls_at_once) = (false, false);
    }

    /// Whoever wants it now gets it, be it to fall.
    pub(super) fn let_through(&mut self) {
        self.falls_at_once = false;
    }

    /// How it fell, while it is not back.
    fn how(&self) -> Option<Ending> {
        self.back.is_none().then_some(self.how)
    }

    /// Why nobody gets it now.
    pub(super) fn holds(&self) -> Option<Refusal> {
        match self.how {
            _ if !self.falls_at_once => None,
            Ending::AtRest => None,
            Ending::Panicked => Some(Refusal::Unavailable(
                "the session meets an internal error whenever it comes back; it is tried again in a moment".to_owned(),
            )),
            Ending::JournalRefused => Some(Refusal::Journal(
                "the journal refuses what the session has to write; it is tried again in a moment".to_owned(),
            )),
        }
    }
}

impl Directory {
    /// Brings a session back that a server before this one had, and tries again until it is back: its agent works, and nobody else
    /// may come who asks for it.
    pub(super) fn bring_back(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let opened = self.open(id, ctx).into_actor(self);
        ctx.spawn(opened.map(move |opened, directory, ctx| match opened {
            Ok(_) | Err(Refusal::NoSession(_) | Refusal::Unreadable(_)) => {}
            Err(_) if directory.closing => {}
            Err(why) => {
                warn!(session = %id, "the session cannot be brought back yet: {why}");
                directory.fallen.entry(id).or_insert_with(|| Fallen::new(Ending::JournalRefused));
                directory.come_back(id, ctx);
            }
        }));
    }

    /// How a session fell, while it is not back.
    pub(super) fn how_it_fell(&self, id: SessionId) -> Option<Ending> {
        self.fallen.get(&id).and_then(Fallen::how)
    }

    /// Brings a session back that fell, after a wait. Whether that is new.
    pub(super) fn come_back(&mut self, id: SessionId, ctx: &mut Context<Directory>) -> bool {
        let Some(wait) = self.fallen.get_mut(&id).and_then(Fallen::next_try) else { return false };
        ctx.run_later(wait, move |directory, ctx| {
            if let Some(fallen) = directory.fallen.get_mut(&id) {
                fallen.tries();
                drop(directory.open(id, ctx));
            }
        });
        true
    }

    /// Forgets the address of an actor that is gone, and returns one that is not: it may be that of a newer one already.
    fn let_go(&mut self, id: SessionId) -> Option<Addr<Session>> {
        let session = self.slots.get(&id).and_then(Slot::live)?;
        if session.connected() {
            return Some(session);
        }
        self.slots.remove(&id);
        self.say_how_it_is();
        None
    }

    /// It is forgotten that a session fell once it has lived for a while.
    pub(super) fn came_back(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let Some(fallen) = self.fallen.get_mut(&id) else { return };
        let back = Some(Instant::now());
        fallen.back = back;
        ctx.run_later(STEADY, move |directory, _| {
            if directory.fallen.get(&id).is_some_and(|fallen| fallen.back == back) {
                directory.fallen.remove(&id);
            }
        });
    }
}

impl Handler<Fell> for Directory {
    type Result = ();

    fn handle(&mut self, Fell { id, how }: Fell, ctx: &mut Context<Directory>) {
        // Purged meanwhile: there is nothing to bring back.
        if !self.slots.contains_key(&id) {
            return;
        }
        if let Some(session) = self.let_go(id) {
            // It says so a moment before its mailbox closes.
            ctx.run_later(COME_BACK, move |directory, _| {
                if matches!(directory.slots.get(&id), Some(Slot::Live(there)) if *there == session) {
                    directory.let_go(id);
                }
            });
        }
        match how {
            Ending::AtRest => {}
            // The thread that it ran on has ended; the next server brings it back.
            Ending::JournalRefused | Ending::Panicked if self.closing => {}
            Ending::JournalRefused | Ending::Panicked => {
                info!(session = %id, ?how, "a session fell; bringing it back from its journal");
                let fell = |fallen: &mut Fallen| fallen.fell(how, Instant::now());
                self.fallen.entry(id).and_modify(fell).or_insert_with(|| Fallen::new(how));
                if !self.being_purged.contains_key(&id) {
                    self.come_back(id, ctx);
                }
            }
        }
        self.say_how_it_is();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(fallen: &mut Fallen) -> u128 {
        let wait = fallen.next_try().expect("none is due yet").as_millis();
        assert_eq!(fallen.next_try(), None, "one try at a time");
        fallen.tries();
        wait
    }

    #[test]
    fn a_session_that_falls_at_once_waits_longer_each_time_until_it_has_lived_for_a_while() {
        let mut now = Instant::now();
        let mut fallen = Fallen::new(Ending::Panicked);
        assert!(fallen.holds().is_none(), "the first time it is had as soon as somebody wants it");
        let mut waits = vec![wait(&mut fallen)];
        for lived in [1, 59, 0, 0, 0, 0, 0, 0] {
            (fallen.back, now) = (Some(now), now + Duration::from_secs(lived));
            assert_eq!(fallen.how(), None);
            fallen.fell(Ending::Panicked, now);
            assert_eq!(fallen.how(), Some(Ending::Panicked));
            assert!(fallen.holds().is_some());
            waits.push(wait(&mut fallen));
            assert!(fallen.holds().is_none(), "it is tried");
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        fallen.back = Some(now);
        fallen.fell(Ending::JournalRefused, now + STEADY);
        assert_eq!((wait(&mut fallen), fallen.how()), (100, Some(Ending::JournalRefused)));
    }
}
