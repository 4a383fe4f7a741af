//! Segment files of the log: their names, their headers, and reading them.
//!
//! A segment is a log file as it was written, or, once closed, an archive. Header of a segment:
//!
//! ```text
//! 0 "GRLOG\0\0\0"  8 version u32  12 number u32  16 end of the previous segment u64  24 zero
//! 28 CRC of bytes 0..28
//! ```
//! A segment begins only once every frame that counts in the previous one is synced. Its header
//! states where the previous one ends. Bytes beyond that end were never acknowledged, whatever the
//! disk returns after a failure.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use super::{
    archive::SegmentArchive,
    frame::{FRAME_HEADER_LEN, FieldReader, FrameHeader, HeaderError},
};

pub(super) const SEGMENT_HEADER_LEN: usize = 32;
const VERSION: u32 = 1;

/// Form of a segment on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentFileKind {
    Log,
    Archive,
}

impl SegmentFileKind {
    fn magic(self) -> [u8; 8] {
        match self {
            SegmentFileKind::Log => *b"GRLOG\0\0\0",
            SegmentFileKind::Archive => *b"GRARC\0\0\0",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            SegmentFileKind::Log => ".log",
            SegmentFileKind::Archive => ".arc",
        }
    }
}

/// Position in the log. Sorts like the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogPosition {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

impl LogPosition {
    /// Position before the first frame of the first segment.
    pub(super) const START: LogPosition = LogPosition { segment: 1, offset: SEGMENT_HEADER_LEN as u32 };
}

/// Header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) number: u32,
    pub(super) previous_end: u64,
}

impl SegmentHeader {
    pub(super) fn encode(self, kind: SegmentFileKind) -> [u8; SEGMENT_HEADER_LEN] {
        let mut bytes = [0; SEGMENT_HEADER_LEN];
        bytes[..8].copy_from_slice(&kind.magic());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.previous_end.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], kind: SegmentFileKind) -> Result<SegmentHeader, HeaderError> {
        let mut fields = FieldReader(bytes);
        let (magic, version, number) = (fields.array(), fields.u32(), fields.u32());
        let (previous_end, _, crc) = (fields.u64(), fields.u32(), fields.u32());
        let sound = magic == Some(kind.magic()) && crc.is_some() && crc == bytes.get(..28).map(crc32fast::hash);
        match (number, previous_end) {
            (Some(number), Some(previous_end)) if sound && version == Some(VERSION) => {
                Ok(SegmentHeader { number, previous_end })
            }
            _ if sound => Err(HeaderError::Newer),
            _ => Err(HeaderError::Damaged),
        }
    }

    pub(super) fn read(file: &File, kind: SegmentFileKind) -> io::Result<Result<SegmentHeader, HeaderError>> {
        let mut window = ReadWindow::default();
        Ok(window
            .bytes(file, 0, SEGMENT_HEADER_LEN)?
            .map_or(Err(HeaderError::Damaged), |bytes| SegmentHeader::decode(bytes, kind)))
    }
}

pub(super) fn path(dir: &Path, number: u32, kind: SegmentFileKind) -> PathBuf {
    dir.join(format!("{number:08}{}", kind.suffix()))
}

/// Returns the numbers of the segments of this kind in `dir`, in order.
pub(super) fn numbers(dir: &Path, kind: SegmentFileKind) -> io::Result<BTreeSet<u32>> {
    let mut numbers = BTreeSet::new();
    for entry in dir.read_dir()? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(kind.suffix()));
        numbers.extend(stem.and_then(|stem| stem.parse::<u32>().ok()));
    }
    Ok(numbers)
}

/// Creates a segment that survives a power cut.
///
/// Replaces what an earlier failed attempt left.
pub(super) fn create(dir: &Path, header: SegmentHeader) -> io::Result<File> {
    let path = path(dir, header.number, SegmentFileKind::Log);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).clone();
    let created = options.open(&path).and_then(|file| {
        file.write_all_at(&header.encode(SegmentFileKind::Log), 0)?;
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
        Ok(file)
    });
    if created.is_err() {
        // No frame in the file counts. If the removal fails too, the next attempt replaces the
        // file.
        let _ = std::fs::remove_file(&path);
    }
    created
}

/// Segment that is open for reading.
#[derive(Debug, Clone)]
pub(super) enum Segment {
    Log(Arc<File>),
    Archive(Arc<SegmentArchive>),
}

impl Segment {
    fn open(dir: &Path, number: u32) -> io::Result<Segment> {
        let log = || File::open(path(dir, number, SegmentFileKind::Log)).map(|file| Segment::Log(Arc::new(file)));
        let archive = || {
            SegmentArchive::open(&path(dir, number, SegmentFileKind::Archive)).map(|it| Segment::Archive(Arc::new(it)))
        };
        match log() {
            // An archive is in place before its log is removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => archive(),
            opened => opened,
        }
    }

    pub(super) fn header(&self) -> io::Result<Result<SegmentHeader, HeaderError>> {
        match self {
            Segment::Log(file) => SegmentHeader::read(file, SegmentFileKind::Log),
            Segment::Archive(archive) => SegmentHeader::read(archive.file(), SegmentFileKind::Archive),
        }
    }
}

