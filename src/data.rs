//! Data directory of a node: the layout of all files, their access rights, and the lock against a
//! second server.
//!
//! ```text
//! <data>/            0700: other users get no further. Sandbox mounts come from below here.
//!   lock  node  token  greenroom.toml
//!   approval_rules.json                   rules of projects for tool calls
//!   browsers.json                         signed-in browsers, without their secrets
//!   purged_spending.jsonl                 cost of purged sessions
//!   journal/  sandboxes/  drivers/  uploads/  checkpoints/   for this server only
//!   run/  workspaces/  homes/             one directory per session, mounted into its sandbox
//!   bin/                                  the agent's binaries, mounted read-only into sandboxes
//! ```

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags},
    io::Errno,
};
use sha2::{Digest, Sha256};

use crate::config::SecretString;

mod browsers;
mod client_name;
mod node_claim;
pub use self::{
    browsers::{BrowserCredentials, BrowserId, BrowserRejection, Browsers, SignedInBrowser},
    client_name::ClientName,
    node_claim::NodeClaim,
};
mod token;
pub use token::{AccessGrant, BearerToken, CurrentToken};

/// Reason why a directory cannot serve as the data directory. The text names the way out.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(
        "the data directory `{path}` is in use by another server; stop that server, or choose another with `--data DIR`"
    )]
    InUse { path: PathBuf },
    #[error("the data directory `{path}` belongs to user {owner}; choose one of your own with `--data DIR`")]
    NotOurs { path: PathBuf, owner: u32 },
    #[error(
        "`{path}` is open to other users and holds other files; choose an empty directory with `--data DIR`, or, if it is \
         yours alone, `chmod 700 {path}`"
    )]
    Foreign { path: PathBuf },
    #[error(
        "the data directory `{path}` is a copy of one that another server on this machine uses, and its sandboxes belong \
         to that server; stop that server first, or bring the sessions of the copy into a new data directory with \
         `greenroom export` and `greenroom import`"
    )]
    Copy { path: PathBuf },
    #[error("`{path}` {what}; remove it to have a new one generated")]
    Suspicious { path: PathBuf, what: &'static str },
    #[error("`{path}` in the data directory: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl DataError {
    /// Returns true if the disk has become read-only.
    pub fn is_read_only(&self) -> bool {
        matches!(self, DataError::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem)
    }
}

/// Open data directory. No other server can open the directory meanwhile.
/// [`DataDir::open_unlocked`] ignores the lock.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    dir: OwnedFd,
    /// Locked file. The kernel releases the lock when the process ends, in whatever way.
    lock: Option<File>,
}

/// Subdirectories with their modes. From outside, the data directory's own mode keeps sandbox users
/// out. The modes here apply to mounts inside a sandbox.
const SUBDIRECTORIES: [(&str, u32); 9] = [
    ("journal", 0o700),
    ("sandboxes", 0o700),
    ("drivers", 0o700),
    ("uploads", 0o700),
    ("checkpoints", 0o700),
    ("run", 0o711),
    ("workspaces", 0o711),
    ("homes", 0o711),
    ("bin", 0o755),
];

/// Behavior of a write if the file exists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExistingFile {
    Replace,
    Fail,
}

impl DataDir {
    /// Opens and locks the directory. Creates missing parts.
    ///
    /// # Errors
    /// [`DataError`]: the directory is in use, belongs to another user, holds other things, or
    /// cannot be created.
    pub fn open(path: &Path) -> Result<DataDir, DataError> {
        std::fs::create_dir_all(path).map_err(|source| DataError::Io { path: path.to_owned(), source })?;
        let mut data = DataDir::open_unlocked(path)?;
        data.lock = Some(lock(&data.path, &data.dir, OFlags::RDWR | OFlags::CREATE)?);
        for (name, mode) in SUBDIRECTORIES {
            data.make_subdirectory(name, mode)?;
        }
        Ok(data)
    }

    /// Opens and locks a directory on a read-only disk. Changes nothing.
    ///
    /// # Errors
    /// [`DataError`], as for [`DataDir::open`].
    pub fn open_to_read(path: &Path) -> Result<DataDir, DataError> {
        let mut data = DataDir::open_unlocked(path)?;
        data.lock = Some(lock(&data.path, &data.dir, OFlags::RDONLY)?);
        Ok(data)
    }

