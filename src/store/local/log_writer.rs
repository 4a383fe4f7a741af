//! End of the log. One thread writes at a time.
//!
//! After a failure the end is unchanged. The next commit first removes what the failure left behind
//! it.
//!
//! Zeros are prepared beyond the end. A write over zeros only needs the bytes on disk. For a
//! growing file, the file system commits its own journal with each sync, in a kernel thread.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use super::disk_reserve::reserve_of;
use super::segment::{self, LogPosition, SEGMENT_HEADER_LEN, SegmentFileKind, SegmentHeader};
use crate::store::session_change::ChangeFailure;

/// Content of the file beyond the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TailCondition {
    Clean,
    /// Bytes of a failed commit that could not be cut off.
    FailedBytes,
    /// A sync failed. The kernel may have dropped the pages and may report the file as clean. The
    /// file is never written again.
    Unsyncable,
    /// The next segment exists, perhaps in part.
    Closed,
}

/// Number of threads that wait for the disk side by side.
///
/// The second makes up for one that is woken late. A third gained nothing.
pub(super) const COMMITTER_THREADS: usize = 2;

#[derive(Debug)]
pub(super) struct LogWriter {
    dir: PathBuf,
    number: u32,
    file: File,
    /// The same file, opened once for each syncing thread.
    sync_files: [Arc<File>; COMMITTER_THREADS],
    end: u64,
    tail_condition: TailCondition,
    /// End of the file's blocks on disk: the end of the log, or of the zeros behind it.
    preallocated: u64,
    sizes: SegmentSizes,
}

/// Sizes of a segment in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentSizes {
    /// A commit that would exceed this size begins a new segment.
    pub(super) max_bytes: u64,
    /// Size of the zeros beyond the end.
    pub(super) preallocate_bytes: u64,
}

impl SegmentSizes {
    pub(super) const DEFAULT: SegmentSizes = SegmentSizes { max_bytes: 64 << 20, preallocate_bytes: 1 << 20 };

    /// Returns the bytes of one preallocation step. A step takes as long as a commit.
    fn preallocate_step(self) -> u64 {
        self.preallocate_bytes / 8
    }
}

impl LogWriter {
    /// Continues a segment whose log and file both end at `end`.
    pub(super) fn new(dir: PathBuf, number: u32, file: File, end: u64, sizes: SegmentSizes) -> io::Result<LogWriter> {
        let path = segment::path(&dir, number, SegmentFileKind::Log);
        let open_file = || File::open(&path).map(Arc::new);
        let sync_files = [open_file()?, open_file()?];
        Ok(LogWriter {
            dir,
            number,
            file,
            sync_files,
            end,
            tail_condition: TailCondition::Clean,
            preallocated: end,
            sizes,
        })
    }

    /// Returns the file of the segment for one of the syncing threads.
    ///
    /// Each thread has its own file description, opened before anything was written. The kernel
    /// reports a lost page once per description, and would not repeat the error for the second
    /// thread.
    pub(super) fn sync_file(&self, number: usize) -> Arc<File> {
        self.sync_files[number].clone()
    }

    /// Returns the number of the current segment.
    pub(super) fn segment(&self) -> u32 {
        self.number
    }

    /// Returns the end of the last commit.
    pub(super) fn end(&self) -> io::Result<LogPosition> {
        Ok(LogPosition { segment: self.number, offset: u32::try_from(self.end).map_err(io::Error::other)? })
    }

    /// Reports if `len` bytes can be written without further steps.
    ///
    /// If not, everything written must be synced before [`LogWriter::make_room`].
    pub(super) fn has_room(&self, len: usize) -> bool {
        !self.is_full(len) && self.tail_condition == TailCondition::Clean
    }

    fn is_full(&self, len: usize) -> bool {
        self.end + len as u64 > self.sizes.max_bytes && self.end > SEGMENT_HEADER_LEN as u64
    }

    /// Makes room for `len` bytes, in a new segment if needed. Returns the position of the next
    /// write.
    pub(super) fn make_room(&mut self, len: usize) -> io::Result<LogPosition> {
        let is_clean = match self.tail_condition {
            TailCondition::Clean => true,
            TailCondition::FailedBytes => self.truncate_to_end().is_ok(),
            TailCondition::Unsyncable | TailCondition::Closed => false,
        };
        if self.is_full(len) || !is_clean {
            self.begin_segment()?;
        }
        self.end()
    }

    /// Writes and syncs `bytes`, with nothing else in flight. The failure says what became of them.
    pub(super) fn commit(&mut self, bytes: &[u8]) -> Result<(), ChangeFailure> {
        let at = self.end().map_err(|error| ChangeFailure::NotWritten(Arc::new(error)))?;
        self.write(bytes)?;
        self.file.sync_data().map_err(|error| {
            self.abandon_file(Some(at));
            ChangeFailure::Unknown(Arc::new(error))
        })
    }

