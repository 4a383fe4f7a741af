//! The Directory actor: session id → address. The only place where a session is started.

mod create;
mod fallen;
mod keys;
mod messages;
mod purge;
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
use greenroom_protocol::{client::Wish, observation::State};
use sha2::{Digest, Sha256};
use tokio::{sync::oneshot, time::timeout};
use tracing::warn;

pub use self::create::AGENT;
pub use self::keys::key_of;
pub use self::messages::{Close, Create, Created, Find, NewSession, Open, OpenFor, Purge, Tidy};
use self::{fallen::Fallen, keys::Keys};
use crate::{
    census::{Census, Entry, Kind},
    frontend::{PATIENCE, Sessions, waits_for_the_disk},
    gateway::Gateway,
    link::Starts,
    sandbox::Sandbox,
    session::{
        self, Named, Refusal, Session,
        messages::{Fell, Flush, Retire, Stop},
    },
    store::{SessionId, Snapshot, Store, StoreError},
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
    keys: Keys,
    /// Sessions that fell and are not back yet, or not for long.
    fallen: HashMap<SessionId, Fallen>,
    /// Sessions that nobody can go on with, and why. They are not tried again: this server will not come to read them.
    unreadable: HashMap<SessionId, Refusal>,
    /// How many purges of each are under way.
    being_purged: HashMap<SessionId, usize>,
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
                keys: Keys::default(),
                fallen: HashMap::new(),
                unreadable: HashMap::new(),
                being_purged: HashMap::new(),
                closing: false,
            };
            directory.take_up(ctx);
            directory
        })
    }

    /// Brings back what a server before this one left running, and what it was asked for.
    fn take_up(&self, ctx: &mut Context<Directory>) {
        let store = self.store.clone();
        let live = async move { store.live().await }.into_actor(self);
        ctx.wait(live.map(|live, directory, ctx| match live {
            Ok(live) => {
                for Snapshot { record, .. } in live {
                    directory.keys.learn(record.key, record.id);
                    if !matches!(record.state, State::Stopped | State::Failed | State::Ended) {
                        directory.bring_back(record.id, ctx);
                    }
                }
                directory.say_how_it_is();
            }
            Err(e) => warn!("the sessions of the last run cannot be listed: {e}"),
        }));
        // A client may ask again for what has ended long ago. Whoever comes with a key waits for this; nobody else does.
        let ended = keys::of_ended(self.store.clone()).into_actor(self);
        ctx.spawn(ended.map(|ended, directory, _| directory.keys.learn_all(ended)));
    }

    /// The session's address, now or when its actor is there.
    fn open(&mut self, id: SessionId, ctx: &mut Context<Directory>) -> BoxFuture<'static, Opened> {
        let (asker, opened) = oneshot::channel();
        self.open_for(id, asker, ctx);
        Box::pin(async move { opened.await.unwrap_or_else(|_| Err(shutting_down())) })
    }

    /// Whoever does not wait any more misses nothing.
    fn open_for(&mut self, id: SessionId, asker: oneshot::Sender<Opened>, ctx: &mut Context<Directory>) {
        match self.slots.get_mut(&id) {
            Some(Slot::Live(session)) if session.connected() => drop(asker.send(Ok(session.clone()))),
            Some(Slot::Opening(waiting)) => {
                // A disk that hangs has everybody ask again and again.
                if waiting.len().is_power_of_two() {
                    waiting.retain(|asker| !asker.is_closed());
                }
                waiting.push(asker);
            }
            Some(Slot::Live(_)) | None if self.closing => drop(asker),
            Some(Slot::Live(_)) | None if self.being_purged.contains_key(&id) => {
                drop(asker.send(Err(Refusal::Unavailable("the session is being removed".to_owned()))));
            }
            Some(Slot::Live(_)) | None => match self.withheld(id) {
                Some(refusal) => drop(asker.send(Err(refusal))),
                None => {
                    self.slots.insert(id, Slot::Opening(vec![asker]));
                    self.start_session(id, ctx);
                }
            },
        }
    }

    /// Why nobody gets a session now.
    fn withheld(&self, id: SessionId) -> Option<Refusal> {
        self.unreadable.get(&id).cloned().or_else(|| self.fallen.get(&id).and_then(Fallen::holds))
    }

    fn start_session(&mut self, id: SessionId, ctx: &mut Context<Directory>) {
        let (threads, home) = (self.threads.clone(), self.threads.home(id));
        let (store, parts) = (self.store.clone(), self.sessions.clone());
        let after = self.how_it_fell(id);
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
                let _gone = asker.send(opened.clone());
            }
        }
        match opened {
            Ok(_) => self.came_back(id, ctx),
            // One that was purged meanwhile is not missed.
            Err(Refusal::NoSession(_)) => drop(self.fallen.remove(&id)),
            Err(why @ Refusal::Unreadable(_)) => {
                warn!(session = %id, "{why}");
                self.fallen.remove(&id);
                self.unreadable.insert(id, why);
            }
            Err(why) => {
                if self.come_back(id, ctx) {
                    warn!(session = %id, "the session cannot be brought back yet: {why}");
                }
            }
        }
        self.say_how_it_is();
    }

    fn say_how_it_is(&self) {
        self.entry.state(format!("live sessions: {}", self.slots.len()));
    }
}

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

