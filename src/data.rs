//! The data directory: where everything of this node lies, who may read it, and who may use it at a time.
//!
//! ```text
//! <data>/            0700, so nobody else gets further; what is mounted into a sandbox is mounted from below here
//!   lock  node  token  greenroom.toml
//!   journal/  sandboxes/  drivers/        for this server's eyes
//!   run/  workspaces/  homes/             one directory a session, mounted into its sandbox
//!   bin/                                  the agent's binaries, mounted read-only into every sandbox
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

mod node_claim;
pub use self::node_claim::NodeClaim;
mod token;
pub use token::{AccessGrant, BearerToken, CurrentToken};

/// What keeps a directory from being a data directory. The text names the way out.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(
        "the data directory `{path}` is in use by another server; stop that one, or choose another with `--data DIR`"
    )]
    InUse { path: PathBuf },
    #[error("the data directory `{path}` belongs to user {owner}; choose one of your own with `--data DIR`")]
    NotOurs { path: PathBuf, owner: u32 },
    #[error(
        "`{path}` is open to other users and holds other things; choose an empty directory with `--data DIR`, or, if it is yours \
         alone, `chmod 700 {path}`"
    )]
    Foreign { path: PathBuf },
    #[error(
        "the data directory `{path}` is a copy of one that another server on this machine uses, and the sandboxes of its sessions \
         are that server's; stop that one first, or bring the sessions of the copy into a new data directory with \
         `greenroom export` and `greenroom import`"
    )]
    Copy { path: PathBuf },
    #[error("`{path}` {what}; remove it, and it is made anew")]
    Suspicious { path: PathBuf, what: &'static str },
    #[error("`{path}` in the data directory: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl DataError {
    /// Whether the disk takes no writes any more.
    pub fn is_read_only(&self) -> bool {
        matches!(self, DataError::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem)
    }
}

/// An open data directory. While it lives, no other server can open it (unless it is only [visited](DataDir::visit)).
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    dir: OwnedFd,
    /// Locked; unlocked by the kernel when the process ends, however it ends.
    lock: Option<File>,
}

/// What is made below it, and who else may pass: a sandbox's user walks through none of this from outside, as the data
/// directory itself is closed; the modes are for what a mount shows inside.
const SUBDIRECTORIES: [(&str, u32); 7] = [
    ("journal", 0o700),
    ("sandboxes", 0o700),
    ("drivers", 0o700),
    ("run", 0o711),
    ("workspaces", 0o711),
    ("homes", 0o711),
    ("bin", 0o755),
];

/// What becomes of writing a file whose name is taken.
#[derive(Debug, Clone, Copy)]
enum ExistingFile {
    Replace,
    Fail,
}

impl DataDir {
    /// Opens the directory, and makes what is missing of it.
    pub fn open(path: &Path) -> Result<DataDir, DataError> {
        std::fs::create_dir_all(path).map_err(|source| DataError::Io { path: path.to_owned(), source })?;
        let mut data = DataDir::open_unlocked(path)?;
        data.lock = Some(lock(&data.path, &data.dir, OFlags::RDWR | OFlags::CREATE)?);
        for (name, mode) in SUBDIRECTORIES {
            data.make_subdirectory(name, mode)?;
        }
        Ok(data)
    }

    /// Opens a directory on a disk that takes no writes any more, and leaves all that is in it as it is.
    pub fn open_to_read(path: &Path) -> Result<DataDir, DataError> {
        let mut data = DataDir::open_unlocked(path)?;
        data.lock = Some(lock(&data.path, &data.dir, OFlags::RDONLY)?);
        Ok(data)
    }

    /// Opens a directory that is there, beside the server that may be using it: for its token.
    pub fn open_unlocked(path: &Path) -> Result<DataDir, DataError> {
        let data = DataDir::open_unchecked(path)?;
        close_to_others(&data.path, &data.dir)?;
        Ok(data)
    }

    /// Whosever it is, and as open as it is.
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

    /// One run directory a session.
    pub fn runs(&self) -> PathBuf {
        self.path.join("run")
    }

    pub fn workspaces(&self) -> PathBuf {
        self.path.join("workspaces")
    }

    pub fn homes(&self) -> PathBuf {
        self.path.join("homes")
    }

    /// What the process driver must remember of its sandboxes.
    pub fn sandboxes(&self) -> PathBuf {
        self.path.join("sandboxes")
    }

    /// Where the sandbox of each session was last.
    pub fn drivers(&self) -> PathBuf {
        self.path.join("drivers")
    }

    /// What is run from here: the agents, and the keeper of the process driver.
    pub fn programs(&self) -> PathBuf {
        self.path.join("bin")
    }

    /// The bearer token: `given` if it is set, else the one in the directory, made on first start.
    pub fn token(&self, given: &SecretString) -> Result<BearerToken, DataError> {
        if let Some(text) = given.expose() {
            return Ok(BearerToken::new(text));
        }
        self.read_or_create("token", token::random_token).map(BearerToken::new)
    }

