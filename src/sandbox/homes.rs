//! Homes of the sandboxes, and the users that own them: one user for all, or one for each.
//!
//! The kernel counts inotify instances, queued signals, descriptors in flight and more per user.
//! Sandboxes with one user share these quotas, and one of them can use them up.

use std::{
    collections::BTreeMap,
    io,
    ops::RangeInclusive,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::session_dir;
use crate::{config::SandboxConfig, store::SessionId};

/// Homes of all sessions. The owner of a home is the user of its sandbox.
#[derive(Debug)]
pub struct SandboxHomes {
    root: PathBuf,
    /// User and group of the sandboxes without a user of their own. All have this group.
    shared: (u32, u32),
    own_uids: Option<RangeInclusive<u32>>,
    /// Sessions by the user id of their own.
    taken: Mutex<BTreeMap<u32, SessionId>>,
}

/// Home of one sandbox, with its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxHome {
    pub path: PathBuf,
    pub uid: u32,
    pub gid: u32,
}

impl SandboxHomes {
    /// Reads the owners of the homes below `root`, if each sandbox has a user of its own.
    ///
    /// # Errors
    /// Fails if the homes exist and cannot be read.
    pub fn open(root: PathBuf, config: &SandboxConfig) -> io::Result<SandboxHomes> {
        SandboxHomes::with_uids(root, config.user(), config.own_uids().ok())
    }

    fn with_uids(root: PathBuf, shared: (u32, u32), own_uids: Option<RangeInclusive<u32>>) -> io::Result<SandboxHomes> {
        let taken = match &own_uids {
            Some(own_uids) => owners(&root, own_uids)?,
            None => BTreeMap::new(),
        };
        Ok(SandboxHomes { root, shared, own_uids, taken: Mutex::new(taken) })
    }

    /// Returns the home of the session, with the user that its next sandbox has. Creates the home
    /// if it is missing. A home that exists keeps its owner.
    ///
    /// `recorded` is the user of the session's last sandbox. The session keeps it if it is still
    /// valid. If all user ids are taken, the sandbox shares the configured user.
    pub fn home_of(&self, session: SessionId, recorded: Option<u32>) -> io::Result<SandboxHome> {
        let (shared_uid, gid) = self.shared;
        // Held until the home exists: a user id without a home is free.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own_uids = self.own_uids.as_ref();
        let own = own_uids.and_then(|own_uids| self.free_uid(own_uids, &taken, session, recorded));
        let uid = own.unwrap_or(shared_uid);
        let path = session_dir(&self.root, session, uid, gid)
            .map_err(|e| io::Error::new(e.kind(), format!("`{}`: {e}", self.root.display())))?;
        if let Some(own) = own {
            taken.insert(own, session);
        }
        Ok(SandboxHome { path, uid, gid })
    }

    /// Returns the recorded user id, or the first free one from a place that follows from the
    /// session's id. A session whose user id was not recorded therefore mostly gets the same again.
    fn free_uid(
        &self,
        own_uids: &RangeInclusive<u32>,
        taken: &BTreeMap<u32, SessionId>,
        session: SessionId,
        recorded: Option<u32>,
    ) -> Option<u32> {
        let is_free = |uid: &u32| {
            taken.get(uid).is_none_or(|holder| *holder == session || !self.root.join(holder.to_string()).exists())
        };
        let count = u64::from(own_uids.end() - own_uids.start()) + 1;
        let [.., a, b, c, d] = session.to_bytes();
        let place = u64::from(u32::from_be_bytes([a, b, c, d]));
        let uids = (0..count).map(|step| own_uids.start() + ((place + step) % count) as u32);
        recorded.into_iter().filter(|uid| own_uids.contains(uid)).chain(uids).find(is_free)
    }
}

/// Returns the sessions whose homes belong to one of the user ids.
fn owners(root: &Path, own_uids: &RangeInclusive<u32>) -> io::Result<BTreeMap<u32, SessionId>> {
    let entries = match std::fs::read_dir(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut owners = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let session = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A home may be removed meanwhile.
        let owner = entry.metadata().ok().map(|home| home.uid()).filter(|uid| own_uids.contains(uid));
        if let Some((session, owner)) = session.zip(owner) {
            owners.insert(owner, session);
        }
    }
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UIDS: RangeInclusive<u32> = 70_000..=70_003;

    fn homes(root: &Path, own_uids: Option<RangeInclusive<u32>>) -> SandboxHomes {
        let shared = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        SandboxHomes::with_uids(root.to_owned(), shared, own_uids).expect("homes are readable")
    }

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("skipped: only root can create homes for others");
        }
        is_root
    }

    #[test]
    fn each_session_has_a_user_of_its_own_until_all_are_taken() {
        if !is_root() {
            return;
        }
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let homes = homes(temp.path(), Some(UIDS));
        let sessions: Vec<SessionId> = (0..5).map(|_| SessionId::generate()).collect();
        let uid_of = |session: SessionId| homes.home_of(session, None).expect("home is created").uid;
        let uids: Vec<u32> = sessions.iter().map(|session| uid_of(*session)).collect();
        let mut own = uids[..4].to_vec();
        own.sort_unstable();
        assert_eq!((own, uids[4]), (UIDS.collect(), homes.shared.0), "the fifth session shares the configured user");
        std::fs::remove_dir(temp.path().join(sessions[2].to_string())).expect("home exists");
        assert_eq!(uid_of(SessionId::generate()), uids[2], "a purged session frees its user");
    }

    #[test]
    fn restarted_server_keeps_users_apart() {
        if !is_root() {
            return;
        }
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let (first, second) = (SessionId::generate(), SessionId::generate());
        let before = homes(temp.path(), Some(UIDS)).home_of(first, None).expect("home is created").uid;
        let restarted = homes(temp.path(), Some(UIDS));
        let imported = restarted.home_of(second, Some(before)).expect("home is created").uid;
        assert_ne!(imported, before, "another node recorded a user that is taken here");
        assert_eq!(restarted.home_of(first, Some(before)).expect("home exists").uid, before);
        let moved = homes(temp.path(), Some(80_000..=80_001)).home_of(first, Some(before)).expect("home exists").uid;
        assert!((80_000..=80_001).contains(&moved), "the range has changed");
    }

    #[test]
    fn without_a_range_all_share_the_configured_user() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let homes = homes(temp.path(), None);
        let home = homes.home_of(SessionId::generate(), Some(70_000)).expect("home is created");
        assert_eq!((home.uid, home.gid), homes.shared);
    }
}
