//! What the threads of one store share: the sessions as they stand, and the levels of the index.
//!
//! A commit puts its places into `fresh`, in memory: an event can be read as soon as it is acknowledged, and the catalog
//! is never in the way of a commit. From time to time `fresh` becomes `moving` and is written into the ground below. Until
//! that is done it is looked up above it. What is not in the ground yet stands in the log after `moved`, so a restart finds
//! it there.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Instant,
};

use super::{
    catalog::{Catalog, CatalogError},
    event_locations::{EventLocation, EventLocations, IndexLookup, locations_from},
    recent_events::RecentEvents,
    replay::LogReplay,
    segment::{LogPosition, Segment, SegmentCache},
};
use crate::store::{Seq, SessionId, StoreError, session_change::SessionEntry};

#[derive(Debug)]
pub(super) struct JournalState {
    pub(super) sessions: HashMap<SessionId, SessionEntry>,
    pub(super) recent: RecentEvents,
    pub(super) unflushed: EventLocations,
    /// Sessions that the ground knows otherwise.
    pub(super) changed_sessions: HashSet<SessionId>,
    /// Where the last commit ended.
    pub(super) end: LogPosition,
    /// Since when something that was purged may stand in the last segment.
    pub(super) purged_since: Option<Instant>,
    pub(super) flushing: Option<Arc<EventLocations>>,
    /// Up to where the ground is complete.
    pub(super) flushed_to: LogPosition,
}

/// The lowest level of the index.
#[derive(Debug)]
pub(super) enum BaseIndex {
    Catalog(Catalog),
    /// Where sled failed: the same, read from the log, until the next start makes a new catalog.
    InMemory(EventLocations),
}

#[derive(Debug)]
pub(super) struct SharedJournal {
    state: RwLock<JournalState>,
    base_index: RwLock<BaseIndex>,
    /// One at a time moves places down or replaces the ground.
    index_maintenance: Mutex<()>,
    pub(super) segments: SegmentCache,
    pub(super) catalog_dir: PathBuf,
    /// No session may be in the log that is not known.
    pub(super) is_complete: bool,
}

/// What goes down at once: all up to `end`.
struct IndexFlush {
    places: Arc<EventLocations>,
    /// `None` where a session is gone.
    changed: HashMap<SessionId, Option<SessionEntry>>,
    end: LogPosition,
}

/// The disk's last room belongs to the log: sled does not survive a full disk well, and what it lacks is in memory.
const MIN_FREE_FOR_CATALOG: u64 = 16 << 20;

