//! Repositories of sessions: cloned into a workspace at the start, pushed from it later.
//!
//! The host's `git` runs, because no library pushes. It never has a workspace as its repository: an
//! agent can write configuration there that runs programs. Credentials stay on the server.
//!
//! | module | content |
//! |---|---|
//! | `error` · `address` | failures; addresses and references of users |
//! | `git_program` | the program, its closed environment, its limits, credentials |
//! | `clone` | bare clone, files of the workspace |
//! | `workspace_git` | hostile `.git`, read as bytes |
//! | `push` | quarantine, status, push |
//! | `message` | question for a commit message, cleaned answer |
//!
//! See docs/internals/repository.md.

use std::{fs, io, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::{
    config::RepositoriesConfig,
    sandbox::{KeyedMutex, WorkspaceDirs},
    store::{SessionId, SessionRepository},
};

mod address;
mod clone;
mod error;
mod git_program;
mod message;
mod push;
#[cfg(test)]
mod tests;
mod workspace_git;

pub use error::RepositoryError;
pub use message::{COMMIT_MESSAGE_SYSTEM, DescribedFile, clean_message, commit_question};

use self::{address::RepositoryPlace, git_program::GitProgram};

/// Transfers at the same time. Further ones wait.
const MAX_RUNNING: usize = 4;
/// Repositories of a source in a list.
const MAX_LISTED: usize = 200;

/// Repositories of all sessions.
#[derive(Debug)]
pub struct Repositories {
    root: PathBuf,
    workspaces: WorkspaceDirs,
    sources: Vec<PathBuf>,
    config: RepositoriesConfig,
    git: GitProgram,
    locks: KeyedMutex,
    running: Semaphore,
}

/// Complete clone in a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClonedRepository {
    /// Commit that the workspace began with.
    pub commit: String,
    /// Branch of the session.
    pub branch: String,
}

/// Request for a push. Without a branch: the workspace's current one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushRequest {
    pub branch: Option<String>,
    /// Replaces commits of the branch.
    pub force: bool,
}

/// Branch as it was pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedBranch {
    pub branch: String,
    pub commit: String,
}

/// Commit of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryCommit {
    pub id: String,
    pub subject: String,
    pub author: String,
    /// RFC 3339, in the author's time zone.
    pub at: String,
}

/// Answer to the question if a push can be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushState {
    pub possible: bool,
    /// Reason if not.
    pub reason: Option<String>,
}

/// State of a session's repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryStatus {
    pub url: String,
    pub reference: Option<String>,
    /// Commit that the workspace began with. `None` until cloned.
    pub base_commit: Option<String>,
    /// Current branch.
    pub branch: Option<String>,
    /// Newest commit. `None` if the workspace's repository cannot be read.
    pub head: Option<String>,
    /// Commits after `base_commit`, newest first, at most 100.
    pub commits: Vec<RepositoryCommit>,
    pub pushed: Option<PushedBranch>,
    pub push: PushState,
}

/// Source of repositories on this host, with the names of those directly below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositorySource {
    pub path: PathBuf,
    pub repositories: Vec<String>,
}

impl Repositories {
    /// Returns the repositories below `root`, which need not exist. `sources` are directories whose
    /// repositories sessions may name by path.
    pub fn new(
        root: PathBuf,
        workspaces: WorkspaceDirs,
        sources: Vec<PathBuf>,
        config: RepositoriesConfig,
    ) -> Arc<Repositories> {
        let git = GitProgram::new(root.join("home"), config.clone_timeout.0);
        let running = Semaphore::new(MAX_RUNNING);
        Arc::new(Repositories { root, workspaces, sources, config, git, locks: KeyedMutex::default(), running })
    }

