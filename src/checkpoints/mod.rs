//! Checkpoints: captured workspaces, their differences, and restores.
//!
//! The store of a session is outside of its workspace and belongs to the server. Git never runs.
//! The workspace's own `.git` is not part of a checkpoint: only its `HEAD` and refs are recorded.
//! All reads of the workspace pass [`files`](crate::files), which follows no link.
//!
//! | module | content |
//! |---|---|
//! | `error` · `entry` · `sealed` | failures; captured files; files with a checksum |
//! | `pack` · `delta` · `store` | contents; changes of each checkpoint; both of a session |
//! | `ignore_rules` · `left_out` · `git_head` · `scan` | reads of a workspace |
//! | `capture` | checkpoints |
//! | `line_diff` · `moves` · `scratch` · `compare` | differences of texts and of workspaces |
//! | `patch` | differences in git's format |
//! | `restore` · `retention` | going back; limits of the store |
//! | `work` · `repair` · `fork` | order of the work on a store; damage; forked sessions |
//! | `report` | observations and answers for clients |
//!
//! See docs/internals/checkpoints.md.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use greenroom_protocol::checkpoint::CheckpointKind;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    config::CheckpointsConfig,
    files::{FileError, InnerPath, WorkspaceTree, WorkspaceWriter, pipe},
    sandbox::{KeyedMutex, WorkspaceDirs, remove_tree},
    store::SessionId,
};

mod capture;
mod compare;
mod delta;
mod entry;
mod error;
mod fork;
mod git_head;
mod ignore_rules;
mod left_out;
mod line_diff;
mod moves;
mod pack;
mod patch;
mod repair;
mod report;
mod restore;
mod retention;
mod scan;
mod scratch;
mod sealed;
mod store;
#[cfg(test)]
mod tests;
mod work;

use capture::{CaptureContext, CaptureRequest};
use compare::Compared;
pub use error::CheckpointError;
use patch::write_patch;
pub use report::{CheckpointList, DiffedFile, ListedCheckpoint, TakenCheckpoint, WorkspaceDiff};
pub use restore::{FailedPath, RestoredFiles};
use restore::{RestorePlan, RestoreTarget};
use store::CheckpointStore;
use work::RunningWork;

/// Time after which a turn's capture goes on in the background.
pub const CAPTURE_WAIT: Duration = Duration::from_secs(2);

/// Captures that work at the same time, each on a blocking thread. Others wait.
const MAX_CAPTURES: usize = 4;
/// Restores and forks that work at the same time. They have no budget, so captures never wait for
/// them.
const MAX_RESTORES: usize = 2;
/// Diffs, patches and reads in progress.
const MAX_READS: usize = 8;
/// End of a diff that is the present workspace.
const NOW: &str = "now";

/// Checkpoints of all sessions.
///
/// Bound: 4 captures, and 2 restores and forks, work. Others wait. 8 diffs, patches and reads. When
/// full: further ones get [`CheckpointError::Busy`].
#[derive(Debug)]
pub struct Checkpoints {
    dirs: WorkspaceDirs,
    /// Parent of the sessions' stores.
    root: PathBuf,
    config: CheckpointsConfig,
    writer: WorkspaceWriter,
    /// Orders the work on a store.
    locks: KeyedMutex,
    captures: Arc<Semaphore>,
    restores: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    running: Mutex<RunningWork>,
    /// Cancelled at shutdown.
    closing: CancellationToken,
}

/// Names of the two ends of a diff: checkpoints, `start` or `now`.
#[derive(Debug, Clone)]
pub struct DiffRange {
    pub from: String,
    pub to: String,
    /// Path to which the diff is limited, with all below it.
    pub scope: InnerPath,
}

/// Request for a restore.
#[derive(Debug, Clone)]
pub struct RestoreRequest {
    /// Name of the checkpoint to go back to.
    pub of: String,
    /// Name of the new checkpoint.
    pub name: String,
    /// Name of the checkpoint that takes the restore back.
    pub before: String,
    pub scope: InnerPath,
}

/// End of a restore, with the checkpoints before and after it.
#[derive(Debug)]
pub struct CompletedRestore {
    /// Error if the restore ended early. Some files may be restored then.
    pub files: Result<RestoredFiles, CheckpointError>,
    /// Checkpoints that differ from the one before each.
    pub taken: Vec<TakenCheckpoint>,
}

