//! The journal behind one trait: append-only, small, the same for one machine and for many.
//!
//! | driver | what it is for |
//! |---|---|
//! | [`local`] | one node: an append-only log is the durable truth, sled holds what is looked up and can be rebuilt |
//! | [`memory`] | tests, and `--data memory`: nothing survives the process |
//!
//! Every driver passes `contract.rs` before the config offers it.

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
pub(crate) mod contract;
pub mod damage;
#[cfg(test)]
pub(crate) mod faulty;
pub mod in_memory;
mod listing;
pub mod local;
mod session_change;

use std::{borrow::Cow, fmt, io, str::FromStr, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use greenroom_protocol::observation::AgentState;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::value::RawValue;

/// Names a session: a ULID, so ids sort by their age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(ulid::Ulid);

impl SessionId {
    pub fn generate() -> SessionId {
        SessionId(ulid::Ulid::generate())
    }

    /// When it was made, in milliseconds since 1970.
    pub fn created_ms(self) -> i64 {
        i64::try_from(self.0.timestamp_ms()).unwrap_or_default()
    }

    /// The sixteen bytes, in the order in which ids sort.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> SessionId {
        SessionId(ulid::Ulid::from_bytes(bytes))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is no ULID, so it names no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a session id")]
pub struct InvalidSessionId;

impl FromStr for SessionId {
    type Err = InvalidSessionId;

    fn from_str(text: &str) -> Result<SessionId, InvalidSessionId> {
        text.parse().map(SessionId).map_err(|_| InvalidSessionId)
    }
}

/// The number of an event in its session: 1, 2, 3 … without gaps. 0 is "before the first".
pub type Seq = u64;

/// Which tenure of a session an append belongs to. It grows with each [`Store::claim`], and an append of an older one is
/// refused, so two writers can never interleave.
pub type Epoch = u64;

/// One event, ready for the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEvent {
    /// What `GET …/events?kind=` filters by: the name of the action or observation.
    pub kind: Cow<'static, str>,
    /// The event as clients see it: one JSON object that holds its own `seq`. The store does not look inside.
    pub json: Bytes,
}

/// An event as it is read back.
pub type StoredEvent = (Seq, JournalEvent);

/// What becomes durable together, or not at all.
#[derive(Debug, Clone, Default)]
pub struct AppendBatch {
    /// Get the numbers `at + 1, at + 2, …`.
    pub events: Vec<JournalEvent>,
    /// The agent's reports up to this one are in the journal once this batch is.
    pub mark: Option<ReportMark>,
    /// The session's record from now on; `None` leaves it as it is. Its revision does not matter here: the epoch guards it.
    /// Shared with the one who writes it, who keeps one as long as its session lives.
    pub record: Option<Arc<SessionRecord>>,
}

/// How far the journal has taken over what an agent reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportMark {
    /// Which start of the agent the number belongs to.
    pub boot: String,
    pub n: u64,
}

/// What is known about a session beside its events: what lists show, and what its actor needs to come back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: SessionId,
    pub title: String,
    pub state: AgentState,
    /// Why it is in that state, in words, where that needs saying.
    pub reason: Option<String>,
    pub agent: String,
    pub model: String,
    pub image: Option<String>,
    /// The sandbox driver that started it last: `docker` or `process`.
    pub sandbox: String,
    /// Where commands run, inside the sandbox.
    pub directory: Option<String>,
    /// RFC 3339, UTC, milliseconds.
    pub created_at: String,
    pub updated_at: String,
    pub usage: UsageTotals,
    pub budget_usd: Option<f64>,
    pub archived: bool,
    /// What the client called the wish that made it (`Idempotency-Key`).
    #[serde(default)]
    #[serde(rename = "key")]
    pub idempotency_key: Option<String>,
    /// The session actor's own memory, opaque to everybody else.
    #[serde(default)]
    #[serde(rename = "core")]
    pub actor_state: OpaqueState,
}

/// JSON that is kept for somebody and never taken apart: one text, which all copies share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpaqueState(Arc<str>);

impl OpaqueState {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for OpaqueState {
    /// Nobody has remembered anything: `null`.
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

/// What a session has taken so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageTotals {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// `None` once a call's price was not known.
    pub cost_usd: Option<f64>,
    /// What the calls of a known price have cost, once others make `cost_usd` unknown. Earlier versions forgot it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_cost_usd: Option<f64>,
}

impl UsageTotals {
    /// The least that it has cost, in US dollars.
    pub fn known_cost(&self) -> f64 {
        self.cost_usd.or(self.known_cost_usd).unwrap_or_default()
    }
}

/// A session as the store holds it at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSnapshot {
    pub record: SessionRecord,
    /// Grows with each change of the record.
    pub revision: u64,
    /// The newest event's number.
    pub tail: Seq,
    pub mark: Option<ReportMark>,
}

/// How much to read at once. Reading stops at whichever is reached first, but never before one event.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimit {
    pub events: usize,
    pub bytes: usize,
}

impl ReadLimit {
    /// Whether an event of `next` bytes goes with so many that have `bytes` together.
    fn admits(self, next: usize, events: usize, bytes: usize) -> bool {
        events == 0 || (events < self.events && bytes + next <= self.bytes)
    }
}

/// Which sessions to list. The default lists the newest fifty that are not archived.
#[derive(Debug, Clone, Default)]
pub struct SessionQuery {
    /// Part of the title or the id, whatever the case.
    pub text: Option<String>,
    pub state: Option<AgentState>,
    pub archived: Option<bool>,
    /// 0 means 50; at most 500.
    pub limit: usize,
    /// Where the last page ended: its `next_cursor`.
    pub cursor: Option<String>,
}

