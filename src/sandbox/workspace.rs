//! The directories of this host that sessions work in, and how the server puts a file into one.
//!
//! What lies in a workspace is the agent's, and so hostile: no link in it is followed, by holding each directory on the way
//! by its descriptor. A file is written without a name, of which a server that is killed leaves nothing, and gets its place when
//! it is whole.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, chown},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid},
    io::Errno,
};

use crate::store::SessionId;

/// The most bytes and parts that a path inside a workspace has.
const PATH_BYTES: usize = 1024;
const PATH_PARTS: usize = 32;

/// Where sessions work, and whom it belongs to.
#[derive(Debug, Clone)]
pub struct WorkspaceDirs {
    /// A directory for each session below this one.
    pub root: PathBuf,
    /// Where all sessions work, in place of that (`SANDBOX_VOLUMES=…:/workspace`).
    pub shared: Option<PathBuf>,
    pub uid: u32,
    pub gid: u32,
}

/// A path inside a workspace: names below it, and no way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerPath {
    dirs: Vec<String>,
    name: String,
}

/// Why a path is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no path inside the workspace: write it like `notes/todo.md`, without `..`, `.` or empty parts")]
pub struct InvalidInnerPath(String);

impl std::str::FromStr for InnerPath {
    type Err = InvalidInnerPath;

    fn from_str(text: &str) -> Result<InnerPath, InvalidInnerPath> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_name = |part: &&str| !matches!(*part, "" | "." | "..") && part.len() <= 255 && !part.contains('\0');
        match parts.split_last() {
            Some((name, dirs))
                if text.len() <= PATH_BYTES && parts.len() <= PATH_PARTS && parts.iter().all(is_name) =>
            {
                let dirs = dirs.iter().map(|dir| (*dir).to_owned()).collect();
                Ok(InnerPath { dirs, name: (*name).to_owned() })
            }
            _ => Err(InvalidInnerPath(text.to_owned())),
        }
    }
}

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFilePolicy {
    Replace,
    Keep,
}

impl WorkspaceDirs {
    /// The directory in which this session works; made where it is not there.
    pub fn dir_of(&self, session: SessionId) -> io::Result<PathBuf> {
        match &self.shared {
            Some(shared) => Ok(shared.clone()),
            None => session_dir(&self.root, session, self.uid, self.gid),
        }
    }