/// Cache of open segments.
///
/// Bound: 16 segments. When full: the segment unused for the longest time is closed.
#[derive(Debug)]
pub(super) struct SegmentCache {
    dir: PathBuf,
    open: Mutex<VecDeque<(u32, Segment)>>,
}

const MAX_OPEN_SEGMENTS: usize = 16;

impl SegmentCache {
    pub(super) fn new(dir: PathBuf) -> SegmentCache {
        SegmentCache { dir, open: Mutex::default() }
    }

    fn open_segments(&self) -> MutexGuard<'_, VecDeque<(u32, Segment)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self, number: u32) -> io::Result<Segment> {
        let mut open = self.open_segments();
        if let Some(at) = open.iter().position(|(other, _)| *other == number)
            && let Some(used) = open.remove(at)
        {
            open.push_back(used.clone());
            return Ok(used.1);
        }
        let segment = Segment::open(&self.dir, number)?;
        open.push_back((number, segment.clone()));
        if open.len() > MAX_OPEN_SEGMENTS {
            open.pop_front();
        }
        Ok(segment)
    }

    /// Drops a segment whose file was replaced. Readers that have it open read on.
    pub(super) fn evict(&self, number: u32) {
        self.open_segments().retain(|(other, _)| *other != number);
    }

    /// Returns the numbers of all segments, in order.
    pub(super) fn numbers(&self) -> io::Result<BTreeSet<u32>> {
        let logs = numbers(&self.dir, SegmentFileKind::Log)?;
        Ok(&logs | &numbers(&self.dir, SegmentFileKind::Archive)?)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Reports if only zeros follow `from`, as [`log_writer`](super::log_writer) prepares them.
pub(super) fn is_blank(file: &File, from: u64) -> io::Result<bool> {
    let (mut window, mut offset) = (ReadWindow::default(), from);
    while let Some(bytes) = window.read_ahead(file, offset, 1)? {
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        offset += bytes.len() as u64;
    }
    Ok(true)
}

/// Reports if the disk lost the data. A retry does not bring the data back.
fn is_media_error(error: &io::Error) -> bool {
    let lost = [Errno::IO, Errno::UCLEAN, Errno::BADMSG];
    Errno::from_io_error(error).is_some_and(|errno| lost.contains(&errno))
}

/// Reads `bytes` from `offset` on and returns their number.
///
/// Bytes that the disk lost are filled with [`LOST_BYTE`]. They are found damaged later, and the
/// bytes around them are read.
pub(super) fn read_past_lost(
    bytes: &mut [u8],
    offset: u64,
    mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        let at = offset + filled as u64;
        match read_at(&mut bytes[filled..], at) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_media_error(&error) => {
                let until = bytes.len().min(filled + (PAGE_SIZE - at % PAGE_SIZE) as usize);
                bytes[filled..until].fill(LOST_BYTE);
                filled = until;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reports if the disk fails to return some bytes behind `from`.
///
/// A later read may succeed, because the path to the disk can fail too.
pub(super) fn has_lost_bytes(file: &File, from: u64) -> io::Result<bool> {
    let (mut bytes, mut offset, mut lost) = (vec![0; MAX_READ_AHEAD], from, false);
    loop {
        let read = read_past_lost(&mut bytes, offset, |bytes, at| {
            read_at(file, bytes, at).inspect_err(|error| lost |= is_media_error(error))
        })?;
        if lost || read == 0 {
            return Ok(lost);
        }
        offset += read as u64;
    }
}

/// Calls `File::read_at`. In tests, the ranges of `lose_pages` fail.
pub(super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    #[cfg(test)]
    let bytes = tests::readable_part(bytes, at)?;
    file.read_at(bytes, at)
}

/// Fills `bytes` from `offset` on, with [`LOST_BYTE`] for bytes that the disk lost.
///
/// Fails if the file ends too early.
pub(super) fn read_exact_past_lost(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    match read_past_lost(bytes, offset, |bytes, at| read_at(file, bytes, at))? {
        read if read == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Filler for lost bytes. Forms no header and no content, and differs from preallocated zeros.
const LOST_BYTE: u8 = 0xff;
/// Smallest unit that the kernel reads, in bytes.
const PAGE_SIZE: u64 = 4096;

/// Part of one file in memory. Sequential reads double the read-ahead.
#[derive(Debug, Default)]
pub(super) struct ReadWindow {
    bytes: Vec<u8>,
    start: u64,
    ahead_len: usize,
}

const MIN_READ_AHEAD: usize = 4 << 10;
const MAX_READ_AHEAD: usize = 1 << 20;

impl ReadWindow {
    /// Returns `len` bytes at `offset`, or `None` if the file ends before.
    pub(super) fn bytes(&mut self, file: &File, offset: u64, len: usize) -> io::Result<Option<&[u8]>> {
        Ok(self.read_ahead(file, offset, len)?.map(|bytes| &bytes[..len]))
    }

    /// Returns all buffered bytes from `offset` on, at least `len`; `None` if the file ends before.
    pub(super) fn read_ahead(&mut self, file: &File, offset: u64, len: usize) -> io::Result<Option<&[u8]>> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + len as u64 > end {
            let is_sequential = offset >= self.start && offset <= end && !self.bytes.is_empty();
            self.ahead_len = if is_sequential { (self.ahead_len * 2).min(MAX_READ_AHEAD) } else { MIN_READ_AHEAD };
            self.fill(file, offset, len.max(self.ahead_len))?;
        }
        let ahead = self.bytes.get((offset - self.start) as usize..);
        Ok(ahead.filter(|ahead| ahead.len() >= len))
    }

    /// Returns the header at `offset`; `None` if the file ends before.
    pub(super) fn header(&mut self, file: &File, offset: u64) -> io::Result<Option<Result<FrameHeader, HeaderError>>> {
        let bytes = self.bytes(file, offset, FRAME_HEADER_LEN)?.and_then(<[u8]>::first_chunk);
        Ok(bytes.map(FrameHeader::decode))
    }

    /// Returns the payload of the frame at `offset`; `None` if it is damaged or the file ends
    /// before.
    pub(super) fn payload(&mut self, file: &File, offset: u64, header: &FrameHeader) -> io::Result<Option<&[u8]>> {
        let payload = self.bytes(file, offset + FRAME_HEADER_LEN as u64, header.len as usize)?;
        Ok(payload.filter(|payload| crc32fast::hash(payload) == header.crc))
    }

    /// Clears the window for another file.
    pub(super) fn clear(&mut self) {
        *self = ReadWindow::default();
    }

    fn fill(&mut self, file: &File, offset: u64, len: usize) -> io::Result<()> {
        // Bounded by the file's length, so a damaged length cannot allocate gigabytes.
        let available = file.metadata()?.len().saturating_sub(offset);
        self.bytes.resize(len.min(usize::try_from(available).unwrap_or(usize::MAX)), 0);
        self.start = offset;
        let filled =
            read_past_lost(&mut self.bytes, offset, |bytes, at| read_at(file, bytes, at)).inspect_err(|_| {
                self.bytes.clear();
            })?;
        self.bytes.truncate(filled);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
pub(super) mod tests {
    use std::{cell::Cell, ops::Range};

    use super::*;

    thread_local! {
        static LOST_PAGES: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    /// Makes reads of this thread fail within these byte offsets, in every file.
    pub(in super::super) fn lose_pages(pages: Range<u64>) {
        LOST_PAGES.set((pages.start, pages.end));
    }

    /// Returns the part of `bytes` that can be read.
    pub(super) fn readable_part(bytes: &mut [u8], at: u64) -> io::Result<&mut [u8]> {
        let (start, end) = LOST_PAGES.get();
        match at {
            at if at >= end => Ok(bytes),
            at if at >= start => Err(Errno::IO.into()),
            at => {
                let most = bytes.len().min((start - at) as usize);
                Ok(&mut bytes[..most])
            }
        }
    }

    /// Returns a file that reads as if the disk had lost one page, and the offset of that page.
    ///
    /// The file is the memory of this process. The lost page precedes the first mapping, and the
    /// page behind it is readable.
    pub(in super::super) fn half_lost_file() -> (File, u64) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let begins = u64::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap();
        (File::open("/proc/self/mem").unwrap(), begins - PAGE_SIZE)
    }

    #[test]
    fn lost_page_is_filled_and_rest_is_read() {
        let (file, at) = half_lost_file();
        let mut bytes = vec![0; 2 * PAGE_SIZE as usize];
        assert!(is_media_error(&file.read_exact_at(&mut bytes, at).unwrap_err()), "the page is unreadable");
        read_exact_past_lost(&file, &mut bytes, at).unwrap();
        let (lost, read) = bytes.split_at(PAGE_SIZE as usize);
        assert!(lost.iter().all(|byte| *byte == LOST_BYTE));
        let mut available = vec![0; PAGE_SIZE as usize];
        file.read_exact_at(&mut available, at + PAGE_SIZE).unwrap();
        assert!(read == available, "the next page is readable");
        let short = read_exact_past_lost(&tempfile::tempfile().unwrap(), &mut bytes, 0).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn media_errors_cost_one_page_and_other_errors_fail() {
        let read_with = |errno: Errno| {
            let mut bytes = vec![0; 3 * PAGE_SIZE as usize];
            let read = read_past_lost(&mut bytes, 100, |bytes, at| {
                if at / PAGE_SIZE == 1 {
                    return Err(errno.into());
                }
                let read = bytes.len().min((PAGE_SIZE - at % PAGE_SIZE) as usize);
                bytes[..read].fill(1);
                Ok(read)
            });
            read.map(|read| {
                (read, bytes.iter().filter(|byte| **byte == LOST_BYTE).count(), bytes[PAGE_SIZE as usize - 100])
            })
        };
        for errno in [Errno::IO, Errno::UCLEAN, Errno::BADMSG] {
            assert_eq!(read_with(errno).unwrap(), (3 * PAGE_SIZE as usize, PAGE_SIZE as usize, LOST_BYTE));
        }
        assert!(read_with(Errno::NOMEM).is_err());
    }
}
