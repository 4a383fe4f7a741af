//! Workspace directories of the sessions, uploads into them and downloads from them.
//!
//! Content of a workspace is written by the agent and treated as hostile. Uploads and downloads
//! follow no link: each directory on the way is held by its descriptor.

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
    fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid},
    io::Errno,
};

use super::incoming_file::IncomingFile;
use crate::{
    api_schema::{api_schema, text},
    store::SessionId,
};

/// Longest path inside a workspace, bytes.
const PATH_BYTES: usize = 1024;
/// Highest number of parts of a path inside a workspace.
const PATH_PARTS: usize = 32;
/// Longest part of a path inside a workspace, bytes.
const PART_BYTES: usize = 255;

api_schema! {
    pub(crate) WorkspacePathSchema as "WorkspacePath" = text()
        .description(Some(format!(
            "Path inside a workspace: at most {PATH_BYTES} bytes of UTF-8 in at most {PATH_PARTS} parts of at most \
             {PART_BYTES} bytes, without `..`, `.`, empty parts and control characters."
        )))
        .max_length(Some(PATH_BYTES))
        .pattern(Some(format!("^{PART}(/{PART}){{0,{}}}$", PATH_PARTS - 1)));
}

/// Pattern of one part of a path.
const PART: &str = concat!(
    r"([^./\u0000-\u001f\u007f-\u009f][^/\u0000-\u001f\u007f-\u009f]*",
    r"|\.[^./\u0000-\u001f\u007f-\u009f][^/\u0000-\u001f\u007f-\u009f]*",
    r"|\.\.[^/\u0000-\u001f\u007f-\u009f]+)"
);

/// Location and owner of the sessions' workspaces.
#[derive(Debug, Clone)]
pub struct WorkspaceDirs {
    /// Parent of the sessions' directories.
    pub root: PathBuf,
    /// Workspace that all sessions share, in place of one each (`SANDBOX_VOLUMES=…:/workspace`).
    pub shared: Option<PathBuf>,
    /// User and group of a new workspace. The first start of the sandbox may change them.
    pub uid: u32,
    pub gid: u32,
}

/// Path inside a workspace. Contains names only, and cannot lead out of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerPath {
    dirs: Vec<String>,
    name: String,
}

/// Rejected path, in the client's spelling, with control characters escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no path inside the workspace; write it like `notes/todo.md`, without `..`, `.`, empty parts and control \
     characters"
)]
pub struct InvalidInnerPath(String);

impl InnerPath {
    /// Returns the last part of the path.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::str::FromStr for InnerPath {
    type Err = InvalidInnerPath;

    fn from_str(text: &str) -> Result<InnerPath, InvalidInnerPath> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_name = |part: &&str| {
            !matches!(*part, "" | "." | "..") && part.len() <= PART_BYTES && !part.chars().any(char::is_control)
        };
        match parts.split_last() {
            Some((name, dirs))
                if text.len() <= PATH_BYTES && parts.len() <= PATH_PARTS && parts.iter().all(is_name) =>
            {
                let dirs = dirs.iter().map(|dir| (*dir).to_owned()).collect();
                Ok(InnerPath { dirs, name: (*name).to_owned() })
            }
            _ => {
                let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
                Err(InvalidInnerPath(text.chars().map(escaped).collect()))
            }
        }
    }
}

impl WorkspaceDirs {
    /// Returns the workspace of the session. Creates it if it is missing.
    pub fn dir_of(&self, session: SessionId) -> io::Result<PathBuf> {
        match &self.shared {
            Some(shared) => Ok(shared.clone()),
            None => session_dir(&self.root, session, self.uid, self.gid),
        }
    }