    /// A file on its way to `path`. Directories that are missing are made.
    pub fn receive(&self, session: SessionId, path: &InnerPath) -> io::Result<IncomingFile> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let mut dir = rustix::fs::open(self.dir_of(session)?, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for name in &path.dirs {
            match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => self.chown_to_sandbox(&dir, name)?,
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            dir = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
        }
        let (file, draft) = create_draft(&dir)?;
        if rustix::process::geteuid().is_root() {
            rustix::fs::fchown(&file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        }
        Ok(IncomingFile { file: file.into(), destination: FileDestination { dir, draft, name: path.name.clone() } })
    }

    fn chown_to_sandbox(&self, dir: &OwnedFd, name: &str) -> io::Result<()> {
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

/// A directory of `session` below `below`, which belongs to whom its sandbox runs as, and is open to it: whatever an agent made
/// of it, its next start finds its way in.
pub fn session_dir(below: &Path, session: SessionId, uid: u32, gid: u32) -> io::Result<PathBuf> {
    let path = below.join(session.to_string());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    if rustix::process::geteuid().is_root() {
        chown(&path, Some(uid), Some(gid))?;
    }
    Ok(path)
}

/// A file without a name, which goes with whoever writes it, however that ends; with one where the file system has no such files.
fn create_draft(dir: &OwnedFd) -> rustix::io::Result<(OwnedFd, Option<String>)> {
    let write = OFlags::WRONLY | OFlags::CLOEXEC;
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

/// Gives a file without a name one, where nothing has it.
fn link_unnamed(file: &File, dir: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, unnamed, dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Gives a draft its place where the file system cannot move without replacing (NFS, 9p, sshfs).
fn place_non_atomically(
    dir: &OwnedFd,
    draft: &str,
    wanted: &str,
    existing: ExistingFilePolicy,
) -> rustix::io::Result<UploadOutcome> {
    match existing {
        ExistingFilePolicy::Keep => match rustix::fs::linkat(dir, draft, dir, wanted, AtFlags::empty()) {
            Ok(()) => Ok(UploadOutcome::Created),
            Err(Errno::EXIST) => Ok(UploadOutcome::Skipped),
            Err(e) => Err(e),
        },
        ExistingFilePolicy::Replace => {
            let is_there = rustix::fs::statat(dir, wanted, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            rustix::fs::renameat(dir, draft, dir, wanted)?;
            Ok(if is_there { UploadOutcome::Replaced } else { UploadOutcome::Created })
        }
    }
}

/// A file that is being written. Nobody sees it under its name before [`Incoming::finish`]; dropped, it leaves nothing.
#[derive(Debug)]
pub struct IncomingFile {
    pub file: File,
    destination: FileDestination,
}

#[derive(Debug)]
struct FileDestination {
    dir: OwnedFd,
    /// What it is called until it is done.
    draft: Option<String>,
    name: String,
}

/// What `finish` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadOutcome {
    Created,
    Replaced,
    /// Something has that name, and was to be kept. Nothing has changed.
    Skipped,
}

impl IncomingFile {
    /// Moves the file to its place.
    ///
    /// # Errors
    /// Where it cannot be moved; a directory of that name, for one.
    pub fn finish(mut self, existing: ExistingFilePolicy) -> io::Result<UploadOutcome> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(0o644))?;
        let FileDestination { dir, draft, name: wanted } = &mut self.destination;
        let named = match draft {
            Some(named) => named,
            None => match (link_unnamed(&self.file, dir, wanted), existing) {
                (Ok(()), _) => return Ok(UploadOutcome::Created),
                (Err(Errno::EXIST), ExistingFilePolicy::Keep) => return Ok(UploadOutcome::Skipped),
                // Only what has a name can take the place of another in one step.
                (Err(Errno::EXIST), ExistingFilePolicy::Replace) => {
                    let given = self::draft_name();
                    link_unnamed(&self.file, dir, &given)?;
                    draft.insert(given)
                }
                (Err(e), _) => return Err(e.into()),
            },
        };
        let moved = rustix::fs::renameat_with(&*dir, &*named, &*dir, &*wanted, RenameFlags::NOREPLACE);
        let finished = match (moved, existing) {
            (Ok(()), _) => UploadOutcome::Created,
            (Err(Errno::EXIST), ExistingFilePolicy::Keep) => return Ok(UploadOutcome::Skipped),
            (Err(Errno::EXIST), ExistingFilePolicy::Replace) => {
                rustix::fs::renameat(&*dir, &*named, &*dir, &*wanted)?;
                UploadOutcome::Replaced
            }
            // The draft may have its name still: it goes as one does that was given up.
            (Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP), _) => {
                return Ok(place_non_atomically(dir, named, wanted, existing)?);
            }
            (Err(e), _) => return Err(e.into()),
        };
        *draft = None;
        Ok(finished)
    }
}

impl Drop for FileDestination {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft {
            let _the_agent_may_have_taken_it = rustix::fs::unlinkat(&self.dir, draft, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, os::unix::fs::symlink};

    use super::*;

    fn workspaces(below: &Path) -> (WorkspaceDirs, SessionId, PathBuf) {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let workspaces = WorkspaceDirs { root: below.to_owned(), shared: None, uid, gid };
        let session: SessionId = "01J00000000000000000000000".parse().expect("an id");
        let dir = workspaces.dir_of(session).expect("it is made");
        (workspaces, session, dir)
    }

    fn put(
        workspaces: &WorkspaceDirs,
        session: SessionId,
        path: &str,
        existing: ExistingFilePolicy,
    ) -> io::Result<UploadOutcome> {
        let mut incoming = workspaces.receive(session, &path.parse().expect("a path"))?;
        incoming.file.write_all(b"new")?;
        incoming.finish(existing)
    }

    #[test]
    fn only_paths_that_stay_inside_are_paths() {
        for path in ["a", "a/b.txt", "uploads/ä ö.txt", "..a", "a..", ".hidden"] {
            assert!(path.parse::<InnerPath>().is_ok(), "{path}");
        }
        let long = "x/".repeat(40) + "y";
        for path in ["", "/", "/etc/passwd", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\0b", &long] {
            let refused = path.parse::<InnerPath>().expect_err(path).to_string();
            assert!(refused.contains("inside the workspace"), "{refused}");
        }
    }

    #[test]
    fn a_file_comes_whole_or_not_at_all() {
        let below = tempfile::tempdir().expect("a directory");
        let (workspaces, session, dir) = workspaces(below.path());
        let mut given_up = workspaces.receive(session, &"a/b/c".parse().expect("a path")).expect("it begins");
        given_up.file.write_all(b"half").expect("it is written");
        let seen = fs::read_dir(dir.join("a/b")).expect("it was made").count();
        assert_eq!(
            seen,
            usize::from(given_up.destination.draft.is_some()),
            "where it has no name there is nothing to see"
        );
        drop(given_up);
        assert_eq!(fs::read_dir(dir.join("a/b")).expect("it was made").count(), 0, "nothing is left");
        assert_eq!(
            put(&workspaces, session, "a/b/c", ExistingFilePolicy::Keep).expect("it comes"),
            UploadOutcome::Created
        );
        assert_eq!(fs::read(dir.join("a/b/c")).expect("it is there"), b"new");
        fs::write(dir.join("a/b/c"), "old").expect("it is written");
        assert_eq!(
            put(&workspaces, session, "a/b/c", ExistingFilePolicy::Keep).expect("it ends"),
            UploadOutcome::Skipped
        );
        assert_eq!(fs::read(dir.join("a/b/c")).expect("it is there"), b"old");
        assert_eq!(
            put(&workspaces, session, "a/b/c", ExistingFilePolicy::Replace).expect("it comes"),
            UploadOutcome::Replaced
        );
        assert_eq!(fs::read(dir.join("a/b/c")).expect("it is there"), b"new");
        assert_eq!(fs::read_dir(dir.join("a/b")).expect("it is there").count(), 1);
    }

    #[test]
    fn a_file_comes_where_the_file_system_cannot_move_without_replacing() {
        let below = tempfile::tempdir().expect("a directory");
        let put = |text: &str, existing| {
            let dir =
                rustix::fs::open(below.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("it opens");
            fs::write(below.path().join("draft"), text).expect("it is written");
            let place = FileDestination { dir, draft: Some("draft".to_owned()), name: "file".to_owned() };
            let finished = place_non_atomically(&place.dir, "draft", &place.name, existing).expect("it ends");
            drop(place);
            assert_eq!(fs::read_dir(below.path()).expect("it is there").count(), 1, "the draft has gone");
            (finished, fs::read_to_string(below.path().join("file")).expect("it is there"))
        };
        assert_eq!(put("one", ExistingFilePolicy::Keep), (UploadOutcome::Created, "one".to_owned()));
        assert_eq!(put("two", ExistingFilePolicy::Keep), (UploadOutcome::Skipped, "one".to_owned()));
        assert_eq!(put("three", ExistingFilePolicy::Replace), (UploadOutcome::Replaced, "three".to_owned()));
        fs::remove_file(below.path().join("file")).expect("it is there");
        assert_eq!(put("four", ExistingFilePolicy::Replace), (UploadOutcome::Created, "four".to_owned()));
    }

    #[test]
    fn no_link_of_the_agents_leads_out() {
        let below = tempfile::tempdir().expect("a directory");
        let (workspaces, session, dir) = workspaces(below.path());
        let outside = below.path().join("outside");
        fs::create_dir(&outside).expect("it is made");
        fs::write(outside.join("secret"), "old").expect("it is written");
        symlink(&outside, dir.join("way")).expect("it is laid");
        symlink(outside.join("secret"), dir.join("file")).expect("it is laid");
        put(&workspaces, session, "way/secret", ExistingFilePolicy::Replace).expect_err("a directory that is a link");
        put(&workspaces, session, "way/new", ExistingFilePolicy::Replace).expect_err("a directory that is a link");
        assert_eq!(
            put(&workspaces, session, "file", ExistingFilePolicy::Replace).expect("the link goes"),
            UploadOutcome::Replaced
        );
        assert_eq!(fs::read(outside.join("secret")).expect("it is there"), b"old");
        assert_eq!(fs::read_dir(&outside).expect("it is there").count(), 1);
        assert!(!dir.join("file").is_symlink());
    }
}
