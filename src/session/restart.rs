//! Start of a session's actor from the journal.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use actix::prelude::*;
use greenroom_protocol::{Event, ObservationKind};
use tracing::warn;

use super::{
    actor::{Session, SessionDeps},
    broadcast::SessionBroadcast,
    budget::SessionBudget,
    effect::InFlightStops,
    journal_quota::JournalMeter,
    loops::LoopDetector,
    messages::SessionStopReason,
    pending::InFlightTotals,
    render,
    request_error::RequestError,
    turn::{IdempotencyKey, SessionInput, SessionState},
};
use crate::{
    actor_registry::ActorKind,
    store::{Epoch, OpaqueState, ReadLimit, Seq, SessionRecord, SessionSnapshot, damage::read_past_damage},
};

impl Session {
    /// Starts the actor of a session that this process has claimed, on the current thread.
    ///
    /// `after` is the reason why the session's previous actor stopped, if this process had one.
    ///
    /// # Errors
    /// Returns [`RequestError::Unreadable`] if the session state in the record cannot be read.
    pub fn start_from(
        deps: Arc<SessionDeps>,
        epoch: Epoch,
        snapshot: SessionSnapshot,
        after: Option<SessionStopReason>,
    ) -> Result<Addr<Session>, RequestError> {
        let SessionSnapshot { record, tail, mark, .. } = snapshot;
        let state = state_of(&record)?;
        let entry = deps.actor_registry.register(ActorKind::Session, Some(record.id.to_string()));
        let broadcast = Arc::new(SessionBroadcast::default());
        broadcast.publish(tail, &[]);
        let loops = LoopDetector::new(deps.policy.loops);
        let budget = Arc::new(SessionBudget::new(deps.spending.clone(), &record));
        let session = Session {
            id: record.id,
            deps,
            entry,
            epoch,
            state_changed: false,
            record_changed: false,
            state,
            tail,
            durable_mark: mark.clone(),
            mark,
            pending: VecDeque::new(),
            in_flight: InFlightTotals::default(),
            journal_meter: JournalMeter::new(record.journal_usage.clone()),
            broadcast,
            causes: HashMap::new(),
            budget,
            user_calls: Arc::default(),
            link: None,
            in_flight_stops: InFlightStops::default(),
            escalation_timer: None,
            approval_timer: None,
            reviews: Box::default(),
            loops: Box::new(loops),
            provider_error: None,
            last_active: Instant::now(),
            stop_reason: SessionStopReason::Panicked,
            record: Arc::new(record),
        };
        Ok(Session::create(|ctx| {
            ctx.set_mailbox_capacity(256);
            session.restore(after, ctx);
            session
        }))
    }

    /// Finds the actions without a result and the repetitions in the running turn's events, then
    /// resumes the session.
    fn restore(&self, after: Option<SessionStopReason>, ctx: &mut Context<Session>) {
        let (store, id, began) = (self.deps.store.clone(), self.id, self.state.turn_start_seq());
        let mut causes: HashMap<_, _> = self.state.user_action_causes().collect();
        let mut loops = LoopDetector::new(self.deps.policy.loops);
        let unfinished = async move {
            let Some(began) = began else { return (causes, loops) };
            let mut after = began - 1;
            loop {
                let page = match read_past_damage(&*store, id, after, ReadLimit { events: 512, bytes: 1 << 20 }).await {
                    Ok(page) => page,
                    Err(e) => {
                        warn!(session = %id, "the running turn's events cannot be read: {e}");
                        return (causes, loops);
                    }
                };
                let Some((last, _)) = page.last() else { return (causes, loops) };
                after = *last;
                for event in page.iter().filter_map(|(_, event)| serde_json::from_slice::<Event>(&event.json).ok()) {
                    render::track_causes(&mut causes, event.seq, event.item.as_deref(), &event.body);
                    loops.observe(event.source, event.item.as_deref(), &event.body);
                }
            }
        };
        ctx.wait(unfinished.into_actor(self).map(move |(causes, loops), session, ctx| {
            session.causes = causes;
            *session.loops = loops;
            session.resume_from_journal(after, ctx);
        }));
    }

    /// Continues where the journal ends. A new session gets its first input. Any other session arms
    /// its timer and starts its link again, if it needs them.
    fn resume_from_journal(&mut self, after: Option<SessionStopReason>, ctx: &mut Context<Session>) {
        self.update_status();
        let new = self.tail == 0;
        if after == Some(SessionStopReason::Panicked) {
            self.commit_observation(
                ObservationKind::Error {
                    code: "session_restarted".to_owned(),
                    detail: "the session met an internal error and was restarted from its journal".to_owned(),
                },
                Vec::new(),
                ctx,
            );
        }
        if new {
            self.apply(SessionInput::SessionCreated, ctx);
            return;
        }
        if let Some(escalation) = self.state.escalation() {
            self.set_escalation(escalation, ctx);
        }
        self.follow_approvals(ctx);
        if let Some(effect) = self.state.effect_after_restart() {
            self.execute_effect(effect, ctx);
        }
        for effect in self.state.captures_after_restart() {
            self.execute_effect(effect, ctx);
        }
    }
}

/// Returns the first state of a new session. Contains the idempotency key of the request that
/// created the session, if the client gave one.
pub fn initial_state(key: Option<IdempotencyKey>) -> OpaqueState {
    key.map_or_else(OpaqueState::default, |key| {
        let mut state = SessionState::default();
        state.add_to_dedup_cache(key, None);
        state.to_opaque_state()
    })
}

/// Reads the session state in a record.
///
/// # Errors
/// Returns [`RequestError::Unreadable`] for the state of another version, and for an incomplete
/// session.
pub(super) fn state_of(record: &SessionRecord) -> Result<SessionState, RequestError> {
    let state: Option<SessionState> = serde_json::from_str(record.actor_state.as_str()).map_err(|e| {
        let id = record.id;
        // Instead of a state, the record of a partial import or fork holds the reason as a string.
        let reason: Result<String, _> = serde_json::from_str(record.actor_state.as_str());
        let reason = reason.unwrap_or_else(|_| {
            format!("another version of Greenroom wrote it ({e}); start that one, or a newer one, on this journal")
        });
        RequestError::Unreadable(format!("session `{id}` cannot go on: {reason}"))
    })?;
    Ok(state.unwrap_or_default())
}

/// Returns the event that began the current turn of the session with this record. Returns `None`
/// if no turn runs, or if another version of Greenroom wrote the record.
pub fn turn_start_seq(record: &SessionRecord) -> Option<Seq> {
    serde_json::from_str::<Option<SessionState>>(record.actor_state.as_str()).ok()??.turn_start_seq()
}
