//! Archive format: a closed segment, compressed.
//!
//! An archive groups the frames by session. It omits sessions that are gone, and the frames'
//! footers, because each block has a checksum of its own. Everything is little-endian.
//!
//! ```text
//! header   as of a segment, with "GRARC\0\0\0"
//! block    0 "GB"  2 version  3 kind  4 length  8 raw length  12 CRC  16 session  32 seq
//!          40 until  48 CRC of bytes 0..48
//!          then the block's frames, deflated; a block for a forgotten session has none
//! index    all block headers once more, each followed by the block's offset u64
//! trailer  0 "GE"  2 zero  4 count u32  8 offset of the index u64  16 CRC of the index u32
//!          20 CRC of bytes 0..20
//! ```
//! An archive must be as hard to lose as the segment that it replaces. A damaged block costs its
//! events. Its header, or the header's copy in the index, still names them. Without the index, a
//! scan finds the blocks.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use flate2::{Compression, Decompress, FlushDecompress, Status, write::DeflateEncoder};

use super::{
    frame::{FieldReader, FrameHeader, FrameKind, FramePayload, HeaderError},
    scan::ScanItem,
    segment::{SEGMENT_HEADER_LEN, SegmentFileKind, SegmentHeader, read_at, read_exact_past_lost, read_past_lost},
};
use crate::{
    allocator::LARGE_BUFFER,
    store::{Seq, SessionId},
};

const BLOCK_HEADER_LEN: usize = 52;
const INDEX_ENTRY_LEN: usize = BLOCK_HEADER_LEN + 8;
const TRAILER_LEN: usize = 24;
const BLOCK_MAGIC: [u8; 2] = *b"GB";
const INDEX_MAGIC: [u8; 2] = *b"GX";
const TRAILER_MAGIC: [u8; 4] = *b"GE\0\0";
const VERSION: u8 = 1;
const BLOCK_OF_FRAMES: u8 = 1;
const BLOCK_OF_FORGOTTEN: u8 = 2;
/// Size of a block's frames in bytes, unless a single frame is larger.
///
/// A reader of one event inflates this much.
const TARGET_BLOCK_BYTES: usize = 64 << 10;

thread_local! {
    /// Decompressor of the thread. Created once, because its tables are larger than most blocks.
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// Header of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArchiveBlock {
    pub(super) session: SessionId,
    /// True if the block only voids everything earlier of its session.
    pub(super) forgotten: bool,
    /// Number of the first event. Without events, the number that comes next.
    seq: Seq,
    /// Number after the last event.
    until: Seq,
    /// Length and CRC of the compressed bytes.
    len: u32,
    crc: u32,
    raw: u32,
    /// Offset of the compressed bytes.
    at: u64,
}

impl ArchiveBlock {
    fn encode(&self, magic: [u8; 2]) -> [u8; BLOCK_HEADER_LEN] {
        let mut bytes = [0; BLOCK_HEADER_LEN];
        bytes[..2].copy_from_slice(&magic);
        bytes[2] = VERSION;
        bytes[3] = if self.forgotten { BLOCK_OF_FORGOTTEN } else { BLOCK_OF_FRAMES };
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.raw.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.crc.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.session.to_bytes());
        bytes[32..40].copy_from_slice(&self.seq.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.until.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..48]);
        bytes[48..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a block header. `at` is the offset of the block's compressed bytes.
    fn decode(bytes: &[u8], magic: [u8; 2], at: u64) -> Option<ArchiveBlock> {
        let mut fields = FieldReader(bytes);
        let (found, [version, kind]) = (fields.array::<2>()?, fields.array::<2>()?);
        let (len, raw, crc) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (session, seq, until) = (SessionId::from_bytes(fields.array()?), fields.u64()?, fields.u64()?);
        let sound = found == magic && version == VERSION && fields.u32()? == crc32fast::hash(&bytes[..48]);
        let forgotten = kind == BLOCK_OF_FORGOTTEN;
        (sound && (forgotten || kind == BLOCK_OF_FRAMES)).then_some(ArchiveBlock {
            session,
            forgotten,
            seq,
            until,
            len,
            crc,
            raw,
            at,
        })
    }

    fn end(&self) -> u64 {
        self.at + u64::from(self.len)
    }
}

/// Archive that is open for reading.
#[derive(Debug)]
pub(super) struct SegmentArchive {
    file: File,
    /// Forgotten sessions first. Then by session, each in the order of the log.
    blocks: Vec<ArchiveBlock>,
    /// Byte ranges that could not be read.
    unreadable: Vec<(u64, u64)>,
}

