//! Directory actor: maps session ids to addresses. The only place where session actors start.

mod approval_defaults;
mod create;
mod fork;
mod fork_point;
mod idempotency_keys;
mod messages;
mod purge;
mod restart;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use actix::prelude::*;
use async_trait::async_trait;
use futures::future::{BoxFuture, join_all};
use greenroom_protocol::{client::ClientRequest, observation::AgentState};
use sha2::{Digest, Sha256};
use tokio::{sync::oneshot, time::timeout};
use tracing::warn;

pub use self::approval_defaults::ApprovalDefaults;
pub use self::create::AGENT;
pub use self::fork::{Fork, ForkError, ForkFiles, ForkRequest};
pub use self::idempotency_keys::{fork_key, idempotency_key};
pub use self::messages::{
    Create, CreatedSession, GetIfRunning, NewSession, Open, OpenWithReply, PassivateIdle, Purge, ShutDown,
};
use self::{idempotency_keys::IdempotencyKeys, restart::RestartBackoff};
use crate::{
    actor_registry::{ActorEntry, ActorKind, ActorRegistry},
    checkpoints::Checkpoints,
    frontend::{ATTACH_TIMEOUT, SessionProvider, disk_stalled_error},
    gateway::Gateway,
    link::StartLimiter,
    net::KeyedThreads,
    repositories::Repositories,
    sandbox::SandboxDriver,
    session::{
        self, IdempotencyKey, RequestError, Session,
        messages::{Flush, Passivate, SessionStopped, Stop},
    },
    store::{SessionId, SessionSnapshot, Store, StoreError},
};

/// Dependencies of the Directory.
pub struct DirectoryParts {
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub gateway: Gateway,
    pub sandbox: Arc<dyn SandboxDriver>,
    pub start_limiter: Arc<StartLimiter>,
    pub approvals: ApprovalDefaults,
    /// Roots of the sandboxes' run directories, workspaces and homes.
    pub runs: PathBuf,
    pub workspaces: PathBuf,
    pub homes: PathBuf,
    pub checkpoints: Arc<Checkpoints>,
    pub repositories: Arc<Repositories>,
    pub threads: KeyedThreads,
    /// Builds the sessions' dependencies, given the address that stopped sessions report to.
    pub sessions: Box<dyn FnOnce(Recipient<SessionStopped>) -> session::SessionDeps + Send>,
}

/// The Directory actor.
pub struct Directory {
    entry: ActorEntry,
    store: Arc<dyn Store>,
    gateway: Gateway,
    sandbox: Arc<dyn SandboxDriver>,
    start_limiter: Arc<StartLimiter>,
    approvals: ApprovalDefaults,
    /// Sessions that are being created and whose sandboxes are not yet in the start queue.
    creating: usize,
    session_dirs: [PathBuf; 3],
    checkpoints: Arc<Checkpoints>,
    repositories: Arc<Repositories>,
    threads: KeyedThreads,
    sessions: Arc<session::SessionDeps>,
    slots: HashMap<SessionId, SessionSlot>,
    keys: IdempotencyKeys,
    /// Sessions whose actor stopped unexpectedly and has not run for [`restart::STABLE_AFTER`]
    /// since.
    restarts: HashMap<SessionId, RestartBackoff>,
    /// Sessions that this server cannot read, with the error. A retry would fail again.
    unreadable: HashMap<SessionId, RequestError>,
    /// Running purges per session.
    purging: HashMap<SessionId, usize>,
    /// Set at shutdown.
    closing: bool,
}

/// Actor of a session.
enum SessionSlot {
    /// The actor is starting. The senders receive the result.
    Opening(Vec<oneshot::Sender<OpenResult>>),
    Live(Addr<Session>),
}

type OpenResult = Result<Addr<Session>, RequestError>;

