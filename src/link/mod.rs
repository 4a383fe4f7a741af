//! AgentLink actor: one session's sandbox, its agent, and the WebSocket between server and agent.
//!
//! Executes the effects of its session and reports to the session what happens to sandbox and
//! agent. Contains no rules: the session decides what a report means. See docs/internals/link.md.
//!
//! - The actor (this file) receives the effects. It starts one supervisor task per sandbox.
//! - [`sandbox_lifecycle`] is that task: starts the sandbox, dials its agent, and redials until the
//!   sandbox is gone.
//! - [`sandbox_preparation`] creates the directories of a sandbox, and gives them to its user.
//! - [`capture`] captures the workspace at the end of a turn.
//! - [`connection`] serves one WebSocket: reports and deltas in, commands and acknowledgements out.
//! - [`egress`] connects the sandbox to the gateway.
//! - [`start_limiter`] limits the starts of all links of the process.

mod capture;
mod clone;
mod connection;
mod egress;
mod frames;
mod handshake;
mod sandbox_lifecycle;
mod sandbox_preparation;
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
    checkpoints::Checkpoints,
    config::Config,
    gateway::Gateway,
    repositories::Repositories,
    sandbox::{RunDir, SandboxDriver, SandboxError, SandboxHomes, WorkspaceDirs},
    session::{
        Session, SessionBudget,
        effect::{AfterStop, AgentDelivery, Effect, InFlightStops, LinkPort, RecordedSandbox},
        messages::{EffectFailed, SandboxFailed, SandboxLost},
    },
    store::{SessionId, SessionRecord, SessionRepository, Store},
};

/// Dependencies that all links of this process share.
pub struct LinkDeps {
    pub sandbox: Arc<dyn SandboxDriver>,
    pub gateway: Gateway,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub dirs: SessionDirs,
    pub checkpoints: Arc<Checkpoints>,
    pub repositories: Arc<Repositories>,
    pub config: Arc<Config>,
    pub start_limiter: Arc<StartLimiter>,
}

/// Directories of the sessions on this host.
#[derive(Debug)]
pub struct SessionDirs {
    pub runs: PathBuf,
    pub workspaces: WorkspaceDirs,
    pub homes: SandboxHomes,
    /// Path of the agent's binary.
    pub agent: PathBuf,
}

/// Link of one session.
pub struct AgentLink {
    id: SessionId,
    /// Weak, so that the link does not keep an idle session's actor alive. The link ends with the
    /// session's actor.
    session: WeakAddr<Session>,
    parts: Arc<LinkDeps>,
    budget: Arc<SessionBudget>,
    entry: Arc<ActorEntry>,
    image: String,
    /// User id of the last sandbox, if the session had one.
    recorded_uid: Option<u32>,
    /// Repository to clone into the workspace before its first start.
    repository: Option<SessionRepository>,
    /// Connects the sandbox to the gateway. Present while the session has a sandbox.
    egress: Option<Arc<ModelEgress>>,
    /// Supervises the sandbox from its start to its exit.
    supervision: Option<SupervisorTask>,
    /// Deliveries for the current connection. Bound: none of its own. The session sends only
    /// commands that its state also holds until the agent has taken them, one `AgentConnected` per
    /// hello, and one hint per interrupt or stop of running work.
    deliveries: Option<mpsc::UnboundedSender<AgentDelivery>>,
    /// Set while the sandbox is paused, is being paused, or is to be paused after its start. A
    /// paused agent cannot answer, so its silence does not count.
    pause_flag: Arc<PauseFlag>,
    /// Held while the driver starts or stops the sandbox, but not while it pauses. A start is never
    /// dropped half-way: the next start or stop blocks until the start ends. All links of a session
    /// share this mutex, because the session's next actor has a link of its own.
    start_mutex: Arc<Mutex<()>>,
    /// Cancelled when the session's actor is gone.
    session_gone: CancellationToken,
}

impl AgentLink {
    /// Starts the link's actor on the current thread. Returns the session's handle to the actor.
    pub fn port(
        parts: Arc<LinkDeps>,
        session: &Addr<Session>,
        record: &SessionRecord,
        budget: Arc<SessionBudget>,
    ) -> LinkPort {
        let id = record.id;
        let entry = Arc::new(parts.actor_registry.register(ActorKind::AgentLink, Some(id.to_string())));
        let session_gone = CancellationToken::new();
        entry.set_state("down");
        let start_mutex = parts.start_limiter.session_lock(id);
        let link = AgentLink {
            id,
            session: session.downgrade(),
            budget,
            entry,
            image: record.image.clone().unwrap_or_else(|| parts.config.sandbox.image.clone()),
            recorded_uid: record.sandbox_uid,
            repository: record.repository.clone().filter(|repository| repository.commit.is_none()),
            egress: None,
            supervision: None,
            deliveries: None,
            pause_flag: Arc::default(),
            start_mutex,
            session_gone: session_gone.clone(),
            parts,
        }
        .start();
        LinkPort { effects: link.recipient(), cancel_on_drop: session_gone.drop_guard() }
    }

