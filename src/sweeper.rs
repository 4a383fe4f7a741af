//! Sweeper actor: pauses or stops idle sessions, interrupts those beyond their workspace quota, and
//! removes what no session owns.

mod workspace_usage;

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use actix::prelude::*;
use bytesize::ByteSize;
use greenroom_protocol::observation::AgentState;
use serde::Serialize;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use self::workspace_usage::measure_workspaces;
use crate::{
    actor_registry::{ActorEntry, ActorKind, ActorRegistry},
    config::SweeperConfig,
    directory::{Directory, GetIfRunning, Open, PassivateIdle},
    sandbox::{FoundSandbox, RunDir, SandboxDriver, SandboxPresence},
    session::messages::{PauseOrStopIfIdle, Reconcile},
    store::{SessionId, SessionSnapshot, Store},
};

/// Requests a sweep now.
#[derive(Debug, Message)]
#[rtype(result = "Swept")]
pub struct Sweep;

/// Result of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Swept {
    /// Number of sessions that were paused or stopped because they were idle.
    #[serde(rename = "rested")]
    pub idled: usize,
    /// Number of actors of idle sessions that were unloaded.
    #[serde(rename = "retired")]
    pub passivated: usize,
    /// Number of sandboxes without an owner that were removed.
    pub sandboxes: usize,
    /// Number of sandboxes that were stopped because their sessions are stopped.
    pub stopped: usize,
    /// Number of sandboxes that were paused or unpaused to match their sessions.
    #[serde(rename = "righted")]
    pub corrected: usize,
    /// Number of run directories without an owner that were removed.
    pub run_directories: usize,
    /// Bytes of the journal that were freed on disk.
    pub journal_bytes: u64,
}

/// Dependencies and settings of the Sweeper.
pub struct SweeperParts {
    pub directory: Addr<Directory>,
    pub store: Arc<dyn Store>,
    pub sandbox: Arc<dyn SandboxDriver>,
    pub actor_registry: ActorRegistry,
    /// Parent of the run directories.
    pub runs: PathBuf,
    /// Parents of the directories that sandboxes write: workspaces and homes.
    pub written_dirs: Vec<PathBuf>,
    /// Limit on the files of one session. 0: none.
    pub workspace_quota: ByteSize,
    pub config: SweeperConfig,
}

/// Interval of the heartbeat that detects a suspended server.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Gap between heartbeats that counts as a suspension: the server was stopped or its machine slept.
const SUSPENDED_AFTER: Duration = Duration::from_secs(6);

/// Actor that sweeps at an interval and on request.
pub struct Sweeper {
    parts: Arc<SweeperParts>,
    entry: ActorEntry,
    awake: Arc<AwakeClock>,
}

/// Clock of the time since the server's start or last suspension. Suspended time is no idle time.
struct AwakeClock(Mutex<Heartbeats>);

struct Heartbeats {
    last: Instant,
    awake_since: Instant,
}

impl AwakeClock {
    fn start_now() -> AwakeClock {
        let now = Instant::now();
        AwakeClock(Mutex::new(Heartbeats { last: now, awake_since: now }))
    }

    /// Records a heartbeat at `now` and returns the time since the start or the last suspension.
    ///
    /// A sweep calls this too. The server may be suspended in the middle of a sweep, before the
    /// late heartbeat.
    fn awake_for(&self, now: Instant) -> Duration {
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now - beats.last > SUSPENDED_AFTER {
            beats.awake_since = now;
        }
        beats.last = now;
        now - beats.awake_since
    }
}

impl Sweeper {
    /// Starts the actor. The first sweep begins at once.
    pub fn start(parts: SweeperParts) -> Addr<Sweeper> {
        let entry = parts.actor_registry.register(ActorKind::Sweeper, None);
        entry.set_state("waiting");
        Actor::start(Sweeper { parts: Arc::new(parts), entry, awake: Arc::new(AwakeClock::start_now()) })
    }

