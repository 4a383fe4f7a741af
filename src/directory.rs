//! The Directory actor: session id → address. The only place where a session is started.

mod create;
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

pub use self::create::AGENT;
pub use self::idempotency_keys::idempotency_key;
pub use self::messages::{
    Create, CreatedSession, GetIfRunning, NewSession, Open, OpenWithReply, PassivateIdle, Purge, ShutDown,
};
use self::{idempotency_keys::IdempotencyKeys, restart::RestartBackoff};
use crate::{
    actor_registry::{ActorEntry, ActorKind, ActorRegistry},
    frontend::{ATTACH_TIMEOUT, SessionProvider, disk_stalled_error},
    gateway::Gateway,
    link::StartLimiter,
    sandbox::SandboxDriver,
    session::{
        self, IdempotencyKey, RequestError, Session,
        messages::{Flush, Passivate, SessionStopped, Stop},
    },
    session_threads::SessionThreads,
    store::{SessionId, SessionSnapshot, Store, StoreError},
};

/// What the Directory works with.
pub struct DirectoryParts {
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub gateway: Gateway,
    pub sandbox: Arc<dyn SandboxDriver>,
    pub start_limiter: Arc<StartLimiter>,
    /// Where the sandboxes' run directories, workspaces and homes lie.
    pub runs: PathBuf,
    pub workspaces: PathBuf,
    pub homes: PathBuf,
    pub threads: SessionThreads,
    /// What sessions are made of, once the Directory has an address for them to report to.
    pub sessions: Box<dyn FnOnce(Recipient<SessionStopped>) -> session::SessionDeps + Send>,
}

/// The Directory actor.
pub struct Directory {
    entry: ActorEntry,
    store: Arc<dyn Store>,
    gateway: Gateway,
    sandbox: Arc<dyn SandboxDriver>,
    start_limiter: Arc<StartLimiter>,
    /// Sessions that are being made; their sandboxes do not wait yet.
    creating: usize,
    session_dirs: [PathBuf; 3],
    threads: SessionThreads,
    sessions: Arc<session::SessionDeps>,
    slots: HashMap<SessionId, SessionSlot>,
    keys: IdempotencyKeys,
    /// Sessions that fell and are not back yet, or not for long.
    restarts: HashMap<SessionId, RestartBackoff>,
    /// Sessions that nobody can go on with, and why. They are not tried again: this server will not come to read them.
    unreadable: HashMap<SessionId, RequestError>,
    /// How many purges of each are under way.
    purging: HashMap<SessionId, usize>,
    /// The server is going.
    closing: bool,
}

/// What is known of a session's actor.
enum SessionSlot {
    /// On its way; these wait for it.
    Opening(Vec<oneshot::Sender<OpenResult>>),
    Live(Addr<Session>),
}

type OpenResult = Result<Addr<Session>, RequestError>;

