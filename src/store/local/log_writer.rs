//! The end of the log, where one thread writes at a time. After any failure the end is where it was, and the next commit mends
//! what the failure left behind before it writes.
//!
//! Beyond the end a stretch of zeros is prepared. To write over them asks the disk for the bytes alone; a file that grows has the
//! file system's own journal committed with every sync, by a thread of the kernel that must have its turn first.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use super::segment::{self, LogPosition, SEGMENT_HEADER_LEN, SegmentFileKind, SegmentHeader};
use crate::store::session_change::ChangeFailure;

/// What lies beyond the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TailCondition {
    Clean,
    /// Some of a commit that failed, and cutting it off failed too.
    FailedBytes,
    /// A sync failed. The kernel may have dropped the pages and call the file clean, so this file is not written again.
    Unsyncable,
    /// The segment that comes next, or some of it.
    Closed,
}

/// How many threads wait for the disk side by side. With two, one that is not woken in time is made up for; a third was no gain.
pub(super) const COMMITTER_THREADS: usize = 2;

#[derive(Debug)]
pub(super) struct LogWriter {
    dir: PathBuf,
    number: u32,
    file: File,
    /// The same file, for each who syncs it.
    sync_files: [Arc<File>; COMMITTER_THREADS],
    end: u64,
    tail_condition: TailCondition,
    /// Up to where the file has blocks on the disk: its end, or that of the zeros behind it.
    preallocated: u64,
    sizes: SegmentSizes,
}

/// In bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentSizes {
    /// A commit that would exceed it begins a new segment.
    pub(super) max_bytes: u64,
    /// How much is prepared beyond the end.
    pub(super) preallocate_bytes: u64,
}

impl SegmentSizes {
    pub(super) const DEFAULT: SegmentSizes = SegmentSizes { max_bytes: 64 << 20, preallocate_bytes: 1 << 20 };

    /// How much is prepared at a time: as soon done as a commit.
    fn preallocate_step(self) -> u64 {
        self.preallocate_bytes / 8
    }
}

impl LogWriter {
    /// Goes on with a segment that ends at `end`, also as a file.
    pub(super) fn new(dir: PathBuf, number: u32, file: File, end: u64, sizes: SegmentSizes) -> io::Result<LogWriter> {
        let path = segment::path(&dir, number, SegmentFileKind::Log);
        let hand = || File::open(&path).map(Arc::new);
        let hands = [hand()?, hand()?];
        Ok(LogWriter {
            dir,
            number,
            file,
            sync_files: hands,
            end,
            tail_condition: TailCondition::Clean,
            preallocated: end,
            sizes,
        })
    }

    /// The segment, for one of those who sync side by side. Each has a description of its own, opened before anything was written:
    /// the kernel says once to each that a page was lost, and not again to the next who asks over the same.
    pub(super) fn sync_file(&self, number: usize) -> Arc<File> {
        self.sync_files[number].clone()
    }

    /// The number of the segment that is written now.
    pub(super) fn segment(&self) -> u32 {
        self.number
    }

    /// Where the last commit ended.
    pub(super) fn end(&self) -> io::Result<LogPosition> {
        Ok(LogPosition { segment: self.number, offset: u32::try_from(self.end).map_err(io::Error::other)? })
    }

    /// Whether `len` bytes can be written as it is. Where not, all that was written must be synced before room is made.
    pub(super) fn has_room(&self, len: usize) -> bool {
        !self.is_full(len) && self.tail_condition == TailCondition::Clean
    }

    fn is_full(&self, len: usize) -> bool {
        self.end + len as u64 > self.sizes.max_bytes && self.end > SEGMENT_HEADER_LEN as u64
    }

    /// Finds `len` bytes of room, in a new segment where need be. What is written next stands there.
    pub(super) fn make_room(&mut self, len: usize) -> io::Result<LogPosition> {
        let mended = match self.tail_condition {
            TailCondition::Clean => true,
            TailCondition::FailedBytes => self.truncate_to_end().is_ok(),
            TailCondition::Unsyncable | TailCondition::Closed => false,
        };
        if self.is_full(len) || !mended {
            self.begin_segment()?;
        }
        self.end()
    }

