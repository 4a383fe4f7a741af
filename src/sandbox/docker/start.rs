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
use greenroom_protocol::observation::Phase;

use super::{
    body::{self, Wall},
    engine::{Call, Engine, Inspected, Trouble},
    image,
};
use crate::sandbox::{Progress, SandboxError, Spec, engines};

const CREATE: Call = Call { what: "create the container", seconds: 30 };
const START: Call = Call { what: "start the container", seconds: 30 };

/// How often a start begins again because somebody else removed, or was removing, what it found. 100 ms apart.
const ATTEMPTS: u32 = 300;

/// Said to a person where an exited container could not be started again.
const MADE_ANEW: &str = "made anew, as it is set up otherwise now or Greenroom's agent is another; what lay outside the workspace \
                         and the home is gone";

pub(super) async fn start(
    engine: &Engine,
    wall: &Wall,
    spec: &Spec,
    progress: Progress<'_>,
) -> Result<(), SandboxError> {
    image::check_name(&spec.image)?;
    engines::refuse(spec, engine.socket())?;
    let body = body::create_body(wall, spec)?;
    let name = wall.name_of(spec.session);
    progress(Phase::Creating, "");
    let mut detail = "";
    for _ in 0..ATTEMPTS {
        match attempt(engine, &name, &body, &|phase| progress(phase, detail)).await? {
            Next::Done => return Ok(()),
            Next::Again => tokio::time::sleep(Duration::from_millis(100)).await,
            Next::Anew => detail = MADE_ANEW,
            Next::Fetch { detail } => return Err(SandboxError::NoImage { image: spec.image.clone(), detail }),
        }
    }
    Err(CREATE.overdue())
}

/// Told of each step.
type Reached<'a> = &'a (dyn Fn(Phase) + Send + Sync);

/// What an attempt to start leaves to do.
enum Next {
    Done,
    /// What was there is gone, or going.
    Again,
    /// One that had been at work is gone, and with it what it had written.
    Anew,
    /// The image is not here, in the engine's words.
    Fetch {
        detail: String,
    },
}

async fn attempt(
    engine: &Engine,
    name: &str,
    body: &ContainerCreateBody,
    reached: Reached<'_>,
) -> Result<Next, SandboxError> {
    let trouble = match create(engine, name, body).await {
        Ok(id) => return run(engine, &id, reached).await,
        Err(Trouble::Other(error)) => return Err(error),
        Err(trouble) => trouble,
    };
    match (engine.inspect(name).await, trouble) {
        // Whatever keeps another from being created does not matter to the one that is there.
        (Ok(there), _) => resume(engine, &there, body, reached).await,
        (Err(Trouble::Missing { .. }), Trouble::Missing { detail, .. }) => Ok(Next::Fetch { detail }),
        (Err(Trouble::Missing { .. }), Trouble::Refused { detail, .. }) if is_name_taken(&detail) => Ok(Next::Again),
        (Err(Trouble::Missing { .. }), refused) => Err(refused.into()),
        (Err(unclear), _) => Err(unclear.into()),
    }
}

async fn create(engine: &Engine, name: &str, body: &ContainerCreateBody) -> Result<String, Trouble> {
    let options = CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
    let created = engine.call(CREATE, engine.client.create_container(Some(options), body.clone())).await?;
    Ok(created.id)
}

/// Starts the container of that id; one that runs is no error to the engine.
async fn run(engine: &Engine, id: &str, reached: Reached<'_>) -> Result<Next, SandboxError> {
    reached(Phase::Starting);
    match engine.call(START, engine.client.start_container(id, None::<StartContainerOptions>)).await {
        Ok(()) => Ok(Next::Done),
        // The container was removed, or else its network is not there: the engine answers the same.
        Err(Trouble::Missing { call, detail }) => match engine.inspect(id).await {
            Err(Trouble::Missing { .. }) => Ok(Next::Again),
            Ok(_) | Err(_) => Err(Trouble::Refused { call, detail }.into()),
        },
        Err(other) => Err(other.into()),
    }
}

/// Makes what is there run, or takes it away.
///
/// It is named by its id throughout, since its name may belong to a newer one by now.
async fn resume(
    engine: &Engine,
    there: &Inspected,
    body: &ContainerCreateBody,
    reached: Reached<'_>,
) -> Result<Next, SandboxError> {
    match there.status() {
        ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::PAUSED | ContainerStateStatusEnum::RESTARTING => {
            Ok(Next::Done)
        }
        ContainerStateStatusEnum::CREATED | ContainerStateStatusEnum::EXITED if is_same(there, body) => {
            run(engine, there.id(), reached).await
        }
        ContainerStateStatusEnum::CREATED
        | ContainerStateStatusEnum::EXITED
        | ContainerStateStatusEnum::DEAD
        | ContainerStateStatusEnum::EMPTY => match engine.remove(there.id()).await {
            Ok(()) if there.status() == ContainerStateStatusEnum::EXITED => Ok(Next::Anew),
            // Refused: somebody else is removing it.
            Ok(()) | Err(Trouble::Missing { .. } | Trouble::Refused { .. }) => Ok(Next::Again),
            Err(Trouble::Other(error)) => Err(error),
        },
        ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::STOPPING => Ok(Next::Again),
    }
}

/// Whether it was made as it would be made now.
fn is_same(there: &Inspected, body: &ContainerCreateBody) -> bool {
    let wall = body.labels.as_ref().and_then(|labels| labels.get(body::WALL_LABEL));
    there.image() == body.image.as_deref() && there.label(body::WALL_LABEL) == wall.map(String::as_str)
}

/// Docker's words for it. Where they change, a start that meets a removal fails once instead of waiting.
fn is_name_taken(detail: &str) -> bool {
    detail.contains("already in use")
}
