//! Journal port: the [`Store`] trait, append-only and small, the same for one node and for many.
//!
//! | driver | purpose |
//! |---|---|
//! | [`local`] | one node: the log is the durable truth, sled is an index that can be rebuilt |
//! | [`in_memory`] | tests, and `data.journal = "memory"`: nothing survives the process |
//!
//! The cache of the newest events (`cached`) sits above the driver.
//! Every driver passes `contract.rs` before the config offers it. See docs/internals/journal.md.

mod cached;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
pub(crate) mod contract;
pub mod damage;
#[cfg(test)]
pub(crate) mod faulty;
pub mod in_memory;
pub mod journal_copy;
mod listing;
pub mod local;
mod open;
mod recent_events;
mod session_change;
mod session_id;

use std::{borrow::Cow, collections::HashMap, io, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use greenroom_protocol::{approval::ApprovalMode, link::ReasoningEffort, observation::AgentState};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::value::RawValue;

pub use self::listing::{DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE};
pub use self::open::{OpenError, open, open_durable, open_to_read};
pub use self::session_id::{InvalidSessionId, SessionId};

/// Number of an event in its session: 1, 2, 3 … without gaps. 0 stands for "before the first".
pub type Seq = u64;

/// Ownership period of a session. Each [`Store::claim`] raises the epoch.
///
/// A change of an older epoch is rejected, so two writers can never interleave. The epoch is 0
/// before the first claim, and admits no change.
pub type Epoch = u64;

/// Event that is ready for the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEvent {
    /// Name of the action or observation. `GET …/events?kind=` filters by this name.
    pub kind: Cow<'static, str>,
    /// Event as clients see it: one JSON object that holds its own `seq`. Opaque to the store.
    pub json: Bytes,
}

/// Event that was read back, with its number.
pub type StoredEvent = (Seq, JournalEvent);

/// Changes that become durable together, or not at all.
#[derive(Debug, Clone, Default)]
pub struct AppendBatch {
    /// Receive the numbers `at + 1, at + 2, …`.
    pub events: Vec<JournalEvent>,
    /// Newest agent report that the journal holds once this batch is durable.
    pub mark: Option<ReportMark>,
    /// New session record; `None` leaves the record unchanged.
    ///
    /// Shared with the session, which keeps the newest record for as long as it lives.
    pub record: Option<Arc<SessionRecord>>,
}

/// Newest agent report that the journal has taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportMark {
    /// Boot id of the agent process that `n` belongs to.
    pub boot: String,
    pub n: u64,
}

/// Data of a session beside its events: for lists, and for the restart of the session's actor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: SessionId,
    pub title: String,
    pub state: AgentState,
    /// Explanation of `state` for the user, if the state needs one.
    pub reason: Option<String>,
    pub agent: String,
    pub model: String,
    /// Reasoning effort. `None`: the model's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Mode of approvals. Absent in records of earlier versions: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ApprovalMode>,
    /// Security analyzer. Absent in records of earlier versions: the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analyzer: Option<String>,
    pub image: Option<String>,
    /// Sandbox driver that started the session last: `docker` or `process`.
    pub sandbox: String,
    /// User id of the session's last sandbox, on the host. Absent before the first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_uid: Option<u32>,
    /// Working directory of commands, inside the sandbox.
    pub directory: Option<String>,
    /// RFC 3339, UTC, milliseconds.
    pub created_at: String,
    pub updated_at: String,
    pub usage: UsageTotals,
    pub budget_usd: Option<f64>,
    /// Cost of the newest day with a model call. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_on: Option<DaySpending>,
    /// Budget whose approaching end the session has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_budget_usd: Option<f64>,
    /// Bytes that the session has added to the journal. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "JournalUsage::is_zero")]
    pub journal_usage: JournalUsage,
    /// Models that the session may call beside `model`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_models: Vec<String>,
    /// Session and event at which this session was forked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ForkParent>,
    /// Repository that the workspace is a clone of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<SessionRepository>,
    pub archived: bool,
    /// Newest thing that the session did. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<LatestActivity>,
    /// Idempotency key of the client request that created the session (`Idempotency-Key`).
    #[serde(default)]
    #[serde(rename = "key")]
    pub idempotency_key: Option<String>,
    /// State of the session's actor, opaque to everything else.
    #[serde(default)]
    #[serde(rename = "core")]
    pub actor_state: OpaqueState,
}

