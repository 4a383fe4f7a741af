//! Which wall this server builds, and how it comes by what another one has built.

use std::{collections::HashSet, future::Future, sync::Arc, time::Duration};

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

/// How long an engine may take to come back in which sessions live, where no driver is named.
const ENGINE_WAIT: Duration = Duration::from_secs(15);
/// How often it is looked for.
const ENGINE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The wall that the person asked for; with `auto`, Docker where it can be had, and otherwise the host's own, with the reason.
/// What the other driver has of this node is looked after as well.
pub(super) async fn choose_driver(
    config: &Config,
    data: &DataDir,
    node: &str,
    store: &dyn Store,
) -> Result<Arc<dyn SandboxDriver>, StartError> {
    let traces = SandboxLocations::below(data.drivers());
    let chosen: Arc<dyn SandboxDriver> = match config.sandbox.driver {
        DriverChoice::Docker => Arc::new(connect_docker(config, node).await?),
        DriverChoice::Process => Arc::new(open_process_driver(config, data, node).await?),
        DriverChoice::Auto => match docker_awaited_for_sessions(config, node, store, &traces).await {
            Ok(docker) => Arc::new(docker),
            Err(why) => {
                info!("no Docker: {why}");
                Arc::new(open_process_driver(config, data, node).await?)
            }
        },
    };
    info!(driver = chosen.name(), "{}", chosen.isolation());
    let former: ConnectPrevious = if chosen.name() == docker::NAME {
        let options = process_options(config, data, node);
        Box::new(move || connect_previous(std::future::ready(ProcessDriver::new(options.clone()))))
    } else {
        let options = wiring::docker_options(&config.sandbox, node);
        Box::new(move || connect_previous(DockerDriver::connect(options.clone())))
    };
    Ok(Arc::new(DriverMigration::new(chosen, former, traces)?))
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

/// Docker, if the default image is there or can be had. An engine that does not answer, or fails as it is asked about itself or the
/// image, is waited for a while where sessions live in it: it may be starting beside this server.
async fn docker_awaited_for_sessions(
    config: &Config,
    node: &str,
    store: &dyn Store,
    traces: &SandboxLocations,
) -> Result<DockerDriver, SandboxError> {
    let until = Instant::now() + ENGINE_WAIT;
    let mut told = false;
    loop {
        let not_yet = match docker_with_image(config, node).await {
            Ok(docker) => return Ok(docker),
            Err(e) if e.is_inconclusive() || matches!(e, SandboxError::Failed { .. }) => e,
            Err(other) => return Err(other),
        };
        if Instant::now() >= until || !has_live_sessions_in_docker(store, traces).await {
            return Err(not_yet);
        }
        if !std::mem::replace(&mut told, true) {
            warn!("sessions live in Docker; waiting up to {} s for it: {not_yet}", ENGINE_WAIT.as_secs());
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

/// Whether the journal knows a session that is up, and Docker had it last. What cannot be read is told by whoever needs it.
async fn has_live_sessions_in_docker(store: &dyn Store, traces: &SandboxLocations) -> bool {
    let Ok(places) = traces.location_names() else { return false };
    let of_docker = places.iter().filter(|place| place.starts_with(docker::NAME));
    let in_docker: HashSet<_> = of_docker.flat_map(|place| traces.sessions_at(place).unwrap_or_default()).collect();
    if in_docker.is_empty() {
        return false;
    }
    let is_up = |state| !matches!(state, AgentState::Stopped | AgentState::Failed | AgentState::Ended);
    let live = store.live().await.unwrap_or_default();
    live.iter().any(|session| is_up(session.record.state) && in_docker.contains(&session.record.id))
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
