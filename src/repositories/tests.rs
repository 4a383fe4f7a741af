//! Clones and pushes with the real `git`, and workspaces as an attacker would leave them.

mod hostile;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use tempfile::TempDir;

use super::*;
use crate::config::Config;

/// Source repository, workspaces and clones in one directory.
pub(super) struct RepositoryFixture {
    pub(super) dir: TempDir,
    pub(super) repositories: Arc<Repositories>,
    pub(super) id: SessionId,
}

/// Runs git as a user would, without the configuration of this host.
pub(super) fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    let identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "protocol.file.allow=always"];
    command
        .current_dir(dir)
        .args(identity)
        .args(["-c", "init.defaultBranch=main", "-c", "safe.directory=*"])
        .args(args);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().expect("`git` is installed");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl RepositoryFixture {
    pub(super) fn new() -> RepositoryFixture {
        RepositoryFixture::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut RepositoriesConfig)) -> RepositoryFixture {
        let dir = tempfile::tempdir().expect("a directory");
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let dirs = WorkspaceDirs { root: dir.path().join("workspaces"), shared: None, uid, gid };
        let mut config = Config::with_data_dir(dir.path()).repositories;
        change(&mut config);
        let source = dir.path().join("code/project");
        fs::create_dir_all(&source).expect("a directory");
        git(&source, &["init", "--quiet"]);
        fs::write(source.join("readme"), "one\n").expect("a file");
        git(&source, &["add", "."]);
        git(&source, &["commit", "--quiet", "-m", "first"]);
        let sources = vec![dir.path().join("code")];
        let repositories = Repositories::new(dir.path().join("repositories"), dirs, sources, config);
        RepositoryFixture { dir, repositories, id: SessionId::generate() }
    }

    pub(super) fn source(&self) -> PathBuf {
        self.dir.path().join("code/project")
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspaces").join(self.id.to_string())
    }

    pub(super) fn repository(&self, reference: Option<&str>) -> SessionRepository {
        self.repositories.check("project", reference).expect("a valid repository")
    }

    pub(super) async fn clone(&self, reference: Option<&str>) -> Result<ClonedRepository, RepositoryError> {
        let mut begun = 0;
        let cloned =
            self.repositories.clone_into_workspace(self.id, &self.repository(reference), || begun += 1).await?;
        assert!(begun <= 1);
        Ok(cloned)
    }

    /// Commits a file in the workspace, as an agent would. Returns the commit.
    pub(super) fn commit(&self, text: &str) -> String {
        let workspace = self.workspace();
        fs::write(workspace.join("work"), text).expect("a file");
        git(&workspace, &["add", "-A"]);
        git(&workspace, &["commit", "--quiet", "-m", text]);
        git(&workspace, &["rev-parse", "HEAD"])
    }

    pub(super) async fn push(&self) -> Result<PushedBranch, RepositoryError> {
        self.repositories.push(self.id, &self.repository(None), PushRequest::default()).await
    }
}

#[tokio::test]
async fn clone_has_files_a_branch_and_no_way_back() {
    let fixture = RepositoryFixture::new();
    let cloned = fixture.clone(None).await.expect("the clone succeeds");
    let workspace = fixture.workspace();
    assert_eq!(fs::read_to_string(workspace.join("readme")).expect("the file is there"), "one\n");
    assert_eq!(git(&workspace, &["symbolic-ref", "--short", "HEAD"]), cloned.branch);
    assert!(cloned.branch.starts_with("greenroom/"), "{}", cloned.branch);
    assert_eq!(git(&workspace, &["rev-parse", "HEAD"]), cloned.commit);
    assert_eq!(git(&workspace, &["remote", "get-url", "origin"]), fixture.source().display().to_string());
    assert!(!workspace.join(".git/objects/info/alternates").exists());
    fs::create_dir(workspace.join(".greenroom")).expect("a directory");
    fs::write(workspace.join(greenroom_protocol::plan::PLAN_PATH), "- [ ] Plan").expect("a plan");
    assert_eq!(git(&workspace, &["status", "--porcelain"]), "");
    // Again: nothing is done, and the agent's work stays.
    fixture.commit("two");
    assert_eq!(fixture.clone(None).await.expect("it is done"), cloned);
    assert!(workspace.join("work").exists());
    let left: Vec<_> = fs::read_dir(fixture.dir.path().join("repositories")).expect("a directory").flatten().collect();
    let names: Vec<_> = left.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().all(|name| !name.contains("attempt") && !name.ends_with(".files")), "{names:?}");
    fixture.repositories.purge(fixture.id).await.expect("the purge succeeds");
    assert!(!fixture.dir.path().join(format!("repositories/{}.git", fixture.id)).exists());
}

#[tokio::test]
async fn references_name_branches_tags_and_commits() {
    let fixture = RepositoryFixture::new();
    let source = fixture.source();
    let first = git(&source, &["rev-parse", "HEAD"]);
    git(&source, &["tag", "v1"]);
    git(&source, &["commit", "--quiet", "--allow-empty", "-m", "second"]);
    let second = git(&source, &["rev-parse", "HEAD"]);
    for (reference, expected) in
        [(None, &second), (Some("main"), &second), (Some("v1"), &first), (Some(&first[..8]), &first)]
    {
        let fixture = RepositoryFixture { id: SessionId::generate(), ..fixture_of(&fixture) };
        assert_eq!(&fixture.clone(reference).await.expect("the clone succeeds").commit, expected, "{reference:?}");
    }
    let missing = fixture.clone(Some("nowhere")).await;
    assert!(matches!(missing, Err(RepositoryError::NoReference(_))), "{missing:?}");
    assert!(!fixture.workspace().exists());
    // The next attempt begins again.
    git(&source, &["branch", "nowhere"]);
    fixture.clone(Some("nowhere")).await.expect("the clone succeeds");
}

