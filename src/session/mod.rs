//! Session actor: one live session.
//!
//! The actor receives client requests, agent reports and the state changes of the sandbox. For each
//! input, in this order:
//!
//! 1. `handlers` and `reports` convert the message to a `SessionInput`.
//! 2. [`turn`] decides. The rules are pure. A plain event of the agent needs no decision.
//! 3. `commit` appends the new events to the journal.
//! 4. When the append is on disk, `commit` publishes the events, executes the effects and sends
//!    the answers.
//!
//! Deltas do not pass the actor: the link puts them into [`SessionBroadcast`].
//!
//! The actor contains no client JSON, HTTP, Docker or socket code. It awaits its store and nothing
//! else.

mod broadcast;
mod budget;
mod commit;
pub mod effect;
mod handlers;
pub mod messages;
mod render;
mod reports;
mod request;
#[cfg(test)]
pub(crate) mod testkit;
mod transition;
mod turn;
mod usage;
mod view;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use actix::prelude::*;
use greenroom_protocol::{Event, EventBody, EventSource, ObservationKind, link::AgentSettings};
use tracing::{error, warn};

pub use self::{
    broadcast::{DeliveryPoll, DeltaChunk, DeltaPositions, SessionBroadcast, Subscription},
    budget::SessionBudget,
    reports::is_batchable,
    request::{CallError, SessionRequest, request_with_retry, send_request},
    turn::{IdempotencyKey, RequestError, request_digest},
    view::SessionView,
};
use self::{
    commit::{CommitReply, InFlightTotals, PendingTransition},
    effect::{InFlightStops, LinkPort},
    messages::{Purged, SessionStopReason, SessionStopped},
    transition::{DecisionContext, Escalation, NewEvent, Transition},
    turn::{SessionInput, SessionState},
};
use crate::{
    actor_registry::{ActorEntry, ActorKind, ActorRegistry},
    clock,
    gateway::GatewayError,
    sandbox::SandboxIsolation,
    store::{
        Epoch, OpaqueState, ReadLimit, ReportMark, Seq, SessionId, SessionRecord, SessionSnapshot, Store,
        damage::read_past_damage,
    },
};

/// Characters of a task that become the session's title.
const TITLE_CHARS: usize = 80;

/// Longest title that a client may give, in characters.
///
/// Every session list contains the title, and memory holds it as long as the session is known.
const MAX_TITLE_CHARS: usize = 200;
/// Longest other name that a client may give, in bytes. The reasons are those of
/// [`MAX_TITLE_CHARS`].
const MAX_NAME_BYTES: usize = 1024;

/// Creates the link of the session with this record, on the thread that the session runs on.
pub type LinkFactory = dyn Fn(Addr<Session>, &SessionRecord, Arc<SessionBudget>) -> LinkPort + Send + Sync;

/// Checks that a session may use the model of this name.
pub type ModelCheck = dyn Fn(&str) -> Result<(), GatewayError> + Send + Sync;

/// Dependencies that all sessions of this process share.
pub struct SessionDeps {
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub make_link: Box<LinkFactory>,
    /// Returns the agent's settings for a session with this record.
    pub settings_for: Box<dyn Fn(&SessionRecord) -> AgentSettings + Send + Sync>,
    pub check_model: Box<ModelCheck>,
    /// Receives a message when a session's actor has stopped.
    pub session_stopped: Recipient<SessionStopped>,
}

