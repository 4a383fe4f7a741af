//! Files with a checksum. A file that is not as it was written is never read.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use super::entry::ContentHash;

/// Size of the first line: the checksum of the rest in hexadecimal digits, and a line end.
const SEAL_BYTES: usize = 65;

/// Treatment of a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// On disk when the call returns.
    Synced,
    /// May be lost: the content can be computed again.
    Cached,
}

/// Writes a file under its name, in one step.
pub(super) fn write_sealed(dir: &Path, name: &str, body: &[u8], durability: Durability) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let written = (|| {
        let mut file = create_new(&temporary)?;
        writeln!(file, "{}", ContentHash::of(body))?;
        file.write_all(body)?;
        if durability == Durability::Synced {
            file.sync_data()?;
        }
        fs::rename(&temporary, dir.join(name))
    })();
    if written.is_err() {
        let _removed_by_the_next_capture = fs::remove_file(&temporary);
    }
    written?;
    match durability {
        Durability::Synced => sync_dir(dir),
        Durability::Cached => Ok(()),
    }
}

/// Reads a file. `None` if its checksum is wrong.
pub(super) fn read_sealed(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut whole = fs::read(path)?;
    if whole.len() < SEAL_BYTES {
        return Ok(None);
    }
    let body = whole.split_off(SEAL_BYTES);
    let is_intact = whole.trim_ascii_end() == ContentHash::of(&body).to_string().as_bytes();
    Ok(is_intact.then_some(body))
}

/// Writes the names of a directory to the disk.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes a file. A missing one is no error.
pub(super) fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Creates a file for this server only. An unfinished one of an earlier server is replaced.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}
