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

use super::engine::{DockerEngine, EngineCall, EngineError};
use crate::{
    sandbox::{KeyedMutex, SandboxError},
    store::SessionId,
};

const PAUSE: EngineCall = EngineCall { what: "pause the container", seconds: 10 };
const UNPAUSE: EngineCall = EngineCall { what: "unpause the container", seconds: 10 };
/// How soon the engine has heard from beneath what it did itself; where that takes longer, the sweep puts it right.
const SETTLE_DELAY: Duration = Duration::from_millis(50);

pub(super) async fn pause(
    engine: &DockerEngine,
    turns: &Arc<KeyedMutex>,
    session: SessionId,
    container: String,
) -> Result<(), SandboxError> {
    let (pausing, undoing, paused) = (engine.clone(), engine.clone(), container.clone());
    let undo = async move {
        if let Err(e) = unpause_container(&undoing, session, &paused).await {
            tracing::warn!(%session, "a freeze that failed could not be undone, and the container may stand still: {e}");
        }
    };
    in_turn(turns, session, PAUSE, async move { pause_container(&pausing, session, &container).await }, undo).await
}

pub(super) async fn unpause(
    engine: &DockerEngine,
    turns: &Arc<KeyedMutex>,
    session: SessionId,
    container: String,
) -> Result<(), SandboxError> {
    let engine = engine.clone();
    in_turn(turns, session, UNPAUSE, async move { unpause_container(&engine, session, &container).await }, ready(()))
        .await
}

/// Carries an order out when those before it are; within the deadline of `call` tells what came of it. `undo` comes where that
/// was not told, or is that it failed.
async fn in_turn(
    turns: &Arc<KeyedMutex>,
    session: SessionId,
    call: EngineCall,
    order: impl Future<Output = Result<PauseOutcome, SandboxError>> + Send + 'static,
    undo: impl Future<Output = ()> + Send + 'static,
) -> Result<(), SandboxError> {
    let deadline = Instant::now() + Duration::from_secs(call.seconds);
    let turn = timeout_at(deadline, turns.of(session).lock_owned()).await.map_err(|_| call.overdue())?;
    let (tell, mut told) = oneshot::channel();
    let turns = turns.clone();
    tokio::spawn(async move {
        let done = order.await;
        let (failed, was_so) = (done.is_err(), matches!(done, Ok(PauseOutcome::Unchanged)));
        let counts = tell.send(done.map(drop)).is_ok() && !failed;
        if !counts && turns.is_current(&session, OwnedMutexGuard::mutex(&turn)) {
            undo.await;
        }
        if !was_so {
            sleep(SETTLE_DELAY).await;
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
enum PauseOutcome {
    Changed,
    Unchanged,
}

async fn pause_container(
    engine: &DockerEngine,
    session: SessionId,
    container: &str,
) -> Result<PauseOutcome, SandboxError> {
    match engine.call(PAUSE.followed(), engine.client.pause_container(container)).await {
        Ok(()) => Ok(PauseOutcome::Changed),
        Err(trouble) => unless_already(engine, ContainerStateStatusEnum::PAUSED, session, container, trouble).await,
    }
}

async fn unpause_container(
    engine: &DockerEngine,
    session: SessionId,
    container: &str,
) -> Result<PauseOutcome, SandboxError> {
    match engine.call(UNPAUSE.followed(), engine.client.unpause_container(container)).await {
        Ok(()) => Ok(PauseOutcome::Changed),
        Err(trouble) => unless_already(engine, ContainerStateStatusEnum::RUNNING, session, container, trouble).await,
    }
}

/// A call failed that needs a container which runs: says so where there is none.
async fn unless_already(
    engine: &DockerEngine,
    wanted: ContainerStateStatusEnum,
    session: SessionId,
    container: &str,
    trouble: EngineError,
) -> Result<PauseOutcome, SandboxError> {
    let EngineError::Refused { .. } = trouble else { return Err(trouble.for_session(session)) };
    let there = engine.inspect(container).await.map_err(|trouble| trouble.for_session(session))?;
    match there.status() {
        status if status == wanted => Ok(PauseOutcome::Unchanged),
        ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::PAUSED => Err(trouble.for_session(session)),
        ContainerStateStatusEnum::EMPTY
        | ContainerStateStatusEnum::CREATED
        | ContainerStateStatusEnum::RESTARTING
        | ContainerStateStatusEnum::REMOVING
        | ContainerStateStatusEnum::EXITED
        | ContainerStateStatusEnum::DEAD
        | ContainerStateStatusEnum::STOPPING => Err(SandboxError::NotFound { session }),
    }
}
