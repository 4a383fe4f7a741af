//! What the Directory hears.

use actix::prelude::*;
use tokio::sync::oneshot;

use crate::{
    session::{IdempotencyKey, RequestError, Session, SessionView},
    session_threads::ThreadIndex,
    store::SessionId,
};

/// What a new session is to be. Every field has a default.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Defaults to the task's first line.
    pub title: Option<String>,
    /// One of `GET /api/options`: `agents`.
    pub agent: Option<String>,
    /// One of `GET /api/options`: `models`.
    pub model: Option<String>,
    /// The sandbox's image, where the driver has images.
    pub image: Option<String>,
    /// Where commands run, inside the sandbox. Defaults to the workspace.
    pub directory: Option<String>,
    /// The first task: the session begins to work at once.
    pub task: Option<String>,
    /// Model calls are refused once this is spent.
    pub budget_usd: Option<f64>,
}

/// Make a session. With a `key` ([`super::key_of`]) that was used before, the session that it made.
#[derive(Debug, Message)]
#[rtype(result = "Result<CreatedSession, RequestError>")]
pub struct Create {
    pub new: NewSession,
    pub key: Option<String>,
    /// The wish that it answers, where a client may say that again to the session itself: it acts once.
    pub dedup_key: Option<IdempotencyKey>,
    /// The thread of whoever will listen to it, where that is known.
    pub preferred_thread: Option<ThreadIndex>,
}

/// A session that was asked for.
#[derive(Debug)]
pub struct CreatedSession {
    pub session: Addr<Session>,
    pub view: SessionView,
    /// False where the key had made it before.
    pub is_new: bool,
}

/// The address of a session; its actor is brought back from the journal where it is not live.
#[derive(Debug, Message)]
#[rtype(result = "Result<Addr<Session>, RequestError>")]
pub struct Open {
    pub id: SessionId,
}

/// The same, for somebody who may stop waiting.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OpenWithReply {
    pub id: SessionId,
    pub reply_to: oneshot::Sender<Result<Addr<Session>, RequestError>>,
}

/// The address of a session whose actor is live, and nothing otherwise.
#[derive(Debug, Message)]
#[rtype(result = "Option<Addr<Session>>")]
pub struct GetIfRunning {
    pub id: SessionId,
}

/// Remove every trace of a session: sandbox, workspace, run directory, journal.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), RequestError>")]
pub struct Purge {
    pub id: SessionId,
}

/// Let go of every session that is at rest. Returns how many were.
#[derive(Debug, Message)]
#[rtype(result = "usize")]
pub struct PassivateIdle;

/// The server is going: no session is started or brought back any more. With `stop`, those that are live are stopped. The answer
/// comes when that is written down, and all that they had decided before.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ShutDown {
    pub stop: bool,
}