impl Checkpoints {
    /// Returns the checkpoints below `root`, which need not exist.
    pub fn new(
        dirs: WorkspaceDirs,
        root: PathBuf,
        config: CheckpointsConfig,
        writer: WorkspaceWriter,
    ) -> Arc<Checkpoints> {
        Arc::new(Checkpoints {
            dirs,
            root,
            config,
            writer,
            locks: KeyedMutex::default(),
            captures: Arc::new(Semaphore::new(MAX_CAPTURES)),
            restores: Arc::new(Semaphore::new(MAX_RESTORES)),
            running: Mutex::default(),
            reads: Arc::new(Semaphore::new(MAX_READS)),
            closing: CancellationToken::new(),
        })
    }

    /// Returns checkpoints with the default limits, of workspaces in `dir`.
    #[cfg(test)]
    pub(crate) fn below(dir: &std::path::Path) -> Arc<Checkpoints> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let dirs = WorkspaceDirs { root: dir.join("workspaces"), shared: None, uid, gid };
        let files = crate::files::WorkspaceFiles::open(dirs.clone(), dir.join("uploads"));
        let config = crate::config::Config::with_data_dir(dir).checkpoints;
        Checkpoints::new(dirs, dir.join("checkpoints"), config, files.expect("the directory is created").writer())
    }

    /// Checks that sessions have checkpoints.
    ///
    /// # Errors
    /// [`CheckpointError::NotOffered`] with the reason.
    pub fn check_offered(&self) -> Result<(), CheckpointError> {
        match (self.dirs.shared.is_some(), self.config.enabled) {
            (true, _) => Err(CheckpointError::NotOffered("all sessions share one workspace")),
            (_, false) => Err(CheckpointError::NotOffered("the configuration has `checkpoints.enabled = false`")),
            (false, true) => Ok(()),
        }
    }

    /// Ends captures and restores in progress. Later ones fail.
    pub fn cancel_all(&self) {
        self.closing.cancel();
    }

    /// Captures the workspace before the first turn. A session with a checkpoint is left alone. Of
    /// an empty workspace, only that it was empty is recorded.
    ///
    /// # Errors
    /// [`CheckpointError`]. It is logged too. After the first turn, the start stays unknown.
    pub async fn capture_start(self: &Arc<Self>, session: SessionId) -> Result<(), CheckpointError> {
        if self.check_offered().is_err() {
            return Ok(());
        }
        self.work(&self.captures, session, move |work| {
            let captured = work.capture_start();
            captured.inspect_err(|error| warn!(%session, "the workspace before the first turn: {error}"))
        })
        .await
    }

    /// Captures the workspace at the end of a turn. A repeated call returns the first checkpoint.
    ///
    /// The capture is completed even if the future is dropped. `may_be_late` marks the checkpoint
    /// as partial in any case.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub async fn capture(
        self: &Arc<Self>,
        session: SessionId,
        name: String,
        kind: CheckpointKind,
        may_be_late: bool,
    ) -> Result<TakenCheckpoint, CheckpointError> {
        self.check_offered()?;
        self.work(&self.captures, session, move |work| {
            let mut work = work;
            if may_be_late {
                work.is_late = Box::new(|| true);
            }
            let mut store = work.open_store()?;
            let (taken, _) = work.take(&mut store, &CaptureRequest { name: &name, kind, of: None })?;
            // After a restore whose server died, the way back is kept.
            work.apply_limits(store, &[name_before_restore(&name)]);
            Ok(taken)
        })
        .await
    }

    /// Restores a checkpoint, between two new checkpoints. The limits of the store apply once, at
    /// the end, and spare the checkpoint before.
    ///
    /// # Errors
    /// [`CheckpointError`] if no file was changed. The checkpoint before the restore is kept.
    pub async fn restore(
        self: &Arc<Self>,
        session: SessionId,
        request: RestoreRequest,
    ) -> Result<CompletedRestore, CheckpointError> {
        self.check_offered()?;
        self.work(&self.restores, session, move |work| {
            let RestoreRequest { of, name, before, scope } = &request;
            let mut store = work.open_store()?;
            store.point(of)?;
            // Without the limits of the store, which could drop the wanted checkpoint.
            let kind = CheckpointKind::BeforeRestore;
            let request = CaptureRequest { name: before, kind, of: None };
            let (taken_before, is_complete) = work.take(&mut store, &request)?;
            if !is_complete {
                return Err(CheckpointError::OverBudget);
            }
            let mut taken = vec![taken_before];
            let target = RestoreTarget { writer: &work.checkpoints.writer, session };
            let mut files = RestorePlan::new(&store, of, scope)?.run(&target, work.context());
            let request = CaptureRequest { name, kind: CheckpointKind::Restore, of: Some(of) };
            match work.take(&mut store, &request) {
                Ok((after, _)) => taken.push(after),
                Err(error) if files.is_ok() => files = Err(error),
                Err(_) => {}
            }
            work.apply_limits(store, std::slice::from_ref(before));
            Ok(CompletedRestore { files, taken })
        })
        .await
    }

    /// Lists the checkpoints, oldest first.
    ///
    /// # Errors
    /// The store cannot be read. Damage is part of the list.
    pub async fn list(self: &Arc<Self>, session: SessionId) -> Result<CheckpointList, CheckpointError> {
        let dir = self.store_dir(session);
        let limit_bytes = self.config.disk.as_u64();
        self.read(move |_| CheckpointList::of(&CheckpointStore::open(&dir)?, limit_bytes)).await
    }

    /// Reads a file of a checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::NoFile`], or another one.
    pub async fn file(
        self: &Arc<Self>,
        session: SessionId,
        checkpoint: String,
        path: InnerPath,
    ) -> Result<Vec<u8>, CheckpointError> {
        self.check_offered()?;
        let dir = self.store_dir(session);
        self.read(move |_| {
            let store = CheckpointStore::open(&dir)?;
            let point = store.point(&checkpoint)?;
            let (tree, left_out) = (store.tree_at(point)?, store.left_out_at(point));
            let file = tree.get(&path).filter(|_| !left_out.contains(&path));
            let file = file.ok_or(CheckpointError::NoFile { checkpoint, path })?;
            store.blobs.content(&file.hash)
        })
        .await
    }

    /// Returns what changed, with the differences of texts.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub async fn diff(
        self: &Arc<Self>,
        session: SessionId,
        range: DiffRange,
    ) -> Result<WorkspaceDiff, CheckpointError> {
        self.check_offered()?;
        self.read(move |checkpoints| {
            let compared = checkpoints.compare(session, &range)?;
            WorkspaceDiff::of(&compared, range)
        })
        .await
    }

    /// Returns what changed as a patch in git's format. The stream fails if a file cannot be read.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub async fn patch(
        self: &Arc<Self>,
        session: SessionId,
        range: DiffRange,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, CheckpointError> {
        self.check_offered()?;
        let permit = self.reads.clone().try_acquire_owned().map_err(|_| CheckpointError::Busy(MAX_READS))?;
        let compared = self.read(move |checkpoints| checkpoints.compare(session, &range)).await?;
        let (mut pipe, stream) = pipe();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let reader = compared.reader();
            let written = compared
                .files
                .iter()
                .try_for_each(|change| write_patch(change, &reader, &mut pipe).map_err(io::Error::other));
            pipe.finish(written);
        });
        Ok(stream.boxed())
    }

    /// Removes all checkpoints of a session whose workspace is gone. Ends its capture in progress.
    ///
    /// # Errors
    /// The store cannot be removed.
    pub async fn purge(self: &Arc<Self>, session: SessionId) -> io::Result<()> {
        self.cancel(session);
        let lock = self.locks.of(session);
        let _no_capture = lock.lock().await;
        remove_tree::remove_trees(vec![self.store_dir(session)]).await
    }

    fn store_dir(&self, session: SessionId) -> PathBuf {
        self.root.join(session.to_string())
    }

    /// Compares two points of a session's history.
    fn compare(&self, session: SessionId, range: &DiffRange) -> Result<Compared, CheckpointError> {
        let store = CheckpointStore::open(&self.store_dir(session))?;
        let from = store.point(&range.from)?;
        if range.to != NOW {
            let to = store.point(&range.to)?;
            return Compared::checkpoints(store, (from, to), &range.scope);
        }
        let tree = open_workspace(&self.dirs, session)?;
        let is_cancelled = || self.closing.is_cancelled();
        let context =
            CaptureContext { tree: &tree, config: &self.config, is_cancelled: &is_cancelled, is_late: &|| false };
        Compared::now(store, from, &range.scope, context)
    }
}

/// Beginning of the name of a checkpoint after a restore.
pub(crate) const RESTORE: &str = "restore-";

/// Returns the name of the checkpoint that takes the restore `name` back.
pub fn name_before_restore(name: &str) -> String {
    format!("before-{name}")
}

fn open_workspace(dirs: &WorkspaceDirs, session: SessionId) -> Result<WorkspaceTree, CheckpointError> {
    let opened = WorkspaceTree::open(&dirs.root.join(session.to_string()), None);
    opened.map_err(|e| CheckpointError::Workspace(FileError::of(&InnerPath::default(), e)))
}
