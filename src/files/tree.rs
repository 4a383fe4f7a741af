//! Open workspace. Each path is resolved by one `openat2` beneath the workspace's descriptor, and
//! the kernel refuses links and each way out.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid},
    io::Errno,
};

use super::{error::FileError, found_entry::FoundEntry, path::InnerPath};

/// Rules of each resolution. Needs Linux 5.6.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Open workspace, and the owner of what the server writes into it.
#[derive(Debug)]
pub struct WorkspaceTree {
    root: OwnedFd,
    path: PathBuf,
    owner: (Uid, Gid),
}

/// Directory of a write, and the directories on the way to it that the write created.
#[derive(Debug, Default)]
pub(super) struct MadeDirs(Vec<(OwnedFd, Vec<u8>)>);

impl WorkspaceTree {
    /// Opens the workspace at `path`, a path of the server's own. Uploads belong to `owner`, or to
    /// the owner of the workspace.
    pub fn open(path: &Path, owner: Option<(u32, u32)>) -> io::Result<WorkspaceTree> {
        let root = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let (uid, gid) = match owner {
            Some(owner) => owner,
            None => rustix::fs::fstat(&root).map(|found| (found.st_uid, found.st_gid))?,
        };
        Ok(WorkspaceTree { root, path: path.to_owned(), owner: (Uid::from_raw(uid), Gid::from_raw(gid)) })
    }

    /// Returns another handle of the workspace.
    pub(super) fn reopened(&self) -> io::Result<WorkspaceTree> {
        Ok(WorkspaceTree { root: self.root.try_clone()?, path: self.path.clone(), owner: self.owner })
    }

    /// Returns the workspace's path on this host.
    pub(super) fn host_path(&self) -> &Path {
        &self.path
    }

    fn resolve(&self, path: &InnerPath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let bytes = if path.is_root() { &b"."[..] } else { path.as_bytes() };
        rustix::fs::openat2(&self.root, bytes, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty(), BENEATH)
    }

    /// Returns an entry, located but not opened: opening a FIFO or a device can block or act.
    ///
    /// # Errors
    /// The entry or its parent is missing, or a part on the way is no directory.
    pub fn locate(&self, path: &InnerPath) -> Result<(OwnedFd, Stat), FileError> {
        let failed = |e: Errno| FileError::of(path, e);
        let located = self.resolve(path, OFlags::PATH).map_err(failed)?;
        let stat = rustix::fs::fstat(&located).map_err(failed)?;
        Ok((located, stat))
    }

    /// Returns an entry as [`WorkspaceTree::locate`] does.
    ///
    /// # Errors
    /// As for [`WorkspaceTree::locate`].
    pub fn find(&self, path: &InnerPath) -> Result<FoundEntry, FileError> {
        self.locate(path).map(FoundEntry::new)
    }

