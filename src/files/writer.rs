//! Writes and removals of single entries from blocking threads, for restores.
//!
//! An agent can write at any time. So each change takes the present entry out of its name first,
//! checks what came out, and puts another entry than the expected one back. No file is written in
//! place: its other names keep the old content.

use std::{fs::File, io::Write, os::fd::OwnedFd, sync::Arc};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, Uid},
    io::Errno,
};

use super::{
    FileTarget,
    error::FileError,
    found_entry::FoundEntry,
    incoming_file::{at_path, create_unnamed, exchange, link_unnamed, rename_to_free},
    path::InnerPath,
    temporary::{TemporaryName, TemporaryNames},
    tree::{MadeDirs, WorkspaceTree, set_owner},
};
use crate::{sandbox::KeyedMutex, store::SessionId};

/// Permissions to execute a file, of all three classes.
const EXECUTE: u32 = 0o111;

/// Writer of single entries into workspaces. Its methods block.
#[derive(Debug, Clone)]
pub struct WorkspaceWriter {
    names: TemporaryNames,
    placements: Arc<KeyedMutex<Option<SessionId>>>,
}

/// File or link that a write creates.
#[derive(Debug, Clone, Copy)]
pub enum NewEntry<'a> {
    File { content: &'a [u8], is_executable: bool },
    Link { target: &'a [u8] },
}

/// Check of the entry that a change replaces or removes. Called with the found entry, and again
/// with the entry that was taken out and the found one.
pub type EntryCheck<'a> = &'a dyn Fn(&FoundEntry, Option<&FoundEntry>) -> bool;

/// New entry that has no name yet, or a temporary one.
enum PreparedEntry {
    Unnamed(File),
    Named(TemporaryName),
}

/// Place of a change.
struct ChangePlace<'a> {
    tree: &'a WorkspaceTree,
    dir: OwnedFd,
    path: &'a InnerPath,
}

impl WorkspaceWriter {
    pub(super) fn new(names: TemporaryNames, placements: Arc<KeyedMutex<Option<SessionId>>>) -> WorkspaceWriter {
        WorkspaceWriter { names, placements }
    }

    /// Puts a file or a link at a path, in one step where the file system can exchange names.
    /// Missing directories are created. Not durable before [`WorkspaceWriter::sync`].
    ///
    /// `check` is `None` if the path is expected to be free.
    ///
    /// # Errors
    /// [`FileError::ChangedMeanwhile`]: the path has another entry than the expected one, which
    /// stays. Also: a part on the way is no directory, or the disk is full.
    pub fn write(
        &self,
        tree: &WorkspaceTree,
        target: &FileTarget,
        new: NewEntry<'_>,
        check: Option<EntryCheck<'_>>,
    ) -> Result<(), FileError> {
        let placement = self.placements.of(Some(target.session));
        let _ordered = placement.blocking_lock();
        let (path, mut made) = (&target.path, MadeDirs::default());
        let dir = tree.make_dirs(&path.parent(), &mut made).map_err(|e| at_path(path, e));
        let written = dir.and_then(|dir| self.write_at(&ChangePlace { tree, dir, path }, new, check));
        if written.is_err() {
            made.remove();
        }
        written
    }

    /// Removes a file or a link, and the directories that are empty without it. A missing file is
    /// no error.
    ///
    /// # Errors
    /// The same as of [`WorkspaceWriter::write`].
    pub fn remove(&self, tree: &WorkspaceTree, target: &FileTarget, check: EntryCheck<'_>) -> Result<(), FileError> {
        let placement = self.placements.of(Some(target.session));
        let _ordered = placement.blocking_lock();
        let path = &target.path;
        match tree.locate_dir(&path.parent()) {
            Ok(dir) => self.take_out(&ChangePlace { tree, dir, path }, check)?,
            Err(Errno::NOENT) => {}
            Err(e) => return Err(FileError::of(path, e)),
        }
        let mut emptied = path.parent();
        while !emptied.is_root() {
            let Ok(dir) = tree.locate_dir(&emptied.parent()) else { break };
            if rustix::fs::unlinkat(&dir, emptied.name(), AtFlags::REMOVEDIR).is_err() {
                break;
            }
            emptied = emptied.parent();
        }
        Ok(())
    }