    /// Opens an existing directory without the lock, beside a running server, to access its token.
    ///
    /// # Errors
    /// [`DataError`], as for [`DataDir::open`], but never `InUse`.
    pub fn open_unlocked(path: &Path) -> Result<DataDir, DataError> {
        let data = DataDir::open_unchecked(path)?;
        close_to_others(&data.path, &data.dir)?;
        Ok(data)
    }

    /// Opens the directory without checking its owner or its mode.
    fn open_unchecked(path: &Path) -> Result<DataDir, DataError> {
        let at = |source: io::Error| DataError::Io { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(at)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| at(e.into()))?;
        Ok(DataDir { path, dir, lock: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Run directories, one per session.
    pub fn runs(&self) -> PathBuf {
        self.path.join("run")
    }

    pub fn workspaces(&self) -> PathBuf {
        self.path.join("workspaces")
    }

    pub fn homes(&self) -> PathBuf {
        self.path.join("homes")
    }

    /// State that the process driver keeps of its sandboxes.
    pub fn sandboxes(&self) -> PathBuf {
        self.path.join("sandboxes")
    }

    /// Records of the last sandbox driver of each session.
    pub fn drivers(&self) -> PathBuf {
        self.path.join("drivers")
    }

    /// Checkpoints of the sessions' workspaces.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Bare clones of the sessions' repositories.
    pub fn repositories(&self) -> PathBuf {
        self.path.join("repositories")
    }

    /// Records of names that the server gave to unfinished uploads and removals.
    pub fn uploads(&self) -> PathBuf {
        self.path.join("uploads")
    }

    /// Programs that run from here: the agents, and the jailer of the process driver.
    pub fn programs(&self) -> PathBuf {
        self.path.join("bin")
    }

    /// Returns the bearer token: `given` if set, else the token file's. The first start generates
    /// the file.
    ///
    /// # Errors
    /// [`DataError`] if the file cannot be read or written, or could be read by other users.
    pub fn token(&self, given: &SecretString) -> Result<BearerToken, DataError> {
        if let Some(text) = given.expose() {
            return Ok(BearerToken::new(text));
        }
        self.read_or_create("token", token::random_token).map(BearerToken::new)
    }

    /// Replaces the token in the directory. A running server uses the new token within a second.
    ///
    /// # Errors
    /// [`DataError::Io`] if the file cannot be written.
    pub fn renew_token(&self) -> Result<BearerToken, DataError> {
        let at = |source: io::Error| DataError::Io { path: self.path.join("token"), source };
        let text = token::random_token().map_err(at)?;
        self.write_private("token", &text, ExistingFile::Replace).map_err(at)?;
        Ok(BearerToken::new(text))
    }

    /// Returns the node's id. Generated at the first start, stable from then on.
    ///
    /// # Errors
    /// [`DataError`] if the file cannot be read or written.
    pub fn node(&self) -> Result<String, DataError> {
        self.read_or_create("node", || Ok(ulid::Ulid::generate().to_string()))
    }

    /// Installs the agent's binary for sandboxes and returns its path. Other versions are kept: a
    /// sandbox restarts with the version that it was first started with.
    ///
    /// # Errors
    /// [`DataError::Io`] if the binary cannot be written.
    pub fn install_agent(&self, bytes: &[u8]) -> Result<PathBuf, DataError> {
        let digest = Sha256::digest(bytes);
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let path = self.programs().join(format!("greenroom-agent-{hash}"));
        let at = |source: io::Error| DataError::Io { path: path.clone(), source };
        // Files get their final name only when complete. So a file with this name and length is the
        // right one.
        if path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() == bytes.len() as u64) {
            return Ok(path);
        }
        let unfinished = path.with_extension(format!("{}.new", std::process::id()));
        write_synced(&unfinished, bytes, 0o755).and_then(|()| std::fs::rename(&unfinished, &path)).map_err(at)?;
        Ok(path)
    }

    /// Creates a subdirectory with this mode. An existing entry is trusted, because no other user
    /// can write here.
    fn make_subdirectory(&self, name: &str, mode: u32) -> Result<(), DataError> {
        let at = |source: io::Error| DataError::Io { path: self.path.join(name), source };
        match rustix::fs::mkdirat(&self.dir, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(at(e.into())),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.dir, name, flags, Mode::empty()).map_err(|e| at(e.into()))?;
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode)).map_err(|e| at(e.into()))
    }

