//! The AgentLink actor: one sandbox, one agent, one WebSocket. It carries out what its session orders, and tells what
//! befalls the sandbox; what that means is the session's matter.
//!
//! [`raise`] brings a sandbox up and stays with it until it is gone; [`conversation`] speaks with the agent.

mod connection;
mod egress;
mod frames;
mod handshake;
mod sandbox_lifecycle;
mod start_limiter;
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

use self::egress::ModelEgress;
pub use self::start_limiter::StartLimiter;
use crate::{
    actor_registry::{ActorEntry, ActorKind, ActorRegistry},
    gateway::Gateway,
    sandbox::{RunDir, SandboxDriver, SandboxError, SandboxLimits, SandboxNetwork, SandboxVolume, WorkspaceDirs},
    session::{
        Session, SessionBudget,
        messages::{
            EffectFailed, LinkPort, SandboxLost, StartFailed,
            effects::{
                AbortModelStreams, AfterStop, DeliverToAgent, PauseSandbox, RecordedSandbox, StartSandbox, StopSandbox,
                UnpauseSandbox,
            },
        },
    },
    store::{SessionId, Store},
};

/// What every link of this process shares.
pub struct LinkParts {
    pub sandbox: Arc<dyn SandboxDriver>,
    pub gateway: Gateway,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub dirs: SessionDirs,
    /// The image of sessions that name none.
    pub image: String,
    pub volumes: Vec<SandboxVolume>,
    pub uid: u32,
    pub gid: u32,
    pub limits: SandboxLimits,
    pub network: SandboxNetwork,
    pub start_limiter: Arc<StartLimiter>,
}

/// Where a session's directories lie on this host.
#[derive(Debug, Clone)]
pub struct SessionDirs {
    pub runs: PathBuf,
    pub workspaces: WorkspaceDirs,
    pub homes: PathBuf,
    /// The agent's binary.
    pub agent: PathBuf,
}

/// The link of one session.
pub struct AgentLink {
    id: SessionId,
    /// Weak: a session that nobody needs must be able to go, and its link with it.
    session: WeakAddr<Session>,
    parts: Arc<LinkParts>,
    budget: Arc<SessionBudget>,
    entry: Arc<ActorEntry>,
    /// The image that the session wants, where it wants one of its own.
    image: Option<String>,
    /// The model's way out of the sandbox. There while the sandbox is wanted.
    egress: Option<Arc<ModelEgress>>,
    /// Stays with the sandbox from its start to its end.
    supervision: Option<SupervisorTask>,
    /// Commands for the conversation of the day. Not bounded by itself: the session sends only what it keeps in its own bounded
    /// list until the agent has it.
    commands: Option<mpsc::UnboundedSender<DeliverToAgent>>,
    /// A frozen agent cannot answer, and must not be blamed for it.
    pause_flag: Arc<PauseFlag>,
    /// Held while the driver starts a sandbox or takes it away: a start is never dropped half-way, and what comes after waits for
    /// its end, also in the session's next life, which has a link of its own.
    start_mutex: Arc<Mutex<()>>,
    /// Cancelled when the session's actor is gone.
    session_gone: CancellationToken,
}

impl AgentLink {
    /// Starts the link on the current thread; what is returned is all that its session needs of it.
    pub fn port(
        parts: Arc<LinkParts>,
        session: &Addr<Session>,
        id: SessionId,
        allowance: Arc<SessionBudget>,
    ) -> LinkPort {
        let entry = Arc::new(parts.actor_registry.register(ActorKind::AgentLink, Some(id.to_string())));
        let leash = CancellationToken::new();
        entry.set_state("down");
        let starting = parts.start_limiter.session_lock(id);
        let link = AgentLink {
            id,
            session: session.downgrade(),
            parts,
            budget: allowance,
            entry,
            image: None,
            egress: None,
            supervision: None,
            commands: None,
            pause_flag: Arc::default(),
            start_mutex: starting,
            session_gone: leash.clone(),
        }
        .start();
        LinkPort {
            start_sandbox: link.clone().recipient(),
            deliver_to_agent: link.clone().recipient(),
            abort_model_streams: link.clone().recipient(),
            pause_sandbox: link.clone().recipient(),
            unpause_sandbox: link.clone().recipient(),
            stop_sandbox: link.recipient(),
            cancel_on_drop: leash.drop_guard(),
        }
    }