impl SegmentArchive {
    pub(super) fn open(path: &Path) -> io::Result<SegmentArchive> {
        let file = File::open(path)?;
        if let Err(HeaderError::Newer) = SegmentHeader::read(&file, SegmentFileKind::Archive)? {
            let text = "the archive was written by a newer version; start that version";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        match read_index(&file)? {
            Some(blocks) => Ok(SegmentArchive { file, blocks, unreadable: Vec::new() }),
            None => scan_blocks(file),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn blocks(&self) -> &[ArchiveBlock] {
        &self.blocks
    }

    /// Returns each session with events: its first event's number and the number after the last.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (SessionId, Seq, Seq)> {
        let of_one = self.blocks.chunk_by(|one, next| one.session == next.session && !one.forgotten);
        of_one.filter_map(|blocks| {
            let (first, last) = (blocks.first()?, blocks.last()?);
            (!first.forgotten).then_some((first.session, first.seq, last.until))
        })
    }

    /// Reports if every byte could be read.
    pub(super) fn is_fully_readable(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Returns the block that should hold this event.
    pub(super) fn find(&self, session: SessionId, seq: Seq) -> Option<&ArchiveBlock> {
        let before = |block: &ArchiveBlock| block.forgotten || (block.session, block.seq) <= (session, seq);
        let after = self.blocks.partition_point(before);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        (block.session == session && block.until > seq).then_some(block)
    }

    /// Returns a block's compressed bytes as stored. Bytes that the disk lost make it a damaged
    /// block.
    pub(super) fn compressed(&self, block: &ArchiveBlock) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; block.len as usize];
        read_exact_past_lost(&self.file, &mut bytes, block.at)?;
        Ok(bytes)
    }

    /// Returns the frames of a block, or `None` if they are damaged.
    pub(super) fn frames(&self, block: &ArchiveBlock) -> io::Result<Option<Vec<u8>>> {
        if block.forgotten {
            return Ok(Some(Vec::new()));
        }
        let compressed = match self.compressed(block) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        };
        if crc32fast::hash(&compressed) != block.crc {
            return Ok(None);
        }
        // A buffer of this size comes from the system and returns to it. Many threads read, and
        // each would keep some memory otherwise.
        let raw = block.raw as usize;
        let mut frames = vec![0; raw.max(LARGE_BUFFER)];
        let inflated = INFLATE.with_borrow_mut(|inflate| {
            inflate.reset(false);
            let status = inflate.decompress(&compressed, &mut frames[..raw], FlushDecompress::Finish);
            status.map(|status| (status, inflate.total_out()))
        });
        frames.truncate(raw);
        let whole = matches!(inflated, Ok((Status::StreamEnd, out)) if out == raw as u64);
        Ok(whole.then_some(frames))
    }

    /// Reports if a block is on disk as the [`ArchiveWriter`] received it, and is readable if it
    /// was then.
    ///
    /// `sum` is the CRC of the compressed bytes that the writer received.
    pub(super) fn reads_as_written(&self, block: &ArchiveBlock, sum: u32) -> io::Result<bool> {
        match sum == block.crc {
            true => Ok(self.frames(block)?.is_some()),
            false => Ok(crc32fast::hash(&self.compressed(block)?) == sum),
        }
    }

    /// Passes the archive's items to `visit`, each session's in order.
    pub(super) fn scan(&self, visit: &mut dyn FnMut(ScanItem<'_>)) -> io::Result<()> {
        for (from, until) in &self.unreadable {
            visit(ScanItem::Unreadable { offset: *from, until: *until });
        }
        for block in &self.blocks {
            let frames = self.frames(block)?;
            let Some(frames) = frames.filter(|_| !block.forgotten) else {
                visit(block.as_one_frame());
                continue;
            };
            for (header, payload) in split_frames(&frames) {
                let payload = Some(payload).filter(|payload| crc32fast::hash(payload) == header.crc);
                visit(match payload.and_then(FramePayload::parse) {
                    Some(payload) => ScanItem::Frame { offset: block.at, header, payload },
                    None => ScanItem::Damaged { offset: block.at, header },
                });
            }
        }
        Ok(())
    }
}

impl ArchiveBlock {
    /// Returns the block as one item, known from its header alone.
    fn as_one_frame(&self) -> ScanItem<'static> {
        let kind = if self.forgotten { FrameKind::Forget } else { FrameKind::Append };
        let count = u32::try_from(self.until - self.seq).unwrap_or(u32::MAX);
        let (session, seq) = (self.session, self.seq);
        let header = FrameHeader { kind, session, seq, epoch: 0, count, len: 0, crc: 0, back: 0, has_footer: false };
        match self.forgotten {
            true => ScanItem::Frame { offset: self.at, header, payload: FramePayload::EMPTY },
            false => ScanItem::Damaged { offset: self.at, header },
        }
    }
}

/// Splits consecutive frames.
pub(super) fn split_frames(mut bytes: &[u8]) -> impl Iterator<Item = (FrameHeader, &[u8])> {
    std::iter::from_fn(move || {
        let header = FrameHeader::decode(bytes.first_chunk()?).ok()?;
        let (frame, rest) = bytes.split_at_checked(header.size() as usize)?;
        bytes = rest;
        FrameHeader::split(frame)
    })
}