    /// Returns the text of a small private file. Creates the file on first use. Symbolic links are
    /// not followed.
    fn read_or_create(&self, name: &str, make: impl FnOnce() -> io::Result<String>) -> Result<String, DataError> {
        let at = |source: io::Error| DataError::Io { path: self.path.join(name), source };
        if let Some(text) = self.read_private(name, 4096)? {
            return Ok(text);
        }
        let text = make().map_err(at)?;
        self.write_private(name, &text, ExistingFile::Fail).map_err(at)?;
        Ok(text)
    }

    /// Writes a small private file atomically.
    pub(crate) fn write_private(&self, name: &str, text: &str, existing: ExistingFile) -> io::Result<()> {
        let unfinished = format!("{name}.new");
        match rustix::fs::unlinkat(&self.dir, &unfinished, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        self.create_private(&unfinished, text)?;
        match existing {
            ExistingFile::Replace => rustix::fs::renameat(&self.dir, &unfinished, &self.dir, name)?,
            ExistingFile::Fail => rename_if_free(&self.dir, &unfinished, name)?,
        }
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    fn create_private(&self, name: &str, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Returns the text of a small private file, at most `max_bytes` of it.
    pub(crate) fn read_private(&self, name: &str, max_bytes: u64) -> Result<Option<String>, DataError> {
        let path = self.path.join(name);
        let suspicious = |what| Err(DataError::Suspicious { path: path.clone(), what });
        let at = |source: io::Error| DataError::Io { path: path.clone(), source };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return suspicious("is a symbolic link"),
            Err(e) => return Err(at(e.into())),
        };
        let meta = file.metadata().map_err(at)?;
        if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
            return suspicious("is not a regular file of this user");
        }
        if meta.mode() & 0o077 != 0 {
            return suspicious("could be read by other users, so its text is no longer secret");
        }
        let mut text = String::new();
        file.take(max_bytes).read_to_string(&mut text).map_err(at)?;
        match text.trim() {
            "" => suspicious("is empty"),
            text => Ok(Some(text.to_owned())),
        }
    }
}

impl Drop for DataDir {
    /// Unlocks explicitly. A child process that was just forked holds the file too, until it
    /// executes another program.
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            let _ = rustix::fs::flock(lock, FlockOperation::Unlock);
        }
    }
}

/// Rejects a directory of another user. Removes the access of others to an own directory.
fn close_to_others(path: &Path, dir: &OwnedFd) -> Result<(), DataError> {
    let at = |e: Errno| DataError::Io { path: path.to_owned(), source: e.into() };
    let stat = rustix::fs::fstat(dir).map_err(at)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(DataError::NotOurs { path: path.to_owned(), owner: stat.st_uid });
    }
    if stat.st_mode & 0o077 == 0 {
        return Ok(());
    }
    // With `--data /tmp`, changing the mode would break the machine for all other users.
    let io = |source| DataError::Io { path: path.to_owned(), source };
    if !path.join("node").exists() {
        for entry in path.read_dir().map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            // Both count as empty: a config file written before the first start, and the root of a
            // new file system.
            if name != "greenroom.toml" && name != "lost+found" {
                return Err(DataError::Foreign { path: path.to_owned() });
            }
        }
    }
    rustix::fs::fchmod(dir, Mode::RWXU).map_err(at)
}

fn lock(path: &Path, dir: &OwnedFd, access: OFlags) -> Result<File, DataError> {
    let at = |e: Errno| DataError::Io { path: path.join("lock"), source: e.into() };
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, "lock", flags, Mode::RUSR | Mode::WUSR).map_err(at)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(File::from(file)),
        Err(Errno::WOULDBLOCK) => Err(DataError::InUse { path: path.to_owned() }),
        Err(e) => Err(at(e)),
    }
}

fn rename_if_free(dir: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_if_free(dir, from, to),
        renamed => renamed,
    }
}

/// Same as `rename_if_free`, for file systems without `RENAME_NOREPLACE` (NFS, 9p, sshfs).
fn link_if_free(dir: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    rustix::fs::linkat(dir, from, dir, to, AtFlags::empty())?;
    rustix::fs::unlinkat(dir, from, AtFlags::empty())
}

fn write_synced(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
