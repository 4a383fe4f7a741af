//! Deltas: what a checkpoint changed in the one before it. A checkpoint is the sum of the deltas up
//! to its own.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io::{self, Read, Write},
    path::Path,
};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use greenroom_protocol::checkpoint::{CheckpointKind, LeftOutEntry};
use serde::{Deserialize, Serialize};

use super::{
    entry::{CaptureTree, CapturedFile, IndexedFile},
    error::CheckpointError,
    left_out::LeftOutPaths,
    sealed::{Durability, read_sealed, remove_if_present, write_sealed},
};
use crate::files::InnerPath;

/// Ending of a delta's name.
pub(super) const DELTA: &str = "delta";

/// Description of a checkpoint. First line of its delta, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CheckpointRecord {
    pub number: u64,
    /// Number of the checkpoint before. `None`: the delta has all files.
    pub parent: Option<u64>,
    pub name: String,
    pub kind: CheckpointKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Time of the capture, RFC 3339.
    pub at: String,
    pub files: u64,
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutEntry>,
    #[serde(default)]
    pub left_out_more: u64,
    /// Paths that may be in the workspace beside the files of the checkpoint, complete.
    #[serde(default, skip_serializing_if = "LeftOutPaths::is_empty")]
    pub left_out_paths: LeftOutPaths,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitHead>,
}

/// `HEAD` and refs of the workspace's own `.git`, as texts. Recorded, never acted on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct GitHead {
    pub head: String,
    #[serde(default)]
    pub refs: BTreeMap<String, String>,
}

/// Change of one path. Never equal on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathChange {
    pub old: Option<CapturedFile>,
    pub new: Option<CapturedFile>,
}

/// Changed paths in their order.
pub(super) type PathChanges = BTreeMap<InnerPath, PathChange>;

/// Delta of a checkpoint, with its changes still compressed.
#[derive(Debug)]
pub(super) struct DeltaFile {
    pub record: CheckpointRecord,
    packed: Vec<u8>,
}

pub(super) fn delta_name(number: u64) -> String {
    format!("{number:08}.{DELTA}")
}

impl DeltaFile {
    /// Reads a delta. `None` if the file is damaged.
    pub(super) fn read(dir: &Path, number: u64) -> io::Result<Option<DeltaFile>> {
        let Some(mut body) = read_sealed(&dir.join(delta_name(number)))? else { return Ok(None) };
        let Some(end) = body.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let packed = body.split_off(end + 1);
        let record: Option<CheckpointRecord> = serde_json::from_slice(&body).ok();
        Ok(record.filter(|record| record.number == number).map(|record| DeltaFile { record, packed }))
    }

    pub(super) fn changes(&self) -> Result<PathChanges, CheckpointError> {
        let damaged = || CheckpointError::Damaged(format!("`{}` has no valid list", delta_name(self.record.number)));
        let mut text = Vec::new();
        DeflateDecoder::new(&self.packed[..]).read_to_end(&mut text).map_err(|_| damaged())?;
        let mut changes = PathChanges::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let (path, old, new) = serde_json::from_slice(line).map_err(|_| damaged())?;
            changes.insert(path, PathChange { old, new });
        }
        Ok(changes)
    }
}

/// Writes a delta under its name, in one step.
pub(super) fn write_delta(dir: &Path, record: &CheckpointRecord, changes: &PathChanges) -> io::Result<()> {
    let mut body = serde_json::to_vec(record)?;
    body.push(b'\n');
    let mut encoder = DeflateEncoder::new(body, Compression::fast());
    for (path, PathChange { old, new }) in changes {
        let mut line = serde_json::to_vec(&(path, old, new))?;
        line.push(b'\n');
        encoder.write_all(&line)?;
    }
    write_sealed(dir, &delta_name(record.number), &encoder.finish()?, Durability::Synced)
}

pub(super) fn remove_delta(dir: &Path, number: u64) -> io::Result<()> {
    remove_if_present(&dir.join(delta_name(number)))
}

/// Returns what leads from some files to others.
pub(super) fn changes_between<F: Copy + Into<CapturedFile>>(
    old: &BTreeMap<InnerPath, F>,
    new: &BTreeMap<InnerPath, F>,
) -> PathChanges {
    let gone = old.iter().filter(|(path, _)| !new.contains_key(path));
    let mut changes: PathChanges =
        gone.map(|(path, file)| (path.clone(), PathChange { old: Some((*file).into()), new: None })).collect();
    for (path, file) in new {
        let (before, after) = (old.get(path).map(|file| (*file).into()), (*file).into());
        if before != Some(after) {
            changes.insert(path.clone(), PathChange { old: before, new: Some(after) });
        }
    }
    changes
}

impl From<IndexedFile> for CapturedFile {
    fn from(indexed: IndexedFile) -> CapturedFile {
        indexed.file
    }
}

/// Adds the changes that follow `changes`.
pub(super) fn compose(changes: &mut PathChanges, later: PathChanges) {
    for (path, change) in later {
        match changes.entry(path) {
            Entry::Vacant(entry) => {
                entry.insert(change);
            }
            Entry::Occupied(mut entry) if entry.get().old != change.new => entry.get_mut().new = change.new,
            Entry::Occupied(entry) => {
                entry.remove();
            }
        }
    }
}

/// Returns the changes that take `changes` back.
pub(super) fn inverse(changes: PathChanges) -> PathChanges {
    changes.into_iter().map(|(path, PathChange { old, new })| (path, PathChange { old: new, new: old })).collect()
}

pub(super) fn apply(tree: &mut CaptureTree, changes: &PathChanges) {
    for (path, change) in changes {
        match change.new {
            Some(file) => tree.insert(path.clone(), file),
            None => tree.remove(path),
        };
    }
}
