//! Pause and unpause of a container, on an engine that may stall.
//!
//! A stalled engine executes a call when it recovers, long after its caller got an error.
//! Therefore:
//!
//! - Each call is followed to its answer, for [`FOLLOW_SECONDS`](super::engine::FOLLOW_SECONDS) at
//!   most. Later calls for the session wait behind it: the engine keeps no order among its callers.
//! - The next call comes [`SETTLE_DELAY`] after a change. The engine records the new state when it
//!   has executed a call, and again when its runtime reports the change. The second record can
//!   overwrite the state of a call in between. The engine would then reject the next call as done
//!   already.
//! - A pause whose success was not reported to its caller is undone. If the container was stopped
//!   meanwhile, nothing is undone: the name may belong to a newer run.
//! - If the answer does not come in time, the call is given up and the container's state is
//!   unknown. The next call or the sweep corrects it.

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
/// Time in which the engine records its runtime's report of a change. If a report takes longer, the
/// sweep corrects the state.
const SETTLE_DELAY: Duration = Duration::from_millis(50);

pub(super) async fn pause(
    engine: &DockerEngine,
    locks: &Arc<KeyedMutex>,
    session: SessionId,
    container: String,
) -> Result<(), SandboxError> {
    let (pausing, undoing, paused) = (engine.clone(), engine.clone(), container.clone());
    let undo = async move {
        if let Err(e) = unpause_container(&undoing, session, &paused).await {
            tracing::warn!(%session, "a failed pause could not be undone; the container may still be paused: {e}");
        }
    };
    with_pause_lock(locks, session, PAUSE, async move { pause_container(&pausing, session, &container).await }, undo)
        .await
}

pub(super) async fn unpause(
    engine: &DockerEngine,
    locks: &Arc<KeyedMutex>,
    session: SessionId,
    container: String,
) -> Result<(), SandboxError> {
    let engine = engine.clone();
    with_pause_lock(
        locks,
        session,
        UNPAUSE,
        async move { unpause_container(&engine, session, &container).await },
        ready(()),
    )
    .await
}

/// Makes a call after the earlier calls of the session, and returns its result within the deadline
/// of `call`.
///
/// `undo` runs if the call failed, or if its caller had given up.
async fn with_pause_lock(
    locks: &Arc<KeyedMutex>,
    session: SessionId,
    call: EngineCall,
    operation: impl Future<Output = Result<PauseOutcome, SandboxError>> + Send + 'static,
    undo: impl Future<Output = ()> + Send + 'static,
) -> Result<(), SandboxError> {
    let deadline = Instant::now() + Duration::from_secs(call.seconds);
    let lock = timeout_at(deadline, locks.of(session).lock_owned()).await.map_err(|_| call.overdue())?;
    let (result_sender, mut result_receiver) = oneshot::channel();
    let locks = locks.clone();
    tokio::spawn(async move {
        let outcome = operation.await;
        let (failed, unchanged) = (outcome.is_err(), matches!(outcome, Ok(PauseOutcome::Unchanged)));
        let is_reported = result_sender.send(outcome.map(drop)).is_ok() && !failed;
        if !is_reported && locks.is_current(&session, OwnedMutexGuard::mutex(&lock)) {
            undo.await;
        }
        if !unchanged {
            sleep(SETTLE_DELAY).await;
        }
    });
    let shutting_down =
        || Err(SandboxError::Failed { what: call.what, detail: "the server is shutting down".to_owned() });
    match timeout_at(deadline, &mut result_receiver).await {
        Ok(result) => result.unwrap_or_else(|_| shutting_down()),
        Err(_) => {
            // The result may arrive at this moment. Then it is the caller's result.
            result_receiver.close();
            result_receiver.try_recv().unwrap_or_else(|_| Err(call.overdue()))
        }
    }
}

/// Effect of a pause or unpause.
enum PauseOutcome {
    /// The call changed the container's state.
    Changed,
    /// The container already had the requested state.
    Unchanged,
}

async fn pause_container(
    engine: &DockerEngine,
    session: SessionId,
    container: &str,
) -> Result<PauseOutcome, SandboxError> {
    match engine.call(PAUSE.followed(), engine.client.pause_container(container)).await {
        Ok(()) => Ok(PauseOutcome::Changed),
        Err(error) => unless_already(engine, ContainerStateStatusEnum::PAUSED, session, container, error).await,
    }
}

async fn unpause_container(
    engine: &DockerEngine,
    session: SessionId,
    container: &str,
) -> Result<PauseOutcome, SandboxError> {
    match engine.call(UNPAUSE.followed(), engine.client.unpause_container(container)).await {
        Ok(()) => Ok(PauseOutcome::Changed),
        Err(error) => unless_already(engine, ContainerStateStatusEnum::RUNNING, session, container, error).await,
    }
}

/// Converts the failure of a pause or unpause, after an inspection of the container.
///
/// The call succeeded if the container already has the `expected` state. Without a running
/// container the error is [`SandboxError::NotFound`].
async fn unless_already(
    engine: &DockerEngine,
    expected: ContainerStateStatusEnum,
    session: SessionId,
    container: &str,
    error: EngineError,
) -> Result<PauseOutcome, SandboxError> {
    let EngineError::Refused { .. } = error else { return Err(error.for_session(session)) };
    let inspected = engine.inspect(container).await.map_err(|error| error.for_session(session))?;
    match inspected.status() {
        status if status == expected => Ok(PauseOutcome::Unchanged),
        ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::PAUSED => Err(error.for_session(session)),
        ContainerStateStatusEnum::EMPTY
        | ContainerStateStatusEnum::CREATED
        | ContainerStateStatusEnum::RESTARTING
        | ContainerStateStatusEnum::REMOVING
        | ContainerStateStatusEnum::EXITED
        | ContainerStateStatusEnum::DEAD
        | ContainerStateStatusEnum::STOPPING => Err(SandboxError::NotFound { session }),
    }
}
