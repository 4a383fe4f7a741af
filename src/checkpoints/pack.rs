//! Packs: the contents that a capture added, compressed, in one file with a table at its end.
//!
//! One file for each content would take a block of the disk and an entry of a directory each.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytesize::ByteSize;
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};

use super::{
    entry::{ContentHash, FileStamp, hex},
    error::CheckpointError,
    sealed::create_new,
};

/// Ending of a pack's name.
pub(super) const PACK: &str = "pack";
/// Size of a row of the table: hash, offset and compressed size.
const ROW_BYTES: usize = 32 + 8 + 8;
/// Size of the trailer: offset of the table, and its checksum.
const TRAILER_BYTES: usize = 8 + 32;

/// Row of a table: hash, offset and compressed size.
type PackRow = (ContentHash, (u64, u64));

/// Place of a content.
#[derive(Debug, Clone, Copy)]
struct BlobPlace {
    pack: u64,
    offset: u64,
    /// Compressed size, bytes.
    length: u64,
}

/// Contents of all packs of a store.
///
/// The packs are open: their contents stay readable if the limits of the store remove the files.
#[derive(Debug, Default)]
pub(super) struct BlobTable {
    places: HashMap<ContentHash, BlobPlace>,
    packs: BTreeMap<u64, PackFile>,
}

/// Open pack.
#[derive(Debug)]
struct PackFile {
    file: File,
    stamp: FileStamp,
    /// False if the table is damaged.
    has_table: bool,
}

/// Completed pack.
pub(super) struct FinishedPack {
    number: u64,
    file: File,
    rows: HashMap<ContentHash, (u64, u64)>,
}

/// Pack that is being written. Dropping it removes the file.
pub(super) struct PackWriter {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    rows: HashMap<ContentHash, (u64, u64)>,
    bytes: u64,
    limit: ByteSize,
}

pub(super) fn pack_name(number: u64) -> String {
    format!("{number:08}.{PACK}")
}

impl BlobTable {
    /// Opens these packs and reads their tables. In `packs`, a later pack has precedence.
    ///
    /// # Errors
    /// A pack cannot be read, or is gone. Damage is no error.
    pub(super) fn read(dir: &Path, packs: &[u64]) -> io::Result<BlobTable> {
        let mut table = BlobTable::default();
        for number in packs {
            let file = File::open(dir.join(pack_name(*number)))?;
            match read_rows(&file)? {
                Some(rows) => table.insert(*number, file, true, rows)?,
                None => table.insert(*number, file, false, Vec::new())?,
            }
        }
        Ok(table)
    }

    /// Adds a pack that was just written.
    pub(super) fn add(&mut self, FinishedPack { number, file, rows }: FinishedPack) -> io::Result<()> {
        self.insert(number, file, true, rows)
    }

    fn insert(
        &mut self,
        pack: u64,
        file: File,
        has_table: bool,
        rows: impl IntoIterator<Item = PackRow>,
    ) -> io::Result<()> {
        let stamp = FileStamp::of(&rustix::fs::fstat(&file)?);
        let places = rows.into_iter().map(|(hash, (offset, length))| (hash, BlobPlace { pack, offset, length }));
        self.places.extend(places);
        self.packs.insert(pack, PackFile { file, stamp, has_table });
        Ok(())
    }

    pub(super) fn has(&self, hash: &ContentHash) -> bool {
        self.places.contains_key(hash)
    }

    /// Returns the stamps of the packs. A pack with another stamp has been written to since.
    pub(super) fn stamps(&self) -> BTreeMap<u64, FileStamp> {
        self.packs.iter().map(|(number, pack)| (*number, pack.stamp)).collect()
    }

    /// Returns the packs whose table is damaged.
    pub(super) fn without_table(&self) -> impl Iterator<Item = u64> {
        self.packs.iter().filter(|(_, pack)| !pack.has_table).map(|(number, _)| *number)
    }

    /// Returns each pack with a table, with the compressed size of the contents that `is_live`
    /// admits.
    pub(super) fn live_bytes(&self, is_live: impl Fn(&ContentHash) -> bool) -> HashMap<u64, u64> {
        let with_table = self.packs.iter().filter(|(_, pack)| pack.has_table);
        let mut live: HashMap<u64, u64> = with_table.map(|(number, _)| (*number, 0)).collect();
        for (hash, place) in &self.places {
            if is_live(hash) {
                *live.entry(place.pack).or_default() += place.length;
            }
        }
        live
    }

    /// Returns the hashes of the contents in a pack.
    pub(super) fn hashes_in(&self, pack: u64) -> impl Iterator<Item = ContentHash> {
        self.places.iter().filter(move |(_, place)| place.pack == pack).map(|(hash, _)| *hash)
    }

