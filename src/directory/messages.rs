//! Messages of the Directory.

use actix::prelude::*;
use greenroom_protocol::{action::EffortChoice, approval::ApprovalMode};
use tokio::sync::oneshot;

use super::AGENT;
use crate::{
    api_schema::{ApprovalModeSchema, EffortChoiceSchema, FilledTextSchema, api_schema, text},
    net::ThreadIndex,
    session::{DirectorySchema, IdempotencyKey, NameSchema, RequestError, Session, SessionView, TitleSchema},
    store::SessionId,
};

api_schema! {
    AgentNameSchema as "AgentName" = text()
        .description(Some("Agent that works in a session."))
        .enum_values(Some([AGENT]));
}

/// Settings of a new session. Each field has a default.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Title. Defaults to the task's first line.
    #[schema(value_type = Option<TitleSchema>)]
    pub title: Option<String>,
    /// Agent, from `GET /api/options`: `agents`.
    #[schema(value_type = Option<AgentNameSchema>)]
    pub agent: Option<String>,
    /// Model, from `GET /api/options`: `models`.
    #[schema(value_type = Option<NameSchema>)]
    pub model: Option<String>,
    /// Reasoning effort. Defaults to `defaults.effort` of `GET /api/options`.
    // Left out of the JSON, so that requests keep the digests of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<EffortChoiceSchema>)]
    pub effort: Option<EffortChoice>,
    /// Mode of approvals. Absent: the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ApprovalModeSchema>)]
    pub mode: Option<ApprovalMode>,
    /// Security analyzer. Absent: the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NameSchema>)]
    pub analyzer: Option<String>,
    /// Image of the sandbox, if the driver has images.
    #[schema(value_type = Option<NameSchema>)]
    pub image: Option<String>,
    /// Working directory of commands, inside the sandbox. Defaults to the workspace.
    #[schema(value_type = Option<DirectorySchema>)]
    pub directory: Option<String>,
    /// Repository to clone into the workspace: an `https` address, or a path below one of
    /// `workspace.sources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// Branch, tag or commit of `repo`. Default: its default branch.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// First task. The session starts to work at once.
    #[schema(value_type = Option<FilledTextSchema>)]
    pub task: Option<String>,
    /// Budget in USD. Model calls are rejected once the budget is spent.
    #[schema(exclusive_minimum = 0.0)]
    pub budget_usd: Option<f64>,
}

/// Creates a session. With a `key` ([`super::idempotency_key`]) that was used before, returns the
/// session that the key created.
#[derive(Debug, Message)]
#[rtype(result = "Result<CreatedSession, RequestError>")]
pub struct Create {
    pub new: NewSession,
    pub key: Option<String>,
    /// Key and digest of the client request that creates the session. If the client repeats the
    /// request to the session itself, the request still acts once.
    pub dedup_key: Option<IdempotencyKey>,
    /// Thread of the future subscriber, if known. The session's actor starts there.
    pub preferred_thread: Option<ThreadIndex>,
}

/// Reply to [`Create`].
#[derive(Debug)]
pub struct CreatedSession {
    pub session: Addr<Session>,
    pub view: SessionView,
    /// False if an earlier request with the same key created the session.
    pub is_new: bool,
}

/// Returns the address of a session. Restores the actor from the journal if the actor is not
/// running.
#[derive(Debug, Message)]
#[rtype(result = "Result<Addr<Session>, RequestError>")]
pub struct Open {
    pub id: SessionId,
}

/// Same as [`Open`], for callers that may stop waiting.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OpenWithReply {
    pub id: SessionId,
    pub reply_to: oneshot::Sender<Result<Addr<Session>, RequestError>>,
}

/// Returns the address of a session if its actor is running.
#[derive(Debug, Message)]
#[rtype(result = "Option<Addr<Session>>")]
pub struct GetIfRunning {
    pub id: SessionId,
}

/// Removes all traces of a session: sandbox, workspace, run directory, journal.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), RequestError>")]
pub struct Purge {
    pub id: SessionId,
}

/// Passivates all idle sessions. Returns their number.
#[derive(Debug, Message)]
#[rtype(result = "usize")]
pub struct PassivateIdle;

/// Shuts down: no session starts or restarts from now on. With `stop`, running sessions are
/// stopped. The reply follows once the stops and all earlier transitions are on disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ShutDown {
    pub stop: bool,
}
