//! Store driver for one node: an append-only log is the durable truth, sled is an index of it.
//!
//! A missing, old or damaged index is rebuilt from the log. See docs/internals/journal.md.
//!
//! ```text
//! lock                 held while a server uses the directory
//! log/00000001.log     segments, shared by all sessions      segment, frame, scan, log_writer
//! log/00000001.arc     the same, closed and compressed       archive, compaction
//! index/               sled: sessions, locations of events   catalog, event_locations, shared
//! contents/<session>/  large contents with block checksums   contents
//! ```
//! - An append passes `commit_queue`, `commit_group`, `log_writer` and `in_flight`. `committer`
//!   drives all four.
//! - Readers read through `reader` from the log.
//! - `open` and `replay` read the log back at start.

mod archive;
mod catalog;
mod commit_group;
mod commit_queue;
mod committer;
mod compaction;
mod contents;
mod disk_reserve;
mod event_locations;
mod frame;
mod in_flight;
mod log_writer;
mod open;
mod reader;
mod replay;
mod scan;
mod segment;
mod shared;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io,
    path::Path,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use greenroom_protocol::observation::AgentState;
use tokio::{sync::oneshot, task::spawn_blocking};

use self::{
    commit_queue::{ChangeRequest, CommitQueue, JournalRequest},
    committer::{Committer, FlushThresholds, SyncDataFn},
    compaction::Compactor,
    contents::{ContentRetention, ContentStore},
    log_writer::{COMMITTER_THREADS, SegmentSizes},
    open::ReadOnlyJournal,
    shared::SharedJournal,
};
use super::{
    AppendBatch, AppendError, CompactionStats, ContentPiece, ContentSlice, CreateOutcome, Epoch, JournalEvent,
    OpenError, ReadLimit, Seq, SessionId, SessionListing, SessionQuery, SessionRecord, SessionSnapshot, Store,
    StoreError, StoredEvent, listing,
    session_change::{ChangeFailure, SessionChange, SessionEntry, check_owner, create_outcome, reject_foreign_record},
};

/// Journal in one directory.
///
/// Drop carries out the queued changes, completes the index and frees the directory.
pub struct LocalStore {
    shared: Arc<SharedJournal>,
    queue: Arc<CommitQueue>,
    contents: ContentStore,
    compactor: Arc<Compactor>,
    /// In the order in which they end: the end of the committers ends the index flusher.
    threads: Vec<JoinHandle<()>>,
    lock: File,
}

/// Sizes that tests reduce.
#[derive(Debug, Clone, Copy)]
struct StoreSizes {
    segment: SegmentSizes,
    flush_thresholds: FlushThresholds,
    /// Size in bytes from which a segment with purged data is closed early.
    close_purged_bytes: u32,
}

impl Default for StoreSizes {
    fn default() -> StoreSizes {
        StoreSizes {
            segment: SegmentSizes::DEFAULT,
            flush_thresholds: FlushThresholds { locations: 65_536, bytes: 32 << 20 },
            close_purged_bytes: 1 << 20,
        }
    }
}

/// Nice value of background work.
const LOWEST_PRIORITY: i32 = 19;

/// Delay before a failed index flush is retried.
///
/// Each try may read the whole log, and each commit requests a try.
const INDEX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Largest batch.
///
/// Keeps a frame's length and an event location's offset well within 32 bits.
const MAX_BATCH_BYTES: usize = 256 << 20;

impl LocalStore {
    /// Opens the journal in `dir` and creates the directory if it is missing.
    ///
    /// Blocks while it replays the part of the log that the index lacks.
    pub fn open(dir: &Path) -> Result<LocalStore, OpenError> {
        LocalStore::open_with(dir, StoreSizes::default())
    }

    /// Opens the journal in `dir` for reading only and changes no file, because the disk may be
    /// read-only.
    ///
    /// The store rejects every change.
    pub fn open_to_read(dir: &Path) -> Result<LocalStore, OpenError> {
        let ReadOnlyJournal { shared, lock, contents } = open::open_to_read(dir)?;
        let (shared, queue) = (Arc::new(shared), Arc::new(CommitQueue::new()));
        queue.close();
        let compactor =
            Arc::new(Compactor::new(shared.clone(), queue.clone(), StoreSizes::default().close_purged_bytes));
        compactor.stop();
        Ok(LocalStore { shared, queue, contents: ContentStore::new(contents), compactor, threads: Vec::new(), lock })
    }