    /// Reads a content and checks it. A damaged content changes the time of its pack, so the next
    /// capture examines that pack.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if the content is missing or is not as it was written.
    pub(super) fn content(&self, hash: &ContentHash) -> Result<Vec<u8>, CheckpointError> {
        let damaged = |what: &str| CheckpointError::Damaged(format!("content {} {what}", hex(&hash.0[..8])));
        let place = self.places.get(hash).ok_or_else(|| damaged("is missing"))?;
        let name = pack_name(place.pack);
        let pack = self.packs.get(&place.pack).ok_or_else(|| damaged("is missing"))?;
        match read_content(&pack.file, *place)? {
            Some(content) if ContentHash::of(&content) == *hash => Ok(content),
            Some(_) | None => {
                let _still_readable_otherwise = pack.file.set_modified(SystemTime::now());
                Err(damaged(&format!("differs in `{name}`")))
            }
        }
    }
}

/// Reads a content. `None` if it cannot be unpacked.
fn read_content(pack: &File, BlobPlace { offset, length, .. }: BlobPlace) -> io::Result<Option<Vec<u8>>> {
    // A damaged table may name any size.
    if offset.checked_add(length).is_none_or(|end| pack.metadata().is_ok_and(|found| end > found.len())) {
        return Ok(None);
    }
    let Ok(length) = usize::try_from(length) else { return Ok(None) };
    let mut packed = vec![0; length];
    match pack.read_exact_at(&mut packed, offset) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    }
    let mut content = Vec::new();
    Ok(DeflateDecoder::new(&packed[..]).read_to_end(&mut content).ok().map(|_| content))
}

/// Returns the rows of a pack's table. `None` if the table is damaged.
fn read_rows(file: &File) -> io::Result<Option<Vec<PackRow>>> {
    let size = file.metadata()?.len();
    let Some(table_end) = size.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, table_end)?;
    let offset = number_at(&trailer, 0);
    let Some(length) = table_end.checked_sub(offset).and_then(|length| usize::try_from(length).ok()) else {
        return Ok(None);
    };
    let mut table = vec![0; length];
    file.read_exact_at(&mut table, offset)?;
    if length % ROW_BYTES != 0 || ContentHash::of(&table).0 != trailer[8..] {
        return Ok(None);
    }
    let rows = table.chunks_exact(ROW_BYTES).map(|row| {
        let mut hash = [0; 32];
        hash.copy_from_slice(&row[..32]);
        (ContentHash(hash), (number_at(row, 32), number_at(row, 40)))
    });
    Ok(Some(rows.collect()))
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

impl PackWriter {
    /// Begins a pack in `dir`. The file is created with the first content.
    pub(super) fn new(dir: &Path, limit: ByteSize) -> PackWriter {
        PackWriter { path: dir.join("pack.tmp"), file: None, rows: HashMap::new(), bytes: 0, limit }
    }

    pub(super) fn has(&self, hash: &ContentHash) -> bool {
        self.rows.contains_key(hash)
    }

    /// Adds a content.
    ///
    /// # Errors
    /// [`CheckpointError::OverLimit`] if the pack is larger than the limit of the store.
    pub(super) fn add(&mut self, hash: ContentHash, content: &[u8]) -> Result<(), CheckpointError> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content)?;
        let packed = encoder.finish()?;
        let length = packed.len() as u64;
        if self.bytes + length > self.limit.as_u64() {
            return Err(CheckpointError::OverLimit(self.limit));
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::new(create_new(&self.path)?)),
        };
        file.write_all(&packed)?;
        self.rows.insert(hash, (self.bytes, length));
        self.bytes += length;
        Ok(())
    }

    /// Completes the pack under its name. Returns `None` if the pack has no content and no file.
    pub(super) fn finish(mut self, dir: &Path, number: u64) -> Result<Option<FinishedPack>, CheckpointError> {
        let Some(mut file) = self.file.take() else { return Ok(None) };
        let mut table = Vec::with_capacity(self.rows.len() * ROW_BYTES);
        for (hash, (offset, length)) in &self.rows {
            table.extend_from_slice(&hash.0);
            table.extend_from_slice(&offset.to_le_bytes());
            table.extend_from_slice(&length.to_le_bytes());
        }
        file.write_all(&table)?;
        file.write_all(&self.bytes.to_le_bytes())?;
        file.write_all(&ContentHash::of(&table).0)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_data()?;
        fs::rename(&self.path, dir.join(pack_name(number)))?;
        Ok(Some(FinishedPack { number, file, rows: std::mem::take(&mut self.rows) }))
    }
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        // After `finish`, the file has another name.
        let _removed_by_the_next_capture = fs::remove_file(&self.path);
    }
}
