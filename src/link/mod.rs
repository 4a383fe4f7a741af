//! The AgentLink actor: one sandbox, one agent, one WebSocket. It carries out what its session orders, and tells what
//! befalls the sandbox; what that means is the session's matter.
//!
//! [`raise`] brings a sandbox up and stays with it until it is gone; [`conversation`] speaks with the agent.

mod conversation;
mod egress;
mod frames;
mod handshake;
mod raise;
mod starts;
#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use actix::{WeakAddr, prelude::*};
use futures::future::{AbortHandle, abortable};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::egress::Egress;
pub use self::starts::Starts;
use crate::{
    census::{Census, Entry, Kind},
    gateway::Gateway,
    sandbox::{Limits, Network, RunDir, Sandbox, SandboxError, Volume, Workspaces},
    session::{
        Allowance, Session,
        messages::{
            LinkPort, Lost, OrderFailed, StartFailed,
            orders::{Cut, Deliver, Freeze, Kill, Raise, Thaw, Then, Was},
        },
    },
    store::{SessionId, Store},
};

/// What every link of this process shares.
pub struct Parts {
    pub sandbox: Arc<dyn Sandbox>,
    pub gateway: Gateway,
    pub store: Arc<dyn Store>,
    pub census: Census,
    pub places: Places,
    /// The image of sessions that name none.
    pub image: String,
    pub volumes: Vec<Volume>,
    pub uid: u32,
    pub gid: u32,
    pub limits: Limits,
    pub network: Network,
    pub starting: Arc<Starts>,
}

/// Where a session's directories lie on this host.
#[derive(Debug, Clone)]
pub struct Places {
    pub runs: PathBuf,
    pub workspaces: Workspaces,
    pub homes: PathBuf,
    /// The agent's binary.
    pub agent: PathBuf,
}

/// The link of one session.
pub struct AgentLink {
    id: SessionId,
    /// Weak: a session that nobody needs must be able to go, and its link with it.
    session: WeakAddr<Session>,
    parts: Arc<Parts>,
    allowance: Arc<Allowance>,
    entry: Arc<Entry>,
    /// The image that the session wants, where it wants one of its own.
    image: Option<String>,
    /// The model's way out of the sandbox. There while the sandbox is wanted.
    egress: Option<Arc<Egress>>,
    /// Stays with the sandbox from its start to its end.
    attendance: Option<Attending>,
    /// Commands for the conversation of the day. Not bounded by itself: the session sends only what it keeps in its own bounded
    /// list until the agent has it.
    commands: Option<mpsc::UnboundedSender<Deliver>>,
    /// A frozen agent cannot answer, and must not be blamed for it.
    frozen: Arc<Frozen>,
    /// Held while the driver starts a sandbox or takes it away: a start is never dropped half-way, and what comes after waits for
    /// its end, also in the session's next life, which has a link of its own.
    starting: Arc<Mutex<()>>,
    /// Cancelled when the session's actor is gone.
    leash: CancellationToken,
}

impl AgentLink {
    /// Starts the link on the current thread; what is returned is all that its session needs of it.
    pub fn port(parts: Arc<Parts>, session: &Addr<Session>, id: SessionId, allowance: Arc<Allowance>) -> LinkPort {
        let entry = Arc::new(parts.census.register(Kind::AgentLink, Some(id.to_string())));
        let leash = CancellationToken::new();
        entry.state("down");
        let starting = parts.starting.turn_of(id);
        let link = AgentLink {
            id,
            session: session.downgrade(),
            parts,
            allowance,
            entry,
            image: None,
            egress: None,
            attendance: None,
            commands: None,
            frozen: Arc::default(),
            starting,
            leash: leash.clone(),
        }
        .start();
        LinkPort {
            raise: link.clone().recipient(),
            deliver: link.clone().recipient(),
            cut: link.clone().recipient(),
            freeze: link.clone().recipient(),
            thaw: link.clone().recipient(),
            kill: link.recipient(),
            leash: leash.drop_guard(),
        }
    }

