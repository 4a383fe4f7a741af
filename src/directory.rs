//! The Directory actor: session id → address. The only place where a session is started.

mod fallen;
mod messages;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use actix::prelude::*;
use async_trait::async_trait;
use futures::future::{BoxFuture, join_all};
use greenroom_protocol::{client::Wish, observation::State};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tracing::warn;

use self::fallen::Fallen;
pub use self::messages::{Close, Create, Created, Find, NewSession, Open, Purge, Tidy};
use crate::{
    census::{Census, Entry, Kind},
    clock,
    frontend::Sessions,
    gateway::Gateway,
    link::Starts,
    sandbox::{RunDir, Sandbox},
    session::{
        self, Refusal, Session,
        messages::{Begin, End, Fell, Look, Retire, Stop},
    },
    store::{Memory, Record, SessionId, Snapshot, Store, StoreError, Totals},
    threads::Threads,
};

/// What the Directory works with.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub census: Census,
    pub gateway: Gateway,
    pub sandbox: Arc<dyn Sandbox>,
    pub starts: Arc<Starts>,
    /// Where the sandboxes' run directories, workspaces and homes lie.
    pub runs: PathBuf,
    pub workspaces: PathBuf,
    pub homes: PathBuf,
    pub threads: Threads,
    /// What sessions are made of, once the Directory has an address for them to report to.
    pub sessions: Box<dyn FnOnce(Recipient<Fell>) -> session::Parts + Send>,
}

/// The Directory actor.
pub struct Directory {
    entry: Entry,
    store: Arc<dyn Store>,
    gateway: Gateway,
    sandbox: Arc<dyn Sandbox>,
    starts: Arc<Starts>,
    /// Sessions that are being made; their sandboxes do not wait yet.
    being_made: usize,
    places: [PathBuf; 3],
    threads: Threads,
    sessions: Arc<session::Parts>,
    slots: HashMap<SessionId, Slot>,
    /// Which session a client's key made.
    keys: HashMap<String, SessionId>,
    /// Sessions that fell and are not back yet.
    fallen: HashMap<SessionId, Fallen>,
    /// The server is going.
    closing: bool,
}

/// What is known of a session's actor.
enum Slot {
    /// On its way; these wait for it.
    Opening(Vec<oneshot::Sender<Opened>>),
    Live(Addr<Session>),
}

type Opened = Result<Addr<Session>, Refusal>;

impl Directory {
    /// Starts the Directory on the current thread, and every session whose sandbox should be there.
    pub fn start(parts: Parts) -> Addr<Directory> {
        Directory::create(|ctx| {
            ctx.set_mailbox_capacity(1024);
            let Parts { store, census, gateway, sandbox, starts, runs, workspaces, homes, threads, sessions } = parts;
            let directory = Directory {
                entry: census.register(Kind::Directory, None),
                store,
                gateway,
                sandbox,
                starts,
                being_made: 0,
                places: [runs, workspaces, homes],
                threads,
                sessions: Arc::new(sessions(ctx.address().recipient())),
                slots: HashMap::new(),
                keys: HashMap::new(),
                fallen: HashMap::new(),
                closing: false,
            };
            directory.take_up(ctx);
            directory
        })
    }

    /// Brings back what a server before this one left running.
    fn take_up(&self, ctx: &mut Context<Directory>) {
        let store = self.store.clone();
        let live = async move { store.live().await }.into_actor(self);
        ctx.wait(live.map(|live, directory, ctx| match live {
            Ok(live) => {
                for Snapshot { record, .. } in live {
                    if let Some(key) = &record.key {
                        directory.keys.insert(key.clone(), record.id);
                    }
                    if !matches!(record.state, State::Stopped | State::Failed | State::Ended) {
                        drop(directory.open(record.id, ctx));
                    }
                }
                directory.say_how_it_is();
            }
            Err(e) => warn!("the sessions of the last run cannot be listed: {e}"),
        }));
    }

