//! Bringing a sandbox up, and staying with it until it is gone.

use std::{
    future::poll_fn,
    io,
    path::Path,
    rc::Rc,
    sync::{Arc, PoisonError},
    task::Poll,
    time::Duration,
};

use actix::WeakAddr;
use futures::FutureExt;
use greenroom_protocol::observation::SandboxPhase;
use tokio::{
    net::UnixStream,
    sync::{Mutex, mpsc},
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use super::{
    LinkParts, ModelEgress, PauseFlag,
    connection::{ConnectionProgress, DisconnectReason, serve_connection},
};
use crate::{
    actor_registry::ActorEntry,
    sandbox::{
        RunDir, SandboxDriver, SandboxError, SandboxExit, SandboxIsolation, SandboxPresence, SandboxSpec, session_dir,
    },
    session::{
        Session,
        messages::{
            SandboxPhaseChanged,
            effects::{DeliverToAgent, RecordedSandbox},
        },
    },
    store::SessionId,
    wake_batch::PollWhenWoken,
};

/// How long an agent has from the start of its sandbox until it answers. Time in which it stands frozen does not count.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How exactly that is counted.
const ANSWER_STEP: Duration = Duration::from_millis(500);
/// How often a sandbox is started again whose agent ends before it has ever answered.
const START_ATTEMPTS: u32 = 4;
/// The first wait between two such starts; it grows fourfold.
const START_BACKOFF: Duration = Duration::from_millis(200);
/// How often the socket is tried at first while the agent comes up, and how soon one is dialled again that was cut.
const DIAL_BACKOFF_MIN: Duration = Duration::from_millis(4);
/// How long it takes until another dial at most, where nobody listens, or where connections come to nothing: each wait for such is
/// twice the one before.
const DIAL_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How long it takes at most until a driver is asked again that did not answer.
const DRIVER_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// How often pull progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that is needed to stay with one sandbox.
pub(super) struct SandboxSupervisor {
    pub(super) id: SessionId,
    pub(super) session: WeakAddr<Session>,
    pub(super) parts: Arc<LinkParts>,
    pub(super) run: RunDir,
    pub(super) egress: Arc<ModelEgress>,
    pub(super) image: String,
    pub(super) pause_flag: Arc<PauseFlag>,
    /// Where the link's state is shown.
    pub(super) entry: Arc<ActorEntry>,
    /// Held for as long as the driver starts the sandbox, also when nobody attends any more.
    pub(super) start_mutex: Arc<Mutex<()>>,
}

/// How it ended.
pub(super) enum SupervisionEnd {
    /// It ran, and died.
    Exited(SandboxExit),
    /// It did not come up, or nobody in it could be spoken with.
    StartFailed { why: String, stderr_tail: Option<String> },
    /// The session's actor is not there any more. The sandbox goes on without it.
    SessionGone,
}

/// What ends the attempts to speak with an agent.
enum DialEnd {
    Exited(Result<SandboxExit, SandboxError>),
    /// It has not introduced itself within [`ANSWER`].
    Unresponsive,
}

/// How far one start came.
enum StartAttempt {
    Ran(SandboxExit),
    /// The agent ended before it had ever answered.
    Crashed(SandboxExit),
    Failed(SupervisionEnd),
}

/// Whose start it is that a sandbox runs by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SandboxOrigin {
    StartedNow,
    /// It was up, as the journal says. By now it may have ended, which is then heard at once.
    AlreadyRunning,
}

/// Why a sandbox was not started.
enum SandboxStartError {
    /// Whether it runs already was not told.
    Unknown(SandboxError),
    Failed(SandboxError),
}

impl From<SandboxError> for SandboxStartError {
    fn from(error: SandboxError) -> SandboxStartError {
        SandboxStartError::Failed(error)
    }
}

fn prepare_failed(source: io::Error) -> SandboxStartError {
    SandboxStartError::Failed(SandboxError::Io { what: "prepare its directories", source: Arc::new(source) })
}

fn failed(detail: String) -> SandboxStartError {
    SandboxStartError::Failed(SandboxError::Failed { what: "start", detail })
}

impl SandboxSupervisor {
    /// Starts the sandbox, dials its agent, speaks with it over as many connections as it takes, and returns when there is
    /// nobody left to speak with. (Boxed: a future keeps what it is given twice, and there is one for each session that lives.)
    pub(super) async fn supervise(
        self: Box<Self>,
        mut was: RecordedSandbox,
        mut commands: mpsc::UnboundedReceiver<DeliverToAgent>,
    ) -> SupervisionEnd {
        let mut wait = START_BACKOFF;
        for attempt in 1.. {
            match self.run_once(was, &mut commands).await {
                StartAttempt::Ran(exit) => return SupervisionEnd::Exited(exit),
                StartAttempt::Failed(gone) => return gone,
                StartAttempt::Crashed(exit) if attempt == START_ATTEMPTS => return crash_loop_end(exit),
                StartAttempt::Crashed(exit) => {
                    debug!(session = %self.id, attempt, ?exit, "the agent ended before it answered; starting it again");
                    sleep(wait).await;
                    (was, wait) = (RecordedSandbox::Down, wait * 4);
                }
            }
        }
        unreachable!("the last try returns")
    }

