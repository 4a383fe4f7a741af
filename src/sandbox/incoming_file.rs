//! Upload into a workspace. The file is written without a name and gets its name when it is
//! complete, so a killed server leaves nothing.
//!
//! A file that exists keeps its owner and permissions. A file with several names is written in
//! place, so that all its names have the new content.

use std::{
    fs::File,
    io::{self, Seek},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid},
    io::Errno,
};

/// Policy for an upload if its name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFilePolicy {
    Replace,
    Keep,
}

/// Upload in progress. The name appears at [`IncomingFile::finish`]. Dropping it removes the draft.
#[derive(Debug)]
pub struct IncomingFile {
    pub file: File,
    destination: FileDestination,
}

#[derive(Debug)]
struct FileDestination {
    dir: OwnedFd,
    /// Draft name until the upload is complete, if the file has one.
    draft: Option<String>,
    name: String,
}

/// Outcome of a completed upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadOutcome {
    Created,
    Replaced,
    /// The name is taken and the policy keeps the existing file. Nothing was changed.
    Skipped,
}

impl IncomingFile {
    /// Begins an upload to `name` in `dir`.
    pub(super) fn create(dir: OwnedFd, name: String, owner: (Uid, Gid)) -> io::Result<IncomingFile> {
        let (file, draft) = create_draft(&dir)?;
        set_owner(&file, owner)?;
        Ok(IncomingFile { file: file.into(), destination: FileDestination { dir, draft, name } })
    }

    /// Moves the file to its name.
    ///
    /// # Errors
    /// Fails if the file cannot be moved, for example if the name belongs to a directory. If a file
    /// with several names cannot take the content, the disk is full or fails.
    pub fn finish(mut self, existing: ExistingFilePolicy) -> io::Result<UploadOutcome> {
        let FileDestination { dir, draft, name } = &mut self.destination;
        let replaced = match existing {
            ExistingFilePolicy::Replace => regular_file(dir, name),
            ExistingFilePolicy::Keep => None,
        };
        match &replaced {
            Some((old, stat)) if stat.st_nlink > 1 => {
                write_in_place(&mut self.file, old)?;
                return Ok(UploadOutcome::Replaced);
            }
            Some((_, stat)) => {
                set_owner(&self.file, (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)))?;
                rustix::fs::fchmod(&self.file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
            }
            None => rustix::fs::fchmod(&self.file, Mode::from_raw_mode(0o644))?,
        }
        let draft_name = match draft {
            Some(draft_name) => draft_name,
            None => match (link_unnamed(&self.file, dir, name), existing) {
                (Ok(()), _) => return Ok(UploadOutcome::Created),
                (Err(Errno::EXIST), ExistingFilePolicy::Keep) => return Ok(UploadOutcome::Skipped),
                // Only a named file can replace another one in one step.
                (Err(Errno::EXIST), ExistingFilePolicy::Replace) => {
                    let new_draft = self::draft_name();
                    link_unnamed(&self.file, dir, &new_draft)?;
                    draft.insert(new_draft)
                }
                (Err(e), _) => return Err(e.into()),
            },
        };
        let moved = rustix::fs::renameat_with(&*dir, &*draft_name, &*dir, &*name, RenameFlags::NOREPLACE);
        let finished = match (moved, existing) {
            (Ok(()), _) => UploadOutcome::Created,
            (Err(Errno::EXIST), ExistingFilePolicy::Keep) => return Ok(UploadOutcome::Skipped),
            (Err(Errno::EXIST), ExistingFilePolicy::Replace) => {
                rustix::fs::renameat(&*dir, &*draft_name, &*dir, &*name)?;
                UploadOutcome::Replaced
            }
            // The draft may still have its name. Dropping the destination removes it.
            (Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP), _) => {
                return Ok(place_non_atomically(dir, draft_name, name, existing)?);
            }
            (Err(e), _) => return Err(e.into()),
        };
        *draft = None;
        Ok(finished)
    }
}

/// Returns the regular file with this name, located but not opened. An agent can replace the name
/// at any time, but not the file behind the descriptor.
fn regular_file(dir: &OwnedFd, name: &str) -> Option<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let located = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&located).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some((located, stat))
}

/// Copies `new` over the content of the file behind `old`. A full disk leaves that file as it was.
fn write_in_place(new: &mut File, old: &OwnedFd) -> io::Result<()> {
    let mut old = File::options().write(true).open(format!("/proc/self/fd/{}", old.as_raw_fd()))?;
    let (before, after) = (old.metadata()?.len(), new.metadata()?.len());
    if after > before
        && let Err(error @ (Errno::NOSPC | Errno::DQUOT)) =
            rustix::fs::fallocate(&old, FallocateFlags::empty(), before, after - before)
    {
        old.set_len(before)?;
        return Err(error.into());
    }
    new.rewind()?;
    io::copy(new, &mut old)?;
    old.set_len(after)
}

