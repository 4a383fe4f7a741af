//! Freezing a container and letting it go on, by an engine that may stall and does what it was asked for when it wakes, long
//! after whoever asked has been told that it did not.
//!
//! So an order is followed to its end, and what is ordered meanwhile waits behind it: the engine itself keeps no order among
//! its callers. Nor does it know at once: it notes how a container stands when it has carried an order out, and once more when
//! it hears of that from beneath, which undoes the note of an order that came in between; the next one it would then refuse as
//! done already. So the next one comes [`SETTLED_IN`] later. A freeze that nobody has been told of is undone, unless its
//! container was stopped meanwhile: what has the name by then is not what it was for. An end that does not come within
//! [`FOLLOWED`](super::engine::FOLLOWED) seconds is given up: how the container stands is not known then, whoever is next in
//! turn makes it what it should be, and so does the sweep.

use std::{future::ready, sync::Arc, time::Duration};

use bollard::models::ContainerStateStatusEnum;
use tokio::{
    sync::{OwnedMutexGuard, oneshot},
    time::{Instant, sleep, timeout_at},
};

use super::engine::{Call, Engine, Trouble};
use crate::{
    sandbox::{SandboxError, Turns},
    store::SessionId,
};

const PAUSE: Call = Call { what: "pause the container", seconds: 10 };
const UNPAUSE: Call = Call { what: "unpause the container", seconds: 10 };
/// How soon the engine has heard from beneath what it did itself; where that takes longer, the sweep puts it right.
const SETTLED_IN: Duration = Duration::from_millis(50);

pub(super) async fn freeze(
    engine: &Engine,
    turns: &Arc<Turns>,
    session: SessionId,
    container: String,
) -> Result<(), SandboxError> {
    let (pausing, undoing, paused) = (engine.clone(), engine.clone(), container.clone());
    let undo = async move {
        if let Err(e) = unpause(&undoing, session, &paused).await {
            tracing::warn!(%session, "a freeze that failed could not be undone, and the container may stand still: {e}");
        }
    };
    in_turn(turns, session, PAUSE, async move { pause(&pausing, session, &container).await }, undo).await
}

pub(super) async fn thaw(
    engine: &Engine,
    turns: &Arc<Turns>,
    session: SessionId,
    container: String,
) -> Result<(), SandboxError> {
    let engine = engine.clone();
    in_turn(turns, session, UNPAUSE, async move { unpause(&engine, session, &container).await }, ready(())).await
}

/// Carries an order out when those before it are; within the deadline of `call` tells what came of it. `undo` comes where that
/// was not told, or is that it failed.
async fn in_turn(
    turns: &Arc<Turns>,
    session: SessionId,
    call: Call,
    order: impl Future<Output = Result<Done, SandboxError>> + Send + 'static,
    undo: impl Future<Output = ()> + Send + 'static,
) -> Result<(), SandboxError> {
    let deadline = Instant::now() + Duration::from_secs(call.seconds);
    let turn = timeout_at(deadline, turns.of(session).lock_owned()).await.map_err(|_| call.overdue())?;
    let (tell, mut told) = oneshot::channel();
    let turns = turns.clone();
    tokio::spawn(async move {
        let done = order.await;
        let (failed, was_so) = (done.is_err(), matches!(done, Ok(Done::Before)));
        let counts = tell.send(done.map(drop)).is_ok() && !failed;
        if !counts && turns.is_current(&session, OwnedMutexGuard::mutex(&turn)) {
            undo.await;
        }
        if !was_so {
            sleep(SETTLED_IN).await;
        }
    });
    let ended = || Err(SandboxError::Failed { what: call.what, detail: "the server is shutting down".to_owned() });
    match timeout_at(deadline, &mut told).await {
        Ok(told) => told.unwrap_or_else(|_| ended()),
        Err(_) => {
            // It may be told at this very moment, and then it counts.
            told.close();
            told.try_recv().unwrap_or_else(|_| Err(call.overdue()))
        }
    }
}

/// When a container came to stand as it was ordered.
enum Done {
    Now,
    Before,
}

async fn pause(engine: &Engine, session: SessionId, container: &str) -> Result<Done, SandboxError> {
    match engine.call(PAUSE.patiently(), engine.client.pause_container(container)).await {
        Ok(()) => Ok(Done::Now),
        Err(trouble) => unless(engine, ContainerStateStatusEnum::PAUSED, session, container, trouble).await,
    }
}

async fn unpause(engine: &Engine, session: SessionId, container: &str) -> Result<Done, SandboxError> {
    match engine.call(UNPAUSE.patiently(), engine.client.unpause_container(container)).await {
        Ok(()) => Ok(Done::Now),
        Err(trouble) => unless(engine, ContainerStateStatusEnum::RUNNING, session, container, trouble).await,
    }
}

/// A call failed that needs a container which runs: says so where there is none.
async fn unless(
    engine: &Engine,
    wanted: ContainerStateStatusEnum,
    session: SessionId,
    container: &str,
    trouble: Trouble,
) -> Result<Done, SandboxError> {
    let Trouble::Refused { .. } = trouble else { return Err(trouble.about(session)) };
    let there = engine.inspect(container).await.map_err(|trouble| trouble.about(session))?;
    match there.status() {
        status if status == wanted => Ok(Done::Before),
        ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::PAUSED => Err(trouble.about(session)),
        ContainerStateStatusEnum::EMPTY
        | ContainerStateStatusEnum::CREATED
        | ContainerStateStatusEnum::RESTARTING
        | ContainerStateStatusEnum::REMOVING
        | ContainerStateStatusEnum::EXITED
        | ContainerStateStatusEnum::DEAD
        | ContainerStateStatusEnum::STOPPING => Err(SandboxError::Gone { session }),
    }
}
