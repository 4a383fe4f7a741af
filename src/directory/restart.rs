//! Sessions whose actors fell, and their way back from the journal.

use std::time::{Duration, Instant};

use actix::prelude::*;
use tracing::{info, warn};

use super::{Directory, SessionSlot};
use crate::{
    session::{
        RequestError, Session,
        messages::{SessionStopReason, SessionStopped},
    },
    store::SessionId,
};

/// The first wait before a session is brought back that fell; it doubles up to [`COME_BACK_MAX`].
const RESTART_BACKOFF: Duration = Duration::from_millis(100);
const RESTART_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// A session that has lived for so long since it came back is as good as new: what it falls of later is something else.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// A session that fell, and may fall again as soon as it is back.
pub(super) struct RestartBackoff {
    cause: SessionStopReason,
    /// How long to wait before the next try.
    wait: Duration,
    /// The next try is due at some time: whoever asks for the session in between brings no more of them about.
    is_scheduled: bool,
    /// It fell when it was just back. Until the next try is due nobody gets it: those who listen to it would bring it back, and
    /// down, many times a second.
    is_crash_looping: bool,
    /// Since when it is back.
    running_since: Option<Instant>,
}

impl RestartBackoff {
    fn new(cause: SessionStopReason) -> RestartBackoff {
        RestartBackoff {
            cause,
            wait: RESTART_BACKOFF,
            is_scheduled: false,
            is_crash_looping: false,
            running_since: None,
        }
    }

    fn record_stop(&mut self, how: SessionStopReason, now: Instant) {
        match self.running_since {
            Some(back) if now - back >= STABLE_AFTER => {
                *self = RestartBackoff { is_scheduled: self.is_scheduled, ..RestartBackoff::new(how) }
            }
            Some(_) | None => (self.cause, self.running_since, self.is_crash_looping) = (how, None, true),
        }
    }

    /// How long to wait for the next try, where none is due yet.
    fn next_attempt(&mut self) -> Option<Duration> {
        let wait = (!std::mem::replace(&mut self.is_scheduled, true)).then_some(self.wait)?;
        self.wait = (wait * 2).min(RESTART_BACKOFF_MAX);
        Some(wait)
    }

    fn begin_attempt(&mut self) {
        (self.is_scheduled, self.is_crash_looping) = (false, false);
    }

    /// Whoever wants it now gets it, be it to fall.
    pub(super) fn admit_now(&mut self) {
        self.is_crash_looping = false;
    }

    /// How it fell, while it is not back.
    fn cause(&self) -> Option<SessionStopReason> {
        self.running_since.is_none().then_some(self.cause)
    }

    /// Why nobody gets it now.
    pub(super) fn rejection(&self) -> Option<RequestError> {
        match self.cause {
            _ if !self.is_crash_looping => None,
            SessionStopReason::Passivated => None,
            SessionStopReason::Panicked => Some(RequestError::Unavailable(
                "the session meets an internal error whenever it comes back; it is tried again in a moment".to_owned(),
            )),
            SessionStopReason::JournalRejected => Some(RequestError::Journal(
                "the journal refuses what the session has to write; it is tried again in a moment".to_owned(),
            )),
        }
    }
}

impl Directory {
    /// Brings a session back that a server before this one had, and tries again until it is back: its agent works, and nobody else
    /// may come who asks for it.
    pub(super) fn recover_session(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let opened = self.open(id, ctx).into_actor(self);
        ctx.spawn(opened.map(move |opened, directory, ctx| match opened {
            Ok(_) | Err(RequestError::NoSession(_) | RequestError::Unreadable(_)) => {}
            Err(_) if directory.closing => {}
            Err(why) => {
                warn!(session = %id, "the session cannot be brought back yet: {why}");
                directory.restarts.entry(id).or_insert_with(|| RestartBackoff::new(SessionStopReason::JournalRejected));
                directory.restart_with_backoff(id, ctx);
            }
        }));
    }

    /// How a session fell, while it is not back.
    pub(super) fn stop_cause(&self, id: SessionId) -> Option<SessionStopReason> {
        self.restarts.get(&id).and_then(RestartBackoff::cause)
    }