    async fn run_once(
        &self,
        was: RecordedSandbox,
        commands: &mut mpsc::UnboundedReceiver<DeliverToAgent>,
    ) -> StartAttempt {
        self.entry.set_state("starting the sandbox");
        let started = match self.start_with_retry(was).await {
            Ok(started) => started,
            Err(e) => {
                return StartAttempt::Failed(SupervisionEnd::StartFailed { why: e.to_string(), stderr_tail: None });
            }
        };
        let sandbox = self.parts.sandbox.clone();
        let mut death = sandbox.wait(self.id);
        let progress = Rc::new(ConnectionProgress::default());
        // Not in this future, and let go of with the first word: there is one of those for each session that lives.
        let mut patience = Some(actix::spawn(answer_timeout(self.pause_flag.clone(), progress.clone())));
        let mut silence = poll_fn(|cx| {
            if progress.answered.get() {
                patience = None;
            }
            patience.as_mut().map_or(Poll::Pending, |patience| patience.poll_unpin(cx).map(|_over| ()))
        });
        let mut watch = PollWhenWoken::default();
        let mut end = poll_fn(|cx| {
            watch.poll(cx, |cx| match death.poll_unpin(cx) {
                Poll::Ready(exit) => Poll::Ready(DialEnd::Exited(exit)),
                Poll::Pending => silence.poll_unpin(cx).map(|()| DialEnd::Unresponsive),
            })
        });
        let mut wait = Duration::ZERO;
        loop {
            self.entry.set_state("dialling");
            let stream = tokio::select! {
                end = &mut end => return self.ended(end, started, &progress).await,
                stream = self.dial(wait) => stream,
            };
            self.entry.set_state("connected");
            let since = Instant::now();
            let broken = tokio::select! {
                end = &mut end => return self.ended(end, started, &progress).await,
                broken = serve_connection(
                    self.id, stream, &self.session, &self.parts.store, commands, &progress, &self.pause_flag,
                ) => broken,
            };
            match broken {
                DisconnectReason::Disconnected(why) => debug!(session = %self.id, "the link was cut: {why}"),
                DisconnectReason::SessionGone => return StartAttempt::Failed(SupervisionEnd::SessionGone),
                DisconnectReason::Unresponsive => {
                    let why = "the agent stood still: it said nothing for a minute, not even when it was asked";
                    return StartAttempt::Failed(self.stop_unresponsive(why).await);
                }
                DisconnectReason::ProtocolViolation(why) => {
                    warn!(session = %self.id, "the agent does not speak the link: {why}");
                    let _the_session_fails_anyway = self.parts.sandbox.stop(self.id).await;
                    let why = format!("the agent does not speak the link's protocol: {why}");
                    return StartAttempt::Failed(SupervisionEnd::StartFailed { why, stderr_tail: None });
                }
            }
            let came_to_something = progress.made_progress.get() || since.elapsed() >= DIAL_BACKOFF_MAX;
            wait =
                if came_to_something { DIAL_BACKOFF_MIN } else { (wait * 2).clamp(DIAL_BACKOFF_MIN, DIAL_BACKOFF_MAX) };
        }
    }

    /// What is up, as the journal says, may work on while its driver does not say how it stands: then that is waited for. To call
    /// it failed would be to end it.
    async fn start_with_retry(&self, was: RecordedSandbox) -> Result<SandboxOrigin, SandboxError> {
        let mut wait = START_BACKOFF;
        loop {
            match self.start(was).await {
                Err(SandboxStartError::Unknown(e)) if was != RecordedSandbox::Down && e.is_inconclusive() => {
                    self.entry.set_state("waiting for the driver");
                    if wait == START_BACKOFF {
                        report_phase(&self.session, SandboxPhase::Connecting, &e.to_string(), None);
                    }
                    sleep(wait).await;
                    wait = (wait * 4).min(DRIVER_BACKOFF_MAX);
                }
                Err(SandboxStartError::Unknown(e) | SandboxStartError::Failed(e)) => return Err(e),
                Ok(started) => return Ok(started),
            }
        }
    }