    /// Makes all changes of the workspace's file system durable, at once.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn sync(&self, tree: &WorkspaceTree) -> Result<(), FileError> {
        tree.sync()
    }

    fn write_at(
        &self,
        place: &ChangePlace<'_>,
        new: NewEntry<'_>,
        check: Option<EntryCheck<'_>>,
    ) -> Result<(), FileError> {
        let failed = |e: Errno| FileError::of(place.path, e);
        let changed = || FileError::ChangedMeanwhile(place.path.clone());
        let mut found = FoundEntry::at(&place.dir, place.path.name()).map_err(failed)?;
        if found.as_ref().is_some_and(|found| found.is(FileType::Directory))
            && rustix::fs::unlinkat(&place.dir, place.path.name(), AtFlags::REMOVEDIR).is_ok()
        {
            // Empty directories are no content.
            found = None;
        }
        if let Some(found) = &found {
            place.check(found, None, check)?;
        }
        let mut prepared = self.prepare(place, new, found.as_ref())?;
        if found.is_none() {
            match prepared.take_free_name(place) {
                Err(Errno::EXIST) if check.is_some() => {}
                Err(Errno::EXIST) => return Err(changed()),
                taken => return taken.map_err(failed),
            }
        }
        let temporary = self.named(place, prepared)?;
        let ours = FoundEntry::at(temporary.dir(), temporary.name().as_bytes()).map_err(failed)?;
        match exchange(&temporary, &place.dir, place.path.name()) {
            Ok(()) => {}
            Err(e @ (Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOENT)) => {
                // Network file systems (NFS, 9p, sshfs) do not exchange names.
                if let (Some(check), false) = (check, e == Errno::NOENT) {
                    self.take_out(place, check)?;
                }
                return match rename_to_free(&temporary, &place.dir, place.path.name()) {
                    Ok(()) => {
                        temporary.release();
                        Ok(())
                    }
                    Err(Errno::EXIST) => Err(changed()),
                    Err(e) => Err(failed(e)),
                };
            }
            Err(e) => return Err(failed(e)),
        }
        let taken = FoundEntry::at(temporary.dir(), temporary.name().as_bytes());
        let checked = match taken.map_err(failed) {
            Ok(Some(taken)) => place.check(&taken, found.as_ref(), check),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if checked.is_err() {
            exchange_back(temporary, place, ours.as_ref());
        }
        checked
    }

    /// Removes the entry, if it is the expected one.
    fn take_out(&self, place: &ChangePlace<'_>, check: EntryCheck<'_>) -> Result<(), FileError> {
        let failed = |e: Errno| FileError::of(place.path, e);
        let Some(found) = FoundEntry::at(&place.dir, place.path.name()).map_err(failed)? else { return Ok(()) };
        place.check(&found, None, Some(check))?;
        let mut temporary = self.reserve(place)?;
        match rustix::fs::renameat(&place.dir, place.path.name(), temporary.dir(), temporary.name()) {
            Ok(()) => temporary.put_in_use(),
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(failed(e)),
        }
        let taken = FoundEntry::at(temporary.dir(), temporary.name().as_bytes());
        let checked = match taken.map_err(failed) {
            Ok(Some(taken)) => place.check(&taken, Some(&found), Some(check)),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        // If an agent has written a newer entry meanwhile, that one stays.
        if checked.is_err() && rename_to_free(&temporary, &place.dir, place.path.name()).is_ok() {
            temporary.release();
        }
        checked
    }

    /// Creates the new entry, with the owner and the permissions of the old one.
    fn prepare(
        &self,
        place: &ChangePlace<'_>,
        new: NewEntry<'_>,
        found: Option<&FoundEntry>,
    ) -> Result<PreparedEntry, FileError> {
        let (path, tree) = (place.path, place.tree);
        let failed = |e: Errno| FileError::of(path, e);
        let (content, is_executable) = match new {
            NewEntry::File { content, is_executable } => (content, is_executable),
            NewEntry::Link { target } => {
                let mut temporary = self.reserve(place)?;
                rustix::fs::symlinkat(target, &place.dir, temporary.name()).map_err(failed)?;
                temporary.put_in_use();
                tree.give_link_to_owner(&place.dir, temporary.name().as_bytes()).map_err(failed)?;
                return Ok(PreparedEntry::Named(temporary));
            }
        };
        let created = create_unnamed(tree, &self.names, &place.dir, &path.parent());
        let (mut file, temporary) = created.map_err(|e| FileError::of(path, e))?;
        file.write_all(content).map_err(|e| FileError::of(path, e))?;
        let old = found.filter(|found| found.is(FileType::RegularFile)).map(FoundEntry::stat);
        match old {
            Some(old) => set_owner(&file, (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid))),
            None => tree.give_to_owner(&file),
        }
        .map_err(failed)?;
        let mode = old.map_or(0o644, |old| old.st_mode & 0o777);
        let mode = if is_executable { mode | EXECUTE } else { mode & !EXECUTE };
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(failed)?;
        Ok(temporary.map_or(PreparedEntry::Unnamed(file), PreparedEntry::Named))
    }

    /// Gives a new entry a temporary name: only an entry with a name can replace another one.
    fn named(&self, place: &ChangePlace<'_>, prepared: PreparedEntry) -> Result<TemporaryName, FileError> {
        match prepared {
            PreparedEntry::Named(temporary) => Ok(temporary),
            PreparedEntry::Unnamed(file) => {
                let mut temporary = self.reserve(place)?;
                let linked = link_unnamed(&file, &place.dir, temporary.name().as_bytes());
                linked.map_err(|e| FileError::of(place.path, e))?;
                temporary.put_in_use();
                Ok(temporary)
            }
        }
    }

    fn reserve(&self, place: &ChangePlace<'_>) -> Result<TemporaryName, FileError> {
        let reserved = self.names.reserve(place.tree, &place.dir, &place.path.parent());
        reserved.map_err(|e| FileError::of(place.path, e))
    }
}