    /// Brings a session back that fell, after a wait. Whether that is new.
    pub(super) fn restart_with_backoff(&mut self, id: SessionId, ctx: &mut Context<Directory>) -> bool {
        let Some(wait) = self.restarts.get_mut(&id).and_then(RestartBackoff::next_attempt) else { return false };
        ctx.run_later(wait, move |directory, ctx| {
            if let Some(fallen) = directory.restarts.get_mut(&id) {
                fallen.begin_attempt();
                drop(directory.open(id, ctx));
            }
        });
        true
    }

    /// Forgets the address of an actor that is gone, and returns one that is not: it may be that of a newer one already.
    fn forget_stopped(&mut self, id: SessionId) -> Option<Addr<Session>> {
        let session = self.slots.get(&id).and_then(SessionSlot::live)?;
        if session.connected() {
            return Some(session);
        }
        self.slots.remove(&id);
        self.report_status();
        None
    }

    /// It is forgotten that a session fell once it has lived for a while.
    pub(super) fn mark_restarted(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let Some(fallen) = self.restarts.get_mut(&id) else { return };
        let back = Some(Instant::now());
        fallen.running_since = back;
        ctx.run_later(STABLE_AFTER, move |directory, _| {
            if directory.restarts.get(&id).is_some_and(|fallen| fallen.running_since == back) {
                directory.restarts.remove(&id);
            }
        });
    }
}

impl Handler<SessionStopped> for Directory {
    type Result = ();

    fn handle(&mut self, SessionStopped { id, reason: how }: SessionStopped, ctx: &mut Context<Directory>) {
        // Purged meanwhile: there is nothing to bring back.
        if !self.slots.contains_key(&id) {
            return;
        }
        if let Some(session) = self.forget_stopped(id) {
            // It says so a moment before its mailbox closes.
            ctx.run_later(RESTART_BACKOFF, move |directory, _| {
                if matches!(directory.slots.get(&id), Some(SessionSlot::Live(there)) if *there == session) {
                    directory.forget_stopped(id);
                }
            });
        }
        match how {
            SessionStopReason::Passivated => {}
            // The thread that it ran on has ended; the next server brings it back.
            SessionStopReason::JournalRejected | SessionStopReason::Panicked if self.closing => {}
            SessionStopReason::JournalRejected | SessionStopReason::Panicked => {
                info!(session = %id, ?how, "a session fell; bringing it back from its journal");
                let fell = |fallen: &mut RestartBackoff| fallen.record_stop(how, Instant::now());
                self.restarts.entry(id).and_modify(fell).or_insert_with(|| RestartBackoff::new(how));
                if !self.purging.contains_key(&id) {
                    self.restart_with_backoff(id, ctx);
                }
            }
        }
        self.report_status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(fallen: &mut RestartBackoff) -> u128 {
        let wait = fallen.next_attempt().expect("none is due yet").as_millis();
        assert_eq!(fallen.next_attempt(), None, "one try at a time");
        fallen.begin_attempt();
        wait
    }

    #[test]
    fn a_session_that_falls_at_once_waits_longer_each_time_until_it_has_lived_for_a_while() {
        let mut now = Instant::now();
        let mut fallen = RestartBackoff::new(SessionStopReason::Panicked);
        assert!(fallen.rejection().is_none(), "the first time it is had as soon as somebody wants it");
        let mut waits = vec![wait(&mut fallen)];
        for lived in [1, 59, 0, 0, 0, 0, 0, 0] {
            (fallen.running_since, now) = (Some(now), now + Duration::from_secs(lived));
            assert_eq!(fallen.cause(), None);
            fallen.record_stop(SessionStopReason::Panicked, now);
            assert_eq!(fallen.cause(), Some(SessionStopReason::Panicked));
            assert!(fallen.rejection().is_some());
            waits.push(wait(&mut fallen));
            assert!(fallen.rejection().is_none(), "it is tried");
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        fallen.running_since = Some(now);
        fallen.record_stop(SessionStopReason::JournalRejected, now + STABLE_AFTER);
        assert_eq!((wait(&mut fallen), fallen.cause()), (100, Some(SessionStopReason::JournalRejected)));
    }
}
