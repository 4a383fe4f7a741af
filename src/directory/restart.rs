//! Restarts sessions from the journal after their actors stopped unexpectedly.

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
    telemetry::metrics::{METRICS, RestartedPart},
};

/// First backoff before a restart. Doubles up to [`RESTART_BACKOFF_MAX`].
const RESTART_BACKOFF: Duration = Duration::from_millis(100);
const RESTART_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Run time after which a restarted session counts as stable. A later stop starts with the first
/// backoff again.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Restart state of a session whose actor stopped unexpectedly.
pub(super) struct RestartBackoff {
    cause: SessionStopReason,
    /// Backoff before the next attempt.
    wait: Duration,
    /// The next attempt is scheduled. Requests for the session schedule no further attempts.
    is_scheduled: bool,
    /// The actor stopped right after a restart. Requests are rejected until the next attempt:
    /// subscribers would otherwise restart the actor many times a second.
    is_crash_looping: bool,
    /// Time of the restart. `None` while the actor is down.
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

    fn record_stop(&mut self, cause: SessionStopReason, now: Instant) {
        match self.running_since {
            Some(since) if now - since >= STABLE_AFTER => {
                *self = RestartBackoff { is_scheduled: self.is_scheduled, ..RestartBackoff::new(cause) }
            }
            Some(_) | None => (self.cause, self.running_since, self.is_crash_looping) = (cause, None, true),
        }
    }

    /// Schedules the next attempt. Returns its backoff, or `None` if an attempt is already
    /// scheduled.
    fn next_attempt(&mut self) -> Option<Duration> {
        let wait = (!std::mem::replace(&mut self.is_scheduled, true)).then_some(self.wait)?;
        self.wait = (wait * 2).min(RESTART_BACKOFF_MAX);
        Some(wait)
    }

    fn begin_attempt(&mut self) {
        (self.is_scheduled, self.is_crash_looping) = (false, false);
    }

    /// Admits requests at once, although the session may stop again.
    pub(super) fn admit_now(&mut self) {
        self.is_crash_looping = false;
    }

    /// Returns the reason of the last stop while the actor is down.
    fn cause(&self) -> Option<SessionStopReason> {
        self.running_since.is_none().then_some(self.cause)
    }

    /// Returns the error for requests that are rejected during the backoff.
    pub(super) fn rejection(&self) -> Option<RequestError> {
        match self.cause {
            _ if !self.is_crash_looping => None,
            SessionStopReason::Passivated => None,
            SessionStopReason::Panicked => Some(RequestError::Unavailable(
                "the session stops with an internal error at each restart; retrying in a moment".to_owned(),
            )),
            SessionStopReason::JournalRejected => {
                Some(RequestError::Journal("the journal rejects the session's writes; retrying in a moment".to_owned()))
            }
        }
    }
}

impl Directory {
    /// Restarts a session of an earlier server, and retries until it runs. The session's agent may
    /// be working while no client asks for the session.
    pub(super) fn recover_session(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let opened = self.open(id, ctx).into_actor(self);
        ctx.spawn(opened.map(move |opened, directory, ctx| match opened {
            Ok(_) | Err(RequestError::NoSession(_) | RequestError::Unreadable(_)) => {}
            Err(_) if directory.closing => {}
            Err(error) => {
                warn!(session = %id, "could not restart the session yet; retrying: {error}");
                directory.restarts.entry(id).or_insert_with(|| RestartBackoff::new(SessionStopReason::JournalRejected));
                directory.restart_with_backoff(id, ctx);
            }
        }));
    }

    /// Returns the reason of a session's last stop while its actor is down.
    pub(super) fn stop_cause(&self, id: SessionId) -> Option<SessionStopReason> {
        self.restarts.get(&id).and_then(RestartBackoff::cause)
    }