    fn sweep(&mut self) -> impl Future<Output = Swept> + use<> {
        self.entry.record_handled();
        sweep(self.parts.clone(), self.awake.clone())
    }
}

impl Actor for Sweeper {
    type Context = Context<Sweeper>;

    /// Begins the first sweep at once. A server that died may have left something behind.
    fn started(&mut self, ctx: &mut Context<Sweeper>) {
        ctx.run_interval(HEARTBEAT, |sweeper, _| {
            sweeper.awake.awake_for(Instant::now());
        });
        ctx.notify(Tick);
        if self.parts.workspace_quota.as_u64() > 0 {
            // Beside the sweeps: large workspaces must not delay them.
            ctx.spawn(measure_workspaces(self.parts.clone()).into_actor(self));
        }
    }
}

/// Timer of the next sweep.
#[derive(Message)]
#[rtype(result = "()")]
struct Tick;

impl Handler<Tick> for Sweeper {
    type Result = ();

    /// Starts a sweep, and times the next one from its end. A slow engine never has two timed
    /// sweeps at once.
    fn handle(&mut self, _: Tick, ctx: &mut Context<Sweeper>) {
        let sweep = self.sweep().into_actor(self);
        ctx.spawn(sweep.map(|swept, sweeper, ctx| {
            if swept != Swept::default() {
                info!(?swept, "swept");
            }
            ctx.notify_later(Tick, sweeper.parts.config.every.0);
        }));
    }
}

impl Handler<Sweep> for Sweeper {
    type Result = ResponseFuture<Swept>;

    fn handle(&mut self, _: Sweep, _: &mut Context<Sweeper>) -> Self::Result {
        Box::pin(self.sweep())
    }
}

async fn sweep(parts: Arc<SweeperParts>, awake: Arc<AwakeClock>) -> Swept {
    let mut swept = Swept::default();
    // Sandboxes are compared first. Pauses and stops that this sweep requests take a moment.
    clear_sandboxes(&parts, &mut swept).await;
    swept.idled = pause_or_stop_idle(&parts, &awake).await;
    swept.passivated = parts.directory.send(PassivateIdle).await.unwrap_or_default();
    swept.run_directories = remove_run_directories(&parts).await;
    swept.journal_bytes = compact(&parts).await;
    swept
}

/// Requests each loaded session to pause or stop if it is idle. Returns the number that did.
///
/// The session decides at that moment. It rejects the request while it works, waits for a person or
/// is watched.
async fn pause_or_stop_idle(parts: &SweeperParts, awake: &AwakeClock) -> usize {
    let mine = match parts.store.mine().await {
        Ok(mine) => mine,
        Err(e) => {
            warn!("the sweep cannot list the sessions: {e}");
            return 0;
        }
    };
    let mut idled = 0;
    for SessionSnapshot { record, .. } in mine {
        let Ok(Some(session)) = parts.directory.send(GetIfRunning { id: record.id }).await else { continue };
        let awake = awake.awake_for(Instant::now());
        let request = PauseOrStopIfIdle {
            pause_after: parts.config.pause_after.or_never(),
            stop_after: parts.config.stop_after.or_never(),
            server_awake: awake,
        };
        idled += usize::from(matches!(session.send(request).await, Ok(Ok(_))));
    }
    idled
}

async fn compact(parts: &SweeperParts) -> u64 {
    match parts.store.compact().await {
        Ok(compacted) => compacted.freed,
        Err(e) => {
            warn!("the journal cannot be compacted: {e}");
            0
        }
    }
}

