//! How a container comes to run, whatever is there already.
//!
//! "Create" comes first, without another look: whoever starts has had one, to learn whether there is anything to start, and in
//! the common case nothing is there and two calls do it. The engine answers a second container of the same name, or a missing
//! image, with an error, and only then is it asked what there is.

use std::time::Duration;

use bollard::{
    models::{ContainerCreateBody, ContainerStateStatusEnum},
    query_parameters::{CreateContainerOptions, StartContainerOptions},
};
use greenroom_protocol::observation::SandboxPhase;

use super::{
    body::{self, ContainerPolicy},
    engine::{DockerEngine, EngineCall, EngineError, InspectedContainer},
    image,
};
use crate::sandbox::{ProgressCallback, SandboxError, SandboxSpec, engine_sockets};

const CREATE: EngineCall = EngineCall { what: "create the container", seconds: 30 };
const START: EngineCall = EngineCall { what: "start the container", seconds: 30 };

/// How often a start begins again because somebody else removed, or was removing, what it found. 100 ms apart.
const ATTEMPTS: u32 = 300;

/// Said to a person where an exited container could not be started again.
const RECREATED_NOTICE: &str = "made anew, as it is set up otherwise now or Greenroom's agent is another; what lay outside the workspace \
                         and the home is gone";

pub(super) async fn start(
    engine: &DockerEngine,
    wall: &ContainerPolicy,
    spec: &SandboxSpec,
    progress: ProgressCallback<'_>,
) -> Result<(), SandboxError> {
    image::check_name(&spec.image)?;
    engine_sockets::reject_engine_sockets(spec, engine.socket())?;
    let body = body::create_body(wall, spec)?;
    let name = wall.container_name(spec.session);
    progress(SandboxPhase::Creating, "");
    let mut detail = "";
    for _ in 0..ATTEMPTS {
        match attempt(engine, &name, &body, &|phase| progress(phase, detail)).await? {
            StartStep::Done => return Ok(()),
            StartStep::Retry => tokio::time::sleep(Duration::from_millis(100)).await,
            StartStep::Recreate => detail = RECREATED_NOTICE,
            StartStep::FetchImage { detail } => {
                return Err(SandboxError::NoImage { image: spec.image.clone(), detail });
            }
        }
    }
    Err(CREATE.overdue())
}

/// Told of each step.
type PhaseCallback<'a> = &'a (dyn Fn(SandboxPhase) + Send + Sync);

/// What an attempt to start leaves to do.
enum StartStep {
    Done,
    /// What was there is gone, or going.
    Retry,
    /// One that had been at work is gone, and with it what it had written.
    Recreate,
    /// The image is not here, in the engine's words.
    FetchImage {
        detail: String,
    },
}

async fn attempt(
    engine: &DockerEngine,
    name: &str,
    body: &ContainerCreateBody,
    reached: PhaseCallback<'_>,
) -> Result<StartStep, SandboxError> {
    let trouble = match create(engine, name, body).await {
        Ok(id) => return run(engine, &id, reached).await,
        Err(EngineError::Other(error)) => return Err(error),
        Err(trouble) => trouble,
    };
    match (engine.inspect(name).await, trouble) {
        // Whatever keeps another from being created does not matter to the one that is there.
        (Ok(there), _) => resume(engine, &there, body, reached).await,
        (Err(EngineError::Missing { .. }), EngineError::Missing { detail, .. }) => Ok(StartStep::FetchImage { detail }),
        (Err(EngineError::Missing { .. }), EngineError::Refused { detail, .. }) if is_name_taken(&detail) => {
            Ok(StartStep::Retry)
        }
        (Err(EngineError::Missing { .. }), refused) => Err(refused.into()),
        (Err(unclear), _) => Err(unclear.into()),
    }
}

async fn create(engine: &DockerEngine, name: &str, body: &ContainerCreateBody) -> Result<String, EngineError> {
    let options = CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
    let created = engine.call(CREATE, engine.client.create_container(Some(options), body.clone())).await?;
    Ok(created.id)
}

/// Starts the container of that id; one that runs is no error to the engine.
async fn run(engine: &DockerEngine, id: &str, reached: PhaseCallback<'_>) -> Result<StartStep, SandboxError> {
    reached(SandboxPhase::Starting);
    match engine.call(START, engine.client.start_container(id, None::<StartContainerOptions>)).await {
        Ok(()) => Ok(StartStep::Done),
        // The container was removed, or else its network is not there: the engine answers the same.
        Err(EngineError::Missing { call, detail }) => match engine.inspect(id).await {
            Err(EngineError::Missing { .. }) => Ok(StartStep::Retry),
            Ok(_) | Err(_) => Err(EngineError::Refused { call, detail }.into()),
        },
        Err(other) => Err(other.into()),
    }
}

/// Makes what is there run, or takes it away.
///
/// It is named by its id throughout, since its name may belong to a newer one by now.
async fn resume(
    engine: &DockerEngine,
    there: &InspectedContainer,
    body: &ContainerCreateBody,
    reached: PhaseCallback<'_>,
) -> Result<StartStep, SandboxError> {
    match there.status() {
        ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::PAUSED | ContainerStateStatusEnum::RESTARTING => {
            Ok(StartStep::Done)
        }
        ContainerStateStatusEnum::CREATED | ContainerStateStatusEnum::EXITED if is_same(there, body) => {
            run(engine, there.id(), reached).await
        }
        ContainerStateStatusEnum::CREATED
        | ContainerStateStatusEnum::EXITED
        | ContainerStateStatusEnum::DEAD
        | ContainerStateStatusEnum::EMPTY => match engine.remove(there.id()).await {
            Ok(()) if there.status() == ContainerStateStatusEnum::EXITED => Ok(StartStep::Recreate),
            // Refused: somebody else is removing it.
            Ok(()) | Err(EngineError::Missing { .. } | EngineError::Refused { .. }) => Ok(StartStep::Retry),
            Err(EngineError::Other(error)) => Err(error),
        },
        ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::STOPPING => Ok(StartStep::Retry),
    }
}

/// Whether it was made as it would be made now.
fn is_same(there: &InspectedContainer, body: &ContainerCreateBody) -> bool {
    let wall = body.labels.as_ref().and_then(|labels| labels.get(body::FINGERPRINT_LABEL));
    there.image() == body.image.as_deref() && there.label(body::FINGERPRINT_LABEL) == wall.map(String::as_str)
}

/// Docker's words for it. Where they change, a start that meets a removal fails once instead of waiting.
fn is_name_taken(detail: &str) -> bool {
    detail.contains("already in use")
}