    /// Starts the supervisor of a sandbox.
    fn supervise_sandbox(&mut self, recorded: RecordedSandbox, ctx: &mut Context<AgentLink>) {
        let egress = Arc::new(ModelEgress::new(self.id, self.session.clone(), self.budget.clone()));
        self.egress = Some(egress.clone());
        let (deliveries, from_session) = mpsc::unbounded_channel();
        self.deliveries = Some(deliveries);
        let supervisor = Box::new(sandbox_lifecycle::SandboxSupervisor {
            id: self.id,
            session: self.session.clone(),
            budget: self.budget.clone(),
            parts: self.parts.clone(),
            run: RunDir::of(&self.parts.dirs.runs, self.id),
            egress,
            image: self.image.clone(),
            recorded_uid: self.recorded_uid,
            repository: self.repository.clone(),
            pause_flag: self.pause_flag.clone(),
            entry: self.entry.clone(),
            start_mutex: self.start_mutex.clone(),
        });
        // A separate task: a frame of the agent then polls only this task, not the actor with all
        // its futures.
        let supervision = actix::spawn(supervisor.supervise(recorded, from_session));
        let task = supervision.abort_handle();
        let (end, result) = abortable(supervision);
        self.supervision = Some(SupervisorTask { task, result });
        ctx.spawn(end.into_actor(self).map(|end, link, ctx| {
            match end {
                Ok(Ok(end)) => link.sandbox_gone(end, ctx),
                // Without this report, the session would wait for the dead supervisor forever. The
                // next start gets a fresh sandbox.
                Ok(Err(e)) if e.is_panic() => {
                    let reason = "a fault in the server ended the agent's link; see the server's log".to_owned();
                    link.sandbox_gone(
                        sandbox_lifecycle::SupervisionEnd::SandboxFailed { reason, stderr_tail: None },
                        ctx,
                    );
                }
                // The task was aborted.
                Ok(Err(_)) | Err(_) => {}
            }
        }));
    }

    /// Handles the end of a sandbox that the session did not stop.
    fn sandbox_gone(&mut self, end: sandbox_lifecycle::SupervisionEnd, ctx: &mut Context<AgentLink>) {
        self.detach();
        match end {
            sandbox_lifecycle::SupervisionEnd::Exited(exit) => self.send_to_session(SandboxLost { exit }),
            sandbox_lifecycle::SupervisionEnd::SandboxFailed { reason, stderr_tail } => {
                self.send_to_session(SandboxFailed { why: reason, stderr_tail })
            }
            sandbox_lifecycle::SupervisionEnd::SessionGone => ctx.stop(),
        }
    }

