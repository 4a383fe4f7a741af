//! Reads the files of a workspace. An agent chooses each name, link and type, and can change them
//! between two calls of the kernel.
//!
//! Each directory is opened beneath the workspace, and each entry is examined before it is opened.
//! Links are read and never followed. Devices, FIFOs and sockets are not opened.

use std::{io::Read, os::fd::OwnedFd, rc::Rc};

use greenroom_protocol::checkpoint::{LeftOutEntry, LeftOutReason};
use rustix::{
    fs::{AtFlags, FileType, Stat},
    io::Errno,
};

use super::{
    delta::GitHead,
    entry::{CaptureMode, CapturedFile, ContentHash, FileIndex, FileStamp, IndexedFile},
    error::CheckpointError,
    git_head::read_git_head,
    ignore_rules::{GitignoreBudget, IgnoreRules},
    left_out::LeftOutPaths,
};
use crate::{
    config::CheckpointsConfig,
    files::{FileError, InnerPath, IsCancelled, NameScan, PathText, ScannedName, WorkspaceTree},
};

/// Left-out entries that a scan names. It counts the others.
pub(super) const LEFT_OUT_NAMED: usize = 100;
/// Entries that a scan examines for each file that it may capture.
const ENTRIES_PER_FILE: usize = 4;
/// Entries between two looks at `is_cancelled`.
const CANCEL_INTERVAL: usize = 64;

/// Store of the contents that a scan reads.
pub(super) trait ContentSink {
    /// Returns true if a file of this size may be read. Fails if the scan is cancelled.
    fn admits(&mut self, bytes: u64) -> Result<bool, CheckpointError>;
    fn has(&self, hash: &ContentHash) -> bool;
    fn add(&mut self, hash: ContentHash, content: &[u8]) -> Result<(), CheckpointError>;
}

/// Files of a workspace, and what was left out.
#[derive(Debug, Default)]
pub(super) struct ScannedWorkspace {
    /// Files that were found. Files of the newest checkpoint whose path is left out now are kept as
    /// they were: the scan does not show that they are gone.
    pub index: FileIndex,
    /// Number of the files that were found.
    pub files: u64,
    /// Size of the files that were found.
    pub bytes: u64,
    /// First left-out entries, for a person.
    pub left_out: Vec<LeftOutEntry>,
    pub left_out_more: u64,
    /// Left-out entries, complete.
    pub left_out_paths: LeftOutPaths,
    pub git: Option<GitHead>,
}

/// Scan of a workspace.
pub(super) struct WorkspaceScan<'a> {
    pub tree: &'a WorkspaceTree,
    pub config: &'a CheckpointsConfig,
    /// Files of the newest checkpoint. One with the same stamp is not read again.
    pub known: &'a FileIndex,
    pub is_cancelled: IsCancelled<'a>,
}

/// Part of the workspace that is still to be read.
struct PendingDir {
    path: InnerPath,
    rules: Rc<IgnoreRules>,
}

/// Directory that is being read.
struct OpenDir<'a> {
    fd: &'a OwnedFd,
    path: &'a InnerPath,
    rules: Rc<IgnoreRules>,
}

/// Result of the examination of one entry.
enum ScannedEntry {
    File(IndexedFile),
    Dir,
    /// The workspace's own repository.
    OwnGit,
    /// Gone since its name was read.
    Gone,
    LeftOut(LeftOutReason),
}