/// Reads the index. Returns `None` if it is damaged.
fn read_index(file: &File) -> io::Result<Option<Vec<ArchiveBlock>>> {
    let len = file.metadata()?.len();
    let Some(end_at) = len.checked_sub(TRAILER_LEN as u64) else { return Ok(None) };
    let mut end = [0; TRAILER_LEN];
    read_past_lost(&mut end, end_at, |bytes, at| read_at(file, bytes, at))?;
    let mut fields = FieldReader(&end);
    let (magic, count, at) = (fields.array(), fields.u32(), fields.u64());
    let (crc, own) = (fields.u32(), fields.u32());
    let (Some(count), Some(at)) = (count, at) else { return Ok(None) };
    let index_len = u64::from(count) * INDEX_ENTRY_LEN as u64;
    if magic != Some(TRAILER_MAGIC) || own != Some(crc32fast::hash(&end[..20])) || at + index_len != end_at {
        return Ok(None);
    }
    let mut index = vec![0; index_len as usize];
    read_past_lost(&mut index, at, |bytes, at| read_at(file, bytes, at))?;
    if crc != Some(crc32fast::hash(&index)) {
        return Ok(None);
    }
    let (entries, _) = index.as_chunks::<INDEX_ENTRY_LEN>();
    Ok(entries
        .iter()
        .map(|entry| {
            let (header, at) = entry.split_at(BLOCK_HEADER_LEN);
            ArchiveBlock::decode(header, INDEX_MAGIC, FieldReader(at).u64()?)
        })
        .collect())
}

/// Finds the blocks one by one, past damage.
fn scan_blocks(file: File) -> io::Result<SegmentArchive> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?];
    read_past_lost(&mut bytes, 0, |bytes, at| read_at(&file, bytes, at))?;
    let decode = |at: usize| {
        let block =
            ArchiveBlock::decode(bytes.get(at..at + BLOCK_HEADER_LEN)?, BLOCK_MAGIC, (at + BLOCK_HEADER_LEN) as u64)?;
        (block.end() <= bytes.len() as u64).then_some(block)
    };
    let (mut blocks, mut unreadable, mut at) = (Vec::new(), Vec::new(), SEGMENT_HEADER_LEN);
    while at < bytes.len() {
        if let Some(block) = decode(at) {
            at = block.end() as usize;
            blocks.push(block);
            continue;
        }
        let Some(next) = (at + 1..bytes.len()).find(|at| decode(*at).is_some()) else { break };
        unreadable.push((at as u64, next as u64));
        at = next;
    }
    // A damaged index does no harm. If the index is missing altogether, the last blocks may be
    // missing too.
    if !is_index(&bytes[at..], blocks.len()) {
        unreadable.push((at as u64, bytes.len() as u64));
    }
    Ok(SegmentArchive { file, blocks, unreadable })
}

/// Reports if `bytes` are, or were, the index and trailer behind `blocks` blocks.
fn is_index(bytes: &[u8], blocks: usize) -> bool {
    let Some(entries) = bytes.len().checked_sub(TRAILER_LEN) else { return false };
    let (entries, rest) = bytes[..entries].as_chunks::<INDEX_ENTRY_LEN>();
    let is_entry =
        |entry: &[u8; INDEX_ENTRY_LEN]| ArchiveBlock::decode(&entry[..BLOCK_HEADER_LEN], INDEX_MAGIC, 0).is_some();
    rest.is_empty() && (entries.len() == blocks || entries.iter().any(is_entry))
}

/// Content of an archive that was written.
#[derive(Debug)]
pub(super) struct WrittenArchive {
    /// Size of the whole archive in bytes.
    pub(super) size: u64,
    pub(super) blocks: Vec<ArchiveBlock>,
    /// CRC of each block's compressed bytes.
    ///
    /// Differs from the block's own CRC if the block was damaged before.
    pub(super) sums: Vec<u32>,
}

/// Archive that is being written.
#[derive(Debug)]
pub(super) struct ArchiveWriter {
    file: io::BufWriter<File>,
    at: u64,
    blocks: Vec<ArchiveBlock>,
    sums: Vec<u32>,
    frames: Vec<u8>,
    current: Option<(SessionId, Seq, Seq)>,
}

