//! Sandboxes as containers of a Docker engine. The only place that knows bollard.
//!
//! | part | what it decides |
//! |---|---|
//! | [`body`] | what a container is: pure, and the only place where one is described |
//! | [`engine`] | how the engine is called: a deadline for each call, its failures in our words |
//! | [`start`] | how a container comes to run, whatever is there already |
//! | [`freeze`] | how it stands still and goes on, also by an engine that stalls |
//! | [`image`] | whether an image is here, and how it gets here |
//! | [`watch`] | how a container ends, and what it said |
//!
//! A container is found by its name and its labels, never by memory, so a server that starts anew knows as much as the one
//! that died. The engine keeps two of the same name from being made, so two starts at once make one container.

use std::sync::Arc;

use async_trait::async_trait;
use bollard::{
    models::{ContainerSummary, ContainerSummaryStateEnum},
    query_parameters::{ListContainersOptions, StatsOptions, StopContainerOptions},
};
use futures::StreamExt;

use super::{
    FoundSandbox, KeyedMutex, ProgressCallback, SandboxDriver, SandboxError, SandboxExit, SandboxPresence, SandboxSpec,
    SandboxStats,
};
use crate::store::SessionId;

mod body;
mod engine;
mod image;
mod pause;
mod start;
#[cfg(test)]
mod test_image;
#[cfg(test)]
mod tests;
mod watch;

use body::ContainerPolicy;
use engine::{DockerEngine, EngineCall, EngineError, REMOVE};

const INFO: EngineCall = EngineCall { what: "tell where it keeps its containers", seconds: 10 };
const PING: EngineCall = EngineCall { what: "answer", seconds: 3 };
/// The first word of a start, which an engine that is busy for a while is not to fail.
const PRESENCE: EngineCall = EngineCall { what: "tell whether the container is there", seconds: 30 };
const STOP: EngineCall = EngineCall { what: "stop the container", seconds: 20 };
const LIST: EngineCall = EngineCall { what: "list the containers", seconds: 10 };
const STATS: EngineCall = EngineCall { what: "measure the container", seconds: 10 };

/// As in the config.
pub const NAME: &str = "docker";

/// How long a process may take to end by itself when it is told to, seconds.
const STOP_GRACE_SECONDS: i32 = 1;

/// The driver.
pub struct DockerDriver {
    engine: DockerEngine,
    /// Where the engine keeps its containers: that tells engines apart, whatever they are reached by.
    root: String,
    policy: ContainerPolicy,
    /// Freezing and thawing one session.
    pause_locks: Arc<KeyedMutex>,
}

/// What the operator decides about every container.
#[derive(Debug, Clone, Default)]
pub struct DockerOptions {
    /// Whose sandboxes these are: servers that share an engine leave those of other nodes alone.
    pub node: String,
    /// The engine's runtime (`runsc`, `kata`); `None` is its default.
    pub runtime: Option<String>,
    /// Nothing but workspace, home, `/tmp` and volumes can be written.
    pub readonly_root: bool,
    /// `DOCKER_HOST`; `None` is `/var/run/docker.sock`.
    pub host: Option<String>,
}

impl DockerDriver {
    /// Finds the engine and agrees with it on a version of its API.
    pub async fn connect(options: DockerOptions) -> Result<DockerDriver, SandboxError> {
        let DockerOptions { node, runtime, readonly_root, host } = options;
        let wall = ContainerPolicy { node, runtime, readonly_root };
        let engine = DockerEngine::find(host).await?;
        let info = engine.call(INFO, engine.client.info()).await?;
        Ok(DockerDriver {
            engine,
            root: info.docker_root_dir.unwrap_or_default(),
            policy: wall,
            pause_locks: Arc::default(),
        })
    }

    /// One of ours among what the engine lists; `None` for a name or label that is not ours after all.
    fn found_sandbox(&self, container: ContainerSummary) -> Option<FoundSandbox> {
        let session: SessionId = container.labels?.get(body::SESSION_LABEL)?.parse().ok()?;
        let ours = format!("/{}", self.policy.container_name(session));
        if !container.names?.contains(&ours) {
            return None;
        }
        let presence = match container.state? {
            ContainerSummaryStateEnum::RUNNING => SandboxPresence::Running,
            ContainerSummaryStateEnum::PAUSED => SandboxPresence::Paused,
            ContainerSummaryStateEnum::REMOVING => return None,
            ContainerSummaryStateEnum::CREATED
            | ContainerSummaryStateEnum::RESTARTING
            | ContainerSummaryStateEnum::EXITED
            | ContainerSummaryStateEnum::DEAD
            | ContainerSummaryStateEnum::STOPPING
            | ContainerSummaryStateEnum::EMPTY => SandboxPresence::Exited,
        };
        Some(FoundSandbox { session, driver: NAME, presence })
    }