    fn start_sandbox(&mut self, was: RecordedSandbox, ctx: &mut Context<AgentLink>) {
        let egress = Arc::new(ModelEgress::new(self.session.clone(), self.budget.clone()));
        self.egress = Some(egress.clone());
        let (commands, from_session) = mpsc::unbounded_channel();
        self.commands = Some(commands);
        let attendance = Box::new(sandbox_lifecycle::SandboxSupervisor {
            id: self.id,
            session: self.session.clone(),
            parts: self.parts.clone(),
            run: RunDir::of(&self.parts.dirs.runs, self.id),
            egress,
            image: self.image.clone().unwrap_or_else(|| self.parts.image.clone()),
            pause_flag: self.pause_flag.clone(),
            entry: self.entry.clone(),
            start_mutex: self.start_mutex.clone(),
        });
        // A task of its own: for each frame of the agent it alone is run, and not the actor with all that it waits for.
        let attendance = actix::spawn(attendance.supervise(was, from_session));
        let task = attendance.abort_handle();
        let (gone, result) = abortable(attendance);
        self.supervision = Some(SupervisorTask { task, result });
        ctx.spawn(gone.into_actor(self).map(|gone, link, ctx| {
            match gone {
                Ok(Ok(gone)) => link.sandbox_gone(gone, ctx),
                // Its session is not to wait for a link that is gone: it fails in words, and the next start has a fresh sandbox.
                Ok(Err(e)) if e.is_panic() => {
                    let why = "a fault of the server's ended what speaks with the agent; its log says more".to_owned();
                    link.sandbox_gone(sandbox_lifecycle::SupervisionEnd::StartFailed { why, stderr_tail: None }, ctx);
                }
                // It was ended.
                Ok(Err(_)) | Err(_) => {}
            }
        }));
    }

    /// The sandbox is gone, and nobody had asked for that.
    fn sandbox_gone(&mut self, gone: sandbox_lifecycle::SupervisionEnd, ctx: &mut Context<AgentLink>) {
        self.detach();
        match gone {
            sandbox_lifecycle::SupervisionEnd::Exited(exit) => self.send_to_session(SandboxLost { exit }),
            sandbox_lifecycle::SupervisionEnd::StartFailed { why, stderr_tail } => {
                self.send_to_session(StartFailed { why, stderr_tail })
            }
            sandbox_lifecycle::SupervisionEnd::SessionGone => ctx.stop(),
        }
    }

    fn detach(&mut self) {
        self.supervision = None;
        self.commands = None;
        self.egress = None;
        self.pause_flag.set(false);
        self.entry.set_state("down");
    }

    fn send_to_session<M>(&self, message: M)
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
    fn is_session_gone(&self) -> bool {
        self.session_gone.is_cancelled()
    }

    /// Carries an engine's order out before the next one is heard.
    fn wait_for_driver<F>(&self, what: &'static str, order: F, ctx: &mut Context<AgentLink>)
    where
        F: Future<Output = Result<(), SandboxError>> + 'static,
    {
        ctx.wait(order.into_actor(self).map(move |result, link, _| link.report_outcome(what, result)));
    }

    fn report_outcome(&self, what: &'static str, result: Result<(), SandboxError>) {
        if let Err(e) = result {
            warn!(session = %self.id, "the sandbox could not {what}: {e}");
            self.send_to_session(EffectFailed { what, why: e.to_string() });
        }
    }
}

impl Actor for AgentLink {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Behind the orders that the session gave last: those are carried out yet.
        let gone = self.session_gone.clone().cancelled_owned();
        ctx.spawn(gone.into_actor(self).map(|(), _, ctx| ctx.address().do_send(StopLink)));
    }
}

/// The session is gone, and nothing more is ordered.
#[derive(Message)]
#[rtype(result = "()")]
struct StopLink;

impl Handler<StopLink> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: StopLink, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

impl Handler<StartSandbox> for AgentLink {
    type Result = ();

    fn handle(&mut self, StartSandbox { image, recorded: was }: StartSandbox, ctx: &mut Context<Self>) {
        self.entry.record_handled();
        if self.is_session_gone() {
            return;
        }
        // A life that the session has given up meanwhile: it heard of the death of the sandbox before, and what was started since
        // it knows nothing of. Whoever starts takes that away first.
        self.detach();
        self.pause_flag.set(was == RecordedSandbox::Paused);
        self.image = image;
        self.start_sandbox(was, ctx);
    }
}

impl Handler<DeliverToAgent> for AgentLink {
    type Result = ();

