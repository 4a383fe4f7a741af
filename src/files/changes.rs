//! Changes of a workspace without content: new directories, moves and removals.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{AtFlags, RenameFlags},
    io::Errno,
};

use super::{
    entry::{FileEntry, FileKind},
    error::FileError,
    path::InnerPath,
    temporary::TemporaryNames,
    tree::{MadeDirs, WorkspaceTree},
};

/// Treatment of a directory by a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalScope {
    /// Files, links and empty directories only.
    Single,
    /// Directories with their content too.
    Tree,
}

/// Treatment of an entry that has the name of a move's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveTarget {
    MustBeFree,
    /// A file is replaced, and so is an empty directory by a directory.
    MayBeReplaced,
}

impl WorkspaceTree {
    /// Creates a directory and the missing ones on the way. Returns it, and true if it is new.
    pub(super) fn make_dir(&self, path: &InnerPath) -> Result<(FileEntry, bool), FileError> {
        let mut made = MadeDirs::default();
        if let Err(error) = self.make_dirs(path, &mut made) {
            made.remove();
            return match error {
                FileError::ParentNotDirectory(_) if self.locate(path).is_ok() => Err(FileError::Exists(path.clone())),
                error => Err(error),
            };
        }
        let (_, stat) = self.locate(path)?;
        Ok((FileEntry::new(path, &stat), !made.is_empty()))
    }

    /// Moves an entry. Returns the entry at its new path.
    pub(super) fn move_entry(
        &self,
        from: &InnerPath,
        to: &InnerPath,
        target: MoveTarget,
    ) -> Result<FileEntry, FileError> {
        if to.parts_below(from).is_some() {
            return Err(FileError::IntoItself(from.clone()));
        }
        let from_dir = self.dir_of(from)?;
        rustix::fs::statat(&from_dir, from.name(), AtFlags::SYMLINK_NOFOLLOW).map_err(|e| FileError::of(from, e))?;
        let to_dir = self.dir_of(to)?;
        let failed = |e: Errno| FileError::of(to, e);
        match target {
            MoveTarget::MayBeReplaced => rustix::fs::renameat(&from_dir, from.name(), &to_dir, to.name()),
            MoveTarget::MustBeFree => move_to_free((&from_dir, from.name()), (&to_dir, to.name())),
        }
        .map_err(|e| match e {
            // A directory in the place of a file, or a file in the place of a directory.
            Errno::ISDIR | Errno::NOTDIR => FileError::Exists(to.clone()),
            e => failed(e),
        })?;
        let (_, stat) = self.locate(to)?;
        Ok(FileEntry::new(to, &stat))
    }

    /// Removes an entry.
    ///
    /// A directory with content loses its name at once, and its content after that. A killed server
    /// leaves the rest to the next one.
    pub(super) fn remove(
        &self,
        names: &TemporaryNames,
        path: &InnerPath,
        scope: RemovalScope,
    ) -> Result<(), FileError> {
        let dir = self.dir_of(path)?;
        let failed = |e: Errno| FileError::of(path, e);
        let stat = rustix::fs::statat(&dir, path.name(), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if FileKind::of(&stat) != FileKind::Directory {
            return rustix::fs::unlinkat(&dir, path.name(), AtFlags::empty()).map_err(failed);
        }
        match rustix::fs::unlinkat(&dir, path.name(), AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if scope == RemovalScope::Tree => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(FileError::HasContent(path.clone())),
            removed => return removed.map_err(failed),
        }
        let io_failed = |e| FileError::of(path, e);
        let mut temporary = names.reserve(self, &dir, &path.parent()).map_err(io_failed)?;
        rustix::fs::renameat(&dir, path.name(), temporary.dir(), temporary.name()).map_err(failed)?;
        temporary.put_in_use();
        temporary.remove_tree().map_err(io_failed)
    }

    /// Returns the directory that contains an entry.
    fn dir_of(&self, path: &InnerPath) -> Result<OwnedFd, FileError> {
        self.locate_dir(&path.parent()).map_err(|e| FileError::of(path, e))
    }
}

fn move_to_free((from_dir, from): (&OwnedFd, &[u8]), (to_dir, to): (&OwnedFd, &[u8])) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
        // Network file systems (NFS, 9p, sshfs). The name may be taken in between.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            match rustix::fs::statat(to_dir, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => rustix::fs::renameat(from_dir, from, to_dir, to),
                Err(e) => Err(e),
            }
        }
        moved => moved,
    }
}