impl SessionRecord {
    /// Returns the models that the session may call, its own first.
    pub fn models(&self) -> Vec<String> {
        std::iter::once(&self.model).chain(&self.further_models).cloned().collect()
    }
}

/// Event of another session at which a session began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ForkParent {
    #[schema(value_type = String)]
    pub id: SessionId,
    /// Newest event that both sessions have.
    #[schema(value_type = u64)]
    pub seq: Seq,
}

/// Repository that a workspace is a clone of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionRepository {
    /// Address or path, without credentials.
    pub url: String,
    /// Requested branch, tag or commit. `null`: the default branch.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Commit that the workspace began with; `null` until cloned.
    pub commit: Option<String>,
    /// Branch of the session; `null` until cloned.
    pub branch: Option<String>,
}

/// Newest thing that a session did, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatestActivity {
    /// Number of the event.
    pub seq: Seq,
    /// Plain text in one line of at most 120 characters.
    pub text: String,
}

/// Cost of one day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaySpending {
    /// Day in UTC: `2026-01-31`.
    pub day: String,
    pub usd: f64,
}

/// Bytes that a session has added to the journal, large contents included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalUsage {
    pub bytes: u64,
    /// Bytes of reports that arrived while neither a turn nor a user action ran.
    pub idle_bytes: u64,
    /// Hour that the next two counters belong to, since 1970.
    pub hour: i64,
    pub hour_bytes: u64,
    pub idle_hour_bytes: u64,
}

impl JournalUsage {
    fn is_zero(&self) -> bool {
        *self == JournalUsage::default()
    }
}

/// JSON text that the store keeps and never parses. All copies share one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpaqueState(Arc<str>);

impl OpaqueState {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for OpaqueState {
    /// Returns `null`, the state of a session that has stored none.
    fn default() -> OpaqueState {
        OpaqueState("null".into())
    }
}

impl From<Box<RawValue>> for OpaqueState {
    fn from(json: Box<RawValue>) -> OpaqueState {
        OpaqueState(json.get().into())
    }
}

impl Serialize for OpaqueState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json: &RawValue = serde_json::from_str(&self.0).map_err(ser::Error::custom)?;
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OpaqueState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OpaqueState, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(OpaqueState::from)
    }
}

/// Tokens and cost of a session so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UsageTotals {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// US dollars; `None` once a call's price is unknown.
    pub cost_usd: Option<f64>,
    /// US dollars of the calls with a known price, once other calls make `cost_usd` unknown.
    ///
    /// Earlier versions dropped this amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_cost_usd: Option<f64>,
}

impl UsageTotals {
    /// Returns the known lower bound of the cost, in US dollars.
    pub fn known_cost(&self) -> f64 {
        self.cost_usd.or(self.known_cost_usd).unwrap_or_default()
    }
}

/// Session as the store holds it at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSnapshot {
    pub record: SessionRecord,
    /// Number of the newest event.
    pub tail: Seq,
    pub mark: Option<ReportMark>,
}

/// Result of [`Store::create`].
#[derive(Debug, Clone, PartialEq)]
pub enum CreateOutcome {
    Created(SessionSnapshot),
    /// The id belongs to this session, which stays unchanged.
    Exists(SessionSnapshot),
}

impl CreateOutcome {
    /// Returns the session with the id, new or not.
    pub fn into_snapshot(self) -> SessionSnapshot {
        match self {
            CreateOutcome::Created(snapshot) | CreateOutcome::Exists(snapshot) => snapshot,
        }
    }
}

