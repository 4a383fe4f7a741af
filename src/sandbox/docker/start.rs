//! Start of a container, whatever exists already.
//!
//! "Create" is the first call, without an inspection: the caller has already inspected, to decide
//! that a start is needed. Usually no container exists, and two calls suffice. If the name is taken
//! or the image is missing, the engine returns an error. Only then is the container inspected.

use std::{fs::Permissions, io, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

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

/// Highest number of attempts of one start, 100 ms apart.
///
/// A start begins again if another caller removed, or was removing, the container that it found.
const ATTEMPTS: u32 = 300;

/// Progress detail for the user if an exited container could not be started again.
const RECREATED_NOTICE: &str = "created again, because its settings, its image or Greenroom's agent changed; files \
                                outside the workspace and the home are gone";

pub(super) async fn start(
    engine: &DockerEngine,
    policy: &ContainerPolicy,
    spec: &SandboxSpec,
    progress: ProgressCallback<'_>,
) -> Result<(), SandboxError> {
    image::check_name(&spec.image)?;
    engine_sockets::reject_engine_sockets(spec, engine.socket())?;
    let body = body::create_body(policy, spec)?;
    for file in body::user_files(spec) {
        write_if_changed(&file.host, &file.content)
            .await
            .map_err(|e| SandboxError::Io { what: "write the names of its users", source: Arc::new(e) })?;
    }
    let name = policy.container_name(spec.session);
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

/// Writes a file unless it has this content already. A running container may have the file mounted.
async fn write_if_changed(path: &Path, content: &str) -> io::Result<()> {
    match tokio::fs::read(path).await {
        Ok(written) if written == content.as_bytes() => Ok(()),
        Ok(_) | Err(_) => {
            tokio::fs::write(path, content).await?;
            tokio::fs::set_permissions(path, Permissions::from_mode(0o644)).await
        }
    }
}

/// Callback for each step of a start.
type PhaseCallback<'a> = &'a (dyn Fn(SandboxPhase) + Send + Sync);

/// Next step after an attempt to start.
enum StartStep {
    Done,
    /// The container that was found is removed, or is being removed.
    Retry,
    /// An exited container was removed, with the files it had written.
    Recreate,
    /// The image is not on this machine. `detail` is the engine's text.
    FetchImage {
        detail: String,
    },
}

async fn attempt(
    engine: &DockerEngine,
    name: &str,
    body: &ContainerCreateBody,
    report_phase: PhaseCallback<'_>,
) -> Result<StartStep, SandboxError> {
    let create_error = match create(engine, name, body).await {
        Ok(id) => return run(engine, &id, report_phase).await,
        Err(EngineError::Other(error)) => return Err(error),
        Err(error) => error,
    };
    match (engine.inspect(name).await, create_error) {
        // An existing container is used, whatever prevented the creation of another one.
        (Ok(container), _) => resume(engine, &container, body, report_phase).await,
        (Err(EngineError::Missing { .. }), EngineError::Missing { detail, .. }) => Ok(StartStep::FetchImage { detail }),
        (Err(EngineError::Missing { .. }), EngineError::Refused { detail, .. }) if is_name_taken(&detail) => {
            Ok(StartStep::Retry)
        }
        (Err(EngineError::Missing { .. }), other) => Err(other.into()),
        (Err(inspect_error), _) => Err(inspect_error.into()),
    }
}

async fn create(engine: &DockerEngine, name: &str, body: &ContainerCreateBody) -> Result<String, EngineError> {
    let options = CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
    let created = engine.call(CREATE, engine.client.create_container(Some(options), body.clone())).await?;
    Ok(created.id)
}

/// Starts the container with that id. A running container is no error to the engine.
async fn run(engine: &DockerEngine, id: &str, report_phase: PhaseCallback<'_>) -> Result<StartStep, SandboxError> {
    report_phase(SandboxPhase::Starting);
    match engine.call(START, engine.client.start_container(id, None::<StartContainerOptions>)).await {
        Ok(()) => Ok(StartStep::Done),
        // The container or its network is missing. The engine returns the same error for both.
        Err(EngineError::Missing { call, detail }) => match engine.inspect(id).await {
            Err(EngineError::Missing { .. }) => Ok(StartStep::Retry),
            Ok(_) | Err(_) => Err(EngineError::Refused { call, detail }.into()),
        },
        Err(other) => Err(other.into()),
    }
}

/// Starts the container that exists, or removes it.
///
/// Calls use its id, because its name may belong to a newer container by now.
async fn resume(
    engine: &DockerEngine,
    container: &InspectedContainer,
    body: &ContainerCreateBody,
    report_phase: PhaseCallback<'_>,
) -> Result<StartStep, SandboxError> {
    match container.status() {
        ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::PAUSED | ContainerStateStatusEnum::RESTARTING => {
            Ok(StartStep::Done)
        }
        ContainerStateStatusEnum::CREATED | ContainerStateStatusEnum::EXITED if is_same(container, body) => {
            run(engine, container.id(), report_phase).await
        }
        ContainerStateStatusEnum::CREATED
        | ContainerStateStatusEnum::EXITED
        | ContainerStateStatusEnum::DEAD
        | ContainerStateStatusEnum::EMPTY => match engine.remove(container.id()).await {
            Ok(()) if container.status() == ContainerStateStatusEnum::EXITED => Ok(StartStep::Recreate),
            // Refused: another caller is removing the container.
            Ok(()) | Err(EngineError::Missing { .. } | EngineError::Refused { .. }) => Ok(StartStep::Retry),
            Err(EngineError::Other(error)) => Err(error),
        },
        ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::STOPPING => Ok(StartStep::Retry),
    }
}

/// Returns true if the container was created from the same body and image.
fn is_same(container: &InspectedContainer, body: &ContainerCreateBody) -> bool {
    let fingerprint = body.labels.as_ref().and_then(|labels| labels.get(body::FINGERPRINT_LABEL));
    container.image() == body.image.as_deref()
        && container.label(body::FINGERPRINT_LABEL) == fingerprint.map(String::as_str)
}

/// Returns true if Docker's error text says that the name is taken.
///
/// If Docker changes the text, a start that meets a removal fails once and is not retried.
fn is_name_taken(detail: &str) -> bool {
    detail.contains("already in use")
}
