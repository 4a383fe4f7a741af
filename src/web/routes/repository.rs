//! Repository of a session: state, commits, their messages, pushes. Repositories for the form.

use std::time::Duration;

use actix_web::{
    HttpResponse,
    http::StatusCode,
    web::{Data, Json},
};
use greenroom_protocol::{client::ClientRequest, tool::FileChangeKind};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::sessions::Receipt;
use crate::{
    api_schema::FilledTextSchema,
    checkpoints::{DiffRange, DiffedFile},
    files::InnerPath,
    gateway::{ModelQuestion, QuestionError},
    repositories::{
        COMMIT_MESSAGE_SYSTEM, DescribedFile, PushRequest, PushState, PushedBranch, RepositoryCommit, RepositoryError,
        RepositorySource, RepositoryStatus, clean_message, commit_question,
    },
    session::{BeginUserCall, BranchPushed, UserCall, messages::Relay},
    store::{self, ArchiveFilter, SessionId, SessionRepository},
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::{IdempotencyKeyHeader, RequestedBy, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![get_repository, commit_repository, propose_commit_message, push_repository, list_repositories];

/// Time limit for a proposed commit message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of the answer's tokens, with the thinking of models that always think.
const MESSAGE_TOKENS: u64 = 4_096;
/// Sessions whose repositories are offered again.
const RECENT_SESSIONS: usize = 200;
/// Repositories that are offered again.
const RECENT_REPOSITORIES: usize = 10;

/// State of a session's repository.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Repository)]
struct RepositoryAnswer {
    /// Address or path, without credentials.
    url: String,
    /// Requested branch, tag or commit.
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Commit that the workspace began with; `null` until cloned.
    base_commit: Option<String>,
    /// Current branch; `null` until cloned.
    branch: Option<String>,
    /// Newest commit; `null` if the workspace's repository cannot be read.
    head: Option<String>,
    /// Commits after `base_commit`, newest first, at most 100.
    commits: Vec<CommitRow>,
    /// Newest push.
    pushed: Option<PushedRow>,
    push: PushRow,
}

/// Commit of a session.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = RepositoryCommit)]
struct CommitRow {
    id: String,
    subject: String,
    author: String,
    /// RFC 3339, in the author's time zone.
    at: String,
}

/// Branch and commit of a push.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = RepositoryPush)]
struct PushedRow {
    branch: String,
    commit: String,
}

/// Tells if a push can be tried.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = RepositoryPushState)]
struct PushRow {
    possible: bool,
    /// Reason if not.
    reason: Option<String>,
}

impl From<RepositoryStatus> for RepositoryAnswer {
    fn from(status: RepositoryStatus) -> RepositoryAnswer {
        let RepositoryStatus { url, reference, base_commit, branch, head, commits, pushed, push } = status;
        let commit = |RepositoryCommit { id, subject, author, at }| CommitRow { id, subject, author, at };
        let PushState { possible, reason } = push;
        RepositoryAnswer {
            url,
            reference,
            base_commit,
            branch,
            head,
            commits: commits.into_iter().map(commit).collect(),
            pushed: pushed.map(|PushedBranch { branch, commit }| PushedRow { branch, commit }),
            push: PushRow { possible, reason },
        }
    }
}

/// Commit of all changes in the workspace.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewCommit {
    #[schema(value_type = FilledTextSchema)]
    message: String,
}

/// Proposed message of a commit.
#[derive(Serialize, utoipa::ToSchema)]
struct ProposedMessage {
    message: String,
}

/// Push of the workspace's current commit.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPush {
    /// Branch in the repository. Default: the workspace's current branch.
    #[serde(default)]
    branch: Option<String>,
    /// Replaces the branch, even if commits of it get lost.
    #[serde(default)]
    force: bool,
}

/// Completed push.
#[derive(Serialize, utoipa::ToSchema)]
struct CompletedPush {
    url: String,
    branch: String,
    commit: String,
}