impl Directory {
    /// Starts the Directory on the current thread, and all sessions that should have a sandbox.
    pub fn start(parts: DirectoryParts) -> Addr<Directory> {
        Directory::create(|ctx| {
            ctx.set_mailbox_capacity(1024);
            let DirectoryParts {
                store,
                actor_registry,
                gateway,
                sandbox,
                start_limiter,
                approvals,
                runs,
                workspaces,
                homes,
                checkpoints,
                repositories,
                threads,
                sessions,
            } = parts;
            let directory = Directory {
                entry: actor_registry.register(ActorKind::Directory, None),
                store,
                gateway,
                sandbox,
                start_limiter,
                approvals,
                creating: 0,
                session_dirs: [runs, workspaces, homes],
                checkpoints,
                repositories,
                threads,
                sessions: Arc::new(sessions(ctx.address().recipient())),
                slots: HashMap::new(),
                keys: IdempotencyKeys::default(),
                restarts: HashMap::new(),
                unreadable: HashMap::new(),
                purging: HashMap::new(),
                closing: false,
            };
            directory.recover_sessions(ctx);
            directory
        })
    }

    /// Restarts the sessions that an earlier server left running, and loads their idempotency keys.
    fn recover_sessions(&self, ctx: &mut Context<Directory>) {
        let store = self.store.clone();
        let mine = async move { store.mine().await }.into_actor(self);
        ctx.wait(mine.map(|mine, directory, ctx| match mine {
            Ok(mine) => {
                for SessionSnapshot { record, .. } in mine {
                    if record.is_unfinished_fork() {
                        directory.remove_unfinished_fork(record.id);
                        continue;
                    }
                    directory.keys.insert(record.idempotency_key, record.id);
                    if !matches!(record.state, AgentState::Stopped | AgentState::Failed | AgentState::Ended) {
                        directory.recover_session(record.id, ctx);
                    }
                }
                directory.report_status();
            }
            Err(e) => warn!("could not list the sessions of the last run: {e}"),
        }));
        // A client may repeat a request for a session that ended long ago. Only requests with a key
        // wait for these keys.
        let ended = idempotency_keys::keys_of_ended(self.store.clone()).into_actor(self);
        ctx.spawn(ended.map(|ended, directory, _| directory.keys.insert_loaded(ended)));
    }

