//! The Session actor: one live session. It hears wishes and reports, lets the rules of [`turn`] decide, writes down, tells.
//!
//! It knows no JSON of a client, no HTTP, no Docker and no socket. It waits for its store and for nothing else.

mod broadcast;
mod budget;
mod commit;
mod handlers;
pub mod messages;
mod render;
mod reports;
mod request;
#[cfg(test)]
mod test_session;
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
use greenroom_protocol::{Event, EventBody, EventSource, ObservationKind as Saw, link::AgentSettings};
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
    messages::{LinkPort, Purged, SessionStopReason, SessionStopped, effects},
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

/// How many characters of a task become a session's title.
const TITLE_CHARS: usize = 80;

/// How long a title that somebody gives may be, in characters, and any other name, in bytes: each of them is in every list, and
/// in memory as long as its session is known.
const MAX_TITLE_CHARS: usize = 200;
const MAX_NAME_BYTES: usize = 1024;

/// Makes the link of a session, on the thread that the session runs on.
pub type LinkFactory = dyn Fn(Addr<Session>, SessionId, Arc<SessionBudget>) -> LinkPort + Send + Sync;

/// Whether a session may work with the model of this name.
pub type ModelCheck = dyn Fn(&str) -> Result<(), GatewayError> + Send + Sync;

/// What every session of this process shares.
pub struct SessionDeps {
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub make_link: Box<LinkFactory>,
    /// What an agent works with, for a session of this record.
    pub settings_for: Box<dyn Fn(&SessionRecord) -> AgentSettings + Send + Sync>,
    pub check_model: Box<ModelCheck>,
    /// Told when a session's actor is gone.
    pub session_stopped: Recipient<SessionStopped>,
}

/// One live session.
pub struct Session {
    id: SessionId,
    deps: Arc<SessionDeps>,
    entry: ActorEntry,
    /// Guards every append: another owner makes it stale.
    epoch: Epoch,
    /// As decided; the journal has it, this very one, once all that is pending is on disk.
    record: Arc<SessionRecord>,
    state: SessionState,
    /// The core may not be as the record has it.
    state_changed: bool,
    /// Something else of the record changed since it was written.
    record_changed: bool,
    /// The newest event that is decided.
    tail: Seq,
    /// The newest report of the agent that is decided.
    mark: Option<ReportMark>,
    /// The newest report of the agent that is on disk.
    durable_mark: Option<ReportMark>,
    /// Decisions on their way to disk, oldest first. Bounded by what the link and the clients may have under way.
    pending: VecDeque<PendingTransition>,
    in_flight: InFlightTotals,
    broadcast: Arc<SessionBroadcast>,
    /// Actions whose result has not come: item → seq.
    causes: HashMap<String, Seq>,
    /// Whether the model may be called; the gateway asks it.
    budget: Arc<SessionBudget>,
    /// Orders go here. Made when the first sandbox is wanted.
    link: Option<LinkPort>,
    /// Orders to take the sandbox away that the link has not carried out yet.
    in_flight_stops: effects::InFlightStops,
    escalation_timer: Option<SpawnHandle>,
    /// What the provider said last, to explain a turn that failed.
    provider_error: Option<String>,
    /// When somebody last asked for something, or the agent last did something. It does not jump when the wall clock does.
    last_active: Instant,
    /// How it ended, for whoever keeps its address.
    stop_reason: SessionStopReason,
}