    /// Puts a new token in the place of the one in the directory. A server that runs takes it up within a second.
    pub fn renew_token(&self) -> Result<BearerToken, DataError> {
        let at = |source: io::Error| DataError::Io { path: self.path.join("token"), source };
        let text = token::random_token().map_err(at)?;
        self.write_private("token", &text, ExistingFile::Replace).map_err(at)?;
        Ok(BearerToken::new(text))
    }

    /// Names this node: made on first start, and the same ever after.
    pub fn node(&self) -> Result<String, DataError> {
        self.read_or_create("node", || Ok(ulid::Ulid::generate().to_string()))
    }

    /// Puts the agent's binary where sandboxes can be given it, and returns its path. Other versions stay: a sandbox that
    /// was started with one is started with it again.
    pub fn install_agent(&self, bytes: &[u8]) -> Result<PathBuf, DataError> {
        let digest = Sha256::digest(bytes);
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let path = self.programs().join(format!("greenroom-agent-{hash}"));
        let at = |source: io::Error| DataError::Io { path: path.clone(), source };
        // A name is taken only by a whole file, so a file of that name and length is the one.
        if path.symlink_metadata().is_ok_and(|it| it.is_file() && it.len() == bytes.len() as u64) {
            return Ok(path);
        }
        let unfinished = path.with_extension(format!("{}.new", std::process::id()));
        write_synced(&unfinished, bytes, 0o755).and_then(|()| std::fs::rename(&unfinished, &path)).map_err(at)?;
        Ok(path)
    }

    /// Makes a directory below this one. It was made by us or is not there: nobody else can write here.
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

    /// The text of a small private file, made on first use. A link in its place is not followed.
    fn read_or_create(&self, name: &str, make: impl FnOnce() -> io::Result<String>) -> Result<String, DataError> {
        let at = |source: io::Error| DataError::Io { path: self.path.join(name), source };
        if let Some(text) = self.read_private(name)? {
            return Ok(text);
        }
        let text = make().map_err(at)?;
        self.write_private(name, &text, ExistingFile::Fail).map_err(at)?;
        Ok(text)
    }

    /// Writes a small private file: whole, or not at all.
    fn write_private(&self, name: &str, text: &str, taken: ExistingFile) -> io::Result<()> {
        let unfinished = format!("{name}.new");
        match rustix::fs::unlinkat(&self.dir, &unfinished, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        self.create_private(&unfinished, text)?;
        match taken {
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

    fn read_private(&self, name: &str) -> Result<Option<String>, DataError> {
        let path = self.path.join(name);
        let suspicious = |what| Err(DataError::Suspicious { path: path.clone(), what });
        let at = |source: io::Error| DataError::Io { path: path.clone(), source };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return suspicious("is a link"),
            Err(e) => return Err(at(e.into())),
        };
        let meta = file.metadata().map_err(at)?;
        if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
            return suspicious("is no file of ours");
        }
        if meta.mode() & 0o077 != 0 {
            return suspicious("could be read by other users, so it is no secret any more");
        }
        let mut text = String::new();
        file.take(4096).read_to_string(&mut text).map_err(at)?;
        match text.trim() {
            "" => suspicious("is empty"),
            text => Ok(Some(text.to_owned())),
        }
    }
}

impl Drop for DataDir {
    /// Closing the file is not enough: a child that was just forked holds it too, until it becomes another program.
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            let _ = rustix::fs::flock(lock, FlockOperation::Unlock);
        }
    }
}

/// Refuses what is not ours, and closes what is ours and open.
fn close_to_others(path: &Path, dir: &OwnedFd) -> Result<(), DataError> {
    let at = |e: Errno| DataError::Io { path: path.to_owned(), source: e.into() };
    let stat = rustix::fs::fstat(dir).map_err(at)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(DataError::NotOurs { path: path.to_owned(), owner: stat.st_uid });
    }
    if stat.st_mode & 0o077 == 0 {
        return Ok(());
    }
    // Somebody may have said `--data /tmp`: closing that would break the machine for everybody else.
    let io = |source| DataError::Io { path: path.to_owned(), source };
    if !path.join("node").exists() {
        for entry in path.read_dir().map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            // As good as empty: settings that were written before the first start, and what a new file system has at its root.
            if name != "greenroom.toml" && name != "lost+found" {
                return Err(DataError::Foreign { path: path.to_owned() });
            }
        }
    }
    rustix::fs::fchmod(dir, Mode::RWXU).map_err(at)
}

fn lock(path: &Path, dir: &OwnedFd, how: OFlags) -> Result<File, DataError> {
    let at = |e: Errno| DataError::Io { path: path.join("lock"), source: e.into() };
    let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC;
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
        moved => moved,
    }
}

/// The same where the file system cannot move without replacing (NFS, 9p, sshfs).
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
