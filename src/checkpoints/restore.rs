//! Restore: makes the captured files of a workspace those of a checkpoint.
//!
//! Entries that the checkpoint or the present workspace leaves out are not touched, and neither is
//! the workspace's own `.git`. A file is changed only if its present content is in the store.

use super::{
    capture::CaptureContext,
    compare::{ChangeSide, ContentReader},
    entry::{CaptureMode, CaptureTree, CapturedFile, ContentHash, FileIndex, FileStamp, IndexedFile},
    error::CheckpointError,
    left_out::LeftOutPaths,
    store::CheckpointStore,
};
use crate::{
    files::{FileError, FileTarget, FoundEntry, InnerPath, NewEntry, PathText, WorkspaceTree, WorkspaceWriter},
    store::SessionId,
};

/// Failed paths that a restore names.
const FAILED_NAMED: usize = 100;

/// Result of a restore.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RestoredFiles {
    /// Number of written files.
    pub restored: u64,
    /// Number of removed files.
    pub removed: u64,
    /// Paths that could not be restored, at most 100.
    pub failed: Vec<FailedPath>,
}

/// Path that could not be restored, with the reason.
#[derive(Debug, PartialEq, Eq)]
pub struct FailedPath {
    pub path: PathText,
    pub reason: String,
}

/// Writer of a session's workspace.
pub(super) struct RestoreTarget<'a> {
    pub writer: &'a WorkspaceWriter,
    pub session: SessionId,
}

/// Files of a checkpoint that a restore writes, and the files that it expects to find.
pub(super) struct RestorePlan<'a> {
    store: &'a CheckpointStore,
    name: &'a str,
    wanted: CaptureTree,
    wanted_left_out: LeftOutPaths,
    /// Files of the newest checkpoint, which was taken for this restore.
    present: FileIndex,
    present_left_out: LeftOutPaths,
}

impl<'a> RestorePlan<'a> {
    /// Plans to go back to the checkpoint `name` at `scope`, with all below it.
    ///
    /// # Errors
    /// The checkpoint is not kept or is damaged, or `scope` has no file.
    pub(super) fn new(
        store: &'a CheckpointStore,
        name: &'a str,
        scope: &InnerPath,
    ) -> Result<RestorePlan<'a>, CheckpointError> {
        let point = store.point(name)?;
        let mut wanted = store.tree_at(point)?;
        let present = store.latest_index();
        let mut present = present.ok_or_else(|| CheckpointError::Damaged(store.damage().unwrap_or_default()))?;
        let (wanted_left_out, present_left_out) = (store.left_out_at(point), store.left_out_at(store.now()));
        wanted.retain(|path, _| scope.has_inside(path));
        present.retain(|path, _| scope.has_inside(path));
        if !scope.is_root() && wanted.is_empty() && present.is_empty() {
            return Err(CheckpointError::NoFile { checkpoint: name.to_owned(), path: scope.clone() });
        }
        Ok(RestorePlan { store, name, wanted, wanted_left_out, present, present_left_out })
    }

    /// Removes and writes what differs.
    ///
    /// # Errors
    /// The disk is full, or the restore is cancelled. The failure of a path does not end it.
    pub(super) fn run(
        &self,
        target: &RestoreTarget<'_>,
        context: CaptureContext<'_>,
    ) -> Result<RestoredFiles, CheckpointError> {
        let RestoreTarget { writer, session } = *target;
        let mut result = RestoredFiles::default();
        // Removals first: a file may have to make way for a directory.
        for (path, present) in &self.present {
            if self.wanted.contains_key(path) || self.wanted_left_out.may_have(path) || self.is_unseen(path) {
                continue;
            }
            check_cancelled(context)?;
            let target = FileTarget { session, path: path.clone() };
            let removed = writer.remove(context.tree, &target, &|entry, found| is_as_captured(present, entry, found));
            result.removed += u64::from(removed.is_ok());
            result.note(path, removed.map_err(CheckpointError::from));
        }
        let reader = ContentReader::of_store(&self.store.blobs);
        for (path, wanted) in &self.wanted {
            let present = self.present.get(path);
            let is_same = present.is_some_and(|present| present.file == *wanted);
            if is_same && !self.is_unseen(path) {
                continue;
            }
            check_cancelled(context)?;
            if self.wanted_left_out.contains(path) {
                if !is_same {
                    result.failed(path, format!("checkpoint `{}` has left it out, so it stays as it is", self.name));
                }
                continue;
            }
            if is_same && present.is_some_and(|present| has_captured(context.tree, path, present)) {
                continue;
            }
            let target = FileTarget { session, path: path.clone() };
            let written = reader.content(&ChangeSide { path: path.clone(), file: *wanted }).and_then(|content| {
                let new = new_entry(wanted, &content);
                let check = |entry: &FoundEntry, found: Option<&FoundEntry>| {
                    present.is_some_and(|present| is_as_captured(present, entry, found))
                };
                let check: Option<crate::files::EntryCheck<'_>> = present.is_some().then_some(&check);
                Ok(writer.write(context.tree, &target, new, check)?)
            });
            match written {
                Err(error @ (CheckpointError::DiskFull | CheckpointError::Workspace(FileError::DiskFull(_)))) => {
                    return Err(error);
                }
                Err(CheckpointError::Workspace(FileError::ChangedMeanwhile(_))) if self.is_unseen(path) => {
                    let reason = "it is left out of checkpoints now, so it would be lost; move it away";
                    result.failed(path, reason.to_owned());
                }
                written => {
                    result.restored += u64::from(written.is_ok());
                    result.note(path, written);
                }
            }
        }
        writer.sync(context.tree)?;
        Ok(result)
    }

    /// Returns true if the present workspace has the path perhaps, and no checkpoint has it.
    fn is_unseen(&self, path: &InnerPath) -> bool {
        self.present_left_out.contains(path)
    }
}