impl Directory {
    /// Starts the Directory on the current thread, and every session whose sandbox should be there.
    pub fn start(parts: DirectoryParts) -> Addr<Directory> {
        Directory::create(|ctx| {
            ctx.set_mailbox_capacity(1024);
            let DirectoryParts {
                store,
                actor_registry: census,
                gateway,
                sandbox,
                start_limiter: starts,
                runs,
                workspaces,
                homes,
                threads,
                sessions,
            } = parts;
            let directory = Directory {
                entry: census.register(ActorKind::Directory, None),
                store,
                gateway,
                sandbox,
                start_limiter: starts,
                creating: 0,
                session_dirs: [runs, workspaces, homes],
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

    /// Brings back what a server before this one left running, and what it was asked for.
    fn recover_sessions(&self, ctx: &mut Context<Directory>) {
        let store = self.store.clone();
        let live = async move { store.live().await }.into_actor(self);
        ctx.wait(live.map(|live, directory, ctx| match live {
            Ok(live) => {
                for SessionSnapshot { record, .. } in live {
                    directory.keys.insert(record.idempotency_key, record.id);
                    if !matches!(record.state, AgentState::Stopped | AgentState::Failed | AgentState::Ended) {
                        directory.recover_session(record.id, ctx);
                    }
                }
                directory.report_status();
            }
            Err(e) => warn!("the sessions of the last run cannot be listed: {e}"),
        }));
        // A client may ask again for what has ended long ago. Whoever comes with a key waits for this; nobody else does.
        let ended = idempotency_keys::keys_of_ended(self.store.clone()).into_actor(self);
        ctx.spawn(ended.map(|ended, directory, _| directory.keys.insert_loaded(ended)));
    }

    /// The session's address, now or when its actor is there.
    fn open(&mut self, id: SessionId, ctx: &mut Context<Directory>) -> BoxFuture<'static, OpenResult> {
        let (asker, opened) = oneshot::channel();
        self.open_for(id, asker, ctx);
        Box::pin(async move { opened.await.unwrap_or_else(|_| Err(shutting_down())) })
    }

    /// Whoever does not wait any more misses nothing.
    fn open_for(&mut self, id: SessionId, asker: oneshot::Sender<OpenResult>, ctx: &mut Context<Directory>) {
        match self.slots.get_mut(&id) {
            Some(SessionSlot::Live(session)) if session.connected() => drop(asker.send(Ok(session.clone()))),
            Some(SessionSlot::Opening(waiting)) => {
                // A disk that hangs has everybody ask again and again.
                if waiting.len().is_power_of_two() {
                    waiting.retain(|asker| !asker.is_closed());
                }
                waiting.push(asker);
            }
            Some(SessionSlot::Live(_)) | None if self.closing => drop(asker),
            Some(SessionSlot::Live(_)) | None if self.purging.contains_key(&id) => {
                drop(asker.send(Err(RequestError::Unavailable("the session is being removed".to_owned()))));
            }
            Some(SessionSlot::Live(_)) | None => match self.rejection(id) {
                Some(refusal) => drop(asker.send(Err(refusal))),
                None => {
                    self.slots.insert(id, SessionSlot::Opening(vec![asker]));
                    self.start_session(id, ctx);
                }
            },
        }
    }

    /// Why nobody gets a session now.
    fn rejection(&self, id: SessionId) -> Option<RequestError> {
        self.unreadable.get(&id).cloned().or_else(|| self.restarts.get(&id).and_then(RestartBackoff::rejection))
    }

    fn start_session(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let (threads, home) = (self.threads.clone(), self.threads.thread_of(id));
        let (store, parts) = (self.store.clone(), self.sessions.clone());
        let after = self.stop_cause(id);
        let started = async move {
            let (epoch, snapshot) = store.claim(id).await.map_err(|e| request_error(&e))?;
            let (tell, started) = oneshot::channel();
            let start = move || drop(tell.send(Session::start_from(parts, epoch, snapshot, after)));
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
            for asker in waiting {
                let _gone = asker.send(opened.clone());
            }
        }
        match opened {
            Ok(_) => self.mark_restarted(id, ctx),
            // One that was purged meanwhile is not missed.
            Err(RequestError::NoSession(_)) => drop(self.restarts.remove(&id)),
            Err(why @ RequestError::Unreadable(_)) => {
                warn!(session = %id, "{why}");
                self.restarts.remove(&id);
                self.unreadable.insert(id, why);
            }
            Err(why) => {
                if self.restart_with_backoff(id, ctx) {
                    warn!(session = %id, "the session cannot be brought back yet: {why}");
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

    fn handle(&mut self, OpenWithReply { id, reply_to: asker }: OpenWithReply, ctx: &mut Context<Directory>) {
        self.entry.record_handled();
        self.open_for(id, asker, ctx);
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
        #[expect(clippy::mutable_key_type, reason = "an address is hashed by the place of its mailbox, which stays")]
        let live: HashSet<Addr<Session>> = self.slots.values().filter_map(SessionSlot::live).collect();
        Box::pin(async move {
            let mut retired = 0;
            for session in live {
                retired += usize::from(session.send(Passivate).await.unwrap_or(false));
            }
            retired
        })
    }
}

impl Handler<ShutDown> for Directory {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, ShutDown { stop }: ShutDown, _: &mut Context<Directory>) -> Self::Result {
        self.closing = true;
        let sessions: Vec<_> = self.slots.values_mut().map(SessionSlot::session).collect();
        let ends = sessions.into_iter().map(move |session| async move {
            // One that waits for a disk that hangs is not waited for.
            let Ok(Ok(Ok(session))) = timeout(FLUSH_TIMEOUT, session).await else { return };
            if stop {
                let reason = Some("the server ended".to_owned());
                // One that is stopped or has ended already is as good.
                let _ = session.send(Stop { idempotency_key: None, reason }).await;
            } else {
                // Where the disk hangs, what it does not take is lost with or without waiting.
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

    /// Its session, now or when it is there.
    fn session(&mut self) -> oneshot::Receiver<OpenResult> {
        let (asker, opened) = oneshot::channel();
        match self {
            SessionSlot::Live(session) => drop(asker.send(Ok(session.clone()))),
            SessionSlot::Opening(waiting) => waiting.push(asker),
        }
        opened
    }
}

/// How long a server that goes waits for the disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The Directory, as sockets see it.
#[async_trait]
impl SessionProvider for Addr<Directory> {
    async fn open(&self, id: SessionId) -> Result<Addr<Session>, RequestError> {
        let (asker, opened) = oneshot::channel();
        let opened = async {
            self.send(OpenWithReply { id, reply_to: asker }).await.map_err(|_| shutting_down())?;
            opened.await.unwrap_or_else(|_| Err(shutting_down()))
        };
        match timeout(ATTACH_TIMEOUT, opened).await {
            Ok(opened) => opened,
            // It comes as soon as the disk does.
            Err(_) => Err(disk_stalled_error()),
        }
    }

    async fn create(
        &self,
        wish: &ClientRequest,
        key: Option<String>,
    ) -> Result<(SessionId, Addr<Session>), RequestError> {
        let (new, named) = match wish.clone() {
            ClientRequest::Initialize { model, directory, agent_cls, image, title } => {
                let new = NewSession { title, agent: agent_cls, model, image, directory, task: None, budget_usd: None };
                (new, IdempotencyKey::from_client(key.clone(), wish))
            }
            // The task itself follows as a wish of its own.
            _ => (NewSession::default(), None),
        };
        // Clients that count their frames all have a first one: what it asks for belongs to its name.
        // A wish is plain data with string keys, so this cannot fail.
        let asked = serde_json::to_string(wish).expect("a wish is JSON");
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha256::digest(asked)[..16]);
        let key = key.map(|key| format!("{key} {:032x}", u128::from_be_bytes(digest)));
        let created = self
            .send(Create { new, key, dedup_key: named, preferred_thread: SessionThreads::current() })
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
        StoreError::Conflict { .. }
        | StoreError::Damaged { .. }
        | StoreError::DamagedContent { .. }
        | StoreError::BadCursor(_)
        | StoreError::Io(_) => RequestError::Journal(error.to_string()),
    }
}
