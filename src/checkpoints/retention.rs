//! Retention: a session keeps its first checkpoint and the newest ones, within a size on disk.
//!
//! A dropped checkpoint is merged into the next one, so that all others stay as they are. Contents
//! that no checkpoint has any more are removed with their packs. A pack that is mostly unused is
//! written again.
//!
//! Damage stops both: a sum without a damaged delta would be wrong, and its contents are unknown.
//! Once the oldest kept checkpoint is whole, earlier damaged deltas are removed.

use std::{collections::HashSet, fs};

use bytesize::ByteSize;

use super::{
    delta::{DeltaFile, PathChanges, compose, remove_delta, write_delta},
    entry::ContentHash,
    error::CheckpointError,
    pack::{PackWriter, pack_name},
    sealed::{remove_if_present, sync_dir},
    store::{CheckpointStore, Ending, SET_ASIDE, numbered_files},
};
use crate::config::CheckpointsConfig;

/// Share of the checkpoints that a run drops at least, as a divisor.
const SLACK: usize = 10;
/// Checkpoints that stay whatever their size: the first and the newest.
const MINIMUM: usize = 2;

impl CheckpointStore {
    /// Drops what the limits do not admit, except the checkpoints named in `pinned`.
    ///
    /// # Errors
    /// The store cannot be read or written. All checkpoints that are left stay as they are.
    pub(super) fn apply_limits(self, config: &CheckpointsConfig, pinned: &[String]) -> Result<(), CheckpointError> {
        let mut count = self.deltas.len();
        if count > config.keep {
            count = (config.keep - config.keep / SLACK).max(MINIMUM);
        } else if self.stored_bytes()? <= config.disk.as_u64() {
            return Ok(());
        }
        let mut store = self;
        loop {
            store.drop_oldest(count, pinned)?;
            store.sweep(config.disk)?;
            if store.stored_bytes()? <= config.disk.as_u64() {
                return Ok(());
            }
            store = CheckpointStore::open(&store.dir)?;
            if count <= MINIMUM {
                return store.remove_unreadable_packs();
            }
            count = (count / 2).max(MINIMUM);
        }
    }

    /// Merges the oldest checkpoints, except the first and the pinned ones, until `count` are left.
    fn drop_oldest(&mut self, count: usize, pinned: &[String]) -> Result<(), CheckpointError> {
        let numbers: Vec<u64> = self.deltas.keys().copied().collect();
        let excess = numbers.len().saturating_sub(count);
        let Some(oldest_kept) = numbers.get(excess + 1).copied().filter(|_| excess > 0) else { return Ok(()) };
        // A first checkpoint that is a sum with a lost delta cannot be read.
        let first_dropped = usize::from(self.deltas[&numbers[0]].record.parent.is_none());
        let mut dropped = Vec::new();
        for number in &numbers[first_dropped..=excess] {
            if pinned.contains(&self.deltas[number].record.name) {
                self.merge(&dropped, *number)?;
                dropped.clear();
            } else {
                dropped.push(*number);
            }
        }
        self.merge(&dropped, oldest_kept)?;
        // No kept checkpoint is a sum with a damaged delta before a whole one.
        let is_whole = |number: &u64| self.deltas.get(number).is_some_and(|delta| delta.record.parent.is_none());
        if let Some(whole) = [oldest_kept, numbers[0]].into_iter().find(is_whole) {
            let later = self.damaged.split_off(&whole);
            let past = std::mem::replace(&mut self.damaged, later);
            past.iter().try_for_each(|number| remove_delta(&self.dir, *number))?;
        }
        Ok(())
    }

    /// Merges neighbouring checkpoints into `kept`, unless damage lies between them.
    fn merge(&mut self, dropped: &[u64], kept: u64) -> Result<(), CheckpointError> {
        if dropped.is_empty() {
            return Ok(());
        }
        let mut summed = dropped.to_vec();
        summed.push(kept);
        // A whole delta has all files, so those before it are no part of the sum.
        let whole = summed.iter().rposition(|number| self.deltas[number].record.parent.is_none());
        summed.drain(..whole.unwrap_or(0));
        let is_next = |pair: &[u64]| self.deltas[&pair[1]].record.parent == Some(pair[0]);
        if !summed.windows(2).all(is_next) {
            return Ok(());
        }
        if summed.len() > 1 {
            let mut merged = PathChanges::new();
            for number in &summed {
                compose(&mut merged, self.deltas[number].changes()?);
            }
            let mut record = self.deltas[&kept].record.clone();
            record.parent = self.deltas[&summed[0]].record.parent;
            write_delta(&self.dir, &record, &merged)?;
        }
        for number in dropped {
            remove_delta(&self.dir, *number)?;
            self.deltas.remove(number);
        }
        if let Some(delta) = DeltaFile::read(&self.dir, kept)? {
            self.deltas.insert(kept, delta);
        }
        Ok(())
    }

    /// Removes contents that no checkpoint has, and what killed servers have left. A damaged delta
    /// may have any content, so nothing is removed while there is one.
    fn sweep(&self, limit: ByteSize) -> Result<(), CheckpointError> {
        if !self.damaged.is_empty() {
            return Ok(());
        }
        let mut live: HashSet<ContentHash> = HashSet::new();
        for delta in self.deltas.values() {
            let changes = delta.changes()?;
            live.extend(changes.values().flat_map(|change| [change.old, change.new]).flatten().map(|file| file.hash));
        }
        let mut number = self.next_number();
        for (pack, bytes) in self.blobs.live_bytes(|hash| live.contains(hash)) {
            let path = self.dir.join(pack_name(pack));
            let size = fs::metadata(&path)?.len();
            if bytes > 0 && bytes >= size / 2 {
                continue;
            }
            let mut writer = PackWriter::new(&self.dir, limit);
            let mut hashes = self.blobs.hashes_in(pack).filter(|hash| live.contains(hash));
            let copied = hashes.try_for_each(|hash| writer.add(hash, &self.blobs.content(&hash)?));
            match copied {
                Ok(()) => {}
                // The undamaged contents stay where they are.
                Err(CheckpointError::Damaged(_)) => continue,
                Err(error) => return Err(error),
            }
            if writer.finish(&self.dir, number)?.is_some() {
                sync_dir(&self.dir)?;
                number += 1;
            }
            fs::remove_file(&path)?;
        }
        for (number, ending) in numbered_files(&self.dir)? {
            if ending == Ending::Delta && self.is_merged(number) {
                remove_delta(&self.dir, number)?;
            }
        }
        Ok(())
    }

    /// Removes packs without a readable content.
    fn remove_unreadable_packs(&self) -> Result<(), CheckpointError> {
        for number in self.blobs.without_table() {
            remove_if_present(&self.dir.join(pack_name(number)))?;
        }
        for number in &self.set_aside {
            remove_if_present(&self.dir.join(format!("{number:08}.{SET_ASIDE}")))?;
        }
        Ok(())
    }
}