/// Limits of one read. Reading stops at the limit that is reached first, but returns at least one
/// event.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimit {
    pub events: usize,
    pub bytes: usize,
}

impl ReadLimit {
    /// Reports if an event of `next` bytes fits beside `events` events of `bytes` bytes together.
    fn admits(self, next: usize, events: usize, bytes: usize) -> bool {
        events == 0 || (events < self.events && bytes + next <= self.bytes)
    }
}

/// Filter and page of a session list. The default lists the newest 50 that are not archived.
#[derive(Debug, Clone, Default)]
pub struct SessionQuery {
    /// Part of the title or of the id, case-insensitive.
    pub text: Option<String>,
    pub state: Option<AgentState>,
    pub archived: ArchiveFilter,
    /// Page size. 0 means [`DEFAULT_PAGE_SIZE`]; the maximum is [`MAX_PAGE_SIZE`].
    pub limit: usize,
    /// End of the previous page: its `next_cursor`.
    pub cursor: Option<String>,
}

/// Sessions that a list takes, by their archived mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArchiveFilter {
    #[default]
    Active,
    Archived,
    Any,
}

/// Page of sessions, newest activity first.
#[derive(Debug, Clone, Default)]
pub struct SessionListing {
    pub items: Vec<SessionSnapshot>,
    /// Absent on the last page.
    pub next_cursor: Option<String>,
    /// Number of matching sessions on all pages.
    pub total: usize,
}

/// Piece of a large content that grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentPiece {
    /// Number of bytes before the piece.
    pub offset: u64,
    pub bytes: Bytes,
}

/// Part of a large content that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentSlice {
    /// Empty behind the end of the content.
    pub bytes: Bytes,
    /// Length of the whole content in bytes.
    pub total: u64,
}

/// Result of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Number of segments that were rewritten.
    pub segments: usize,
    /// Bytes that the disk got back.
    pub freed: u64,
}

/// Reason why an append failed, or why its result is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    #[error("the session's journal ends at event {tail}, and this batch begins elsewhere; read the journal again")]
    Conflict { tail: Seq },
    #[error("another owner has claimed this session; claim it again")]
    Fenced,
    #[error("no session `{0}`")]
    NoSession(SessionId),
    /// No part of the batch is in the journal.
    #[error("the journal cannot be written: {0}")]
    NotWritten(#[source] Arc<io::Error>),
    /// The batch may or may not be on disk. Only reading the journal again shows which.
    #[error("the journal failed, and the batch may or may not be on disk; read the journal again: {0}")]
    Unknown(#[source] Arc<io::Error>),
}

/// Reason why a request to the store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("no session `{0}`")]
    NoSession(SessionId),
    #[error("another owner has claimed this session; claim it again")]
    Fenced,
    /// Damaged event. The events around it can be read.
    #[error("event {seq} of session `{session}` is damaged: {detail}")]
    Damaged { session: SessionId, seq: Seq, detail: String },
    /// Part of a large content differs from the bytes that were written.
    #[error("content `{name}` of session `{session}` is damaged: it differs from what was written, from byte {at} on")]
    DamagedContent { session: SessionId, name: String, at: u64 },
    #[error("`{0}` is no cursor of this server; begin with the first page")]
    BadCursor(String),
    #[error("the store failed: {0}")]
    Io(#[source] Arc<io::Error>),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> StoreError {
        StoreError::Io(Arc::new(error))
    }
}