/// Repositories that a new session may clone.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Repositories)]
struct RepositoryListAnswer {
    sources: Vec<SourceRow>,
    /// Repositories of the newest sessions, newest first, at most 10.
    recent: Vec<RecentRow>,
}

/// Directory of this host with repositories.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = RepositorySource)]
struct SourceRow {
    path: String,
    /// Names directly below `path`, at most 200.
    repositories: Vec<String>,
}

/// Repository of an earlier session.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = RecentRepository)]
struct RecentRow {
    url: String,
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// RFC 3339, UTC, milliseconds.
    used_at: String,
}

/// Returns branch, commits and pushes of a session's repository.
///
/// Works in every state of the session.
#[utoipa::path(get, path = "/api/sessions/{id}/repository", tag = "repositories", params(SessionPath),
    responses((status = 200, body = RepositoryAnswer, description = "The repository."),
        (status = 404, body = ErrorAnswer, description = "The session has no repository (`no_repository`), or does \
            not exist (`not_found`)."),
        (status = 502, body = ErrorAnswer, description = "The repository cannot be cloned again (`git_failed`)."),
        (status = 507, body = ErrorAnswer, description = "The disk is full (`disk_full`).")))]
async fn get_repository(services: Data<WebServices>, id: SessionPath) -> ApiResult {
    let repository = repository_of(&services, id.0).await?;
    let status = services.repositories.status(id.0, &repository).await?;
    Ok(HttpResponse::Ok().json(RepositoryAnswer::from(status)))
}

/// Commits all changes, as a command of the user in the sandbox.
///
/// The result is the command's observation. A sandbox without `git` reports exit code 127.
#[utoipa::path(post, path = "/api/sessions/{id}/repository/commit", tag = "repositories", request_body = NewCommit,
    params(SessionPath, IdempotencyKeyHeader),
    responses((status = 202, body = Receipt, description = "The command is in the journal."),
        (status = 404, body = ErrorAnswer, description = "The session has no repository (`no_repository`), or does \
            not exist (`not_found`).")))]
async fn commit_repository(
    services: Data<WebServices>,
    id: SessionPath,
    commit: Json<NewCommit>,
    key: IdempotencyKeyHeader,
    by: RequestedBy,
) -> ApiResult {
    if commit.message.trim().is_empty() {
        return Err(ApiError::invalid("`message` is empty"));
    }
    repository_of(&services, id.0).await?;
    let request = ClientRequest::Run { command: commit_command(&commit.message) };
    let relay = Relay { request, idempotency_key: key.0, requested_by: by.0 };
    let accepted = services.send_to_session(id.0, relay).await??;
    Ok(HttpResponse::Accepted().json(Receipt::from(accepted)))
}

/// Asks the session's model for the message of a commit of all changes.
///
/// The call counts towards the session's usage and budget. Works in every state but `ended`, also
/// while a turn runs, and ends if the client leaves.
#[utoipa::path(post, path = "/api/sessions/{id}/repository/message", tag = "repositories", params(SessionPath),
    responses((status = 200, body = ProposedMessage, description = "The message."),
        (status = 402, body = ErrorAnswer, description = "A budget does not allow the call (`budget_spent`)."),
        (status = 404, body = ErrorAnswer, description = "The session has no repository (`no_repository`), or does \
            not exist (`not_found`)."),
        (status = 409, body = ErrorAnswer, description = "Nothing has changed (`no_changes`), the repository is not \
            cloned yet (`not_cloned`), the session has ended (`ended`), or sessions have no checkpoints \
            (`conflict`)."),
        (status = 502, body = ErrorAnswer, description = "The model gives no message (`model_failed`).")))]