    fn open_with(dir: &Path, sizes: StoreSizes) -> Result<LocalStore, OpenError> {
        LocalStore::open_syncing(dir, sizes, Box::new(File::sync_data))
    }

    fn open_syncing(dir: &Path, sizes: StoreSizes, sync: Box<SyncDataFn>) -> Result<LocalStore, OpenError> {
        let opened = open::open(dir, sizes.segment)?;
        let failed = |source| OpenError::Io { path: dir.to_owned(), source };
        let contents = ContentStore::new(opened.contents);
        contents.note_leftovers(|session| match opened.shared.state().sessions.get(&session) {
            // The session may be among those whose part of the log was lost.
            None if !opened.shared.is_complete => ContentRetention::All,
            entry => content_retention(entry),
        });

        let (shared, queue) = (Arc::new(opened.shared), Arc::new(CommitQueue::new()));
        let (flush_signal, flush_requests) = mpsc::sync_channel(1);
        let thresholds = sizes.flush_thresholds;
        if shared.state().unflushed.len() >= thresholds.locations {
            let _ = flush_signal.try_send(());
        }
        let committer = Committer::new(shared.clone(), queue.clone(), opened.log, flush_signal, thresholds, sync);
        let committer = Arc::new(committer);
        let compactor = Arc::new(Compactor::new(shared.clone(), queue.clone(), sizes.close_purged_bytes));
        // Dropped if a thread cannot be started. The drop ends the other threads.
        let mut store = LocalStore { shared, queue, contents, compactor, threads: Vec::new(), lock: opened.lock };
        for thread_index in 0..COMMITTER_THREADS {
            let committer = committer.clone();
            store.threads.push(spawn("journal", move || committer.run(thread_index)).map_err(failed)?);
        }
        drop(committer);
        let journal = store.shared.clone();
        store
            .threads
            .push(spawn("journal-index", move || run_index_flusher(&journal, &flush_requests)).map_err(failed)?);
        Ok(store)
    }

    /// Queues a change during this call. The future resolves when the change is durable.
    fn submit(
        &self,
        session: SessionId,
        change: SessionChange,
        events: &[JournalEvent],
    ) -> impl Future<Output = Result<Option<SessionEntry>, ChangeFailure>> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        let payload = encode(&change, events);
        let queued = match payload.len() {
            0..=MAX_BATCH_BYTES => {
                self.queue.push(JournalRequest::Change(Box::new(ChangeRequest { session, change, payload, reply })))
            }
            len => Err(batch_too_large(len)),
        };
        async move {
            queued?;
            answer.await.unwrap_or_else(|_| Err(ChangeFailure::Unknown(Arc::new(writer_gone_error()))))
        }
    }

    fn has_session(&self, session: SessionId) -> bool {
        self.shared.state().sessions.contains_key(&session)
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalStore").field(&self.shared.segments.dir()).finish()
    }
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        self.compactor.stop();
        self.contents.stop();
        self.queue.close();
        for thread in self.threads.drain(..) {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
        // A child process that is being started shares the file until its exec. Closing the file
        // would therefore not free the lock.
        let _ = self.lock.unlock();
    }
}

impl LocalStore {
    /// Runs `work` on the contents of a session, if `epoch` owns the session.
    ///
    /// If the session is purged meanwhile, its contents are removed again. If the session is
    /// claimed meanwhile, the caller gets no name of what was written.
    async fn with_session_contents<T: Send + 'static>(
        &self,
        session: SessionId,
        epoch: Epoch,
        work: impl FnOnce(&ContentStore) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        check_owner(self.shared.state().sessions.get(&session), session, epoch)?;
        let (contents, shared) = (self.contents.clone(), self.shared.clone());
        blocking(move || {
            let done = work(&contents)?;
            let owned = check_owner(shared.state().sessions.get(&session), session, epoch);
            if let Err(StoreError::NoSession(_)) = owned {
                // A purge may have run before `work` wrote anything.
                contents.forget(session)?;
            }
            owned.map(|()| done)
        })
        .await
    }
}

