//! State that the threads of one store share: the sessions, and the levels of the index.
//!
//! A commit puts its locations into `unflushed`, in memory. An event is readable as soon as it is
//! acknowledged, and the catalog never delays a commit.
//!
//! An index flush turns `unflushed` into `flushing` and writes it into the base index. Until the
//! flush ends, lookups read `flushing` above the base index. Locations that the base index lacks
//! are in the log after `flushed_to`, so a restart finds them there.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Instant,
};

use super::{
    catalog::{Catalog, CatalogError},
    disk_reserve::DiskReserve,
    event_locations::{EventLocation, EventLocations, IndexLookup, locations_from},
    replay::LogReplay,
    segment::{LogPosition, Segment, SegmentCache},
};
use crate::store::{Seq, SessionId, StoreError, session_change::SessionEntry};

#[derive(Debug)]
pub(super) struct JournalState {
    pub(super) sessions: HashMap<SessionId, SessionEntry>,
    pub(super) unflushed: EventLocations,
    /// Sessions whose entry in the base index is out of date.
    pub(super) changed_sessions: HashSet<SessionId>,
    /// End of the last commit.
    pub(super) end: LogPosition,
    /// Time since which the last segment may hold purged data.
    pub(super) purged_since: Option<Instant>,
    pub(super) flushing: Option<Arc<EventLocations>>,
    /// End of the log up to which the base index is complete.
    pub(super) flushed_to: LogPosition,
}

/// Lowest level of the index.
#[derive(Debug)]
pub(super) enum BaseIndex {
    Catalog(Catalog),
    /// Replacement after a failure of sled: read from the log, used until the next start creates a
    /// new catalog.
    InMemory(EventLocations),
}

#[derive(Debug)]
pub(super) struct SharedJournal {
    state: RwLock<JournalState>,
    base_index: RwLock<BaseIndex>,
    /// Held by the one thread that flushes the index or replaces the base index.
    index_maintenance: Mutex<()>,
    pub(super) segments: SegmentCache,
    pub(super) catalog_dir: PathBuf,
    /// True if the log can hold no session that is unknown.
    pub(super) is_complete: bool,
    pub(super) disk_reserve: DiskReserve,
}

/// Changes of one index flush: all up to `end`.
struct IndexFlush {
    locations: Arc<EventLocations>,
    /// `None` for a session that is gone.
    changed: HashMap<SessionId, Option<SessionEntry>>,
    end: LogPosition,
}

/// Free space in bytes below which the index is not flushed.
///
/// The last space of a disk belongs to the log. sled does not survive a full disk well, and the
/// missing locations are in memory.
const MIN_FREE_FOR_CATALOG: u64 = 16 << 20;