    /// Writes `bytes` at the end. Durable once a [`LogWriter::sync_file`] has been synced.
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

    /// Abandons the file after a failed sync. The file is never written again.
    ///
    /// The log ends there at `from`, or at its present end if `from` is `None`. Bytes behind that
    /// do not count.
    pub(super) fn abandon_file(&mut self, from: Option<LogPosition>) {
        self.end = from.map_or(self.end, |from| u64::from(from.offset));
        self.preallocated = self.end;
        // After a restart of this process, unsynced pages must not pass for durable ones. After a
        // power cut, the disk may still show either. The result is therefore unknown, and the next
        // segment states this end.
        let _ = self.file.set_len(self.end);
        self.tail_condition = TailCondition::Unsyncable;
    }

    /// Writes zeros ahead of the log, one step per call.
    ///
    /// Called only while no request waits: under load, writing everything twice gains nothing. If a
    /// step fails, the file grows with the commits.
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

    /// Reports if the disk has space to preallocate. The last space of a disk is for events.
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

    /// Cuts the file at the end of the log. A failure does no harm.
    pub(super) fn trim(&mut self) {
        if self.preallocated > self.end && self.file.set_len(self.end).is_ok() {
            self.preallocated = self.end;
        }
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let header = SegmentHeader { number: self.number + 1, previous_end: self.end };
        // The new segment states the end of this one. If its creation fails, it is repeated before
        // anything else is written: a power cut may bring back a removed file.
        self.tail_condition = TailCondition::Closed;
        let file = segment::create(&self.dir, header)?;
        self.trim();
        *self = LogWriter::new(self.dir.clone(), header.number, file, SEGMENT_HEADER_LEN as u64, self.sizes)?;
        Ok(())
    }

    /// Begins a new segment for the next commit, unless this one is empty.
    ///
    /// Returns the position of the next commit.
    pub(super) fn close_segment(&mut self) -> io::Result<LogPosition> {
        if self.end > SEGMENT_HEADER_LEN as u64 {
            self.begin_segment()?;
        }
        self.make_room(0)
    }

    /// Fails if a small commit would fail, as far as that shows without a write.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let disk = rustix::fs::fstatvfs(&self.file)?;
        if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                self.describe("is on a read-only file system; remount it for writing"),
            ));
        }
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        if bytes(disk.f_bavail) < MIN_FREE_BYTES.max(reserve_of(bytes(disk.f_blocks))) {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                self.describe("is on a full disk; free space there"),
            ));
        }
        self.make_room(0).map(drop)
    }

    fn describe(&self, what: &str) -> String {
        format!("the journal `{}` {what}", self.dir.display())
    }
}

const MIN_FREE_BYTES: u64 = 1 << 20;
/// Free space in bytes from which preallocation is allowed.
const MIN_FREE_TO_PREALLOCATE: u64 = 256 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;

    const SIZES: SegmentSizes = SegmentSizes { max_bytes: 4096, preallocate_bytes: 1024 };

    /// Returns a new log, and a function that returns the length of a segment's file.
    fn new_log() -> (LogWriter, impl Fn(u32) -> u64) {
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
    fn commits_fill_preallocated_space() {
        let (mut log, len) = new_log();
        commit(&mut log, 50);
        assert_eq!(len(1), log.end, "nothing was preallocated yet");
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
        assert_eq!(len(1), log.end, "the file ends with the log");
        log.preallocate();
        assert_eq!(len(1), log.end + SIZES.preallocate_step());
    }

    #[test]
    fn unused_preallocation_is_trimmed() {
        let (mut log, len) = new_log();
        commit(&mut log, 50);
        log.preallocate();
        log.close_segment().unwrap();
        assert_eq!(len(1), SEGMENT_HEADER_LEN as u64 + 50);
        commit(&mut log, 60);
        log.preallocate();
        log.trim();
        assert_eq!(len(2), SEGMENT_HEADER_LEN as u64 + 60);
        log.preallocate();
        assert_eq!(len(2), log.end + SIZES.preallocate_step(), "preallocation continues");
    }

    #[test]
    fn preallocation_stops_at_segment_size() {
        let (mut log, len) = new_log();
        while log.end + 64 <= SIZES.max_bytes {
            commit(&mut log, 64);
            log.preallocate();
        }
        assert_eq!(len(1), SIZES.max_bytes);
    }

    #[test]
    fn commit_after_failed_segment_begin_goes_to_new_segment() {
        let (mut log, _len) = new_log();
        commit(&mut log, 50);
        let next = segment::path(&log.dir, 2, SegmentFileKind::Log);
        std::fs::create_dir(&next).unwrap();
        log.close_segment().unwrap_err();
        assert!(!log.has_room(1) && log.make_room(1).is_err());
        std::fs::remove_dir(next).unwrap();
        assert_eq!(log.make_room(1).unwrap(), LogPosition { segment: 2, offset: SEGMENT_HEADER_LEN as u32 });
    }
}