impl Session {
    /// Starts the actor of a session that this process has claimed, on the current thread.
    ///
    /// `after` says how the last actor of it ended, where this one takes its place.
    ///
    /// # Errors
    /// [`Refusal::Unreadable`]: what it remembers cannot be read.
    pub fn start_from(
        parts: Arc<SessionDeps>,
        epoch: Epoch,
        snapshot: SessionSnapshot,
        after: Option<SessionStopReason>,
    ) -> Result<Addr<Session>, RequestError> {
        let SessionSnapshot { record, tail, mark, .. } = snapshot;
        let core: Option<SessionState> = serde_json::from_str(record.actor_state.as_str()).map_err(|e| {
            let id = record.id;
            // Where nobody is to go on with it, as amid an import, it remembers why.
            let why: Result<String, _> = serde_json::from_str(record.actor_state.as_str());
            let why = why.unwrap_or_else(|_| {
                format!("another version of Greenroom wrote it ({e}); start that one, or a newer one, on this journal")
            });
            RequestError::Unreadable(format!("session `{id}` cannot go on: {why}"))
        })?;
        let core = core.unwrap_or_default();
        let entry = parts.actor_registry.register(ActorKind::Session, Some(record.id.to_string()));
        let shared = Arc::new(SessionBroadcast::default());
        shared.publish(tail, &[]);
        let session = Session {
            id: record.id,
            deps: parts,
            entry,
            epoch,
            state_changed: false,
            record_changed: false,
            state: core,
            tail,
            durable_mark: mark.clone(),
            mark,
            pending: VecDeque::new(),
            in_flight: InFlightTotals::default(),
            broadcast: shared,
            causes: HashMap::new(),
            budget: Arc::new(SessionBudget::new(record.budget_usd)),
            link: None,
            in_flight_stops: effects::InFlightStops::default(),
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

    /// Goes on where the journal ends.
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

    fn resume_from_journal(&mut self, after: Option<SessionStopReason>, ctx: &mut Context<Session>) {
        self.update_status();
        let new = self.tail == 0;
        if after == Some(SessionStopReason::Panicked) {
            self.commit_observation(
                Saw::Error {
                    code: "session_restarted".to_owned(),
                    detail: "the session met an internal error and was brought back from its journal".to_owned(),
                },
                Vec::new(),
                ctx,
            );
        }
        if new {
            self.apply(SessionInput::SessionCreated, ctx);
            return;
        }
        if let Some(ladder) = self.state.escalation() {
            self.set_escalation(ladder, ctx);
        }
        if self.state.needs_sandbox() {
            let raise =
                effects::StartSandbox { image: self.record.image.clone(), recorded: self.state.recorded_sandbox() };
            self.link(ctx).start_sandbox.do_send(raise);
        }
    }

    /// Lets the rules decide about what befell the session; nobody waits for the outcome.
    fn apply(&mut self, input: SessionInput, ctx: &mut Context<Session>) {
        if let Err(refusal) = self.decide(input).map(|decision| self.commit(decision, None, Vec::new(), ctx)) {
            // Only wishes can be refused, and those have somebody who waits.
            error!(session = %self.id, "an event was refused: {refusal}");
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
        let decision = self.state.decide(input, DecisionContext { tail: self.tail, now_ms, open: &open })?;
        if let Some(record) = record {
            self.record = Arc::new(record);
            self.record_changed = true;
        }
        Ok(decision)
    }

    /// The record as it is once the rules have taken `input`, where that changes more of it than its core.
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

    /// Writes down something that the rules need not know of.
    fn commit_observation(&mut self, seen: Saw, replies: Vec<CommitReply>, ctx: &mut Context<Session>) {
        let body: EventBody = greenroom_protocol::Observation { kind: seen, content: String::new() }.into();
        self.commit_event(NewEvent { source: EventSource::Server, cause: None, item: None, body }, None, replies, ctx);
    }

    fn set_escalation(&mut self, ladder: Escalation, ctx: &mut Context<Session>) {
        if let Some(armed) = self.escalation_timer.take() {
            ctx.cancel_future(armed);
        }
        if let Escalation::Arm(ms) = ladder {
            let due = |session: &mut Session, ctx: &mut Context<Session>| {
                session.escalation_timer = None;
                session.apply(SessionInput::EscalationDue, ctx);
            };
            self.escalation_timer = Some(ctx.run_later(std::time::Duration::from_millis(ms), due));
        }
    }

    fn link(&mut self, ctx: &mut Context<Session>) -> &LinkPort {
        let (parts, id, allowance) = (&self.deps, self.id, &self.budget);
        self.link.get_or_insert_with(|| (parts.make_link)(ctx.address(), id, allowance.clone()))
    }

    /// The record is as it is decided; the journal has it a moment later.
    fn view(&self) -> SessionView {
        let tail = self.broadcast.tail();
        let snapshot = SessionSnapshot { record: SessionRecord::clone(&self.record), revision: 0, tail, mark: None };
        SessionView::new(&snapshot, self.broadcast.subscriber_count())
    }

    fn update_status(&self) {
        self.entry.set_state(self.state.visible_state().name());
        self.budget.update(self.state.visible_state(), &self.record.usage);
    }
}

/// What a new session remembers from the start: the wish that made it, where a client gave that a name.
pub fn initial_state(named: Option<IdempotencyKey>) -> OpaqueState {
    named.map_or_else(OpaqueState::default, |named| {
        let mut core = SessionState::default();
        core.add_to_dedup_cache(named, None);
        core.to_opaque_state()
    })
}

/// Where the turn began that a session of this record is in; `None` where it is in none, or another version wrote the record.
pub fn turn_start_seq(record: &SessionRecord) -> Option<Seq> {
    serde_json::from_str::<Option<SessionState>>(record.actor_state.as_str()).ok()??.turn_start_seq()
}

/// Whether a title is short enough.
pub fn check_title(title: Option<&str>) -> Result<(), RequestError> {
    match title.map_or(0, |title| title.chars().count()) {
        0..=MAX_TITLE_CHARS => Ok(()),
        count => Err(RequestError::BadArgs(format!("`title` has {count} characters; it may have {MAX_TITLE_CHARS}"))),
    }
}

/// Whether the name that is given for `what` is short enough.
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
    /// Whatever it died of: listeners look for the session again, and the Directory learns that the address is stale.
    fn drop(&mut self) {
        self.broadcast.close();
        self.deps.session_stopped.do_send(SessionStopped { id: self.id, reason: self.stop_reason });
    }
}
