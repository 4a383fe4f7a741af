//! A store that fails, or takes its time, when it is told to.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::store::{
    AppendError, Batch, Compacted, Epoch, Limit, Listing, Part, Query, Record, Seq, SessionId, Snapshot, Store,
    StoreError, StoredEvent, memory::MemoryStore,
};

/// A store that does what it is told, to the sessions that it is told about.
#[derive(Default)]
pub(crate) struct Faulty {
    inner: Arc<MemoryStore>,
    pub(crate) refuses: AtomicBool,
    /// How many claims there were.
    pub(crate) claims: AtomicUsize,
    /// The next append alone is refused.
    pub(crate) refuses_one: AtomicBool,
    /// Nothing is forgotten.
    pub(crate) keeps: AtomicBool,
    /// The next append of this session panics.
    pub(crate) panics: Mutex<Option<SessionId>>,
    /// Of this session no event from there on can be read, and none of its contents.
    pub(crate) unreadable: Mutex<Option<(SessionId, Seq)>>,
    /// How long each page takes to be read.
    pub(crate) slowness: Mutex<Duration>,
    /// While there is one, appends wait until so many of them may pass.
    gate: Mutex<Option<Gate>>,
}

struct Gate {
    asked: usize,
    passed: watch::Sender<usize>,
}

impl Faulty {
    pub(crate) fn over(inner: MemoryStore) -> Faulty {
        Faulty { inner: Arc::new(inner), ..Faulty::default() }
    }

    fn reads(&self, session: SessionId, last: Seq) -> Result<(), StoreError> {
        match *self.unreadable.lock().expect("nobody panics here") {
            Some((lost, from)) if lost == session && last >= from => {
                Err(std::io::Error::other("input/output error").into())
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn hold(&self) {
        *self.gate.lock().expect("nobody panics here") = Some(Gate { asked: 0, passed: watch::Sender::new(0) });
    }

    /// How many appends were held, or are.
    pub(crate) fn asked(&self) -> usize {
        self.gate.lock().expect("nobody panics here").as_ref().expect("appends are held").asked
    }

    pub(crate) fn release_one(&self) {
        let gate = self.gate.lock().expect("nobody panics here");
        gate.as_ref().expect("appends are held").passed.send_modify(|passed| *passed += 1);
    }
}

#[async_trait]
impl Store for Faulty {
    async fn create(&self, record: Record) -> Result<Snapshot, StoreError> {
        self.inner.create(record).await
    }
    async fn claim(&self, session: SessionId) -> Result<(Epoch, Snapshot), StoreError> {
        self.claims.fetch_add(1, SeqCst);
        if self.refuses.load(SeqCst) {
            return Err(std::io::Error::other("no space left on device").into());
        }
        self.inner.claim(session).await
    }
    fn append(
        &self,
        session: SessionId,
        epoch: Epoch,
        at: Seq,
        batch: Batch,
    ) -> BoxFuture<'static, Result<Seq, AppendError>> {
        if self.panics.lock().expect("nobody panics here").take_if(|wanted| *wanted == session).is_some() {
            panic!("as the test asked");
        }
        if self.refuses.load(SeqCst) || self.refuses_one.swap(false, SeqCst) {
            let why = Arc::new(std::io::Error::other("no space left on device"));
            return Box::pin(async { Err(AppendError::Refused(why)) });
        }
        let turn = self.gate.lock().expect("nobody panics here").as_mut().map(|gate| {
            gate.asked += 1;
            (gate.asked, gate.passed.subscribe())
        });
        let Some((turn, mut passed)) = turn else { return self.inner.append(session, epoch, at, batch) };
        let inner = self.inner.clone();
        Box::pin(async move {
            passed.wait_for(|passed| *passed >= turn).await.expect("the test outlives its appends");
            inner.append(session, epoch, at, batch).await
        })
    }
    async fn read(&self, session: SessionId, after: Seq, limit: Limit) -> Result<Vec<StoredEvent>, StoreError> {
        let slowness = *self.slowness.lock().expect("nobody panics here");
        tokio::time::sleep(slowness).await;
        let events = self.inner.read(session, after, limit).await?;
        self.reads(session, events.last().map_or(0, |(seq, _)| *seq))?;
        Ok(events)
    }
    async fn get(&self, session: SessionId) -> Result<Option<Snapshot>, StoreError> {
        self.inner.get(session).await
    }
    async fn put(&self, record: Record, revision: u64) -> Result<Snapshot, StoreError> {
        self.inner.put(record, revision).await
    }
    async fn list(&self, query: Query) -> Result<Listing, StoreError> {
        self.inner.list(query).await
    }
    async fn live(&self) -> Result<Vec<Snapshot>, StoreError> {
        self.inner.live().await
    }
    async fn forget(&self, session: SessionId) -> Result<(), StoreError> {
        if self.keeps.load(SeqCst) {
            return Err(std::io::Error::other("no space left on device").into());
        }
        self.inner.forget(session).await
    }
    async fn put_content(&self, session: SessionId, content: bytes::Bytes) -> Result<String, StoreError> {
        self.inner.put_content(session, content).await
    }
    async fn restore_content(&self, session: SessionId, name: &str, content: bytes::Bytes) -> Result<(), StoreError> {
        self.inner.restore_content(session, name, content).await
    }
    async fn extend_content(
        &self,
        session: SessionId,
        name: &str,
        offset: u64,
        piece: bytes::Bytes,
    ) -> Result<(), StoreError> {
        self.inner.extend_content(session, name, offset, piece).await
    }
    async fn finish_content(&self, session: SessionId, name: &str) -> Result<bool, StoreError> {
        self.inner.finish_content(session, name).await
    }
    async fn content(&self, session: SessionId, name: &str, from: u64, len: usize) -> Result<Option<Part>, StoreError> {
        self.reads(session, Seq::MAX)?;
        self.inner.content(session, name, from, len).await
    }
    async fn compact(&self) -> Result<Compacted, StoreError> {
        self.inner.compact().await
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
}