impl WorkspaceScan<'_> {
    /// Reads the workspace. New contents go to `sink`.
    ///
    /// # Errors
    /// The workspace cannot be opened, the sink fails, or the scan is cancelled.
    pub(super) fn run(&self, sink: &mut impl ContentSink) -> Result<ScannedWorkspace, CheckpointError> {
        let mut scanned = ScannedWorkspace::default();
        let mut budget = GitignoreBudget::default();
        let root = PendingDir { path: InnerPath::default(), rules: IgnoreRules::of_config(&self.config.exclude) };
        let (mut pending, mut seen) = (vec![root], 0);
        let max_entries = self.config.max_files.saturating_mul(ENTRIES_PER_FILE);
        'dirs: while let Some(PendingDir { path, rules }) = pending.pop() {
            let (fd, names) = match self.read_dir(&path, (max_entries - seen).saturating_add(1)) {
                Ok(read) => read,
                Err(_) if (self.is_cancelled)() => return Err(CheckpointError::Cancelled),
                Err(error) if path.is_root() => return Err(error.into()),
                Err(FileError::Missing(_)) => continue,
                Err(_) => {
                    scanned.leave_out(&path, LeftOutReason::Unreadable);
                    continue;
                }
            };
            let rules = rules.inside(self.tree, &path, names.iter().map(|found| &found.name[..]), &mut budget);
            let dir = OpenDir { fd: &fd, path: &path, rules };
            for ScannedName { name, .. } in names {
                seen += 1;
                if seen % CANCEL_INTERVAL == 0 && (self.is_cancelled)() {
                    return Err(CheckpointError::Cancelled);
                }
                let Some(entry) = path.join(&name) else {
                    // Directories can be nested deeper than the kernel accepts in a path.
                    scanned.leave_out_rest(&path);
                    continue;
                };
                if seen > max_entries {
                    scanned.leave_out(&entry, LeftOutReason::Limit);
                    scanned.leave_out_rest(&InnerPath::default());
                    break 'dirs;
                }
                let has_room = scanned.index.len() < self.config.max_files;
                match self.examine(&dir, &entry, has_room, sink)? {
                    ScannedEntry::Dir => pending.push(PendingDir { path: entry, rules: dir.rules.clone() }),
                    ScannedEntry::OwnGit => scanned.git = read_git_head(self.tree),
                    ScannedEntry::Gone => {}
                    ScannedEntry::LeftOut(reason) => scanned.leave_out(&entry, reason),
                    ScannedEntry::File(indexed) => {
                        scanned.files += 1;
                        scanned.bytes += indexed.file.size;
                        scanned.index.insert(entry, indexed);
                    }
                }
            }
        }
        scanned.keep_unseen(self.known);
        Ok(scanned)
    }

    fn read_dir(&self, path: &InnerPath, count: usize) -> Result<(OwnedFd, Vec<ScannedName>), FileError> {
        let fd = self.tree.open_dir(path)?;
        let read = fd.try_clone().map_err(|e| FileError::of(path, e))?;
        let names = NameScan { path, after: None, count, is_cancelled: self.is_cancelled }.run(read, |_| true)?;
        Ok((fd, names))
    }

    /// Examines an entry, and captures a file or a link.
    fn examine(
        &self,
        dir: &OpenDir<'_>,
        entry: &InnerPath,
        has_room: bool,
        sink: &mut impl ContentSink,
    ) -> Result<ScannedEntry, CheckpointError> {
        let stat = match rustix::fs::statat(dir.fd, entry.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(ScannedEntry::Gone),
            Err(_) => return Ok(ScannedEntry::LeftOut(LeftOutReason::Unreadable)),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_dir = kind == FileType::Directory;
        if is_dir && dir.path.is_root() && entry.name() == b".git" {
            return Ok(ScannedEntry::OwnGit);
        }
        if dir.rules.is_ignored(entry, is_dir) {
            return Ok(ScannedEntry::LeftOut(LeftOutReason::Ignored));
        }
        match kind {
            FileType::Directory => Ok(ScannedEntry::Dir),
            FileType::RegularFile | FileType::Symlink if has_room => self.capture(entry, &stat, sink),
            FileType::RegularFile | FileType::Symlink => Ok(ScannedEntry::LeftOut(LeftOutReason::Limit)),
            _ => Ok(ScannedEntry::LeftOut(LeftOutReason::Special)),
        }
    }

    /// Captures a file or a link, and reads it if it may have changed.
    fn capture(
        &self,
        path: &InnerPath,
        stat: &Stat,
        sink: &mut impl ContentSink,
    ) -> Result<ScannedEntry, CheckpointError> {
        let mode = CaptureMode::of(stat);
        if !mode.is_link() && u64::try_from(stat.st_size).unwrap_or(0) > self.config.max_file.as_u64() {
            return Ok(ScannedEntry::LeftOut(LeftOutReason::TooLarge));
        }
        let stamp = FileStamp::of(stat);
        if let Some(known) = self.known.get(path)
            && known.stamp == Some(stamp)
            && known.file.mode.is_link() == mode.is_link()
            && sink.has(&known.file.hash)
        {
            let file = CapturedFile { mode, ..known.file };
            return Ok(ScannedEntry::File(IndexedFile { file, stamp: known.stamp }));
        }
        if !sink.admits(u64::try_from(stat.st_size).unwrap_or(0))? {
            return Ok(ScannedEntry::LeftOut(LeftOutReason::Limit));
        }
        let read = if mode.is_link() {
            self.tree.read_link(path).map(|target| (target, mode, stamp)).map_err(not_read)
        } else {
            self.read_file(path)
        };
        let (content, mode, stamp) = match read {
            Ok(read) => read,
            Err(None) => return Ok(ScannedEntry::Gone),
            Err(Some(reason)) => return Ok(ScannedEntry::LeftOut(reason)),
        };
        let hash = ContentHash::of(&content);
        if !sink.has(&hash) {
            sink.add(hash, &content)?;
        }
        let file = CapturedFile { mode, size: content.len() as u64, hash };
        Ok(ScannedEntry::File(IndexedFile { file, stamp: Some(stamp).filter(|stamp| !stamp.is_recent()) }))
    }

    /// Reads a file. The error is the reason to leave it out, or `None` if it is gone.
    fn read_file(&self, path: &InnerPath) -> Result<(Vec<u8>, CaptureMode, FileStamp), Option<LeftOutReason>> {
        let file = self.tree.open_file(path).map_err(not_read)?;
        // Before the content is read: a later change has another stamp.
        let stat = rustix::fs::fstat(&file).map_err(|_| Some(LeftOutReason::Unreadable))?;
        let limit = self.config.max_file.as_u64();
        let mut content = Vec::new();
        file.take(limit + 1).read_to_end(&mut content).map_err(|_| Some(LeftOutReason::Unreadable))?;
        match content.len() as u64 > limit {
            true => Err(Some(LeftOutReason::TooLarge)),
            false => Ok((content, CaptureMode::of(&stat), FileStamp::of(&stat))),
        }
    }
}

