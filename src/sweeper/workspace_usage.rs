//! Measures the files of sandboxes. A sandbox writes them itself, so the kernel enforces no limit,
//! and a session beyond its quota is interrupted at the next sweep.

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags},
};

use crate::store::SessionId;

/// Deepest directory that is measured. Each level takes a descriptor.
const MAX_DEPTH: usize = 200;

/// Part of the time that measuring one session may take: one of this many.
const TIME_PARTS: u32 = 20;

/// Unit of a file's size on disk, whatever the file system's own blocks are.
const BLOCK_BYTES: u64 = 512;

/// Newest measurement of each session.
#[derive(Debug, Default)]
pub(super) struct WorkspaceMeter(HashMap<SessionId, Measurement>);

#[derive(Debug)]
struct Measurement {
    bytes: u64,
    /// Time of the next measurement. Large trees are measured less often.
    next: Instant,
}

impl WorkspaceMeter {
    /// Returns true if the session is to be measured now.
    pub(super) fn is_due(&self, session: SessionId, now: Instant) -> bool {
        self.0.get(&session).is_none_or(|last| last.next <= now)
    }

    /// Records a measurement that took `cost`. Returns true if the session is beyond `limit` and
    /// has grown since the last one. So nobody who removes files is interrupted.
    pub(super) fn record(&mut self, session: SessionId, bytes: u64, limit: u64, cost: Duration, now: Instant) -> bool {
        let before = self.0.insert(session, Measurement { bytes, next: now + cost * TIME_PARTS });
        bytes > limit && before.is_some_and(|before| bytes > before.bytes)
    }

    /// Forgets sessions that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(SessionId) -> bool) {
        self.0.retain(|session, _| is_there(*session));
    }
}

/// Returns the bytes on disk of everything below `dir`. Follows no link. What cannot be read counts
/// as empty.
pub(super) fn measure(dir: &Path) -> u64 {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::open(dir, flags, Mode::empty()) else { return 0 };
    let mut levels: Vec<(Dir, OwnedFd)> = open_level(root).into_iter().collect();
    let mut bytes = 0;
    while let Some((entries, fd)) = levels.last_mut() {
        let Some(Ok(entry)) = entries.next() else {
            levels.pop();
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let wanted = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::BLOCKS;
        let Ok(stat) = rustix::fs::statx(&*fd, name, AtFlags::SYMLINK_NOFOLLOW, wanted) else { continue };
        let is_directory = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
        // A file with several names counts once in total.
        let names = if is_directory { 1 } else { u64::from(stat.stx_nlink).max(1) };
        bytes += stat.stx_blocks * BLOCK_BYTES / names;
        if is_directory
            && levels.len() < MAX_DEPTH
            && let Some((_, fd)) = levels.last()
            && let Ok(below) = rustix::fs::openat(fd, name, flags, Mode::empty())
        {
            levels.extend(open_level(below));
        }
    }
    bytes
}

fn open_level(fd: OwnedFd) -> Option<(Dir, OwnedFd)> {
    Some((Dir::read_from(&fd).ok()?, fd))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn files_count_once_and_links_do_not_lead_outside() {
        let dir = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        fs::create_dir_all(inside.join("a/b")).expect("directories");
        fs::create_dir(&outside).expect("a directory");
        let empty = measure(&inside);
        fs::write(outside.join("large"), vec![1; 8 << 20]).expect("the disk has room");
        fs::write(inside.join("a/b/file"), vec![1; 1 << 20]).expect("the disk has room");
        for name in ["twice", "thrice"] {
            fs::hard_link(inside.join("a/b/file"), inside.join(name)).expect("a link");
        }
        symlink(&outside, inside.join("way-out")).expect("a link");
        let sparse = fs::File::create(inside.join("sparse")).expect("a file");
        sparse.set_len(1 << 30).expect("a sparse file");
        let unreadable = inside.join("unreadable");
        fs::create_dir(&unreadable).expect("a directory");
        fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o000)).expect("own directory");
        let grown = measure(&inside) - empty;
        assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&grown), "{grown}");
        fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o700)).expect("own directory");
        assert_eq!(measure(&dir.path().join("missing")), 0);
    }

    #[test]
    fn only_growth_beyond_the_limit_is_reported() {
        let (mut meter, session, now) = (WorkspaceMeter::default(), SessionId::generate(), Instant::now());
        let mut check = |bytes, expected| {
            assert_eq!(meter.record(session, bytes, 100, Duration::from_secs(1), now), expected, "{bytes} bytes");
        };
        check(110, false);
        check(100, false);
        check(101, true);
        check(101, false);
        check(90, false);
        check(150, true);
        check(120, false);
        assert!(!meter.is_due(session, now + Duration::from_secs(19)));
        assert!(meter.is_due(session, now + Duration::from_secs(20)));
        meter.retain(|_| false);
        assert!(meter.is_due(session, now));
    }
}
