//! Store driver that keeps sessions in memory: for tests, and for `data.journal = "memory"`.

use std::{
    collections::HashMap,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use greenroom_protocol::observation::AgentState;

use super::{
    AppendBatch, AppendError, CompactionStats, ContentPiece, ContentSlice, CreateOutcome, Epoch, JournalEvent,
    ReadLimit, Seq, SessionId, SessionListing, SessionQuery, SessionRecord, SessionSnapshot, Store, StoreError,
    StoredEvent, listing,
    session_change::{
        ChangeFailure, SessionChange, SessionEntry, check_owner, create_outcome, decide, reject_foreign_record,
    },
};

/// Journal in memory. Lost at the end of the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    sessions: Mutex<HashMap<SessionId, InMemorySession>>,
}

#[derive(Debug)]
struct InMemorySession {
    entry: SessionEntry,
    /// Event `seq` is at index `seq - 1`.
    events: Vec<JournalEvent>,
    contents: HashMap<String, Bytes>,
    /// Contents whose pieces have not all arrived.
    unfinished_contents: HashMap<String, Vec<u8>>,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, InMemorySession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(
        &self,
        session: SessionId,
        change: SessionChange,
        events: Vec<JournalEvent>,
    ) -> Result<Option<SessionEntry>, ChangeFailure> {
        let mut sessions = self.sessions();
        let after =
            decide(sessions.get(&session).map(|stored| &stored.entry), change).map_err(ChangeFailure::Rejected)?;
        match &after {
            None => drop(sessions.remove(&session)),
            Some(entry) => {
                let stored = sessions.entry(session).or_insert_with(|| InMemorySession {
                    entry: entry.clone(),
                    events: Vec::new(),
                    contents: HashMap::new(),
                    unfinished_contents: HashMap::new(),
                });
                stored.entry = entry.clone();
                stored.events.extend(events);
            }
        }
        Ok(after)
    }

    /// Runs `work` on a session, if `epoch` owns the session.
    fn with_session<T>(
        &self,
        session: SessionId,
        epoch: Epoch,
        work: impl FnOnce(&mut InMemorySession) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut sessions = self.sessions();
        let stored = sessions.get_mut(&session).ok_or(StoreError::NoSession(session))?;
        check_owner(Some(&stored.entry), session, epoch)?;
        work(stored)
    }

    fn append_now(&self, session: SessionId, epoch: Epoch, at: Seq, batch: AppendBatch) -> Result<Seq, AppendError> {
        if let Some(failure) = reject_foreign_record(session, batch.record.as_deref()) {
            return Err(failure.into_append_error(session));
        }
        let AppendBatch { events, mark, record } = batch;
        let change = SessionChange::Append { epoch, at, events: events.len() as u64, mark, record };
        self.change(session, change, events)
            .map_err(|failure| failure.into_append_error(session))?
            .map(|entry| entry.tail)
            .ok_or(AppendError::NoSession(session))
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, record: SessionRecord) -> Result<CreateOutcome, StoreError> {
        let session = record.id;
        create_outcome(session, self.change(session, SessionChange::Create(record.into()), Vec::new()))
    }

    async fn claim(&self, session: SessionId) -> Result<(Epoch, SessionSnapshot), StoreError> {
        let claimed = self.change(session, SessionChange::Claim, Vec::new());
        let entry = claimed.map_err(|failure| failure.into_store_error(session))?;
        entry.map(|entry| (entry.epoch, entry.snapshot())).ok_or(StoreError::NoSession(session))
    }