    /// Makes `bytes` durable, with nothing else on its way, or says what became of them.
    pub(super) fn commit(&mut self, bytes: &[u8]) -> Result<(), ChangeFailure> {
        let at = self.end().map_err(|error| ChangeFailure::NotWritten(Arc::new(error)))?;
        self.write(bytes)?;
        self.file.sync_data().map_err(|error| {
            self.abandon_file(Some(at));
            ChangeFailure::Unknown(Arc::new(error))
        })
    }

    /// Writes `bytes` at the end; they are durable once a [`Log::hand`] has been synced.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ChangeFailure> {
        if let Err(error) = self.file.write_all_at(bytes, self.end) {
            let error = Arc::new(error);
            return Err(match self.truncate_to_end() {
                Ok(()) => ChangeFailure::NotWritten(error),
                Err(_) => ChangeFailure::Unknown(error),
            });
        }
        self.end += bytes.len() as u64;
        self.preallocated = self.preallocated.max(self.end);
        Ok(())
    }

    /// A sync failed: this file is not written again, and the log ends in it `from` there, or where it does. What was written
    /// since counts for nothing.
    pub(super) fn abandon_file(&mut self, from: Option<LogPosition>) {
        self.end = from.map_or(self.end, |from| u64::from(from.offset));
        self.preallocated = self.end;
        // So that a restart of this process does not take unsynced pages for durable ones; a power cut may still show
        // either, which is why the answer is "unknown" and the next segment says where this one ends.
        let _ = self.file.set_len(self.end);
        self.tail_condition = TailCondition::Unsyncable;
    }

    /// Writes zeros for the commits to come, a step at a time. To be called when nobody waits: in a flood it would be no gain to
    /// write everything twice. Where it fails, the file grows as it must.
    pub(super) fn preallocate(&mut self) {
        let step = self.sizes.preallocate_step();
        let until = (self.preallocated + step).min(self.sizes.max_bytes);
        let is_ahead = self.preallocated + step > self.end + self.sizes.preallocate_bytes || until <= self.preallocated;
        if is_ahead || self.tail_condition != TailCondition::Clean || !self.has_spare_space() {
            return;
        }
        let zeros = vec![0; (until - self.preallocated) as usize];
        if self.file.write_all_at(&zeros, self.preallocated).is_err() {
            return;
        }
        match self.file.sync_data() {
            Ok(()) => self.preallocated = until,
            Err(_) => self.tail_condition = TailCondition::Unsyncable,
        }
    }

    /// What a disk has left that gets full is for what is said.
    fn has_spare_space(&self) -> bool {
        rustix::fs::fstatvfs(&self.file)
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= MIN_FREE_TO_PREALLOCATE)
    }

    fn truncate_to_end(&mut self) -> io::Result<()> {
        self.file.set_len(self.end).inspect_err(|_| self.tail_condition = TailCondition::FailedBytes)?;
        self.preallocated = self.end;
        self.file.sync_data().inspect_err(|_| self.tail_condition = TailCondition::Unsyncable)?;
        self.tail_condition = TailCondition::Clean;
        Ok(())
    }

    /// Gives back what was prepared and is not needed: the file ends where the log does. What cannot be given back does no harm.
    pub(super) fn trim(&mut self) {
        if self.preallocated > self.end && self.file.set_len(self.end).is_ok() {
            self.preallocated = self.end;
        }
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let preface = SegmentHeader { number: self.number + 1, previous_end: self.end };
        // It says where this one ends. Where it cannot be had whole, it is begun again before anything else is written: of one that
        // was taken away once more nobody knows whether a power cut brings it back.
        self.tail_condition = TailCondition::Closed;
        let file = segment::create(&self.dir, preface)?;
        self.trim();
        *self = LogWriter::new(self.dir.clone(), preface.number, file, SEGMENT_HEADER_LEN as u64, self.sizes)?;
        Ok(())
    }

    /// The next commit goes into a new segment, unless nothing stands in this one. Returns where.
    pub(super) fn close_segment(&mut self) -> io::Result<LogPosition> {
        if self.end > SEGMENT_HEADER_LEN as u64 {
            self.begin_segment()?;
        }
        self.make_room(0)
    }

    /// Whether a small commit would succeed, as far as can be told without writing one.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let disk = rustix::fs::fstatvfs(&self.file)?;
        if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                self.describe("is on a read-only file system"),
            ));
        }
        if disk.f_bavail.saturating_mul(disk.f_frsize) < MIN_FREE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                self.describe("is on a full disk; make room on it"),
            ));
        }
        self.make_room(0).map(drop)
    }

    fn describe(&self, what: &str) -> String {
        format!("the journal `{}` {what}", self.dir.display())
    }
}

