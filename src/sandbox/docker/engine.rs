//! Calls of the engine: a deadline for each call, and errors in the project's terms.
//!
//! bollard's own timeout ends with the response's headers. A body that never arrives would block
//! its caller for ever.

use std::{error::Error as _, io, path::Path, time::Duration};

use bollard::{
    errors::Error,
    models::{ContainerInspectResponse, ContainerStateStatusEnum},
    query_parameters::{InspectContainerOptions, RemoveContainerOptions},
};

use crate::{
    sandbox::{SandboxError, SandboxPresence},
    store::SessionId,
};

const NEGOTIATE: EngineCall = EngineCall { what: "report its version", seconds: 5 };
const INSPECT: EngineCall = EngineCall { what: "report the container's state", seconds: 5 };
pub(super) const REMOVE: EngineCall = EngineCall { what: "remove the container", seconds: 30 };

/// Timeout for bollard, longer than every deadline of this module. So bollard's timeout never ends
/// a call.
const NO_CLIENT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Time for which a call is followed to its answer after its caller gave up, seconds.
///
/// An engine that stalls may still execute the call in that time. A lost answer must not block
/// later calls for ever.
pub(super) const FOLLOW_SECONDS: u64 = 5 * 60;

/// Kind of call: its purpose, as in "did not … within 5 s", and its deadline.
#[derive(Debug, Clone, Copy)]
pub(super) struct EngineCall {
    pub(super) what: &'static str,
    pub(super) seconds: u64,
}

impl EngineCall {
    /// Returns the error for a call that missed its deadline.
    pub(super) fn overdue(self) -> SandboxError {
        SandboxError::Deadline { what: self.what, seconds: self.seconds }
    }

    /// Returns the same call with a deadline of [`FOLLOW_SECONDS`].
    pub(super) fn followed(self) -> EngineCall {
        EngineCall { seconds: FOLLOW_SECONDS, ..self }
    }
}

/// Failure of a call, as far as callers distinguish it.
#[derive(Debug)]
pub(super) enum EngineError {
    /// The container or image does not exist. `detail` is the engine's text.
    Missing {
        call: EngineCall,
        detail: String,
    },
    /// The engine rejected the call, mostly because of the container's state. `detail` is the
    /// engine's text.
    Refused {
        call: EngineCall,
        detail: String,
    },
    Other(SandboxError),
}

impl From<SandboxError> for EngineError {
    fn from(error: SandboxError) -> EngineError {
        EngineError::Other(error)
    }
}

impl From<EngineError> for SandboxError {
    fn from(error: EngineError) -> SandboxError {
        match error {
            EngineError::Missing { call, detail } | EngineError::Refused { call, detail } => {
                SandboxError::Failed { what: call.what, detail }
            }
            EngineError::Other(error) => error,
        }
    }
}

impl EngineError {
    /// Converts the failure of a call about the container of `session`.
    pub(super) fn for_session(self, session: SessionId) -> SandboxError {
        match self {
            EngineError::Missing { .. } => SandboxError::NotFound { session },
            other => other.into(),
        }
    }

    /// Converts the failure of an inspection into an error that leaves the container's state
    /// unknown.
    ///
    /// A proxy answers like this while the engine behind it restarts, and so does an engine that
    /// fails.
    pub(super) fn into_inconclusive(self) -> SandboxError {
        match SandboxError::from(self) {
            SandboxError::Failed { what, detail } => {
                let detail = format!("the engine answered: {detail}; see the log of the engine or its proxy");
                SandboxError::Inconclusive { what, detail }
            }
            other => other,
        }
    }
}

/// Answer of an inspection.
pub(super) struct InspectedContainer(ContainerInspectResponse);

impl InspectedContainer {
    pub(super) fn id(&self) -> &str {
        self.0.id.as_deref().unwrap_or_default()
    }

    pub(super) fn status(&self) -> ContainerStateStatusEnum {
        self.0.state.as_ref().and_then(|state| state.status).unwrap_or(ContainerStateStatusEnum::EMPTY)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.status(), ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::PAUSED)
    }

    /// Returns the state of the sandbox. `None` if it has never run, or is being removed.
    pub(super) fn presence(&self) -> Option<SandboxPresence> {
        match self.status() {
            ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::RESTARTING => Some(SandboxPresence::Running),
            ContainerStateStatusEnum::PAUSED => Some(SandboxPresence::Paused),
            ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD | ContainerStateStatusEnum::STOPPING => {
                Some(SandboxPresence::Exited)
            }
            ContainerStateStatusEnum::CREATED
            | ContainerStateStatusEnum::REMOVING
            | ContainerStateStatusEnum::EMPTY => None,
        }
    }

    pub(super) fn exit_code(&self) -> Option<i64> {
        self.0.state.as_ref()?.exit_code
    }

    pub(super) fn out_of_memory(&self) -> bool {
        self.0.state.as_ref().and_then(|state| state.oom_killed).unwrap_or(false)
    }

    /// Returns the time of the last start, seconds since 1970.
    pub(super) fn started_at(&self) -> Option<i64> {
        let text = self.0.state.as_ref()?.started_at.as_deref()?;
        text.parse::<jiff::Timestamp>().ok().map(|at| at.as_second())
    }

    pub(super) fn image(&self) -> Option<&str> {
        self.0.config.as_ref()?.image.as_deref()
    }

    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.0.config.as_ref()?.labels.as_ref()?.get(name).map(String::as_str)
    }
}

