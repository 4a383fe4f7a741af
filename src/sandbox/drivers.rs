//! Registry of the sandbox drivers. Nothing outside this module and the drivers' own modules names
//! a driver's type.
//!
//! A further driver is a module of its own, a line of [`DRIVERS`] and of `sandbox/mod.rs`, and a
//! [`DriverChoice`](crate::config::DriverChoice).

use std::{path::PathBuf, sync::Arc};

use futures::future::BoxFuture;

use super::{SandboxDriver, SandboxError, docker, process};
use crate::config::{DriverChoice, SandboxConfig};

/// Drivers in the order in which `auto` prefers them.
pub static DRIVERS: [&DriverEntry; 2] = [&docker::ENTRY, &process::ENTRY];

/// Entry of a driver in the registry.
pub struct DriverEntry {
    /// Value of `sandbox.driver` that names the driver.
    pub choice: DriverChoice,
    /// [Name](SandboxDriver::name) of the driver.
    pub name: &'static str,
    /// Noun for the driver inside a sentence, such as `the process driver`.
    pub title: &'static str,
    /// Requirement of the driver, as `greenroom doctor` lists it.
    pub requirement: &'static str,
    /// True if an engine runs the sandboxes, from images. The engine may start beside this server.
    pub has_engine: bool,
    pub open: OpenDriver,
}

/// Result of opening a driver.
pub type OpenedDriver = Result<Arc<dyn SandboxDriver>, SandboxError>;

/// Opens a driver. Starts no sandbox and checks none: see [`SandboxDriver::check`].
pub type OpenDriver = fn(Arc<SandboxConfig>, SandboxNode) -> BoxFuture<'static, OpenedDriver>;

/// Node whose sandboxes a driver runs, and its directories.
#[derive(Debug, Clone)]
pub struct SandboxNode {
    /// Name of the node, unique on the host. Drivers leave sandboxes of other nodes alone.
    pub name: String,
    /// Directory for the state of the sandboxes.
    pub sandboxes: PathBuf,
    /// Directory that programs are installed in and run from.
    pub programs: PathBuf,
}

impl DriverEntry {
    /// Returns the entry that the configuration names. `None` with `auto`.
    pub fn of(choice: DriverChoice) -> Option<&'static DriverEntry> {
        DRIVERS.into_iter().find(|entry| entry.choice == choice)
    }

    /// Returns true if a sandbox at `location` belongs to this driver.
    pub fn owns(&self, location: &str) -> bool {
        is_location_of(self.name, location)
    }
}

/// Returns true if `location` is the driver's name, alone or with a suffix, such as
/// `docker-var-lib-docker`.
pub(super) fn is_location_of(driver: &str, location: &str) -> bool {
    location.strip_prefix(driver).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_choice_but_auto_has_an_entry_of_its_name() {
        for choice in DriverChoice::value_variants() {
            let entry = DriverEntry::of(*choice).map(|entry| entry.name.to_owned());
            let named = choice.to_possible_value().map(|value| value.get_name().to_owned());
            assert_eq!(entry, named.filter(|name| name != "auto"), "{choice:?}: add a line to DRIVERS");
        }
    }

    #[test]
    fn location_begins_with_the_name_of_its_driver() {
        let check = |driver: &str, location: &str, expected| {
            assert_eq!(is_location_of(driver, location), expected, "{driver} and {location}");
        };
        check("process", "process", true);
        check("docker", "docker-var-lib-docker", true);
        check("docker", "docker2", false);
        check("docker", "process", false);
    }
}
