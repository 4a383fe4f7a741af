//! Changed files between two points: creations, deletions, moves, and the counts of their lines.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use greenroom_protocol::{checkpoint::LeftOutEntry, tool::FileChangeKind};

use super::{
    capture::CaptureContext,
    delta::{CheckpointRecord, PathChange, PathChanges, changes_between},
    entry::{CapturedFile, without_stamps},
    error::CheckpointError,
    left_out::LeftOutPaths,
    line_diff::{LineDiff, is_binary, line_diff},
    moves::{FoundMove, find_moves},
    pack::BlobTable,
    scan::{LEFT_OUT_NAMED, WorkspaceScan},
    scratch::{ScratchContents, ScratchSink},
    store::{CheckpointStore, HistoryPoint},
};
use crate::files::InnerPath;

/// Longest time in which the present workspace must be read.
const NOW_TIMEOUT: Duration = Duration::from_secs(20);

/// File on one side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangeSide {
    pub path: InnerPath,
    pub file: CapturedFile,
}

/// Changed file. At least one side is set. The paths differ for a moved file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileChange {
    pub old: Option<ChangeSide>,
    pub new: Option<ChangeSide>,
    /// Share of the content that a moved file keeps, per cent.
    pub similarity: Option<u8>,
}

/// Changed files between two points, with what is needed to read them.
pub(super) struct Compared {
    pub files: Vec<FileChange>,
    store: CheckpointStore,
    /// Contents of the present workspace, if it is one side.
    scratch: Option<ScratchContents>,
    /// Entries that are not compared.
    pub left_out: Vec<LeftOutEntry>,
    pub left_out_more: u64,
}

/// Contents of both sides of a change.
pub(super) struct ChangeContents {
    pub old: Vec<u8>,
    pub new: Vec<u8>,
}

/// Source of the contents of both sides.
pub(super) struct ContentReader<'a> {
    blobs: &'a BlobTable,
    scratch: Option<&'a ScratchContents>,
}

impl FileChange {
    pub(super) fn path(&self) -> InnerPath {
        let side = self.new.as_ref().or(self.old.as_ref());
        side.map(|side| side.path.clone()).unwrap_or_default()
    }

    pub(super) fn kind(&self) -> FileChangeKind {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) if old.path != new.path => FileChangeKind::Moved,
            (Some(_), Some(_)) => FileChangeKind::Modified,
            (None, _) => FileChangeKind::Created,
            (_, None) => FileChangeKind::Deleted,
        }
    }

    /// Returns true if both sides have the same content.
    pub(super) fn keeps_content(&self) -> bool {
        matches!((&self.old, &self.new), (Some(old), Some(new)) if old.file.hash == new.file.hash)
    }
}

impl Compared {
    /// Compares two checkpoints.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`].
    pub(super) fn checkpoints(
        store: CheckpointStore,
        (from, to): (HistoryPoint, HistoryPoint),
        scope: &InnerPath,
    ) -> Result<Compared, CheckpointError> {
        let mut changes = store.changes(from, to)?;
        drop_unknown(&mut changes, &store.left_out_at(from), &store.left_out_at(to));
        let files = file_changes(changes, scope, &ContentReader::of_store(&store.blobs));
        let (left_out, left_out_more) = named_left_out([from, to].map(|point| store.record_at(point)));
        Ok(Compared { files, store, scratch: None, left_out, left_out_more })
    }

    /// Compares a checkpoint with the present workspace. What is compared is what was read once.
    ///
    /// # Errors
    /// [`CheckpointError::NowTooSlow`], [`CheckpointError::NowTooLarge`], or another one.
    pub(super) fn now(
        store: CheckpointStore,
        from: HistoryPoint,
        scope: &InnerPath,
        context: CaptureContext<'_>,
    ) -> Result<Compared, CheckpointError> {
        let CaptureContext { tree, config, is_cancelled, .. } = context;
        let known = store.latest_index();
        let known = known.ok_or_else(|| CheckpointError::Damaged(store.damage().unwrap_or_default()))?;
        let mut scratch = ScratchContents::new(store.dir.parent().unwrap_or(&store.dir), config.disk)?;
        let deadline = Instant::now() + NOW_TIMEOUT;
        let is_over = || Instant::now() > deadline;
        let scan = WorkspaceScan { tree, config, known: &known, is_cancelled: &|| is_over() || is_cancelled() };
        let scanned = match scan.run(&mut ScratchSink { blobs: &store.blobs, scratch: &mut scratch }) {
            Err(CheckpointError::Cancelled) if !is_cancelled() => {
                return Err(CheckpointError::NowTooSlow(NOW_TIMEOUT.as_secs()));
            }
            scanned => scanned?,
        };
        let mut changes = changes_between(&store.tree_at(from)?, &without_stamps(&scanned.index));
        drop_unknown(&mut changes, &store.left_out_at(from), &scanned.left_out_paths);
        let reader = ContentReader { blobs: &store.blobs, scratch: Some(&scratch) };
        let files = file_changes(changes, scope, &reader);
        let (left_out, left_out_more) = (scanned.left_out, scanned.left_out_more);
        Ok(Compared { files, store, scratch: Some(scratch), left_out, left_out_more })
    }

    pub(super) fn reader(&self) -> ContentReader<'_> {
        ContentReader { blobs: &self.store.blobs, scratch: self.scratch.as_ref() }
    }
}