    /// Returns repositories with the default limits, of workspaces in `dir`.
    #[cfg(test)]
    pub(crate) fn below(dir: &std::path::Path) -> Arc<Repositories> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let dirs = WorkspaceDirs { root: dir.join("workspaces"), shared: None, uid, gid };
        let config = crate::config::Config::with_data_dir(dir).repositories;
        Repositories::new(dir.join("repositories"), dirs, Vec::new(), config)
    }

    /// Checks a repository and a reference of a new session. Opens no connection.
    ///
    /// # Errors
    /// The address is not permitted, the reference is no name, or sessions share one workspace.
    pub fn check(&self, repo: &str, reference: Option<&str>) -> Result<SessionRepository, RepositoryError> {
        if self.workspaces.shared.is_some() {
            let reason = "all sessions share one workspace, so none can be a clone; leave `repo` out";
            return Err(RepositoryError::BadAddress(reason.to_owned()));
        }
        let place = RepositoryPlace::parse(repo, &self.sources)?;
        reference.map_or(Ok(()), address::check_reference)?;
        Ok(SessionRepository { url: place.text(), reference: reference.map(str::to_owned), commit: None, branch: None })
    }

    /// Clones a session's repository into its workspace, on a branch of its own. No sandbox may run
    /// meanwhile. Calls `begun` first, unless the clone is complete already.
    ///
    /// Dropping the future ends the clone; the next call begins it again.
    ///
    /// # Errors
    /// The workspace is then as before.
    pub async fn clone_into_workspace(
        &self,
        id: SessionId,
        repository: &SessionRepository,
        begun: impl FnOnce(),
    ) -> Result<ClonedRepository, RepositoryError> {
        let lock = self.locks.of(id);
        let _alone = lock.lock().await;
        let _permit = self.running.acquire().await.map_err(|_| RepositoryError::Closing)?;
        let clone::CloneRecord { commit, branch, .. } = self.clone_session(id, repository, begun).await?;
        Ok(ClonedRepository { commit, branch })
    }

    /// Returns branch, commits and pushes. The workspace may be hostile.
    ///
    /// # Errors
    /// Git does not run, or the disk fails.
    pub async fn status(
        &self,
        id: SessionId,
        repository: &SessionRepository,
    ) -> Result<RepositoryStatus, RepositoryError> {
        let lock = self.locks.of(id);
        let _alone = match lock.try_lock() {
            Ok(alone) => alone,
            // The clone is in progress.
            Err(_) if repository.commit.is_none() => return Ok(self.bare_status(repository, None)),
            Err(_) => lock.lock().await,
        };
        self.read_status(id, repository).await
    }

    /// Pushes the workspace's current commit. The workspace may be hostile.
    ///
    /// # Errors
    /// The repository rejects the push, or the workspace's objects are damaged.
    pub async fn push(
        &self,
        id: SessionId,
        repository: &SessionRepository,
        request: PushRequest,
    ) -> Result<PushedBranch, RepositoryError> {
        let lock = self.locks.of(id);
        let _alone = lock.lock().await;
        let _permit = self.running.acquire().await.map_err(|_| RepositoryError::Closing)?;
        self.push_head(id, repository, request).await
    }

    /// Removes the clones of a session. A missing one is no error.
    ///
    /// # Errors
    /// An entry cannot be removed.
    pub async fn purge(&self, id: SessionId) -> io::Result<()> {
        let lock = self.locks.of(id);
        let _alone = lock.lock().await;
        self.remove_leftovers(id).await
    }

    /// Lists the sources, each with at most 200 repositories.
    pub async fn sources(&self) -> Vec<RepositorySource> {
        let sources = self.sources.clone();
        let listed = tokio::task::spawn_blocking(move || sources.into_iter().map(list_source).collect());
        listed.await.unwrap_or_default()
    }
}

fn list_source(path: PathBuf) -> RepositorySource {
    let is_repository =
        |path: PathBuf| path.join(".git").exists() || path.join("HEAD").is_file() && path.join("objects").is_dir();
    let entries = fs::read_dir(&path).into_iter().flatten().flatten();
    let names =
        entries.filter(|entry| is_repository(entry.path())).filter_map(|entry| entry.file_name().into_string().ok());
    let mut repositories: Vec<String> = names.take(MAX_LISTED).collect();
    repositories.sort();
    RepositorySource { path, repositories }
}
