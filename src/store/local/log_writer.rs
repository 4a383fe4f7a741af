//! The end of the log, where one thread writes at a time. After any failure the end is where it was, and the next commit mends
//! what the failure left behind before it writes.
//!
//! Beyond the end a stretch of zeros is prepared. To write over them asks the disk for the bytes alone; a file that grows has the
//! file system's own journal committed with every sync, by a thread of the kernel that must have its turn first.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use super::segment::{self, FileKind, PREFACE, Position, Preface};
use crate::store::ledger::Failure;

/// What lies beyond the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Nothing,
    /// Some of a commit that failed, and cutting it off failed too.
    Remains,
    /// A sync failed. The kernel may have dropped the pages and call the file clean, so this file is not written again.
    Unsyncable,
    /// The segment that comes next, or some of it.
    Closed,
}

/// How many threads wait for the disk side by side. With two, one that is not woken in time is made up for; a third was no gain.
pub(super) const HANDS: usize = 2;

#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    number: u32,
    file: File,
    /// The same file, for each who syncs it.
    hands: [Arc<File>; HANDS],
    end: u64,
    beyond: Beyond,
    /// Up to where the file has blocks on the disk: its end, or that of the zeros behind it.
    prepared: u64,
    sizes: SegmentSizes,
}

/// In bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentSizes {
    /// A commit that would exceed it begins a new segment.
    pub(super) most: u64,
    /// How much is prepared beyond the end.
    pub(super) ahead: u64,
}

impl SegmentSizes {
    pub(super) const DEFAULT: SegmentSizes = SegmentSizes { most: 64 << 20, ahead: 1 << 20 };

    /// How much is prepared at a time: as soon done as a commit.
    fn step(self) -> u64 {
        self.ahead / 8
    }
}

impl Log {
    /// Goes on with a segment that ends at `end`, also as a file.
    pub(super) fn new(dir: PathBuf, number: u32, file: File, end: u64, sizes: SegmentSizes) -> io::Result<Log> {
        let path = segment::path(&dir, number, FileKind::Log);
        let hand = || File::open(&path).map(Arc::new);
        let hands = [hand()?, hand()?];
        Ok(Log { dir, number, file, hands, end, beyond: Beyond::Nothing, prepared: end, sizes })
    }

    /// The segment, for one of those who sync side by side. Each has a description of its own, opened before anything was written:
    /// the kernel says once to each that a page was lost, and not again to the next who asks over the same.
    pub(super) fn hand(&self, number: usize) -> Arc<File> {
        self.hands[number].clone()
    }

    /// The number of the segment that is written now.
    pub(super) fn segment(&self) -> u32 {
        self.number
    }

    /// Where the last commit ended.
    pub(super) fn end(&self) -> io::Result<Position> {
        Ok(Position { segment: self.number, offset: u32::try_from(self.end).map_err(io::Error::other)? })
    }

    /// Whether `len` bytes can be written as it is. Where not, all that was written must be synced before room is made.
    pub(super) fn has_room(&self, len: usize) -> bool {
        !self.is_full(len) && self.beyond == Beyond::Nothing
    }

    fn is_full(&self, len: usize) -> bool {
        self.end + len as u64 > self.sizes.most && self.end > PREFACE as u64
    }

    /// Finds `len` bytes of room, in a new segment where need be. What is written next stands there.
    pub(super) fn make_room(&mut self, len: usize) -> io::Result<Position> {
        let mended = match self.beyond {
            Beyond::Nothing => true,
            Beyond::Remains => self.cut().is_ok(),
            Beyond::Unsyncable | Beyond::Closed => false,
        };
        if self.is_full(len) || !mended {
            self.begin_segment()?;
        }
        self.end()
    }

    /// Makes `bytes` durable, with nothing else on its way, or says what became of them.
    pub(super) fn commit(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let at = self.end().map_err(|error| Failure::Refused(Arc::new(error)))?;
        self.write(bytes)?;
        self.file.sync_data().map_err(|error| {
            self.give_up(Some(at));
            Failure::Unknown(Arc::new(error))
        })
    }

