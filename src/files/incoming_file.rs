//! Upload into a workspace. A file is written without a name and gets its name when it is complete,
//! so a killed server leaves nothing.
//!
//! A file that exists keeps its owner and permissions. A file with several names is written in
//! place, so that all its names have the new content. Several files get their names together: after
//! a failure, each name has what it had before.

use std::{
    fs::File,
    io::{self, Seek},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use rustix::{
    fs::{AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid},
    io::Errno,
};

use super::{
    entry::etag,
    error::FileError,
    found_entry::FoundEntry,
    path::InnerPath,
    temporary::{TemporaryName, TemporaryNames},
    tree::{MadeDirs, WITHOUT_WAITING, WorkspaceTree, set_owner},
};

/// Condition of a write on the file that has the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteCondition {
    /// The name is free, or its file is replaced.
    Any,
    /// The name is free.
    Free,
    /// A file has the name, and one of these tags.
    Tags(Vec<String>),
    /// A file has the name.
    AnyFile,
}

/// Upload in progress. Dropping it removes what was written.
#[derive(Debug)]
pub struct IncomingFile {
    file: File,
    path: InnerPath,
    /// Name until the upload is complete, if the file system has no files without a name.
    temporary: Option<TemporaryName>,
}

/// File of a completed upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedFile {
    pub path: InnerPath,
    pub bytes: u64,
    pub etag: String,
    /// True if the name was free.
    pub is_new: bool,
}

/// Step that a failure of a later file takes back.
enum PlacementStep {
    /// The file got a free name.
    Created { dir: OwnedFd, name: Vec<u8> },
    /// The old entry has the temporary name, and the file has the old name.
    Exchanged { dir: OwnedFd, name: Vec<u8>, old: TemporaryName },
    /// The file system cannot exchange names, or the file was written in place.
    Final,
}

impl IncomingFile {
    /// Begins an upload to `path`. Missing directories are created when the upload is complete.
    ///
    /// # Errors
    /// A part on the way is no directory, or no file can be created.
    pub(super) fn create(
        tree: &WorkspaceTree,
        names: &TemporaryNames,
        path: &InnerPath,
    ) -> Result<IncomingFile, FileError> {
        let (dir, dir_path) = tree.deepest_dir(&path.parent()).map_err(|e| at_path(path, e))?;
        let (file, temporary) = create_unnamed(tree, names, &dir, &dir_path).map_err(|e| FileError::of(path, e))?;
        tree.give_to_owner(&file).map_err(|e| FileError::of(path, e))?;
        Ok(IncomingFile { file, path: path.clone(), temporary })
    }

    pub fn path(&self) -> &InnerPath {
        &self.path
    }

    /// Returns a handle to write the content.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Puts the error of a directory on the path that the client named.
pub(super) fn at_path(path: &InnerPath, error: FileError) -> FileError {
    match error {
        FileError::ParentNotDirectory(_) => FileError::ParentNotDirectory(path.clone()),
        FileError::Missing(_) => FileError::Missing(path.clone()),
        other => other,
    }
}

/// Gives complete uploads their names: all, or none. Placements with the same lock are ordered.
///
/// A single file may have several names; it is written in place.
///
/// # Errors
/// A name belongs to a directory, the condition does not hold, or the disk is full or fails. The
/// workspace is then as before, directories included.
pub(super) fn place_all(
    tree: &WorkspaceTree,
    names: &TemporaryNames,
    files: Vec<IncomingFile>,
    (condition, placement): (&WriteCondition, &tokio::sync::Mutex<()>),
) -> Result<Vec<PlacedFile>, FileError> {
    for incoming in &files {
        // A full disk or quota may show only here.
        incoming.file.sync_data().map_err(|e| FileError::of(&incoming.path, e))?;
    }
    // Two placements that check and take back at the same time could lose a file.
    let _ordered = placement.blocking_lock();
    let is_single = files.len() == 1;
    let (mut steps, mut made, mut placed) = (Vec::new(), MadeDirs::default(), Vec::new());
    for incoming in files {
        let context = PlacementContext { tree, names, condition, is_single };
        match context.place(incoming, &mut made) {
            Ok((file, step)) => {
                placed.push(file);
                steps.push(step);
            }
            Err(error) => {
                steps.into_iter().rev().for_each(PlacementStep::take_back);
                made.remove();
                return Err(error);
            }
        }
    }
    // Dropping the steps removes the old entries.
    drop(steps);
    Ok(placed)
}

impl PlacementStep {
    fn take_back(self) {
        match self {
            PlacementStep::Created { dir, name } => {
                let _an_agent_took_it = rustix::fs::unlinkat(&dir, &name, AtFlags::empty());
            }
            PlacementStep::Exchanged { dir, name, old } => {
                // Then the new file has the temporary name, and `old` removes it.
                let _an_agent_took_it = exchange(&old, &dir, &name);
            }
            PlacementStep::Final => {}
        }
    }
}

struct PlacementContext<'a> {
    tree: &'a WorkspaceTree,
    names: &'a TemporaryNames,
    condition: &'a WriteCondition,
    is_single: bool,
}

