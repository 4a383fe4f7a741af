//! Store of one session's checkpoints: packs with contents, and a delta for each checkpoint.
//!
//! A checkpoint exists from the moment its delta has its name. The pack is complete before. The
//! index is a cache: the files of the newest checkpoint with their stamps.
//!
//! A reader takes no lock. It opens all files of the store first, and opens them again if their
//! names have changed meanwhile. What it has open stays readable.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    delta::{
        CheckpointRecord, DELTA, DeltaFile, PathChanges, apply, changes_between, compose, delta_name, inverse,
        write_delta,
    },
    entry::{CaptureTree, CapturedFile, FileIndex, FileStamp, IndexedFile, without_stamps},
    error::CheckpointError,
    pack::{BlobTable, PACK, pack_name},
    sealed::{Durability, create_new, read_sealed, write_sealed},
};
use crate::files::InnerPath;

pub(super) const INDEX: &str = "index";
/// File with the state of the workspace before the first turn.
const START_STATE: &str = "start";
/// Ending of the name of a damaged pack whose readable contents are in another one.
pub(super) const SET_ASIDE: &str = "pack.damaged";
/// Attempts to open a store whose files change meanwhile.
const OPEN_ATTEMPTS: usize = 10;

/// Name of the workspace before the first turn.
pub(super) const START: &str = "start";

/// Open store of a session. A store that does not exist has no checkpoints.
#[derive(Debug)]
pub(super) struct CheckpointStore {
    pub(super) dir: PathBuf,
    /// Deltas by number.
    pub(super) deltas: BTreeMap<u64, DeltaFile>,
    /// Numbers of damaged and lost deltas.
    pub(super) damaged: BTreeSet<u64>,
    pub(super) blobs: BlobTable,
    /// Numbers of damaged packs whose readable contents are in other packs.
    pub(super) set_aside: Vec<u64>,
    pub(super) start: StartState,
    /// Highest number of a file.
    pub(super) newest_number: u64,
}

/// Workspace before the first turn, unless it has a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartState {
    /// No turn was captured yet.
    Unrecorded,
    /// Known to have had no files.
    Empty,
    /// Not captured, and a turn has run since.
    Unknown,
}

/// First line of the index.
#[derive(Serialize, Deserialize)]
struct IndexHeader {
    /// Number of the checkpoint that has these files.
    number: u64,
    /// Packs whose contents were as written. One with another stamp is examined again.
    #[serde(default)]
    packs: BTreeMap<u64, FileStamp>,
}

/// Index of the store as it is on disk.
pub(super) struct StoredIndex {
    number: u64,
    pub packs: BTreeMap<u64, FileStamp>,
    files: FileIndex,
}

/// Point in the history of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistoryPoint {
    /// Before the first checkpoint, without files.
    Empty,
    Checkpoint(u64),
}

