//! Workspace directories of the sessions.

use std::{
    io,
    os::unix::fs::{DirBuilderExt, chown},
    path::{Path, PathBuf},
};

use crate::store::SessionId;

/// Location and owner of the sessions' workspaces.
#[derive(Debug, Clone)]
pub struct WorkspaceDirs {
    /// Parent of the sessions' directories.
    pub root: PathBuf,
    /// Workspace that all sessions share, in place of one each (`SANDBOX_VOLUMES=…:/workspace`).
    pub shared: Option<PathBuf>,
    /// User and group of a new workspace. The first start of the sandbox may change them.
    pub uid: u32,
    pub gid: u32,
}

impl WorkspaceDirs {
    /// Returns the workspace of the session. Creates it if it is missing.
    pub fn dir_of(&self, session: SessionId) -> io::Result<PathBuf> {
        match &self.shared {
            Some(shared) => Ok(shared.clone()),
            None => session_dir(&self.root, session, self.uid, self.gid),
        }
    }
}

/// Creates the directory of `session` below `parent`, owned by the sandbox's user. A directory that
/// exists keeps its owner.
///
/// Permissions are reset, so the next start has access whatever an agent changed.
pub fn session_dir(parent: &Path, session: SessionId, uid: u32, gid: u32) -> io::Result<PathBuf> {
    let path = parent.join(session.to_string());
    std::fs::create_dir_all(parent)?;
    create_owned_dir(&path, 0o700, uid, gid)?;
    Ok(path)
}

/// Creates a directory for a sandbox's user, and resets the permissions of one that exists. Its
/// owner may be the user of a running sandbox.
pub(super) fn create_owned_dir(path: &Path, mode: u32, uid: u32, gid: u32) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) if rustix::process::geteuid().is_root() => chown(path, Some(uid), Some(gid))?,
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}
