//! Index on disk: sled, and the checks that make it trustworthy. Only this file uses sled.
//!
//! The catalog is one tree:
//! - `s<session>`: the session itself.
//! - `p<session><seq>`: up to 128 locations from that event on.
//! - `checkpoint 2`: the end of the log up to which the tree is complete, with a digest of all
//!   sessions.
//!
//! The checkpoint is part of every batch of sessions, so it matches them or is missing. Only the
//! last batch moves it. A process that is killed before that leaves sessions ahead of the
//! checkpoint. The next start applies the log to them again, and only their revisions grow by that.
//!
//! sled's flush does not reach the disk. A power cut may remove data, or leave files that make sled
//! panic on open. Nothing here is therefore trusted: the start checks the digest, and each location
//! is checked when it is used, because its frame names its session. Whatever fails is rebuilt from
//! the log.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sled::{Batch, Db};

use super::{
    event_locations::{self, EventLocation, EventLocations, LOCATIONS_PER_BLOCK, locations_from},
    segment::LogPosition,
};
use crate::store::{Epoch, ReportMark, Seq, SessionId, SessionRecord, session_change::SessionEntry};

/// Key of the checkpoint, with the version of the location encoding.
///
/// A server with another version finds no checkpoint and creates the catalog anew.
const CHECKPOINT: &[u8] = b"checkpoint 2";
const OLD_CHECKPOINT: &[u8] = b"checkpoint";
/// Time limit for sled's file lock. sled unlocks on its own thread, after its last handle is gone.
const LOCK_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// sled's cache in bytes. Small, because the cache that matters is that of the log's pages.
///
/// It is no bound: sled evicts pages only after thousands of accesses. Its memory is bounded by how
/// little the tree holds.
const CACHE_BYTES: u64 = 1 << 20;
/// Size and ratio from which a catalog is rewritten. sled's files never shrink.
const SLIM_THRESHOLD: BloatThreshold = BloatThreshold { bytes: 64 << 20, times: 8 };
/// Blocks of locations in one call of sled.
const BLOCKS_PER_BATCH: usize = 512;
/// Sessions in one call of sled.
///
/// sled keeps the replaced values until the whole batch is applied. With a thousand sessions, these
/// take several times the memory of the sessions.
const SESSIONS_PER_BATCH: usize = 16;

#[derive(Debug, thiserror::Error)]
pub(super) enum CatalogError {
    #[error("sled failed: {0}")]
    Sled(#[from] sled::Error),
    #[error("sled panicked")]
    Panicked,
    #[error("the catalog was written by an earlier version")]
    Old,
    #[error("the catalog does not match its checkpoint")]
    Mismatch,
}

#[derive(Debug)]
pub(super) struct Catalog {
    db: Db,
    digest: Mutex<CatalogDigest>,
}

/// Digest of the tree, kept up to date so that a checkpoint needs no full pass.
#[derive(Debug)]
struct CatalogDigest {
    /// CRC of each session's value.
    sums: HashMap<SessionId, u32>,
    /// Sum of all CRCs.
    sum: u64,
    /// End of the log up to which the tree is complete.
    end: LogPosition,
}

/// Size from which a catalog wastes the disk.
#[derive(Debug, Clone, Copy)]
struct BloatThreshold {
    bytes: u64,
    times: u64,
}

/// Content of a catalog as it was written last.
#[derive(Debug)]
pub(super) struct CatalogSnapshot {
    pub(super) sessions: HashMap<SessionId, SessionEntry>,
    pub(super) end: LogPosition,
}

#[derive(Serialize)]
struct CatalogSessionRef<'a> {
    record: &'a SessionRecord,
    revision: u64,
    epoch: Epoch,
    tail: Seq,
    mark: &'a Option<ReportMark>,
}

#[derive(Deserialize)]
struct CatalogSession {
    record: SessionRecord,
    revision: u64,
    epoch: Epoch,
    tail: Seq,
    mark: Option<ReportMark>,
}

impl Catalog {
    /// Opens the catalog in `dir`. A new catalog ends at the start of the log.
    pub(super) fn open(dir: &Path) -> Result<(Catalog, CatalogSnapshot), CatalogError> {
        catch_panics(|| {
            let db = open_db(dir)?;
            let (digest, sessions) = load(&db)?;
            let known = CatalogSnapshot { sessions, end: digest.end };
            Ok((Catalog { db, digest: Mutex::new(digest) }, known))
        })
    }

    /// Returns the locations from the one that holds `seq` on, up to the end of its block.
    pub(super) fn lookup(&self, session: SessionId, seq: Seq) -> Result<Option<Vec<EventLocation>>, CatalogError> {
        catch_panics(|| {
            let (low, high) = (location_key(session, 0), location_key(session, seq));
            let Some((_, block)) = self.db.range(low..=high).next_back().transpose()? else { return Ok(None) };
            let locations = event_locations::decode(&block);
            Ok(locations_from(&locations, seq).map(<[EventLocation]>::to_vec))
        })
    }

