//! Parts of the observations `forked` and `repository`.

use serde::{Deserialize, Serialize};

/// Point of another session at which a session began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct ForkOrigin {
    /// Id of the session that was forked.
    pub from: String,
    /// Number of the newest event that both sessions have.
    #[cfg_attr(test, ts(type = "number"))]
    pub at: u64,
    /// Checkpoint of `from`, or of a session that `from` was forked from, whose files the workspace
    /// began with. `now`: the files of `from` at the time of the fork. Absent: no files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// Progress of a clone into the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct RepositoryClone {
    pub phase: ClonePhase,
    /// Address or path of the repository, without credentials.
    pub url: String,
    /// Requested branch, tag or commit. Absent: the repository's default branch.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Commit that the workspace began with, once cloned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Branch of the session, once cloned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Reason of a failure, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Phase of a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ClonePhase {
    Cloning,
    Cloned,
    Failed,
}

impl RepositoryClone {
    pub(crate) fn summary_line(&self) -> String {
        let RepositoryClone { phase, url, branch, detail, .. } = self;
        match phase {
            ClonePhase::Cloning => format!("Cloning `{url}`."),
            ClonePhase::Cloned => format!("Cloned `{url}` to the branch `{}`.", branch.as_deref().unwrap_or_default()),
            ClonePhase::Failed => format!("Couldn't clone `{url}`: {}", detail.as_deref().unwrap_or_default()),
        }
    }
}
