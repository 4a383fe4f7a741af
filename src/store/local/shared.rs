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
    places::{Lookup, Place, Places, from},
    recent::Recent,
    replay::Replay,
    segment::{Position, Segment, Segments},
};
use crate::store::{Seq, SessionId, StoreError, ledger::Entry};

#[derive(Debug)]
pub(super) struct State {
    pub(super) sessions: HashMap<SessionId, Entry>,
    pub(super) recent: Recent,
    pub(super) fresh: Places,
    /// Sessions that the ground knows otherwise.
    pub(super) changed: HashSet<SessionId>,
    /// Where the last commit ended.
    pub(super) end: Position,
    /// Since when something that was purged may stand in the last segment.
    pub(super) purged: Option<Instant>,
    pub(super) moving: Option<Arc<Places>>,
    /// Up to where the ground is complete.
    pub(super) moved: Position,
}

/// The lowest level of the index.
#[derive(Debug)]
pub(super) enum Ground {
    Catalog(Catalog),
    /// Where sled failed: the same, read from the log, until the next start makes a new catalog.
    Memory(Places),
}

#[derive(Debug)]
pub(super) struct Shared {
    state: RwLock<State>,
    ground: RwLock<Ground>,
    /// One at a time moves places down or replaces the ground.
    upkeep: Mutex<()>,
    pub(super) segments: Segments,
    pub(super) catalog_dir: PathBuf,
    /// No session may be in the log that is not known.
    pub(super) is_whole: bool,
}

/// What goes down at once: all up to `end`.
struct Move {
    places: Arc<Places>,
    /// `None` where a session is gone.
    changed: HashMap<SessionId, Option<Entry>>,
    end: Position,
}

/// The disk's last room belongs to the log: sled does not survive a full disk well, and what it lacks is in memory.
const ROOM_FOR_CATALOG: u64 = 16 << 20;

impl Shared {
    pub(super) fn new(
        state: State,
        ground: Ground,
        segments: Segments,
        catalog_dir: PathBuf,
        is_whole: bool,
    ) -> Shared {
        let (state, ground, upkeep) = (RwLock::new(state), RwLock::new(ground), Mutex::new(()));
        Shared { state, ground, upkeep, segments, catalog_dir, is_whole }
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ground(&self) -> RwLockReadGuard<'_, Ground> {
        self.ground.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace_ground(&self, ground: Ground) {
        let mut place = self.ground.write().unwrap_or_else(PoisonError::into_inner);
        if let Ground::Catalog(broken) = std::mem::replace(&mut *place, ground) {
            broken.close();
        }
    }

    /// The places from the one that should hold `seq` on; none where nothing is known of it.
    pub(super) fn locate(&self, session: SessionId, seq: Seq) -> Result<Vec<Place>, StoreError> {
        {
            let state = self.state();
            let levels = [Some(&state.fresh), state.moving.as_deref()];
            for level in levels.into_iter().flatten() {
                match level.lookup(session, seq) {
                    Lookup::Here(places) => return Ok(places),
                    Lookup::Nowhere => return Ok(Vec::new()),
                    Lookup::Below => {}
                }
            }
        }
        let found = match &*self.ground() {
            Ground::Catalog(catalog) => catalog.lookup(session, seq),
            Ground::Memory(places) => Ok(places.of.get(&session).and_then(|of| from(of, seq)).map(<[Place]>::to_vec)),
        };
        match found {
            Ok(places) => Ok(places.unwrap_or_default()),
            Err(error) => {
                self.distrust(&error)?;
                self.locate(session, seq)
            }
        }
    }

    /// Reads the ground anew from the log, if that has not been done yet.
    pub(super) fn distrust(&self, why: &CatalogError) -> Result<(), StoreError> {
        let _alone = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        self.rebuild(why)
    }

    fn rebuild(&self, why: &CatalogError) -> Result<(), StoreError> {
        if matches!(*self.ground(), Ground::Memory(_)) {
            return Ok(());
        }
        tracing::warn!("the journal's index cannot be used and is read anew from the log: {why}");
        let end = self.state().moved;
        let mut replay = Replay::default();
        replay.up_to(&self.segments, end).map_err(std::io::Error::other)?;
        self.replace_ground(Ground::Memory(replay.places));
        // A next start must not take it up again; but of what the log has lost it alone may know how much was given.
        if replay.damage.is_empty() {
            let _ = std::fs::remove_dir_all(&self.catalog_dir);
        }
        Ok(())
    }

    /// Moves what is fresh into the ground.
    pub(super) fn move_down(&self) -> Result<(), StoreError> {
        let _alone = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Move { places, changed, end }) = self.begin_move() else { return Ok(()) };
        let written = match &*self.ground() {
            Ground::Catalog(catalog) => catalog.write(&places, &changed, end),
            Ground::Memory(_) => Ok(()),
        };
        drop(places);
        match written.or_else(|error| self.rebuild(&error)) {
            Ok(()) => self.end_move(end),
            Err(error) => {
                self.undo_move(changed.into_keys());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Forgets of an archive whose places are in the ground what the archive knows itself.
    pub(super) fn thin(&self, number: u32) -> Result<(), StoreError> {
        let Segment::Archive(archive) = self.segments.open(number)? else { return Ok(()) };
        let _alone = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        for (session, from, until) in archive.sessions() {
            let thinned = match &*self.ground() {
                Ground::Catalog(catalog) => Some(catalog.thin(number, session, from, until)),
                Ground::Memory(_) => None,
            };
            match thinned {
                Some(thinned) => thinned.or_else(|error| self.rebuild(&error))?,
                None => {
                    if let Ground::Memory(places) = &mut *self.ground.write().unwrap_or_else(PoisonError::into_inner) {
                        places.thin(number, session);
                    }
                }
            }
        }
        let flushed = match &*self.ground() {
            Ground::Catalog(catalog) => catalog.flush(),
            Ground::Memory(_) => Ok(()),
        };
        flushed.or_else(|error| self.rebuild(&error))
    }

    fn begin_move(&self) -> Option<Move> {
        if matches!(*self.ground(), Ground::Catalog(_)) && !self.has_room() {
            return None;
        }
        let mut state = self.change();
        if state.end == state.moved {
            return None;
        }
        let moving = Arc::new(std::mem::take(&mut state.fresh));
        state.moving = Some(moving.clone());
        let changed = std::mem::take(&mut state.changed);
        let changed = changed.into_iter().map(|session| (session, state.sessions.get(&session).cloned())).collect();
        Some(Move { places: moving, changed, end: state.end })
    }

    fn end_move(&self, end: Position) {
        let mut ground = self.ground.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.change();
        let moved = state.moving.take().and_then(Arc::into_inner);
        if let (Ground::Memory(places), Some(moved)) = (&mut *ground, moved) {
            places.cover(moved);
            places.forgotten.clear();
        }
        state.moved = end;
    }

    /// Neither the index nor the log could be had: what was to go down stays here, and goes with the next move.
    fn undo_move(&self, changed: impl Iterator<Item = SessionId>) {
        let mut state = self.change();
        if let Some(mut places) = state.moving.take().and_then(Arc::into_inner) {
            places.cover(std::mem::take(&mut state.fresh));
            state.fresh = places;
        }
        state.changed.extend(changed);
    }

    /// Whether the disk has what the index takes for a while.
    pub(super) fn has_room(&self) -> bool {
        rustix::fs::statvfs(self.segments.dir())
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) > ROOM_FOR_CATALOG)
    }
}
