//! How the engine is called: every call within a deadline of its own, and every failure told in our words.
//!
//! bollard's own timeout ends at the response's headers, so a body that never comes would hold its caller for ever.

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

const NEGOTIATE: EngineCall = EngineCall { what: "tell its version", seconds: 5 };
const INSPECT: EngineCall = EngineCall { what: "tell the container's state", seconds: 5 };
pub(super) const REMOVE: EngineCall = EngineCall { what: "remove the container", seconds: 30 };

/// Beyond every deadline of ours, so that bollard's never ends a call.
const NO_CLIENT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// How long a call is followed to its answer of which nobody waits any more, seconds. An engine that stalls for so long may do
/// it yet; but an answer can also have got lost, and what waits behind it is not to wait for ever.
pub(super) const FOLLOW_SECONDS: u64 = 5 * 60;

/// A kind of call: what it is for, as in "did not … within 5 s", and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct EngineCall {
    pub(super) what: &'static str,
    pub(super) seconds: u64,
}

impl EngineCall {
    pub(super) fn overdue(self) -> SandboxError {
        SandboxError::Deadline { what: self.what, seconds: self.seconds }
    }

    /// The same, for whoever is to learn how it ends even if nobody waits for that any more.
    pub(super) fn followed(self) -> EngineCall {
        EngineCall { seconds: FOLLOW_SECONDS, ..self }
    }
}

/// Why a call failed, as far as its caller may care.
#[derive(Debug)]
pub(super) enum EngineError {
    /// There is no such container or image, in the engine's words.
    Missing {
        call: EngineCall,
        detail: String,
    },
    /// The engine understood and will not, in its words: mostly because of the state that the container is in.
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
    fn from(trouble: EngineError) -> SandboxError {
        match trouble {
            EngineError::Missing { call, detail } | EngineError::Refused { call, detail } => {
                SandboxError::Failed { what: call.what, detail }
            }
            EngineError::Other(error) => error,
        }
    }
}

impl EngineError {
    /// The trouble of a call about the container of `session`.
    pub(super) fn for_session(self, session: SessionId) -> SandboxError {
        match self {
            EngineError::Missing { .. } => SandboxError::NotFound { session },
            other => other.into(),
        }
    }

    /// The trouble of a look at a container that was not said to be missing. It says nothing about the container: so answers a
    /// proxy while the engine behind it is started anew, and an engine that fails itself.
    pub(super) fn into_inconclusive(self) -> SandboxError {
        match SandboxError::from(self) {
            SandboxError::Failed { what, detail } => {
                let detail = format!("it answered: {detail}; the log of its engine, or proxy, says why");
                SandboxError::Inconclusive { what, detail }
            }
            other => other,
        }
    }
}

/// What an inspection tells.
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

    /// How it stands; `None` where it has never run, or is all but gone.
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

    /// Seconds since 1970 at which its process started last.
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

/// It speaks Docker's API and means other things by it, as tried with 4.3: it knows no owner of a `tmpfs`, stops nothing that is frozen,
/// and lists what has ended in words of its own, so that a sandbox would not be found again.
const NOT_PODMAN: &str = "Podman does, and what it makes of some calls is not what a sandbox needs";

/// The engine that answered.
#[derive(Clone)]
pub(super) struct DockerEngine {
    pub(super) client: bollard::Docker,
    address: String,
}

impl DockerEngine {
    /// The engine at `host`, or else at Docker's own socket.
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

    /// The engine's socket, where it is a file.
    pub(super) fn socket(&self) -> Option<&Path> {
        self.address.strip_prefix("unix://").map(Path::new)
    }

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

    /// With its anonymous volumes, whether or not it runs.
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
            EngineError::Refused { call, detail: format!("status {status_code}, without a word") }
        }
        Error::DockerResponseServerError { message, .. } | Error::DockerStreamError { error: message } => {
            EngineError::Refused { call, detail: message }
        }
        Error::RequestTimeoutError => call.overdue().into(),
        Error::SocketNotFoundError(_) => no_engine(address, "there is no such socket".to_owned()).into(),
        other => match io_cause(&other) {
            Some(cause) if cause.kind() == io::ErrorKind::PermissionDenied => forbidden(address, cause).into(),
            Some(cause) => no_engine(address, cause.to_string()).into(),
            None if is_transport(&other) => no_engine(address, innermost(&other)).into(),
            None => SandboxError::Failed { what: call.what, detail: innermost(&other) }.into(),
        },
    }
}

/// Whether a 404 is the engine's own word, and so about the container or image that it was asked for: a proxy says 404 as well,
/// where it finds no engine behind it.
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

/// The engine's client wraps an error several times over; the last one says what happened.
fn innermost(error: &Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}
