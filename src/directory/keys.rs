//! Which session a client's key made: asking again makes no second one, also after a restart, and after the session's end.

use std::{collections::HashMap, sync::Arc};

use greenroom_protocol::observation::State;
use tokio::sync::watch;
use tracing::warn;

use crate::store::{Query, Record, SessionId, Snapshot, Store, StoreError};

/// How many sessions are listed at once.
const PAGE: usize = 500;

/// One key for each session that was made with one. A client's key is short (`web/request.rs`, and `id` of a frame).
#[derive(Default)]
pub(super) struct Keys {
    made: HashMap<String, SessionId>,
    /// Those of the servers before this one are known.
    are_all_known: watch::Sender<bool>,
}

impl Keys {
    pub(super) fn get(&self, key: &str) -> Option<SessionId> {
        self.made.get(key).copied()
    }

    /// Of two sessions that the same key made, the first is the one.
    pub(super) fn learn(&mut self, key: Option<String>, made: SessionId) {
        if let Some(key) = key {
            self.made.entry(key).and_modify(|known| *known = (*known).min(made)).or_insert(made);
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
        self.made.retain(|_, made| *made != session);
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