async fn propose_commit_message(services: Data<WebServices>, id: SessionPath) -> ApiResult {
    let repository = repository_of(&services, id.0).await?;
    if repository.commit.is_none() {
        return Err(RepositoryError::NotCloned.into());
    }
    let range = DiffRange { from: "start".to_owned(), to: "now".to_owned(), scope: InnerPath::default() };
    let diff = services.checkpoints.diff(id.0, range).await?;
    if diff.files.is_empty() {
        let message = "nothing has changed since the clone; change a file first";
        return Err(ApiError::new(StatusCode::CONFLICT, "no_changes", message));
    }
    // An unreadable history costs only precision: the question then names no earlier commits.
    let earlier = services.repositories.status(id.0, &repository).await.map(|status| status.commits);
    let earlier: Vec<_> = earlier.unwrap_or_default().into_iter().map(|commit| commit.subject).collect();
    let files: Vec<_> = diff.files.into_iter().map(described).collect();
    let UserCall { model, account } = services.send_to_session(id.0, BeginUserCall).await??;
    let text = commit_question(&files, diff.more, &earlier);
    let question = ModelQuestion { model: &model, system: COMMIT_MESSAGE_SYSTEM, text, max_tokens: MESSAGE_TOKENS };
    let failed = |reason: String| ApiError::new(StatusCode::BAD_GATEWAY, "model_failed", reason);
    let answer = timeout(MESSAGE_TIMEOUT, services.gateway.ask(account, question)).await;
    let answer = answer
        .map_err(|_| failed(format!("the model has not answered within {} s; try again", MESSAGE_TIMEOUT.as_secs())))?;
    let answer = answer.map_err(|error| match error {
        QuestionError::Denied(reason) => ApiError::new(StatusCode::PAYMENT_REQUIRED, "budget_spent", reason),
        QuestionError::Failed(reason) => failed(reason),
    })?;
    let message = clean_message(&answer).ok_or_else(|| failed("the model's answer has no message".to_owned()))?;
    Ok(HttpResponse::Ok().json(ProposedMessage { message }))
}

/// Pushes the workspace's current commit to the repository that it was cloned from.
///
/// The push is completed even if the client leaves.
#[utoipa::path(post, path = "/api/sessions/{id}/repository/push", tag = "repositories", request_body = NewPush,
    params(SessionPath),
    responses((status = 200, body = CompletedPush, description = "The commit is pushed."),
        (status = 404, body = ErrorAnswer, description = "The session has no repository (`no_repository`), or does \
            not exist (`not_found`)."),
        (status = 409, body = ErrorAnswer, description = "There is no credential or a wrong one (`no_credentials`), \
            the branch has other commits (`not_fast_forward`), the repository rejects the push (`push_rejected`), \
            the workspace's objects are damaged (`bad_workspace`), or it is not cloned yet (`not_cloned`)."),
        (status = 502, body = ErrorAnswer, description = "Git failed (`git_failed`)."),
        (status = 507, body = ErrorAnswer, description = "The disk or a limit is full (`disk_full`).")))]
async fn push_repository(services: Data<WebServices>, id: SessionPath, push: Json<NewPush>) -> ApiResult {
    let repository = repository_of(&services, id.0).await?;
    let NewPush { branch, force } = push.into_inner();
    let request = PushRequest { branch, force };
    // A task of its own: a client that leaves must not end the push before its event.
    let pushing = actix_web::rt::spawn(push_and_report(services, id.0, repository, request));
    let pushed = pushing.await.map_err(|_| ApiError::unavailable("the push was interrupted"))??;
    Ok(HttpResponse::Ok().json(pushed))
}

/// Lists the repositories that a new session may clone: those of this host, and recent ones.
#[utoipa::path(get, path = "/api/repositories", tag = "repositories",
    responses((status = 200, body = RepositoryListAnswer, description = "The repositories.")))]
