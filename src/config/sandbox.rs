//! Section `sandbox`: driver, limits, network, volumes and user of every sandbox.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use bytesize::ByteSize;
use greenroom_protocol::sandbox_paths;
use serde::{Deserialize, Serialize};

use super::value::{SandboxVolume, UnixId};

/// User and group id of agents if this server runs as root. Unused by other accounts on all known
/// systems.
const UNPRIVILEGED_ID: u32 = 65_532;

/// Settings of every sandbox. The loader rejects unknown keys, because `flatten` allows no
/// `deny_unknown_fields`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SandboxConfig {
    pub driver: DriverChoice,
    /// Address of the engine. Empty: `unix:///var/run/docker.sock`.
    pub docker_host: String,
    /// Image of sessions that name no image.
    pub image: String,
    #[serde(flatten)]
    pub limits: SandboxLimits,
    pub network: SandboxNetwork,
    /// Volumes that the operator mounts into every sandbox (`SANDBOX_VOLUMES`).
    pub volumes: Vec<SandboxVolume>,
    pub uid: UnixId,
    pub gid: UnixId,
    /// Makes everything read-only except workspace, home, `/tmp` and volumes. Docker only.
    pub readonly_root: bool,
    /// OCI runtime of the engine (`runsc`, `kata`). Empty: the engine's default.
    pub runtime: String,
    pub max_starting: usize,
    pub max_waiting: usize,
    /// Allows root to build jails without a user namespace if the kernel denies one.
    ///
    /// All other namespaces are always required: the agent finds its directories only in a mount
    /// namespace.
    pub unconfined: bool,
    pub stop_with_server: bool,
}

/// Choice of the sandbox driver. The registry in `sandbox::drivers` has an entry for each but
/// `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DriverChoice {
    /// Docker if an engine answers, else the process driver
    Auto,
    /// Docker containers
    Docker,
    /// Confined processes of this host
    Process,
}

/// Resource limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct SandboxLimits {
    pub memory: ByteSize,
    /// CPU limit, in CPUs: 1.5 is one and a half.
    pub cpus: f64,
    /// Highest number of processes and threads.
    pub pids: u64,
}

/// Network of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub enum SandboxNetwork {
    /// Loopback only, written `none`.
    None,
    /// Network of the Docker engine with this name. The process driver rejects it.
    Named(String),
}

impl SandboxConfig {
    /// Returns the user and group that agents run as. Never root.
    pub fn user(&self) -> (u32, u32) {
        let root = rustix::process::geteuid().is_root();
        let own = |id: u32| if root { UNPRIVILEGED_ID } else { id };
        let pick = |configured: UnixId, own: u32| match configured {
            UnixId::Auto => own,
            UnixId::Fixed(id) => id,
        };
        (
            pick(self.uid, own(rustix::process::geteuid().as_raw())),
            pick(self.gid, own(rustix::process::getegid().as_raw())),
        )
    }

    /// Returns the host directory of a volume at the workspace's path, if any. All sessions share
    /// this directory as their workspace.
    pub fn shared_workspace(&self) -> Option<&Path> {
        self.volumes.iter().rfind(|volume| is_workspace(volume)).map(|volume| volume.host.as_path())
    }

    /// Returns the volumes beside the workspace.
    pub fn mounted_volumes(&self) -> impl Iterator<Item = &SandboxVolume> {
        self.volumes.iter().filter(|volume| !is_workspace(volume))
    }

    /// Returns the socket of the configured engine, if the engine has one on this host.
    pub fn engine_socket(&self) -> Option<PathBuf> {
        self.docker_host.strip_prefix("unix://").map(PathBuf::from)
    }
}

fn is_workspace(volume: &SandboxVolume) -> bool {
    volume.inside == Path::new(sandbox_paths::WORKSPACE)
}

impl From<String> for SandboxNetwork {
    fn from(name: String) -> SandboxNetwork {
        match name.as_str() {
            "none" => SandboxNetwork::None,
            _ => SandboxNetwork::Named(name),
        }
    }
}

impl From<SandboxNetwork> for String {
    fn from(network: SandboxNetwork) -> String {
        network.to_string()
    }
}

impl fmt::Display for SandboxNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SandboxNetwork::None => "none",
            SandboxNetwork::Named(name) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn agents_are_never_root() {
        let mut sandbox = Config::with_data_dir("/x").sandbox;
        let (uid, gid) = sandbox.user();
        assert!(uid != 0 && gid != 0);
        (sandbox.uid, sandbox.gid) = (UnixId::Fixed(7), UnixId::Fixed(8));
        assert_eq!(sandbox.user(), (7, 8));
    }

    #[test]
    fn volume_at_the_workspace_is_shared() {
        let mut sandbox = Config::with_data_dir("/x").sandbox;
        assert_eq!(sandbox.shared_workspace(), None);
        let volume = |text: &str| SandboxVolume::try_from(text.to_owned()).expect("the volume is valid");
        sandbox.volumes = ["/a:/data:ro", "/b:/workspace", "/c:/workspace/"].map(volume).into();
        assert_eq!(sandbox.shared_workspace(), Some(Path::new("/c")), "the last volume wins");
        assert_eq!(sandbox.mounted_volumes().collect::<Vec<_>>(), [&volume("/a:/data:ro")]);
    }
}
