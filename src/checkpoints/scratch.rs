//! Contents of the present workspace that no checkpoint has, for the time of one diff.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use bytesize::ByteSize;

use super::{entry::ContentHash, error::CheckpointError, pack::BlobTable, scan::ContentSink};

/// Contents in a file without a name, which vanishes with its descriptor.
#[derive(Debug)]
pub(super) struct ScratchContents {
    file: File,
    /// Offset and size of each content.
    places: HashMap<ContentHash, (u64, usize)>,
    bytes: u64,
    limit: ByteSize,
}

/// Sink that keeps the contents which the store does not have.
pub(super) struct ScratchSink<'a> {
    pub blobs: &'a BlobTable,
    pub scratch: &'a mut ScratchContents,
}

impl ScratchContents {
    /// Creates contents of at most `limit` in `dir`, which is created.
    ///
    /// # Errors
    /// No temporary file can be created.
    pub(super) fn new(dir: &Path, limit: ByteSize) -> io::Result<ScratchContents> {
        fs::create_dir_all(dir)?;
        Ok(ScratchContents { file: tempfile::tempfile_in(dir)?, places: HashMap::new(), bytes: 0, limit })
    }

    /// Reads a content. `None` if there is no such content.
    pub(super) fn content(&self, hash: &ContentHash) -> io::Result<Option<Vec<u8>>> {
        let Some((offset, size)) = self.places.get(hash) else { return Ok(None) };
        let mut content = vec![0; *size];
        self.file.read_exact_at(&mut content, *offset)?;
        Ok(Some(content))
    }
}

impl ContentSink for ScratchSink<'_> {
    fn admits(&mut self, _: u64) -> Result<bool, CheckpointError> {
        Ok(true)
    }

    fn has(&self, hash: &ContentHash) -> bool {
        self.blobs.has(hash) || self.scratch.places.contains_key(hash)
    }

    fn add(&mut self, hash: ContentHash, content: &[u8]) -> Result<(), CheckpointError> {
        let scratch = &mut *self.scratch;
        if scratch.bytes + content.len() as u64 > scratch.limit.as_u64() {
            return Err(CheckpointError::NowTooLarge(scratch.limit));
        }
        scratch.file.write_all(content)?;
        scratch.places.insert(hash, (scratch.bytes, content.len()));
        scratch.bytes += content.len() as u64;
        Ok(())
    }
}
