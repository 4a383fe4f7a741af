//! Fork: the first checkpoint and the files of a session that begins with another session's files.
//!
//! The marker `forking` exists from the first write until the workspace has all files. A repeated
//! call continues while the marker exists, and leaves a completed fork alone.

use std::{fs, io, sync::Arc};

use greenroom_protocol::checkpoint::CheckpointKind;

use super::{
    Checkpoints, NOW,
    capture::{CaptureContext, CaptureRequest, capture},
    delta::{CheckpointRecord, changes_between},
    entry::CaptureTree,
    error::CheckpointError,
    open_workspace,
    pack::PackWriter,
    restore::new_entry,
    sealed::{create_new, remove_if_present},
    store::{CheckpointStore, INDEX, START},
    work::CaptureWork,
};
use crate::{
    clock,
    files::{FileError, FileTarget, InnerPath},
    store::SessionId,
};

/// Marker in the store of an unfinished fork.
const FORKING: &str = "forking";

impl Checkpoints {
    /// Gives the new session `to` the files of a checkpoint of `from`, in its workspace and as its
    /// only checkpoint, `start`. The checkpoint `now` is the present workspace of `from`.
    ///
    /// Belongs before the first start of the sandbox of `to`. The workspace is created and must be
    /// empty. A repeated call after a failure or a kill completes the fork. A completed fork is
    /// left alone. The owner of the files is that of the workspace.
    ///
    /// # Errors
    /// [`CheckpointError`]: the checkpoint is missing or damaged, the workspace of `to` is not
    /// empty, or the disk is full.
    pub async fn fork(
        self: &Arc<Self>,
        from: SessionId,
        checkpoint: &str,
        to: SessionId,
    ) -> Result<(), CheckpointError> {
        self.check_offered()?;
        let checkpoint = checkpoint.to_owned();
        // No capture and no restore of `from` meanwhile. Two forks never wait for each other: a new
        // session is not yet the source of one.
        let source = self.locks.of(from).lock_owned().await;
        let dirs = self.dirs.clone();
        let created = tokio::task::spawn_blocking(move || dirs.dir_of(to)).await;
        created.unwrap_or_else(|e| Err(io::Error::other(e)))?;
        self.work(&self.restores, to, move |work| {
            let _until_done = source;
            work.fork(from, &checkpoint)
        })
        .await
    }
}

impl CaptureWork {
    fn fork(&self, from: SessionId, checkpoint: &str) -> Result<(), CheckpointError> {
        let mut store = self.open_store()?;
        let marker = store.dir.join(FORKING);
        let is_begun = marker.try_exists()?;
        let has_start = store.records().any(|record| record.name == START);
        if has_start && !is_begun {
            return Ok(());
        }
        if !has_start {
            if !self.tree.is_empty() {
                return Err(FileError::NotEmpty(InnerPath::default()).into());
            }
            store.create_dir()?;
            create_new(&marker)?.sync_all()?;
            if checkpoint == NOW {
                self.capture_source(from, &mut store)?;
            } else {
                self.copy_checkpoint(from, checkpoint, &mut store)?;
            }
        }
        self.write_files(&store)?;
        Ok(fs::remove_file(&marker)?)
    }

    /// Captures the present workspace of `from` as the first checkpoint.
    fn capture_source(&self, from: SessionId, store: &mut CheckpointStore) -> Result<(), CheckpointError> {
        let tree = open_workspace(&self.checkpoints.dirs, from)?;
        let request = CaptureRequest { name: START, kind: CheckpointKind::Start, of: None };
        capture(store, &request, CaptureContext { tree: &tree, ..self.context() })?;
        // The stamps are those of the other workspace.
        Ok(remove_if_present(&store.dir.join(INDEX))?)
    }

    /// Copies a checkpoint of `from`, with its contents, as the first checkpoint.
    fn copy_checkpoint(
        &self,
        from: SessionId,
        checkpoint: &str,
        store: &mut CheckpointStore,
    ) -> Result<(), CheckpointError> {
        let source = CheckpointStore::open(&self.checkpoints.store_dir(from))?;
        let point = source.point(checkpoint)?;
        let mut tree = source.tree_at(point)?;
        let left_out_paths = source.left_out_at(point);
        tree.retain(|path, _| !left_out_paths.contains(path));
        let number = store.next_number();
        let mut pack = PackWriter::new(&store.dir, self.checkpoints.config.disk);
        for file in tree.values() {
            self.check_cancelled()?;
            if !pack.has(&file.hash) {
                pack.add(file.hash, &source.blobs.content(&file.hash)?)?;
            }
        }
        if let Some(finished) = pack.finish(&store.dir, number)? {
            store.blobs.add(finished)?;
        }
        let copied = source.records().find(|record| record.name == checkpoint);
        let record = CheckpointRecord {
            number,
            parent: None,
            name: START.to_owned(),
            kind: CheckpointKind::Start,
            of: None,
            at: clock::now(),
            files: tree.len() as u64,
            bytes: tree.values().map(|file| file.size).sum(),
            partial: copied.is_some_and(|record| record.partial),
            left_out: copied.map(|record| record.left_out.clone()).unwrap_or_default(),
            left_out_more: copied.map_or(0, |record| record.left_out_more),
            left_out_paths,
            git: copied.and_then(|record| record.git.clone()),
        };
        store.commit(record, &changes_between(&CaptureTree::new(), &tree))
    }

    /// Writes all files of the first checkpoint. Each content is checked before.
    fn write_files(&self, store: &CheckpointStore) -> Result<(), CheckpointError> {
        let writer = &self.checkpoints.writer;
        for (path, file) in store.tree_at(store.point(START)?)? {
            self.check_cancelled()?;
            let content = store.blobs.content(&file.hash)?;
            let new = new_entry(&file, &content);
            let target = FileTarget { session: self.session, path };
            match writer.write(&self.tree, &target, new, None) {
                // An earlier call has written it, perhaps in part.
                Err(FileError::ChangedMeanwhile(_)) => writer.write(&self.tree, &target, new, Some(&|_, _| true))?,
                written => written?,
            }
        }
        Ok(writer.sync(&self.tree)?)
    }

    fn check_cancelled(&self) -> Result<(), CheckpointError> {
        if (self.is_cancelled)() { Err(CheckpointError::Cancelled) } else { Ok(()) }
    }
}
