//! Choice of the sandbox driver, and migration from the previous driver.

use std::{sync::Arc, time::Duration};

use greenroom_protocol::observation::AgentState;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::StartError;
use crate::{
    config::SandboxConfig,
    sandbox::{
        DriverMigration, SandboxDriver, SandboxError, SandboxLocations, SandboxNode,
        driver_migration::OtherDriver,
        drivers::{DRIVERS, DriverEntry, OpenedDriver},
    },
    store::Store,
};

#[cfg(test)]
mod tests;

/// Time limit for an engine that has live sessions, if the configuration names no driver.
const ENGINE_WAIT: Duration = Duration::from_secs(15);
/// Interval between two attempts to reach the engine.
const ENGINE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Parts that a choice of driver depends on.
pub(super) struct DriverParts<'a> {
    pub(super) config: Arc<SandboxConfig>,
    pub(super) node: SandboxNode,
    pub(super) store: &'a dyn Store,
    pub(super) locations: SandboxLocations,
}

impl DriverParts<'_> {
    /// Returns the configured driver. With `auto`: the first driver of the registry that is usable,
    /// and logs why the others are not.
    ///
    /// The returned driver also takes care of this node's sandboxes under the other drivers.
    ///
    /// # Errors
    /// Fails if the configured driver is not usable, or with `auto` if no driver is.
    pub(super) async fn choose(self) -> Result<Arc<dyn SandboxDriver>, StartError> {
        let chosen = match DriverEntry::of(self.config.driver) {
            Some(entry) => self.open_checked(entry).await?,
            None => self.first_usable().await?,
        };
        debug!(driver = chosen.name(), "{}", chosen.isolation());
        let others = DRIVERS.into_iter().filter(|entry| entry.name != chosen.name());
        let others = others.map(|entry| {
            let (config, node) = (self.config.clone(), self.node.clone());
            OtherDriver::new(entry.name, Box::new(move || (entry.open)(config.clone(), node.clone())))
        });
        let others = others.collect();
        Ok(Arc::new(DriverMigration::new(chosen, others, self.locations)?))
    }

    async fn first_usable(&self) -> OpenedDriver {
        let [preferred @ .., last] = &DRIVERS;
        for (entry, next) in preferred.iter().zip(&DRIVERS[1..]) {
            let opened = match entry.has_engine {
                true => self.awaited_for_sessions(entry).await,
                false => self.open_checked(entry).await,
            };
            match opened {
                Ok(driver) => return Ok(driver),
                Err(reason) => debug!("{} is not usable, so {} is used: {reason}", entry.title, next.title),
            }
        }
        self.open_checked(last).await
    }

    async fn open_checked(&self, entry: &DriverEntry) -> OpenedDriver {
        let driver = (entry.open)(self.config.clone(), self.node.clone()).await?;
        driver.check().await?;
        Ok(driver)
    }

    /// Returns the driver of an engine if the default image is present or can be pulled.
    ///
    /// An engine may be starting beside this server. If sessions live in it, an engine that does
    /// not answer or fails a query is retried for up to 15 s.
    ///
    /// # Errors
    /// Returns the engine's last error.
    async fn awaited_for_sessions(&self, entry: &DriverEntry) -> OpenedDriver {
        let until = Instant::now() + ENGINE_WAIT;
        let mut warned = false;
        loop {
            let error = match self.open_with_image(entry).await {
                Ok(driver) => return Ok(driver),
                Err(e) if e.is_inconclusive() || matches!(e, SandboxError::Failed { .. }) => e,
                Err(other) => return Err(other),
            };
            if Instant::now() >= until || !self.has_live_sessions(entry).await {
                return Err(error);
            }
            if !std::mem::replace(&mut warned, true) {
                let (title, seconds) = (entry.title, ENGINE_WAIT.as_secs());
                warn!("sessions live in {title}; waiting up to {seconds} s for the engine: {error}");
            }
            sleep(ENGINE_POLL_INTERVAL).await;
        }
    }

    async fn open_with_image(&self, entry: &DriverEntry) -> OpenedDriver {
        let (driver, image) = (self.open_checked(entry).await?, &self.config.image);
        if !driver.has_image(image).await? {
            info!("pulling the image `{image}`");
            driver.fetch(image, &|_, detail| info!("pulling `{image}`: {detail}")).await?;
        }
        Ok(driver)
    }

    /// Returns true if the journal has a live session whose last driver was this one. Read errors
    /// count as none here, because the users of the data report them.
    async fn has_live_sessions(&self, entry: &DriverEntry) -> bool {
        let Ok(names) = self.locations.location_names() else { return false };
        let own = names.iter().filter(|name| entry.owns(name));
        let sessions: Vec<_> = own.flat_map(|name| self.locations.sessions_at(name).unwrap_or_default()).collect();
        if sessions.is_empty() {
            return false;
        }
        let is_up = |state| !matches!(state, AgentState::Stopped | AgentState::Failed | AgentState::Ended);
        let known = self.store.get_many(&sessions).await.unwrap_or_default();
        known.iter().any(|session| is_up(session.record.state))
    }
}