    fn raise(&mut self, was: Was, ctx: &mut Context<AgentLink>) {
        let egress = Arc::new(Egress::new(self.session.clone(), self.allowance.clone()));
        self.egress = Some(egress.clone());
        let (commands, from_session) = mpsc::unbounded_channel();
        self.commands = Some(commands);
        let attendance = Box::new(raise::Attendance {
            id: self.id,
            session: self.session.clone(),
            parts: self.parts.clone(),
            run: RunDir::of(&self.parts.places.runs, self.id),
            egress,
            image: self.image.clone().unwrap_or_else(|| self.parts.image.clone()),
            frozen: self.frozen.clone(),
            entry: self.entry.clone(),
            starting: self.starting.clone(),
        });
        // A task of its own: for each frame of the agent it alone is run, and not the actor with all that it waits for.
        let attendance = actix::spawn(attendance.attend(was, from_session));
        let task = attendance.abort_handle();
        let (gone, result) = abortable(attendance);
        self.attendance = Some(Attending { task, result });
        ctx.spawn(gone.into_actor(self).map(|gone, link, ctx| {
            match gone {
                Ok(Ok(gone)) => link.gone(gone, ctx),
                // Its session is not to wait for a link that is gone: it fails in words, and the next start has a fresh sandbox.
                Ok(Err(e)) if e.is_panic() => {
                    let why = "a fault of the server's ended what speaks with the agent; its log says more".to_owned();
                    link.gone(raise::Gone::NeverCame { why, stderr_tail: None }, ctx);
                }
                // It was ended.
                Ok(Err(_)) | Err(_) => {}
            }
        }));
    }

    /// The sandbox is gone, and nobody had asked for that.
    fn gone(&mut self, gone: raise::Gone, ctx: &mut Context<AgentLink>) {
        self.leave();
        match gone {
            raise::Gone::Died(exit) => self.tell(Lost { exit }),
            raise::Gone::NeverCame { why, stderr_tail } => self.tell(StartFailed { why, stderr_tail }),
            raise::Gone::SessionLeft => ctx.stop(),
        }
    }

    fn leave(&mut self) {
        self.attendance = None;
        self.commands = None;
        self.egress = None;
        self.frozen.set(false);
        self.entry.state("down");
    }

    fn tell<M>(&self, message: M)
    where
        M: Message<Result = ()> + Send + 'static,
        Session: Handler<M>,
    {
        if let Some(session) = self.session.upgrade() {
            session.do_send(message);
        }
    }

    /// Whether the session's actor is gone. It may be there anew, with a link of its own and a sandbox that is as the journal
    /// says: what this one was ordered and has not done by now is not for that.
    fn is_left(&self) -> bool {
        self.leash.is_cancelled()
    }

    /// Carries an engine's order out before the next one is heard.
    fn wait_for<F>(&self, what: &'static str, order: F, ctx: &mut Context<AgentLink>)
    where
        F: Future<Output = Result<(), SandboxError>> + 'static,
    {
        ctx.wait(order.into_actor(self).map(move |result, link, _| link.carried_out(what, result)));
    }

    fn carried_out(&self, what: &'static str, result: Result<(), SandboxError>) {
        if let Err(e) = result {
            warn!(session = %self.id, "the sandbox could not {what}: {e}");
            self.tell(OrderFailed { what, why: e.to_string() });
        }
    }
}

impl Actor for AgentLink {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Behind the orders that the session gave last: those are carried out yet.
        let gone = self.leash.clone().cancelled_owned();
        ctx.spawn(gone.into_actor(self).map(|(), _, ctx| ctx.address().do_send(Leave)));
    }
}

/// The session is gone, and nothing more is ordered.
#[derive(Message)]
#[rtype(result = "()")]
struct Leave;

impl Handler<Leave> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

impl Handler<Raise> for AgentLink {
    type Result = ();

    fn handle(&mut self, Raise { image, was }: Raise, ctx: &mut Context<Self>) {
        self.entry.handled();
        if self.is_left() {
            return;
        }
        // A life that the session has given up meanwhile: it heard of the death of the sandbox before, and what was started since
        // it knows nothing of. Whoever starts takes that away first.
        self.leave();
        self.frozen.set(was == Was::Frozen);
        self.image = image;
        self.raise(was, ctx);
    }
}

impl Handler<Deliver> for AgentLink {
    type Result = ();