    /// Drops a session's locations in `segment`, except the first of each row.
    ///
    /// `from` to `until` are the session's events there. After a crash, any part of this on disk is
    /// correct.
    pub(super) fn drop_archived_locations(
        &self,
        segment: u32,
        session: SessionId,
        from: Seq,
        until: Seq,
    ) -> Result<(), CatalogError> {
        catch_panics(|| {
            let (low, high) = (location_key(session, 0), location_key(session, until));
            let begins = self.db.range(low..=location_key(session, from)).next_back().transpose()?;
            let begins = begins.map_or_else(|| (&low).into(), |(key, _)| key);
            let mut reduced = Vec::new();
            let mut before = None;
            for item in self.db.range(begins..=(&high).into()) {
                let (key, block) = item?;
                let locations = event_locations::decode(&block);
                let kept: Vec<EventLocation> = locations
                    .iter()
                    .copied()
                    .filter(|location| !location.continues_row(before.replace(*location), segment))
                    .collect();
                if kept.len() < locations.len() {
                    reduced.push((key, kept));
                }
            }
            for blocks in reduced.chunks(BLOCKS_PER_BATCH) {
                let mut batch = Batch::default();
                for (key, kept) in blocks {
                    batch.remove(key);
                    if let Some(first) = kept.first() {
                        batch.insert(&location_key(session, first.first)[..], event_locations::encode(kept));
                    }
                }
                self.db.apply_batch(batch)?;
            }
            Ok(())
        })
    }

    /// Writes `locations`, then the sessions and the checkpoint `end`.
    ///
    /// `changed` holds the sessions as of `end`, `None` for sessions that are gone.
    pub(super) fn write(
        &self,
        locations: &EventLocations,
        changed: &HashMap<SessionId, Option<SessionEntry>>,
        end: LogPosition,
    ) -> Result<(), CatalogError> {
        catch_panics(|| {
            self.remove_locations(locations)?;
            let mut batch = Batch::default();
            let mut blocks = 0;
            for (session, locations) in &locations.by_session {
                for block in locations.chunks(LOCATIONS_PER_BLOCK) {
                    batch.insert(&location_key(*session, block[0].first)[..], event_locations::encode(block));
                    blocks += 1;
                    if blocks % BLOCKS_PER_BATCH == 0 {
                        self.db.apply_batch(std::mem::take(&mut batch))?;
                    }
                }
            }
            self.db.apply_batch(batch)?;
            self.write_sessions(changed, end)
        })?;
        self.flush()
    }

    /// Writes everything into sled's files. The files are not synced.
    pub(super) fn flush(&self) -> Result<(), CatalogError> {
        catch_panics(|| Ok(self.db.flush().map(drop)?))
    }

    fn remove_locations(&self, locations: &EventLocations) -> Result<(), CatalogError> {
        for session in &locations.forgotten {
            let mut batch = Batch::default();
            for key in self.db.range(location_key(*session, 0)..=location_key(*session, Seq::MAX)).keys() {
                batch.remove(key?);
            }
            self.db.apply_batch(batch)?;
        }
        Ok(())
    }

