//! Checkpoints and differences, as clients see them.

use std::time::{Duration, Instant};

use greenroom_protocol::{
    ObservationKind,
    checkpoint::{
        CHANGED_FILES_LIMIT, ChangedFile, CheckpointKind, LEFT_OUT_LIMIT, LeftOutEntry, WorkspaceChanges,
        WorkspaceCheckpoint,
    },
    tool::FileChangeKind,
};

use super::{
    DiffRange,
    capture::name_before,
    compare::{Compared, ContentReader, FileChange, drop_unknown, file_changes},
    delta::{CheckpointRecord, PathChanges},
    error::CheckpointError,
    store::{CheckpointStore, HistoryPoint},
};
use crate::files::{InnerPath, PathText};

/// Files of one diff.
const DIFF_FILES: usize = 1_000;
/// Size of all hunks of one diff, bytes.
const DIFF_BYTES: usize = 1 << 20;
/// Time after which a diff lists further files without their differences.
const DIFF_TIME: Duration = Duration::from_secs(20);
/// Size of the paths that one observation lists, bytes.
const PATHS_BYTES: usize = 16 << 10;

/// Checkpoint that was just taken.
#[derive(Debug)]
pub struct TakenCheckpoint {
    checkpoint: WorkspaceCheckpoint,
    /// `None` if nothing changed since the checkpoint before.
    changes: Option<WorkspaceChanges>,
}

/// Checkpoints of a session.
#[derive(Debug)]
pub struct CheckpointList {
    /// Oldest first.
    pub items: Vec<ListedCheckpoint>,
    pub stored_bytes: u64,
    pub limit_bytes: u64,
    /// Description of a damaged store.
    pub damage: Option<String>,
}

/// Checkpoint of a list.
#[derive(Debug)]
pub struct ListedCheckpoint {
    pub checkpoint: String,
    pub kind: CheckpointKind,
    pub of: Option<String>,
    pub at: String,
    pub files: u64,
    pub bytes: u64,
    pub partial: bool,
    pub left_out: Vec<LeftOutEntry>,
    pub left_out_more: u64,
    pub head: Option<String>,
}

/// Difference between two points of a workspace's history.
#[derive(Debug)]
pub struct WorkspaceDiff {
    pub from: String,
    pub to: String,
    pub files: Vec<DiffedFile>,
    /// Number of further files.
    pub more: u64,
    /// Added lines of the listed files.
    pub added: u64,
    /// Removed lines of the listed files.
    pub removed: u64,
    pub left_out: Vec<LeftOutEntry>,
    pub left_out_more: u64,
}

/// Changed file with its difference.
#[derive(Debug)]
pub struct DiffedFile {
    pub path: PathText,
    pub change: FileChangeKind,
    /// Old path of a moved file.
    pub from: Option<PathText>,
    /// Modes as git writes them.
    pub old_mode: Option<&'static str>,
    pub new_mode: Option<&'static str>,
    pub binary: bool,
    pub added: Option<u64>,
    pub removed: Option<u64>,
    pub old_bytes: Option<u64>,
    pub new_bytes: Option<u64>,
    /// Hunks of a unified diff. `None` for a binary file, and if `truncated` is set.
    pub diff: Option<String>,
    /// Set if the answer has no room for the hunks.
    pub truncated: bool,
}

impl TakenCheckpoint {
    pub(super) fn of(store: &CheckpointStore, record: &CheckpointRecord, changes: PathChanges) -> TakenCheckpoint {
        let named = record.left_out.len().min(LEFT_OUT_LIMIT);
        let checkpoint = WorkspaceCheckpoint {
            checkpoint: record.name.clone(),
            checkpoint_kind: record.kind,
            of: record.of.clone(),
            files: record.files,
            bytes: record.bytes,
            partial: record.partial,
            left_out: record.left_out[..named].to_vec(),
            left_out_more: record.left_out_more + (record.left_out.len() - named) as u64,
        };
        let mut changes = changes;
        let before = record.parent.map_or(HistoryPoint::Empty, HistoryPoint::Checkpoint);
        drop_unknown(&mut changes, &store.left_out_at(before), &record.left_out_paths);
        let reader = ContentReader::of_store(&store.blobs);
        let files = file_changes(changes, &InnerPath::default(), &reader);
        let changes = (!files.is_empty()).then(|| {
            let mut changes = WorkspaceChanges {
                checkpoint: record.name.clone(),
                since: name_before(store, record).to_owned(),
                files: Vec::new(),
                more: 0,
                added: 0,
                removed: 0,
            };
            let mut bytes = 0;
            for change in &files {
                bytes += [&change.old, &change.new]
                    .into_iter()
                    .flatten()
                    .map(|side| side.path.as_bytes().len())
                    .sum::<usize>();
                if changes.files.len() >= CHANGED_FILES_LIMIT || bytes > PATHS_BYTES {
                    changes.more += 1;
                } else {
                    let file = changed_file(change, &reader);
                    changes.added += file.added.unwrap_or(0);
                    changes.removed += file.removed.unwrap_or(0);
                    changes.files.push(file);
                }
            }
            changes
        });
        TakenCheckpoint { checkpoint, changes }
    }

