//! Work on a session's store, on blocking threads.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, PoisonError},
    time::Instant,
};

use greenroom_protocol::checkpoint::CheckpointKind;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    CAPTURE_WAIT, Checkpoints, MAX_READS,
    capture::{CaptureContext, CaptureRequest, CapturedWorkspace, capture},
    error::CheckpointError,
    open_workspace,
    report::TakenCheckpoint,
    store::{CheckpointStore, START, StartState},
};
use crate::{files::WorkspaceTree, store::SessionId};

/// Work in progress, by session.
pub(super) type RunningWork = HashMap<SessionId, CancellationToken>;

/// Work on a session's store and workspace.
pub(super) struct CaptureWork {
    pub checkpoints: Arc<Checkpoints>,
    pub session: SessionId,
    pub tree: WorkspaceTree,
    pub is_cancelled: Box<dyn Fn() -> bool + Send + Sync>,
    /// Returns true once later changes may be part of a checkpoint.
    pub is_late: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Checkpoints {
    /// Does work on a store that may change it, on a blocking thread. Ordered for each session.
    pub(super) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        places: &Arc<Semaphore>,
        session: SessionId,
        work: impl FnOnce(CaptureWork) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let began = Instant::now();
        let guard = self.locks.of(session).lock_owned().await;
        // The semaphore is never closed.
        let permit = places.clone().acquire_owned().await;
        let checkpoints = self.clone();
        let job = tokio::task::spawn_blocking(move || {
            let _until_done = (guard, permit);
            let tree = open_workspace(&checkpoints.dirs, session)?;
            let cancelled = checkpoints.closing.child_token();
            checkpoints.running().insert(session, cancelled.clone());
            let is_cancelled = Box::new(move || cancelled.is_cancelled());
            let is_late = Box::new(move || began.elapsed() > CAPTURE_WAIT);
            let done = work(CaptureWork { checkpoints: checkpoints.clone(), session, tree, is_cancelled, is_late });
            checkpoints.running().remove(&session);
            done
        });
        job.await.unwrap_or_else(|e| Err(CheckpointError::Io(io::Error::other(e))))
    }

    /// Ends the work in progress on a session's store.
    pub(super) fn cancel(&self, session: SessionId) {
        if let Some(work) = self.running().get(&session) {
            work.cancel();
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, RunningWork> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads stores on a blocking thread.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Checkpoints) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let permit = self.reads.clone().try_acquire_owned().map_err(|_| CheckpointError::Busy(MAX_READS))?;
        let checkpoints = self.clone();
        let job = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            work(&checkpoints)
        });
        job.await.unwrap_or_else(|e| Err(CheckpointError::Io(io::Error::other(e))))
    }
}

impl CaptureWork {
    pub(super) fn open_store(&self) -> Result<CheckpointStore, CheckpointError> {
        CheckpointStore::open(&self.checkpoints.store_dir(self.session))
    }

    pub(super) fn context(&self) -> CaptureContext<'_> {
        let CaptureWork { checkpoints, tree, is_cancelled, is_late, .. } = self;
        CaptureContext { tree, config: &checkpoints.config, is_cancelled: &**is_cancelled, is_late: &**is_late }
    }

    pub(super) fn capture_start(&self) -> Result<(), CheckpointError> {
        let mut store = self.open_store()?;
        if store.latest().is_some() || store.damage().is_some() || store.start != StartState::Unrecorded {
            return Ok(());
        }
        if self.tree.is_empty() {
            return Ok(store.record_start(StartState::Empty)?);
        }
        let request = CaptureRequest { name: START, kind: CheckpointKind::Start, of: None };
        self.take(&mut store, &request).map(|_| ())
    }

    /// Captures the workspace. Returns false beside the checkpoint if changed files were left out
    /// because the capture has a budget.
    pub(super) fn take(
        &self,
        store: &mut CheckpointStore,
        request: &CaptureRequest<'_>,
    ) -> Result<(TakenCheckpoint, bool), CheckpointError> {
        let CapturedWorkspace { record, changes, is_complete } = capture(store, request, self.context())?;
        Ok((TakenCheckpoint::of(store, &record, changes), is_complete))
    }

    /// Applies the limits of the store at the end of the work. The pinned checkpoints stay. A
    /// failure is logged: the checkpoints exist, and the next capture tries again.
    pub(super) fn apply_limits(&self, store: CheckpointStore, pinned: &[String]) {
        if let Err(error) = store.apply_limits(&self.checkpoints.config, pinned) {
            warn!(session = %self.session, "the limits of the checkpoints were not applied: {error}");
        }
    }
}