impl ArchiveWriter {
    /// Creates the file, or replaces the file at `path`.
    pub(super) fn create(path: &Path, header: SegmentHeader) -> io::Result<ArchiveWriter> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut file = io::BufWriter::with_capacity(256 << 10, file);
        file.write_all(&header.encode(SegmentFileKind::Archive))?;
        let (blocks, sums) = (Vec::new(), Vec::new());
        Ok(ArchiveWriter { file, at: SEGMENT_HEADER_LEN as u64, blocks, sums, frames: Vec::new(), current: None })
    }

    /// Voids everything earlier of this session. Called before the first frame.
    pub(super) fn forgotten(&mut self, session: SessionId) -> io::Result<()> {
        let block = ArchiveBlock {
            session,
            forgotten: true,
            seq: 0,
            until: 0,
            len: 0,
            crc: crc32fast::hash(&[]),
            raw: 0,
            at: 0,
        };
        self.put(block, &[])
    }

    /// Adds a frame. Sessions come in order, and the frames of each session in the order of the
    /// log.
    pub(super) fn frame(&mut self, header: FrameHeader, payload: &[u8]) -> io::Result<()> {
        let header = FrameHeader { has_footer: false, ..header };
        let until = header.seq + u64::from(header.count);
        let full = !self.frames.is_empty() && self.frames.len() as u64 + header.size() > TARGET_BLOCK_BYTES as u64;
        if full || self.current.is_some_and(|(session, ..)| session != header.session) {
            self.end_block()?;
        }
        let (_, _, end) = self.current.get_or_insert((header.session, header.seq, until));
        *end = until;
        self.frames.extend(header.encode());
        self.frames.extend(payload);
        Ok(())
    }

    /// Adds a block of another archive unchanged.
    pub(super) fn block(&mut self, block: &ArchiveBlock, compressed: &[u8]) -> io::Result<()> {
        self.end_block()?;
        self.put(*block, compressed)
    }

    fn end_block(&mut self) -> io::Result<()> {
        let Some((session, seq, until)) = self.current.take() else { return Ok(()) };
        let frames = std::mem::take(&mut self.frames);
        let mut encoder = DeflateEncoder::new(Vec::with_capacity(frames.len() / 4), Compression::default());
        encoder.write_all(&frames)?;
        let compressed = encoder.finish()?;
        let (len, raw) = (compressed.len() as u32, frames.len() as u32);
        let crc = crc32fast::hash(&compressed);
        self.put(ArchiveBlock { session, forgotten: false, seq, until, len, crc, raw, at: 0 }, &compressed)?;
        self.frames = frames;
        self.frames.clear();
        Ok(())
    }

    fn put(&mut self, block: ArchiveBlock, compressed: &[u8]) -> io::Result<()> {
        let block = ArchiveBlock { at: self.at + BLOCK_HEADER_LEN as u64, ..block };
        self.file.write_all(&block.encode(BLOCK_MAGIC))?;
        self.file.write_all(compressed)?;
        self.at = block.end();
        self.blocks.push(block);
        self.sums.push(crc32fast::hash(compressed));
        Ok(())
    }

    /// Completes and syncs the archive, and returns its content.
    pub(super) fn finish(mut self) -> io::Result<WrittenArchive> {
        self.end_block()?;
        let mut index = Vec::with_capacity(self.blocks.len() * INDEX_ENTRY_LEN);
        for block in &self.blocks {
            index.extend(block.encode(INDEX_MAGIC));
            index.extend(block.at.to_le_bytes());
        }
        let mut end = [0; TRAILER_LEN];
        end[..4].copy_from_slice(&TRAILER_MAGIC);
        end[4..8].copy_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        end[8..16].copy_from_slice(&self.at.to_le_bytes());
        end[16..20].copy_from_slice(&crc32fast::hash(&index).to_le_bytes());
        let crc = crc32fast::hash(&end[..20]);
        end[20..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all(&index)?;
        self.file.write_all(&end)?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let size = self.at + (index.len() + TRAILER_LEN) as u64;
        Ok(WrittenArchive { size, blocks: self.blocks, sums: self.sums })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::{super::segment::tests::half_lost_file, *};

    #[test]
    fn block_with_lost_page_is_copied_as_damaged() {
        let (file, at) = half_lost_file();
        let session = SessionId::generate();
        let block = ArchiveBlock { session, forgotten: false, seq: 1, until: 9, len: 8192, crc: 7, raw: 9000, at };
        let archive = SegmentArchive { file, blocks: vec![block], unreadable: Vec::new() };
        assert_eq!(archive.frames(&block).unwrap(), None);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000001.arc");
        let mut writer = ArchiveWriter::create(&path, SegmentHeader { number: 1, previous_end: 0 }).unwrap();
        writer.block(&block, &archive.compressed(&block).unwrap()).unwrap();
        let WrittenArchive { blocks, sums, .. } = writer.finish().unwrap();
        let copy = SegmentArchive::open(&path).unwrap();
        assert_eq!(copy.blocks(), blocks);
        assert!(copy.reads_as_written(&blocks[0], sums[0]).unwrap());
        assert_eq!(copy.frames(&blocks[0]).unwrap(), None, "the block stays damaged");
    }
}
