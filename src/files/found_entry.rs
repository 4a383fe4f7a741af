//! Entries that a change finds in a workspace, located but not opened.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::tree::open_located;

/// Entry behind a descriptor, whatever has its name by now.
#[derive(Debug)]
pub struct FoundEntry {
    fd: OwnedFd,
    stat: Stat,
}

impl FoundEntry {
    pub(super) fn new((fd, stat): (OwnedFd, Stat)) -> FoundEntry {
        FoundEntry { fd, stat }
    }

    /// Returns the entry with this name. `None` if the name is free.
    pub(super) fn at(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<FoundEntry>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            Ok(fd) => {
                let stat = rustix::fs::fstat(&fd)?;
                Ok(Some(FoundEntry { fd, stat }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns what the kernel reported when the entry was found.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn is(&self, kind: FileType) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == kind
    }

    /// Returns true if both are the same entry.
    pub(super) fn is_same(&self, other: &FoundEntry) -> bool {
        (self.stat.st_dev, self.stat.st_ino) == (other.stat.st_dev, other.stat.st_ino)
    }

    /// Reads a file up to `limit` bytes, or the target of a link.
    ///
    /// # Errors
    /// The entry cannot be read, or is neither. Such an entry is not opened.
    pub fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        match FileType::from_raw_mode(self.stat.st_mode) {
            FileType::RegularFile => {
                let mut content = Vec::new();
                let file: File = open_located(&self.fd)?;
                file.take(limit).read_to_end(&mut content)?;
                Ok(content)
            }
            FileType::Symlink => Ok(rustix::fs::readlinkat(&self.fd, "", Vec::new())?.into_bytes()),
            _ => Err(Errno::INVAL.into()),
        }
    }
}