    /// Puts the sandbox on its feet. What is fetched for that takes long: meanwhile no place is taken, no removal waits, and
    /// whoever stops attending breaks it off.
    async fn start(&self, was: RecordedSandbox) -> Result<SandboxOrigin, SandboxStartError> {
        match self.start_without_fetch(was).await {
            Err(SandboxStartError::Failed(SandboxError::NoImage { .. })) => {}
            other => return other,
        }
        self.entry.set_state("fetching the image");
        let LinkParts { sandbox, start_limiter: starting, .. } = &*self.parts;
        // A registry is asked once for what many sessions want.
        let turn = starting.image_lock(&self.image);
        let one_at_a_time = match turn.try_lock() {
            Ok(free) => free,
            Err(_) => {
                let free = starting.count_waiting(turn.lock()).await;
                match self.start_without_fetch(was).await {
                    // Whoever had it before came to nothing.
                    Err(SandboxStartError::Failed(SandboxError::NoImage { .. })) => free,
                    other => return other,
                }
            }
        };
        starting.count_waiting(sandbox.fetch(&self.image, &self.progress_callback())).await?;
        drop(one_at_a_time);
        self.entry.set_state("starting the sandbox");
        self.start_without_fetch(was).await
    }

    /// The start itself is a task of its own: whoever stops attending in the middle of it does not leave half a sandbox.
    async fn start_without_fetch(&self, was: RecordedSandbox) -> Result<SandboxOrigin, SandboxStartError> {
        let under_way = self.start_mutex.clone().lock_owned().await;
        let LinkParts { sandbox, start_limiter: starting, .. } = &*self.parts;
        let mut place = None;
        let mut is_there = false;
        if was != RecordedSandbox::Down {
            // It works on while others start, which may take long: its model's way out is not to wait in their queue, and neither
            // are its clients. What it needs is there already, so this takes no time.
            self.prepare()().map_err(prepare_failed)?;
            place = starting.recheck_permit().await;
            is_there = sandbox.presence(self.id).await.map_err(SandboxStartError::Unknown)?.is_some();
        }
        if !is_there {
            place = starting.start_permit().await;
            if was == RecordedSandbox::Down {
                starting.until_burst_over().await;
            }
        }
        if place.is_none() {
            return Err(failed("the server is shutting down".to_owned()));
        }
        let (prepare, progress) = (self.prepare(), self.progress_callback());
        let (sandbox, frozen, id) = (sandbox.clone(), self.pause_flag.clone(), self.id);
        let started = tokio::spawn(async move {
            let _until_it_is_over = (place, under_way);
            if !is_there {
                // The disk may take its time, or hang: nobody else who lives on this thread is to wait for that.
                let spec = spawn_blocking(prepare).await.unwrap_or_else(|e| Err(io::Error::other(e)));
                let spec = spec.map_err(prepare_failed)?;
                if was == RecordedSandbox::Down
                    && let Some(SandboxPresence::Running | SandboxPresence::Paused) =
                        sandbox.presence(id).await.map_err(SandboxStartError::Unknown)?
                {
                    // It was to be taken away, and whoever was to do that came to nothing. Its agent may still be at what the
                    // journal says is over.
                    sandbox.stop(id).await?;
                }
                sandbox.start(&spec, &progress).await?;
            }
            apply_pause_flag(&*sandbox, id, &frozen).await;
            Ok(if is_there { SandboxOrigin::AlreadyRunning } else { SandboxOrigin::StartedNow })
        });
        started.await.unwrap_or_else(|e| Err(failed(e.to_string())))
    }