impl CheckpointStore {
    /// Opens the store in `dir`.
    ///
    /// # Errors
    /// The directory cannot be read. Damage is no error: see [`CheckpointStore::damage`].
    pub(super) fn open(dir: &Path) -> Result<CheckpointStore, CheckpointError> {
        for _ in 1..OPEN_ATTEMPTS {
            match CheckpointStore::read(dir) {
                Ok(Some(store)) => return Ok(store),
                Ok(None) => {}
                // A file that was merged or removed meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(io::Error::other("the store changes all the time").into())
    }

    /// Opens all files of the store. `None` if their names have changed meanwhile.
    fn read(dir: &Path) -> io::Result<Option<CheckpointStore>> {
        let (mut deltas, mut damaged, mut packs) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let (mut newest_number, mut set_aside) = (0, Vec::new());
        let files = numbered_files(dir)?;
        for (number, ending) in files.iter().copied() {
            newest_number = newest_number.max(number);
            match ending {
                Ending::Pack => packs.push(number),
                Ending::SetAside => set_aside.push(number),
                Ending::Delta => match DeltaFile::read(dir, number)? {
                    Some(delta) => {
                        deltas.insert(number, delta);
                    }
                    None => {
                        damaged.insert(number);
                    }
                },
            }
        }
        let blobs = BlobTable::read(dir, &packs)?;
        let start = StartState::read(dir)?;
        let mut store =
            CheckpointStore { dir: dir.to_owned(), deltas, damaged, blobs, set_aside, start, newest_number };
        store.forget_merged();
        Ok((numbered_files(dir)? == files).then_some(store))
    }

    /// Drops deltas that a later one has taken in. A killed server may have left their files. Notes
    /// the lost ones.
    fn forget_merged(&mut self) {
        let parent = |delta: &DeltaFile| delta.record.parent.unwrap_or(delta.record.number);
        let spans: Vec<(u64, u64)> = self.deltas.values().map(|delta| (parent(delta), delta.record.number)).collect();
        let is_merged = |number: u64| spans.iter().any(|(from, to)| *from < number && number < *to);
        self.deltas.retain(|number, _| !is_merged(*number));
        self.damaged.retain(|number| !is_merged(*number));
        let lost = self.deltas.values().map(parent).filter(|number| !self.deltas.contains_key(number));
        self.damaged.extend(lost);
    }

    /// Returns true if a later delta has taken this one in.
    pub(super) fn is_merged(&self, number: u64) -> bool {
        !self.deltas.contains_key(&number) && !self.damaged.contains(&number)
    }

    /// Creates the directory.
    pub(super) fn create_dir(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// Describes the damage, for a person.
    pub(super) fn damage(&self) -> Option<String> {
        let deltas = self.damaged.iter().map(|number| delta_name(*number));
        let packs = self.blobs.without_table().chain(self.set_aside.iter().copied()).map(pack_name);
        let names: Vec<String> = deltas.chain(packs).collect();
        let described = || format!("{} of `{}`", names.join(", "), self.dir.display());
        (!names.is_empty()).then(described)
    }

    /// Records the state of the workspace before the first turn.
    pub(super) fn record_start(&mut self, start: StartState) -> io::Result<()> {
        self.create_dir()?;
        let mut file = create_new(&self.dir.join(START_STATE))?;
        file.write_all(if start == StartState::Empty { StartState::EMPTY } else { b"" })?;
        self.start = start;
        Ok(())
    }

    pub(super) fn next_number(&self) -> u64 {
        self.newest_number + 1
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &CheckpointRecord> {
        self.deltas.values().map(|delta| &delta.record)
    }

    pub(super) fn latest(&self) -> Option<&CheckpointRecord> {
        self.deltas.last_key_value().map(|(_, delta)| &delta.record)
    }

    /// Returns the newest point.
    pub(super) fn now(&self) -> HistoryPoint {
        self.latest().map_or(HistoryPoint::Empty, |record| HistoryPoint::Checkpoint(record.number))
    }

    /// Returns the point of this name. `start` needs no checkpoint if the workspace was empty.
    ///
    /// # Errors
    /// [`CheckpointError::NoCheckpoint`].
    pub(super) fn point(&self, name: &str) -> Result<HistoryPoint, CheckpointError> {
        match self.records().find(|record| record.name == name) {
            Some(record) => Ok(HistoryPoint::Checkpoint(record.number)),
            None if name == START && self.start == StartState::Empty => Ok(HistoryPoint::Empty),
            None => Err(CheckpointError::NoCheckpoint(name.to_owned())),
        }
    }

    /// Returns the files at a point.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if a delta on the way is damaged.
    pub(super) fn tree_at(&self, point: HistoryPoint) -> Result<CaptureTree, CheckpointError> {
        let HistoryPoint::Checkpoint(number) = point else { return Ok(CaptureTree::new()) };
        let summed = self.chain(None, number).map(|chain| {
            let mut tree = CaptureTree::new();
            chain.into_iter().try_for_each(|delta| delta.changes().map(|changes| apply(&mut tree, &changes)))?;
            Ok(tree)
        });
        let damaged = match summed {
            Some(Ok(tree)) => return Ok(tree),
            Some(Err(error)) => error,
            None => CheckpointError::Damaged(self.damage().unwrap_or_else(|| delta_name(number))),
        };
        // An earlier delta is damaged. The way back from the index may be intact.
        let way = self.index().and_then(|index| Some((self.chain(Some(number), index.number)?, index.files)));
        let Some((chain, index)) = way else { return Err(damaged) };
        let mut tree = without_stamps(&index);
        for delta in chain.into_iter().rev() {
            apply(&mut tree, &inverse(delta.changes()?));
        }
        Ok(tree)
    }

    /// Returns the deltas after `from` up to `to`, oldest first. `from` is `None` for the first.
    fn chain(&self, from: Option<u64>, to: u64) -> Option<Vec<&DeltaFile>> {
        let (mut chain, mut at) = (Vec::new(), Some(to));
        while at != from {
            let delta = self.deltas.get(&at?)?;
            at = delta.record.parent;
            chain.push(delta);
        }
        chain.reverse();
        Some(chain)
    }

    /// Returns what changed between two points.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`].
    pub(super) fn changes(&self, from: HistoryPoint, to: HistoryPoint) -> Result<PathChanges, CheckpointError> {
        let number = |point| match point {
            HistoryPoint::Empty => None,
            HistoryPoint::Checkpoint(number) => Some(number),
        };
        let (from_number, to_number) = (number(from), number(to));
        if from_number > to_number {
            return Ok(inverse(self.changes(to, from)?));
        }
        let Some(chain) = to_number.map_or(Some(Vec::new()), |to| self.chain(from_number, to)) else {
            return Ok(changes_between(&self.tree_at(from)?, &self.tree_at(to)?));
        };
        let mut changes = PathChanges::new();
        for delta in chain {
            compose(&mut changes, delta.changes()?);
        }
        Ok(changes)
    }

    /// Returns the files of the newest checkpoint. `None` if damage has left no way to them.
    pub(super) fn latest_index(&self) -> Option<FileIndex> {
        self.latest_since(self.index())
    }

    /// Returns the files of the newest checkpoint, with the index as it is on disk.
    pub(super) fn latest_since(&self, index: Option<StoredIndex>) -> Option<FileIndex> {
        let Some(latest) = self.latest() else { return Some(FileIndex::new()) };
        if let Some(StoredIndex { number, mut files, .. }) = index
            && let Some(chain) = self.chain(Some(number), latest.number)
        {
            for delta in chain {
                for (path, change) in delta.changes().ok()? {
                    match change.new {
                        Some(file) => files.insert(path, IndexedFile { file, stamp: None }),
                        None => files.remove(&path),
                    };
                }
            }
            return Some(files);
        }
        let tree = self.tree_at(self.now()).ok()?;
        Some(tree.into_iter().map(|(path, file)| (path, IndexedFile { file, stamp: None })).collect())
    }

    /// Returns the index, unless it is missing or damaged.
    pub(super) fn index(&self) -> Option<StoredIndex> {
        let body = read_sealed(&self.dir.join(INDEX)).ok()??;
        let mut lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let IndexHeader { number, packs } = serde_json::from_slice(lines.next()?).ok()?;
        let mut files = FileIndex::new();
        for line in lines {
            let (path, file, stamp): (InnerPath, CapturedFile, Option<FileStamp>) =
                serde_json::from_slice(line).ok()?;
            files.insert(path, IndexedFile { file, stamp });
        }
        Some(StoredIndex { number, packs, files })
    }

    /// Writes the delta of a checkpoint, whose pack is complete.
    pub(super) fn commit(&mut self, record: CheckpointRecord, changes: &PathChanges) -> Result<(), CheckpointError> {
        self.create_dir()?;
        write_delta(&self.dir, &record, changes)?;
        let number = record.number;
        self.newest_number = self.newest_number.max(number);
        if let Some(delta) = DeltaFile::read(&self.dir, number)? {
            self.deltas.insert(number, delta);
        }
        Ok(())
    }

    pub(super) fn write_index(&self, number: u64, index: &FileIndex) -> io::Result<()> {
        let mut body = serde_json::to_vec(&IndexHeader { number, packs: self.blobs.stamps() })?;
        for (path, IndexedFile { file, stamp }) in index {
            body.push(b'\n');
            serde_json::to_writer(&mut body, &(path, file, stamp))?;
        }
        write_sealed(&self.dir, INDEX, &body, Durability::Cached)
    }

    /// Returns the size of the store on disk, bytes.
    pub(super) fn stored_bytes(&self) -> io::Result<u64> {
        match fs::read_dir(&self.dir) {
            Ok(entries) => entries.map(|entry| size_of(&entry?)).sum(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(e),
        }
    }
}

/// Returns the size of a file. One that was removed meanwhile has none.
fn size_of(entry: &fs::DirEntry) -> io::Result<u64> {
    match entry.metadata() {
        Ok(found) => Ok(found.len()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(e),
    }
}

impl StartState {
    const EMPTY: &[u8] = b"empty\n";

    fn read(dir: &Path) -> io::Result<StartState> {
        match fs::read(dir.join(START_STATE)) {
            Ok(content) if content == StartState::EMPTY => Ok(StartState::Empty),
            Ok(_) => Ok(StartState::Unknown),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(StartState::Unrecorded),
            Err(e) => Err(e),
        }
    }
}

/// Kind of a numbered file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    Delta,
    Pack,
    SetAside,
}

/// Returns the numbered files of a store in their order. A store that does not exist has none.
pub(super) fn numbered_files(dir: &Path) -> io::Result<Vec<(u64, Ending)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some((number, ending)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
        let ending = match ending {
            DELTA => Ending::Delta,
            PACK => Ending::Pack,
            SET_ASIDE => Ending::SetAside,
            _ => continue,
        };
        files.extend(number.parse().ok().map(|number| (number, ending)));
    }
    files.sort_unstable();
    Ok(files)
}
