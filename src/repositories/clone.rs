//! Clone of a repository: first bare, for the server, then with files, for the workspace.
//!
//! All steps happen in a directory of this attempt. A workspace is either empty or complete: the
//! last step is a rename.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use reqwest::Url;
use rustix::{fs::syncfs, io::Errno};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::{
    PushedBranch, Repositories,
    address::{RepositoryPlace, resolve_directory},
    error::RepositoryError,
    git_program::{GitCall, GitCredential, GitFailure, GitTransport},
};
use crate::{
    sandbox::{change_owner, remove_tree},
    store::{SessionId, SessionRepository},
};

/// Rule of the clone for what commits leave out: the plan of the agent.
const NOT_COMMITTED: &str = "/.greenroom/\n";

/// File of a bare clone that is complete, with a [`CloneRecord`].
const RECORD_FILE: &str = "greenroom.json";

/// Facts about a complete clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CloneRecord {
    /// Commit that the workspace began with.
    pub(super) commit: String,
    /// Branch of the session.
    pub(super) branch: String,
    /// Newest push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pushed: Option<PushedBranch>,
}

/// Paths of a session's clone.
pub(super) struct ClonePaths {
    /// Bare clone.
    pub(super) bare: PathBuf,
    /// Complete files that have not been moved into the workspace.
    staged: PathBuf,
    pub(super) workspace: PathBuf,
}

/// Address of a transfer, and the ways to it.
pub(super) struct GitRemote {
    pub(super) address: String,
    pub(super) transport: GitTransport,
    pub(super) host: Option<String>,
}

impl CloneRecord {
    /// Returns the record of a complete clone.
    pub(super) fn read(bare: &Path) -> Option<CloneRecord> {
        serde_json::from_slice(&fs::read(bare.join(RECORD_FILE)).ok()?).ok()
    }

    pub(super) fn write(&self, bare: &Path) -> io::Result<()> {
        let (path, temporary) = (bare.join(RECORD_FILE), bare.join("greenroom.tmp"));
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        File::open(&temporary)?.sync_all()?;
        fs::rename(temporary, path)
    }
}

impl Repositories {
    pub(super) fn paths_of(&self, id: SessionId) -> ClonePaths {
        ClonePaths {
            bare: self.root.join(format!("{id}.git")),
            staged: self.root.join(format!("{id}.files")),
            workspace: self.workspaces.root.join(id.to_string()),
        }
    }

    /// Clones, and fills the workspace. Returns at once if that is done.
    pub(super) async fn clone_session(
        &self,
        id: SessionId,
        repository: &SessionRepository,
        begun: impl FnOnce(),
    ) -> Result<CloneRecord, RepositoryError> {
        let ClonePaths { bare, staged, workspace } = self.paths_of(id);
        let record = match CloneRecord::read(&bare) {
            Some(record) if !staged.exists() => return Ok(record),
            Some(record) => record,
            None => {
                begun();
                self.remove_leftovers(id).await?;
                let attempt = self.attempt_dir(id)?;
                let cloned = self.clone_to(&attempt, repository, branch_of(id)).await;
                if let Ok(record) = &cloned {
                    let (attempt, bare, staged, record) =
                        (attempt.clone(), bare.clone(), staged.clone(), record.clone());
                    blocking(move || keep(&attempt, &bare, &staged, &record)).await?;
                }
                remove_tree::remove_trees(vec![attempt]).await?;
                cloned?
            }
        };
        blocking(move || place(&staged, &workspace)).await?;
        Ok(record)
    }

    /// Clones bare if the server has no clone: the session was imported.
    pub(super) async fn ensure_bare(
        &self,
        id: SessionId,
        repository: &SessionRepository,
    ) -> Result<CloneRecord, RepositoryError> {
        let ClonePaths { bare, .. } = self.paths_of(id);
        if let Some(record) = CloneRecord::read(&bare) {
            return Ok(record);
        }
        let (Some(commit), Some(branch)) = (repository.commit.clone(), repository.branch.clone()) else {
            return Err(RepositoryError::NotCloned);
        };
        self.remove_leftovers(id).await?;
        let attempt = self.attempt_dir(id)?;
        let cloned = self.clone_bare(&attempt, repository).await;
        let record = CloneRecord { commit, branch, pushed: None };
        if cloned.is_ok() {
            let (from, record) = (attempt.join("bare"), record.clone());
            blocking(move || Ok(record.write(&from).and_then(|()| fs::rename(from, bare))?)).await?;
        }
        remove_tree::remove_trees(vec![attempt]).await?;
        cloned.map(|_| record)
    }