    /// Returns the session's address once its actor runs.
    fn open(&mut self, id: SessionId, ctx: &mut Context<Directory>) -> BoxFuture<'static, OpenResult> {
        let (reply_to, opened) = oneshot::channel();
        self.open_for(id, reply_to, ctx);
        Box::pin(async move { opened.await.unwrap_or_else(|_| Err(shutting_down())) })
    }

    /// Sends the session's address to `asker` once its actor runs. A dropped receiver is ignored.
    fn open_for(&mut self, id: SessionId, reply_to: oneshot::Sender<OpenResult>, ctx: &mut Context<Directory>) {
        match self.slots.get_mut(&id) {
            Some(SessionSlot::Live(session)) if session.connected() => drop(reply_to.send(Ok(session.clone()))),
            Some(SessionSlot::Opening(waiting)) => {
                // With a hanging disk, clients give up and ask again, so closed senders pile up.
                // Cleaning up at powers of two keeps the cost constant per request.
                if waiting.len().is_power_of_two() {
                    waiting.retain(|reply_to| !reply_to.is_closed());
                }
                waiting.push(reply_to);
            }
            Some(SessionSlot::Live(_)) | None if self.closing => drop(reply_to),
            Some(SessionSlot::Live(_)) | None if self.purging.contains_key(&id) => {
                drop(reply_to.send(Err(RequestError::Unavailable("the session is being removed".to_owned()))));
            }
            Some(SessionSlot::Live(_)) | None => match self.rejection(id) {
                Some(error) => drop(reply_to.send(Err(error))),
                None => {
                    self.slots.insert(id, SessionSlot::Opening(vec![reply_to]));
                    self.start_session(id, ctx);
                }
            },
        }
    }

    /// Returns the reason to reject requests for a session now, if any.
    fn rejection(&self, id: SessionId) -> Option<RequestError> {
        self.unreadable.get(&id).cloned().or_else(|| self.restarts.get(&id).and_then(RestartBackoff::rejection))
    }

    fn start_session(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let (threads, home) = (self.threads.clone(), self.threads.thread_of(&id));
        let (store, parts) = (self.store.clone(), self.sessions.clone());
        let stop_cause = self.stop_cause(id);
        let started = async move {
            let (epoch, snapshot) = store.claim(id).await.map_err(|e| request_error(&e))?;
            let (result_tx, started) = oneshot::channel();
            let start = move || drop(result_tx.send(Session::start_from(parts, epoch, snapshot, stop_cause)));
            threads.run(home, start);
            started.await.unwrap_or_else(|_| Err(shutting_down()))
        };
        ctx.spawn(started.into_actor(self).map(move |opened, directory, ctx| directory.opened(id, opened, ctx)));
    }

    fn opened(&mut self, id: SessionId, opened: OpenResult, ctx: &mut Context<Directory>) {
        let slot = match &opened {
            Ok(session) => self.slots.insert(id, SessionSlot::Live(session.clone())),
            Err(_) => self.slots.remove(&id),
        };
        if let Some(SessionSlot::Opening(waiting)) = slot {
            for reply_to in waiting {
                let _gone = reply_to.send(opened.clone());
            }
        }
        match opened {
            Ok(_) => self.mark_restarted(id, ctx),
            // The session was purged meanwhile and is not restarted.
            Err(RequestError::NoSession(_)) => drop(self.restarts.remove(&id)),
            Err(error @ RequestError::Unreadable(_)) => {
                warn!(session = %id, "{error}");
                self.restarts.remove(&id);
                self.unreadable.insert(id, error);
            }
            Err(error) => {
                if self.restart_with_backoff(id, ctx) {
                    warn!(session = %id, "could not restart the session yet; retrying: {error}");
                }
            }
        }
        self.report_status();
    }

    fn report_status(&self) {
        self.entry.set_state(format!("live sessions: {}", self.slots.len()));
    }
}

impl Actor for Directory {
    type Context = Context<Directory>;
}

impl Handler<Open> for Directory {
    type Result = ResponseFuture<OpenResult>;

    fn handle(&mut self, Open { id }: Open, ctx: &mut Context<Directory>) -> Self::Result {
        self.entry.record_handled();
        self.open(id, ctx)
    }
}

impl Handler<OpenWithReply> for Directory {
    type Result = ();

    fn handle(&mut self, OpenWithReply { id, reply_to }: OpenWithReply, ctx: &mut Context<Directory>) {
        self.entry.record_handled();
        self.open_for(id, reply_to, ctx);
    }
}

impl Handler<GetIfRunning> for Directory {
    type Result = Option<Addr<Session>>;

    fn handle(&mut self, GetIfRunning { id }: GetIfRunning, _: &mut Context<Directory>) -> Self::Result {
        self.entry.record_handled();
        match self.slots.get(&id) {
            Some(SessionSlot::Live(session)) if session.connected() => Some(session.clone()),
            Some(SessionSlot::Live(_) | SessionSlot::Opening(_)) | None => None,
        }
    }
}

impl Handler<PassivateIdle> for Directory {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, _: PassivateIdle, _: &mut Context<Directory>) -> Self::Result {
        #[expect(
            clippy::mutable_key_type,
            reason = "an address is hashed by its mailbox's pointer, which does not change"
        )]
        let live: HashSet<Addr<Session>> = self.slots.values().filter_map(SessionSlot::live).collect();
        Box::pin(async move {
            let mut passivated = 0;
            for session in live {
                passivated += usize::from(session.send(Passivate).await.unwrap_or(false));
            }
            passivated
        })
    }
}