impl SharedJournal {
    pub(super) fn new(
        state: JournalState,
        base_index: BaseIndex,
        segments: SegmentCache,
        catalog_dir: PathBuf,
        is_complete: bool,
    ) -> SharedJournal {
        let (state, base_index, index_maintenance) = (RwLock::new(state), RwLock::new(base_index), Mutex::new(()));
        let disk_reserve = DiskReserve::of(segments.dir());
        SharedJournal { state, base_index, index_maintenance, segments, catalog_dir, is_complete, disk_reserve }
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, JournalState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, JournalState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn base_index(&self) -> RwLockReadGuard<'_, BaseIndex> {
        self.base_index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace_base_index(&self, base_index: BaseIndex) {
        let mut slot = self.base_index.write().unwrap_or_else(PoisonError::into_inner);
        if let BaseIndex::Catalog(broken) = std::mem::replace(&mut *slot, base_index) {
            broken.close();
        }
    }

    /// Returns the locations from the one that should hold `seq` on; empty if the index has none.
    pub(super) fn locate(&self, session: SessionId, seq: Seq) -> Result<Vec<EventLocation>, StoreError> {
        {
            let state = self.state();
            let levels = [Some(&state.unflushed), state.flushing.as_deref()];
            for level in levels.into_iter().flatten() {
                match level.lookup(session, seq) {
                    IndexLookup::Found(locations) => return Ok(locations),
                    IndexLookup::Absent => return Ok(Vec::new()),
                    IndexLookup::Below => {}
                }
            }
        }
        let found = match &*self.base_index() {
            BaseIndex::Catalog(catalog) => catalog.lookup(session, seq),
            BaseIndex::InMemory(locations) => Ok(locations
                .by_session
                .get(&session)
                .and_then(|locations| locations_from(locations, seq))
                .map(<[EventLocation]>::to_vec)),
        };
        match found {
            Ok(locations) => Ok(locations.unwrap_or_default()),
            Err(error) => {
                self.rebuild_index(&error)?;
                self.locate(session, seq)
            }
        }
    }

    /// Rebuilds the base index from the log, unless that has been done already.
    pub(super) fn rebuild_index(&self, reason: &CatalogError) -> Result<(), StoreError> {
        let _alone = self.index_maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        self.rebuild_index_locked(reason)
    }

    fn rebuild_index_locked(&self, reason: &CatalogError) -> Result<(), StoreError> {
        if matches!(*self.base_index(), BaseIndex::InMemory(_)) {
            return Ok(());
        }
        tracing::warn!("the journal's index is unusable and is rebuilt from the log: {reason}");
        let end = self.state().flushed_to;
        let mut replay = LogReplay::default();
        replay.replay_up_to(&self.segments, end).map_err(std::io::Error::other)?;
        self.replace_base_index(BaseIndex::InMemory(replay.locations));
        // The next start must not use this catalog again. After damage it stays, because it alone
        // may have the numbers that were given.
        if replay.damage.is_empty() {
            let _ = std::fs::remove_dir_all(&self.catalog_dir);
        }
        Ok(())
    }

    /// Flushes `unflushed` into the base index.
    pub(super) fn flush_index(&self) -> Result<(), StoreError> {
        let _alone = self.index_maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(IndexFlush { locations, changed, end }) = self.begin_flush() else { return Ok(()) };
        let written = match &*self.base_index() {
            BaseIndex::Catalog(catalog) => catalog.write(&locations, &changed, end),
            BaseIndex::InMemory(_) => Ok(()),
        };
        drop(locations);
        match written.or_else(|error| self.rebuild_index_locked(&error)) {
            Ok(()) => self.finish_flush(end),
            Err(error) => {
                self.revert_flush(changed.into_keys());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Drops those locations of an archive from the base index that the archive finds by itself.
    ///
    /// Called once the base index covers the archive.
    pub(super) fn drop_archived_locations(&self, number: u32) -> Result<(), StoreError> {
        let Segment::Archive(archive) = self.segments.open(number)? else { return Ok(()) };
        let _alone = self.index_maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        for (session, from, until) in archive.sessions() {
            let dropped = match &*self.base_index() {
                BaseIndex::Catalog(catalog) => Some(catalog.drop_archived_locations(number, session, from, until)),
                BaseIndex::InMemory(_) => None,
            };
            match dropped {
                Some(dropped) => dropped.or_else(|error| self.rebuild_index_locked(&error))?,
                None => {
                    if let BaseIndex::InMemory(locations) =
                        &mut *self.base_index.write().unwrap_or_else(PoisonError::into_inner)
                    {
                        locations.drop_archived(number, session);
                    }
                }
            }
        }
        let flushed = match &*self.base_index() {
            BaseIndex::Catalog(catalog) => catalog.flush(),
            BaseIndex::InMemory(_) => Ok(()),
        };
        flushed.or_else(|error| self.rebuild_index_locked(&error))
    }

    fn begin_flush(&self) -> Option<IndexFlush> {
        if matches!(*self.base_index(), BaseIndex::Catalog(_)) && !self.has_room() {
            return None;
        }
        let mut state = self.state_mut();
        if state.end == state.flushed_to {
            return None;
        }
        let flushing = Arc::new(std::mem::take(&mut state.unflushed));
        state.flushing = Some(flushing.clone());
        let changed = std::mem::take(&mut state.changed_sessions);
        let changed = changed.into_iter().map(|session| (session, state.sessions.get(&session).cloned())).collect();
        Some(IndexFlush { locations: flushing, changed, end: state.end })
    }

    fn finish_flush(&self, end: LogPosition) {
        let mut base_index = self.base_index.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state_mut();
        let flushed = state.flushing.take().and_then(Arc::into_inner);
        if let (BaseIndex::InMemory(locations), Some(flushed)) = (&mut *base_index, flushed) {
            locations.merge_newer(flushed);
            locations.forgotten.clear();
        }
        state.flushed_to = end;
    }

    /// Returns the locations of a failed flush to `unflushed`. The next flush includes them.
    fn revert_flush(&self, changed: impl Iterator<Item = SessionId>) {
        let mut state = self.state_mut();
        if let Some(mut locations) = state.flushing.take().and_then(Arc::into_inner) {
            locations.merge_newer(std::mem::take(&mut state.unflushed));
            state.unflushed = locations;
        }
        state.changed_sessions.extend(changed);
    }

    /// Reports if the disk has enough free space for the index.
    pub(super) fn has_room(&self) -> bool {
        rustix::fs::statvfs(self.segments.dir())
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) > MIN_FREE_FOR_CATALOG)
    }
}
