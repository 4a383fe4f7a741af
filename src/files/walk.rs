//! Reads of directories in the order of names, with bounded memory.
//!
//! A directory can have more entries than fit into memory. So a scan reads all names and keeps only
//! the smallest ones after a given name. The next scan continues after the last of them.

use std::{
    collections::BinaryHeap,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::fs::{Dir, FileType};

use super::{entry::FileKind, error::FileError, path::InnerPath, tree::WorkspaceTree};

/// Names that a scan keeps for a walk.
const BATCH: usize = 16_384;
/// Names that a walk keeps in all. Beyond, an outer directory is read again later.
const MAX_HELD: usize = 2 * BATCH;
/// Longest time of one scan.
const SCAN_TIMEOUT: Duration = Duration::from_secs(20);
/// Names between two looks at the clock.
const CLOCK_INTERVAL: usize = 4096;

/// Name that a scan found. Ordered by its bytes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScannedName {
    pub name: Vec<u8>,
    /// True if the entry may be a directory. Some file systems do not report types.
    pub may_be_dir: bool,
}

/// Reason to end a read early: the client is gone.
pub type IsCancelled<'a> = &'a (dyn Fn() -> bool + Sync);

/// Request for the next names of a directory.
pub struct NameScan<'a> {
    /// Directory, for errors.
    pub path: &'a InnerPath,
    /// Name after which the names begin.
    pub after: Option<&'a [u8]>,
    /// Highest number of names.
    pub count: usize,
    pub is_cancelled: IsCancelled<'a>,
}

impl NameScan<'_> {
    /// Returns the smallest names that `accepts` admits, in order.
    ///
    /// # Errors
    /// The directory cannot be read, or not within [`SCAN_TIMEOUT`].
    pub fn run(&self, dir: OwnedFd, accepts: impl Fn(&[u8]) -> bool) -> Result<Vec<ScannedName>, FileError> {
        let NameScan { path, after, count, is_cancelled } = *self;
        let failed = |e| FileError::of(path, e);
        let began = Instant::now();
        let mut smallest: BinaryHeap<ScannedName> = BinaryHeap::new();
        for (at, entry) in Dir::new(dir).map_err(failed)?.enumerate() {
            let entry = entry.map_err(failed)?;
            if at % CLOCK_INTERVAL == 0 && (began.elapsed() > SCAN_TIMEOUT || is_cancelled()) {
                return Err(FileError::TooSlow(path.clone(), SCAN_TIMEOUT.as_secs()));
            }
            let name = entry.file_name().to_bytes();
            let is_later = after.is_none_or(|after| name > after);
            let is_small = || smallest.len() < count || smallest.peek().is_some_and(|last| name < &last.name[..]);
            if matches!(name, b"." | b"..") || !is_later || !is_small() || !accepts(name) {
                continue;
            }
            let may_be_dir = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            smallest.push(ScannedName { name: name.to_owned(), may_be_dir });
            if smallest.len() > count {
                smallest.pop();
            }
        }
        Ok(smallest.into_sorted_vec())
    }
}

/// Walk over a tree: each directory before its entries, entries in the order of their names.
///
/// Holds no directory open. A directory that changes meanwhile yields the names after the last one.
pub(super) struct Walk<'a> {
    tree: &'a WorkspaceTree,
    /// Directories from the start down to the current one.
    levels: Vec<Level>,
    /// Entry that the walk yielded last.
    last: Option<InnerPath>,
    /// Names that the levels keep.
    held: usize,
    /// Reads of directories so far.
    scans: usize,
}

/// Directory of a walk.
struct Level {
    path: InnerPath,
    /// Last name that the walk took.
    after: Option<Vec<u8>>,
    /// Names after it, in reverse order.
    names: Vec<ScannedName>,
    /// True if the directory has no names after those.
    is_complete: bool,
}

impl Level {
    fn new(path: InnerPath, after: Option<Vec<u8>>) -> Level {
        Level { path, after, names: Vec::new(), is_complete: false }
    }
}

/// Step of a walk.
pub(super) enum WalkStep {
    Entry(InnerPath),
    /// The current directory must be read next, which may take long.
    Scan,
    End,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: &'a WorkspaceTree, start: InnerPath) -> Walk<'a> {
        Walk { tree, levels: vec![Level::new(start, None)], last: None, held: 0, scans: 0 }
    }

    /// Continues a walk after the entry `last`, which may be gone. `None` if `last` is not below
    /// `start`.
    pub(super) fn resume(tree: &'a WorkspaceTree, start: InnerPath, last: &InnerPath) -> Option<Walk<'a>> {
        let mut levels = Vec::new();
        let mut path = start.clone();
        for name in last.parts_below(&start)? {
            levels.push(Level::new(path.clone(), Some(name.to_owned())));
            path = path.join(name)?;
        }
        // The entries of `last`, if it is a directory.
        levels.push(Level::new(path, None));
        Some(Walk { tree, levels, last: Some(last.clone()), held: 0, scans: 0 })
    }

    /// Takes the next step. A [`WalkStep::Scan`] is a chance to stop: the next step reads.
    pub(super) fn step(&mut self) -> WalkStep {
        loop {
            let Some(level) = self.levels.last_mut() else { return WalkStep::End };
            match level.names.pop() {
                Some(ScannedName { name, may_be_dir }) => {
                    self.held -= 1;
                    let path = level.path.join(&name);
                    level.after = Some(name);
                    // A longer path cannot be named in a request.
                    let Some(path) = path else { continue };
                    if may_be_dir {
                        self.descend(path.clone());
                    }
                    self.last = Some(path.clone());
                    return WalkStep::Entry(path);
                }
                None if level.is_complete => {
                    self.levels.pop();
                }
                None => return WalkStep::Scan,
            }
        }
    }

    /// Reads the current directory. A directory that is gone, closed or replaced has no entries.
    ///
    /// # Errors
    /// [`FileError::TooSlow`] if the directory is too large, or the client is gone.
    pub(super) fn scan(&mut self, is_cancelled: IsCancelled<'_>) -> Result<(), FileError> {
        self.scans += 1;
        let is_start = self.levels.len() == 1 && self.scans == 1;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let (path, after) = (&level.path, level.after.as_deref());
        let names = NameScan { path, after, count: BATCH, is_cancelled };
        let scanned = self.tree.open_dir(path).and_then(|dir| names.run(dir, |_| true));
        let names = match scanned {
            Ok(names) => names,
            Err(error @ FileError::TooSlow(..)) => return Err(error),
            Err(error) if is_start => return Err(error),
            Err(_) => Vec::new(),
        };
        level.is_complete = names.len() < BATCH;
        level.names = names;
        level.names.reverse();
        self.held += level.names.len();
        Ok(())
    }

    fn descend(&mut self, dir: InnerPath) {
        // The outermost directories are read again last.
        for level in &mut self.levels {
            if self.held <= MAX_HELD - BATCH {
                break;
            }
            self.held -= level.names.len();
            level.is_complete &= level.names.is_empty();
            level.names = Vec::new();
        }
        self.levels.push(Level::new(dir, None));
    }

    /// Returns the last entry, after which a later walk continues.
    pub(super) fn position(&self) -> Option<InnerPath> {
        self.last.clone()
    }
}

/// Returns the entry at `path` with its kind. `None` if the entry is gone.
pub(super) fn examine(tree: &WorkspaceTree, path: &InnerPath) -> Option<(FileKind, rustix::fs::Stat)> {
    let (_, stat) = tree.locate(path).ok()?;
    Some((FileKind::of(&stat), stat))
}
