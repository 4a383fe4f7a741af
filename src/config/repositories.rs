//! Sections `workspace` and `repositories`: what sessions clone, and the credentials for it.

use std::path::PathBuf;

use bytesize::ByteSize;
use serde::Deserialize;

use super::value::{SecretString, TimeSpan};

/// Places of this host from which workspaces are cloned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceConfig {
    /// Directories below which a session may name a repository by its path. Absolute.
    pub sources: Vec<PathBuf>,
}

/// Limits of clones and pushes, and the credentials for them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepositoriesConfig {
    /// Time limit for each transfer.
    pub clone_timeout: TimeSpan,
    /// Size on disk of a clone with its files, and of the objects that a workspace adds.
    pub max_bytes: ByteSize,
    /// Asks the credential helpers of the server's user for hosts without an entry in
    /// `credentials`.
    pub use_credential_helper: bool,
    /// Author of commits in cloned workspaces.
    pub author_name: String,
    pub author_email: String,
    pub credentials: Vec<RepositoryCredential>,
}

/// Credential for one host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepositoryCredential {
    /// Host, with its port if the address has one.
    pub host: String,
    pub username: String,
    pub token: SecretString,
}

impl RepositoryCredential {
    /// Returns true if all values fit into single lines and none is missing.
    pub(super) fn is_valid(&self) -> bool {
        let token = self.token.expose().unwrap_or_default();
        [&self.host, &self.username, token].into_iter().all(|text| !text.is_empty() && !text.contains(char::is_control))
            && !self.host.contains(['/', '@'])
    }
}