#[async_trait]
impl Store for LocalStore {
    async fn create(&self, record: SessionRecord) -> Result<CreateOutcome, StoreError> {
        let session = record.id;
        create_outcome(session, self.submit(session, SessionChange::Create(record.into()), &[]).await)
    }

    async fn claim(&self, session: SessionId) -> Result<(Epoch, SessionSnapshot), StoreError> {
        let claimed = self.submit(session, SessionChange::Claim, &[]).await;
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
        let AppendBatch { events, mark, record } = batch;
        if let Some(failure) = reject_foreign_record(session, record.as_deref()) {
            return Box::pin(futures::future::ready(Err(failure.into_append_error(session))));
        }
        let stops = record.as_deref().is_some_and(|record| !listing::has_agent(record.state));
        let change = SessionChange::Append { epoch, at, events: events.len() as u64, mark, record };
        let answer = self.submit(session, change, &events);
        let contents = self.contents.clone();
        Box::pin(async move {
            let after = answer.await.map_err(|failure| failure.into_append_error(session))?;
            if stops {
                contents.note_stopped(session);
            }
            after.map(|entry| entry.tail).ok_or(AppendError::NoSession(session))
        })
    }

    async fn read(&self, session: SessionId, after: Seq, limit: ReadLimit) -> Result<Vec<StoredEvent>, StoreError> {
        let tail = self.shared.state().sessions.get(&session).ok_or(StoreError::NoSession(session))?.tail;
        if after >= tail {
            return Ok(Vec::new());
        }
        let shared = self.shared.clone();
        blocking(move || reader::read(&shared, session, after, limit)).await
    }

    async fn get(&self, session: SessionId) -> Result<Option<SessionSnapshot>, StoreError> {
        Ok(self.shared.state().sessions.get(&session).map(SessionEntry::snapshot))
    }

    async fn get_many(&self, sessions: &[SessionId]) -> Result<Vec<SessionSnapshot>, StoreError> {
        let state = self.shared.state();
        Ok(sessions.iter().filter_map(|session| state.sessions.get(session)).map(SessionEntry::snapshot).collect())
    }

    async fn list(&self, query: SessionQuery) -> Result<SessionListing, StoreError> {
        let shared = self.shared.clone();
        blocking(move || listing::page(shared.state().sessions.values(), &query)).await
    }

    async fn mine(&self) -> Result<Vec<SessionSnapshot>, StoreError> {
        Ok(listing::not_ended(self.shared.state().sessions.values()))
    }

    async fn orphans(&self) -> Result<Vec<SessionSnapshot>, StoreError> {
        Ok(Vec::new())
    }

    async fn count_by_state(&self) -> Result<HashMap<AgentState, u64>, StoreError> {
        Ok(listing::count_by_state(self.shared.state().sessions.values()))
    }

    async fn forget(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
        if self.has_session(session) {
            let forgotten = self.submit(session, SessionChange::Forget { epoch }, &[]).await;
            forgotten.map_err(|failure| failure.into_store_error(session))?;
        }
        let contents = self.contents.clone();
        blocking(move || Ok(contents.forget(session)?)).await
    }

    async fn put_content(&self, session: SessionId, epoch: Epoch, content: Bytes) -> Result<String, StoreError> {
        let name = ulid::Ulid::generate();
        self.with_session_contents(session, epoch, move |contents| contents.put(session, name, &content)).await?;
        Ok(name.to_string())
    }