    /// Waits for the end of a removal that somebody else began.
    async fn until_gone(&self, name: &str) -> Result<(), EngineError> {
        for _ in 0..REMOVE.seconds * 10 {
            match self.engine.inspect(name).await {
                Err(EngineError::Missing { .. }) => return Ok(()),
                Err(other) => return Err(other),
                Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
        Err(REMOVE.overdue().into())
    }
}

#[async_trait]
impl SandboxDriver for DockerDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn location(&self) -> String {
        format!("{NAME}{}", self.root.replace('/', "-"))
    }

    fn isolation(&self) -> String {
        let kernel = match &self.policy.runtime {
            Some(runtime) => format!("runtime `{runtime}`"),
            None => "it shares the kernel with this machine".to_owned(),
        };
        format!(
            "a container without privileges, as an unprivileged user, with limits for memory, CPU and processes; {kernel}. \
             It sees its workspace, its home and the configured volumes, and reaches only the configured network"
        )
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.engine.call(PING, self.engine.client.ping()).await?;
        Ok(())
    }

    async fn start(&self, spec: &SandboxSpec, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        start::start(&self.engine, &self.policy, spec, progress).await
    }

    async fn fetch(&self, image: &str, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        self.pull(image, progress).await
    }

    async fn pause(&self, session: SessionId) -> Result<(), SandboxError> {
        pause::pause(&self.engine, &self.pause_locks, session, self.policy.container_name(session)).await
    }

    async fn unpause(&self, session: SessionId) -> Result<(), SandboxError> {
        pause::unpause(&self.engine, &self.pause_locks, session, self.policy.container_name(session)).await
    }

    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        let options = StopContainerOptions { t: Some(STOP_GRACE_SECONDS), signal: None };
        let name = self.policy.container_name(session);
        match self.engine.call(STOP, self.engine.client.stop_container(&name, Some(options))).await {
            Ok(()) | Err(EngineError::Missing { .. }) => {
                // What it was ordered to that the engine has not answered is not for its next run to wait for.
                self.pause_locks.forget(&session);
                Ok(())
            }
            Err(other) => Err(other.for_session(session)),
        }
    }

    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        let name = self.policy.container_name(session);
        match self.engine.remove(&name).await {
            Ok(()) | Err(EngineError::Missing { .. }) => {}
            Err(EngineError::Refused { .. }) => self.until_gone(&name).await.map_err(|t| t.for_session(session))?,
            Err(other) => return Err(other.for_session(session)),
        }
        self.pause_locks.forget(&session);
        Ok(())
    }

    async fn presence(&self, session: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        match self.engine.inspect_within(PRESENCE, &self.policy.container_name(session)).await {
            Ok(there) => Ok(there.presence()),
            Err(EngineError::Missing { .. }) => Ok(None),
            Err(other) => Err(other.into_inconclusive()),
        }
    }

    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError> {
        Ok(watch::wait(&self.engine, &self.policy.container_name(session)).await)
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let ours = format!("{}={}", body::NODE_LABEL, self.policy.node);
        let options = ListContainersOptions {
            all: true,
            filters: Some([("label".to_owned(), vec![ours])].into()),
            ..ListContainersOptions::default()
        };
        let containers = self.engine.call(LIST, self.engine.client.list_containers(Some(options))).await?;
        Ok(containers.into_iter().filter_map(|container| self.found_sandbox(container)).collect())
    }

    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError> {
        watch::logs(&self.engine, &self.policy.container_name(session), bytes).await.map_err(|t| t.for_session(session))
    }

    async fn stats(&self, session: SessionId) -> Result<SandboxStats, SandboxError> {
        let name = self.policy.container_name(session);
        let mut answers =
            Box::pin(self.engine.client.stats(&name, Some(StatsOptions { stream: false, one_shot: true })));
        let answer = self.engine.call(STATS, async { answers.next().await.transpose() }).await;
        Ok(answer.map_err(|t| t.for_session(session))?.map(watch::stats).unwrap_or_default())
    }
}