/// A page of sessions, newest activity first.
#[derive(Debug, Clone, Default)]
pub struct SessionListing {
    pub items: Vec<SessionSnapshot>,
    /// Absent on the last page.
    pub next_cursor: Option<String>,
    /// How many match in all.
    pub total: usize,
}

/// A part of a large content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentSlice {
    /// Empty behind the end.
    pub bytes: Bytes,
    /// How long the whole is.
    pub total: u64,
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Parts of the journal that were written anew.
    pub segments: usize,
    /// Bytes that the disk got back.
    pub freed: u64,
}

/// Why nothing was appended, or why that is not known.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    #[error("the session's journal is at {tail}, not where this batch begins")]
    Conflict { tail: Seq },
    #[error("another owner has taken this session over")]
    Fenced,
    #[error("no session `{0}`")]
    NoSession(SessionId),
    /// Nothing of the batch is in the journal.
    #[error("the journal cannot be written: {0}")]
    NotWritten(#[source] Arc<io::Error>),
    /// It may or may not be on disk; only reading again tells.
    #[error("whether the journal was written is not known: {0}")]
    Unknown(#[source] Arc<io::Error>),
}

/// Why a question was not answered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("no session `{0}`")]
    NoSession(SessionId),
    #[error("session `{session}` was changed by somebody else; read it again (revision {found})")]
    Conflict { session: SessionId, found: u64 },
    /// One damaged record; what lies around it can be read.
    #[error("event {seq} of session `{session}` is damaged: {detail}")]
    Damaged { session: SessionId, seq: Seq, detail: String },
    /// A large content of which a part is not what was written.
    #[error("content `{name}` of session `{session}` is damaged: it is not what was written from byte {at} on")]
    DamagedContent { session: SessionId, name: String, at: u64 },
    #[error("`{0}` is no cursor that this server gave out")]
    BadCursor(String),
    #[error("the store failed: {0}")]
    Io(#[source] Arc<io::Error>),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> StoreError {
        StoreError::Io(Arc::new(error))
    }
}

/// Where sessions are kept. All of it may be called from any thread; nothing of it blocks the caller's thread.
///
/// Appends of one session that are called in order are carried out and answered in order, also when the caller does not
/// wait for one before the next: that is how a session pipelines.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Makes a session. Durable when it returns. A session of that id is a [`StoreError::Conflict`].
    async fn create(&self, record: SessionRecord) -> Result<SessionSnapshot, StoreError>;

    /// Takes a session over: from now on only appends with the returned epoch succeed.
    async fn claim(&self, session: SessionId) -> Result<(Epoch, SessionSnapshot), StoreError>;

    /// Makes `batch` durable, if the journal ends at `at`; returns the new end. What is acknowledged here is on disk.
    ///
    /// The call is taken in its place in the queue when this function is *called*, not when the future is first polled.
    fn append(
        &self,
        session: SessionId,
        epoch: Epoch,
        at: Seq,
        batch: AppendBatch,
    ) -> futures::future::BoxFuture<'static, Result<Seq, AppendError>>;

    /// The events after `after`, oldest first. An empty answer means that there are none yet.
    async fn read(&self, session: SessionId, after: Seq, limit: ReadLimit) -> Result<Vec<StoredEvent>, StoreError>;

    async fn get(&self, session: SessionId) -> Result<Option<SessionSnapshot>, StoreError>;

    /// Changes what people change beside the journal (title, archived), if the record is still at `revision`.
    async fn put(&self, record: SessionRecord, revision: u64) -> Result<SessionSnapshot, StoreError>;

    async fn list(&self, query: SessionQuery) -> Result<SessionListing, StoreError>;

    /// Every session that has not ended, archived or not, for the start of a server and for the sweeper.
    async fn live(&self) -> Result<Vec<SessionSnapshot>, StoreError>;

    /// Removes every trace of a session. Durable when it returns. A session that is not there is no error.
    async fn forget(&self, session: SessionId) -> Result<(), StoreError>;

    /// Keeps a large content; durable when it returns, so the event that names it can follow. Returns its name.
    async fn put_content(&self, session: SessionId, content: Bytes) -> Result<String, StoreError>;

    /// Keeps a large content under the name (a ULID) that it had elsewhere.
    async fn restore_content(&self, session: SessionId, name: &str, content: Bytes) -> Result<(), StoreError>;

    /// Writes a part of a large content that comes in pieces, under a name (a ULID) of the caller's; durable when it returns.
    /// The same piece once more changes nothing. Pieces come in order: one that leaves a hole before it is not kept and takes
    /// what came before along, so that there is no such content rather than one with a hole.
    async fn extend_content(&self, session: SessionId, name: &str, offset: u64, piece: Bytes)
    -> Result<(), StoreError>;

    /// Makes a content of the pieces that came under this name, from now on unchangeable and durable. Returns whether there is
    /// such a content, so that asking twice gives the same answer.
    async fn finish_content(&self, session: SessionId, name: &str) -> Result<bool, StoreError>;

    /// Lets go of the contents of a session of which not all pieces have come: whoever sent them is gone. (Those of a session
    /// whose record says that it is at rest go with [`Store::compact`], the second time at the latest.)
    async fn drop_unfinished(&self, session: SessionId) -> Result<(), StoreError> {
        let _nothing_is_unfinished = session;
        Ok(())
    }

    /// At most `len` bytes of a large content, from byte `from` on, or `None` where no such content is kept.
    async fn content(
        &self,
        session: SessionId,
        name: &str,
        from: u64,
        len: usize,
    ) -> Result<Option<ContentSlice>, StoreError>;

    /// Gives back the space that ended and purged sessions no longer need, and what a crash left.
    async fn compact(&self) -> Result<CompactionStats, StoreError>;

    /// Whether it could take an append now.
    async fn check(&self) -> Result<(), StoreError>;
}
