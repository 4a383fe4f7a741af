//! Temporary names in a workspace, and records of them.
//!
//! A file that cannot be written without a name, a file that replaces another one, and a directory
//! that is being removed have a temporary name for a while. A record in the data directory names
//! each of them, so the next server removes what a killed server has left.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, FileType};
use tracing::warn;

use super::{
    path::{InnerPath, PathForm},
    tree::WorkspaceTree,
};
use crate::sandbox::remove_tree;

/// Ending of each temporary name.
const ENDING: &str = ".greenroom";

/// Directory of the records.
#[derive(Debug, Clone)]
pub(super) struct TemporaryNames {
    dir: PathBuf,
}

/// Temporary name of an entry. Dropping it removes the entry, unless it has left the name.
#[derive(Debug)]
pub(super) struct TemporaryName {
    dir: OwnedFd,
    name: String,
    record: PathBuf,
    is_in_use: bool,
}

impl TemporaryNames {
    /// Opens the directory of the records, and removes what earlier servers have left. The removal
    /// goes on in the background: a volume may hang.
    pub(super) fn open(dir: PathBuf) -> io::Result<TemporaryNames> {
        fs::create_dir_all(&dir)?;
        let records: Vec<PathBuf> = fs::read_dir(&dir)?.flatten().map(|entry| entry.path()).collect();
        if !records.is_empty() {
            std::thread::spawn(move || records.iter().for_each(|record| sweep(record)));
        }
        Ok(TemporaryNames { dir })
    }

    /// Records a new name in `dir`, which has the path `dir_path` in the workspace.
    pub(super) fn reserve(
        &self,
        tree: &WorkspaceTree,
        dir: &OwnedFd,
        dir_path: &InnerPath,
    ) -> io::Result<TemporaryName> {
        let name = format!(".{}{ENDING}", ulid::Ulid::generate());
        let record = self.dir.join(name.trim_start_matches('.'));
        let mut text = tree.host_path().as_os_str().as_bytes().to_vec();
        for part in [dir_path.as_bytes(), name.as_bytes()] {
            text.push(0);
            text.extend_from_slice(part);
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&record)?;
        let reserved = TemporaryName { dir: dir.try_clone()?, name, record, is_in_use: false };
        file.write_all(&text)?;
        Ok(reserved)
    }
}

impl TemporaryName {
    pub(super) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Marks that an entry has this name.
    pub(super) fn put_in_use(&mut self) {
        self.is_in_use = true;
    }

    /// Marks that no entry has this name.
    pub(super) fn put_out_of_use(&mut self) {
        self.is_in_use = false;
    }

    /// Marks that the entry has left this name.
    pub(super) fn release(mut self) {
        self.is_in_use = false;
    }

    /// Removes the entry with all its content. On a failure, the record stays for the next server.
    pub(super) fn remove_tree(mut self) -> io::Result<()> {
        remove_entry(&self.dir, &self.name)?;
        self.is_in_use = false;
        Ok(())
    }
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        let is_gone = !self.is_in_use
            || matches!(
                rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty()),
                Ok(()) | Err(rustix::io::Errno::NOENT)
            );
        if is_gone {
            let _swept_at_the_next_start = fs::remove_file(&self.record);
        }
    }
}

/// Removes the entry that a record names, and the record.
pub(super) fn sweep(record: &Path) {
    match sweep_recorded(record) {
        Ok(()) => {
            let _swept_again_at_the_next_start = fs::remove_file(record);
        }
        Err(e) => warn!("`{}`: cannot remove what an earlier server left: {e}", record.display()),
    }
}

fn sweep_recorded(record: &Path) -> io::Result<()> {
    let text = fs::read(record)?;
    let mut parts = text.split(|byte| *byte == 0);
    let (Some(root), Some(dir), Some(name), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        // The server died before the record was complete, so before the name was in use.
        return Ok(());
    };
    let encoded = percent_encoding::percent_encode(dir, percent_encoding::NON_ALPHANUMERIC).to_string();
    let (Ok(dir), Ok(name)) = (InnerPath::parse_or_root(&encoded, PathForm::Encoded), std::str::from_utf8(name)) else {
        return Ok(());
    };
    if !name.ends_with(ENDING) || name.contains('/') {
        return Ok(());
    }
    let opened = WorkspaceTree::open(Path::new(OsStr::from_bytes(root)), None);
    match opened.and_then(|tree| Ok(tree.locate_dir(&dir)?)) {
        Ok(dir) => remove_entry(&dir, name),
        // The directory is gone, and its content with it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes a file, or a directory with all its content. A missing entry is no error.
fn remove_entry(dir: &OwnedFd, name: &str) -> io::Result<()> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            remove_tree::remove_tree(Path::new(&format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())))
        }
        _ => Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?),
    }
}