    fn write_sessions(
        &self,
        changed: &HashMap<SessionId, Option<SessionEntry>>,
        end: LogPosition,
    ) -> Result<(), CatalogError> {
        let mut digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = changed.iter();
        loop {
            let mut batch = Batch::default();
            for (session, entry) in rest.by_ref().take(SESSIONS_PER_BATCH) {
                let key = [b"s", &session.to_bytes()[..]].concat();
                let value = entry.as_ref().map(encode_session);
                digest.note(*session, value.as_deref().map(crc32fast::hash));
                match value {
                    Some(value) => batch.insert(key, value),
                    None => batch.remove(key),
                }
            }
            let is_last = rest.len() == 0;
            if is_last {
                digest.end = end;
            }
            batch.insert(CHECKPOINT, &digest.checkpoint()[..]);
            self.db.apply_batch(batch)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Rewrites the catalog if its file is far larger than its content.
    pub(super) fn slim(self, dir: &Path) -> Result<Catalog, CatalogError> {
        self.slim_beyond(dir, SLIM_THRESHOLD)
    }

    fn slim_beyond(self, dir: &Path, bloat: BloatThreshold) -> Result<Catalog, CatalogError> {
        let beside = dir.with_extension("new");
        // Left by a killed attempt.
        let _ = std::fs::remove_dir_all(&beside);
        let is_bloated = catch_panics(|| {
            let size = self.db.size_on_disk()?;
            Ok(size >= bloat.bytes && size / bloat.times > self.live_bytes()?)
        })?;
        if !is_bloated {
            return Ok(self);
        }
        catch_panics(|| {
            let slim = open_db(&beside)?;
            for item in self.db.iter() {
                let (key, value) = item?;
                slim.insert(key, value)?;
            }
            slim.flush()?;
            Ok(())
        })?;
        self.close();
        // A crash between the two steps leaves no catalog, and the log creates a new one.
        let swapped = std::fs::remove_dir_all(dir).and_then(|()| std::fs::rename(&beside, dir));
        swapped.map_err(sled::Error::Io)?;
        Catalog::open(dir).map(|(catalog, _)| catalog)
    }

    fn live_bytes(&self) -> Result<u64, CatalogError> {
        self.db.iter().try_fold(0, |sum, item| {
            let (key, value) = item?;
            Ok(sum + (key.len() + value.len()) as u64)
        })
    }

    /// Releases sled's files and threads, in whatever state they are.
    pub(super) fn close(self) {
        let _ = catch_panics(|| {
            drop(self);
            Ok(())
        });
    }
}

/// Opens sled.
///
/// The caller holds the journal's own lock. Any other holder of sled's lock is about to release it.
fn open_db(dir: &Path) -> sled::Result<Db> {
    let began = Instant::now();
    let config = sled::Config::new().path(dir).cache_capacity(CACHE_BYTES).flush_every_ms(None);
    loop {
        match config.open() {
            Err(error) if is_lock_error(&error) && began.elapsed() < LOCK_RELEASE_TIMEOUT => {
                thread::sleep(Duration::from_millis(1))
            }
            other => return other,
        }
    }
}

/// sled has no error variant for this.
fn is_lock_error(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(error) if error.to_string().starts_with("could not acquire lock"))
}

fn load(db: &Db) -> Result<(CatalogDigest, HashMap<SessionId, SessionEntry>), CatalogError> {
    let mut sessions = HashMap::new();
    let mut digest = CatalogDigest { sums: HashMap::new(), sum: 0, end: LogPosition::START };
    for item in db.scan_prefix(b"s") {
        let (_, value) = item?;
        let read: CatalogSession = serde_json::from_slice(&value).map_err(|_| CatalogError::Mismatch)?;
        let CatalogSession { record, revision, epoch, tail, mark } = read;
        digest.note(record.id, Some(crc32fast::hash(&value)));
        sessions.insert(record.id, SessionEntry { record: Arc::new(record), revision, epoch, tail, mark });
    }
    match db.get(CHECKPOINT)? {
        Some(bytes) => {
            digest.end = position(&bytes).ok_or(CatalogError::Mismatch)?;
            if bytes[..] != digest.checkpoint() {
                return Err(CatalogError::Mismatch);
            }
        }
        None if db.contains_key(OLD_CHECKPOINT)? => return Err(CatalogError::Old),
        None if sessions.is_empty() => {}
        None => return Err(CatalogError::Mismatch),
    }
    Ok((digest, sessions))
}

impl CatalogDigest {
    /// Records the CRC of a session's new value, or its removal.
    fn note(&mut self, session: SessionId, crc: Option<u32>) {
        let before = match crc {
            Some(crc) => self.sums.insert(session, crc),
            None => self.sums.remove(&session),
        };
        let (before, now) = (u64::from(before.unwrap_or(0)), u64::from(crc.unwrap_or(0)));
        self.sum = self.sum.wrapping_sub(before).wrapping_add(now);
    }

    fn checkpoint(&self) -> [u8; 16] {
        let digest = ((self.sums.len() as u64) << 48).wrapping_add(self.sum);
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.end.segment.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.end.offset.to_le_bytes());
        bytes[8..].copy_from_slice(&digest.to_le_bytes());
        bytes
    }
}

fn encode_session(SessionEntry { record, revision, epoch, tail, mark }: &SessionEntry) -> Vec<u8> {
    let (revision, epoch, tail) = (*revision, *epoch, *tail);
    serde_json::to_vec(&CatalogSessionRef { record, revision, epoch, tail, mark })
        .expect("a record is valid JSON: string keys only, no unsupported type")
}

/// Runs `work` and turns a panic into an error: sled panics if its files are damaged.
fn catch_panics<T>(work: impl FnOnce() -> Result<T, CatalogError>) -> Result<T, CatalogError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(CatalogError::Panicked))
}

/// Returns the key of a location. Big-endian, so keys sort like events.
fn location_key(session: SessionId, seq: Seq) -> [u8; 25] {
    let mut key = [b'p'; 25];
    key[1..17].copy_from_slice(&session.to_bytes());
    key[17..].copy_from_slice(&seq.to_be_bytes());
    key
}