const MIN_FREE_BYTES: u64 = 1 << 20;
/// From how much free space on the disk is taken ahead of need.
const MIN_FREE_TO_PREALLOCATE: u64 = 256 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests {
    use super::*;

    const SIZES: SegmentSizes = SegmentSizes { max_bytes: 4096, preallocate_bytes: 1024 };

    /// A log, and how long the files of its segments are.
    fn begun() -> (LogWriter, impl Fn(u32) -> u64) {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_owned();
        let file = segment::create(&at, SegmentHeader { number: 1, previous_end: 0 }).unwrap();
        let len =
            move |number| segment::path(dir.path(), number, segment::SegmentFileKind::Log).metadata().unwrap().len();
        (LogWriter::new(at, 1, file, SEGMENT_HEADER_LEN as u64, SIZES).unwrap(), len)
    }

    fn commit(log: &mut LogWriter, len: usize) {
        log.make_room(len).unwrap();
        log.commit(&vec![7; len]).unwrap();
    }

    #[test]
    fn commits_find_room_that_the_file_has_already() {
        let (mut log, len) = begun();
        commit(&mut log, 50);
        assert_eq!(len(1), log.end, "nobody had time");
        (0..20).for_each(|_| log.preallocate());
        let prepared = len(1);
        assert!(
            (log.end + SIZES.preallocate_bytes - SIZES.preallocate_step()..=log.end + SIZES.preallocate_bytes)
                .contains(&prepared),
            "{prepared}"
        );
        while log.end + 50 <= prepared {
            commit(&mut log, 50);
            assert_eq!(len(1), prepared);
        }
        commit(&mut log, 50);
        assert_eq!(len(1), log.end, "and no hole where it ends");
        log.preallocate();
        assert_eq!(len(1), log.end + SIZES.preallocate_step());
    }

    #[test]
    fn what_was_prepared_and_is_not_needed_is_given_back() {
        let (mut log, len) = begun();
        commit(&mut log, 50);
        log.preallocate();
        log.close_segment().unwrap();
        assert_eq!(len(1), SEGMENT_HEADER_LEN as u64 + 50);
        commit(&mut log, 60);
        log.preallocate();
        log.trim();
        assert_eq!(len(2), SEGMENT_HEADER_LEN as u64 + 60);
        log.preallocate();
        assert_eq!(len(2), log.end + SIZES.preallocate_step(), "it goes on");
    }

    #[test]
    fn no_segment_is_prepared_beyond_its_size() {
        let (mut log, len) = begun();
        while log.end + 64 <= SIZES.max_bytes {
            commit(&mut log, 64);
            log.preallocate();
        }
        assert_eq!(len(1), SIZES.max_bytes);
    }

    #[test]
    fn what_comes_once_the_next_segment_says_where_this_one_ends_goes_there() {
        let (mut log, _len) = begun();
        commit(&mut log, 50);
        let next = segment::path(&log.dir, 2, SegmentFileKind::Log);
        std::fs::create_dir(&next).unwrap();
        log.close_segment().unwrap_err();
        assert!(!log.has_room(1) && log.make_room(1).is_err());
        std::fs::remove_dir(next).unwrap();
        assert_eq!(log.make_room(1).unwrap(), LogPosition { segment: 2, offset: SEGMENT_HEADER_LEN as u32 });
    }
}