    /// The session's address, now or when its actor is there.
    fn open(&mut self, id: SessionId, ctx: &mut Context<Directory>) -> BoxFuture<'static, Opened> {
        let (asker, opened) = oneshot::channel();
        match self.slots.get_mut(&id) {
            Some(Slot::Live(session)) if session.connected() => {
                let session = session.clone();
                return Box::pin(async move { Ok(session) });
            }
            Some(Slot::Opening(waiting)) => waiting.push(asker),
            Some(Slot::Live(_)) | None if self.closing => drop(asker),
            Some(Slot::Live(_)) | None => {
                self.slots.insert(id, Slot::Opening(vec![asker]));
                self.start_session(id, ctx);
            }
        }
        Box::pin(async move { opened.await.unwrap_or_else(|_| Err(shutting_down())) })
    }

    fn start_session(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let (threads, home) = (self.threads.clone(), self.threads.home(id));
        let (store, parts) = (self.store.clone(), self.sessions.clone());
        let after = self.fallen.get(&id).map(|fallen| fallen.how);
        let started = async move {
            let (epoch, snapshot) = store.claim(id).await.map_err(|e| refusal(&e))?;
            let (tell, started) = oneshot::channel();
            let start = move || drop(tell.send(Session::start_from(parts, epoch, snapshot, after)));
            threads.run(home, start);
            started.await.unwrap_or_else(|_| Err(shutting_down()))
        };
        ctx.spawn(started.into_actor(self).map(move |opened, directory, ctx| directory.opened(id, opened, ctx)));
    }

    fn opened(&mut self, id: SessionId, opened: Opened, ctx: &mut Context<Directory>) {
        let slot = match &opened {
            Ok(session) => self.slots.insert(id, Slot::Live(session.clone())),
            Err(_) => self.slots.remove(&id),
        };
        if let Some(Slot::Opening(waiting)) = slot {
            for asker in waiting {
                // Somebody who does not wait any more misses nothing.
                let _ = asker.send(opened.clone());
            }
        }
        match opened {
            // One that was purged meanwhile is not missed.
            Ok(_) | Err(Refusal::NoSession(_)) => drop(self.fallen.remove(&id)),
            Err(why) => {
                if self.come_back(id, ctx) {
                    warn!(session = %id, "the session cannot be brought back yet: {why}");
                }
            }
        }
        self.say_how_it_is();
    }

    fn record(&self, id: SessionId, new: &NewSession, key: Option<String>) -> Result<Record, Refusal> {
        let model = new.model.clone().filter(|model| !model.is_empty()).unwrap_or_else(|| self.gateway.default_model());
        self.gateway.ready(&model).map_err(|e| Refusal::BadArgs(e.to_string()))?;
        let agent = new.agent.clone().unwrap_or_else(|| AGENT.to_owned());
        if agent != AGENT {
            return Err(Refusal::BadArgs(format!("there is no agent `{agent}` (known agents: `{AGENT}`)")));
        }
        if let Some(directory) = &new.directory
            && !directory.starts_with('/')
        {
            return Err(Refusal::BadArgs(format!(
                "`directory` is an absolute path inside the sandbox, not `{directory}`"
            )));
        }
        if new.task.as_ref().is_some_and(|task| task.trim().is_empty()) {
            return Err(Refusal::BadArgs("`task` is empty; leave it out, or say what is to be done".to_owned()));
        }
        if new.budget_usd.is_some_and(|budget| !budget.is_finite() || budget <= 0.0) {
            return Err(Refusal::BadArgs("`budget_usd` is a number above 0".to_owned()));
        }
        let now = clock::now();
        Ok(Record {
            id,
            title: new.title.clone().unwrap_or_default(),
            state: State::Starting,
            reason: None,
            agent,
            model,
            image: new.image.clone(),
            sandbox: self.sandbox.name().to_owned(),
            directory: new.directory.clone(),
            created_at: now.clone(),
            updated_at: now,
            usage: Totals { cost_usd: Some(0.0), ..Totals::default() },
            budget_usd: new.budget_usd,
            archived: false,
            key,
            core: Memory::default(),
        })
    }

    fn say_how_it_is(&self) {
        self.entry.state(format!("live sessions: {}", self.slots.len()));
    }
}

/// The agent that every session has, until others can be configured.
pub const AGENT: &str = "greenroom";

impl Actor for Directory {
    type Context = Context<Directory>;
}

impl Handler<Open> for Directory {
    type Result = ResponseFuture<Opened>;

