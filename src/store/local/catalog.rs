//! The index on disk: sled, and all that it takes to trust it. Only this file knows sled.
//!
//! One tree. `s<session>` is the session itself; `p<session><seq>` are up to 128 places from that event on; `checkpoint 2`
//! says up to where in the log the tree is complete, with a digest of all sessions. It goes with every batch of sessions, so
//! it holds for them or is not there, and only the last one moves it on. Whoever is killed before that leaves sessions that
//! are ahead of it: what of the log they know already is applied to them once more, and of that only their revisions grow.
//!
//! sled's flush does not reach the disk, so a power cut may take away what it had, or leave it so that opening it panics.
//! Nothing here is believed for that reason: the digest is checked at the start, each place when it is used (the frame
//! there says whose it is), and whatever fails is made anew from the log.

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

/// With the version of how places are written. A server that knows another finds none, and makes the catalog anew.
const CHECKPOINT: &[u8] = b"checkpoint 2";
const OLD_CHECKPOINT: &[u8] = b"checkpoint";
/// sled unlocks its file on a thread of its own, some time after its last handle is gone.
const LOCK_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Small, as the log's own pages are the cache that matters. It is no bound: sled lets go of pages only after thousands of
/// accesses, so what bounds its memory is how little stands in it.
const CACHE_BYTES: u64 = 1 << 20;
/// A catalog is written anew from this size on, if it takes that many times what stands in it: sled's files never shrink.
const SLIM_THRESHOLD: BloatThreshold = BloatThreshold { bytes: 64 << 20, times: 8 };
/// How many blocks of places one call of sled takes.
const BLOCKS_PER_BATCH: usize = 512;
/// How many sessions one call of sled takes. It keeps what they replace until all of them are in, and where that is a thousand
/// it comes to several times what they are.
const SESSIONS_PER_BATCH: usize = 16;

#[derive(Debug, thiserror::Error)]
pub(super) enum CatalogError {
    #[error("sled failed: {0}")]
    Sled(#[from] sled::Error),
    #[error("sled panicked")]
    Panicked,
    #[error("an earlier version wrote it")]
    Old,
    #[error("its content does not match its checkpoint")]
    Mismatch,
}

#[derive(Debug)]
pub(super) struct Catalog {
    db: Db,
    digest: Mutex<CatalogDigest>,
}

/// What stands in the tree, so that no checkpoint need be computed anew.
#[derive(Debug)]
struct CatalogDigest {
    /// CRC of each session's value.
    sums: HashMap<SessionId, u32>,
    /// All of them together.
    sum: u64,
    /// Up to where the tree is complete.
    end: LogPosition,
}

/// When a catalog wastes the disk.
#[derive(Debug, Clone, Copy)]
struct BloatThreshold {
    bytes: u64,
    times: u64,
}

/// What a catalog knew when it was last written.
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
    /// Opens the catalog in `dir`; where there is none yet, what it knows is that the log begins.
    pub(super) fn open(dir: &Path) -> Result<(Catalog, CatalogSnapshot), CatalogError> {
        catch_panics(|| {
            let db = open_db(dir)?;
            let (standing, sessions) = load(&db)?;
            let known = CatalogSnapshot { sessions, end: standing.end };
            Ok((Catalog { db, digest: Mutex::new(standing) }, known))
        })
    }

    /// The places from the one that holds `seq` on, as many as stand together.
    pub(super) fn lookup(&self, session: SessionId, seq: Seq) -> Result<Option<Vec<EventLocation>>, CatalogError> {
        catch_panics(|| {
            let (low, high) = (location_key(session, 0), location_key(session, seq));
            let Some((_, block)) = self.db.range(low..=high).next_back().transpose()? else { return Ok(None) };
            let places = event_locations::decode(&block);
            Ok(locations_from(&places, seq).map(<[EventLocation]>::to_vec))
        })
    }

