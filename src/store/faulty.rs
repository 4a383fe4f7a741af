//! Test store that fails or delays its calls on request.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use greenroom_protocol::observation::AgentState;
use tokio::sync::watch;

use crate::store::{
    AppendBatch, AppendError, CompactionStats, ContentPiece, ContentSlice, CreateOutcome, Epoch, ReadLimit, Seq,
    SessionId, SessionListing, SessionQuery, SessionRecord, SessionSnapshot, Store, StoreError, StoredEvent,
    in_memory::MemoryStore,
};

/// In-memory store with switchable faults.
#[derive(Default)]
pub(crate) struct FaultyStore {
    inner: Arc<MemoryStore>,
    pub(crate) fail_writes: AtomicBool,
    /// Number of claims so far.
    pub(crate) claim_count: AtomicUsize,
    /// Fails the next append only.
    pub(crate) fail_next_append: AtomicBool,
    /// Leaves room for small events only.
    pub(crate) lacks_room_for_content: AtomicBool,
    /// Fails every `forget`.
    pub(crate) fail_forget: AtomicBool,
    /// Panics at the next append of this session.
    pub(crate) panic_on_append: Mutex<Option<SessionId>>,
    /// Makes events of this session unreadable from this number on, and all of its contents.
    pub(crate) unreadable_from: Mutex<Option<(SessionId, Seq)>>,
    /// Delay of each read.
    pub(crate) read_delay: Mutex<Duration>,
    /// While set, appends block until the gate admits them.
    append_gate: Mutex<Option<AppendGate>>,
}

struct AppendGate {
    arrived: usize,
    passed: watch::Sender<usize>,
}

impl FaultyStore {
    pub(crate) fn wrapping(inner: MemoryStore) -> FaultyStore {
        FaultyStore { inner: Arc::new(inner), ..FaultyStore::default() }
    }

    fn check_readable(&self, session: SessionId, last: Seq) -> Result<(), StoreError> {
        match *self.unreadable_from.lock().expect("lock is never poisoned: no holder panics") {
            Some((lost, from)) if lost == session && last >= from => {
                Err(std::io::Error::other("input/output error").into())
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn gate_appends(&self) {
        *self.append_gate.lock().expect("lock is never poisoned: no holder panics") =
            Some(AppendGate { arrived: 0, passed: watch::Sender::new(0) });
    }

    /// Returns the number of appends that have reached the gate.
    pub(crate) fn gated_append_count(&self) -> usize {
        self.append_gate
            .lock()
            .expect("lock is never poisoned: no holder panics")
            .as_ref()
            .expect("the gate is set before appends are counted or released")
            .arrived
    }

    pub(crate) fn release_one(&self) {
        let gate = self.append_gate.lock().expect("lock is never poisoned: no holder panics");
        gate.as_ref()
            .expect("the gate is set before appends are counted or released")
            .passed
            .send_modify(|passed| *passed += 1);
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn create(&self, record: SessionRecord) -> Result<CreateOutcome, StoreError> {
        self.inner.create(record).await
    }
    async fn claim(&self, session: SessionId) -> Result<(Epoch, SessionSnapshot), StoreError> {
        self.claim_count.fetch_add(1, SeqCst);
        if self.fail_writes.load(SeqCst) {
            return Err(std::io::Error::other("no space left on device").into());
        }
        self.inner.claim(session).await
    }
    fn append(
        &self,
        session: SessionId,
        epoch: Epoch,
        at: Seq,
        batch: AppendBatch,
    ) -> BoxFuture<'static, Result<Seq, AppendError>> {
        if self
            .panic_on_append
            .lock()
            .expect("lock is never poisoned: no holder panics")
            .take_if(|target| *target == session)
            .is_some()
        {
            panic!("requested by the test");
        }
        if self.fail_writes.load(SeqCst) || self.fail_next_append.swap(false, SeqCst) {
            let error = Arc::new(std::io::Error::other("no space left on device"));
            return Box::pin(async { Err(AppendError::NotWritten(error)) });
        }
        let turn = self.append_gate.lock().expect("lock is never poisoned: no holder panics").as_mut().map(|gate| {
            gate.arrived += 1;
            (gate.arrived, gate.passed.subscribe())
        });
        let Some((turn, mut passed)) = turn else { return self.inner.append(session, epoch, at, batch) };
        let inner = self.inner.clone();
        Box::pin(async move {
            passed.wait_for(|passed| *passed >= turn).await.expect("the gate outlives the appends that it holds");
            inner.append(session, epoch, at, batch).await
        })
    }
    async fn read(&self, session: SessionId, after: Seq, limit: ReadLimit) -> Result<Vec<StoredEvent>, StoreError> {
        let delay = *self.read_delay.lock().expect("lock is never poisoned: no holder panics");
        tokio::time::sleep(delay).await;
        let events = self.inner.read(session, after, limit).await?;
        self.check_readable(session, events.last().map_or(0, |(seq, _)| *seq))?;
        Ok(events)
    }
    async fn get(&self, session: SessionId) -> Result<Option<SessionSnapshot>, StoreError> {
        self.inner.get(session).await
    }
    async fn list(&self, query: SessionQuery) -> Result<SessionListing, StoreError> {
        self.inner.list(query).await
    }
    async fn get_many(&self, sessions: &[SessionId]) -> Result<Vec<SessionSnapshot>, StoreError> {
        self.inner.get_many(sessions).await
    }
    async fn mine(&self) -> Result<Vec<SessionSnapshot>, StoreError> {
        self.inner.mine().await
    }
    async fn orphans(&self) -> Result<Vec<SessionSnapshot>, StoreError> {
        self.inner.orphans().await
    }
    async fn count_by_state(&self) -> Result<HashMap<AgentState, u64>, StoreError> {
        self.inner.count_by_state().await
    }
    async fn forget(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
        if self.fail_forget.load(SeqCst) {
            return Err(std::io::Error::other("no space left on device").into());
        }
        self.inner.forget(session, epoch).await
    }
    async fn put_content(&self, session: SessionId, epoch: Epoch, content: bytes::Bytes) -> Result<String, StoreError> {
        self.inner.put_content(session, epoch, content).await
    }
    async fn restore_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        content: bytes::Bytes,
    ) -> Result<(), StoreError> {
        self.inner.restore_content(session, epoch, name, content).await
    }
    async fn extend_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        piece: ContentPiece,
    ) -> Result<(), StoreError> {
        self.inner.extend_content(session, epoch, name, piece).await
    }
    async fn finish_content(&self, session: SessionId, epoch: Epoch, name: &str) -> Result<bool, StoreError> {
        self.inner.finish_content(session, epoch, name).await
    }
    async fn drop_unfinished(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
        self.inner.drop_unfinished(session, epoch).await
    }
    async fn content(
        &self,
        session: SessionId,
        name: &str,
        from: u64,
        len: usize,
    ) -> Result<Option<ContentSlice>, StoreError> {
        self.check_readable(session, Seq::MAX)?;
        self.inner.content(session, name, from, len).await
    }
    async fn compact(&self) -> Result<CompactionStats, StoreError> {
        self.inner.compact().await
    }
    fn has_room_for_content(&self) -> bool {
        !self.lacks_room_for_content.load(SeqCst)
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
}
