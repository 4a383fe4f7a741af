//! Registry of live actors. `GET /api/admin/actors` lists them.
//!
//! An actor registers when it starts and keeps its [`ActorEntry`]. Dropping the entry removes the
//! actor, whatever ended it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde::Serialize;

/// Type of an actor.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr, strum::VariantArray, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ActorKind {
    Directory,
    Session,
    FrontendSocket,
    TerminalSocket,
    ChatSocket,
    EventStream,
    AgentLink,
    Sweeper,
}

impl ActorKind {
    pub const ALL: &[ActorKind] = <ActorKind as strum::VariantArray>::VARIANTS;

    /// Name on the wire and in the metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Registry of the live actors of this process. Clones share one table.
#[derive(Clone, Default)]
pub struct ActorRegistry {
    table: Arc<ActorTable>,
}

#[derive(Default)]
struct ActorTable {
    next: AtomicU64,
    actors: Mutex<HashMap<u64, Arc<RegisteredActor>>>,
}

struct RegisteredActor {
    kind: ActorKind,
    id: u64,
    session: Option<String>,
    since_ms: i64,
    state: Mutex<String>,
    handled: AtomicU64,
    last_active_ms: AtomicU64,
    queued: AtomicU64,
}

/// Entry of one actor. Not to be shared: dropping the entry removes the actor.
pub struct ActorEntry {
    actor: Arc<RegisteredActor>,
    table: Arc<ActorTable>,
}

/// Row of `GET /api/admin/actors`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ActorStatus {
    pub kind: ActorKind,
    /// Id, unique in this process and never reused. Ascending with the time of registration.
    #[schema(example = "7")]
    pub id: String,
    pub session: Option<String>,
    pub state: String,
    /// Time of registration: RFC 3339, UTC, milliseconds.
    pub since: String,
    /// Time of the last handled message, in the same format.
    pub last_active: String,
    /// Messages handled so far.
    pub handled: u64,
    /// Queue length. For a session: transitions in flight to disk. For a socket: bytes that the
    /// client has not confirmed. For a link: frames for the agent.
    pub queued: u64,
}

impl ActorRegistry {
    /// Adds an actor. `session` is the session that the actor belongs to.
    pub fn register(&self, kind: ActorKind, session: Option<String>) -> ActorEntry {
        let id = self.table.next.fetch_add(1, Relaxed) + 1;
        let now = now_ms();
        let actor = Arc::new(RegisteredActor {
            kind,
            id,
            session,
            since_ms: now as i64,
            state: Mutex::new(String::new()),
            handled: AtomicU64::new(0),
            last_active_ms: AtomicU64::new(now),
            queued: AtomicU64::new(0),
        });
        self.actors().insert(id, actor.clone());
        ActorEntry { actor, table: self.table.clone() }
    }

    /// Returns a row for every live actor, oldest first.
    pub fn rows(&self) -> Vec<ActorStatus> {
        let mut actors: Vec<Arc<RegisteredActor>> = self.actors().values().cloned().collect();
        actors.sort_by_key(|actor| actor.id);
        actors.iter().map(|actor| actor.row()).collect()
    }

    /// Counts the live actors of `kind`, of one session or of all.
    pub fn count(&self, kind: ActorKind, session: Option<&str>) -> usize {
        let matches_filter = |actor: &&Arc<RegisteredActor>| {
            actor.kind == kind && (session.is_none() || actor.session.as_deref() == session)
        };
        self.actors().values().filter(matches_filter).count()
    }

    fn actors(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<RegisteredActor>>> {
        self.table.actors()
    }
}

impl ActorTable {
    fn actors(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<RegisteredActor>>> {
        // Invariant: no holder panics. Even then, a map of counters has no half-written state.
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActorEntry {
    /// Returns the actor's id.
    pub fn id(&self) -> u64 {
        self.actor.id
    }

    /// Counts a handled message and updates the time of the last activity.
    pub fn record_handled(&self) {
        self.actor.handled.fetch_add(1, Relaxed);
        self.actor.last_active_ms.store(now_ms(), Relaxed);
    }

    /// Sets the state that the row shows.
    pub fn set_state(&self, state: impl Into<String>) {
        *self.actor.state.lock().unwrap_or_else(PoisonError::into_inner) = state.into();
    }

    /// Sets the queue length that the row shows.
    pub fn set_queued(&self, n: u64) {
        self.actor.queued.store(n, Relaxed);
    }
}

impl Drop for ActorEntry {
    fn drop(&mut self) {
        self.table.actors().remove(&self.actor.id);
    }
}

impl RegisteredActor {
    fn row(&self) -> ActorStatus {
        ActorStatus {
            kind: self.kind,
            id: self.id.to_string(),
            session: self.session.clone(),
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            since: crate::clock::rfc3339(self.since_ms),
            last_active: crate::clock::rfc3339(self.last_active_ms.load(Relaxed) as i64),
            handled: self.handled.load(Relaxed),
            queued: self.queued.load(Relaxed),
        }
    }
}

fn now_ms() -> u64 {
    crate::clock::now_ms().max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actor_is_listed_while_its_entry_exists() {
        let registry = ActorRegistry::default();
        let entry = registry.register(ActorKind::Session, Some("s".into()));
        entry.record_handled();
        entry.set_state("idle");
        let rows = registry.rows();
        assert_eq!((rows[0].handled, rows[0].state.as_str()), (1, "idle"));
        assert_eq!(registry.count(ActorKind::Session, Some("s")), 1);
        assert_eq!(registry.count(ActorKind::Session, Some("other")), 0);
        drop(entry);
        assert!(registry.rows().is_empty());
    }
}
