//! Removes a session and all its traces.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use actix::prelude::*;
use tokio::{task::spawn_blocking, time::timeout};

use super::{Directory, Purge, SessionSlot, request_error};
use crate::{
    sandbox::{RunDir, remove_tree},
    session::{
        RequestError, ServerSpending,
        messages::{End, Purged},
    },
    store::{SessionId, Store, StoreError},
};

/// Longest time that a purge waits for a start in flight. A start may pull an image.
const START_WAIT: Duration = Duration::from_secs(30);

impl Handler<Purge> for Directory {
    type Result = ResponseActFuture<Directory, Result<(), RequestError>>;

    fn handle(&mut self, Purge { id }: Purge, ctx: &mut Context<Directory>) -> Self::Result {
        self.entry.record_handled();
        // A crash-looping session is opened at once, so the purge does not wait for its backoff.
        // During the purge no actor restarts, even if the journal rejects the session's end. A
        // restarted actor would start a sandbox after the purge.
        if let Some(backoff) = self.restarts.get_mut(&id) {
            backoff.admit_now();
        }
        let opened = self.open(id, ctx);
        *self.purging.entry(id).or_default() += 1;
        let (store, sandbox, spending) = (self.store.clone(), self.sandbox.clone(), self.sessions.spending.clone());
        let (dirs, session_lock) = (self.session_dirs.clone(), self.start_limiter.session_lock(id));
        let (checkpoints, repositories) = (self.checkpoints.clone(), self.repositories.clone());
        let purged = async move {
            // An error means that the session has already ended.
            if let Ok(session) = opened.await {
                let _ = session.send(End { idempotency_key: None }).await;
            } else if store.get(id).await.map_err(|e| request_error(&e))?.is_none() {
                return Err(RequestError::NoSession(id.to_string()));
            }
            // A start in flight would create the sandbox after its removal.
            let Ok(_no_concurrent_start) = timeout(START_WAIT, session_lock.lock()).await else {
                return Err(RequestError::Unavailable(
                    "the session's sandbox is starting; purge the session again in a moment".to_owned(),
                ));
            };
            sandbox.remove(id).await.map_err(|e| RequestError::Unavailable(e.to_string()))?;
            // Before the journal: once the session is forgotten, no record of its directories is
            // left.
            let removed = async {
                remove_session_dirs(id, dirs).await?;
                repositories.purge(id).await?;
                // Last: a capture in progress ends when its workspace is gone.
                checkpoints.purge(id).await
            };
            removed.await.map_err(|e| {
                RequestError::Unavailable(format!(
                    "could not remove the session's directories: {e}; fix the cause and purge the session again"
                ))
            })?;
            claim_and_forget(store.as_ref(), spending, id).await.map_err(|e| request_error(&e))
        };
        Box::pin(purged.into_actor(self).map(move |purged, directory, ctx| {
            // Another purge of the session may have begun meanwhile.
            let remaining = directory.purging.get(&id).map_or(0, |count| count - 1);
            match remaining {
                0 => directory.purging.remove(&id),
                remaining => directory.purging.insert(id, remaining),
            };
            match &purged {
                Ok(()) => directory.purged(id),
                // The actor stopped before or during the purge, and restarts were suppressed
                // meanwhile.
                Err(_) if remaining == 0 && directory.stop_cause(id).is_some() => {
                    directory.restart_with_backoff(id, ctx);
                }
                Err(_) => {}
            }
            purged
        }))
    }
}

impl Directory {
    /// Drops a purged session and sends [`Purged`] to its actor. Subscribers hold the actor, which
    /// would otherwise live on without a journal.
    fn purged(&mut self, id: SessionId) {
        match self.slots.get_mut(&id) {
            Some(SessionSlot::Live(session)) => {
                session.do_send(Purged);
                self.slots.remove(&id);
            }
            // The actor was starting when the purge began, and a hanging disk delayed the start.
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

/// Removes a session from the journal.
///
/// Claims it first: the session may have no actor, and no append of its actor may follow. A start
/// of the actor may claim in between, and is fenced in turn.
///
/// Records the session's cost before it forgets the session, so a purge gives nothing back.
pub(super) async fn claim_and_forget(
    store: &dyn Store,
    spending: Arc<ServerSpending>,
    id: SessionId,
) -> Result<(), StoreError> {
    loop {
        let (epoch, snapshot) = match store.claim(id).await {
            // Another purge was faster.
            Err(StoreError::NoSession(_)) => return Ok(()),
            claimed => claimed?,
        };
        let spending = spending.clone();
        // Fails if the runtime is shutting down.
        spawn_blocking(move || spending.record_purge(&snapshot.record)).await.map_err(io::Error::other)??;
        match store.forget(id, epoch).await {
            Err(StoreError::Fenced) => {}
            forgotten => return forgotten,
        }
    }
}

/// Removes a session's run directory, workspace and home.
pub(super) async fn remove_session_dirs(id: SessionId, [runs, workspaces, homes]: [PathBuf; 3]) -> io::Result<()> {
    let run = RunDir::of(&runs, id).root().to_owned();
    remove_tree::remove_trees(vec![run, workspaces.join(id.to_string()), homes.join(id.to_string())]).await
}
