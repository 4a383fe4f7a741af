//! Section `checkpoints`: captures of workspaces at the end of turns.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;

use super::TimeSpan;

/// Captures of the workspaces, and the limits of one session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointsConfig {
    pub enabled: bool,
    /// Size of a file beyond which checkpoints leave it out.
    pub max_file: ByteSize,
    /// Files of one checkpoint. Further files are left out.
    pub max_files: usize,
    /// Size of the changed files that one capture reads. Further ones are left out.
    pub max_bytes: ByteSize,
    /// Time after which a capture leaves out further changed files.
    pub max_time: TimeSpan,
    /// Checkpoints that a session keeps. The oldest are dropped, except the first.
    pub keep: usize,
    /// Size of all checkpoints of a session on disk.
    pub disk: ByteSize,
    /// Patterns of what is left out, as in `.gitignore`.
    pub exclude: Vec<String>,
}

impl CheckpointsConfig {
    /// Highest value of `max_file`. A capture holds one file in memory.
    pub const MAX_FILE_LIMIT: ByteSize = ByteSize::mib(256);
    /// Highest value of `max_files`. A capture holds their names in memory.
    pub const MAX_FILES_LIMIT: usize = 1_000_000;
    /// Highest value of `max_time`.
    pub const MAX_TIME_LIMIT: Duration = Duration::from_secs(3600);
}