    /// Forgets where each frame of a session stands in `segment`, but the first of each row of them. `from` to `until` are the
    /// session's events there.
    ///
    /// However much of it is on disk after a crash, the rest is still right.
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
            let mut thinner = Vec::new();
            let mut before = None;
            for item in self.db.range(begins..=(&high).into()) {
                let (key, block) = item?;
                let places = event_locations::decode(&block);
                let kept: Vec<EventLocation> = places
                    .iter()
                    .copied()
                    .filter(|place| !place.continues_row(before.replace(*place), segment))
                    .collect();
                if kept.len() < places.len() {
                    thinner.push((key, kept));
                }
            }
            for blocks in thinner.chunks(BLOCKS_PER_BATCH) {
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

    /// Takes `places` over, then says that all up to `end` is here. `changed` are the sessions as they stand at `end`,
    /// `None` where one is gone.
    pub(super) fn write(
        &self,
        places: &EventLocations,
        changed: &HashMap<SessionId, Option<SessionEntry>>,
        end: LogPosition,
    ) -> Result<(), CatalogError> {
        catch_panics(|| {
            self.remove_locations(places)?;
            let mut batch = Batch::default();
            let mut blocks = 0;
            for (session, places) in &places.by_session {
                for block in places.chunks(LOCATIONS_PER_BLOCK) {
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

    /// What was written is in sled's files then, though not on the disk yet.
    pub(super) fn flush(&self) -> Result<(), CatalogError> {
        catch_panics(|| Ok(self.db.flush().map(drop)?))
    }

    fn remove_locations(&self, places: &EventLocations) -> Result<(), CatalogError> {
        for session in &places.forgotten {
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
        let mut standing = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = changed.iter();
        loop {
            let mut batch = Batch::default();
            for (session, entry) in rest.by_ref().take(SESSIONS_PER_BATCH) {
                let key = [b"s", &session.to_bytes()[..]].concat();
                let value = entry.as_ref().map(encode_session);
                standing.note(*session, value.as_deref().map(crc32fast::hash));
                match value {
                    Some(value) => batch.insert(key, value),
                    None => batch.remove(key),
                }
            }
            let is_last = rest.len() == 0;
            if is_last {
                standing.end = end;
            }
            batch.insert(CHECKPOINT, &standing.checkpoint()[..]);
            self.db.apply_batch(batch)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// The same catalog in a file of its own size, where the old one's is out of all proportion.
    pub(super) fn slim(self, dir: &Path) -> Result<Catalog, CatalogError> {
        self.slim_beyond(dir, SLIM_THRESHOLD)
    }

    fn slim_beyond(self, dir: &Path, bloat: BloatThreshold) -> Result<Catalog, CatalogError> {
        let beside = dir.with_extension("new");
        // What a killed attempt left.
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
        // In between there is none, and then the log makes a new one.
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

    /// Lets go of sled's files and threads, whatever state they are in.
    pub(super) fn close(self) {
        let _ = catch_panics(|| {
            drop(self);
            Ok(())
        });
    }
}

/// The journal's own lock is held by us, so whoever still holds this one is about to let go.
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

/// sled has no name for this.
fn is_lock_error(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(why) if why.to_string().starts_with("could not acquire lock"))
}

fn load(db: &Db) -> Result<(CatalogDigest, HashMap<SessionId, SessionEntry>), CatalogError> {
    let mut sessions = HashMap::new();
    let mut standing = CatalogDigest { sums: HashMap::new(), sum: 0, end: LogPosition::START };
    for item in db.scan_prefix(b"s") {
        let (_, value) = item?;
        let read: CatalogSession = serde_json::from_slice(&value).map_err(|_| CatalogError::Mismatch)?;
        let CatalogSession { record, revision, epoch, tail, mark } = read;
        standing.note(record.id, Some(crc32fast::hash(&value)));
        sessions.insert(record.id, SessionEntry { record: Arc::new(record), revision, epoch, tail, mark });
    }
    match db.get(CHECKPOINT)? {
        Some(bytes) => {
            standing.end = position(&bytes).ok_or(CatalogError::Mismatch)?;
            if bytes[..] != standing.checkpoint() {
                return Err(CatalogError::Mismatch);
            }
        }
        None if db.contains_key(OLD_CHECKPOINT)? => return Err(CatalogError::Old),
        None if sessions.is_empty() => {}
        None => return Err(CatalogError::Mismatch),
    }
    Ok((standing, sessions))
}

impl CatalogDigest {
    /// A session's value is now one of this CRC, or is gone.
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
        .expect("a record has string keys only and no type that JSON lacks")
}

/// sled panics where it finds its own files damaged.
fn catch_panics<T>(work: impl FnOnce() -> Result<T, CatalogError>) -> Result<T, CatalogError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(CatalogError::Panicked))
}

/// Big-endian, so that keys sort as events do.
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
    fn a_bloated_catalog_is_written_anew() {
        let dir = tempfile::tempdir().expect("a place");
        let path = dir.path().join("index");
        let (catalog, _) = Catalog::open(&path).expect("an empty one");
        for round in 0..200u32 {
            let noise: Vec<u8> = (0..20_000).map(|n| (n * round) as u8).collect();
            catalog.db.insert(b"p", noise).expect("it takes a value");
            catalog.db.flush().expect("it flushes");
        }
        let before = catalog.db.size_on_disk().expect("a size");
        let kept = catalog.db.get(b"p").expect("it reads");
        let slim = catalog.slim_beyond(&path, BloatThreshold { bytes: 1 << 20, times: 4 }).expect("it is written anew");
        let after = slim.db.size_on_disk().expect("a size");
        assert!(after < before / 2, "{after} of {before}");
        assert_eq!(slim.db.get(b"p").expect("it reads"), kept);
    }

    #[test]
    fn one_that_is_about_to_be_let_go_of_is_waited_for() {
        let dir = tempfile::tempdir().expect("a place");
        let (held, _) = Catalog::open(dir.path()).expect("an empty one");
        held.db.insert(b"p", b"kept").expect("it takes a value");
        let letting_go = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            held.close();
        });
        let (again, _) = Catalog::open(dir.path()).expect("it is waited for");
        assert_eq!(again.db.get(b"p").expect("it reads").as_deref(), Some(&b"kept"[..]));
        letting_go.join().expect("it is closed");
    }

    #[test]
    fn only_the_last_batch_moves_the_checkpoint_on() {
        let dir = tempfile::tempdir().expect("a place");
        let (catalog, _) = Catalog::open(dir.path()).expect("an empty one");
        let entries = (0..2 * SESSIONS_PER_BATCH + 1).map(|n| SessionEntry::new(record(&n.to_string())));
        let changed = entries.map(|entry| (entry.record.id, Some(entry))).collect();
        let end = LogPosition { segment: 3, offset: 4 };
        let checkpoints = catalog.db.watch_prefix(CHECKPOINT);
        catalog.write(&EventLocations::default(), &changed, end).expect("it is written");
        drop(catalog);
        let written = checkpoints.filter_map(|event| match event {
            sled::Event::Insert { value, .. } => position(&value),
            sled::Event::Remove { .. } => None,
        });
        let ends: Vec<_> = written.collect();
        assert_eq!(ends, [LogPosition::START, LogPosition::START, end]);
        let (_, known) = Catalog::open(dir.path()).expect("it is whole");
        assert_eq!((known.sessions.len(), known.end), (changed.len(), end));
    }

    #[test]
    fn of_an_archive_the_first_place_of_each_row_is_kept() {
        let dir = tempfile::tempdir().expect("a place");
        let (catalog, _) = Catalog::open(dir.path()).expect("an empty one");
        let [session, other] = [SessionId::from_bytes([1; 16]), SessionId::from_bytes([2; 16])];
        // Segment 1 up to 200, segment 2 up to 900, but for the lost ones from 500 to 503, then segment 3.
        let place = |seq: u64| {
            let segment = if seq <= 200 { 1 } else { 2 + u32::from(seq > 900) };
            let is_lost = (500..504).contains(&seq);
            EventLocation { first: seq, at: (!is_lost).then_some(LogPosition { segment, offset: 10 * seq as u32 }) }
        };
        let mut places = EventLocations::default();
        for seq in 1..=1000 {
            places.add(session, place(seq));
            places.add(other, place(seq));
        }
        catalog.write(&places, &HashMap::new(), LogPosition::START).expect("it is written");
        catalog.drop_archived_locations(2, session, 201, 901).expect("it is thinned");
        let holder = |session, seq| catalog.lookup(session, seq).expect("it looks").expect("it is known")[0].first;
        for (seq, first) in [(1, 1), (200, 200), (201, 201), (202, 201), (499, 201), (500, 500), (503, 503)] {
            assert_eq!(holder(session, seq), first, "{seq}");
        }
        for (seq, first) in [(504, 504), (505, 504), (900, 504), (901, 901), (1000, 1000)] {
            assert_eq!(holder(session, seq), first, "{seq}");
        }
        assert!((1..=1000).all(|seq| holder(other, seq) == seq));
        places.drop_archived(2, session);
        assert_eq!(places.by_session[&session].len(), 200 + 1 + 4 + 1 + 100);
        assert_eq!(places.len(), 1000 + 306);
    }
}