/// Reason for the rejection of Podman.
///
/// Podman offers Docker's API with other semantics (tried with 4.3):
///
/// - A `tmpfs` has no owner.
/// - A paused container is not stopped.
/// - Exited containers are listed with other state names, so they would not be found again.
const NOT_PODMAN: &str = "Podman answers there, and some of its calls behave differently from what a sandbox needs";

/// Connection to an engine that has answered.
#[derive(Clone)]
pub(super) struct DockerEngine {
    pub(super) client: bollard::Docker,
    address: String,
}

impl DockerEngine {
    /// Connects to the engine at `host`, or to Docker's default socket.
    pub(super) async fn find(host: Option<String>) -> Result<DockerEngine, SandboxError> {
        DockerEngine::at(host.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned())).await
    }

    async fn at(address: String) -> Result<DockerEngine, SandboxError> {
        let client = bollard::Docker::connect_with_host(&address).map_err(|e| engine_error(&address, NEGOTIATE, e))?;
        let engine = DockerEngine { client, address };
        let agreed =
            engine.call(NEGOTIATE, engine.client.clone().with_timeout(NO_CLIENT_TIMEOUT).negotiate_version()).await?;
        let version = engine.call(NEGOTIATE, agreed.version()).await?;
        if version.components.into_iter().flatten().any(|component| component.name.contains("Podman")) {
            return Err(no_engine(&engine.address, NOT_PODMAN.to_owned()));
        }
        Ok(DockerEngine { client: agreed, ..engine })
    }

    /// Returns the path of the engine's socket, if it is a Unix socket.
    pub(super) fn socket(&self) -> Option<&Path> {
        self.address.strip_prefix("unix://").map(Path::new)
    }

    /// Waits for the engine's answer until the call's deadline.
    pub(super) async fn call<T>(
        &self,
        call: EngineCall,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, EngineError> {
        match tokio::time::timeout(Duration::from_secs(call.seconds), answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(engine_error(&self.address, call, error)),
            Err(_) => Err(call.overdue().into()),
        }
    }

    pub(super) async fn inspect(&self, container: &str) -> Result<InspectedContainer, EngineError> {
        self.inspect_within(INSPECT, container).await
    }

    pub(super) async fn inspect_within(
        &self,
        call: EngineCall,
        container: &str,
    ) -> Result<InspectedContainer, EngineError> {
        let answer = self.client.inspect_container(container, None::<InspectContainerOptions>);
        self.call(call, answer).await.map(InspectedContainer)
    }

    /// Removes a container with its anonymous volumes, even if it runs.
    pub(super) async fn remove(&self, container: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptions { force: true, v: true, link: false };
        self.call(REMOVE, self.client.remove_container(container, Some(options))).await
    }
}

pub(super) fn engine_error(address: &str, call: EngineCall, error: Error) -> EngineError {
    match error {
        Error::DockerResponseServerError { status_code: 404, message } if is_missing(&message) => {
            EngineError::Missing { call, detail: message }
        }
        Error::DockerResponseServerError { status_code, message } if message.trim().is_empty() => {
            EngineError::Refused { call, detail: format!("status {status_code} without a message") }
        }
        Error::DockerResponseServerError { message, .. } | Error::DockerStreamError { error: message } => {
            EngineError::Refused { call, detail: message }
        }
        Error::RequestTimeoutError => call.overdue().into(),
        Error::SocketNotFoundError(_) => no_engine(address, "the socket does not exist".to_owned()).into(),
        other => match io_cause(&other) {
            Some(cause) if cause.kind() == io::ErrorKind::PermissionDenied => forbidden(address, cause).into(),
            Some(cause) => no_engine(address, cause.to_string()).into(),
            None if is_transport(&other) => no_engine(address, innermost(&other)).into(),
            None => SandboxError::Failed { what: call.what, detail: innermost(&other) }.into(),
        },
    }
}

/// Returns true if a 404 comes from the engine, and so is about the requested container or image.
///
/// A proxy also answers 404 if it finds no engine.
pub(super) fn is_missing(detail: &str) -> bool {
    let detail = detail.to_lowercase();
    detail.contains("no such container") || detail.contains("no such image")
}

fn no_engine(address: &str, detail: String) -> SandboxError {
    SandboxError::NoEngine { address: address.to_owned(), detail }
}

fn forbidden(address: &str, cause: &io::Error) -> SandboxError {
    let socket = address.strip_prefix("unix://").unwrap_or(address);
    SandboxError::Forbidden {
        what: format!("use the Docker engine at `{socket}`"),
        detail: format!(
            "{cause}; add this user to the socket's group (`sudo usermod -aG docker $USER`, then log in again), \
             or run with `--sandbox process`"
        ),
    }
}

fn is_transport(error: &Error) -> bool {
    matches!(
        error,
        Error::HyperLegacyError { .. } | Error::HyperResponseError { .. } | Error::UnsupportedURISchemeError { .. }
    )
}

fn io_cause(error: &Error) -> Option<&io::Error> {
    if let Error::IOError { err } = error {
        return Some(err);
    }
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// Returns the text of the innermost error. bollard wraps an error several times, and the innermost
/// one names the cause.
fn innermost(error: &Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}