    fn handle(&mut self, deliver: DeliverToAgent, _: &mut Context<Self>) {
        self.entry.record_handled();
        // Where there is no conversation, the session gives the command again to the next one.
        if let Some(commands) = &self.commands {
            let _ = commands.send(deliver);
        }
    }
}

impl Handler<AbortModelStreams> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: AbortModelStreams, _: &mut Context<Self>) {
        self.entry.record_handled();
        if let Some(egress) = &self.egress {
            egress.abort_streams();
        }
    }
}

impl Handler<PauseSandbox> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: PauseSandbox, ctx: &mut Context<Self>) {
        self.entry.record_handled();
        if self.is_session_gone() {
            return;
        }
        self.pause_flag.set(true);
        let (sandbox, id, frozen) = (self.parts.sandbox.clone(), self.id, self.pause_flag.clone());
        let freeze = async move {
            match sandbox.pause(id).await {
                // It is being started, and a start ends as it is wanted by then; or it died, which is told elsewhere.
                Ok(()) | Err(SandboxError::NotFound { .. }) => Ok(()),
                // The driver takes it back, and nobody must wait for a thaw that is not to come.
                Err(e) => {
                    frozen.set(false);
                    Err(e)
                }
            }
        };
        self.wait_for_driver("freeze", freeze, ctx);
    }
}

impl Handler<UnpauseSandbox> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: UnpauseSandbox, ctx: &mut Context<Self>) {
        self.entry.record_handled();
        if self.is_session_gone() {
            return;
        }
        let was_frozen = self.pause_flag.is_set();
        self.pause_flag.set(false);
        let (sandbox, id, frozen) = (self.parts.sandbox.clone(), self.id, self.pause_flag.clone());
        let thaw = async move {
            match sandbox.unpause(id).await {
                // Of what does not run, nothing stands frozen, and the next start is not to freeze it.
                Ok(()) | Err(SandboxError::NotFound { .. }) => Ok(()),
                Err(e) => {
                    frozen.set(was_frozen);
                    Err(e)
                }
            }
        };
        self.wait_for_driver("thaw", thaw, ctx);
    }
}

impl Handler<StopSandbox> for AgentLink {
    type Result = ();

    fn handle(&mut self, StopSandbox { then, in_flight: under_way }: StopSandbox, ctx: &mut Context<Self>) {
        self.entry.record_handled();
        self.detach();
        let (sandbox, id, runs) = (self.parts.sandbox.clone(), self.id, self.parts.dirs.runs.clone());
        let (starting, leash) = (self.start_mutex.clone(), self.session_gone.clone());
        let killed = async move {
            let _until_it_is_done = under_way;
            let _no_start_is_under_way = starting.lock().await;
            match then {
                // It is the next life's now (see `is_left`). What stays up of one at rest the next sweep finds.
                AfterStop::Restart | AfterStop::KeepFiles if leash.is_cancelled() => Ok(()),
                AfterStop::Restart | AfterStop::KeepFiles => sandbox.stop(id).await,
                AfterStop::Remove => {
                    sandbox.remove(id).await?;
                    let source = |e| SandboxError::Io { what: "be cleared away", source: Arc::new(e) };
                    RunDir::of(&runs, id).remove().await.map_err(source)
                }
            }
        };
        ctx.wait(killed.into_actor(self).map(move |result, link, ctx| {
            link.report_outcome("stop", result);
            // At once: what was ordered meanwhile is about the sandbox that this one starts.
            if then == AfterStop::Restart && !link.is_session_gone() {
                link.start_sandbox(RecordedSandbox::Down, ctx);
            }
        }));
    }
}

/// An attendance, which ends when this is dropped.
struct SupervisorTask {
    task: tokio::task::AbortHandle,
    /// What it may have come to by then is heard no more.
    result: AbortHandle,
}

impl Drop for SupervisorTask {
    fn drop(&mut self) {
        self.task.abort();
        self.result.abort();
    }
}

/// Whether the sandbox is frozen. One waits for it at most: a `watch` would have eight queues for each session that lives.
#[derive(Default)]
struct PauseFlag {
    is_paused: AtomicBool,
    unpaused: Notify,
}

impl PauseFlag {
    fn set(&self, frozen: bool) {
        self.is_paused.store(frozen, Ordering::Release);
        if !frozen {
            self.unpaused.notify_waiters();
        }
    }

    fn is_set(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    async fn until_unpaused(&self) {
        loop {
            // Before the look: a thaw between the two is not missed.
            let thawed = self.unpaused.notified();
            if !self.is_set() {
                return;
            }
            thawed.await;
        }
    }
}