    /// Returns the observations for the journal. A turn without changes has none.
    pub fn observations(self) -> Vec<ObservationKind> {
        let is_restore = self.checkpoint.checkpoint_kind == CheckpointKind::Restore;
        let checkpoint = (is_restore || self.changes.is_some()).then_some(self.checkpoint);
        let changes = self.changes.map(ObservationKind::Changes);
        checkpoint.map(ObservationKind::Checkpoint).into_iter().chain(changes).collect()
    }

    /// Returns the name of the checkpoint.
    pub fn name(&self) -> &str {
        &self.checkpoint.checkpoint
    }
}

fn changed_file(change: &FileChange, reader: &ContentReader<'_>) -> ChangedFile {
    let from = change.old.as_ref().map(|old| &old.path).filter(|_| change.kind() == FileChangeKind::Moved);
    let path = change.path();
    let encoded = path.text().encoded || from.is_some_and(|from| from.text().encoded);
    let text = |path: &InnerPath| if encoded { path.encoded_text() } else { path.text().text };
    // A damaged content has no counts. Its checkpoint is complete all the same.
    let counts = reader.line_diff(change).ok().flatten().map(|diff| (diff.added, diff.removed));
    let (added, removed) = counts.unzip();
    ChangedFile { path: text(&path), encoded, change: change.kind(), from: from.map(text), added, removed }
}

impl CheckpointList {
    pub(super) fn of(store: &CheckpointStore, limit_bytes: u64) -> Result<CheckpointList, CheckpointError> {
        let items = store.records().cloned().map(|record| ListedCheckpoint {
            checkpoint: record.name,
            kind: record.kind,
            of: record.of,
            at: record.at,
            files: record.files,
            bytes: record.bytes,
            partial: record.partial,
            left_out: record.left_out,
            left_out_more: record.left_out_more,
            head: record.git.map(|git| git.head),
        });
        let items = items.collect();
        Ok(CheckpointList { items, stored_bytes: store.stored_bytes()?, limit_bytes, damage: store.damage() })
    }
}

impl WorkspaceDiff {
    pub(super) fn of(compared: &Compared, range: DiffRange) -> Result<WorkspaceDiff, CheckpointError> {
        let DiffRange { from, to, .. } = range;
        let listed = compared.files.len().min(DIFF_FILES);
        let mut diff = WorkspaceDiff {
            from,
            to,
            files: Vec::with_capacity(listed),
            more: (compared.files.len() - listed) as u64,
            added: 0,
            removed: 0,
            left_out: compared.left_out.clone(),
            left_out_more: compared.left_out_more,
        };
        let (reader, mut bytes) = (compared.reader(), 0);
        let deadline = Instant::now() + DIFF_TIME;
        for change in &compared.files[..listed] {
            let room = if Instant::now() < deadline { DiffRoom::Bytes(DIFF_BYTES - bytes) } else { DiffRoom::NoTime };
            let file = diffed_file(change, &reader, room)?;
            bytes += file.diff.as_ref().map_or(0, String::len);
            diff.added += file.added.unwrap_or(0);
            diff.removed += file.removed.unwrap_or(0);
            diff.files.push(file);
        }
        Ok(diff)
    }
}

/// Room for the hunks of one file.
enum DiffRoom {
    Bytes(usize),
    NoTime,
}

fn diffed_file(change: &FileChange, reader: &ContentReader<'_>, room: DiffRoom) -> Result<DiffedFile, CheckpointError> {
    let (old, new) = (change.old.as_ref(), change.new.as_ref());
    let (lines, room, has_time) = match room {
        DiffRoom::Bytes(room) => (reader.line_diff(change)?, room, true),
        DiffRoom::NoTime => (None, 0, false),
    };
    let (added, removed) = lines.as_ref().map(|diff| (diff.added, diff.removed)).unzip();
    let binary = lines.is_none() && has_time;
    let text = lines.map(|diff| String::from_utf8_lossy(&diff.hunks).into_owned());
    let diff = text.filter(|text| text.len() <= room);
    Ok(DiffedFile {
        path: change.path().text(),
        change: change.kind(),
        from: old.filter(|_| change.kind() == FileChangeKind::Moved).map(|old| old.path.text()),
        old_mode: old.map(|side| side.file.mode.git_mode()),
        new_mode: new.map(|side| side.file.mode.git_mode()),
        binary,
        added,
        removed,
        old_bytes: old.map(|side| side.file.size),
        new_bytes: new.map(|side| side.file.size),
        truncated: !binary && diff.is_none(),
        diff,
    })
}