    /// Schedules a restart with backoff. Returns false if an attempt is already scheduled.
    pub(super) fn restart_with_backoff(&mut self, id: SessionId, ctx: &mut Context<Directory>) -> bool {
        let Some(wait) = self.restarts.get_mut(&id).and_then(RestartBackoff::next_attempt) else { return false };
        ctx.run_later(wait, move |directory, ctx| {
            if let Some(backoff) = directory.restarts.get_mut(&id) {
                backoff.begin_attempt();
                drop(directory.open(id, ctx));
            }
        });
        true
    }

    /// Drops the address of a stopped actor. Returns the address instead if its actor still runs:
    /// it may belong to a newer actor.
    fn forget_stopped(&mut self, id: SessionId) -> Option<Addr<Session>> {
        let session = self.slots.get(&id).and_then(SessionSlot::live)?;
        if session.connected() {
            return Some(session);
        }
        self.slots.remove(&id);
        self.report_status();
        None
    }

    /// Records a restart. The restart state is dropped after [`STABLE_AFTER`].
    pub(super) fn mark_restarted(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let Some(backoff) = self.restarts.get_mut(&id) else { return };
        METRICS.count_restart(RestartedPart::Session);
        let running_since = Some(Instant::now());
        backoff.running_since = running_since;
        ctx.run_later(STABLE_AFTER, move |directory, _| {
            if directory.restarts.get(&id).is_some_and(|backoff| backoff.running_since == running_since) {
                directory.restarts.remove(&id);
            }
        });
    }
}

impl Handler<SessionStopped> for Directory {
    type Result = ();

    fn handle(&mut self, SessionStopped { id, reason }: SessionStopped, ctx: &mut Context<Directory>) {
        // The session was purged meanwhile.
        if !self.slots.contains_key(&id) {
            return;
        }
        if let Some(session) = self.forget_stopped(id) {
            // The report arrives shortly before the actor's mailbox closes.
            ctx.run_later(RESTART_BACKOFF, move |directory, _| {
                if matches!(directory.slots.get(&id), Some(SessionSlot::Live(live)) if *live == session) {
                    directory.forget_stopped(id);
                }
            });
        }
        match reason {
            SessionStopReason::Passivated => {}
            // The actor's thread has ended. The next server restarts the session.
            SessionStopReason::JournalRejected | SessionStopReason::Panicked if self.closing => {}
            SessionStopReason::JournalRejected | SessionStopReason::Panicked => {
                info!(session = %id, ?reason, "the session's actor stopped; restarting it from the journal");
                let record_stop = |backoff: &mut RestartBackoff| backoff.record_stop(reason, Instant::now());
                self.restarts.entry(id).and_modify(record_stop).or_insert_with(|| RestartBackoff::new(reason));
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

    fn wait(backoff: &mut RestartBackoff) -> u128 {
        let wait = backoff.next_attempt().expect("no attempt is scheduled").as_millis();
        assert_eq!(backoff.next_attempt(), None, "one attempt at a time");
        backoff.begin_attempt();
        wait
    }

    #[test]
    fn restart_backoff_grows_until_session_is_stable() {
        let mut now = Instant::now();
        let mut backoff = RestartBackoff::new(SessionStopReason::Panicked);
        assert!(backoff.rejection().is_none(), "the first restart rejects no requests");
        let mut waits = vec![wait(&mut backoff)];
        for ran_for in [1, 59, 0, 0, 0, 0, 0, 0] {
            (backoff.running_since, now) = (Some(now), now + Duration::from_secs(ran_for));
            assert_eq!(backoff.cause(), None);
            backoff.record_stop(SessionStopReason::Panicked, now);
            assert_eq!(backoff.cause(), Some(SessionStopReason::Panicked));
            assert!(backoff.rejection().is_some());
            waits.push(wait(&mut backoff));
            assert!(backoff.rejection().is_none(), "requests are admitted once the attempt begins");
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        backoff.running_since = Some(now);
        backoff.record_stop(SessionStopReason::JournalRejected, now + STABLE_AFTER);
        assert_eq!((wait(&mut backoff), backoff.cause()), (100, Some(SessionStopReason::JournalRejected)));
    }
}
