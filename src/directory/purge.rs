//! How a session goes, with every trace of it.

use std::{io, path::PathBuf, time::Duration};

use actix::prelude::*;
use tokio::time::timeout;

use super::{Directory, Purge, SessionSlot, request_error};
use crate::{
    sandbox::{RunDir, remove_tree},
    session::{
        RequestError,
        messages::{End, Purged},
    },
    store::SessionId,
};

/// How long a purge waits for a start that is under way: some pull an image meanwhile.
const START_WAIT: Duration = Duration::from_secs(30);

impl Handler<Purge> for Directory {
    type Result = ResponseActFuture<Directory, Result<(), RequestError>>;

    fn handle(&mut self, Purge { id }: Purge, ctx: &mut Context<Directory>) -> Self::Result {
        self.entry.record_handled();
        // One that keeps falling is not waited for, and none comes back while it is removed, as one does whose end the journal
        // refuses: it would have a sandbox when it is gone.
        if let Some(fallen) = self.restarts.get_mut(&id) {
            fallen.admit_now();
        }
        let opened = self.open(id, ctx);
        *self.purging.entry(id).or_default() += 1;
        let (store, sandbox) = (self.store.clone(), self.sandbox.clone());
        let (places, turn) = (self.session_dirs.clone(), self.start_limiter.session_lock(id));
        let purged = async move {
            // One that has ended already is as good.
            if let Ok(session) = opened.await {
                let _ = session.send(End { idempotency_key: None }).await;
            } else if store.get(id).await.map_err(|e| request_error(&e))?.is_none() {
                return Err(RequestError::NoSession(id.to_string()));
            }
            // A start that is under way would have its sandbox after this.
            let Ok(_no_start_is_under_way) = timeout(START_WAIT, turn.lock()).await else {
                return Err(RequestError::Unavailable("its sandbox is being started; purge it again".to_owned()));
            };
            sandbox.remove(id).await.map_err(|e| RequestError::Unavailable(e.to_string()))?;
            // First: of what is forgotten nobody would know that it is to be removed.
            remove_session_dirs(id, places).await.map_err(|e| {
                RequestError::Unavailable(format!(
                    "its directories cannot be removed: {e}; see to that, and purge it again"
                ))
            })?;
            store.forget(id).await.map_err(|e| request_error(&e))
        };
        Box::pin(purged.into_actor(self).map(move |purged, directory, ctx| {
            // Another may have been asked for meanwhile.
            let left = directory.purging.get(&id).map_or(0, |count| count - 1);
            match left {
                0 => directory.purging.remove(&id),
                left => directory.purging.insert(id, left),
            };
            match &purged {
                Ok(()) => directory.purged(id),
                // It had fallen before, or fell of this; what was tried meanwhile came to nothing.
                Err(_) if left == 0 && directory.stop_cause(id).is_some() => {
                    directory.restart_with_backoff(id, ctx);
                }
                Err(_) => {}
            }
            purged
        }))
    }
}

impl Directory {
    /// Whoever listens to it holds its actor, which would live on for them without a journal.
    fn purged(&mut self, id: SessionId) {
        match self.slots.get_mut(&id) {
            Some(SessionSlot::Live(session)) => {
                session.do_send(Purged);
                self.slots.remove(&id);
            }
            // It was on its way when the purge began, and a disk that hangs had it wait for longer.
            Some(opening @ SessionSlot::Opening(_)) => {
                let opened = opening.session();
                actix::spawn(async move {
                    if let Ok(Ok(session)) = opened.await {
                        session.do_send(Purged);
                    }
                });
            }
            None => {}
        }
        self.keys.forget(id);
        self.restarts.remove(&id);
        self.unreadable.remove(&id);
        self.report_status();
    }
}

/// Removes a session's directories.
async fn remove_session_dirs(id: SessionId, [runs, workspaces, homes]: [PathBuf; 3]) -> io::Result<()> {
    let run = RunDir::of(&runs, id).root().to_owned();
    remove_tree::remove_trees(vec![run, workspaces.join(id.to_string()), homes.join(id.to_string())]).await
}