impl PlacementContext<'_> {
    fn place(&self, mut incoming: IncomingFile, made: &mut MadeDirs) -> Result<(PlacedFile, PlacementStep), FileError> {
        let path = incoming.path.clone();
        let failed = |e: Errno| FileError::of(&path, e);
        let io_failed = |e: io::Error| FileError::of(&path, e);
        let dir = self.tree.make_dirs(&path.parent(), made).map_err(|e| at_path(&path, e))?;
        let existing = FoundEntry::at(&dir, path.name()).map_err(failed)?;
        self.check(&path, existing.as_ref().map(FoundEntry::stat))?;
        let (written, step) = match existing {
            Some(old) if is_regular(old.stat()) && old.stat().st_nlink > 1 => {
                if !self.is_single {
                    return Err(FileError::SeveralNames(path));
                }
                write_in_place(&mut incoming.file, old.fd()).map_err(io_failed)?;
                (rustix::fs::stat(format!("/proc/self/fd/{}", old.fd().as_raw_fd())), PlacementStep::Final)
            }
            existing => {
                let old = existing.map(|found| *found.stat()).filter(is_regular);
                let mode = old.as_ref().map_or(0o644, |old| old.st_mode & 0o777);
                if let Some(old) = &old {
                    set_owner(&incoming.file, (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid)))
                        .map_err(failed)?;
                }
                rustix::fs::fchmod(&incoming.file, Mode::from_raw_mode(mode)).map_err(failed)?;
                let step = self.link(&mut incoming, dir, &path)?;
                (rustix::fs::fstat(&incoming.file), step)
            }
        };
        let stat = written.map_err(failed)?;
        let is_new = matches!(step, PlacementStep::Created { .. });
        let bytes = stat.st_size.try_into().unwrap_or(0);
        Ok((PlacedFile { path, bytes, etag: etag(&stat), is_new }, step))
    }

    /// Gives the file its name, which another entry may have.
    fn link(&self, incoming: &mut IncomingFile, dir: OwnedFd, path: &InnerPath) -> Result<PlacementStep, FileError> {
        let failed = |e: Errno| FileError::of(path, e);
        let name = path.name();
        let is_linked = match &mut incoming.temporary {
            None => link_unnamed(&incoming.file, &dir, name),
            Some(temporary) => rename_to_free(temporary, &dir, name),
        };
        match is_linked {
            Ok(()) => {
                if let Some(temporary) = incoming.temporary.take() {
                    temporary.release();
                }
                return Ok(PlacementStep::Created { dir, name: name.to_owned() });
            }
            Err(Errno::EXIST) if *self.condition != WriteCondition::Free => {}
            Err(e) => return Err(failed(e)),
        }
        // Only a file with a name can replace another one in one step.
        let temporary = match incoming.temporary.take() {
            Some(temporary) => temporary,
            None => {
                let reserved = self.names.reserve(self.tree, &dir, &path.parent());
                let mut temporary = reserved.map_err(|e| FileError::of(path, e))?;
                link_unnamed(&incoming.file, &dir, temporary.name().as_bytes()).map_err(failed)?;
                temporary.put_in_use();
                temporary
            }
        };
        match exchange(&temporary, &dir, name) {
            Ok(()) => {}
            // Network file systems (NFS, 9p, sshfs) do not exchange names.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::renameat(temporary.dir(), temporary.name(), &dir, name).map_err(failed)?;
                temporary.release();
                return Ok(PlacementStep::Final);
            }
            Err(e) => return Err(failed(e)),
        }
        // An agent may have replaced the entry after the check, so the old entry is checked again.
        let old = FoundEntry::at(temporary.dir(), temporary.name().as_bytes()).map_err(failed);
        let checked = old.and_then(|old| self.check(path, old.as_ref().map(FoundEntry::stat)));
        let step = PlacementStep::Exchanged { dir, name: name.to_owned(), old: temporary };
        match checked {
            Ok(()) => Ok(step),
            Err(error) => {
                step.take_back();
                Err(error)
            }
        }
    }

    /// Checks the condition on the entry that has the name.
    fn check(&self, path: &InnerPath, existing: Option<&Stat>) -> Result<(), FileError> {
        let file_tag = existing.filter(|stat| is_regular(stat)).map(etag);
        let is_directory = existing.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        let holds = match self.condition {
            WriteCondition::Free if existing.is_some() => return Err(FileError::Exists(path.clone())),
            WriteCondition::Any | WriteCondition::Free => true,
            WriteCondition::AnyFile => file_tag.is_some(),
            WriteCondition::Tags(tags) => file_tag.as_ref().is_some_and(|tag| tags.contains(tag)),
        };
        match (holds, is_directory) {
            (_, true) => Err(FileError::IsDirectory(path.clone())),
            (true, false) => Ok(()),
            (false, false) => Err(FileError::Changed { path: path.clone(), etag: file_tag }),
        }
    }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Copies `new` over the content of the file behind `old`. A full disk leaves that file as it was.