    /// Tells the session of each step that a person is to see.
    fn progress_callback(&self) -> impl Fn(SandboxPhase, &str) + Send + Sync + 'static {
        let (sandbox, session) = (self.parts.sandbox.clone(), self.session.clone());
        let last = std::sync::Mutex::new(None::<Instant>);
        move |phase, detail| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            match phase {
                // Of one that runs already nothing is said: it is not started.
                SandboxPhase::Starting => {
                    let isolation = SandboxIsolation { driver: sandbox.name(), description: sandbox.isolation() };
                    report_phase(&session, phase, detail, Some(isolation));
                }
                SandboxPhase::Pulling if last.is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL) => {
                    *last = Some(Instant::now());
                    report_phase(&session, phase, detail, None);
                }
                _ => {}
            }
        }
    }

    /// Makes what has to be there before the sandbox is, and what was there already stays.
    fn prepare(&self) -> impl FnOnce() -> io::Result<SandboxSpec> + Send + 'static {
        let (id, parts, egress) = (self.id, self.parts.clone(), self.egress.clone());
        let (run, image) = (self.run.clone(), self.image.clone());
        move || {
            let LinkParts { gateway, dirs: places, volumes, uid, gid, limits, network, .. } = &*parts;
            let at = |path: &Path| {
                let path = path.display().to_string();
                move |e: io::Error| io::Error::new(e.kind(), format!("`{path}`: {e}"))
            };
            run.prepare(*uid, *gid).map_err(at(run.root()))?;
            egress.open(gateway, || run.bind_gateway()).map_err(at(run.root()))?;
            Ok(SandboxSpec {
                session: id,
                image,
                agent: places.agent.clone(),
                workspace: places.workspaces.dir_of(id).map_err(at(&places.workspaces.root))?,
                home: session_dir(&places.homes, id, *uid, *gid).map_err(at(&places.homes))?,
                volumes: volumes.clone(),
                uid: *uid,
                gid: *gid,
                limits: *limits,
                network: network.clone(),
                run,
            })
        }
    }

    /// A connection to the agent, not before so long, and however long it takes.
    async fn dial(&self, wait: Duration) -> UnixStream {
        if !wait.is_zero() {
            sleep(wait).await;
        }
        let mut waited = Duration::ZERO;
        loop {
            self.pause_flag.until_unpaused().await;
            match self.run.dial_agent().await {
                Ok(stream) => return stream,
                Err(_) => {
                    let step = dial_backoff(waited);
                    sleep(step).await;
                    waited += step;
                }
            }
        }
    }

    async fn ended(&self, end: DialEnd, started: SandboxOrigin, progress: &ConnectionProgress) -> StartAttempt {
        match end {
            DialEnd::Exited(exit) => classify_exit(exit, started, progress),
            DialEnd::Unresponsive => {
                let why = format!("the agent did not answer within {} s", ANSWER_TIMEOUT.as_secs());
                StartAttempt::Failed(self.stop_unresponsive(&why).await)
            }
        }
    }

    async fn stop_unresponsive(&self, why: &str) -> SupervisionEnd {
        warn!(session = %self.id, "{why}");
        let logs = self.parts.sandbox.logs(self.id, 4096).await.ok();
        let _the_session_fails_anyway = self.parts.sandbox.stop(self.id).await;
        SupervisionEnd::StartFailed { why: why.to_owned(), stderr_tail: logs }
    }
}

/// A sixteenth of what it has waited already: who comes up is found at once, and who does not listen costs next to nothing.
pub(super) fn dial_backoff(waited: Duration) -> Duration {
    (waited / 16).clamp(DIAL_BACKOFF_MIN, DIAL_BACKOFF_MAX)
}

fn classify_exit(
    exit: Result<SandboxExit, SandboxError>,
    started: SandboxOrigin,
    progress: &ConnectionProgress,
) -> StartAttempt {
    let exit = exit.unwrap_or_else(|e| SandboxExit { code: None, out_of_memory: false, stderr_tail: e.to_string() });
    match started {
        SandboxOrigin::StartedNow if !progress.answered.get() => StartAttempt::Crashed(exit),
        SandboxOrigin::StartedNow | SandboxOrigin::AlreadyRunning => StartAttempt::Ran(exit),
    }
}

/// Ends when an agent has let its time pass without a word, be it that nobody listens or that it takes the connection and says
/// nothing; or when it has introduced itself, after which only its death ends the trying.
async fn answer_timeout(frozen: Arc<PauseFlag>, progress: Rc<ConnectionProgress>) {
    let mut left = ANSWER_TIMEOUT;
    while !left.is_zero() && !progress.answered.get() {
        frozen.until_unpaused().await;
        sleep(ANSWER_STEP).await;
        left = left.saturating_sub(ANSWER_STEP);
    }
}

/// Freezes or thaws a sandbox, which may have stood there already: a server that was killed between writing an order down and
/// giving it left it as it was before. Whoever is ordered to meanwhile has the last word.
async fn apply_pause_flag(sandbox: &dyn SandboxDriver, id: SessionId, frozen: &PauseFlag) {
    loop {
        let wanted = frozen.is_set();
        let done = if wanted { sandbox.pause(id).await } else { sandbox.unpause(id).await };
        if let Err(e) = done {
            // It may have ended by now, which is noticed elsewhere.
            debug!(session = %id, "the sandbox is not as it should be: {e}");
        }
        if frozen.is_set() == wanted {
            return;
        }
    }
}

fn report_phase(session: &WeakAddr<Session>, phase: SandboxPhase, detail: &str, isolation: Option<SandboxIsolation>) {
    if let Some(session) = session.upgrade() {
        session.do_send(SandboxPhaseChanged { phase, detail: detail.to_owned(), isolation });
    }
}

fn crash_loop_end(exit: SandboxExit) -> SupervisionEnd {
    let code = exit.code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
    let memory = if exit.out_of_memory { ", out of memory" } else { "" };
    let why = format!("the agent ended at once, {START_ATTEMPTS} times in a row ({code}{memory})");
    SupervisionEnd::StartFailed { why, stderr_tail: Some(exit.stderr_tail) }
}