/// Returns the reason to leave an entry out that cannot be read, or `None` if it is gone.
fn not_read(error: FileError) -> Option<LeftOutReason> {
    match error {
        FileError::Missing(_) => None,
        // An agent has put another entry into the place.
        _ => Some(LeftOutReason::Unreadable),
    }
}

impl ScannedWorkspace {
    fn leave_out(&mut self, path: &InnerPath, reason: LeftOutReason) {
        self.left_out_paths.add(path.clone());
        self.name_left_out(path, reason);
    }

    /// Leaves out the entries of a directory that were not examined.
    fn leave_out_rest(&mut self, dir: &InnerPath) {
        if self.left_out_paths.add_incomplete(dir.clone()) && !dir.is_root() {
            self.name_left_out(dir, LeftOutReason::Limit);
        }
    }

    fn name_left_out(&mut self, path: &InnerPath, reason: LeftOutReason) {
        if self.left_out.len() >= LEFT_OUT_NAMED {
            self.left_out_more += 1;
            return;
        }
        let PathText { text, encoded } = path.text();
        self.left_out.push(LeftOutEntry { path: text, encoded, reason });
    }

    /// Keeps the files of the newest checkpoint that may still be there. Bound: as many files in
    /// all as the configuration admits at most.
    fn keep_unseen(&mut self, known: &FileIndex) {
        let left_out = &self.left_out_paths;
        if left_out.is_empty() {
            return;
        }
        let room = CheckpointsConfig::MAX_FILES_LIMIT.saturating_sub(self.index.len());
        let unseen = known.iter().filter(|(path, _)| !self.index.contains_key(path) && left_out.may_have(path));
        let kept: Vec<_> = unseen.take(room).map(|(path, indexed)| (path.clone(), *indexed)).collect();
        self.index.extend(kept);
    }
}