fn write_in_place(new: &mut File, old: &OwnedFd) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", old.as_raw_fd());
    let mut old = File::options().write(true).custom_flags(WITHOUT_WAITING).open(path)?;
    let (before, after) = (old.metadata()?.len(), new.metadata()?.len());
    if after > before
        && let Err(error @ (Errno::NOSPC | Errno::DQUOT)) =
            rustix::fs::fallocate(&old, FallocateFlags::empty(), before, after - before)
    {
        old.set_len(before)?;
        return Err(error.into());
    }
    new.rewind()?;
    io::copy(new, &mut old)?;
    old.set_len(after)
}

/// Creates a file without a name, which vanishes with its descriptor.
///
/// If the file system has no such files, the file gets a temporary name, which is returned.
pub(super) fn create_unnamed(
    tree: &WorkspaceTree,
    names: &TemporaryNames,
    dir: &OwnedFd,
    dir_path: &InnerPath,
) -> io::Result<(File, Option<TemporaryName>)> {
    let write = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, ".", write | OFlags::TMPFILE, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok((file.into(), None)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let (file, temporary) = create_named(tree, names, dir, dir_path)?;
            Ok((file, Some(temporary)))
        }
        Err(e) => Err(e.into()),
    }
}

/// Creates a file with a temporary name.
fn create_named(
    tree: &WorkspaceTree,
    names: &TemporaryNames,
    dir: &OwnedFd,
    dir_path: &InnerPath,
) -> io::Result<(File, TemporaryName)> {
    let mut temporary = names.reserve(tree, dir, dir_path)?;
    let create = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(dir, temporary.name(), create, Mode::from_raw_mode(0o600))?;
    temporary.put_in_use();
    Ok((file.into(), temporary))
}

/// Links a file without a name to a name. Fails if the name is taken.
pub(super) fn link_unnamed(file: &File, dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, unnamed, dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Moves an entry from its temporary name to a name. Fails if the name is taken.
pub(super) fn rename_to_free(temporary: &TemporaryName, dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let (from, old) = (temporary.dir(), temporary.name());
    match rustix::fs::renameat_with(from, old, dir, name, RenameFlags::NOREPLACE) {
        // Network file systems (NFS, 9p, sshfs).
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::linkat(from, old, dir, name, AtFlags::empty())?;
            rustix::fs::unlinkat(from, old, AtFlags::empty())
        }
        renamed => renamed,
    }
}

pub(super) fn exchange(temporary: &TemporaryName, dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(temporary.dir(), temporary.name(), dir, name, RenameFlags::EXCHANGE)
}

#[cfg(test)]
mod tests;
