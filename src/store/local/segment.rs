//! The files of the log: their names, their first bytes, and reading them.
//!
//! ```text
//! 0 "GRLOG\0\0\0"  8 version u32  12 number u32  16 end of the segment before it u64  24 zero  28 CRC of bytes 0..28
//! ```
//! A segment is begun only when every frame that counts in the one before is synced, and says where that one ends: what
//! lies beyond was never acknowledged, whatever the disk shows there after a failure.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::frame::{Cursor, HEADER, Header, NoHeader};

pub(super) const PREFACE: usize = 32;
const MAGIC: [u8; 8] = *b"GRLOG\0\0\0";
const VERSION: u32 = 1;

/// A place in the log, ordered as the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

impl Position {
    /// Before the first frame of the first segment.
    pub(super) const START: Position = Position { segment: 1, offset: PREFACE as u32 };
}

/// What the first bytes of a segment say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Preface {
    pub(super) number: u32,
    pub(super) previous_end: u64,
}

impl Preface {
    fn encode(self) -> [u8; PREFACE] {
        let mut bytes = [0; PREFACE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.previous_end.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Preface, NoHeader> {
        let mut fields = Cursor(bytes);
        let (magic, version, number) = (fields.array(), fields.u32(), fields.u32());
        let (previous_end, _, crc) = (fields.u64(), fields.u32(), fields.u32());
        let sound = magic == Some(MAGIC) && crc.is_some() && crc == bytes.get(..28).map(crc32fast::hash);
        match (number, previous_end) {
            (Some(number), Some(previous_end)) if sound && version == Some(VERSION) => {
                Ok(Preface { number, previous_end })
            }
            _ if sound => Err(NoHeader::Newer),
            _ => Err(NoHeader::Damaged),
        }
    }

    pub(super) fn read(file: &File) -> io::Result<Result<Preface, NoHeader>> {
        let mut window = Window::default();
        Ok(window.bytes(file, 0, PREFACE)?.map_or(Err(NoHeader::Damaged), Preface::decode))
    }
}

pub(super) fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:08}.log"))
}

/// The numbers of the segments in `dir`, in order.
pub(super) fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in dir.read_dir()? {
        let name = entry?.file_name();
        numbers
            .extend(name.to_str().and_then(|name| name.strip_suffix(".log")).and_then(|stem| stem.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes a segment that a power cut cannot take away any more. What an earlier failed attempt left is replaced.
pub(super) fn create(dir: &Path, preface: Preface) -> io::Result<File> {
    let path = path(dir, preface.number);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).clone();
    let made = options.open(&path).and_then(|file| {
        file.write_all_at(&preface.encode(), 0)?;
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
        Ok(file)
    });
    if made.is_err() {
        // Nothing in it counts; where it cannot be removed either, the next attempt replaces it.
        let _ = std::fs::remove_file(&path);
    }
    made
}

/// Hands out the segments' files for reading, and keeps the few that were used last open.
#[derive(Debug)]
pub(super) struct Segments {
    dir: PathBuf,
    open: Mutex<VecDeque<(u32, Arc<File>)>>,
}

const KEPT_OPEN: usize = 16;

impl Segments {
    pub(super) fn new(dir: PathBuf) -> Segments {
        Segments { dir, open: Mutex::default() }
    }

    pub(super) fn file(&self, number: u32) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|(other, _)| *other == number)
            && let Some(used) = open.remove(at)
        {
            open.push_back(used.clone());
            return Ok(used.1);
        }
        let file = Arc::new(File::open(path(&self.dir, number))?);
        open.push_back((number, file.clone()));
        if open.len() > KEPT_OPEN {
            open.pop_front();
        }
        Ok(file)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A stretch of one file in memory, read ahead the further the more its reader goes straight on.
#[derive(Debug, Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    start: u64,
    ahead: usize,
}

const LEAST_AHEAD: usize = 4 << 10;
const MOST_AHEAD: usize = 1 << 20;

impl Window {
    /// `len` bytes at `offset`, or `None` where the file ends before.
    pub(super) fn bytes(&mut self, file: &File, offset: u64, len: usize) -> io::Result<Option<&[u8]>> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + len as u64 > end {
            let straight_on = offset >= self.start && offset <= end && !self.bytes.is_empty();
            self.ahead = if straight_on { (self.ahead * 2).min(MOST_AHEAD) } else { LEAST_AHEAD };
            self.fill(file, offset, len.max(self.ahead))?;
        }
        let from = (offset - self.start) as usize;
        Ok(self.bytes.get(from..from + len))
    }

    /// The header at `offset`; `None` where the file ends before.
    pub(super) fn header(&mut self, file: &File, offset: u64) -> io::Result<Option<Result<Header, NoHeader>>> {
        let bytes = self.bytes(file, offset, HEADER)?.and_then(<[u8]>::first_chunk);
        Ok(bytes.map(Header::decode))
    }

    /// The payload of the frame at `offset`; `None` where it is damaged or the file ends before.
    pub(super) fn payload(&mut self, file: &File, offset: u64, header: &Header) -> io::Result<Option<&[u8]>> {
        let payload = self.bytes(file, offset + HEADER as u64, header.len as usize)?;
        Ok(payload.filter(|payload| crc32fast::hash(payload) == header.crc))
    }

    /// Forgets what it holds, for another file.
    pub(super) fn clear(&mut self) {
        *self = Window::default();
    }

    fn fill(&mut self, file: &File, offset: u64, len: usize) -> io::Result<()> {
        // No more than the file has: a damaged length must not make us ask for gigabytes.
        let there = file.metadata()?.len().saturating_sub(offset);
        self.bytes.resize(len.min(usize::try_from(there).unwrap_or(usize::MAX)), 0);
        self.start = offset;
        let mut filled = 0;
        while filled < self.bytes.len() {
            match file.read_at(&mut self.bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.bytes.clear();
                    return Err(error);
                }
            }
        }
        self.bytes.truncate(filled);
        Ok(())
    }
}
