//! Parts of a copy to a new session: appends of many events, large contents, and the mark of an
//! unfinished fork.

use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use ulid::Ulid;

use super::{
    AppendBatch, AppendError, ContentPiece, ContentSlice, Epoch, JournalEvent, OpaqueState, Seq, SessionId,
    SessionRecord, Store, StoreError,
};

/// Limit of one append, in bytes; a single larger event is one append. A later read of an event
/// reads the whole append.
pub const MAX_APPEND_BYTES: usize = 64 << 10;

/// Bytes of a large content that are in memory at a time.
const CONTENT_CHUNK: usize = 512 << 10;

/// Actor state of a session that is being forked. No session starts from a text.
const UNFINISHED_FORK: &str = r#""its fork was cut short; fork the other session again""#;

impl SessionRecord {
    /// Marks the record as that of a fork whose journal or files are not complete. Such a session
    /// is not listed, and its actor does not start.
    pub fn into_unfinished_fork(self) -> SessionRecord {
        SessionRecord { actor_state: OpaqueState(UNFINISHED_FORK.into()), ..self }
    }

    /// Returns true from the beginning of a fork until its journal and files are complete.
    pub fn is_unfinished_fork(&self) -> bool {
        self.actor_state.as_str() == UNFINISHED_FORK
    }
}

/// Session that receives a copy, under the epoch of the copying process.
#[derive(Clone, Copy)]
pub struct CopyTarget<'a> {
    pub store: &'a dyn Store,
    pub session: SessionId,
    pub epoch: Epoch,
}

impl CopyTarget<'_> {
    /// Appends all events at once, without waiting in between. Only the last append has the record
    /// and the mark.
    ///
    /// # Errors
    /// The first failed append.
    pub async fn append(&self, at: Seq, batch: AppendBatch) -> Result<Seq, AppendError> {
        let AppendBatch { events, mark, record } = batch;
        let mut batches = append_batches(events);
        let last = batches.pop().unwrap_or_default();
        let mut next = at;
        let mut append = |batch: AppendBatch| {
            let at = next;
            next += batch.events.len() as u64;
            self.store.append(self.session, self.epoch, at, batch)
        };
        let mut appended: Vec<_> =
            batches.into_iter().map(|events| append(AppendBatch { events, mark: None, record: None })).collect();
        appended.push(append(AppendBatch { events: last, mark, record }));
        let tails = try_join_all(appended).await?;
        Ok(tails.last().copied().unwrap_or(at))
    }

    /// Copies a large content of `from`, in parts. Returns its length in bytes. A content that
    /// `from` has lost, or that is damaged there, is left out.
    ///
    /// # Errors
    /// A content cannot be read or written.
    pub async fn copy_content(&self, from: SessionId, name: &str) -> Result<u64, StoreError> {
        let mut offset = 0;
        loop {
            let part = match self.store.content(from, name, offset, CONTENT_CHUNK).await {
                Err(StoreError::DamagedContent { .. }) | Ok(None) => return Ok(0),
                part => part?,
            };
            let Some(ContentSlice { bytes, total }) = part else { return Ok(0) };
            let length = bytes.len() as u64;
            let piece = ContentPiece { offset, bytes };
            self.store.extend_content(self.session, self.epoch, name, piece).await?;
            offset += length;
            if offset >= total || length == 0 {
                self.store.finish_content(self.session, self.epoch, name).await?;
                return Ok(total);
            }
        }
    }
}

/// Splits events into batches of up to [`MAX_APPEND_BYTES`].
pub fn append_batches(events: Vec<JournalEvent>) -> Vec<Vec<JournalEvent>> {
    let mut batches: Vec<Vec<JournalEvent>> = Vec::new();
    let mut size = 0;
    for event in events {
        size += event.json.len();
        match batches.last_mut() {
            Some(batch) if size <= MAX_APPEND_BYTES => batch.push(event),
            _ => {
                size = event.json.len();
                batches.push(vec![event]);
            }
        }
    }
    batches
}

/// Parses the name of a content. Rejects other spellings of the same ULID, which would name the
/// same content twice.
pub fn content_name(text: &str) -> Option<Ulid> {
    text.parse().ok().filter(|name: &Ulid| name.to_string() == text)
}

/// Returns the name of the large content that an event refers to.
pub fn referenced_content(event: &[u8]) -> Option<Ulid> {
    content_name(content_address(event)?.rsplit('/').next()?)
}

/// Returns the address of the large content that an event refers to.
pub fn content_address(event: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct EventExtras<'a> {
        #[serde(borrow)]
        extras: Option<&'a RawValue>,
    }
    let event: EventExtras = serde_json::from_slice(event).ok()?;
    // Read as plain JSON values. Derived readers also accept arrays for structs, and an agent
    // chooses the text of its own events.
    let extras: Value = serde_json::from_str(event.extras?.get()).ok()?;
    Some(extras.pointer("/truncated/href")?.as_str()?.to_owned())
}