impl Handler<ShutDown> for Directory {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, ShutDown { stop }: ShutDown, _: &mut Context<Directory>) -> Self::Result {
        self.closing = true;
        let sessions: Vec<_> = self.slots.values_mut().map(SessionSlot::session).collect();
        let ends = sessions.into_iter().map(move |session| async move {
            // A session that is still starting on a hanging disk is skipped.
            let Ok(Ok(Ok(session))) = timeout(FLUSH_TIMEOUT, session).await else { return };
            if stop {
                let reason = Some("the server ended".to_owned());
                // An error means that the session is already stopped or has ended.
                let _ = session.send(Stop { idempotency_key: None, reason }).await;
            } else {
                // On a hanging disk, unwritten events are lost with or without a longer wait.
                let _ = timeout(FLUSH_TIMEOUT, session.send(Flush)).await;
            }
        });
        Box::pin(async move { drop(join_all(ends).await) })
    }
}

impl SessionSlot {
    fn live(&self) -> Option<Addr<Session>> {
        match self {
            SessionSlot::Live(session) => Some(session.clone()),
            SessionSlot::Opening(_) => None,
        }
    }

    /// Returns the session's address, now or once its actor runs.
    fn session(&mut self) -> oneshot::Receiver<OpenResult> {
        let (reply_to, opened) = oneshot::channel();
        match self {
            SessionSlot::Live(session) => drop(reply_to.send(Ok(session.clone()))),
            SessionSlot::Opening(waiting) => waiting.push(reply_to),
        }
        opened
    }
}

/// Longest wait for the disk at shutdown, per session.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Directory as seen by the sockets.
#[async_trait]
impl SessionProvider for Addr<Directory> {
    async fn open(&self, id: SessionId) -> Result<Addr<Session>, RequestError> {
        let (reply_to, opened) = oneshot::channel();
        let opened = async {
            self.send(OpenWithReply { id, reply_to }).await.map_err(|_| shutting_down())?;
            opened.await.unwrap_or_else(|_| Err(shutting_down()))
        };
        match timeout(ATTACH_TIMEOUT, opened).await {
            Ok(opened) => opened,
            // The actor starts as soon as the disk answers.
            Err(_) => Err(disk_stalled_error()),
        }
    }

    async fn create(
        &self,
        request: &ClientRequest,
        key: Option<String>,
    ) -> Result<(SessionId, Addr<Session>), RequestError> {
        let (new, dedup_key) = match request.clone() {
            ClientRequest::Initialize {
                model,
                directory,
                agent_cls,
                image,
                title,
                effort,
                mode,
                analyzer,
                repo,
                reference,
            } => {
                let new = NewSession {
                    title,
                    agent: agent_cls,
                    model,
                    effort,
                    mode,
                    analyzer,
                    image,
                    directory,
                    repo,
                    reference,
                    task: None,
                    budget_usd: None,
                };
                (new, IdempotencyKey::from_client(key.clone(), request))
            }
            // The task itself follows as a request of its own.
            _ => (NewSession::default(), None),
        };
        // Clients that number their frames all send a first frame, so the key includes the
        // request's digest. A request is plain data with string keys, so serialization cannot fail.
        let json = serde_json::to_string(request).expect("requests serialize: string keys, no fallible `Serialize`");
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha256::digest(json)[..16]);
        let key = key.map(|key| format!("{key} {:032x}", u128::from_be_bytes(digest)));
        let created = self
            .send(Create { new, key, dedup_key, preferred_thread: KeyedThreads::current() })
            .await
            .unwrap_or_else(|_| Err(shutting_down()))?;
        Ok((created.view.id, created.session))
    }
}

fn shutting_down() -> RequestError {
    RequestError::Unavailable("the server is shutting down".to_owned())
}

fn request_error(error: &StoreError) -> RequestError {
    match error {
        StoreError::NoSession(id) => RequestError::NoSession(id.to_string()),
        StoreError::Fenced
        | StoreError::Damaged { .. }
        | StoreError::DamagedContent { .. }
        | StoreError::BadCursor(_)
        | StoreError::Io(_) => RequestError::Journal(error.to_string()),
    }
}