/// Returns a fixture of another session with the same repositories.
fn fixture_of(fixture: &RepositoryFixture) -> RepositoryFixture {
    let dir = tempfile::tempdir_in(fixture.dir.path()).expect("a directory");
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let dirs = WorkspaceDirs { root: dir.path().join("workspaces"), shared: None, uid, gid };
    let config = Config::with_data_dir(dir.path()).repositories;
    let sources = vec![fixture.dir.path().join("code")];
    let repositories = Repositories::new(dir.path().join("repositories"), dirs, sources, config);
    RepositoryFixture { dir, repositories, id: fixture.id }
}

#[tokio::test]
async fn uploads_before_the_clone_stay_and_are_not_replaced() {
    let fixture = RepositoryFixture::new();
    fs::create_dir_all(fixture.workspace()).expect("a directory");
    fs::write(fixture.workspace().join("readme"), "mine").expect("a file");
    let taken = fixture.clone(None).await;
    assert!(matches!(&taken, Err(RepositoryError::NameTaken(name)) if name == "readme"), "{taken:?}");
    assert_eq!(fs::read_to_string(fixture.workspace().join("readme")).expect("the upload stays"), "mine");
    fs::rename(fixture.workspace().join("readme"), fixture.workspace().join("upload")).expect("a rename");
    fixture.clone(None).await.expect("the clone succeeds");
    assert_eq!(fs::read_to_string(fixture.workspace().join("upload")).expect("the upload stays"), "mine");
    assert_eq!(fs::read_to_string(fixture.workspace().join("readme")).expect("the file is there"), "one\n");
}

#[tokio::test]
async fn commits_are_listed_and_pushed() {
    let fixture = RepositoryFixture::new();
    let cloned = fixture.clone(None).await.expect("the clone succeeds");
    let first = fixture.commit("two");
    git(&fixture.workspace(), &["gc", "--quiet"]);
    let second = fixture.commit("three");
    let repository = SessionRepository { commit: Some(cloned.commit.clone()), ..fixture.repository(None) };
    let status = fixture.repositories.status(fixture.id, &repository).await.expect("a status");
    let ids: Vec<_> = status.commits.iter().map(|commit| (&commit.id, commit.subject.as_str())).collect();
    assert_eq!(ids, [(&second, "three"), (&first, "two")]);
    assert_eq!((status.head.as_ref(), status.pushed), (Some(&second), None));
    let pushed = fixture.push().await.expect("the push succeeds");
    assert_eq!(pushed, PushedBranch { branch: cloned.branch.clone(), commit: second.clone() });
    assert_eq!(git(&fixture.source(), &["rev-parse", &cloned.branch]), second);
    let status = fixture.repositories.status(fixture.id, &repository).await.expect("a status");
    assert_eq!(status.pushed, Some(pushed));

    // Another history is rejected, unless forced.
    git(&fixture.workspace(), &["reset", "--quiet", "--hard", &first]);
    let third = fixture.commit("four");
    let rejected = fixture.push().await;
    assert!(matches!(rejected, Err(RepositoryError::NotFastForward(_))), "{rejected:?}");
    let force = PushRequest { branch: None, force: true };
    fixture.repositories.push(fixture.id, &fixture.repository(None), force).await.expect("the push succeeds");
    assert_eq!(git(&fixture.source(), &["rev-parse", &cloned.branch]), third);

    // A branch that is checked out in the source.
    let main = PushRequest { branch: Some("main".to_owned()), force: false };
    let rejected = fixture.repositories.push(fixture.id, &fixture.repository(None), main).await;
    assert!(
        matches!(&rejected, Err(RepositoryError::PushRejected(reason)) if reason.contains("checked out")),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn imported_session_pushes_through_a_new_bare_clone() {
    let fixture = RepositoryFixture::new();
    let cloned = fixture.clone(None).await.expect("the clone succeeds");
    let commit = fixture.commit("two");
    fixture.repositories.purge(fixture.id).await.expect("the purge succeeds");
    let repository =
        SessionRepository { commit: Some(cloned.commit), branch: Some(cloned.branch), ..fixture.repository(None) };
    let pushed = fixture.repositories.push(fixture.id, &repository, PushRequest::default()).await;
    assert_eq!(pushed.expect("the push succeeds").commit, commit);
}

#[tokio::test]
async fn limits_end_a_clone() {
    let fixture = RepositoryFixture::with(|config| config.max_bytes = bytesize::ByteSize::kib(64));
    fs::write(fixture.source().join("large"), vec![0x5a; 64 << 20]).expect("a file");
    // Random enough not to be compressed.
    let mut bytes = vec![0; 32 << 20];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    fs::write(fixture.source().join("random"), bytes).expect("a file");
    git(&fixture.source(), &["add", "."]);
    git(&fixture.source(), &["commit", "--quiet", "-m", "large"]);
    let ended = fixture.clone(None).await;
    assert!(matches!(ended, Err(RepositoryError::TooLarge(_))), "{ended:?}");
    assert!(!fixture.workspace().exists());
}
