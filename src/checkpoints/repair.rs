//! Repair: what later captures need in spite of damage. Runs before a capture.

use std::{collections::BTreeMap, fs};

use super::{
    capture::CaptureContext,
    delta::{CheckpointRecord, DeltaFile, changes_between, write_delta},
    entry::{CaptureTree, FileStamp},
    error::CheckpointError,
    pack::{PackWriter, pack_name},
    sealed::sync_dir,
    store::{CheckpointStore, HistoryPoint, SET_ASIDE},
};

impl CheckpointStore {
    /// Makes the first checkpoint after the newest damaged delta independent of that delta, as long
    /// as the index leads to its files.
    pub(super) fn repair_deltas(&mut self) -> Result<(), CheckpointError> {
        let Some(damaged) = self.damaged.last().copied() else { return Ok(()) };
        let Some(next) = self.deltas.range(damaged..).next().map(|(_, delta)| delta.record.clone()) else {
            return Ok(());
        };
        if next.parent.is_none() {
            return Ok(());
        }
        let number = next.number;
        let Ok(tree) = self.tree_at(HistoryPoint::Checkpoint(number)) else { return Ok(()) };
        let whole = CheckpointRecord { parent: None, ..next };
        write_delta(&self.dir, &whole, &changes_between(&CaptureTree::new(), &tree))?;
        if let Some(delta) = DeltaFile::read(&self.dir, number)? {
            self.deltas.insert(number, delta);
        }
        Ok(())
    }

    /// Examines the packs that are not `verified`, and sets those with a damaged content aside.
    /// Their other contents move to a new pack. What the workspace still has is then stored again.
    pub(super) fn repair_packs(
        &mut self,
        verified: &BTreeMap<u64, FileStamp>,
        context: CaptureContext<'_>,
    ) -> Result<(), CheckpointError> {
        let mut set_aside = self.blobs.without_table().collect::<Vec<_>>();
        for (pack, stamp) in self.blobs.stamps() {
            if verified.get(&pack) == Some(&stamp) || set_aside.contains(&pack) {
                continue;
            }
            let mut intact = Vec::new();
            let hashes: Vec<_> = self.blobs.hashes_in(pack).collect();
            for hash in &hashes {
                match self.blobs.content(hash) {
                    Ok(_) => intact.push(*hash),
                    Err(CheckpointError::Damaged(_)) => {}
                    Err(error) => return Err(error),
                }
                if (context.is_cancelled)() {
                    return Err(CheckpointError::Cancelled);
                }
            }
            if intact.len() == hashes.len() {
                continue;
            }
            let (mut writer, number) = (PackWriter::new(&self.dir, context.config.disk), self.next_number());
            intact.iter().try_for_each(|hash| writer.add(*hash, &self.blobs.content(hash)?))?;
            if writer.finish(&self.dir, number)?.is_some() {
                self.newest_number = number;
            }
            set_aside.push(pack);
        }
        if set_aside.is_empty() {
            return Ok(());
        }
        sync_dir(&self.dir)?;
        for pack in set_aside {
            fs::rename(self.dir.join(pack_name(pack)), self.dir.join(format!("{pack:08}.{SET_ASIDE}")))?;
        }
        *self = CheckpointStore::open(&self.dir)?;
        Ok(())
    }
}