    fn handle(&mut self, Open { id }: Open, ctx: &mut Context<Directory>) -> Self::Result {
        self.entry.handled();
        self.open(id, ctx)
    }
}

impl Handler<Find> for Directory {
    type Result = Option<Addr<Session>>;

    fn handle(&mut self, Find { id }: Find, _: &mut Context<Directory>) -> Self::Result {
        self.entry.handled();
        match self.slots.get(&id) {
            Some(Slot::Live(session)) if session.connected() => Some(session.clone()),
            Some(Slot::Live(_) | Slot::Opening(_)) | None => None,
        }
    }
}

impl Handler<Create> for Directory {
    type Result = ResponseActFuture<Directory, Result<Created, Refusal>>;

    fn handle(&mut self, Create { new, key, near }: Create, ctx: &mut Context<Directory>) -> Self::Result {
        self.entry.handled();
        if let Some(id) = key.as_ref().and_then(|key| self.keys.get(key)).copied() {
            let opened = self.open(id, ctx);
            return Box::pin(async move { created(opened.await?, new.task, false).await }.into_actor(self));
        }
        if self.closing {
            return Box::pin(fut::ready(Err(shutting_down())));
        }
        if self.starts.are_too_many(self.being_made + 1) {
            return Box::pin(fut::ready(Err(Refusal::Overloaded(self.starts.most_waiting()))));
        }
        let id = self.threads.new_session(near);
        let record = match self.record(id, &new, key.clone()) {
            Ok(record) => record,
            Err(refusal) => return Box::pin(fut::ready(Err(refusal))),
        };
        if let Some(key) = key.clone() {
            self.keys.insert(key, id);
        }
        // Whoever asks for it in the meantime waits with the one who asked first.
        self.slots.insert(id, Slot::Opening(Vec::new()));
        self.being_made += 1;
        let store = self.store.clone();
        let made = async move { store.create(record).await }.into_actor(self);
        Box::pin(made.then(move |made, directory, ctx| match made {
            Ok(_) => {
                let (asker, opened) = oneshot::channel();
                if let Some(Slot::Opening(waiting)) = directory.slots.get_mut(&id) {
                    waiting.push(asker);
                }
                directory.start_session(id, ctx);
                async move { created(opened.await.unwrap_or_else(|_| Err(shutting_down()))?, new.task, true).await }
                    .into_actor(directory)
                    .map(|created, directory: &mut Directory, _| {
                        directory.being_made -= 1;
                        created
                    })
                    .boxed_local()
            }
            Err(e) => {
                if let Some(key) = key {
                    directory.keys.remove(&key);
                }
                directory.being_made -= 1;
                let refusal = refusal(&e);
                directory.opened(id, Err(refusal.clone()), ctx);
                fut::ready(Err(refusal)).boxed_local()
            }
        }))
    }
}

async fn created(session: Addr<Session>, task: Option<String>, fresh: bool) -> Result<Created, Refusal> {
    let gone = |_| Refusal::Unavailable("the session stopped as soon as it was made".to_owned());
    if let Some(task) = task {
        session.send(Begin { task }).await.map_err(gone)??;
    }
    let view = session.send(Look).await.map_err(gone)?;
    Ok(Created { session, view, fresh })
}

impl Handler<Purge> for Directory {
    type Result = ResponseActFuture<Directory, Result<(), Refusal>>;

    fn handle(&mut self, Purge { id }: Purge, ctx: &mut Context<Directory>) -> Self::Result {
        self.entry.handled();
        let opened = self.open(id, ctx);
        let (store, sandbox) = (self.store.clone(), self.sandbox.clone());
        let places = self.places.clone();
        let purged = async move {
            // One that has ended already is as good.
            if let Ok(session) = opened.await {
                let _ = session.send(End { key: None }).await;
            } else if store.get(id).await.map_err(|e| refusal(&e))?.is_none() {
                return Err(Refusal::NoSession(id.to_string()));
            }
            sandbox.remove(id).await.map_err(|e| Refusal::Unavailable(e.to_string()))?;
            // First: of what is forgotten nobody would know that it is to be removed.
            clear(id, places).await.map_err(|e| {
                Refusal::Unavailable(format!("its directories cannot be removed: {e}; see to that, and purge it again"))
            })?;
            store.forget(id).await.map_err(|e| refusal(&e))
        };
        Box::pin(purged.into_actor(self).map(move |purged, directory, _| {
            if purged.is_ok() {
                directory.slots.remove(&id);
                directory.keys.retain(|_, made| *made != id);
                directory.say_how_it_is();
            }
            purged
        }))
    }
}