    async fn restore_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        content: Bytes,
    ) -> Result<(), StoreError> {
        let name = content_name(name)?;
        self.with_session_contents(session, epoch, move |contents| contents.put(session, name, &content)).await
    }

    async fn extend_content(
        &self,
        session: SessionId,
        epoch: Epoch,
        name: &str,
        piece: ContentPiece,
    ) -> Result<(), StoreError> {
        let name = content_name(name)?;
        self.with_session_contents(session, epoch, move |contents| {
            contents.extend(session, name, piece.offset, &piece.bytes)
        })
        .await
    }

    async fn finish_content(&self, session: SessionId, epoch: Epoch, name: &str) -> Result<bool, StoreError> {
        let name = content_name(name)?;
        self.with_session_contents(session, epoch, move |contents| contents.finish(session, name)).await
    }

    async fn drop_unfinished(&self, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
        match check_owner(self.shared.state().sessions.get(&session), session, epoch) {
            Err(StoreError::NoSession(_)) => return Ok(()),
            owned => owned?,
        }
        let contents = self.contents.clone();
        blocking(move || Ok(contents.drop_unfinished(session)?)).await
    }

    async fn content(
        &self,
        session: SessionId,
        name: &str,
        from: u64,
        len: usize,
    ) -> Result<Option<ContentSlice>, StoreError> {
        let (contents, name) = (self.contents.clone(), name.to_owned());
        blocking(move || contents.get(session, &name, from, len)).await
    }

    async fn compact(&self) -> Result<CompactionStats, StoreError> {
        let (compactor, contents, shared) = (self.compactor.clone(), self.contents.clone(), self.shared.clone());
        let (reply, answer) = oneshot::channel();
        let work = move || {
            // Background priority. Linux takes 0 for the calling thread. A failure changes nothing
            // but the priority.
            let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
            contents.drop_unfinished_of_stopped(|session| {
                content_retention(shared.state().sessions.get(&session)) != ContentRetention::All
            });
            contents.sweep();
            // A receiver that is gone needs no reply.
            let _ = reply.send(compactor.run());
        };
        spawn("journal-archive", work)?;
        answer.await.map_err(|_| io::Error::other("the thread that compacts the journal panicked"))?
    }

    fn has_room_for_content(&self) -> bool {
        self.shared.disk_reserve.is_whole()
    }

    async fn check(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        if let Err(ChangeFailure::NotWritten(error) | ChangeFailure::Unknown(error)) =
            self.queue.push(JournalRequest::Check(reply))
        {
            return Err(StoreError::Io(error));
        }
        Ok(answer.await.map_err(|_| writer_gone_error())??)
    }
}

fn content_retention(entry: Option<&SessionEntry>) -> ContentRetention {
    match entry {
        Some(entry) if listing::has_agent(entry.record.state) => ContentRetention::All,
        Some(_) => ContentRetention::Finished,
        None => ContentRetention::Nothing,
    }
}

fn content_name(name: &str) -> io::Result<ulid::Ulid> {
    name.parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not the name of a content; such a name is a ULID"))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Flushes the index on each signal until the committers end, then once more for a short next
/// replay.
fn run_index_flusher(shared: &SharedJournal, flush_requests: &mpsc::Receiver<()>) {
    let mut failed: Option<Instant> = None;
    loop {
        let received = flush_requests.recv();
        if received.is_ok() && failed.is_some_and(|at| at.elapsed() < INDEX_RETRY_DELAY) {
            continue;
        }
        failed = None;
        if let Err(error) = shared.flush_index() {
            tracing::warn!("the journal's index falls behind: {error}");
            failed = Some(Instant::now());
        }
        if received.is_err() {
            return;
        }
    }
}

fn encode(change: &SessionChange, events: &[JournalEvent]) -> Vec<u8> {
    match change {
        SessionChange::Create(record) => frame::encode_payload(None, Some(record), &[]),
        SessionChange::Append { mark, record, .. } => frame::encode_payload(mark.as_ref(), record.as_deref(), events),
        SessionChange::Claim | SessionChange::Forget { .. } => frame::encode_payload(None, None, &[]),
    }
}

fn batch_too_large(len: usize) -> ChangeFailure {
    let text = format!("a batch of {len} bytes exceeds {MAX_BATCH_BYTES}; store large contents beside the journal");
    ChangeFailure::NotWritten(Arc::new(io::Error::new(io::ErrorKind::FileTooLarge, text)))
}

fn writer_gone_error() -> io::Error {
    io::Error::other("the thread that writes the journal is gone; restart the server")
}

/// Runs file work away from the threads that serve sockets.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}
