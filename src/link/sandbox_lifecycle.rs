//! Supervisor task of one sandbox: starts the sandbox, dials its agent, and serves one connection
//! after another. Ends when the sandbox is gone.

use std::{
    future::poll_fn,
    io,
    rc::Rc,
    sync::{Arc, PoisonError},
    task::Poll,
    time::Duration,
};

use actix::WeakAddr;
use futures::FutureExt;
use greenroom_protocol::{link::ORPHANED_EXIT_CODE, observation::SandboxPhase};
use tokio::{
    net::UnixStream,
    sync::{Mutex, mpsc},
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, warn};

use super::{
    LinkDeps, ModelEgress, PauseFlag,
    connection::{ConnectionProgress, DisconnectReason, LivenessMonitor, serve_connection},
};
use crate::{
    actor_registry::ActorEntry,
    checkpoints::CAPTURE_WAIT,
    net::wake_batch::PollWhenWoken,
    sandbox::{RunDir, SandboxDriver, SandboxError, SandboxExit, SandboxIsolation, SandboxPresence},
    session::{
        Session, SessionBudget,
        effect::{AgentDelivery, RecordedSandbox},
        messages::SandboxPhaseChanged,
    },
    store::{SessionId, SessionRepository},
    telemetry::metrics::{METRICS, RestartedPart},
};

/// Longest time from the start of a sandbox to the agent's `hello`. Time while the sandbox is
/// paused does not count.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Resolution of [`ANSWER_TIMEOUT`].
const ANSWER_STEP: Duration = Duration::from_millis(500);
/// Starts in a row after which a sandbox fails whose agent exits before its first `hello`.
const START_ATTEMPTS: u32 = 4;
/// First backoff between two such starts, and between two queries of a driver. Grows fourfold.
const START_BACKOFF: Duration = Duration::from_millis(200);
/// Shortest backoff before the next dial: after a first failed dial, and after a connection that
/// made progress.
const DIAL_BACKOFF_MIN: Duration = Duration::from_millis(4);
/// Longest backoff before the next dial. Also the shortest life of a connection that counts as
/// progress without a report.
const DIAL_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Longest backoff before a driver that did not answer is queried again.
const DRIVER_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Reasons for giving an agent up.
const UNRESPONSIVE: &str = "the agent is unresponsive: no frame for 60 s, not even a reply to a ping";
const UNREACHABLE: &str = "the agent is unreachable: it owed a report, and accepted no connection for 60 s";
/// Interval between two reports of pull progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Supervises one sandbox: holds all that a start, a dial and a connection need.
pub(super) struct SandboxSupervisor {
    pub(super) id: SessionId,
    pub(super) session: WeakAddr<Session>,
    pub(super) budget: Arc<SessionBudget>,
    pub(super) parts: Arc<LinkDeps>,
    pub(super) run: RunDir,
    pub(super) egress: Arc<ModelEgress>,
    pub(super) image: String,
    /// User id of the last sandbox, if the session had one.
    pub(super) recorded_uid: Option<u32>,
    /// Repository to clone before the first start.
    pub(super) repository: Option<SessionRepository>,
    pub(super) pause_flag: Arc<PauseFlag>,
    /// Entry of the link in the actor registry, which shows the link's state.
    pub(super) entry: Arc<ActorEntry>,
    /// Held while the driver starts the sandbox, even if the supervisor has been dropped.
    pub(super) start_mutex: Arc<Mutex<()>>,
}

/// Reason for the end of a supervision.
pub(super) enum SupervisionEnd {
    /// The sandbox ran and exited.
    Exited(SandboxExit),
    /// The sandbox did not start, or its agent did not follow the protocol or answer in time.
    SandboxFailed { reason: String, stderr_tail: Option<String> },
    /// The session's actor is gone. The sandbox keeps running.
    SessionGone,
}

/// Reason to stop dialing an agent.
enum DialEnd {
    Exited(Result<SandboxExit, SandboxError>),
    /// The agent sent no `hello` within [`ANSWER_TIMEOUT`].
    Unresponsive,
}

/// Result of one start.
enum StartAttempt {
    Ran(SandboxExit),
    /// The agent exited before its first `hello`.
    Crashed(SandboxExit),
    /// The sandbox ended by itself while no server ran. Its next start delivers its reports.
    Orphaned,
    Failed(SupervisionEnd),
}

/// Tells which start a running sandbox comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SandboxOrigin {
    StartedNow,
    /// The sandbox ran before, as the journal says. It may have exited since, which
    /// [`SandboxDriver::wait`] reports at once.
    AlreadyRunning,
}

/// Reason why a sandbox was not started.
enum SandboxStartError {
    /// The driver did not report whether the sandbox already runs.
    Unknown(SandboxError),
    Failed(SandboxError),
}