    fn handle(&mut self, deliver: Deliver, _: &mut Context<Self>) {
        self.entry.handled();
        // Where there is no conversation, the session gives the command again to the next one.
        if let Some(commands) = &self.commands {
            let _ = commands.send(deliver);
        }
    }
}

impl Handler<Cut> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: Cut, _: &mut Context<Self>) {
        self.entry.handled();
        if let Some(egress) = &self.egress {
            egress.cut();
        }
    }
}

impl Handler<Freeze> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: Freeze, ctx: &mut Context<Self>) {
        self.entry.handled();
        if self.is_left() {
            return;
        }
        self.frozen.set(true);
        let (sandbox, id, frozen) = (self.parts.sandbox.clone(), self.id, self.frozen.clone());
        let freeze = async move {
            match sandbox.freeze(id).await {
                // It is being started, and a start ends as it is wanted by then; or it died, which is told elsewhere.
                Ok(()) | Err(SandboxError::Gone { .. }) => Ok(()),
                // The driver takes it back, and nobody must wait for a thaw that is not to come.
                Err(e) => {
                    frozen.set(false);
                    Err(e)
                }
            }
        };
        self.wait_for("freeze", freeze, ctx);
    }
}

impl Handler<Thaw> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: Thaw, ctx: &mut Context<Self>) {
        self.entry.handled();
        if self.is_left() {
            return;
        }
        let was_frozen = self.frozen.is();
        self.frozen.set(false);
        let (sandbox, id, frozen) = (self.parts.sandbox.clone(), self.id, self.frozen.clone());
        let thaw = async move {
            match sandbox.thaw(id).await {
                // Of what does not run, nothing stands frozen, and the next start is not to freeze it.
                Ok(()) | Err(SandboxError::Gone { .. }) => Ok(()),
                Err(e) => {
                    frozen.set(was_frozen);
                    Err(e)
                }
            }
        };
        self.wait_for("thaw", thaw, ctx);
    }
}

impl Handler<Kill> for AgentLink {
    type Result = ();

    fn handle(&mut self, Kill { then, under_way }: Kill, ctx: &mut Context<Self>) {
        self.entry.handled();
        self.leave();
        let (sandbox, id, runs) = (self.parts.sandbox.clone(), self.id, self.parts.places.runs.clone());
        let (starting, leash) = (self.starting.clone(), self.leash.clone());
        let killed = async move {
            let _until_it_is_done = under_way;
            let _no_start_is_under_way = starting.lock().await;
            match then {
                // It is the next life's now (see `is_left`). What stays up of one at rest the next sweep finds.
                Then::Restart | Then::Rest if leash.is_cancelled() => Ok(()),
                Then::Restart | Then::Rest => sandbox.stop(id).await,
                Then::Remove => {
                    sandbox.remove(id).await?;
                    let source = |e| SandboxError::Io { what: "be cleared away", source: Arc::new(e) };
                    RunDir::of(&runs, id).remove().await.map_err(source)
                }
            }
        };
        ctx.wait(killed.into_actor(self).map(move |result, link, ctx| {
            link.carried_out("stop", result);
            // At once: what was ordered meanwhile is about the sandbox that this one starts.
            if then == Then::Restart && !link.is_left() {
                link.raise(Was::Down, ctx);
            }
        }));
    }
}

/// An attendance, which ends when this is dropped.
struct Attending {
    task: tokio::task::AbortHandle,
    /// What it may have come to by then is heard no more.
    result: AbortHandle,
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.task.abort();
        self.result.abort();
    }
}

/// Whether the sandbox is frozen. One waits for it at most: a `watch` would have eight queues for each session that lives.
#[derive(Default)]
struct Frozen {
    is_frozen: AtomicBool,
    thawed: Notify,
}

impl Frozen {
    fn set(&self, frozen: bool) {
        self.is_frozen.store(frozen, Ordering::Release);
        if !frozen {
            self.thawed.notify_waiters();
        }
    }

    fn is(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    async fn until_thawed(&self) {
        loop {
            // Before the look: a thaw between the two is not missed.
            let thawed = self.thawed.notified();
            if !self.is() {
                return;
            }
            thawed.await;
        }
    }
}