/// Removes a session's directories.
async fn clear(id: SessionId, places: [PathBuf; 3]) -> io::Result<()> {
    let cleared = tokio::task::spawn_blocking(move || {
        let [runs, workspaces, homes] = places;
        RunDir::of(&runs, id).remove()?;
        for below in [workspaces, homes] {
            remove_tree(&below.join(id.to_string()))?;
        }
        Ok(())
    });
    cleared.await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

/// Removes a directory with all that is in it, also what an agent made unreadable, as some tools do with what they cache.
fn remove_tree(tree: &Path) -> io::Result<()> {
    let removed = match fs::remove_dir_all(tree) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            open_up(tree)?;
            fs::remove_dir_all(tree)
        }
        other => other,
    };
    removed.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

fn open_up(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // No link is followed: it is a file of its own here.
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

impl Handler<Tidy> for Directory {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, _: Tidy, _: &mut Context<Directory>) -> Self::Result {
        #[expect(clippy::mutable_key_type, reason = "an address is hashed by the place of its mailbox, which stays")]
        let live: HashSet<Addr<Session>> = self.slots.values().filter_map(Slot::live).collect();
        Box::pin(async move {
            let mut retired = 0;
            for session in live {
                retired += usize::from(session.send(Retire).await.unwrap_or(false));
            }
            retired
        })
    }
}

impl Handler<Close> for Directory {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Close { stop }: Close, _: &mut Context<Directory>) -> Self::Result {
        self.closing = true;
        let live: Vec<_> = self.slots.values().filter_map(Slot::live).filter(|_| stop).collect();
        let stops = live.into_iter().map(|session| async move {
            let reason = Some("the server ended".to_owned());
            // One that is stopped or has ended already is as good.
            let _ = session.send(Stop { key: None, reason }).await;
        });
        Box::pin(async move { drop(join_all(stops).await) })
    }
}

impl Slot {
    fn live(&self) -> Option<Addr<Session>> {
        match self {
            Slot::Live(session) => Some(session.clone()),
            Slot::Opening(_) => None,
        }
    }
}

/// The Directory, as sockets see it.
#[async_trait]
impl Sessions for Addr<Directory> {
    async fn open(&self, id: SessionId) -> Result<Addr<Session>, Refusal> {
        self.send(Open { id }).await.unwrap_or_else(|_| Err(shutting_down()))
    }

    async fn create(&self, wish: &Wish, key: Option<String>) -> Result<(SessionId, Addr<Session>), Refusal> {
        let new = match wish.clone() {
            Wish::Initialize { model, directory, agent_cls, image, title } => {
                NewSession { title, agent: agent_cls, model, image, directory, task: None, budget_usd: None }
            }
            // The task itself follows as a wish of its own.
            _ => NewSession::default(),
        };
        // Clients that count their frames all have a first one: what it asks for belongs to its name.
        // A wish is plain data with string keys, so this cannot fail.
        let asked = serde_json::to_string(wish).expect("a wish is JSON");
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha256::digest(asked)[..16]);
        let key = key.map(|key| format!("{key} {:032x}", u128::from_be_bytes(digest)));
        let created =
            self.send(Create { new, key, near: Threads::here() }).await.unwrap_or_else(|_| Err(shutting_down()))?;
        Ok((created.view.id, created.session))
    }
}

fn shutting_down() -> Refusal {
    Refusal::Unavailable("the server is shutting down".to_owned())
}

fn refusal(error: &StoreError) -> Refusal {
    match error {
        StoreError::NoSession(id) => Refusal::NoSession(id.to_string()),
        StoreError::Conflict { .. }
        | StoreError::Damaged { .. }
        | StoreError::DamagedContent { .. }
        | StoreError::BadCursor(_)
        | StoreError::Io(_) => Refusal::Journal(error.to_string()),
    }
}