impl Handler<OpenFor> for Directory {
    type Result = ();

    fn handle(&mut self, OpenFor { id, asker }: OpenFor, ctx: &mut Context<Directory>) {
        self.entry.handled();
        self.open_for(id, asker, ctx);
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
        let sessions: Vec<_> = self.slots.values_mut().map(Slot::session).collect();
        let ends = sessions.into_iter().map(move |session| async move {
            // One that waits for a disk that hangs is not waited for.
            let Ok(Ok(Ok(session))) = timeout(FLUSH, session).await else { return };
            if stop {
                let reason = Some("the server ended".to_owned());
                // One that is stopped or has ended already is as good.
                let _ = session.send(Stop { key: None, reason }).await;
            } else {
                // Where the disk hangs, what it does not take is lost with or without waiting.
                let _ = timeout(FLUSH, session.send(Flush)).await;
            }
        });
        Box::pin(async move { drop(join_all(ends).await) })
    }
}

impl Slot {
    fn live(&self) -> Option<Addr<Session>> {
        match self {
            Slot::Live(session) => Some(session.clone()),
            Slot::Opening(_) => None,
        }
    }

    /// Its session, now or when it is there.
    fn session(&mut self) -> oneshot::Receiver<Opened> {
        let (asker, opened) = oneshot::channel();
        match self {
            Slot::Live(session) => drop(asker.send(Ok(session.clone()))),
            Slot::Opening(waiting) => waiting.push(asker),
        }
        opened
    }
}

/// How long a server that goes waits for the disk.
const FLUSH: Duration = Duration::from_secs(1);

/// The Directory, as sockets see it.
#[async_trait]
impl Sessions for Addr<Directory> {
    async fn open(&self, id: SessionId) -> Result<Addr<Session>, Refusal> {
        let (asker, opened) = oneshot::channel();
        let opened = async {
            self.send(OpenFor { id, asker }).await.map_err(|_| shutting_down())?;
            opened.await.unwrap_or_else(|_| Err(shutting_down()))
        };
        match timeout(PATIENCE, opened).await {
            Ok(opened) => opened,
            // It comes as soon as the disk does.
            Err(_) => Err(waits_for_the_disk()),
        }
    }

    async fn create(&self, wish: &Wish, key: Option<String>) -> Result<(SessionId, Addr<Session>), Refusal> {
        let (new, named) = match wish.clone() {
            Wish::Initialize { model, directory, agent_cls, image, title } => {
                let new = NewSession { title, agent: agent_cls, model, image, directory, task: None, budget_usd: None };
                (new, Named::given(key.clone(), wish))
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
            .send(Create { new, key, named, near: Threads::here() })
            .await
            .unwrap_or_else(|_| Err(shutting_down()))?;
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
