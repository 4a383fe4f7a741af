//! Section `sandbox`: driver, limits, network, volumes and user of every sandbox.

use std::{
    fmt,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use bytesize::ByteSize;
use greenroom_protocol::sandbox_paths;
use serde::{Deserialize, Serialize};

use super::value::{SandboxVolume, TimeSpan, UidRange, UnixId, VolumeAccess};

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
    pub uid_range: UidRange,
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
    /// Time without a server after which a running sandbox ends by itself. 0: never.
    pub orphan_after: TimeSpan,
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

    /// Returns the user ids of which each sandbox has one of its own.
    ///
    /// # Errors
    /// Returns the reason why all sandboxes share [one user](SandboxConfig::user).
    pub fn own_uids(&self) -> Result<RangeInclusive<u32>, SharedUserReason> {
        let uid_map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        self.own_uids_on(rustix::process::geteuid().is_root(), &uid_map)
    }

    /// `uid_map` is the map of this process's user namespace, as in user_namespaces(7).
    fn own_uids_on(&self, is_root: bool, uid_map: &str) -> Result<RangeInclusive<u32>, SharedUserReason> {
        let uids = match &self.uid_range {
            UidRange::Off => return Err(SharedUserReason::Off),
            UidRange::Auto if self.uid != UnixId::Auto => return Err(SharedUserReason::NamedUser),
            UidRange::Auto => UidRange::AUTO,
            UidRange::Ids(uids) => uids.clone(),
        };
        let is_writable = |volume: &&SandboxVolume| volume.access == VolumeAccess::ReadWrite;
        if let Some(volume) = self.volumes.iter().find(is_writable) {
            return Err(SharedUserReason::WritableVolume(volume.host.clone()));
        }
        if !is_root {
            return Err(SharedUserReason::NotRoot);
        }
        match is_mapped(&uids, uid_map) {
            true => Ok(uids),
            false => Err(SharedUserReason::NotMapped(uids)),
        }
    }

    /// Returns true if agents can write to files of the host through a volume.
    pub fn writes_to_host(&self) -> bool {
        self.volumes.iter().any(|volume| volume.access == VolumeAccess::ReadWrite)
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

/// Reason why all sandboxes share one user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharedUserReason {
    #[error("`sandbox.uid_range` is empty")]
    Off,
    #[error("`sandbox.uid` names one user; set `sandbox.uid_range` to a range of ids")]
    NamedUser,
    #[error("only a server that runs as root can give each sandbox a user of its own")]
    NotRoot,
    #[error(
        "the sandboxes share the directory `{0}`, whose files they could not write for each other; mount it with `:ro`"
    )]
    WritableVolume(PathBuf),
    #[error("this server's user namespace lacks the user ids {start} to {end}; name others in `sandbox.uid_range`", start = .0.start(), end = .0.end())]
    NotMapped(RangeInclusive<u32>),
}

/// Returns true if one line of the map has all of the user ids.
fn is_mapped(uids: &RangeInclusive<u32>, uid_map: &str) -> bool {
    uid_map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count))) = (fields.next(), fields.next(), fields.next()) else {
            return false;
        };
        inside <= u64::from(*uids.start()) && u64::from(*uids.end()) < inside + count
    })
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
    fn each_sandbox_has_a_user_of_its_own_unless_files_are_shared() {
        const WHOLE_MAP: &str = "         0          0 4294967295\n";
        let check = |change: &dyn Fn(&mut SandboxConfig), is_root, map: &str, expected| {
            let mut sandbox = Config::with_data_dir("/x").sandbox;
            change(&mut sandbox);
            assert_eq!(sandbox.own_uids_on(is_root, map), expected);
        };
        let ids = |ids| move |sandbox: &mut SandboxConfig| sandbox.uid_range = UidRange::Ids(ids);
        let volume = |text: &'static str| {
            move |sandbox: &mut SandboxConfig| {
                sandbox.volumes = vec![SandboxVolume::try_from(text.to_owned()).expect("the volume is valid")];
            }
        };
        check(&|_| {}, true, WHOLE_MAP, Ok(UidRange::AUTO));
        check(&|_| {}, false, WHOLE_MAP, Err(SharedUserReason::NotRoot));
        check(&|_| {}, true, "0 100000 65536\n", Err(SharedUserReason::NotMapped(UidRange::AUTO)));
        check(&|sandbox| sandbox.uid_range = UidRange::Off, true, WHOLE_MAP, Err(SharedUserReason::Off));
        check(&|sandbox| sandbox.uid = UnixId::Fixed(7), true, WHOLE_MAP, Err(SharedUserReason::NamedUser));
        check(&|sandbox| ids(5..=6)(sandbox), true, "0 100000 7\n", Ok(5..=6));
        check(&|sandbox| ids(5..=7)(sandbox), true, "0 100000 7\n", Err(SharedUserReason::NotMapped(5..=7)));
        check(&volume("/a:/data:ro"), true, WHOLE_MAP, Ok(UidRange::AUTO));
        check(&volume("/a:/data"), true, WHOLE_MAP, Err(SharedUserReason::WritableVolume("/a".into())));
        check(&volume("/a:/workspace"), true, WHOLE_MAP, Err(SharedUserReason::WritableVolume("/a".into())));
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
