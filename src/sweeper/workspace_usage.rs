//! Measures the files of sandboxes. The kernel enforces no limit on them. A session is interrupted
//! once a measurement finds it beyond its quota and larger than the one before.

use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytesize::ByteSize;
use greenroom_protocol::observation::AgentState;
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags},
};
use tokio::{task::spawn_blocking, time::sleep};

use super::SweeperParts;
use crate::{directory::GetIfRunning, session::messages::WorkspaceFull, store::SessionId};

/// Deepest directory that is measured. Each level takes a descriptor.
const MAX_DEPTH: usize = 200;

/// Pause after a measurement, as a multiple of its duration. All measurements together take at most
/// 5 % of one core and of the disk.
const PAUSE_FACTOR: u32 = 19;

/// Unit of a file's size on disk, whatever the file system's own blocks are.
const BLOCK_BYTES: u64 = 512;

/// Measures the running sessions at the sweeper's interval, until dropped.
pub(super) async fn measure_workspaces(parts: Arc<SweeperParts>) {
    let mut meter = WorkspaceMeter::default();
    loop {
        meter.measure_round(&parts).await;
        sleep(parts.config.every.0).await;
    }
}

/// Bytes of each session's files, as last measured.
#[derive(Debug, Default)]
struct WorkspaceMeter(HashMap<SessionId, u64>);

impl WorkspaceMeter {
    /// Measures the running sessions one by one. Interrupts those beyond their quota that grow.
    async fn measure_round(&mut self, parts: &SweeperParts) {
        let Ok(mine) = parts.store.mine().await else { return };
        let states: HashMap<_, _> = mine.iter().map(|found| (found.record.id, found.record.state)).collect();
        self.0.retain(|session, _| states.contains_key(session));
        let is_running =
            |state| !matches!(state, AgentState::Paused | AgentState::Stopped | AgentState::Failed | AgentState::Ended);
        for id in states.iter().filter(|(_, state)| is_running(**state)).map(|(id, _)| *id) {
            let dirs: Vec<_> = parts.written_dirs.iter().map(|parent| parent.join(id.to_string())).collect();
            let start = Instant::now();
            let measured = spawn_blocking(move || dirs.iter().map(|dir| measure(dir)).sum::<u64>()).await;
            let pause: Duration = start.elapsed() * PAUSE_FACTOR;
            let Ok(bytes) = measured else { continue };
            let limit = parts.workspace_quota;
            if self.record(id, bytes, limit.as_u64())
                && let Ok(Some(session)) = parts.directory.send(GetIfRunning { id }).await
            {
                let reason = format!(
                    "workspace and home hold {}, more than {limit} (`quota.workspace`); remove files or raise the limit",
                    ByteSize(bytes)
                );
                session.do_send(WorkspaceFull { reason });
            }
            sleep(pause).await;
        }
    }

    /// Records a measurement. Returns true if the session is beyond `limit` and has grown since the
    /// last one. So nobody who removes files is interrupted.
    fn record(&mut self, session: SessionId, bytes: u64, limit: u64) -> bool {
        let before = self.0.insert(session, bytes);
        bytes > limit && before.is_some_and(|before| bytes > before)
    }
}

/// Returns the bytes on disk of everything below `dir`. Follows no link. What cannot be read counts
/// as empty.
fn measure(dir: &Path) -> u64 {
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
        let (mut meter, session) = (WorkspaceMeter::default(), SessionId::generate());
        let mut check = |bytes, expected| {
            assert_eq!(meter.record(session, bytes, 100), expected, "{bytes} bytes");
        };
        check(110, false);
        check(100, false);
        check(101, true);
        check(101, false);
        check(90, false);
        check(150, true);
        check(120, false);
    }
}
