//! Cache of the newest events, above any driver.
//!
//! An append puts its events into the cache once the driver has them on disk. A read that the cache
//! cannot answer goes to the driver. The events of a session never change, so a cached event stays
//! right until the session is purged.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use greenroom_protocol::observation::AgentState;
use tokio::task::spawn_blocking;

use super::{
    AppendBatch, AppendError, CompactionStats, ContentPiece, ContentSlice, CreateOutcome, Epoch, ReadLimit, Seq,
    SessionId, SessionListing, SessionQuery, SessionRecord, SessionSnapshot, Store, StoreError, StoredEvent,
    recent_events::RecentEvents,
};

/// Driver with the newest events in memory. Followers of a session read there instead of from disk.
#[derive(Debug)]
pub(super) struct CachedStore<S> {
    driver: S,
    recent: Arc<SharedRecentEvents>,
}

#[derive(Debug, Default)]
struct SharedRecentEvents(RwLock<RecentEvents>);

impl SharedRecentEvents {
    fn read(&self) -> RwLockReadGuard<'_, RecentEvents> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, RecentEvents> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what the last call but one left. Frees the memory without the lock.
    fn drop_old(&self) {
        let old = self.write().age();
        loop {
            let batches = self.write().take_old(old);
            if batches.is_empty() {
                return;
            }
        }
    }
}

impl<S: Store> CachedStore<S> {
    pub(super) fn new(driver: S) -> CachedStore<S> {
        CachedStore { driver, recent: Arc::default() }
    }
}

#[async_trait]
impl<S: Store> Store for CachedStore<S> {
    async fn create(&self, record: SessionRecord) -> Result<CreateOutcome, StoreError> {
        self.driver.create(record).await
    }

    async fn claim(&self, session: SessionId) -> Result<(Epoch, SessionSnapshot), StoreError> {
        self.driver.claim(session).await
    }

    fn append(
        &self,
        session: SessionId,
        epoch: Epoch,
        at: Seq,
        batch: AppendBatch,
    ) -> BoxFuture<'static, Result<Seq, AppendError>> {
        if batch.events.is_empty() {
            return self.driver.append(session, epoch, at, batch);
        }
        let (events, purges) = (batch.events.clone(), self.recent.read().purges());
        let appended = self.driver.append(session, epoch, at, batch);
        let recent = self.recent.clone();
        Box::pin(async move {
            let tail = appended.await?;
            recent.write().push(session, at, events, purges);
            Ok(tail)
        })
    }

    async fn read(&self, session: SessionId, after: Seq, limit: ReadLimit) -> Result<Vec<StoredEvent>, StoreError> {
        let cached = self.recent.read().read(session, after, limit);
        match cached {
            Some(events) => Ok(events),
            None => self.driver.read(session, after, limit).await,
        }
    }

    async fn get(&self, session: SessionId) -> Result<Option<SessionSnapshot>, StoreError> {
        self.driver.get(session).await
    }

    async fn list(&self, query: SessionQuery) -> Result<SessionListing, StoreError> {
        self.driver.list(query).await
    }

    async fn get_many(&self, sessions: &[SessionId]) -> Result<Vec<SessionSnapshot>, StoreError> {
        self.driver.get_many(sessions).await
    }

    async fn mine(&self) -> Result<Vec<SessionSnapshot>, StoreError> {
        self.driver.mine().await
    }

    async fn orphans(&self) -> Result<Vec<SessionSnapshot>, StoreError> {
        self.driver.orphans().await
    }

    async fn count_by_state(&self) -> Result<HashMap<AgentState, u64>, StoreError> {
        self.driver.count_by_state().await
    }

    async fn forget(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
        // Before too: the caller may drop this future while the driver works.
        self.recent.write().forget(session);
        let forgotten = self.driver.forget(session, epoch).await;
        self.recent.write().forget(session);
        forgotten
    }

    async fn put_content(&self, session: SessionId, epoch: Epoch, content: Bytes) -> Result<String, StoreError> {
        self.driver.put_content(session, epoch, content).await
    }

    async fn restore_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        content: Bytes,
    ) -> Result<(), StoreError> {
        self.driver.restore_content(session, epoch, name, content).await
    }

    async fn extend_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        piece: ContentPiece,
    ) -> Result<(), StoreError> {
        self.driver.extend_content(session, epoch, name, piece).await
    }

    async fn finish_content(&self, session: SessionId, epoch: Epoch, name: &str) -> Result<bool, StoreError> {
        self.driver.finish_content(session, epoch, name).await
    }

    async fn drop_unfinished(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
        self.driver.drop_unfinished(session, epoch).await
    }

    async fn content(
        &self,
        session: SessionId,
        name: &str,
        from: u64,
        len: usize,
    ) -> Result<Option<ContentSlice>, StoreError> {
        self.driver.content(session, name, from, len).await
    }

    async fn compact(&self) -> Result<CompactionStats, StoreError> {
        let recent = self.recent.clone();
        spawn_blocking(move || recent.drop_old()).await.map_err(std::io::Error::other)?;
        self.driver.compact().await
    }

    fn has_room_for_content(&self) -> bool {
        self.driver.has_room_for_content()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.driver.check().await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;
    use crate::store::{
        contract::{ALL, claimed, contract, events, expected},
        faulty::FaultyStore,
        in_memory::MemoryStore,
        local::LocalStore,
    };

    contract!(((), crate::store::cached::CachedStore::new(crate::store::in_memory::MemoryStore::new())));

    /// The composition of the product.
    mod over_local {
        crate::store::contract::contract!({
            let dir = tempfile::tempdir().unwrap();
            let driver = super::super::LocalStore::open(dir.path()).unwrap();
            (dir, crate::store::cached::CachedStore::new(driver))
        });
    }

    #[tokio::test]
    async fn newest_events_are_read_from_memory_until_the_second_sweep() {
        let driver = FaultyStore::default();
        let (session, epoch) = claimed(&driver, "a").await;
        // The disk returns no event of the session.
        *driver.unreadable_from.lock().unwrap() = Some((session, 0));
        let store = CachedStore::new(driver);
        let (first, second) = (
            store.append(session, epoch, 0, events(session, 0, 2)),
            store.append(session, epoch, 2, events(session, 2, 1)),
        );
        // The answers are processed in another order.
        assert_eq!((second.await.unwrap(), first.await.unwrap()), (3, 2));
        assert_eq!(store.read(session, 0, ALL).await.unwrap(), expected(session, 3));
        store.read(session, 3, ALL).await.unwrap_err();
        store.compact().await.unwrap();
        assert_eq!(store.read(session, 0, ALL).await.unwrap(), expected(session, 3));
        store.compact().await.unwrap();
        store.read(session, 0, ALL).await.unwrap_err();
    }

    #[tokio::test]
    async fn answer_after_a_purge_leaves_no_event() {
        let store = CachedStore::new(MemoryStore::new());
        let (session, epoch) = claimed(&store, "a").await;
        let appended = store.append(session, epoch, 0, events(session, 0, 2));
        store.forget(session, epoch).await.unwrap();
        assert_eq!(appended.await.unwrap(), 2);
        assert!(matches!(store.read(session, 0, ALL).await, Err(StoreError::NoSession(_))));
    }
}