impl SharedJournal {
    pub(super) fn new(
        state: JournalState,
        ground: BaseIndex,
        segments: SegmentCache,
        catalog_dir: PathBuf,
        is_complete: bool,
    ) -> SharedJournal {
        let (state, base_index, index_maintenance) = (RwLock::new(state), RwLock::new(ground), Mutex::new(()));
        SharedJournal { state, base_index, index_maintenance, segments, catalog_dir, is_complete }
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

    fn replace_base_index(&self, ground: BaseIndex) {
        let mut place = self.base_index.write().unwrap_or_else(PoisonError::into_inner);
        if let BaseIndex::Catalog(broken) = std::mem::replace(&mut *place, ground) {
            broken.close();
        }
    }

    /// The places from the one that should hold `seq` on; none where nothing is known of it.
    pub(super) fn locate(&self, session: SessionId, seq: Seq) -> Result<Vec<EventLocation>, StoreError> {
        {
            let state = self.state();
            let levels = [Some(&state.unflushed), state.flushing.as_deref()];
            for level in levels.into_iter().flatten() {
                match level.lookup(session, seq) {
                    IndexLookup::Found(places) => return Ok(places),
                    IndexLookup::Absent => return Ok(Vec::new()),
                    IndexLookup::Below => {}
                }
            }
        }
        let found = match &*self.base_index() {
            BaseIndex::Catalog(catalog) => catalog.lookup(session, seq),
            BaseIndex::InMemory(places) => Ok(places
                .by_session
                .get(&session)
                .and_then(|of| locations_from(of, seq))
                .map(<[EventLocation]>::to_vec)),
        };
        match found {
            Ok(places) => Ok(places.unwrap_or_default()),
            Err(error) => {
                self.rebuild_index(&error)?;
                self.locate(session, seq)
            }
        }
    }

    /// Reads the ground anew from the log, if that has not been done yet.
    pub(super) fn rebuild_index(&self, why: &CatalogError) -> Result<(), StoreError> {
        let _alone = self.index_maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        self.rebuild_index_locked(why)
    }

    fn rebuild_index_locked(&self, why: &CatalogError) -> Result<(), StoreError> {
        if matches!(*self.base_index(), BaseIndex::InMemory(_)) {
            return Ok(());
        }
        tracing::warn!("the journal's index cannot be used and is read anew from the log: {why}");
        let end = self.state().flushed_to;
        let mut replay = LogReplay::default();
        replay.replay_up_to(&self.segments, end).map_err(std::io::Error::other)?;
        self.replace_base_index(BaseIndex::InMemory(replay.locations));
        // A next start must not take it up again; but of what the log has lost it alone may know how much was given.
        if replay.damage.is_empty() {
            let _ = std::fs::remove_dir_all(&self.catalog_dir);
        }
        Ok(())
    }

    /// Moves what is fresh into the ground.
    pub(super) fn flush_index(&self) -> Result<(), StoreError> {
        let _alone = self.index_maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(IndexFlush { places, changed, end }) = self.begin_flush() else { return Ok(()) };
        let written = match &*self.base_index() {
            BaseIndex::Catalog(catalog) => catalog.write(&places, &changed, end),
            BaseIndex::InMemory(_) => Ok(()),
        };
        drop(places);
        match written.or_else(|error| self.rebuild_index_locked(&error)) {
            Ok(()) => self.finish_flush(end),
            Err(error) => {
                self.revert_flush(changed.into_keys());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Forgets of an archive whose places are in the ground what the archive knows itself.
    pub(super) fn drop_archived_locations(&self, number: u32) -> Result<(), StoreError> {
        let Segment::Archive(archive) = self.segments.open(number)? else { return Ok(()) };
        let _alone = self.index_maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        for (session, from, until) in archive.sessions() {
            let thinned = match &*self.base_index() {
                BaseIndex::Catalog(catalog) => Some(catalog.drop_archived_locations(number, session, from, until)),
                BaseIndex::InMemory(_) => None,
            };
            match thinned {
                Some(thinned) => thinned.or_else(|error| self.rebuild_index_locked(&error))?,
                None => {
                    if let BaseIndex::InMemory(places) =
                        &mut *self.base_index.write().unwrap_or_else(PoisonError::into_inner)
                    {
                        places.drop_archived(number, session);
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
        let moving = Arc::new(std::mem::take(&mut state.unflushed));
        state.flushing = Some(moving.clone());
        let changed = std::mem::take(&mut state.changed_sessions);
        let changed = changed.into_iter().map(|session| (session, state.sessions.get(&session).cloned())).collect();
        Some(IndexFlush { places: moving, changed, end: state.end })
    }

    fn finish_flush(&self, end: LogPosition) {
        let mut ground = self.base_index.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state_mut();
        let moved = state.flushing.take().and_then(Arc::into_inner);
        if let (BaseIndex::InMemory(places), Some(moved)) = (&mut *ground, moved) {
            places.merge_newer(moved);
            places.forgotten.clear();
        }
        state.flushed_to = end;
    }

    /// Neither the index nor the log could be had: what was to go down stays here, and goes with the next move.
    fn revert_flush(&self, changed: impl Iterator<Item = SessionId>) {
        let mut state = self.state_mut();
        if let Some(mut places) = state.flushing.take().and_then(Arc::into_inner) {
            places.merge_newer(std::mem::take(&mut state.unflushed));
            state.unflushed = places;
        }
        state.changed_sessions.extend(changed);
    }

    /// Whether the disk has what the index takes for a while.
    pub(super) fn has_room(&self) -> bool {
        rustix::fs::statvfs(self.segments.dir())
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) > MIN_FREE_FOR_CATALOG)
    }
}
