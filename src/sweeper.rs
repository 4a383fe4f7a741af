//! The Sweeper actor: puts idle sessions to rest, and clears away what no session owns.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use actix::prelude::*;
use greenroom_protocol::observation::State;
use serde::Serialize;
use tracing::{info, warn};

use crate::{
    census::{Census, Entry, Kind},
    directory::{Directory, Find, Open, Tidy},
    sandbox::{Found, Presence, RunDir, Sandbox},
    session::messages::{Rest, Settle},
    store::{SessionId, Snapshot, Store},
};

/// Sweep now.
#[derive(Debug, Message)]
#[rtype(result = "Swept")]
pub struct Sweep;

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Swept {
    /// Sessions paused or stopped because nothing happened in them.
    pub rested: usize,
    /// Actors of sessions that were at rest, let go.
    pub retired: usize,
    /// Sandboxes that no session owned, removed.
    pub sandboxes: usize,
    /// Sandboxes that ran though their sessions were at rest, stopped.
    pub stopped: usize,
    /// Sandboxes that stood still, or did not, against what their sessions say, put right.
    pub righted: usize,
    /// Run directories, with their sockets, that no session owned, removed.
    pub run_directories: usize,
    /// Bytes of the journal that the disk got back.
    pub journal_bytes: u64,
}

/// What the Sweeper works with.
pub struct Parts {
    pub directory: Addr<Directory>,
    pub store: Arc<dyn Store>,
    pub sandbox: Arc<dyn Sandbox>,
    pub census: Census,
    pub runs: PathBuf,
    pub every: Duration,
    /// A session in which nothing happened for so long is paused; one that stays so is stopped later.
    pub pause_after: Duration,
    pub stop_after: Duration,
}

/// How often the Sweeper looks whether the server is awake.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A heartbeat that comes after so long: nothing ran meanwhile, because the server was stopped or its machine slept.
const ASLEEP: Duration = Duration::from_secs(6);

/// The Sweeper actor.
pub struct Sweeper {
    parts: Arc<Parts>,
    entry: Entry,
    awake: Arc<Awake>,
}

/// How long the server has been awake. Nobody is idle who could do nothing.
struct Awake(Mutex<Beats>);

struct Beats {
    last: Instant,
    awake_since: Instant,
}

impl Awake {
    fn beginning() -> Awake {
        let now = Instant::now();
        Awake(Mutex::new(Beats { last: now, awake_since: now }))
    }

    /// Until `now`, which may come before the heartbeat that is late: in the middle of a sweep, too, the server may be stopped
    /// and go on.
    fn until(&self, now: Instant) -> Duration {
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now - beats.last > ASLEEP {
            beats.awake_since = now;
        }
        beats.last = now;
        now - beats.awake_since
    }
}

impl Sweeper {
    pub fn start(parts: Parts) -> Addr<Sweeper> {
        let entry = parts.census.register(Kind::Sweeper, None);
        entry.state("waiting");
        Actor::start(Sweeper { parts: Arc::new(parts), entry, awake: Arc::new(Awake::beginning()) })
    }

    fn sweep(&mut self) -> impl Future<Output = Swept> + use<> {
        self.entry.handled();
        sweep(self.parts.clone(), self.awake.clone())
    }
}

impl Actor for Sweeper {
    type Context = Context<Sweeper>;

    /// The first sweep is at once: a server that died may have left something behind.
    fn started(&mut self, ctx: &mut Context<Sweeper>) {
        ctx.run_interval(HEARTBEAT, |sweeper, _| {
            sweeper.awake.until(Instant::now());
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
            ctx.notify_later(Tick, sweeper.parts.every);
        }));
    }
}

impl Handler<Sweep> for Sweeper {
    type Result = ResponseFuture<Swept>;

    fn handle(&mut self, _: Sweep, _: &mut Context<Sweeper>) -> Self::Result {
        Box::pin(self.sweep())
    }
}

async fn sweep(parts: Arc<Parts>, awake: Arc<Awake>) -> Swept {
    let mut swept = Swept::default();
    // Before any is ordered to rest, which takes it a moment.
    clear_sandboxes(&parts, &mut swept).await;
    swept.rested = rest(&parts, &awake).await;
    swept.retired = parts.directory.send(Tidy).await.unwrap_or_default();
    swept.run_directories = remove_run_directories(&parts).await;
    swept.journal_bytes = compact(&parts).await;
    swept
}

