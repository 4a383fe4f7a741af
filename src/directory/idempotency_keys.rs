//! Which session a client's key made: asking again makes no second one, also after a restart, and after the session's end.

use std::{collections::HashMap, sync::Arc};

use greenroom_protocol::observation::AgentState;
use tokio::sync::watch;
use tracing::warn;

use super::NewSession;
use crate::{
    session::{RequestError, request_digest},
    store::{SessionId, SessionQuery, SessionRecord, SessionSnapshot, Store, StoreError},
};

/// How many sessions are listed at once.
const PAGE: usize = 500;

/// One key for each session that was made with one. A client's key is short (`web/request.rs`, and `id` of a frame).
#[derive(Default)]
pub(super) struct IdempotencyKeys {
    made: HashMap<String, KeyedSession>,
    /// Those of the servers before this one are known.
    is_loaded: watch::Sender<bool>,
}

struct KeyedSession {
    session: SessionId,
    /// What was asked for, where that is told.
    request_digest: Option<String>,
}

/// A client's key, together with what it stands for: so that it is noticed when it is used again for something else. What a
/// session is called is no part of that.
pub fn idempotency_key(name: &str, new: &NewSession) -> String {
    let unnamed = NewSession { title: None, ..new.clone() };
    format!("{name}{DIGEST_SEPARATOR}{:08x}", request_digest(&unnamed))
}

/// Between a key's name and what it stands for.
const DIGEST_SEPARATOR: &str = " =";

fn split_key(key: &str) -> (&str, Option<&str>) {
    match key.rsplit_once(DIGEST_SEPARATOR) {
        Some((name, asked)) if asked.len() == 8 => (name, Some(asked)),
        Some(_) | None => (key, None),
    }
}

impl IdempotencyKeys {
    /// The session that it made.
    ///
    /// # Errors
    /// It made one for another wish.
    pub(super) fn get(&self, key: &str) -> Result<Option<SessionId>, RequestError> {
        let (name, asked) = split_key(key);
        match self.made.get(name) {
            Some(made) if made.request_digest.as_deref().zip(asked).is_some_and(|(then, now)| then != now) => {
                Err(RequestError::IdReused(name.to_owned()))
            }
            made => Ok(made.map(|made| made.session)),
        }
    }

    /// Of two sessions that the same key made, the first is the one.
    pub(super) fn insert(&mut self, key: Option<String>, session: SessionId) {
        let Some(key) = key else { return };
        let (name, asked) = split_key(&key);
        let made = || KeyedSession { session, request_digest: asked.map(str::to_owned) };
        let known = self.made.entry(name.to_owned()).or_insert_with(made);
        if session < known.session {
            *known = made();
        }
    }

    pub(super) fn insert_loaded(&mut self, keys: Vec<(String, SessionId)>) {
        keys.into_iter().for_each(|(key, made)| self.insert(Some(key), made));
        self.is_loaded.send_replace(true);
    }

    pub(super) fn is_loaded(&self) -> bool {
        *self.is_loaded.borrow()
    }

    pub(super) fn wait_until_loaded(&self) -> impl Future<Output = ()> + use<> {
        let mut known = self.is_loaded.subscribe();
        // Where it ends otherwise, the Directory has.
        async move { drop(known.wait_for(|known| *known).await) }
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.made.retain(|_, made| made.session != session);
    }
}

/// The keys of all sessions that have ended. Those of the others come with the list of what lives.
pub(super) async fn keys_of_ended(store: Arc<dyn Store>) -> Vec<(String, SessionId)> {
    let mut keys = Vec::new();
    for archived in [false, true] {
        let query = SessionQuery {
            state: Some(AgentState::Ended),
            archived: Some(archived),
            limit: PAGE,
            ..SessionQuery::default()
        };
        if let Err(e) = list(&*store, query, &mut keys).await {
            warn!("what clients asked for before this start is not all known; some of it may be done twice: {e}");
        }
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