/// Changes owner and group, if the server may.
fn set_owner(file: impl AsFd, (uid, gid): (Uid, Gid)) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        rustix::fs::fchown(file, Some(uid), Some(gid))?;
    }
    Ok(())
}

impl Drop for FileDestination {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft {
            let _the_agent_may_have_taken_it = rustix::fs::unlinkat(&self.dir, draft, AtFlags::empty());
        }
    }
}

/// Creates an unnamed file, which vanishes with its descriptor.
///
/// If the file system has no unnamed files, the file gets a draft name, which is returned.
fn create_draft(dir: &OwnedFd) -> rustix::io::Result<(OwnedFd, Option<String>)> {
    let write = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, ".", write | OFlags::TMPFILE, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok((file, None)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let draft = draft_name();
            let create = write | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(dir, &draft, create, Mode::from_raw_mode(0o600))?;
            Ok((file, Some(draft)))
        }
        Err(e) => Err(e),
    }
}

fn draft_name() -> String {
    format!(".{}.upload", ulid::Ulid::generate())
}

/// Links an unnamed file to a name. Fails if the name is taken.
fn link_unnamed(file: &File, dir: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, unnamed, dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Moves a draft to its name on a file system without `RENAME_NOREPLACE` (NFS, 9p, sshfs).
fn place_non_atomically(
    dir: &OwnedFd,
    draft: &str,
    name: &str,
    existing: ExistingFilePolicy,
) -> rustix::io::Result<UploadOutcome> {
    match existing {
        ExistingFilePolicy::Keep => match rustix::fs::linkat(dir, draft, dir, name, AtFlags::empty()) {
            Ok(()) => Ok(UploadOutcome::Created),
            Err(Errno::EXIST) => Ok(UploadOutcome::Skipped),
            Err(e) => Err(e),
        },
        ExistingFilePolicy::Replace => {
            let is_there = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            rustix::fs::renameat(dir, draft, dir, name)?;
            Ok(if is_there { UploadOutcome::Replaced } else { UploadOutcome::Created })
        }
    }
}

#[cfg(test)]
impl IncomingFile {
    /// Returns true if the file system has no unnamed files.
    pub(super) fn has_draft_name(&self) -> bool {
        self.destination.draft.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write,
        os::unix::fs::{MetadataExt, PermissionsExt},
        path::Path,
    };

    use super::*;

    fn open_dir(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("directory opens")
    }

    fn put(dir: &Path, text: &str) -> UploadOutcome {
        let owner = (rustix::process::geteuid(), rustix::process::getegid());
        let mut incoming = IncomingFile::create(open_dir(dir), "file".to_owned(), owner).expect("upload begins");
        incoming.file.write_all(text.as_bytes()).expect("file is written");
        incoming.finish(ExistingFilePolicy::Replace).expect("upload ends")
    }

    #[test]
    fn replaced_file_keeps_permissions_and_all_names() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let at = |name: &str| temp.path().join(name);
        fs::write(at("file"), "old").expect("file is written");
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o750)).expect("own file");
        assert_eq!(put(temp.path(), "longer than before"), UploadOutcome::Replaced);
        assert_eq!(fs::metadata(at("file")).expect("file exists").mode() & 0o7777, 0o750);
        fs::hard_link(at("file"), at("second")).expect("link is created");
        for text in ["short", "much longer than the text before", ""] {
            assert_eq!(put(temp.path(), text), UploadOutcome::Replaced);
            for name in ["file", "second"] {
                assert_eq!(fs::read_to_string(at(name)).expect("file exists"), text);
            }
        }
        assert_eq!(fs::metadata(at("file")).expect("file exists").nlink(), 2);
        assert_eq!(fs::read_dir(temp.path()).expect("directory exists").count(), 2, "no draft is left");
    }

    #[test]
    fn upload_works_without_rename_noreplace() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let put = |text: &str, existing| {
            let dir = open_dir(temp.path());
            fs::write(temp.path().join("draft"), text).expect("file is written");
            let destination = FileDestination { dir, draft: Some("draft".to_owned()), name: "file".to_owned() };
            let finished =
                place_non_atomically(&destination.dir, "draft", &destination.name, existing).expect("draft is placed");
            drop(destination);
            assert_eq!(fs::read_dir(temp.path()).expect("entry exists").count(), 1, "the draft is removed");
            (finished, fs::read_to_string(temp.path().join("file")).expect("entry exists"))
        };
        assert_eq!(put("one", ExistingFilePolicy::Keep), (UploadOutcome::Created, "one".to_owned()));
        assert_eq!(put("two", ExistingFilePolicy::Keep), (UploadOutcome::Skipped, "one".to_owned()));
        assert_eq!(put("three", ExistingFilePolicy::Replace), (UploadOutcome::Replaced, "three".to_owned()));
        fs::remove_file(temp.path().join("file")).expect("entry exists");
        assert_eq!(put("four", ExistingFilePolicy::Replace), (UploadOutcome::Created, "four".to_owned()));
    }
}