async fn list_repositories(services: Data<WebServices>) -> ApiResult {
    let query = store::SessionQuery {
        text: None,
        state: None,
        archived: ArchiveFilter::Active,
        limit: RECENT_SESSIONS,
        cursor: None,
    };
    let mut recent: Vec<RecentRow> = Vec::new();
    for snapshot in services.store.list(query).await?.items {
        let Some(SessionRepository { url, reference, .. }) = snapshot.record.repository else { continue };
        if recent.len() < RECENT_REPOSITORIES && !recent.iter().any(|row| row.url == url && row.reference == reference)
        {
            recent.push(RecentRow { url, reference, used_at: snapshot.record.updated_at });
        }
    }
    let row = |RepositorySource { path, repositories }| SourceRow { path: path.display().to_string(), repositories };
    let sources = services.repositories.sources().await.into_iter().map(row).collect();
    Ok(HttpResponse::Ok().json(RepositoryListAnswer { sources, recent }))
}

async fn push_and_report(
    services: Data<WebServices>,
    id: SessionId,
    repository: SessionRepository,
    request: PushRequest,
) -> Result<CompletedPush, ApiError> {
    let PushedBranch { branch, commit } = services.repositories.push(id, &repository, request).await?;
    let url = repository.url;
    let pushed = BranchPushed { url: url.clone(), branch: branch.clone(), commit: commit.clone() };
    services.send_to_session(id, pushed).await??;
    Ok(CompletedPush { url, branch, commit })
}

async fn repository_of(services: &WebServices, id: SessionId) -> Result<SessionRepository, ApiError> {
    let snapshot = services.snapshot(id).await?;
    snapshot.record.repository.ok_or_else(|| RepositoryError::NoRepository.into())
}

fn described(file: DiffedFile) -> DescribedFile {
    let change = match file.change {
        FileChangeKind::Created => "added",
        FileChangeKind::Deleted => "removed",
        FileChangeKind::Moved => "moved",
        FileChangeKind::Modified | FileChangeKind::Unknown(_) => "modified",
    };
    DescribedFile { change, path: file.path.text, diff: file.diff }
}

/// Returns the command that commits all changes with this message.
fn commit_command(message: &str) -> String {
    let quoted = message.replace('\'', r"'\''");
    format!(
        "command -v git >/dev/null || {{ echo 'this sandbox has no git: use an image with git, or download the patch' \
         >&2; exit 127; }}; git add -A && printf '%s\\n' '{quoted}' | git commit -F -"
    )
}

impl From<RepositoryError> for ApiError {
    fn from(error: RepositoryError) -> ApiError {
        let (status, code) = match error {
            RepositoryError::BadAddress(_) | RepositoryError::BadReference(_) => {
                (StatusCode::BAD_REQUEST, "invalid_args")
            }
            RepositoryError::NoRepository => (StatusCode::NOT_FOUND, "no_repository"),
            RepositoryError::NotCloned => (StatusCode::CONFLICT, "not_cloned"),
            RepositoryError::NoCredentials { .. } | RepositoryError::CredentialsRejected { .. } => {
                (StatusCode::CONFLICT, "no_credentials")
            }
            RepositoryError::NotFastForward(_) => (StatusCode::CONFLICT, "not_fast_forward"),
            RepositoryError::PushRejected(_) => (StatusCode::CONFLICT, "push_rejected"),
            RepositoryError::Workspace(_) | RepositoryError::NameTaken(_) => (StatusCode::CONFLICT, "bad_workspace"),
            RepositoryError::NoReference(_)
            | RepositoryError::NoCommit
            | RepositoryError::TimedOut(_)
            | RepositoryError::Git(_) => (StatusCode::BAD_GATEWAY, "git_failed"),
            RepositoryError::TooLarge(_) | RepositoryError::DiskFull => (StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
            RepositoryError::NoGit | RepositoryError::Closing | RepositoryError::Io(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
        };
        ApiError::new(status, code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_a_commit_is_one_word_of_the_shell() {
        let command = commit_command("it's $(touch x)\n`y`");
        assert!(command.ends_with("printf '%s\\n' 'it'\\''s $(touch x)\n`y`' | git commit -F -"), "{command}");
    }
}