/// Asks every live session to rest. Whether it may is its own to say, at that moment: what works, waits for a person or is
/// watched refuses.
async fn rest(parts: &Parts, awake: &Awake) -> usize {
    let live = match parts.store.live().await {
        Ok(live) => live,
        Err(e) => {
            warn!("the sweep cannot see the sessions: {e}");
            return 0;
        }
    };
    let mut rested = 0;
    for Snapshot { record, .. } in live {
        let Ok(Some(session)) = parts.directory.send(Find { id: record.id }).await else { continue };
        let awake = awake.until(Instant::now());
        let rest = Rest { pause_after: parts.pause_after, stop_after: parts.stop_after, awake };
        rested += usize::from(matches!(session.send(rest).await, Ok(Ok(_))));
    }
    rested
}

async fn compact(parts: &Parts) -> u64 {
    match parts.store.compact().await {
        Ok(compacted) => compacted.freed,
        Err(e) => {
            warn!("the journal keeps space that it does not need: {e}");
            0
        }
    }
}

/// Sandboxes that nobody owns are removed; those that are not what their sessions say are made so.
async fn clear_sandboxes(parts: &Parts, swept: &mut Swept) {
    let found = match parts.sandbox.list().await {
        Ok(found) => found,
        Err(e) => return warn!("the sweep cannot see the sandboxes: {e}"),
    };
    for Found { session, presence, .. } in found {
        match (wanted(parts, session).await, presence) {
            (Wanted::Not, _) => match parts.sandbox.remove(session).await {
                Ok(()) => swept.sandboxes += 1,
                Err(e) => warn!(%session, "a sandbox that nobody owns cannot be removed: {e}"),
            },
            (Wanted::AtRest, Presence::Running | Presence::Frozen) => {
                swept.stopped += usize::from(settle(parts, session, presence).await);
            }
            (Wanted::Awake, Presence::Frozen) | (Wanted::Frozen, Presence::Running) => {
                swept.righted += usize::from(settle(parts, session, presence).await);
            }
            (Wanted::Awake | Wanted::Frozen | Wanted::AtRest | Wanted::AsItIs, _) => {}
        }
    }
}

/// The session itself orders it, if it still means it so: nobody else knows what it was told since.
async fn settle(parts: &Parts, id: SessionId, seen: Presence) -> bool {
    match parts.directory.send(Open { id }).await {
        Ok(Ok(session)) => session.send(Settle { seen }).await.unwrap_or(false),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// It is the last that goes of a sandbox: where a removal was broken off behind the sandbox itself, what is left of it is to go too.
async fn remove_run_directories(parts: &Parts) -> usize {
    let runs = parts.runs.clone();
    let there = tokio::task::spawn_blocking(move || sessions_in(&runs)).await.unwrap_or_default();
    let mut removed = 0;
    for session in there {
        if wanted(parts, session).await != Wanted::Not {
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
enum Wanted {
    Awake,
    Frozen,
    AtRest,
    /// It is on its way up, or nobody knows.
    AsItIs,
    Not,
}

async fn wanted(parts: &Parts, session: SessionId) -> Wanted {
    match parts.store.get(session).await {
        Ok(None) => Wanted::Not,
        Ok(Some(snapshot)) => match snapshot.record.state {
            State::Ended => Wanted::Not,
            State::Stopped | State::Failed => Wanted::AtRest,
            State::Starting => Wanted::AsItIs,
            State::Paused => Wanted::Frozen,
            State::Idle | State::Running | State::AwaitingConfirmation | State::Interrupting => Wanted::Awake,
        },
        Err(e) => {
            warn!(%session, "whether the session is there cannot be told: {e}");
            Wanted::AsItIs
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
        let awake = Awake::beginning();
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        for second in 1..100 {
            awake.until(after(second));
        }
        assert!(awake.until(after(100)) >= Duration::from_secs(100));
        assert_eq!(awake.until(after(2500)), Duration::ZERO, "whoever asks first, heartbeat or sweep");
        assert_eq!(awake.until(after(2503)), Duration::from_secs(3));
    }
}