    /// Opens a directory to read its entries.
    ///
    /// # Errors
    /// As for [`WorkspaceTree::locate`]. [`FileError::NotADirectory`] for another entry.
    pub fn open_dir(&self, path: &InnerPath) -> Result<OwnedFd, FileError> {
        let (located, stat) = self.locate(path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let read = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::openat(&located, ".", read, Mode::empty()).map_err(|e| FileError::of(path, e))
            }
            _ => Err(FileError::NotADirectory(path.clone())),
        }
    }

    /// Returns true if the workspace has no entry.
    pub fn is_empty(&self) -> bool {
        let names = self.open_dir(&InnerPath::default()).ok().and_then(|dir| Dir::new(dir).ok());
        let is_name = |name: &[u8]| !matches!(name, b"." | b"..");
        !names.into_iter().flatten().flatten().any(|entry| is_name(entry.file_name().to_bytes()))
    }

    /// Opens a regular file to read it. Creates nothing.
    ///
    /// # Errors
    /// As for [`WorkspaceTree::locate`]. [`FileError::IsDirectory`] for a directory, and
    /// [`FileError::NotRegular`] for a link, a FIFO, a socket or a device. None of these is opened.
    pub fn open_file(&self, path: &InnerPath) -> Result<File, FileError> {
        let (located, stat) = self.locate(path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => open_located(&located).map_err(|e| FileError::of(path, e)),
            FileType::Directory => Err(FileError::IsDirectory(path.clone())),
            _ => Err(FileError::NotRegular(path.clone())),
        }
    }

    /// Returns the target of a link.
    ///
    /// # Errors
    /// As for [`WorkspaceTree::locate`]. `EINVAL` for another entry.
    pub fn read_link(&self, path: &InnerPath) -> Result<Vec<u8>, FileError> {
        let (located, stat) = self.locate(path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => rustix::fs::readlinkat(&located, "", Vec::new()),
            _ => Err(Errno::INVAL),
        }
        .map(CString::into_bytes)
        .map_err(|e| FileError::of(path, e))
    }

    /// Makes all changes of the file system durable.
    ///
    /// # Errors
    /// A full disk or quota may show only here.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        let root = InnerPath::default();
        rustix::fs::syncfs(self.open_dir(&root)?).map_err(|e| FileError::of(&root, e))
    }

    /// Returns the directory of a write.
    pub(super) fn locate_dir(&self, path: &InnerPath) -> rustix::io::Result<OwnedFd> {
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Returns the deepest existing directory on the way to `dir`, `dir` included.
    pub(super) fn deepest_dir(&self, dir: &InnerPath) -> Result<(OwnedFd, InnerPath), FileError> {
        let mut path = dir.clone();
        loop {
            match self.locate_dir(&path) {
                Ok(found) => return Ok((found, path)),
                Err(Errno::NOENT) if !path.is_root() => path = path.parent(),
                // A link in the place of the directory is ELOOP or ENOTDIR.
                Err(e) => return Err(FileError::of(dir, e)),
            }
        }
    }

    /// Creates a directory and the missing ones on the way, and returns it. `made` receives each
    /// directory that this call created.
    pub(super) fn make_dirs(&self, dir: &InnerPath, made: &mut MadeDirs) -> Result<OwnedFd, FileError> {
        let failed = |e: Errno| FileError::of(dir, e);
        let (mut current, existing) = self.deepest_dir(dir)?;
        for name in dir.parts_below(&existing).unwrap_or_default() {
            match rustix::fs::mkdirat(&current, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    made.0.push((current.try_clone().map_err(|e| FileError::of(dir, e))?, name.to_owned()));
                    if rustix::process::geteuid().is_root() {
                        let (uid, gid) = self.owner;
                        rustix::fs::chownat(&current, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                            .map_err(failed)?;
                    }
                }
                Err(Errno::EXIST) => {}
                Err(e) => return Err(failed(e)),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            current = rustix::fs::openat(&current, name, flags, Mode::empty()).map_err(failed)?;
        }
        Ok(current)
    }

    /// Changes the owner of a new file to that of uploads, if the server may.
    pub(super) fn give_to_owner(&self, file: impl AsFd) -> rustix::io::Result<()> {
        set_owner(file, self.owner)
    }
}

impl WorkspaceTree {
    /// Changes the owner of a new link to that of uploads, if the server may.
    pub(super) fn give_link_to_owner(&self, dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = self.owner;
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

impl MadeDirs {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the directories again, unless an agent has put something into them.
    pub(super) fn remove(self) {
        for (parent, name) in self.0.into_iter().rev() {
            let _in_use_by_now = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Flag of an open that fails instead of waiting. A process of the sandbox may hold a lease.
pub(super) const WITHOUT_WAITING: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// Opens the file behind a descriptor, whatever has its name by now.
pub(super) fn open_located(located: &OwnedFd) -> io::Result<File> {
    File::options().read(true).custom_flags(WITHOUT_WAITING).open(format!("/proc/self/fd/{}", located.as_raw_fd()))
}

/// Changes owner and group, if the server may.
pub(super) fn set_owner(file: impl AsFd, (uid, gid): (Uid, Gid)) -> rustix::io::Result<()> {
    if rustix::process::geteuid().is_root() {
        rustix::fs::fchown(file, Some(uid), Some(gid))?;
    }
    Ok(())
}