/// Actor of one live session.
pub struct Session {
    id: SessionId,
    deps: Arc<SessionDeps>,
    entry: ActorEntry,
    /// Claim of this actor on the session. The store rejects an append with an outdated epoch.
    epoch: Epoch,
    /// Session record as decided. Ahead of the journal while `pending` has entries.
    record: Arc<SessionRecord>,
    state: SessionState,
    /// Set if `state` may differ from the copy in the record.
    state_changed: bool,
    /// Set if another field of the record has changed since the last append.
    record_changed: bool,
    /// Number of the newest decided event.
    tail: Seq,
    /// Newest agent report that is decided.
    mark: Option<ReportMark>,
    /// Newest agent report that is on disk.
    durable_mark: Option<ReportMark>,
    /// Transitions in flight to disk, oldest first. Bound: `commit::IN_FLIGHT_LIMIT` bytes. When
    /// full: client requests with content are rejected, and the link stops reading the agent's
    /// socket. Other requests are rejected at twice the bound.
    pending: VecDeque<PendingTransition>,
    in_flight: InFlightTotals,
    broadcast: Arc<SessionBroadcast>,
    /// Actions without a result yet: item to the number of the action's event. The result's event
    /// names that number as its cause.
    causes: HashMap<String, Seq>,
    /// Permission to call the model. The gateway reads it before each call.
    budget: Arc<SessionBudget>,
    /// Receives the effects. Created when the session first needs a sandbox.
    link: Option<LinkPort>,
    /// Counts stops of the sandbox that are decided and that the link has not executed yet.
    in_flight_stops: InFlightStops,
    escalation_timer: Option<SpawnHandle>,
    /// Last error that the provider reported. Explains a failed turn.
    provider_error: Option<String>,
    /// Time of the last client request or agent activity. Monotonic: changes of the wall clock do
    /// not affect it.
    last_active: Instant,
    /// Reason why the actor stopped, for the Directory.
    stop_reason: SessionStopReason,
}

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
        let state: Option<SessionState> = serde_json::from_str(record.actor_state.as_str()).map_err(|e| {
            let id = record.id;
            // Instead of a state, the record of a partial import holds the reason as a string.
            let reason: Result<String, _> = serde_json::from_str(record.actor_state.as_str());
            let reason = reason.unwrap_or_else(|_| {
                format!("another version of Greenroom wrote it ({e}); start that one, or a newer one, on this journal")
            });
            RequestError::Unreadable(format!("session `{id}` cannot go on: {reason}"))
        })?;
        let state = state.unwrap_or_default();
        let entry = deps.actor_registry.register(ActorKind::Session, Some(record.id.to_string()));
        let broadcast = Arc::new(SessionBroadcast::default());
        broadcast.publish(tail, &[]);
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
            broadcast,
            causes: HashMap::new(),
            budget: Arc::new(SessionBudget::new(record.budget_usd)),
            link: None,
            in_flight_stops: InFlightStops::default(),
            escalation_timer: None,
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

    /// Finds the actions without a result in the running turn's events, then resumes the session.
    fn restore(&self, after: Option<SessionStopReason>, ctx: &mut Context<Session>) {
        let (store, id, began) = (self.deps.store.clone(), self.id, self.state.turn_start_seq());
        let mut causes: HashMap<_, _> = self.state.user_action_causes().collect();
        let unfinished = async move {
            let Some(began) = began else { return causes };
            let mut after = began - 1;
            loop {
                let page = match read_past_damage(&*store, id, after, ReadLimit { events: 512, bytes: 1 << 20 }).await {
                    Ok(page) => page,
                    Err(e) => {
                        warn!(session = %id, "the running turn's events cannot be read: {e}");
                        return causes;
                    }
                };
                let Some((last, _)) = page.last() else { return causes };
                after = *last;
                for event in page.iter().filter_map(|(_, event)| serde_json::from_slice::<Event>(&event.json).ok()) {
                    render::track_causes(&mut causes, event.seq, event.item.as_deref(), &event.body);
                }
            }
        };
        ctx.wait(unfinished.into_actor(self).map(move |causes, session, ctx| {
            session.causes = causes;
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
        if let Some(effect) = self.state.effect_after_restart() {
            self.execute_effect(effect, ctx);
        }
    }

    /// Decides and commits an input that has no sender to answer.
    fn apply(&mut self, input: SessionInput, ctx: &mut Context<Session>) {
        if let Err(error) = self.decide(input).map(|transition| self.commit(transition, None, Vec::new(), ctx)) {
            // Only client requests can be rejected, and those are answered by `handle_request`.
            error!(session = %self.id, "an input without a sender was rejected: {error}");
        }
    }

    fn decide(&mut self, input: SessionInput) -> Result<Transition, RequestError> {
        if let SessionInput::SetModel { settings, title } = &input {
            check_name("model", &settings.model)?;
            check_title(title.as_deref())?;
        }
        let open = self.broadcast.open_items();
        let now_ms = clock::now_ms();
        let record = self.record_after(&input);
        self.state_changed = true;
        let context = DecisionContext { tail: self.tail, now_ms, open: &open, in_flight_stops: &self.in_flight_stops };
        let transition = self.state.decide(input, context)?;
        if let Some(record) = record {
            self.record = Arc::new(record);
            self.record_changed = true;
        }
        Ok(transition)
    }

    /// Returns the record after `input`, if `input` changes more of the record than its state.
    fn record_after(&self, input: &SessionInput) -> Option<SessionRecord> {
        match input {
            SessionInput::SetModel { settings, title } => {
                let mut record = SessionRecord { model: settings.model.clone(), ..SessionRecord::clone(&self.record) };
                record.title = title.clone().unwrap_or(record.title);
                Some(record)
            }
            SessionInput::Start { task: text } | SessionInput::Message { content: text, .. }
                if self.record.title.is_empty() =>
            {
                let title = text.trim().lines().next().unwrap_or_default().chars().take(TITLE_CHARS).collect();
                Some(SessionRecord { title, ..SessionRecord::clone(&self.record) })
            }
            SessionInput::SandboxPhaseChanged { isolation: Some(SandboxIsolation { driver, .. }), .. }
                if self.record.sandbox != *driver =>
            {
                Some(SessionRecord { sandbox: (*driver).to_owned(), ..SessionRecord::clone(&self.record) })
            }
            _ => None,
        }
    }

    /// Commits an observation that needs no decision.
    fn commit_observation(&mut self, kind: ObservationKind, replies: Vec<CommitReply>, ctx: &mut Context<Session>) {
        let body: EventBody = greenroom_protocol::Observation { kind, content: String::new() }.into();
        self.commit_event(NewEvent { source: EventSource::Server, cause: None, item: None, body }, None, replies, ctx);
    }

    fn set_escalation(&mut self, escalation: Escalation, ctx: &mut Context<Session>) {
        if let Some(armed) = self.escalation_timer.take() {
            ctx.cancel_future(armed);
        }
        if let Escalation::Arm(ms) = escalation {
            let due = |session: &mut Session, ctx: &mut Context<Session>| {
                session.escalation_timer = None;
                session.apply(SessionInput::EscalationDue, ctx);
            };
            self.escalation_timer = Some(ctx.run_later(std::time::Duration::from_millis(ms), due));
        }
    }

    fn link(&mut self, ctx: &mut Context<Session>) -> &LinkPort {
        let (deps, record, budget) = (&self.deps, &self.record, &self.budget);
        self.link.get_or_insert_with(|| (deps.make_link)(ctx.address(), record, budget.clone()))
    }

    /// Returns the session as clients see it. The record may be ahead of the disk, `last_seq` is
    /// not.
    fn view(&self) -> SessionView {
        let tail = self.broadcast.tail();
        let snapshot = SessionSnapshot { record: SessionRecord::clone(&self.record), tail, mark: None };
        SessionView::new(&snapshot, self.broadcast.subscriber_count())
    }

    fn update_status(&self) {
        self.entry.set_state(self.state.visible_state().name());
        self.budget.update(self.state.visible_state(), &self.record.usage);
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

/// Returns the event that began the current turn of the session with this record. Returns `None`
/// if no turn runs, or if another version of Greenroom wrote the record.
pub fn turn_start_seq(record: &SessionRecord) -> Option<Seq> {
    serde_json::from_str::<Option<SessionState>>(record.actor_state.as_str()).ok()??.turn_start_seq()
}

/// Checks the length of a title.
///
/// # Errors
/// Returns [`RequestError::BadArgs`] for a title of more than 200 characters.
pub fn check_title(title: Option<&str>) -> Result<(), RequestError> {
    match title.map_or(0, |title| title.chars().count()) {
        0..=MAX_TITLE_CHARS => Ok(()),
        count => Err(RequestError::BadArgs(format!("`title` has {count} characters; it may have {MAX_TITLE_CHARS}"))),
    }
}

/// Checks the length of the name that is given for the argument `what`.
///
/// # Errors
/// Returns [`RequestError::BadArgs`] for a name of more than 1,024 bytes.
pub fn check_name(what: &str, name: &str) -> Result<(), RequestError> {
    match name.len() {
        0..=MAX_NAME_BYTES => Ok(()),
        bytes => Err(RequestError::BadArgs(format!("`{what}` has {bytes} bytes; it may have {MAX_NAME_BYTES}"))),
    }
}

impl Actor for Session {
    type Context = Context<Session>;
}

impl Handler<Purged> for Session {
    type Result = ();

    fn handle(&mut self, _: Purged, ctx: &mut Context<Session>) {
        self.stop_reason = SessionStopReason::Passivated;
        ctx.stop();
    }
}

impl Drop for Session {
    /// Closes the broadcast and reports the stop to the Directory, whatever ended the actor.
    /// Subscribers then look the session up again.
    fn drop(&mut self) {
        self.broadcast.close();
        self.deps.session_stopped.do_send(SessionStopped { id: self.id, reason: self.stop_reason });
    }
}