    /// Removes all traces of a session's clones.
    pub(super) async fn remove_leftovers(&self, id: SessionId) -> io::Result<()> {
        let begin = format!("{id}.");
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let is_own = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&begin);
        let mut trees: Vec<PathBuf> = entries.flatten().filter(is_own).map(|entry| entry.path()).collect();
        // The bare clone first: without it, nothing else counts.
        trees.sort_by_key(|path| path.extension().is_none_or(|extension| extension != "git"));
        remove_tree::remove_trees(trees).await
    }

    /// Creates a directory for one attempt. Programs of a killed server cannot get into it.
    pub(super) fn attempt_dir(&self, id: SessionId) -> io::Result<PathBuf> {
        let path = self.root.join(format!("{id}.attempt-{}", ulid::Ulid::generate()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    async fn clone_to(
        &self,
        attempt: &Path,
        repository: &SessionRepository,
        branch: String,
    ) -> Result<CloneRecord, RepositoryError> {
        let bare = self.clone_bare(attempt, repository).await?;
        let commit = self.resolve(&bare, repository.reference.as_deref()).await?;
        let files = attempt.join("files");
        let growing = Some((attempt.to_owned(), self.config.max_bytes));
        // Without hard links: the files change their owner.
        let args = ["clone", "--quiet", "--no-checkout", "--no-hardlinks", "--template=", "--origin", "origin"];
        let clone = GitCall { growing: growing.clone(), ..GitCall::plain(&args) }.over(GitTransport::File);
        self.run(clone.arg("--").arg(&bare).arg(&files)).await?;
        let git = files.join(".git");
        let info = git.join("info");
        blocking(move || {
            fs::create_dir_all(&info)?;
            Ok(fs::write(info.join("exclude"), NOT_COMMITTED)?)
        })
        .await?;
        for (key, value) in [
            ("remote.origin.url", &repository.url),
            ("user.name", &self.config.author_name),
            ("user.email", &self.config.author_email),
        ] {
            self.run(GitCall::local(&git, &["config", "--replace-all", "--end-of-options", key]).arg(value)).await?;
        }
        let mut checkout = GitCall { growing, ..GitCall::plain(&["--git-dir"]) };
        checkout = checkout.arg(&git).arg("--work-tree").arg(&files);
        for arg in ["checkout", "--quiet", "--no-track", "-b", &branch, &commit] {
            checkout = checkout.arg(arg);
        }
        self.run(checkout).await?;
        Ok(CloneRecord { commit, branch, pushed: None })
    }

    async fn clone_bare(&self, attempt: &Path, repository: &SessionRepository) -> Result<PathBuf, RepositoryError> {
        let remote = self.remote(&repository.url)?;
        let bare = attempt.join("bare");
        let cloned = self.transfer(&remote, |credential| {
            // What an attempt without a credential left.
            let _is_missing = fs::remove_dir_all(&bare);
            let growing = Some((attempt.to_owned(), self.config.max_bytes));
            let call =
                GitCall { credential, growing, ..GitCall::plain(&["clone", "--quiet", "--bare", "--template="]) };
            call.over(remote.transport).arg("--").arg(&remote.address).arg(&bare)
        });
        cloned.await?.map_err(|failure| RepositoryError::Git(failure.detail()))?;
        Ok(bare)
    }

    /// Returns the commit that a reference names.
    async fn resolve(&self, bare: &Path, reference: Option<&str>) -> Result<String, RepositoryError> {
        let (names, missing) = match reference {
            None => (vec!["HEAD".to_owned()], RepositoryError::NoCommit),
            Some(name) => {
                let is_commit = (7..=40).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_hexdigit());
                let names = [format!("refs/heads/{name}"), format!("refs/tags/{name}")];
                let names = names.into_iter().chain(is_commit.then(|| name.to_owned())).collect();
                (names, RepositoryError::NoReference(name.to_owned()))
            }
        };
        for name in names {
            let parse = GitCall::local(bare, &["rev-parse", "--verify", "--quiet", "--end-of-options"]);
            if let Ok(commit) = self.git.run(parse.arg(format!("{name}^{{commit}}"))).await? {
                return Ok(commit.trim().to_owned());
            }
        }
        Err(missing)
    }

    /// Returns the remote of an address that a record has. The rules are those of now.
    pub(super) fn remote(&self, url: &str) -> Result<GitRemote, RepositoryError> {
        let place = RepositoryPlace::parse(url, &self.sources)?;
        let host = place.host();
        match place {
            RepositoryPlace::Directory(path) => {
                let path = resolve_directory(&path, &self.sources)?;
                // A file address: git reads the source through its own server program, and copies
                // no links.
                let address = Url::from_file_path(&path).map_or_else(|()| path.display().to_string(), String::from);
                Ok(GitRemote { address, transport: GitTransport::File, host })
            }
            RepositoryPlace::Web(url) => {
                let transport = if url.scheme() == "https" { GitTransport::Https } else { GitTransport::Http };
                Ok(GitRemote { address: url.into(), transport, host })
            }
        }
    }

    /// Runs a transfer, with the configured credential if the server asks for one. Then with that
    /// of the host's helpers.
    pub(super) async fn transfer(
        &self,
        remote: &GitRemote,
        call: impl Fn(Option<GitCredential>) -> GitCall,
    ) -> Result<Result<String, GitFailure>, RepositoryError> {
        let host = remote.host.clone().unwrap_or_default();
        let mut credential = self.configured_credential(&host);
        let mut ended = self.git.run(call(credential.clone())).await?;
        let wants_credential = |ended: &Result<String, GitFailure>| {
            remote.host.is_some() && ended.as_ref().is_err_and(GitFailure::wants_credential)
        };
        if wants_credential(&ended) && credential.is_none() && self.config.use_credential_helper {
            credential = self.git.ask_helpers(remote.transport, &host).await;
            if credential.is_some() {
                ended = self.git.run(call(credential.clone())).await?;
            }
        }
        match (wants_credential(&ended), credential) {
            (true, None) => Err(RepositoryError::NoCredentials { host }),
            (true, Some(_)) => Err(RepositoryError::CredentialsRejected { host }),
            (false, _) => Ok(ended),
        }
    }

    pub(super) fn configured_credential(&self, host: &str) -> Option<GitCredential> {
        let found = self.config.credentials.iter().find(|entry| entry.host.eq_ignore_ascii_case(host))?;
        let password = found.token.expose()?.to_owned();
        Some(GitCredential { host: host.to_owned(), username: found.username.clone(), password })
    }

    /// Runs git, and turns its failure into an error.
    pub(super) async fn run(&self, call: GitCall) -> Result<String, RepositoryError> {
        self.git.run(call).await?.map_err(|failure| RepositoryError::Git(failure.detail()))
    }
}

/// Returns the branch of a session.
fn branch_of(id: SessionId) -> String {
    let id = id.to_string().to_lowercase();
    format!("greenroom/{}", &id[id.len() - 8..])
}

/// Keeps a complete clone. The bare clone gets its name last.
fn keep(attempt: &Path, bare: &Path, staged: &Path, record: &CloneRecord) -> Result<(), RepositoryError> {
    record.write(&attempt.join("bare"))?;
    fs::rename(attempt.join("files"), staged)?;
    syncfs(File::open(attempt)?).map_err(io::Error::from)?;
    fs::rename(attempt.join("bare"), bare)?;
    Ok(())
}

/// Moves complete files to the workspace. Uploads that came before stay.
fn place(staged: &Path, workspace: &Path) -> Result<(), RepositoryError> {
    fs::set_permissions(staged, fs::Permissions::from_mode(0o700))?;
    if let Ok(found) = fs::symlink_metadata(workspace) {
        for entry in fs::read_dir(workspace)? {
            let entry = entry?;
            let target = staged.join(entry.file_name());
            if target.symlink_metadata().is_ok() {
                return Err(RepositoryError::NameTaken(entry.file_name().to_string_lossy().into_owned()));
            }
            fs::rename(entry.path(), target)?;
        }
        change_owner(staged, found.uid(), found.gid())?;
    } else {
        fs::create_dir_all(workspace.parent().unwrap_or(workspace))?;
    }
    match rustix::fs::rename(staged, workspace) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => Err(RepositoryError::NameTaken("a file".to_owned())),
        renamed => Ok(renamed.map_err(io::Error::from)?),
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RepositoryError> + Send + 'static,
) -> Result<T, RepositoryError> {
    spawn_blocking(work).await.unwrap_or(Err(RepositoryError::Closing))
}
