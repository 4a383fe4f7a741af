//! Session actor: its dependencies and its state. The other modules implement its steps.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use actix::prelude::*;
use greenroom_protocol::link::AgentSettings;

use super::{
    broadcast::SessionBroadcast,
    budget::SessionBudget,
    effect::{InFlightStops, LinkPort},
    journal_quota::JournalMeter,
    loops::LoopDetector,
    messages::{SessionStopReason, SessionStopped},
    pending::{InFlightTotals, PendingTransition},
    policy::SessionPolicy,
    reviews::Reviews,
    spending::ServerSpending,
    turn::SessionState,
    view::SessionView,
};
use crate::{
    actor_registry::{ActorEntry, ActorRegistry},
    config::QuotaConfig,
    gateway::GatewayError,
    store::{Epoch, ReportMark, Seq, SessionId, SessionRecord, SessionSnapshot, Store},
};

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
    /// Policy for the agents' tool calls.
    pub policy: Arc<SessionPolicy>,
    /// Spending of all sessions.
    pub spending: Arc<ServerSpending>,
    /// Disk quotas of one session.
    pub quota: QuotaConfig,
    /// True if the end of a turn captures the workspace.
    pub captures_turns: bool,
    /// Receives a message when a session's actor has stopped.
    pub session_stopped: Recipient<SessionStopped>,
}

/// Actor of one live session.
pub struct Session {
    pub(super) id: SessionId,
    pub(super) deps: Arc<SessionDeps>,
    pub(super) entry: ActorEntry,
    /// Claim of this actor on the session. The store rejects an append with an outdated epoch.
    pub(super) epoch: Epoch,
    /// Session record as decided. Ahead of the journal while `pending` has entries.
    pub(super) record: Arc<SessionRecord>,
    pub(super) state: SessionState,
    /// Set if `state` may differ from the copy in the record.
    pub(super) state_changed: bool,
    /// Set if another field of the record has changed since the last append.
    pub(super) record_changed: bool,
    /// Number of the newest decided event.
    pub(super) tail: Seq,
    /// Newest agent report that is decided.
    pub(super) mark: Option<ReportMark>,
    /// Newest agent report that is on disk.
    pub(super) durable_mark: Option<ReportMark>,
    /// Transitions in flight to disk, oldest first. Bound: `commit::IN_FLIGHT_LIMIT` bytes. When
    /// full: client requests with content are rejected, and the link stops reading the agent's
    /// socket. Other requests are rejected at twice the bound.
    pub(super) pending: VecDeque<PendingTransition>,
    pub(super) in_flight: InFlightTotals,
    pub(super) journal_meter: JournalMeter,
    pub(super) broadcast: Arc<SessionBroadcast>,
    /// Actions without a result yet: item to the number of the action's event. The result's event
    /// names that number as its cause.
    pub(super) causes: HashMap<String, Seq>,
    /// Permission to call the model. The gateway reads it before each call.
    pub(super) budget: Arc<SessionBudget>,
    /// Cloned by each model call that a user causes. The actor is not unloaded meanwhile.
    pub(super) user_calls: Arc<()>,
    /// Receives the effects. Created when the session first needs a sandbox.
    pub(super) link: Option<LinkPort>,
    /// Counts stops of the sandbox that are decided and that the link has not executed yet.
    pub(super) in_flight_stops: InFlightStops,
    pub(super) escalation_timer: Option<SpawnHandle>,
    /// Timer of the oldest open approval request, with the time of the request, in milliseconds
    /// since 1970.
    pub(super) approval_timer: Option<(i64, SpawnHandle)>,
    /// Reviewed calls of the agent. Boxed: rare in idle sessions, and each session has this field.
    pub(super) reviews: Box<Reviews>,
    pub(super) loops: Box<LoopDetector>,
    /// Last error that the provider reported. Explains a failed turn.
    pub(super) provider_error: Option<String>,
    /// Time of the last client request or agent activity. Monotonic: changes of the wall clock do
    /// not affect it.
    pub(super) last_active: Instant,
    /// Reason why the actor stopped, for the Directory.
    pub(super) stop_reason: SessionStopReason,
}

impl Session {
    pub(super) fn link(&mut self, ctx: &mut Context<Session>) -> &LinkPort {
        let (deps, record, budget) = (&self.deps, &self.record, &self.budget);
        self.link.get_or_insert_with(|| (deps.make_link)(ctx.address(), record, budget.clone()))
    }

    /// Returns the session as clients see it. The record may be ahead of the disk, `last_seq` is
    /// not.
    pub(super) fn view(&self) -> SessionView {
        let tail = self.broadcast.tail();
        let snapshot = SessionSnapshot { record: SessionRecord::clone(&self.record), tail, mark: None };
        SessionView::new(&snapshot, self.broadcast.subscriber_count())
    }

    pub(super) fn update_status(&self) {
        self.entry.set_state(self.state.visible_state().name());
        self.budget.update(self.state.visible_state(), self.state.has_work(), &self.record);
    }
}

impl Actor for Session {
    type Context = Context<Session>;
}

impl Drop for Session {
    /// Closes the broadcast and reports the stop to the Directory, whatever ended the actor.
    /// Subscribers then look the session up again.
    fn drop(&mut self) {
        self.broadcast.close();
        self.deps.session_stopped.do_send(SessionStopped { id: self.id, reason: self.stop_reason });
    }
}