    /// Writes `bytes` at the end; they are durable once a [`Log::hand`] has been synced.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Err(error) = self.file.write_all_at(bytes, self.end) {
            let error = Arc::new(error);
            return Err(match self.cut() {
                Ok(()) => Failure::Refused(error),
                Err(_) => Failure::Unknown(error),
            });
        }
        self.end += bytes.len() as u64;
        self.prepared = self.prepared.max(self.end);
        Ok(())
    }

    /// A sync failed: this file is not written again, and the log ends in it `from` there, or where it does. What was written
    /// since counts for nothing.
    pub(super) fn give_up(&mut self, from: Option<Position>) {
        self.end = from.map_or(self.end, |from| u64::from(from.offset));
        self.prepared = self.end;
        // So that a restart of this process does not take unsynced pages for durable ones; a power cut may still show
        // either, which is why the answer is "unknown" and the next segment says where this one ends.
        let _ = self.file.set_len(self.end);
        self.beyond = Beyond::Unsyncable;
    }

    /// Writes zeros for the commits to come, a step at a time. To be called when nobody waits: in a flood it would be no gain to
    /// write everything twice. Where it fails, the file grows as it must.
    pub(super) fn prepare(&mut self) {
        let step = self.sizes.step();
        let until = (self.prepared + step).min(self.sizes.most);
        let is_ahead = self.prepared + step > self.end + self.sizes.ahead || until <= self.prepared;
        if is_ahead || self.beyond != Beyond::Nothing || !self.is_roomy() {
            return;
        }
        let zeros = vec![0; (until - self.prepared) as usize];
        if self.file.write_all_at(&zeros, self.prepared).is_err() {
            return;
        }
        match self.file.sync_data() {
            Ok(()) => self.prepared = until,
            Err(_) => self.beyond = Beyond::Unsyncable,
        }
    }

    /// What a disk has left that gets full is for what is said.
    fn is_roomy(&self) -> bool {
        rustix::fs::fstatvfs(&self.file).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOMY)
    }

    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end).inspect_err(|_| self.beyond = Beyond::Remains)?;
        self.prepared = self.end;
        self.file.sync_data().inspect_err(|_| self.beyond = Beyond::Unsyncable)?;
        self.beyond = Beyond::Nothing;
        Ok(())
    }

    /// Gives back what was prepared and is not needed: the file ends where the log does. What cannot be given back does no harm.
    pub(super) fn trim(&mut self) {
        if self.prepared > self.end && self.file.set_len(self.end).is_ok() {
            self.prepared = self.end;
        }
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let preface = Preface { number: self.number + 1, previous_end: self.end };
        // It says where this one ends. Where it cannot be had whole, it is begun again before anything else is written: of one that
        // was taken away once more nobody knows whether a power cut brings it back.
        self.beyond = Beyond::Closed;
        let file = segment::create(&self.dir, preface)?;
        self.trim();
        *self = Log::new(self.dir.clone(), preface.number, file, PREFACE as u64, self.sizes)?;
        Ok(())
    }

    /// The next commit goes into a new segment, unless nothing stands in this one. Returns where.
    pub(super) fn close_segment(&mut self) -> io::Result<Position> {
        if self.end > PREFACE as u64 {
            self.begin_segment()?;
        }
        self.make_room(0)
    }

    /// Whether a small commit would succeed, as far as can be told without writing one.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let disk = rustix::fs::fstatvfs(&self.file)?;
        if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, self.words("is on a read-only file system")));
        }
        if disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST_ROOM {
            return Err(io::Error::new(io::ErrorKind::StorageFull, self.words("is on a full disk; make room on it")));
        }
        self.make_room(0).map(drop)
    }

    fn words(&self, what: &str) -> String {
        format!("the journal `{}` {what}", self.dir.display())
    }
}

const LEAST_ROOM: u64 = 1 << 20;
/// From how much free space on the disk is taken ahead of need.
const ROOMY: u64 = 256 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests {
    use super::*;

    const SIZES: SegmentSizes = SegmentSizes { most: 4096, ahead: 1024 };

    /// A log, and how long the files of its segments are.
    fn begun() -> (Log, impl Fn(u32) -> u64) {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_owned();
        let file = segment::create(&at, Preface { number: 1, previous_end: 0 }).unwrap();
        let len = move |number| segment::path(dir.path(), number, segment::FileKind::Log).metadata().unwrap().len();
        (Log::new(at, 1, file, PREFACE as u64, SIZES).unwrap(), len)
    }

    fn commit(log: &mut Log, len: usize) {
        log.make_room(len).unwrap();
        log.commit(&vec![7; len]).unwrap();
    }

    #[test]
    fn commits_find_room_that_the_file_has_already() {
        let (mut log, len) = begun();
        commit(&mut log, 50);
        assert_eq!(len(1), log.end, "nobody had time");
        (0..20).for_each(|_| log.prepare());
        let prepared = len(1);
        assert!((log.end + SIZES.ahead - SIZES.step()..=log.end + SIZES.ahead).contains(&prepared), "{prepared}");
        while log.end + 50 <= prepared {
            commit(&mut log, 50);
            assert_eq!(len(1), prepared);
        }
        commit(&mut log, 50);
        assert_eq!(len(1), log.end, "and no hole where it ends");
        log.prepare();
        assert_eq!(len(1), log.end + SIZES.step());
    }

    #[test]
    fn what_was_prepared_and_is_not_needed_is_given_back() {
        let (mut log, len) = begun();
        commit(&mut log, 50);
        log.prepare();
        log.close_segment().unwrap();
        assert_eq!(len(1), PREFACE as u64 + 50);
        commit(&mut log, 60);
        log.prepare();
        log.trim();
        assert_eq!(len(2), PREFACE as u64 + 60);
        log.prepare();
        assert_eq!(len(2), log.end + SIZES.step(), "it goes on");
    }

    #[test]
    fn no_segment_is_prepared_beyond_its_size() {
        let (mut log, len) = begun();
        while log.end + 64 <= SIZES.most {
            commit(&mut log, 64);
            log.prepare();
        }
        assert_eq!(len(1), SIZES.most);
    }

    #[test]
    fn what_comes_once_the_next_segment_says_where_this_one_ends_goes_there() {
        let (mut log, _len) = begun();
        commit(&mut log, 50);
        let next = segment::path(&log.dir, 2, FileKind::Log);
        std::fs::create_dir(&next).unwrap();
        log.close_segment().unwrap_err();
        assert!(!log.has_room(1) && log.make_room(1).is_err());
        std::fs::remove_dir(next).unwrap();
        assert_eq!(log.make_room(1).unwrap(), Position { segment: 2, offset: PREFACE as u32 });
    }
}