impl CheckpointStore {
    pub(super) fn record_at(&self, point: HistoryPoint) -> Option<&CheckpointRecord> {
        match point {
            HistoryPoint::Empty => None,
            HistoryPoint::Checkpoint(number) => self.deltas.get(&number).map(|delta| &delta.record),
        }
    }

    /// Returns what a checkpoint leaves out.
    pub(super) fn left_out_at(&self, point: HistoryPoint) -> LeftOutPaths {
        self.record_at(point).map(|record| record.left_out_paths.clone()).unwrap_or_default()
    }
}

/// Drops creations and deletions of files that may be on the other side too.
pub(super) fn drop_unknown(changes: &mut PathChanges, from: &LeftOutPaths, to: &LeftOutPaths) {
    changes.retain(|path, change| match change {
        PathChange { old: None, .. } => !from.may_have(path),
        PathChange { new: None, .. } => !to.may_have(path),
        PathChange { old: Some(_), new: Some(_) } => true,
    });
}

/// Returns the first left-out entries of both points, and the number of the others.
fn named_left_out(records: [Option<&CheckpointRecord>; 2]) -> (Vec<LeftOutEntry>, u64) {
    let (mut named, mut seen, mut more) = (Vec::new(), HashSet::new(), 0);
    for record in records.into_iter().flatten() {
        more = record.left_out_more.max(more);
        named.extend(record.left_out.iter().filter(|entry| seen.insert(&entry.path)).cloned());
    }
    more += named.len().saturating_sub(LEFT_OUT_NAMED) as u64;
    named.truncate(LEFT_OUT_NAMED);
    (named, more)
}

/// Returns the changes of the files in `scope`, in the order of their paths.
///
/// A deleted and a created file with a similar content are one moved file. A change between file
/// and link is a deletion and a creation.
pub(super) fn file_changes(changes: PathChanges, scope: &InnerPath, reader: &ContentReader<'_>) -> Vec<FileChange> {
    let side = |path: &InnerPath, file: &CapturedFile| ChangeSide { path: path.clone(), file: *file };
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for (path, change) in &changes {
        match change {
            PathChange { old: Some(old), new: None } => gone.push(side(path, old)),
            PathChange { old: None, new: Some(file) } => new.push(side(path, file)),
            PathChange { old: Some(_), new: Some(_) } | PathChange { old: None, new: None } => {}
        }
    }
    let moves = find_moves(gone, new, reader);
    let moved_from: HashSet<&InnerPath> = moves.iter().map(|found| &found.from).collect();
    let moved_to: HashMap<&InnerPath, &FoundMove> = moves.iter().map(|found| (&found.to, found)).collect();
    let mut listed = Vec::new();
    for (path, PathChange { old, new }) in &changes {
        let (old, new) = (old.as_ref().map(|file| side(path, file)), new.as_ref().map(|file| side(path, file)));
        match (&old, &new) {
            (Some(_), None) if moved_from.contains(path) => {}
            (None, Some(_)) if let Some(FoundMove { from, similarity, .. }) = moved_to.get(path) => {
                let old = changes.get(from).and_then(|change| change.old.as_ref()).map(|file| side(from, file));
                listed.push(FileChange { old, new, similarity: Some(*similarity) });
            }
            (Some(before), Some(after)) if before.file.mode.is_link() != after.file.mode.is_link() => {
                listed.push(FileChange { old, new: None, similarity: None });
                listed.push(FileChange { old: None, new, similarity: None });
            }
            _ => listed.push(FileChange { old, new, similarity: None }),
        }
    }
    let in_scope = |side: &Option<ChangeSide>| side.as_ref().is_some_and(|side| scope.has_inside(&side.path));
    listed.retain(|change| in_scope(&change.old) || in_scope(&change.new));
    listed
}

impl ContentReader<'_> {
    /// Returns a reader of checkpoints alone.
    pub(super) fn of_store(blobs: &BlobTable) -> ContentReader<'_> {
        ContentReader { blobs, scratch: None }
    }

    /// Returns the contents of both sides. A missing side is empty.
    ///
    /// # Errors
    /// A content is damaged.
    pub(super) fn contents(&self, change: &FileChange) -> Result<ChangeContents, CheckpointError> {
        let of = |side: &Option<ChangeSide>| side.as_ref().map_or(Ok(Vec::new()), |side| self.content(side));
        Ok(ChangeContents { old: of(&change.old)?, new: of(&change.new)? })
    }

    pub(super) fn content(&self, side: &ChangeSide) -> Result<Vec<u8>, CheckpointError> {
        let hash = &side.file.hash;
        match self.scratch.map(|scratch| scratch.content(hash)).transpose()?.flatten() {
            Some(content) => Ok(content),
            None => self.blobs.content(hash),
        }
    }

    /// Returns the difference by lines. `None` for a binary file.
    pub(super) fn line_diff(&self, change: &FileChange) -> Result<Option<LineDiff>, CheckpointError> {
        if change.keeps_content() {
            let is_text = change.new.as_ref().map(|new| self.content(new)).transpose()?;
            return Ok(is_text.filter(|content| !is_binary(content)).map(|_| LineDiff::default()));
        }
        let ChangeContents { old, new } = self.contents(change)?;
        Ok((!is_binary(&old) && !is_binary(&new)).then(|| line_diff(&old, &new)))
    }
}
