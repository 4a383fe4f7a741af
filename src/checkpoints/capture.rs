//! Capture of a workspace into the store.

use std::time::Instant;

use greenroom_protocol::checkpoint::CheckpointKind;
use tracing::warn;

use super::{
    delta::{CheckpointRecord, PathChanges, changes_between},
    entry::{ContentHash, without_stamps},
    error::CheckpointError,
    pack::{BlobTable, PackWriter},
    scan::{ContentSink, WorkspaceScan},
    store::{CheckpointStore, START, StartState},
};
use crate::{
    clock,
    config::CheckpointsConfig,
    files::{IsCancelled, WorkspaceTree},
};

/// Request for a checkpoint.
pub(super) struct CaptureRequest<'a> {
    pub name: &'a str,
    pub kind: CheckpointKind,
    /// Checkpoint that a restore went back to.
    pub of: Option<&'a str>,
}

/// Parts of a capture that do not change with it.
#[derive(Clone, Copy)]
pub(super) struct CaptureContext<'a> {
    pub tree: &'a WorkspaceTree,
    pub config: &'a CheckpointsConfig,
    pub is_cancelled: IsCancelled<'a>,
    /// Returns true once later changes may be part of the checkpoint.
    pub is_late: &'a dyn Fn() -> bool,
}

/// Completed capture.
pub(super) struct CapturedWorkspace {
    pub record: CheckpointRecord,
    /// Changes since the checkpoint before. Empty if the files before are not known.
    pub changes: PathChanges,
    /// False if changed files were left out because the capture has a budget.
    pub is_complete: bool,
}

/// Limits of one scan: `checkpoints.max_bytes` and `checkpoints.max_time`. Unchanged files are not
/// read and cost nothing.
struct ScanBudget<'a> {
    bytes: u64,
    until: Instant,
    is_cancelled: IsCancelled<'a>,
    is_spent: bool,
}

/// Sink that keeps what the store does not have yet.
struct NewContents<'a> {
    blobs: &'a BlobTable,
    pack: PackWriter,
    budget: ScanBudget<'a>,
}

impl<'a> ScanBudget<'a> {
    fn of(CaptureContext { config, is_cancelled, .. }: CaptureContext<'a>) -> ScanBudget<'a> {
        let until = Instant::now() + config.max_time.0;
        ScanBudget { bytes: config.max_bytes.as_u64(), until, is_cancelled, is_spent: false }
    }

    fn admits(&mut self, bytes: u64) -> Result<bool, CheckpointError> {
        if (self.is_cancelled)() {
            return Err(CheckpointError::Cancelled);
        }
        match self.bytes.checked_sub(bytes) {
            Some(left) if Instant::now() < self.until => self.bytes = left,
            Some(_) | None => self.is_spent = true,
        }
        Ok(!self.is_spent)
    }
}

impl ContentSink for NewContents<'_> {
    fn admits(&mut self, bytes: u64) -> Result<bool, CheckpointError> {
        self.budget.admits(bytes)
    }

    fn has(&self, hash: &ContentHash) -> bool {
        self.blobs.has(hash) || self.pack.has(hash)
    }

    fn add(&mut self, hash: ContentHash, content: &[u8]) -> Result<(), CheckpointError> {
        self.pack.add(hash, content)
    }
}

/// Captures the workspace. Afterwards, `store` has the new contents and the new checkpoint.
///
/// If the store has a checkpoint of this name, an earlier server has taken it, and it is returned.
pub(super) fn capture(
    store: &mut CheckpointStore,
    request: &CaptureRequest<'_>,
    context: CaptureContext<'_>,
) -> Result<CapturedWorkspace, CheckpointError> {
    if let Some(delta) = store.deltas.values().find(|delta| delta.record.name == request.name) {
        let (record, changes) = (delta.record.clone(), delta.changes()?);
        return Ok(CapturedWorkspace { changes: known_changes(store, &record, changes), record, is_complete: true });
    }
    let is_first = store.latest().is_none() && store.damage().is_none();
    if is_first && request.name != START && store.start == StartState::Unrecorded {
        store.record_start(StartState::Unknown)?;
    }
    store.create_dir()?;
    store.repair_deltas()?;
    let index = store.index();
    let verified = index.as_ref().map(|index| index.packs.clone()).unwrap_or_default();
    store.repair_packs(&verified, context)?;
    // After damage, the next checkpoint has all files.
    let known = store.latest_since(index);
    let parent = known.as_ref().and_then(|_| store.latest()).map(|latest| latest.number);
    let known = known.unwrap_or_default();
    let number = store.next_number();
    let pack = PackWriter::new(&store.dir, context.config.disk);
    let mut sink = NewContents { blobs: &store.blobs, pack, budget: ScanBudget::of(context) };
    let CaptureContext { tree, config, is_cancelled, .. } = context;
    let scanned = WorkspaceScan { tree, config, known: &known, is_cancelled }.run(&mut sink)?;
    let NewContents { pack, budget, .. } = sink;
    let is_complete = !budget.is_spent;
    if let Some(finished) = pack.finish(&store.dir, number)? {
        store.blobs.add(finished)?;
    }
    let changes = changes_between(&without_stamps(&known), &without_stamps(&scanned.index));
    let record = CheckpointRecord {
        number,
        parent,
        name: request.name.to_owned(),
        kind: request.kind,
        of: request.of.map(str::to_owned),
        at: clock::now(),
        files: scanned.files,
        bytes: scanned.bytes,
        partial: !is_complete || (context.is_late)(),
        left_out: scanned.left_out,
        left_out_more: scanned.left_out_more,
        left_out_paths: scanned.left_out_paths,
        git: scanned.git,
    };
    store.commit(record.clone(), &changes)?;
    if (scanned.index != known || store.blobs.stamps() != verified)
        && let Err(error) = store.write_index(number, &scanned.index)
    {
        // The checkpoint exists. The next capture reads all files.
        warn!(store = %store.dir.display(), "no index of checkpoint `{}`: {error}", record.name);
    }
    Ok(CapturedWorkspace { changes: known_changes(store, &record, changes), record, is_complete })
}

/// Returns the changes of a checkpoint, or none if the files before it are not known.
fn known_changes(store: &CheckpointStore, record: &CheckpointRecord, changes: PathChanges) -> PathChanges {
    match record.parent.is_some() || store.start == StartState::Empty {
        true => changes,
        false => PathChanges::new(),
    }
}

/// Returns the name of the checkpoint before, for a person.
pub(super) fn name_before<'a>(store: &'a CheckpointStore, record: &CheckpointRecord) -> &'a str {
    let before = record.parent.and_then(|number| store.deltas.get(&number));
    before.map_or(START, |delta| delta.record.name.as_str())
}