    fn append(
        &self,
        session: SessionId,
        epoch: Epoch,
        at: Seq,
        batch: AppendBatch,
    ) -> BoxFuture<'static, Result<Seq, AppendError>> {
        Box::pin(futures::future::ready(self.append_now(session, epoch, at, batch)))
    }

    async fn read(&self, session: SessionId, after: Seq, limit: ReadLimit) -> Result<Vec<StoredEvent>, StoreError> {
        let sessions = self.sessions();
        let events = &sessions.get(&session).ok_or(StoreError::NoSession(session))?.events;
        let after = after.min(events.len() as Seq);
        let mut bytes = 0;
        Ok((after + 1..)
            .zip(events.iter().skip(usize::try_from(after).unwrap_or(usize::MAX)))
            .take(limit.events.max(1))
            .take_while(|(seq, event)| {
                bytes += event.json.len();
                bytes <= limit.bytes || *seq == after + 1
            })
            .map(|(seq, event)| (seq, event.clone()))
            .collect())
    }

    async fn get(&self, session: SessionId) -> Result<Option<SessionSnapshot>, StoreError> {
        Ok(self.sessions().get(&session).map(|stored| stored.entry.snapshot()))
    }

    async fn get_many(&self, sessions: &[SessionId]) -> Result<Vec<SessionSnapshot>, StoreError> {
        let stored = self.sessions();
        Ok(sessions.iter().filter_map(|session| stored.get(session)).map(|stored| stored.entry.snapshot()).collect())
    }

    async fn list(&self, query: SessionQuery) -> Result<SessionListing, StoreError> {
        listing::page(self.sessions().values().map(|stored| &stored.entry), &query)
    }

    async fn mine(&self) -> Result<Vec<SessionSnapshot>, StoreError> {
        Ok(listing::not_ended(self.sessions().values().map(|stored| &stored.entry)))
    }

    async fn orphans(&self) -> Result<Vec<SessionSnapshot>, StoreError> {
        Ok(Vec::new())
    }

    async fn count_by_state(&self) -> Result<HashMap<AgentState, u64>, StoreError> {
        Ok(listing::count_by_state(self.sessions().values().map(|stored| &stored.entry)))
    }

    async fn forget(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
        self.change(session, SessionChange::Forget { epoch }, Vec::new())
            .map(drop)
            .map_err(|failure| failure.into_store_error(session))
    }

    async fn put_content(&self, session: SessionId, epoch: Epoch, content: Bytes) -> Result<String, StoreError> {
        let name = ulid::Ulid::generate().to_string();
        self.restore_content(session, epoch, &name, content).await?;
        Ok(name)
    }

    async fn restore_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        content: Bytes,
    ) -> Result<(), StoreError> {
        self.with_session(session, epoch, |stored| {
            stored.contents.insert(name.to_owned(), content);
            Ok(())
        })
    }

    async fn extend_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        piece: ContentPiece,
    ) -> Result<(), StoreError> {
        let ContentPiece { offset, bytes } = piece;
        self.with_session(session, epoch, |stored| {
            let unfinished = stored.unfinished_contents.entry(name.to_owned()).or_default();
            let from = usize::try_from(offset).map_err(io::Error::other)?;
            if from > unfinished.len() {
                stored.unfinished_contents.remove(name);
                return Ok(());
            }
            unfinished.resize(unfinished.len().max(from + bytes.len()), 0);
            unfinished[from..from + bytes.len()].copy_from_slice(&bytes);
            Ok(())
        })
    }

    async fn finish_content(&self, session: SessionId, epoch: Epoch, name: &str) -> Result<bool, StoreError> {
        self.with_session(session, epoch, |stored| {
            if let Some(whole) = stored.unfinished_contents.remove(name) {
                stored.contents.entry(name.to_owned()).or_insert(whole.into());
            }
            Ok(stored.contents.contains_key(name))
        })
    }

    async fn drop_unfinished(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
        let dropped = self.with_session(session, epoch, |stored| {
            stored.unfinished_contents.clear();
            Ok(())
        });
        match dropped {
            Err(StoreError::NoSession(_)) => Ok(()),
            other => other,
        }
    }

    async fn content(
        &self,
        session: SessionId,
        name: &str,
        from: u64,
        len: usize,
    ) -> Result<Option<ContentSlice>, StoreError> {
        let sessions = self.sessions();
        let content = sessions.get(&session).and_then(|stored| stored.contents.get(name));
        Ok(content.map(|content| {
            let from = usize::try_from(from).map_or(content.len(), |from| from.min(content.len()));
            let bytes = content.slice(from..from.saturating_add(len).min(content.len()));
            ContentSlice { bytes, total: content.len() as u64 }
        }))
    }

    async fn compact(&self) -> Result<CompactionStats, StoreError> {
        let mut sessions = self.sessions();
        let stopped = sessions.values_mut().filter(|stored| !listing::has_agent(stored.entry.record.state));
        stopped.for_each(|stored| stored.unfinished_contents.clear());
        Ok(CompactionStats::default())
    }

    fn has_room_for_content(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    super::super::contract::contract!(((), crate::store::in_memory::MemoryStore::new()));
}