pub(super) fn new_entry<'a>(file: &CapturedFile, content: &'a [u8]) -> NewEntry<'a> {
    match file.mode {
        CaptureMode::Link => NewEntry::Link { target: content },
        CaptureMode::Plain => NewEntry::File { content, is_executable: false },
        CaptureMode::Executable => NewEntry::File { content, is_executable: true },
    }
}

/// Returns true if the entry has the content that was captured. `found` is the same entry before it
/// lost its name, which was as captured then.
fn is_as_captured(captured: &IndexedFile, entry: &FoundEntry, found: Option<&FoundEntry>) -> bool {
    let stamp = FileStamp::of(entry.stat());
    let is_unchanged = match found {
        None => captured.stamp == Some(stamp),
        Some(found) => stamp.keeps_content_of(&FileStamp::of(found.stat())),
    };
    let has_hash = |content: Vec<u8>| ContentHash::of(&content) == captured.file.hash;
    CaptureMode::of(entry.stat()) == captured.file.mode
        && (is_unchanged || entry.read(captured.file.size + 1).is_ok_and(has_hash))
}

fn has_captured(tree: &WorkspaceTree, path: &InnerPath, captured: &IndexedFile) -> bool {
    tree.find(path).is_ok_and(|entry| is_as_captured(captured, &entry, None))
}

fn check_cancelled(context: CaptureContext<'_>) -> Result<(), CheckpointError> {
    if (context.is_cancelled)() { Err(CheckpointError::Cancelled) } else { Ok(()) }
}

impl RestoredFiles {
    fn note(&mut self, path: &InnerPath, outcome: Result<(), CheckpointError>) {
        if let Err(error) = outcome {
            self.failed(path, error.to_string());
        }
    }

    fn failed(&mut self, path: &InnerPath, reason: String) {
        if self.failed.len() < FAILED_NAMED {
            self.failed.push(FailedPath { path: path.text(), reason });
        }
    }
}