    fn detach(&mut self) {
        self.supervision = None;
        self.deliveries = None;
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

    /// Returns true if the session's actor is gone. A new actor has its own link and reconciles the
    /// sandbox with the journal. Effects that this link has not executed by then are dropped.
    fn is_session_gone(&self) -> bool {
        self.session_gone.is_cancelled()
    }

    /// Runs a driver operation to its end before the actor handles the next message.
    fn wait_for_driver<F>(&self, what: &'static str, operation: F, ctx: &mut Context<AgentLink>)
    where
        F: Future<Output = Result<(), SandboxError>> + 'static,
    {
        ctx.wait(operation.into_actor(self).map(move |result, link, _| link.report_outcome(what, result)));
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
        // Queued behind the session's last effects, so those are still executed.
        let end = self.session_gone.clone().cancelled_owned();
        ctx.spawn(end.into_actor(self).map(|(), _, ctx| ctx.address().do_send(StopLink)));
    }
}

/// Stops the link. Sent when the session's actor is gone, so no further effects follow.
#[derive(Message)]
#[rtype(result = "()")]
struct StopLink;

impl Handler<StopLink> for AgentLink {
    type Result = ();

    fn handle(&mut self, _: StopLink, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

impl Handler<Effect> for AgentLink {
    type Result = ();

    fn handle(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        self.entry.record_handled();
        match effect {
            Effect::StartSandbox { recorded } => self.start_sandbox(recorded, ctx),
            Effect::DeliverToAgent(delivery) => self.deliver_to_agent(delivery),
            Effect::AbortModelStreams => self.abort_model_streams(),
            Effect::PauseSandbox => self.pause_sandbox(ctx),
            Effect::UnpauseSandbox => self.unpause_sandbox(ctx),
            Effect::CaptureWorkspace { checkpoint, may_be_late } => self.capture_workspace(checkpoint, may_be_late),
            Effect::StopSandbox { then, in_flight } => self.stop_sandbox(then, in_flight, ctx),
        }
    }
}

/// Effects, each in a method of its own.
impl AgentLink {
    fn start_sandbox(&mut self, recorded: RecordedSandbox, ctx: &mut Context<AgentLink>) {
        if self.is_session_gone() {
            return;
        }
        // A supervisor of an earlier start may still run. It may have started a sandbox that the
        // session has no record of. The new supervisor stops such a sandbox before it starts
        // another.
        self.detach();
        self.pause_flag.set(recorded == RecordedSandbox::Paused);
        self.supervise_sandbox(recorded, ctx);
    }

    fn deliver_to_agent(&self, delivery: AgentDelivery) {
        // Without a supervisor the command is dropped: the session sends the command again after
        // the next hello.
        if let Some(deliveries) = &self.deliveries {
            let _ = deliveries.send(delivery);
        }
    }

    fn abort_model_streams(&self) {
        if let Some(egress) = &self.egress {
            egress.abort_streams();
        }
    }

    fn pause_sandbox(&self, ctx: &mut Context<AgentLink>) {
        if self.is_session_gone() {
            return;
        }
        self.pause_flag.set(true);
        let (sandbox, id, pause_flag) = (self.parts.sandbox.clone(), self.id, self.pause_flag.clone());
        let pause = async move {
            match sandbox.pause(id).await {
                // The sandbox is starting, and each start applies the pause flag at its end. Or the
                // sandbox has exited, which the supervisor reports.
                Ok(()) | Err(SandboxError::NotFound { .. }) => Ok(()),
                // The driver undoes a failed pause. No unpause follows, so the flag must be cleared
                // here.
                Err(e) => {
                    pause_flag.set(false);
                    Err(e)
                }
            }
        };
        self.wait_for_driver("pause", pause, ctx);
    }

    fn unpause_sandbox(&self, ctx: &mut Context<AgentLink>) {
        if self.is_session_gone() {
            return;
        }
        let was_paused = self.pause_flag.is_set();
        self.pause_flag.set(false);
        let (sandbox, id, pause_flag) = (self.parts.sandbox.clone(), self.id, self.pause_flag.clone());
        let unpause = async move {
            match sandbox.unpause(id).await {
                // A sandbox that does not run is not paused, and the next start must not pause it.
                Ok(()) | Err(SandboxError::NotFound { .. }) => Ok(()),
                Err(e) => {
                    pause_flag.set(was_paused);
                    Err(e)
                }
            }
        };
        self.wait_for_driver("unpause", unpause, ctx);
    }

    fn stop_sandbox(&mut self, then: AfterStop, in_flight: InFlightStops, ctx: &mut Context<AgentLink>) {
        self.detach();
        let (sandbox, id, runs) = (self.parts.sandbox.clone(), self.id, self.parts.dirs.runs.clone());
        let (start_mutex, session_gone) = (self.start_mutex.clone(), self.session_gone.clone());
        let stopped = async move {
            let _until_done = in_flight;
            let _no_concurrent_start = start_mutex.lock().await;
            match then {
                // The session's next actor owns the sandbox (see `is_session_gone`). If the session
                // is stopped and its sandbox still runs, the next sweep stops the sandbox.
                AfterStop::Restart | AfterStop::KeepFiles if session_gone.is_cancelled() => Ok(()),
                AfterStop::Restart | AfterStop::KeepFiles => sandbox.stop(id).await,
                AfterStop::Remove => {
                    sandbox.remove(id).await?;
                    let source = |e| SandboxError::Io { what: "remove its run directory", source: Arc::new(e) };
                    RunDir::of(&runs, id).remove().await.map_err(source)
                }
            }
        };
        ctx.wait(stopped.into_actor(self).map(move |result, link, ctx| {
            link.report_outcome("stop", result);
            // Started before the next message is handled: messages that arrived during the stop
            // concern the new sandbox.
            if then == AfterStop::Restart && !link.is_session_gone() {
                link.supervise_sandbox(RecordedSandbox::Down, ctx);
            }
        }));
    }
}

/// Running supervisor task. Dropping this value ends the task.
struct SupervisorTask {
    task: tokio::task::AbortHandle,
    /// Aborted too, so that a result that is already there is not handled.
    result: AbortHandle,
}

impl Drop for SupervisorTask {
    fn drop(&mut self) {
        self.task.abort();
        self.result.abort();
    }
}

/// Flag that is set while the sandbox should be paused. Few tasks wait on the flag, so `Notify`
/// suffices. A `watch` would allocate eight queues for each live session.
#[derive(Default)]
struct PauseFlag {
    is_paused: AtomicBool,
    unpaused: Notify,
}

impl PauseFlag {
    fn set(&self, paused: bool) {
        self.is_paused.store(paused, Ordering::Release);
        if !paused {
            self.unpaused.notify_waiters();
        }
    }

    fn is_set(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    async fn until_unpaused(&self) {
        loop {
            // Registered before the check, so that an unpause between the two is not missed.
            let unpaused = self.unpaused.notified();
            if !self.is_set() {
                return;
            }
            unpaused.await;
        }
    }
}
