//! Choice of the sandbox driver, and migration from the previous driver.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use greenroom_protocol::observation::AgentState;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::StartError;
use crate::{
    config::{Config, DriverChoice},
    data::DataDir,
    sandbox::{
        DockerDriver, DriverMigration, SandboxDriver, SandboxError, SandboxLocations, docker,
        driver_migration::ConnectPrevious,
        process::{ProcessDriver, ProcessOptions},
    },
    store::Store,
    wiring,
};

#[cfg(test)]
mod tests;

/// Time limit for an engine that has live sessions, if the configuration names no driver.
const ENGINE_WAIT: Duration = Duration::from_secs(15);
/// Interval between two attempts to reach the engine.
const ENGINE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the configured driver. With `auto`: Docker if it is usable, else the process driver, and
/// logs the reason.
///
/// The returned driver also takes care of this node's sandboxes under the other driver.
///
/// # Errors
/// Fails if the configured driver is not usable, or with `auto` if no driver is.
pub(super) async fn choose_driver(
    config: &Config,
    data: &DataDir,
    node: &str,
    store: &dyn Store,
) -> Result<Arc<dyn SandboxDriver>, StartError> {
    let locations = SandboxLocations::below(data.drivers());
    let chosen: Arc<dyn SandboxDriver> = match config.sandbox.driver {
        DriverChoice::Docker => Arc::new(connect_docker(config, node).await?),
        DriverChoice::Process => Arc::new(open_process_driver(config, data, node).await?),
        DriverChoice::Auto => match docker_awaited_for_sessions(config, node, store, &locations).await {
            Ok(docker) => Arc::new(docker),
            Err(reason) => {
                info!("Docker is not usable, so the process driver is used: {reason}");
                Arc::new(open_process_driver(config, data, node).await?)
            }
        },
    };
    info!(driver = chosen.name(), "{}", chosen.isolation());
    let previous: ConnectPrevious = if chosen.name() == docker::NAME {
        let options = process_options(config, data, node);
        Box::new(move || connect_previous(std::future::ready(ProcessDriver::new(options.clone()))))
    } else {
        let options = wiring::docker_options(&config.sandbox, node);
        Box::new(move || connect_previous(DockerDriver::connect(options.clone())))
    };
    Ok(Arc::new(DriverMigration::new(chosen, previous, locations)?))
}

fn connect_previous<D: SandboxDriver>(
    driver: impl Future<Output = Result<D, SandboxError>> + Send + 'static,
) -> BoxFuture<'static, Result<Arc<dyn SandboxDriver>, SandboxError>> {
    Box::pin(async { Ok(Arc::new(driver.await?) as Arc<dyn SandboxDriver>) })
}

async fn connect_docker(config: &Config, node: &str) -> Result<DockerDriver, SandboxError> {
    let docker = DockerDriver::connect(wiring::docker_options(&config.sandbox, node)).await?;
    docker.check().await?;
    Ok(docker)
}

/// Returns the Docker driver if the default image is present or can be pulled.
///
/// An engine may be starting beside this server. If sessions live in it, an engine that does not
/// answer or fails a query is retried for up to 15 s.
///
/// # Errors
/// Returns the engine's last error.
async fn docker_awaited_for_sessions(
    config: &Config,
    node: &str,
    store: &dyn Store,
    locations: &SandboxLocations,
) -> Result<DockerDriver, SandboxError> {
    let until = Instant::now() + ENGINE_WAIT;
    let mut warned = false;
    loop {
        let error = match docker_with_image(config, node).await {
            Ok(docker) => return Ok(docker),
            Err(e) if e.is_inconclusive() || matches!(e, SandboxError::Failed { .. }) => e,
            Err(other) => return Err(other),
        };
        if Instant::now() >= until || !has_live_sessions_in_docker(store, locations).await {
            return Err(error);
        }
        if !std::mem::replace(&mut warned, true) {
            warn!("sessions live in Docker; waiting up to {} s for the engine: {error}", ENGINE_WAIT.as_secs());
        }
        sleep(ENGINE_POLL_INTERVAL).await;
    }
}

async fn docker_with_image(config: &Config, node: &str) -> Result<DockerDriver, SandboxError> {
    let (docker, image) = (connect_docker(config, node).await?, &config.sandbox.image);
    if !docker.has_image(image).await? {
        info!("pulling the image `{image}`");
        docker.pull(image, &|_, detail| info!("pulling `{image}`: {detail}")).await?;
    }
    Ok(docker)
}

/// Returns true if the journal has a live session whose last driver was Docker. Read errors count
/// as none here, because the users of the data report them.
async fn has_live_sessions_in_docker(store: &dyn Store, locations: &SandboxLocations) -> bool {
    let Ok(names) = locations.location_names() else { return false };
    let docker_names = names.iter().filter(|name| name.starts_with(docker::NAME));
    let in_docker: Vec<_> = docker_names.flat_map(|name| locations.sessions_at(name).unwrap_or_default()).collect();
    if in_docker.is_empty() {
        return false;
    }
    let is_up = |state| !matches!(state, AgentState::Stopped | AgentState::Failed | AgentState::Ended);
    let known = store.get_many(&in_docker).await.unwrap_or_default();
    known.iter().any(|session| is_up(session.record.state))
}

async fn open_process_driver(config: &Config, data: &DataDir, node: &str) -> Result<ProcessDriver, SandboxError> {
    let process = ProcessDriver::new(process_options(config, data, node))?;
    process.check().await?;
    Ok(process)
}

fn process_options(config: &Config, data: &DataDir, node: &str) -> ProcessOptions {
    ProcessOptions {
        node: node.to_owned(),
        state: data.sandboxes(),
        programs: data.programs(),
        unconfined: config.sandbox.unconfined,
        engine: config.sandbox.docker_host.strip_prefix("unix://").map(Into::into),
    }
}