/// Storage of all sessions. Every method may be called from any thread and blocks no caller's
/// thread.
///
/// Appends of one session are carried out and answered in the order of their calls. A caller may
/// append again before the previous append is durable. This is how a session pipelines.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates a session, if its id is free. Durable on return.
    async fn create(&self, record: SessionRecord) -> Result<CreateOutcome, StoreError>;

    /// Takes over a session. From now on only changes with the returned epoch succeed: appends,
    /// contents and [`Store::forget`]. All others fail as fenced.
    async fn claim(&self, session: SessionId) -> Result<(Epoch, SessionSnapshot), StoreError>;

    /// Makes `batch` durable if the journal ends at `at`, and returns the new end.
    ///
    /// An acknowledged batch is on disk. The *call* takes a place in the queue, not the first poll
    /// of the future.
    fn append(
        &self,
        session: SessionId,
        epoch: Epoch,
        at: Seq,
        batch: AppendBatch,
    ) -> futures::future::BoxFuture<'static, Result<Seq, AppendError>>;

    /// Returns the events after `after`, oldest first. An empty answer means that none exist yet.
    async fn read(&self, session: SessionId, after: Seq, limit: ReadLimit) -> Result<Vec<StoredEvent>, StoreError>;

    async fn get(&self, session: SessionId) -> Result<Option<SessionSnapshot>, StoreError>;

    /// Returns the sessions with these ids, in the order of the ids. Leaves out unknown ids.
    async fn get_many(&self, sessions: &[SessionId]) -> Result<Vec<SessionSnapshot>, StoreError>;

    async fn list(&self, query: SessionQuery) -> Result<SessionListing, StoreError>;

    /// Returns the sessions that this node owns and that have not ended, archived or not.
    ///
    /// A store of one node has no leases: the node owns every session, claimed or not.
    async fn mine(&self) -> Result<Vec<SessionSnapshot>, StoreError>;

    /// Returns the sessions without an owner that have not ended. A node may claim them.
    ///
    /// Always empty in a store of one node.
    async fn orphans(&self) -> Result<Vec<SessionSnapshot>, StoreError>;

    /// Returns the number of sessions on all nodes in each state. Leaves out ended sessions and
    /// states without a session.
    async fn count_by_state(&self) -> Result<HashMap<AgentState, u64>, StoreError>;

    /// Removes every trace of a session. Durable on return. A missing session is no error.
    async fn forget(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError>;

    /// Stores a large content and returns its name.
    ///
    /// Durable on return, so the event that names the content may follow.
    async fn put_content(&self, session: SessionId, epoch: Epoch, content: Bytes) -> Result<String, StoreError>;

    /// Stores a large content under the name (a ULID) that it had in another store.
    async fn restore_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        content: Bytes,
    ) -> Result<(), StoreError>;

    /// Writes one piece of a large content under a name (a ULID) of the caller. Durable on return.
    ///
    /// A repeated piece changes nothing. Pieces come in order. A piece that would leave a hole is
    /// dropped, and the pieces before it with it. A content with a hole therefore never exists.
    async fn extend_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        piece: ContentPiece,
    ) -> Result<(), StoreError>;

    /// Completes a content from its pieces. From now on the content is unchangeable and durable.
    ///
    /// Returns if such a content exists, so a second call returns the same answer.
    async fn finish_content(&self, session: SessionId, epoch: Epoch, name: &str) -> Result<bool, StoreError>;

    /// Drops the contents of a session whose pieces have not all arrived. Called when their sender
    /// is gone. A missing session is no error.
    ///
    /// [`Store::compact`] drops such contents of sessions whose record says stopped, failed or
    /// ended. The second run drops them at the latest.
    async fn drop_unfinished(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError>;

    /// Returns at most `len` bytes of a large content, beginning at byte `from`. `None` if no such
    /// content exists.
    async fn content(
        &self,
        session: SessionId,
        name: &str,
        from: u64,
        len: usize,
    ) -> Result<Option<ContentSlice>, StoreError>;

    /// Frees the space of ended and purged sessions, and of files that a crash left.
    async fn compact(&self) -> Result<CompactionStats, StoreError>;

    /// Returns false while the disk has so little space left that it is kept for small events, such
    /// as interrupts and stops. Reports of agents and large requests then wait or are rejected. The
    /// store itself rejects no append before the disk is full.
    fn has_room_for_content(&self) -> bool;

    /// Fails if an append would fail now, or if there is no room for content.
    async fn check(&self) -> Result<(), StoreError>;
}
