//! Way of commits out of a workspace: into a quarantine, from there into the server's bare clone,
//! and from there to the repository.

use std::{fs, path::Path};

use super::{
    PushRequest, PushState, PushedBranch, Repositories, RepositoryCommit, RepositoryStatus,
    address::check_reference,
    clone::{ClonePaths, CloneRecord, blocking},
    error::RepositoryError,
    git_program::{GitCall, GitTransport},
    workspace_git::{WorkspaceGit, WorkspaceHead, write_ref},
};
use crate::{
    sandbox::remove_tree,
    store::{SessionId, SessionRepository},
};

/// Commits in a status.
pub(super) const MAX_COMMITS: usize = 100;
/// Program that a push to a directory of this host starts there. The directory's hooks do not run.
const RECEIVE_PACK: &str = "--receive-pack=git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c \
                            core.alternateRefsCommand=true -c receive.autogc=false receive-pack";
/// Checks of new objects, without those that old and harmless histories fail.
const FSCK: [&str; 10] = [
    "-c",
    "transfer.fsckObjects=true",
    "-c",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "-c",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "-c",
    "fetch.fsck.badTimezone=ignore",
    "-c",
    "fetch.fsck.missingEmail=ignore",
];

impl Repositories {
    pub(super) async fn read_status(
        &self,
        id: SessionId,
        repository: &SessionRepository,
    ) -> Result<RepositoryStatus, RepositoryError> {
        let ClonePaths { bare, .. } = self.paths_of(id);
        let record = match CloneRecord::read(&bare) {
            Some(record) => Some(record),
            None if repository.commit.is_some() => Some(self.ensure_bare(id, repository).await?),
            None => None,
        };
        let mut status = self.bare_status(repository, record.as_ref());
        let Some(record) = record else { return Ok(status) };
        let head = match self.import_head(id, &bare).await {
            Ok(head) => head,
            // The files of an ended session may be gone, and an agent may have broken its own.
            Err(RepositoryError::Workspace(reason) | RepositoryError::Git(reason)) => {
                status.push = PushState { possible: false, reason: Some(reason) };
                return Ok(status);
            }
            Err(error) => return Err(error),
        };
        status.commits = self.commits(&bare, &record.commit, &head.commit).await?;
        status.branch = head.branch.or(status.branch);
        status.head = Some(head.commit);
        Ok(status)
    }

    /// Returns the status without a look at the workspace.
    pub(super) fn bare_status(&self, repository: &SessionRepository, record: Option<&CloneRecord>) -> RepositoryStatus {
        RepositoryStatus {
            url: repository.url.clone(),
            reference: repository.reference.clone(),
            base_commit: record.map(|record| record.commit.clone()),
            branch: record.map(|record| record.branch.clone()),
            head: None,
            commits: Vec::new(),
            pushed: record.and_then(|record| record.pushed.clone()),
            push: self.push_state(repository, record.is_some()),
        }
    }

    fn push_state(&self, repository: &SessionRepository, is_cloned: bool) -> PushState {
        let reason = match self.remote(&repository.url) {
            _ if !is_cloned => Some(RepositoryError::NotCloned.to_string()),
            Err(error) => Some(error.to_string()),
            Ok(remote) => match remote.host {
                Some(host)
                    if remote.transport == GitTransport::Https
                        && !self.config.use_credential_helper
                        && self.configured_credential(&host).is_none() =>
                {
                    Some(RepositoryError::NoCredentials { host }.to_string())
                }
                Some(_) | None => None,
            },
        };
        PushState { possible: reason.is_none(), reason }
    }

    pub(super) async fn push_head(
        &self,
        id: SessionId,
        repository: &SessionRepository,
        request: PushRequest,
    ) -> Result<PushedBranch, RepositoryError> {
        let ClonePaths { bare, .. } = self.paths_of(id);
        if let Some(branch) = &request.branch {
            check_reference(branch)?;
        }
        let mut record = self.ensure_bare(id, repository).await?;
        let remote = self.remote(&repository.url)?;
        let WorkspaceHead { commit, .. } = self.import_head(id, &bare).await?;
        // Never the branch of the workspace's HEAD, which an agent chooses.
        let branch = request.branch.unwrap_or_else(|| record.branch.clone());
        let force = if request.force { "+" } else { "" };
        let refspec = format!("{force}{commit}:refs/heads/{branch}");
        let pushed = self.transfer(&remote, |credential| {
            let args = ["push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags"];
            let call = GitCall { credential, ..GitCall::local(&bare, &args) }.over(remote.transport);
            let call = if remote.transport == GitTransport::File { call.arg(RECEIVE_PACK) } else { call };
            call.arg("--").arg(&remote.address).arg(&refspec)
        });
        if let Err(failure) = pushed.await? {
            return Err(match rejection(&failure.stdout) {
                Some(reason) if reason.contains("non-fast-forward") || reason.contains("fetch first") => {
                    RepositoryError::NotFastForward(branch)
                }
                Some(reason) => RepositoryError::PushRejected(reason),
                None => RepositoryError::Git(failure.detail()),
            });
        }
        let pushed = PushedBranch { branch, commit };
        record.pushed = Some(pushed.clone());
        blocking(move || Ok(record.write(&bare)?)).await?;
        Ok(pushed)
    }

