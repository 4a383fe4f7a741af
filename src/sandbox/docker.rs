//! Docker driver: sandboxes as containers of a Docker engine. The only module that uses bollard.
//!
//! | part | task |
//! |---|---|
//! | [`body`] | describes a container: pure, and the only place that does |
//! | [`seccomp_profile`] | the denied system calls, in the engine's format |
//! | [`engine`] | calls the engine: a deadline for each call, errors in the project's terms |
//! | [`start`] | makes a container run, whatever exists already |
//! | [`pause`] | pauses and unpauses a container, also on an engine that stalls |
//! | [`image`] | looks for images and pulls them |
//! | [`watch`] | detects exits, and reads logs and resource usage |
//!
//! A container is found by its name and labels, never from memory. So a restarted server finds what
//! the dead one had. The engine allows one container per name, so two concurrent starts create one
//! container.

use std::sync::Arc;

use async_trait::async_trait;
use bollard::{
    models::{ContainerSummary, ContainerSummaryStateEnum},
    query_parameters::{ListContainersOptions, StatsOptions, StopContainerOptions},
};
use futures::StreamExt;

use super::{
    FoundSandbox, KeyedMutex, ProgressCallback, SandboxDriver, SandboxError, SandboxExit, SandboxPresence, SandboxSpec,
    SandboxStats, drivers::DriverEntry,
};
use crate::{
    config::{DriverChoice, SandboxConfig},
    store::SessionId,
};

mod body;
mod engine;
mod image;
mod pause;
mod seccomp_profile;
mod start;
#[cfg(test)]
mod test_image;
#[cfg(test)]
mod tests;
mod watch;

use body::ContainerPolicy;
use engine::{DockerEngine, EngineCall, EngineError, REMOVE};

const INFO: EngineCall = EngineCall { what: "report its container directory", seconds: 10 };
const PING: EngineCall = EngineCall { what: "answer", seconds: 3 };
/// First call of a start. The deadline is long, so that an engine that is busy for a while does not
/// fail the start.
const PRESENCE: EngineCall = EngineCall { what: "report whether the container exists", seconds: 30 };
const STOP: EngineCall = EngineCall { what: "stop the container", seconds: 20 };
const LIST: EngineCall = EngineCall { what: "list the containers", seconds: 10 };
const STATS: EngineCall = EngineCall { what: "measure the container", seconds: 10 };

/// Name of the driver, as in the config.
const NAME: &str = "docker";

/// Entry of the driver in the registry.
pub(super) static ENTRY: DriverEntry = DriverEntry {
    choice: DriverChoice::Docker,
    name: NAME,
    title: "Docker",
    requirement: "Docker engine",
    has_engine: true,
    open: |config, node| {
        Box::pin(async move {
            let driver: Arc<dyn SandboxDriver> = Arc::new(DockerDriver::connect(config, node.name).await?);
            Ok(driver)
        })
    },
};

/// Time that a process has to end after SIGTERM, seconds. Then the engine kills it.
const STOP_GRACE_SECONDS: i32 = 1;

/// Docker driver. See the [module](self).
pub(super) struct DockerDriver {
    engine: DockerEngine,
    /// The engine's container directory. Identifies the engine, whatever address it is reached by.
    root: String,
    policy: ContainerPolicy,
    /// Serialises pauses and unpauses of one session.
    pause_locks: Arc<KeyedMutex>,
}

impl DockerDriver {
    /// Connects to the engine and negotiates the version of its API.
    ///
    /// # Errors
    /// Fails if the engine does not answer in time, or is not Docker.
    async fn connect(config: Arc<SandboxConfig>, node: String) -> Result<DockerDriver, SandboxError> {
        let host = Some(config.docker_host.clone()).filter(|host| !host.is_empty());
        let engine = DockerEngine::find(host).await?;
        let info = engine.call(INFO, engine.client.info()).await?;
        let selinux = info.security_options.iter().flatten().any(|option| option.contains("name=selinux"));
        let policy = ContainerPolicy { node, config, selinux };
        Ok(DockerDriver { engine, root: info.docker_root_dir.unwrap_or_default(), policy, pause_locks: Arc::default() })
    }

    /// Converts a listed container. `None` if its name or label is not this node's after all.
    fn found_sandbox(&self, container: ContainerSummary) -> Option<FoundSandbox> {
        let session: SessionId = container.labels?.get(body::SESSION_LABEL)?.parse().ok()?;
        let name = format!("/{}", self.policy.container_name(session));
        if !container.names?.contains(&name) {
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

    /// Waits until a removal that another caller began is complete.
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
        let kernel = match self.policy.runtime() {
            Some(runtime) => format!("runtime `{runtime}`"),
            None => "shares this machine's kernel".to_owned(),
        };
        format!(
            "A container with an unprivileged user, no capabilities and a system call filter, and with limits for memory, \
             CPU and processes; {kernel}. The agent sees its workspace, its home and the configured volumes, and reaches only the configured \
             network."
        )
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.engine.call(PING, self.engine.client.ping()).await?;
        Ok(())
    }

    async fn start(&self, spec: &SandboxSpec, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        start::start(&self.engine, &self.policy, spec, progress).await
    }

    async fn has_image(&self, image: &str) -> Result<bool, SandboxError> {
        image::exists(&self.engine, image).await
    }

    async fn fetch(&self, image: &str, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        image::pull(&self.engine, image, progress).await
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
                // The next run does not wait for pauses and unpauses that the engine has not
                // answered.
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
            Ok(container) => Ok(container.presence()),
            Err(EngineError::Missing { .. }) => Ok(None),
            Err(other) => Err(other.into_inconclusive()),
        }
    }

    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError> {
        Ok(watch::wait(&self.engine, &self.policy.container_name(session)).await)
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let node_label = format!("{}={}", body::NODE_LABEL, self.policy.node);
        let options = ListContainersOptions {
            all: true,
            filters: Some([("label".to_owned(), vec![node_label])].into()),
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
