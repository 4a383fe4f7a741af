//! How a session goes, with every trace of it.

use std::{io, path::PathBuf, time::Duration};

use actix::prelude::*;
use tokio::time::timeout;

use super::{Directory, Purge, Slot, refusal};
use crate::{
    sandbox::{RunDir, removal},
    session::{
        Refusal,
        messages::{End, Vanished},
    },
    store::SessionId,
};

/// How long a purge waits for a start that is under way: some pull an image meanwhile.
const START: Duration = Duration::from_secs(30);

impl Handler<Purge> for Directory {
    type Result = ResponseActFuture<Directory, Result<(), Refusal>>;

    fn handle(&mut self, Purge { id }: Purge, ctx: &mut Context<Directory>) -> Self::Result {
        self.entry.handled();
        // One that keeps falling is not waited for, and none comes back while it is removed, as one does whose end the journal
        // refuses: it would have a sandbox when it is gone.
        if let Some(fallen) = self.fallen.get_mut(&id) {
            fallen.let_through();
        }
        let opened = self.open(id, ctx);
        *self.being_purged.entry(id).or_default() += 1;
        let (store, sandbox) = (self.store.clone(), self.sandbox.clone());
        let (places, turn) = (self.places.clone(), self.starts.turn_of(id));
        let purged = async move {
            // One that has ended already is as good.
            if let Ok(session) = opened.await {
                let _ = session.send(End { key: None }).await;
            } else if store.get(id).await.map_err(|e| refusal(&e))?.is_none() {
                return Err(Refusal::NoSession(id.to_string()));
            }
            // A start that is under way would have its sandbox after this.
            let Ok(_no_start_is_under_way) = timeout(START, turn.lock()).await else {
                return Err(Refusal::Unavailable("its sandbox is being started; purge it again".to_owned()));
            };
            sandbox.remove(id).await.map_err(|e| Refusal::Unavailable(e.to_string()))?;
            // First: of what is forgotten nobody would know that it is to be removed.
            clear(id, places).await.map_err(|e| {
                Refusal::Unavailable(format!("its directories cannot be removed: {e}; see to that, and purge it again"))
            })?;
            store.forget(id).await.map_err(|e| refusal(&e))
        };
        Box::pin(purged.into_actor(self).map(move |purged, directory, ctx| {
            // Another may have been asked for meanwhile.
            let left = directory.being_purged.get(&id).map_or(0, |count| count - 1);
            match left {
                0 => directory.being_purged.remove(&id),
                left => directory.being_purged.insert(id, left),
            };
            match &purged {
                Ok(()) => directory.purged(id),
                // It had fallen before, or fell of this; what was tried meanwhile came to nothing.
                Err(_) if left == 0 && directory.how_it_fell(id).is_some() => drop(directory.come_back(id, ctx)),
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
            Some(Slot::Live(session)) => {
                session.do_send(Vanished);
                self.slots.remove(&id);
            }
            // It was on its way when the purge began, and a disk that hangs had it wait for longer.
            Some(opening @ Slot::Opening(_)) => {
                let opened = opening.session();
                actix::spawn(async move {
                    if let Ok(Ok(session)) = opened.await {
                        session.do_send(Vanished);
                    }
                });
            }
            None => {}
        }
        self.keys.forget(id);
        self.fallen.remove(&id);
        self.unreadable.remove(&id);
        self.say_how_it_is();
    }
}

/// Removes a session's directories.
async fn clear(id: SessionId, [runs, workspaces, homes]: [PathBuf; 3]) -> io::Result<()> {
    let run = RunDir::of(&runs, id).root().to_owned();
    removal::remove(vec![run, workspaces.join(id.to_string()), homes.join(id.to_string())]).await
}