    /// Takes the commit of the workspace's `HEAD`, with all that it needs, into the bare clone.
    ///
    /// The quarantine has only objects. Git computes their names anew, checks them, and takes over
    /// those that the commit needs.
    async fn import_head(&self, id: SessionId, bare: &Path) -> Result<WorkspaceHead, RepositoryError> {
        let ClonePaths { workspace, .. } = self.paths_of(id);
        let head = blocking({
            let workspace = workspace.clone();
            move || WorkspaceGit::open(&workspace)?.head()
        })
        .await?;
        if self.has_history(bare, &head.commit).await? {
            return Ok(head);
        }
        let attempt = self.attempt_dir(id)?;
        let imported = self.import_into(&attempt, &workspace, bare, &head.commit).await;
        remove_tree::remove_trees(vec![attempt]).await?;
        imported.map(|()| head)
    }

    /// Returns true if the bare clone has a commit from an earlier import or from the clone.
    async fn has_history(&self, bare: &Path, commit: &str) -> Result<bool, RepositoryError> {
        let contains = GitCall::local(bare, &["for-each-ref", "--count=1", "--format=%(refname)", "--contains"]);
        Ok(self.git.run(contains.arg(commit)).await?.is_ok_and(|found| !found.is_empty()))
    }

    async fn import_into(
        &self,
        attempt: &Path,
        workspace: &Path,
        bare: &Path,
        commit: &str,
    ) -> Result<(), RepositoryError> {
        let quarantine = attempt.join("quarantine");
        let limit = self.config.max_bytes;
        self.run(GitCall::plain(&["init", "--quiet", "--bare", "--template=", "--"]).arg(&quarantine)).await?;
        let packs = blocking({
            let (quarantine, workspace, bare) = (quarantine.clone(), workspace.to_owned(), bare.to_owned());
            let commit = commit.to_owned();
            move || {
                let objects = quarantine.join("objects");
                fs::create_dir_all(objects.join("info"))?;
                let shared = format!("{}\n", bare.join("objects").display());
                fs::write(objects.join("info/alternates"), shared)?;
                write_ref(&quarantine, "refs/heads/import", &commit)?;
                let is_known = |pack: &str| bare.join("objects/pack").join(pack).exists();
                WorkspaceGit::open(&workspace)?.export_objects(&objects, limit.as_u64(), is_known)
            }
        })
        .await?;
        for pack in packs {
            let index = GitCall::local(&quarantine, &["index-pack", "--stdin"]);
            let index = GitCall { stdin: Some(pack), growing: Some((attempt.to_owned(), limit)), ..index };
            self.run(index.arg(format!("--max-input-size={}", limit.as_u64()))).await.map_err(incomplete)?;
        }
        let mut fetch = GitCall::plain(&FSCK).arg("--git-dir").arg(bare).over(GitTransport::File);
        for arg in ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--"] {
            fetch = fetch.arg(arg);
        }
        fetch = fetch.arg(&quarantine).arg("+refs/heads/import:refs/greenroom/head");
        let fetch = GitCall { growing: Some((attempt.to_owned(), limit)), ..fetch };
        self.run(fetch).await.map_err(incomplete).map(drop)
    }

    async fn commits(&self, bare: &Path, base: &str, head: &str) -> Result<Vec<RepositoryCommit>, RepositoryError> {
        let log = GitCall::local(bare, &["log", "-z", "--no-show-signature", "--no-mailmap", "--no-color"]);
        let log = log.arg(format!("--max-count={MAX_COMMITS}")).arg("--format=%H%x1f%aI%x1f%an%x1f%s");
        let text = self.run(log.arg("--end-of-options").arg(format!("{base}..{head}")).arg("--")).await?;
        let commit = |line: &str| {
            let mut parts = line.splitn(4, '\u{1f}').map(str::to_owned);
            Some(RepositoryCommit {
                id: parts.next()?,
                at: parts.next()?,
                author: parts.next()?,
                subject: parts.next()?,
            })
        };
        Ok(text.split('\0').filter_map(commit).collect())
    }
}

/// Explains a failed import.
fn incomplete(error: RepositoryError) -> RepositoryError {
    match error {
        RepositoryError::Git(reason) => RepositoryError::Workspace(format!(
            "its objects are damaged, incomplete or changing ({reason}); run `git fsck` in it, and try again"
        )),
        error => error,
    }
}

/// Returns the reason in the machine-readable answer of a push, if a branch was rejected.
fn rejection(porcelain: &str) -> Option<String> {
    let line = porcelain.lines().find(|line| line.starts_with('!'))?;
    let reason = line.rsplit('\t').next().unwrap_or(line);
    Some(reason.chars().filter(|c| !c.is_control()).take(300).collect())
}
