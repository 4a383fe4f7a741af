//! Maps clients' idempotency keys to the sessions that they created. A repeated request creates no
//! second session, even after a restart and after the session's end.

use std::{collections::HashMap, sync::Arc};

use greenroom_protocol::observation::AgentState;
use tokio::sync::watch;
use tracing::warn;

use super::{ForkRequest, NewSession};
use crate::{
    session::{RequestError, request_digest},
    store::{ArchiveFilter, SessionId, SessionQuery, SessionRecord, SessionSnapshot, Store, StoreError},
};

/// Sessions per page when the keys are loaded.
const PAGE: usize = 500;

/// Idempotency keys of all sessions. Bound: one key per session that was created with a key.
/// `web/request.rs` and the frame's `id` limit the length of a client's key.
#[derive(Default)]
pub(super) struct IdempotencyKeys {
    sessions: HashMap<String, KeyedSession>,
    /// True once the keys of earlier servers are loaded.
    is_loaded: watch::Sender<bool>,
}

struct KeyedSession {
    session: SessionId,
    /// Digest of the request that created the session. `None` if the stored key has no digest.
    request_digest: Option<String>,
}

/// Returns a client's key with the digest of its request appended. The digest detects a key that is
/// reused for another request. The title is not part of the digest.
pub fn idempotency_key(name: &str, new: &NewSession) -> String {
    let untitled = NewSession { title: None, ..new.clone() };
    format!("{name}{DIGEST_SEPARATOR}{:08x}", request_digest(&untitled))
}

/// Returns a client's key of a fork, in the same form. The title is not part of the digest.
pub fn fork_key(name: &str, from: SessionId, request: &ForkRequest) -> String {
    let untitled = ForkRequest { title: None, ..request.clone() };
    format!("{name}{DIGEST_SEPARATOR}{:08x}", request_digest(&("fork", from, untitled)))
}

/// Separates a key's name from its digest.
const DIGEST_SEPARATOR: &str = " =";

fn split_key(key: &str) -> (&str, Option<&str>) {
    match key.rsplit_once(DIGEST_SEPARATOR) {
        Some((name, digest)) if digest.len() == 8 => (name, Some(digest)),
        Some(_) | None => (key, None),
    }
}

impl IdempotencyKeys {
    /// Returns the session that the key created, if any.
    ///
    /// # Errors
    /// [`RequestError::IdReused`] if the key created a session for another request.
    pub(super) fn get(&self, key: &str) -> Result<Option<SessionId>, RequestError> {
        let (name, digest) = split_key(key);
        match self.sessions.get(name) {
            Some(keyed) if keyed.request_digest.as_deref().zip(digest).is_some_and(|(stored, new)| stored != new) => {
                Err(RequestError::IdReused(name.to_owned()))
            }
            keyed => Ok(keyed.map(|keyed| keyed.session)),
        }
    }

    /// Records a session's key. If two sessions have the same key, the older session wins.
    pub(super) fn insert(&mut self, key: Option<String>, session: SessionId) {
        let Some(key) = key else { return };
        let (name, digest) = split_key(&key);
        let keyed = || KeyedSession { session, request_digest: digest.map(str::to_owned) };
        let known = self.sessions.entry(name.to_owned()).or_insert_with(keyed);
        if session < known.session {
            *known = keyed();
        }
    }

    pub(super) fn insert_loaded(&mut self, keys: Vec<(String, SessionId)>) {
        keys.into_iter().for_each(|(key, session)| self.insert(Some(key), session));
        self.is_loaded.send_replace(true);
    }

    pub(super) fn is_loaded(&self) -> bool {
        *self.is_loaded.borrow()
    }

    pub(super) fn wait_until_loaded(&self) -> impl Future<Output = ()> + use<> {
        let mut is_loaded = self.is_loaded.subscribe();
        // An error means that the Directory has stopped.
        async move { drop(is_loaded.wait_for(|is_loaded| *is_loaded).await) }
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.sessions.retain(|_, keyed| keyed.session != session);
    }
}

/// Reads the keys of all ended sessions. The keys of the other sessions come with [`Store::live`].
pub(super) async fn keys_of_ended(store: Arc<dyn Store>) -> Vec<(String, SessionId)> {
    let mut keys = Vec::new();
    let query = SessionQuery {
        state: Some(AgentState::Ended),
        archived: ArchiveFilter::Any,
        limit: PAGE,
        ..SessionQuery::default()
    };
    if let Err(e) = list(&*store, query, &mut keys).await {
        warn!("could not load all idempotency keys of ended sessions; a repeated request may run twice: {e}");
    }
    keys
}

async fn list(
    store: &dyn Store,
    mut query: SessionQuery,
    keys: &mut Vec<(String, SessionId)>,
) -> Result<(), StoreError> {
    loop {
        let page = store.list(query.clone()).await?;
        let key = |SessionSnapshot { record: SessionRecord { idempotency_key: key, id, .. }, .. }| Some((key?, id));
        keys.extend(page.items.into_iter().filter_map(key));
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(()),
        }
    }
}