impl ChangePlace<'_> {
    /// Checks that an entry is the expected one.
    fn check(
        &self,
        entry: &FoundEntry,
        found: Option<&FoundEntry>,
        check: Option<EntryCheck<'_>>,
    ) -> Result<(), FileError> {
        match check {
            _ if entry.is(FileType::Directory) => Err(FileError::IsDirectory(self.path.clone())),
            Some(check) if check(entry, found) => Ok(()),
            Some(_) | None => Err(FileError::ChangedMeanwhile(self.path.clone())),
        }
    }
}

impl PreparedEntry {
    /// Gives the entry its name, if the name is free.
    fn take_free_name(&mut self, place: &ChangePlace<'_>) -> rustix::io::Result<()> {
        let name = place.path.name();
        match self {
            PreparedEntry::Unnamed(file) => link_unnamed(file, &place.dir, name),
            PreparedEntry::Named(temporary) => {
                rename_to_free(temporary, &place.dir, name)?;
                temporary.put_out_of_use();
                Ok(())
            }
        }
    }
}

/// Takes an exchange back. If an agent has replaced our entry meanwhile, the agent's entry stays.
fn exchange_back(temporary: TemporaryName, place: &ChangePlace<'_>, ours: Option<&FoundEntry>) {
    let name = place.path.name();
    match exchange(&temporary, &place.dir, name) {
        Ok(()) => {
            let out = FoundEntry::at(temporary.dir(), temporary.name().as_bytes()).ok().flatten();
            if let (Some(out), Some(ours)) = (out, ours)
                && !out.is_same(ours)
            {
                let _it_is_gone_by_now = exchange(&temporary, &place.dir, name);
            }
        }
        // An agent has removed our entry, so the name is free.
        Err(_) => {
            if rename_to_free(&temporary, &place.dir, name).is_ok() {
                temporary.release();
            }
        }
    }
}

#[cfg(test)]
mod tests;
