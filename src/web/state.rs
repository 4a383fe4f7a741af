//! Parts of the server that the routes use, and their requests to sessions.

use std::sync::Arc;

use actix::{Addr, Handler, Message, dev::ToEnvelope};

use super::{error::ApiError, search::SearchLimiter};
use crate::{
    actor_registry::ActorRegistry,
    approvals::{Analyzers, ProjectRules},
    checkpoints::Checkpoints,
    config::Config,
    directory::{self, ApprovalDefaults, Directory},
    files::WorkspaceFiles,
    frontend,
    gateway::{Gateway, ModelChoice},
    link::StartLimiter,
    repositories::Repositories,
    sandbox::SandboxDriver,
    session::{self, Session, SessionRequest, SessionView},
    store::{SessionId, SessionSnapshot, Store, StoreError},
    sweeper::Sweeper,
};

/// Parts of the server that the web layer uses.
pub struct WebServices {
    pub directory: Addr<Directory>,
    pub sweeper: Addr<Sweeper>,
    pub start_limiter: Arc<StartLimiter>,
    pub search_limiter: SearchLimiter,
    pub sockets: Arc<frontend::FrontendServices>,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub sandbox: Arc<dyn SandboxDriver>,
    pub files: WorkspaceFiles,
    pub checkpoints: Arc<Checkpoints>,
    pub repositories: Arc<Repositories>,
    /// For the model calls that a user causes.
    pub gateway: Gateway,
    /// Models that clients may choose.
    pub models: Vec<ModelChoice>,
    pub default_model: String,
    pub approvals: ApprovalDefaults,
    pub analyzers: Analyzers,
    pub project_rules: Arc<ProjectRules>,
    pub config: Arc<Config>,
    /// Name of this node.
    pub node: String,
}

impl WebServices {
    /// Returns a session as the journal has it, without starting its actor.
    pub(super) async fn snapshot(&self, id: SessionId) -> Result<SessionSnapshot, ApiError> {
        self.store.get(id).await?.ok_or_else(|| StoreError::NoSession(id).into())
    }

    pub(super) fn view(&self, snapshot: &SessionSnapshot) -> SessionView {
        SessionView::new(snapshot, frontend::attached_clients(&self.actor_registry, snapshot.record.id))
    }

    /// Sends a message to a session, whose actor starts if necessary.
    pub(super) async fn send_to_session<M: SessionRequest>(
        &self,
        id: SessionId,
        message: M,
    ) -> Result<M::Result, ApiError> {
        session::request_with_retry(async || self.session(id).await, message).await
    }

    /// Reads something from a session's actor, which starts if necessary.
    pub(super) async fn ask_session<M>(&self, id: SessionId, message: M) -> Result<M::Result, ApiError>
    where
        M: Message<Result: Send> + Send + 'static,
        Session: Handler<M, Context: ToEnvelope<Session, M>>,
    {
        Ok(self.session(id).await?.send(message).await?)
    }

    async fn session(&self, id: SessionId) -> Result<Addr<Session>, ApiError> {
        Ok(self.directory.send(directory::Open { id }).await??)
    }
}
