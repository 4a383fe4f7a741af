//! Reads of a workspace's `.git` as bytes. No program of git runs on it, and its configuration,
//! hooks, attributes, index, alternates and submodules are never opened.
//!
//! `HEAD`, branches, loose objects and packs are read beneath the workspace, without links. Indexes
//! of packs are not taken over: the server builds its own.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::{address::check_reference, error::RepositoryError, git_program::read_limited};
use crate::files::{InnerPath, NameScan, WorkspaceTree};

/// Longest file of `HEAD` and of one branch, bytes.
const REF_BYTES: u64 = 4096;
/// Longest file of packed refs, bytes.
const PACKED_BYTES: u64 = 16 << 20;
/// Loose objects that are read.
const MAX_LOOSE: usize = 200_000;
/// Packs that are read.
const MAX_PACKS: usize = 1_000;

/// Commit that the workspace is at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkspaceHead {
    pub(super) commit: String,
    /// Current branch. `None`: `HEAD` is at a commit.
    pub(super) branch: Option<String>,
}

/// `.git` of a workspace.
pub(super) struct WorkspaceGit {
    tree: WorkspaceTree,
    git: InnerPath,
}

impl WorkspaceGit {
    /// Opens the workspace at `path`, a path of the server's own.
    ///
    /// # Errors
    /// There is no directory `.git`. A file or a link of this name is not followed.
    pub(super) fn open(path: &Path) -> Result<WorkspaceGit, RepositoryError> {
        let tree = WorkspaceTree::open(path, None)?;
        let git = InnerPath::default().join(b".git").ok_or_else(|| broken("its path is too long"))?;
        tree.open_dir(&git)?;
        Ok(WorkspaceGit { tree, git })
    }

    /// Returns the commit that `HEAD` names.
    ///
    /// # Errors
    /// `HEAD` is missing, or names no branch with a commit.
    pub(super) fn head(&self) -> Result<WorkspaceHead, RepositoryError> {
        let head = self.text("HEAD", REF_BYTES)?.ok_or_else(|| broken("`.git/HEAD` is missing"))?;
        let Some(name) = head.trim_end().strip_prefix("ref: ") else {
            return Ok(WorkspaceHead { commit: commit_id(&head)?, branch: None });
        };
        let branch = name.strip_prefix("refs/heads/").filter(|branch| check_reference(branch).is_ok());
        let branch = branch.ok_or_else(|| broken("`.git/HEAD` names no branch"))?;
        let commit = match self.text(name, REF_BYTES)? {
            Some(text) => commit_id(&text)?,
            None => {
                let packed = self.text("packed-refs", PACKED_BYTES)?.unwrap_or_default();
                let line = packed.lines().find_map(|line| line.split_once(' ').filter(|(_, found)| *found == name));
                commit_id(line.ok_or_else(|| broken("the current branch has no commit"))?.0)?
            }
        };
        Ok(WorkspaceHead { commit, branch: Some(branch.to_owned()) })
    }

    /// Copies loose objects to `objects`, and returns the packs that `is_known` does not accept.
    ///
    /// # Errors
    /// There are too many objects, more than `limit` bytes, or one is no regular file.
    pub(super) fn export_objects(
        &self,
        objects: &Path,
        limit: u64,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Vec<File>, RepositoryError> {
        let (mut left, mut count) = (limit, 0);
        for byte in 0..=u8::MAX {
            let prefix = format!("{byte:02x}");
            let names = self.names(&format!("objects/{prefix}"), MAX_LOOSE + 1, |name| is_hex(name, 38))?;
            count += names.len();
            if count > MAX_LOOSE {
                return Err(broken(&format!("it has more than {MAX_LOOSE} loose objects; run `git gc` in it")));
            }
            for name in names {
                let path = format!("objects/{prefix}/{name}");
                let Some(file) = self.file(&path)? else { continue };
                let Some(bytes) = read_limited(file, left)? else { return Err(self.too_large(limit)) };
                left -= bytes.len() as u64;
                fs::create_dir_all(objects.join(&prefix))?;
                fs::write(objects.join(&prefix).join(&name), bytes)?;
            }
        }
        let is_pack = |name: &[u8]| {
            let stem = name.strip_prefix(b"pack-").and_then(|rest| rest.strip_suffix(b".pack"));
            stem.is_some_and(|stem| is_hex(stem, 40))
        };
        let mut packs = Vec::new();
        for name in self.names("objects/pack", MAX_PACKS + 1, is_pack)?.iter().filter(|name| !is_known(name)) {
            let Some(file) = self.file(&format!("objects/pack/{name}"))? else { continue };
            left = left.checked_sub(file.metadata()?.len()).ok_or_else(|| self.too_large(limit))?;
            packs.push(file);
            if packs.len() > MAX_PACKS {
                return Err(broken(&format!("it has more than {MAX_PACKS} packs; run `git gc` in it")));
            }
        }
        Ok(packs)
    }

    fn too_large(&self, limit: u64) -> RepositoryError {
        RepositoryError::TooLarge(bytesize::ByteSize(limit))
    }

    fn path(&self, below: &str) -> Result<InnerPath, RepositoryError> {
        let joined = below.split('/').try_fold(self.git.clone(), |path, part| path.join(part.as_bytes()));
        joined.ok_or_else(|| broken("a path in it is too long"))
    }

    /// Opens a regular file. `None` if it is missing.
    fn file(&self, below: &str) -> Result<Option<File>, RepositoryError> {
        match self.tree.open_file(&self.path(below)?) {
            Err(crate::files::FileError::Missing(_)) => Ok(None),
            file => Ok(Some(file?)),
        }
    }

    fn text(&self, below: &str, limit: u64) -> Result<Option<String>, RepositoryError> {
        let Some(file) = self.file(below)? else { return Ok(None) };
        let bytes = read_limited(file, limit)?.ok_or_else(|| broken(&format!("`.git/{below}` is too long")))?;
        Ok(Some(String::from_utf8(bytes).map_err(|_| broken(&format!("`.git/{below}` is no text")))?))
    }

    /// Returns the smallest names of a directory, which may be missing.
    fn names(
        &self,
        below: &str,
        count: usize,
        accepts: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<String>, RepositoryError> {
        let path = self.path(below)?;
        let dir = match self.tree.open_dir(&path) {
            Err(crate::files::FileError::Missing(_)) => return Ok(Vec::new()),
            dir => dir?,
        };
        let found = NameScan { path: &path, after: None, count, is_cancelled: &|| false }.run(dir, accepts)?;
        Ok(found.into_iter().filter_map(|found| String::from_utf8(found.name).ok()).collect())
    }
}

fn broken(reason: &str) -> RepositoryError {
    RepositoryError::Workspace(reason.to_owned())
}

fn commit_id(text: &str) -> Result<String, RepositoryError> {
    let id = text.trim();
    if is_hex(id.as_bytes(), 40) { Ok(id.to_owned()) } else { Err(broken("`HEAD` names no commit")) }
}

fn is_hex(text: &[u8], length: usize) -> bool {
    text.len() == length && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Writes the head of a repository of the server's own, without git.
pub(super) fn write_ref(repository: &Path, name: &str, commit: &str) -> io::Result<()> {
    let path = repository.join(name);
    fs::create_dir_all(path.parent().unwrap_or(repository))?;
    fs::write(path, format!("{commit}\n"))
}