    /// Begins an upload to `path`. Creates missing directories.
    pub fn receive(&self, session: SessionId, path: &InnerPath) -> io::Result<IncomingFile> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let mut dir = rustix::fs::open(self.dir_of(session)?, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let owner = self.owner_of_uploads(&dir)?;
        for name in &path.dirs {
            match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755)) {
                Ok(()) if rustix::process::geteuid().is_root() => {
                    rustix::fs::chownat(&dir, name, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)?;
                }
                Ok(()) => {}
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            dir = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
        }
        IncomingFile::create(dir, path.name.clone(), owner)
    }

    /// Opens a file for a download. Creates nothing.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::NotADirectory`] if a part on the way is a file or a link, and
    /// with [`io::ErrorKind::IsADirectory`] for a directory. A link, a FIFO, a socket or a device
    /// is [`io::ErrorKind::InvalidInput`], and is not opened: opening one can block or act.
    pub fn open(&self, session: SessionId, path: &InnerPath) -> io::Result<File> {
        let root = self.shared.clone().unwrap_or_else(|| self.root.join(session.to_string()));
        let locate = OFlags::PATH | OFlags::CLOEXEC;
        let on_the_way = locate | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let mut dir = rustix::fs::open(root, locate | OFlags::DIRECTORY, Mode::empty())?;
        for name in &path.dirs {
            dir = rustix::fs::openat(&dir, name, on_the_way, Mode::empty())?;
        }
        let located = rustix::fs::openat(&dir, &path.name, locate | OFlags::NOFOLLOW, Mode::empty())?;
        match FileType::from_raw_mode(rustix::fs::fstat(&located)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        // The descriptor names the file that was examined, whatever has its name by now.
        File::open(format!("/proc/self/fd/{}", located.as_raw_fd()))
    }

    /// Returns the user and group of uploads: those of the workspace, or the configured ones in a
    /// shared workspace.
    fn owner_of_uploads(&self, workspace: &OwnedFd) -> io::Result<(Uid, Gid)> {
        let (uid, gid) = match self.shared {
            Some(_) => (self.uid, self.gid),
            None => rustix::fs::fstat(workspace).map(|found| (found.st_uid, found.st_gid))?,
        };
        Ok((Uid::from_raw(uid), Gid::from_raw(gid)))
    }
}

/// Creates the directory of `session` below `parent`, owned by the sandbox's user. A directory that
/// exists keeps its owner.
///
/// Permissions are reset, so the next start has access whatever an agent changed.
pub fn session_dir(parent: &Path, session: SessionId, uid: u32, gid: u32) -> io::Result<PathBuf> {
    let path = parent.join(session.to_string());
    std::fs::create_dir_all(parent)?;
    create_owned_dir(&path, 0o700, uid, gid)?;
    Ok(path)
}

