//! Which session a client's key made: asking again makes no second one, also after a restart, and after the session's end.

use std::{collections::HashMap, sync::Arc};

use greenroom_protocol::observation::State;
use tokio::sync::watch;
use tracing::warn;

use super::NewSession;
use crate::{
    session::{Refusal, digest_of},
    store::{Query, Record, SessionId, Snapshot, Store, StoreError},
};

/// How many sessions are listed at once.
const PAGE: usize = 500;

/// One key for each session that was made with one. A client's key is short (`web/request.rs`, and `id` of a frame).
#[derive(Default)]
pub(super) struct Keys {
    made: HashMap<String, Made>,
    /// Those of the servers before this one are known.
    are_all_known: watch::Sender<bool>,
}

struct Made {
    session: SessionId,
    /// What was asked for, where that is told.
    asked: Option<String>,
}

/// A client's key, together with what it stands for: so that it is noticed when it is used again for something else. What a
/// session is called is no part of that.
pub fn key_of(name: &str, new: &NewSession) -> String {
    let unnamed = NewSession { title: None, ..new.clone() };
    format!("{name}{ASKED}{:08x}", digest_of(&unnamed))
}

/// Between a key's name and what it stands for.
const ASKED: &str = " =";

fn parts(key: &str) -> (&str, Option<&str>) {
    match key.rsplit_once(ASKED) {
        Some((name, asked)) if asked.len() == 8 => (name, Some(asked)),
        Some(_) | None => (key, None),
    }
}

impl Keys {
    /// The session that it made.
    ///
    /// # Errors
    /// It made one for another wish.
    pub(super) fn get(&self, key: &str) -> Result<Option<SessionId>, Refusal> {
        let (name, asked) = parts(key);
        match self.made.get(name) {
            Some(made) if made.asked.as_deref().zip(asked).is_some_and(|(then, now)| then != now) => {
                Err(Refusal::IdReused(name.to_owned()))
            }
            made => Ok(made.map(|made| made.session)),
        }
    }

    /// Of two sessions that the same key made, the first is the one.
    pub(super) fn learn(&mut self, key: Option<String>, session: SessionId) {
        let Some(key) = key else { return };
        let (name, asked) = parts(&key);
        let made = || Made { session, asked: asked.map(str::to_owned) };
        let known = self.made.entry(name.to_owned()).or_insert_with(made);
        if session < known.session {
            *known = made();
        }
    }

    pub(super) fn learn_all(&mut self, keys: Vec<(String, SessionId)>) {
        keys.into_iter().for_each(|(key, made)| self.learn(Some(key), made));
        self.are_all_known.send_replace(true);
    }

    pub(super) fn are_all_known(&self) -> bool {
        *self.are_all_known.borrow()
    }

    pub(super) fn until_all_are_known(&self) -> impl Future<Output = ()> + use<> {
        let mut known = self.are_all_known.subscribe();
        // Where it ends otherwise, the Directory has.
        async move { drop(known.wait_for(|known| *known).await) }
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.made.retain(|_, made| made.session != session);
    }
}

/// The keys of all sessions that have ended. Those of the others come with the list of what lives.
pub(super) async fn of_ended(store: Arc<dyn Store>) -> Vec<(String, SessionId)> {
    let mut keys = Vec::new();
    for archived in [false, true] {
        let query = Query { state: Some(State::Ended), archived: Some(archived), limit: PAGE, ..Query::default() };
        if let Err(e) = list(&*store, query, &mut keys).await {
            warn!("what clients asked for before this start is not all known; some of it may be done twice: {e}");
        }
    }
    keys
}

async fn list(store: &dyn Store, mut query: Query, keys: &mut Vec<(String, SessionId)>) -> Result<(), StoreError> {
    loop {
        let page = store.list(query.clone()).await?;
        let key = |Snapshot { record: Record { key, id, .. }, .. }| Some((key?, id));
        keys.extend(page.items.into_iter().filter_map(key));
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(()),
        }
    }
}