/// Removes sandboxes without an owner, and reconciles those that differ from their sessions.
async fn clear_sandboxes(parts: &SweeperParts, swept: &mut Swept) {
    let found = match parts.sandbox.list().await {
        Ok(found) => found,
        Err(e) => return warn!("the sweep cannot list the sandboxes: {e}"),
    };
    for FoundSandbox { session, presence, .. } in found {
        match (expected_sandbox(parts, session).await, presence) {
            (ExpectedSandbox::Absent, _) => match parts.sandbox.remove(session).await {
                Ok(()) => swept.sandboxes += 1,
                Err(e) => warn!(%session, "a sandbox without an owner cannot be removed: {e}"),
            },
            (ExpectedSandbox::Stopped, SandboxPresence::Running | SandboxPresence::Paused) => {
                swept.stopped += usize::from(reconcile(parts, session, presence).await);
            }
            (ExpectedSandbox::Running, SandboxPresence::Paused)
            | (ExpectedSandbox::Paused, SandboxPresence::Running) => {
                swept.corrected += usize::from(reconcile(parts, session, presence).await);
            }
            (
                ExpectedSandbox::Running
                | ExpectedSandbox::Paused
                | ExpectedSandbox::Stopped
                | ExpectedSandbox::Undecided,
                _,
            ) => {}
        }
    }
}

/// Requests the session to reconcile its sandbox. Returns true if the session ordered a correction.
///
/// The session decides, because only its actor has the newest requests.
async fn reconcile(parts: &SweeperParts, id: SessionId, observed: SandboxPresence) -> bool {
    match parts.directory.send(Open { id }).await {
        Ok(Ok(session)) => session.send(Reconcile { observed }).await.unwrap_or(false),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Removes run directories without an owner, with what is left of their sandboxes.
///
/// The run directory is the last trace of a sandbox that is removed. If a removal was cancelled
/// before that, the driver's leftovers are removed here too.
async fn remove_run_directories(parts: &SweeperParts) -> usize {
    let runs = parts.runs.clone();
    let sessions = spawn_blocking(move || sessions_in(&runs)).await.unwrap_or_default();
    let mut removed = 0;
    for session in sessions {
        if expected_sandbox(parts, session).await != ExpectedSandbox::Absent {
            continue;
        }
        if let Err(e) = parts.sandbox.remove(session).await {
            warn!(%session, "the leftovers of a sandbox without an owner cannot be removed: {e}");
            continue;
        }
        match RunDir::of(&parts.runs, session).remove().await {
            Ok(()) => removed += 1,
            Err(e) => warn!(%session, "a run directory without an owner cannot be removed: {e}"),
        }
    }
    removed
}

/// Sandbox state that a session's record implies.
#[derive(PartialEq)]
enum ExpectedSandbox {
    Running,
    Paused,
    Stopped,
    /// The session is starting, or its record cannot be read.
    Undecided,
    /// The session does not exist or has ended. Its sandbox is removed.
    Absent,
}

async fn expected_sandbox(parts: &SweeperParts, session: SessionId) -> ExpectedSandbox {
    match parts.store.get(session).await {
        Ok(None) => ExpectedSandbox::Absent,
        Ok(Some(snapshot)) => match snapshot.record.state {
            AgentState::Ended => ExpectedSandbox::Absent,
            AgentState::Stopped | AgentState::Failed => ExpectedSandbox::Stopped,
            AgentState::Starting => ExpectedSandbox::Undecided,
            AgentState::Paused => ExpectedSandbox::Paused,
            AgentState::Idle | AgentState::Running | AgentState::AwaitingConfirmation | AgentState::Interrupting => {
                ExpectedSandbox::Running
            }
        },
        Err(e) => {
            warn!(%session, "the session's record cannot be read: {e}");
            ExpectedSandbox::Undecided
        }
    }
}

fn sessions_in(runs: &std::path::Path) -> HashSet<SessionId> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspension_restarts_the_awake_clock() {
        let awake = AwakeClock::start_now();
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        for second in 1..100 {
            awake.awake_for(after(second));
        }
        assert!(awake.awake_for(after(100)) >= Duration::from_secs(100));
        assert_eq!(
            awake.awake_for(after(2500)),
            Duration::ZERO,
            "the first call after the suspension restarts the clock"
        );
        assert_eq!(awake.awake_for(after(2503)), Duration::from_secs(3));
    }
}
