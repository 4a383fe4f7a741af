//! The end of the log, where one thread writes. After any failure the end is where it was, and the next commit mends
//! what the failure left behind before it writes.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use super::segment::{self, PREFACE, Position, Preface};
use crate::store::ledger::Failure;

/// What lies beyond the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Nothing,
    /// Some of a commit that failed, and cutting it off failed too.
    Remains,
    /// A sync failed. The kernel may have dropped the pages and call the file clean, so this file is not written again.
    Unsyncable,
}

#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    number: u32,
    file: File,
    end: u64,
    beyond: Beyond,
    segment_size: u64,
}

impl Log {
    pub(super) fn new(dir: PathBuf, number: u32, file: File, end: u64, segment_size: u64) -> Log {
        Log { dir, number, file, end, beyond: Beyond::Nothing, segment_size }
    }

    /// Finds `len` bytes of room, in a new segment where need be. The next [`Log::commit`] writes there.
    pub(super) fn make_room(&mut self, len: usize) -> io::Result<Position> {
        let full = self.end + len as u64 > self.segment_size && self.end > PREFACE as u64;
        let mended = match self.beyond {
            Beyond::Nothing => true,
            Beyond::Remains => self.cut().is_ok(),
            Beyond::Unsyncable => false,
        };
        if full || !mended {
            self.begin_segment()?;
        }
        let offset = u32::try_from(self.end).map_err(io::Error::other)?;
        Ok(Position { segment: self.number, offset })
    }

    /// Makes `bytes` durable, or says what became of them.
    pub(super) fn commit(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Err(error) = self.file.write_all_at(bytes, self.end) {
            let error = Arc::new(error);
            return Err(match self.cut() {
                Ok(()) => Failure::Refused(error),
                Err(_) => {
                    self.beyond = Beyond::Remains;
                    Failure::Unknown(error)
                }
            });
        }
        if let Err(error) = self.file.sync_data() {
            // So that a restart of this process does not take unsynced pages for durable ones; a power cut may still
            // show either, which is why the answer is "unknown" and the next segment says where this one ends.
            let _ = self.file.set_len(self.end);
            self.beyond = Beyond::Unsyncable;
            return Err(Failure::Unknown(Arc::new(error)));
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.sync_data()?;
        self.beyond = Beyond::Nothing;
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let preface = Preface { number: self.number + 1, previous_end: self.end };
        self.file = segment::create(&self.dir, preface)?;
        (self.number, self.end, self.beyond) = (preface.number, PREFACE as u64, Beyond::Nothing);
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
