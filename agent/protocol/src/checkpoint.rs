//! Parts of the observations `checkpoint` and `changes`.

use serde::{Deserialize, Serialize};

use crate::tool::FileChangeKind;

/// Limit on the files that one observation lists.
pub const CHANGED_FILES_LIMIT: usize = 100;
/// Limit on the left-out entries that one observation lists.
pub const LEFT_OUT_LIMIT: usize = 20;

/// Captured workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct WorkspaceCheckpoint {
    /// Id of the checkpoint. For the end of a turn, the turn's id.
    pub checkpoint: String,
    #[serde(rename = "kind")]
    pub checkpoint_kind: CheckpointKind,
    /// Checkpoint that a restore went back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Number of captured files.
    pub files: u64,
    /// Size of the captured files.
    pub bytes: u64,
    /// The capture took longer than 2 s, or a server died during it. Later changes may be part of
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Entries of the workspace that are not part of the checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutEntry>,
    /// Number of further such entries, which `left_out` does not list.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub left_out_more: u64,
}

/// Cause of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// Workspace before the first turn.
    Start,
    /// End of a turn.
    Turn,
    /// End of a restore.
    Restore,
    /// Workspace before a restore.
    BeforeRestore,
}

/// Entry of the workspace that a checkpoint does not contain. A directory stands for its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct LeftOutEntry {
    pub path: String,
    /// True if `path` is percent-encoded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encoded: bool,
    pub reason: LeftOutReason,
}

/// Reason why a checkpoint does not contain an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum LeftOutReason {
    /// A `.gitignore` file or the configuration names it.
    Ignored,
    TooLarge,
    /// Device, FIFO or socket.
    Special,
    Unreadable,
    /// The workspace has too many files.
    Limit,
}

/// Difference between a checkpoint and the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct WorkspaceChanges {
    pub checkpoint: String,
    /// Checkpoint before it.
    pub since: String,
    /// Changed files, in the order of their paths.
    pub files: Vec<ChangedFile>,
    /// Number of further changed files, which `files` does not list.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub more: u64,
    /// Added lines of the listed files.
    pub added: u64,
    /// Removed lines of the listed files.
    pub removed: u64,
}

/// Changed file with the counts of its lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct ChangedFile {
    pub path: String,
    /// True if `path` is percent-encoded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encoded: bool,
    pub change: FileChangeKind,
    /// Old path of a moved file, percent-encoded if `encoded` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Added lines. Absent for a binary file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    /// Removed lines. Absent for a binary file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

impl WorkspaceCheckpoint {
    /// Returns the text for the model, if the checkpoint is the end of a restore.
    pub fn restore_note(&self) -> Option<String> {
        let of = match (self.checkpoint_kind, &self.of) {
            (CheckpointKind::Restore, Some(of)) => format!("checkpoint `{of}`"),
            // A server died during the restore.
            (CheckpointKind::Restore, None) => "an earlier checkpoint, perhaps not all".to_owned(),
            (CheckpointKind::Start | CheckpointKind::Turn | CheckpointKind::BeforeRestore, _) => return None,
        };
        Some(format!(
            "[The user put files of the workspace back to {of}. Files may differ from what you have read or written: \
             read a file again before you change it.]"
        ))
    }
}

impl WorkspaceChanges {
    pub(crate) fn summary_line(&self) -> String {
        let WorkspaceChanges { files, more, added, removed, .. } = self;
        match files.len() as u64 + more {
            1 => format!("1 file changed: +{added} −{removed}."),
            count => format!("{count} files changed: +{added} −{removed}."),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