impl From<SandboxError> for SandboxStartError {
    fn from(error: SandboxError) -> SandboxStartError {
        SandboxStartError::Failed(error)
    }
}

fn prepare_failed(source: io::Error) -> SandboxStartError {
    SandboxStartError::Failed(SandboxError::Io { what: "create its directories", source: Arc::new(source) })
}

fn failed(detail: String) -> SandboxStartError {
    SandboxStartError::Failed(SandboxError::Failed { what: "start", detail })
}

impl SandboxSupervisor {
    /// Starts the sandbox, dials its agent and serves one connection after another. Returns when
    /// the sandbox is gone, the agent is given up or the session's actor is gone.
    ///
    /// Takes a boxed `self`: a future stores its arguments twice, and each live session keeps this
    /// future in memory.
    pub(super) async fn supervise(
        self: Box<Self>,
        mut recorded: RecordedSandbox,
        mut deliveries: mpsc::UnboundedReceiver<AgentDelivery>,
    ) -> SupervisionEnd {
        let mut wait = START_BACKOFF;
        for attempt in 1.. {
            match self.run_once(recorded, &mut deliveries).await {
                StartAttempt::Ran(exit) => return SupervisionEnd::Exited(exit),
                StartAttempt::Failed(gone) => return gone,
                // Only the first attempt can find a sandbox of an earlier server.
                StartAttempt::Orphaned => recorded = RecordedSandbox::Down,
                StartAttempt::Crashed(exit) if attempt == START_ATTEMPTS => return crash_loop_end(exit),
                StartAttempt::Crashed(exit) => {
                    debug!(session = %self.id, attempt, ?exit, "the agent exited before `hello`; starting it again");
                    METRICS.count_restart(RestartedPart::Agent);
                    sleep(wait).await;
                    (recorded, wait) = (RecordedSandbox::Down, wait * 4);
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn run_once(
        &self,
        recorded: RecordedSandbox,
        deliveries: &mut mpsc::UnboundedReceiver<AgentDelivery>,
    ) -> StartAttempt {
        self.entry.set_state("starting the sandbox");
        let began = Instant::now();
        let started = match self.start_with_retry(recorded).await {
            Ok(started) => started,
            Err(e) => {
                return StartAttempt::Failed(SupervisionEnd::SandboxFailed {
                    reason: e.to_string(),
                    stderr_tail: None,
                });
            }
        };
        let sandbox = self.parts.sandbox.clone();
        let mut exit = sandbox.wait(self.id);
        let progress = Rc::new(ConnectionProgress::default());
        progress.starting.set((started == SandboxOrigin::StartedNow).then(|| (sandbox.name(), began)));
        // A separate task, dropped at the first `hello`. Each live session keeps the outer future
        // in memory, and the timer would enlarge it.
        let mut timeout = Some(actix::spawn(answer_timeout(self.pause_flag.clone(), progress.clone())));
        let mut unresponsive = poll_fn(|cx| {
            if progress.answered.get() {
                timeout = None;
            }
            timeout.as_mut().map_or(Poll::Pending, |timeout| timeout.poll_unpin(cx).map(|_elapsed| ()))
        });
        let mut exit_poll = PollWhenWoken::default();
        let mut end = poll_fn(|cx| {
            exit_poll.poll(cx, |cx| match exit.poll_unpin(cx) {
                Poll::Ready(exit) => Poll::Ready(DialEnd::Exited(exit)),
                Poll::Pending => unresponsive.poll_unpin(cx).map(|()| DialEnd::Unresponsive),
            })
        });
        let budget = self.budget.clone();
        let mut liveness = LivenessMonitor::new(self.pause_flag.clone(), Box::new(move || budget.has_work()));
        let mut wait = Duration::ZERO;
        loop {
            self.entry.set_state("dialling");
            let stream = tokio::select! {
                end = &mut end => return self.ended(end, started, &progress).await,
                stream = self.dial(wait) => stream,
                () = liveness.given_up_without_connection() => {
                    return StartAttempt::Failed(self.stop_unresponsive(UNREACHABLE).await);
                }
            };
            self.entry.set_state("connected");
            let since = Instant::now();
            let reason = tokio::select! {
                end = &mut end => return self.ended(end, started, &progress).await,
                reason = serve_connection(
                    self.id, stream, &self.session, &self.parts.store, deliveries, &progress, &mut liveness,
                ) => reason,
            };
            match reason {
                DisconnectReason::Disconnected(reason) => debug!(session = %self.id, "the link was cut: {reason}"),
                DisconnectReason::SessionGone => return StartAttempt::Failed(SupervisionEnd::SessionGone),
                DisconnectReason::Unresponsive => {
                    return StartAttempt::Failed(self.stop_unresponsive(UNRESPONSIVE).await);
                }
                DisconnectReason::ProtocolViolation(violation) => {
                    warn!(session = %self.id, "the agent does not speak the link's protocol: {violation}");
                    let _the_session_fails_anyway = self.parts.sandbox.stop(self.id).await;
                    let reason = format!("the agent does not speak the link's protocol: {violation}");
                    return StartAttempt::Failed(SupervisionEnd::SandboxFailed { reason, stderr_tail: None });
                }
            }
            let made_progress = progress.made_progress.get() || since.elapsed() >= DIAL_BACKOFF_MAX;
            wait = if made_progress { DIAL_BACKOFF_MIN } else { (wait * 2).clamp(DIAL_BACKOFF_MIN, DIAL_BACKOFF_MAX) };
        }
    }

    /// Starts the sandbox. If the journal records it as up or paused, retries while the driver
    /// cannot say whether it exists. Such a sandbox may be working, and a reported failure would
    /// make the sweep stop it.
    async fn start_with_retry(&self, recorded: RecordedSandbox) -> Result<SandboxOrigin, SandboxError> {
        let mut wait = START_BACKOFF;
        loop {
            match self.start(recorded).await {
                Err(SandboxStartError::Unknown(e)) if recorded != RecordedSandbox::Down && e.is_inconclusive() => {
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

    /// Starts the sandbox, and fetches its image first if the image is missing. A fetch may take
    /// long. During a fetch the start holds no start permit and blocks no removal. Dropping the
    /// supervisor aborts the fetch.
    async fn start(&self, recorded: RecordedSandbox) -> Result<SandboxOrigin, SandboxStartError> {
        if let (RecordedSandbox::Down, Some(repository)) = (recorded, &self.repository) {
            let cloned = self.clone_repository(repository).await;
            cloned.map_err(|error| failed(format!("its repository was not cloned: {error}")))?;
        }
        match self.start_without_fetch(recorded).await {
            Err(SandboxStartError::Failed(SandboxError::NoImage { .. })) => {}
            other => return other,
        }
        self.entry.set_state("fetching the image");
        let LinkDeps { sandbox, start_limiter, .. } = &*self.parts;
        // Many sessions may need the same image. One fetch serves them all.
        let image_lock = start_limiter.image_lock(&self.image);
        let image_guard = match image_lock.try_lock() {
            Ok(guard) => guard,
            Err(_) => {
                let guard = start_limiter.count_waiting(image_lock.lock()).await;
                match self.start_without_fetch(recorded).await {
                    // The fetch that held the lock before has failed.
                    Err(SandboxStartError::Failed(SandboxError::NoImage { .. })) => guard,
                    other => return other,
                }
            }
        };
        let progress = self.progress_callback();
        let report = |phase, detail: &str| progress(phase, detail, None);
        start_limiter.count_waiting(sandbox.fetch(&self.image, &report)).await?;
        drop(image_guard);
        self.entry.set_state("starting the sandbox");
        self.start_without_fetch(recorded).await
    }

    /// Starts the sandbox in a task of its own. Dropping the supervisor does not interrupt the
    /// start, so no half-started sandbox is left.
    async fn start_without_fetch(&self, recorded: RecordedSandbox) -> Result<SandboxOrigin, SandboxStartError> {
        let start_guard = self.start_mutex.clone().lock_owned().await;
        let LinkDeps { sandbox, start_limiter, .. } = &*self.parts;
        let mut permit = None;
        let mut is_present = false;
        if recorded != RecordedSandbox::Down {
            // A running sandbox works on while other sandboxes start. Its model egress and its
            // clients must not queue behind those starts. All directories exist already, so
            // this is fast.
            self.open_run_dir()().map_err(prepare_failed)?;
            permit = start_limiter.recheck_permit().await;
            is_present = sandbox.presence(self.id).await.map_err(SandboxStartError::Unknown)?.is_some();
        }
        if !is_present {
            permit = start_limiter.start_permit().await;
            if recorded == RecordedSandbox::Down {
                start_limiter.until_burst_over().await;
            }
        }
        if permit.is_none() {
            return Err(failed("the server is shutting down".to_owned()));
        }
        let (prepare, progress) = (self.prepare(), self.progress_callback());
        let (sandbox, pause_flag, id) = (sandbox.clone(), self.pause_flag.clone(), self.id);
        let checkpoints = self.parts.checkpoints.clone();
        let started = tokio::spawn(async move {
            let _until_done = (permit, start_guard);
            if !is_present {
                if recorded == RecordedSandbox::Down
                    && let Some(SandboxPresence::Running | SandboxPresence::Paused) =
                        sandbox.presence(id).await.map_err(SandboxStartError::Unknown)?
                {
                    // The sandbox should have been stopped, and that stop failed or was never
                    // executed. Its agent may still work on a turn that the journal has ended.
                    sandbox.stop(id).await?;
                }
                // Runs on a blocking thread: a slow or hanging disk must not block the other
                // sessions of this thread.
                let prepared = spawn_blocking(prepare).await.unwrap_or_else(|e| Err(io::Error::other(e)));
                let (spec, warnings) = prepared.map_err(prepare_failed)?;
                // The workspace before the first turn. A large one is captured beside the start.
                let _failure_is_logged = timeout(CAPTURE_WAIT, checkpoints.capture_start(id)).await;
                let isolation = || {
                    let (driver, description) = (sandbox.name(), sandbox.isolation());
                    SandboxIsolation { driver, uid: spec.uid, description, warnings: warnings.clone() }
                };
                let report = |phase, detail: &str| progress(phase, detail, Some(&isolation));
                sandbox.start(&spec, &report).await?;
            }
            apply_pause_flag(&*sandbox, id, &pause_flag).await;
            Ok(if is_present { SandboxOrigin::AlreadyRunning } else { SandboxOrigin::StartedNow })
        });
        started.await.unwrap_or_else(|e| Err(failed(e.to_string())))
    }

    /// Returns a callback that reports the driver's progress to the session. A start also passes
    /// the isolation of its sandbox.
    fn progress_callback(&self) -> impl Fn(SandboxPhase, &str, Option<IsolationOf<'_>>) + Send + Sync + 'static {
        let session = self.session.clone();
        let last = std::sync::Mutex::new(None::<Instant>);
        move |phase, detail, isolation| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            match phase {
                // Never reached for a sandbox that already runs.
                SandboxPhase::Starting => {
                    report_phase(&session, phase, detail, isolation.map(|isolation| isolation()));
                }
                SandboxPhase::Pulling if last.is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL) => {
                    *last = Some(Instant::now());
                    report_phase(&session, phase, detail, None);
                }
                _ => {}
            }
        }
    }

    /// Dials the agent after `wait` and retries until a connection is open.
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
                let reason = format!("the agent did not answer within {} s", ANSWER_TIMEOUT.as_secs());
                StartAttempt::Failed(self.stop_unresponsive(&reason).await)
            }
        }
    }

    async fn stop_unresponsive(&self, reason: &str) -> SupervisionEnd {
        warn!(session = %self.id, "{reason}");
        let logs = self.parts.sandbox.logs(self.id, 4096).await.ok();
        let _the_session_fails_anyway = self.parts.sandbox.stop(self.id).await;
        SupervisionEnd::SandboxFailed { reason: reason.to_owned(), stderr_tail: logs }
    }
}

/// Describes the isolation of a sandbox that is being started.
type IsolationOf<'a> = &'a dyn Fn() -> SandboxIsolation;

/// Returns the backoff after a failed dial: a sixteenth of the time waited so far. A starting agent
/// is reached at once, and an agent that does not listen costs little.
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
        SandboxOrigin::AlreadyRunning if exit.code == Some(ORPHANED_EXIT_CODE.into()) => StartAttempt::Orphaned,
        SandboxOrigin::StartedNow if !progress.answered.get() => StartAttempt::Crashed(exit),
        SandboxOrigin::StartedNow | SandboxOrigin::AlreadyRunning => StartAttempt::Ran(exit),
    }
}

/// Completes when [`ANSWER_TIMEOUT`] has passed without a `hello`, with or without a connection.
/// Completes also after the first `hello`. From then on the caller no longer polls this future.
async fn answer_timeout(pause_flag: Arc<PauseFlag>, progress: Rc<ConnectionProgress>) {
    let mut left = ANSWER_TIMEOUT;
    while !left.is_zero() && !progress.answered.get() {
        pause_flag.until_unpaused().await;
        sleep(ANSWER_STEP).await;
        left = left.saturating_sub(ANSWER_STEP);
    }
}

/// Pauses or unpauses the sandbox as `pause_flag` says. A server killed between commit and effect
/// left a running sandbox in its earlier state. Repeats if the flag changes meanwhile.
async fn apply_pause_flag(sandbox: &dyn SandboxDriver, id: SessionId, pause_flag: &PauseFlag) {
    loop {
        let should_pause = pause_flag.is_set();
        let result = if should_pause { sandbox.pause(id).await } else { sandbox.unpause(id).await };
        if let Err(e) = result {
            // The sandbox may have exited, which `SandboxDriver::wait` reports.
            debug!(session = %id, "the sandbox could not be paused or unpaused: {e}");
        }
        if pause_flag.is_set() == should_pause {
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
    let reason = format!("the agent exited before its first `hello`, {START_ATTEMPTS} times in a row ({code}{memory})");
    SupervisionEnd::SandboxFailed { reason, stderr_tail: Some(exit.stderr_tail) }
}