fn position(bytes: &[u8]) -> Option<LogPosition> {
    let (segment, rest) = bytes.split_first_chunk()?;
    let (offset, _) = rest.split_first_chunk()?;
    Some(LogPosition { segment: u32::from_le_bytes(*segment), offset: u32::from_le_bytes(*offset) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::record;

    #[test]
    fn bloated_catalog_is_rewritten() {
        let dir = tempfile::tempdir().expect("a temporary directory can be created");
        let path = dir.path().join("index");
        let (catalog, _) = Catalog::open(&path).expect("a new catalog opens");
        for round in 0..200u32 {
            let noise: Vec<u8> = (0..20_000).map(|n| (n * round) as u8).collect();
            catalog.db.insert(b"p", noise).expect("sled accepts a value");
            catalog.db.flush().expect("sled flushes");
        }
        let before = catalog.db.size_on_disk().expect("sled reports its size");
        let kept = catalog.db.get(b"p").expect("sled reads a value");
        let slim =
            catalog.slim_beyond(&path, BloatThreshold { bytes: 1 << 20, times: 4 }).expect("the catalog is rewritten");
        let after = slim.db.size_on_disk().expect("sled reports its size");
        assert!(after < before / 2, "{after} of {before}");
        assert_eq!(slim.db.get(b"p").expect("sled reads a value"), kept);
    }

    #[test]
    fn open_waits_for_lock_release() {
        let dir = tempfile::tempdir().expect("a temporary directory can be created");
        let (held, _) = Catalog::open(dir.path()).expect("a new catalog opens");
        held.db.insert(b"p", b"kept").expect("sled accepts a value");
        let closing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            held.close();
        });
        let (again, _) = Catalog::open(dir.path()).expect("opening waits for the lock");
        assert_eq!(again.db.get(b"p").expect("sled reads a value").as_deref(), Some(&b"kept"[..]));
        closing.join().expect("the closing thread does not panic");
    }

    #[test]
    fn only_last_batch_moves_checkpoint() {
        let dir = tempfile::tempdir().expect("a temporary directory can be created");
        let (catalog, _) = Catalog::open(dir.path()).expect("a new catalog opens");
        let entries = (0..2 * SESSIONS_PER_BATCH + 1).map(|n| SessionEntry::new(record(&n.to_string()).into()));
        let changed = entries.map(|entry| (entry.record.id, Some(entry))).collect();
        let end = LogPosition { segment: 3, offset: 4 };
        let checkpoints = catalog.db.watch_prefix(CHECKPOINT);
        catalog.write(&EventLocations::default(), &changed, end).expect("the catalog is written");
        drop(catalog);
        let written = checkpoints.filter_map(|event| match event {
            sled::Event::Insert { value, .. } => position(&value),
            sled::Event::Remove { .. } => None,
        });
        let ends: Vec<_> = written.collect();
        assert_eq!(ends, [LogPosition::START, LogPosition::START, end]);
        let (_, known) = Catalog::open(dir.path()).expect("the catalog matches its checkpoint");
        assert_eq!((known.sessions.len(), known.end), (changed.len(), end));
    }

    #[test]
    fn drop_archived_keeps_first_location_of_row() {
        let dir = tempfile::tempdir().expect("a temporary directory can be created");
        let (catalog, _) = Catalog::open(dir.path()).expect("a new catalog opens");
        let [session, other] = [SessionId::from_bytes([1; 16]), SessionId::from_bytes([2; 16])];
        // Segment 1 to 200, segment 2 to 900 except the lost 500 to 503, then segment 3.
        let location = |seq: u64| {
            let segment = if seq <= 200 { 1 } else { 2 + u32::from(seq > 900) };
            let is_lost = (500..504).contains(&seq);
            EventLocation { first: seq, at: (!is_lost).then_some(LogPosition { segment, offset: 10 * seq as u32 }) }
        };
        let mut locations = EventLocations::default();
        for seq in 1..=1000 {
            locations.add(session, location(seq));
            locations.add(other, location(seq));
        }
        catalog.write(&locations, &HashMap::new(), LogPosition::START).expect("the catalog is written");
        catalog.drop_archived_locations(2, session, 201, 901).expect("the locations are dropped");
        let holder = |session, seq| {
            catalog.lookup(session, seq).expect("the lookup succeeds").expect("the event has a location")[0].first
        };
        for (seq, first) in [(1, 1), (200, 200), (201, 201), (202, 201), (499, 201), (500, 500), (503, 503)] {
            assert_eq!(holder(session, seq), first, "{seq}");
        }
        for (seq, first) in [(504, 504), (505, 504), (900, 504), (901, 901), (1000, 1000)] {
            assert_eq!(holder(session, seq), first, "{seq}");
        }
        assert!((1..=1000).all(|seq| holder(other, seq) == seq));
        locations.drop_archived(2, session);
        assert_eq!(locations.by_session[&session].len(), 200 + 1 + 4 + 1 + 100);
        assert_eq!(locations.len(), 1000 + 306);
    }
}