/// Creates a directory for a sandbox's user, and resets the permissions of one that exists. Its
/// owner may be the user of a running sandbox.
pub(super) fn create_owned_dir(path: &Path, mode: u32, uid: u32, gid: u32) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) if rustix::process::geteuid().is_root() => chown(path, Some(uid), Some(gid))?,
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, os::unix::fs::symlink};

    use super::*;
    use crate::sandbox::{ExistingFilePolicy, UploadOutcome};

    fn workspaces(parent: &Path) -> (WorkspaceDirs, SessionId, PathBuf) {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let workspaces = WorkspaceDirs { root: parent.to_owned(), shared: None, uid, gid };
        let session: SessionId = "01J00000000000000000000000".parse().expect("id is valid");
        let dir = workspaces.dir_of(session).expect("workspace is created");
        (workspaces, session, dir)
    }

    fn put(
        workspaces: &WorkspaceDirs,
        session: SessionId,
        path: &str,
        existing: ExistingFilePolicy,
    ) -> io::Result<UploadOutcome> {
        let mut incoming = workspaces.receive(session, &path.parse().expect("path is valid"))?;
        incoming.file.write_all(b"new")?;
        incoming.finish(existing)
    }

    #[test]
    fn paths_that_lead_out_are_rejected() {
        for path in ["a", "a/b.txt", "uploads/ä ö.txt", "..a", "a..", ".hidden"] {
            assert!(path.parse::<InnerPath>().is_ok(), "{path}");
        }
        let long = "x/".repeat(40) + "y";
        for path in ["", "/", "/etc/passwd", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\0b", &long] {
            let error = path.parse::<InnerPath>().expect_err(path).to_string();
            assert!(error.contains("inside the workspace"), "{error}");
        }
    }

    #[test]
    fn upload_is_atomic_and_obeys_policy() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let (workspaces, session, dir) = workspaces(temp.path());
        let mut dropped_upload =
            workspaces.receive(session, &"a/b/c".parse().expect("path is valid")).expect("upload begins");
        dropped_upload.file.write_all(b"half").expect("file is written");
        let file_count = fs::read_dir(dir.join("a/b")).expect("directory exists").count();
        assert_eq!(file_count, usize::from(dropped_upload.has_draft_name()), "an unnamed file is not listed");
        drop(dropped_upload);
        assert_eq!(
            fs::read_dir(dir.join("a/b")).expect("directory exists").count(),
            0,
            "a dropped upload leaves no file"
        );
        assert_eq!(
            put(&workspaces, session, "a/b/c", ExistingFilePolicy::Keep).expect("upload succeeds"),
            UploadOutcome::Created
        );
        assert_eq!(fs::read(dir.join("a/b/c")).expect("entry exists"), b"new");
        fs::write(dir.join("a/b/c"), "old").expect("file is written");
        assert_eq!(
            put(&workspaces, session, "a/b/c", ExistingFilePolicy::Keep).expect("upload ends"),
            UploadOutcome::Skipped
        );
        assert_eq!(fs::read(dir.join("a/b/c")).expect("entry exists"), b"old");
        assert_eq!(
            put(&workspaces, session, "a/b/c", ExistingFilePolicy::Replace).expect("upload succeeds"),
            UploadOutcome::Replaced
        );
        assert_eq!(fs::read(dir.join("a/b/c")).expect("entry exists"), b"new");
        assert_eq!(fs::read_dir(dir.join("a/b")).expect("entry exists").count(), 1);
    }

    #[test]
    fn upload_follows_no_symbolic_link() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let (workspaces, session, dir) = workspaces(temp.path());
        let outside = temp.path().join("outside");
        fs::create_dir(&outside).expect("directory is created");
        fs::write(outside.join("secret"), "old").expect("file is written");
        symlink(&outside, dir.join("way")).expect("link is created");
        symlink(outside.join("secret"), dir.join("file")).expect("link is created");
        put(&workspaces, session, "way/secret", ExistingFilePolicy::Replace)
            .expect_err("a linked directory is not followed");
        put(&workspaces, session, "way/new", ExistingFilePolicy::Replace)
            .expect_err("a linked directory is not followed");
        assert_eq!(
            put(&workspaces, session, "file", ExistingFilePolicy::Replace).expect("upload replaces the link"),
            UploadOutcome::Replaced
        );
        assert_eq!(fs::read(outside.join("secret")).expect("entry exists"), b"old");
        assert_eq!(fs::read_dir(&outside).expect("entry exists").count(), 1);
        assert!(!dir.join("file").is_symlink());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let (workspaces, session, dir) = workspaces(temp.path());
        let kind_of = |path: &str| {
            let opened = workspaces.open(session, &path.parse().expect("path is valid"));
            opened.map(|_| ()).map_err(|e| e.kind())
        };
        fs::create_dir(dir.join("dir")).expect("directory is created");
        fs::write(dir.join("dir/file"), "text").expect("file is written");
        symlink("file", dir.join("dir/link")).expect("link is created");
        symlink("dir", dir.join("way")).expect("link is created");
        symlink("/dev/null", dir.join("device")).expect("link is created");
        rustix::fs::mknodat(rustix::fs::CWD, dir.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("FIFO is created");
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("socket is created");
        assert_eq!(kind_of("dir/file"), Ok(()));
        assert_eq!(kind_of("none"), Err(io::ErrorKind::NotFound));
        assert_eq!(kind_of("none/file"), Err(io::ErrorKind::NotFound));
        assert_eq!(kind_of("dir"), Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind_of("way/file"), Err(io::ErrorKind::NotADirectory));
        assert_eq!(kind_of("dir/file/x"), Err(io::ErrorKind::NotADirectory));
        for path in ["dir/link", "device", "fifo", "socket"] {
            assert_eq!(kind_of(path), Err(io::ErrorKind::InvalidInput), "{path}");
        }
        let absent: SessionId = "01J00000000000000000000001".parse().expect("id is valid");
        workspaces.open(absent, &"x".parse().expect("path is valid")).expect_err("there is no workspace");
        assert!(!temp.path().join(absent.to_string()).exists(), "a download creates no workspace");
    }
}
