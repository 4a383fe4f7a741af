//! The Sweeper actor: puts idle sessions to rest, and clears away what no session owns.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use actix::prelude::*;
use greenroom_protocol::observation::AgentState;
use serde::Serialize;
use tracing::{info, warn};

use crate::{
    actor_registry::{ActorEntry, ActorKind, ActorRegistry},
    directory::{Directory, GetIfRunning, Open, PassivateIdle},
    sandbox::{FoundSandbox, RunDir, SandboxDriver, SandboxPresence},
    session::messages::{PauseOrStopIfIdle, Reconcile},
    store::{SessionId, SessionSnapshot, Store},
};

/// Sweep now.
#[derive(Debug, Message)]
#[rtype(result = "Swept")]
pub struct Sweep;

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Swept {
    /// Sessions paused or stopped because nothing happened in them.
    #[serde(rename = "rested")]
    pub idled: usize,
    /// Actors of sessions that were at rest, let go.
    #[serde(rename = "retired")]
    pub passivated: usize,
    /// Sandboxes that no session owned, removed.
    pub sandboxes: usize,
    /// Sandboxes that ran though their sessions were at rest, stopped.
    pub stopped: usize,
    /// Sandboxes that stood still, or did not, against what their sessions say, put right.
    #[serde(rename = "righted")]
    pub corrected: usize,
    /// Run directories, with their sockets, that no session owned, removed.
    pub run_directories: usize,
    /// Bytes of the journal that the disk got back.
    pub journal_bytes: u64,
}

/// What the Sweeper works with.
pub struct SweeperParts {
    pub directory: Addr<Directory>,
    pub store: Arc<dyn Store>,
    pub sandbox: Arc<dyn SandboxDriver>,
    pub actor_registry: ActorRegistry,
    pub runs: PathBuf,
    pub interval: Duration,
    /// A session in which nothing happened for so long is paused; one that stays so is stopped later.
    pub pause_after: Duration,
    pub stop_after: Duration,
}

/// How often the Sweeper looks whether the server is awake.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A heartbeat that comes after so long: nothing ran meanwhile, because the server was stopped or its machine slept.
const SUSPENDED_AFTER: Duration = Duration::from_secs(6);

/// The Sweeper actor.
pub struct Sweeper {
    parts: Arc<SweeperParts>,
    entry: ActorEntry,
    awake: Arc<AwakeClock>,
}

/// How long the server has been awake. Nobody is idle who could do nothing.
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

    /// Until `now`, which may come before the heartbeat that is late: in the middle of a sweep, too, the server may be stopped
    /// and go on.
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

    /// The first sweep is at once: a server that died may have left something behind.
    fn started(&mut self, ctx: &mut Context<Sweeper>) {
        ctx.run_interval(HEARTBEAT, |sweeper, _| {
            sweeper.awake.awake_for(Instant::now());
        });
        ctx.notify(Tick);
    }
}

/// It is time again.
#[derive(Message)]
#[rtype(result = "()")]
struct Tick;

impl Handler<Tick> for Sweeper {
    type Result = ();

    /// The next one is timed from the end of this one, so a slow engine never has two sweeps at once.
    fn handle(&mut self, _: Tick, ctx: &mut Context<Sweeper>) {
        let sweep = self.sweep().into_actor(self);
        ctx.spawn(sweep.map(|swept, sweeper, ctx| {
            if swept != Swept::default() {
                info!(?swept, "swept");
            }
            ctx.notify_later(Tick, sweeper.parts.interval);
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
    // Before any is ordered to rest, which takes it a moment.
    clear_sandboxes(&parts, &mut swept).await;
    swept.idled = pause_or_stop_idle(&parts, &awake).await;
    swept.passivated = parts.directory.send(PassivateIdle).await.unwrap_or_default();
    swept.run_directories = remove_run_directories(&parts).await;
    swept.journal_bytes = compact(&parts).await;
    swept
}

/// Asks every live session to rest. Whether it may is its own to say, at that moment: what works, waits for a person or is
/// watched refuses.
async fn pause_or_stop_idle(parts: &SweeperParts, awake: &AwakeClock) -> usize {
    let live = match parts.store.live().await {
        Ok(live) => live,
        Err(e) => {
            warn!("the sweep cannot see the sessions: {e}");
            return 0;
        }
    };
    let mut rested = 0;
    for SessionSnapshot { record, .. } in live {
        let Ok(Some(session)) = parts.directory.send(GetIfRunning { id: record.id }).await else { continue };
        let awake = awake.awake_for(Instant::now());
        let rest =
            PauseOrStopIfIdle { pause_after: parts.pause_after, stop_after: parts.stop_after, server_awake: awake };
        rested += usize::from(matches!(session.send(rest).await, Ok(Ok(_))));
    }
    rested
}

async fn compact(parts: &SweeperParts) -> u64 {
    match parts.store.compact().await {
        Ok(compacted) => compacted.freed,
        Err(e) => {
            warn!("the journal keeps space that it does not need: {e}");
            0
        }
    }
}

/// Sandboxes that nobody owns are removed; those that are not what their sessions say are made so.
async fn clear_sandboxes(parts: &SweeperParts, swept: &mut Swept) {
    let found = match parts.sandbox.list().await {
        Ok(found) => found,
        Err(e) => return warn!("the sweep cannot see the sandboxes: {e}"),
    };
    for FoundSandbox { session, presence, .. } in found {
        match (expected_sandbox(parts, session).await, presence) {
            (ExpectedSandbox::Absent, _) => match parts.sandbox.remove(session).await {
                Ok(()) => swept.sandboxes += 1,
                Err(e) => warn!(%session, "a sandbox that nobody owns cannot be removed: {e}"),
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

/// The session itself orders it, if it still means it so: nobody else knows what it was told since.
async fn reconcile(parts: &SweeperParts, id: SessionId, seen: SandboxPresence) -> bool {
    match parts.directory.send(Open { id }).await {
        Ok(Ok(session)) => session.send(Reconcile { observed: seen }).await.unwrap_or(false),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// It is the last that goes of a sandbox: where a removal was broken off behind the sandbox itself, what is left of it is to go too.
async fn remove_run_directories(parts: &SweeperParts) -> usize {
    let runs = parts.runs.clone();
    let there = tokio::task::spawn_blocking(move || sessions_in(&runs)).await.unwrap_or_default();
    let mut removed = 0;
    for session in there {
        if expected_sandbox(parts, session).await != ExpectedSandbox::Absent {
            continue;
        }
        if let Err(e) = parts.sandbox.remove(session).await {
            warn!(%session, "what is left of a sandbox that nobody owns cannot be removed: {e}");
            continue;
        }
        match RunDir::of(&parts.runs, session).remove().await {
            Ok(()) => removed += 1,
            Err(e) => warn!(%session, "a run directory that nobody owns cannot be removed: {e}"),
        }
    }
    removed
}

/// What a session wants of what is found of it.
#[derive(PartialEq)]
enum ExpectedSandbox {
    Running,
    Paused,
    Stopped,
    /// It is on its way up, or nobody knows.
    Undecided,
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
            warn!(%session, "whether the session is there cannot be told: {e}");
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
    fn a_server_that_stood_still_has_been_awake_since_then() {
        let awake = AwakeClock::start_now();
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        for second in 1..100 {
            awake.awake_for(after(second));
        }
        assert!(awake.awake_for(after(100)) >= Duration::from_secs(100));
        assert_eq!(awake.awake_for(after(2500)), Duration::ZERO, "whoever asks first, heartbeat or sweep");
        assert_eq!(awake.awake_for(after(2503)), Duration::from_secs(3));
    }
}
