//! Conversion of a [`SandboxSpec`] into the request to a jailer.

use std::path::{Component, Path};

use greenroom_jailer::{
    cgroup::Cgroup,
    request::{JailLimits, JailRequest, JailSources, VolumeBind},
};

use super::sandbox_dir::SandboxDir;
use crate::{
    config::{SandboxLimits, SandboxNetwork, SandboxVolume, VolumeAccess},
    sandbox::{SandboxError, SandboxSpec, sandbox_paths},
};

/// Builds the request. Rejects what a jail cannot provide, before any file is created.
pub(super) fn build(
    spec: &SandboxSpec,
    sandbox_dir: &SandboxDir,
    cgroup: Option<Cgroup>,
) -> Result<JailRequest, SandboxError> {
    // Only root can change the user. Without root, sandboxes run as the server's own user.
    let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let (uid, gid) = match own_uid.is_root() {
        true => (spec.uid, spec.gid),
        false => (own_uid.as_raw(), own_gid.as_raw()),
    };
    if uid == 0 {
        return Err(rejected("an agent does not run as root; set `sandbox.uid` to another user".into()));
    }
    if let SandboxNetwork::Named(name) = &spec.network {
        let way_out = "set `sandbox.network` to `none`, or use Docker";
        return Err(rejected(format!("the process driver has no network `{name}`; {way_out}")));
    }
    let SandboxLimits { memory, cpus, pids } = spec.limits;
    Ok(JailRequest {
        session: spec.session.to_string(),
        sandbox_dir: sandbox_dir.dir().to_owned(),
        uid,
        gid,
        limits: JailLimits { memory_bytes: memory.as_u64(), cpus, pids },
        sources: JailSources {
            root: sandbox_dir.dir().join("root"),
            agent: spec.agent.clone(),
            workspace: spec.workspace.clone(),
            home: spec.home.clone(),
            run: spec.run.root().to_owned(),
            run_agent: spec.run.agent(),
        },
        volumes: spec.volumes.iter().map(bind).collect::<Result<_, _>>()?,
        cgroup,
        user_namespace: true,
    })
}

/// Paths that the jail itself sets up. Volumes must not cover them or lie below them.
const RESERVED_PATHS: &[&str] = &[
    "/bin",
    "/dev",
    "/etc",
    "/greenroom",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sbin",
    "/tmp",
    "/usr",
    "/var/tmp",
    // The agent can write here, and could place a link in the way of a mount.
    sandbox_paths::WORKSPACE,
    sandbox_paths::HOME,
];

fn bind(volume: &SandboxVolume) -> Result<VolumeBind, SandboxError> {
    let SandboxVolume { host, inside, access } = volume;
    let is_plain = inside.is_absolute() && !inside.components().any(|part| part == Component::ParentDir);
    // A mount at `/home`, for example, would cover the directories below it.
    let is_reserved = RESERVED_PATHS
        .iter()
        .map(Path::new)
        .any(|reserved| inside.starts_with(reserved) || reserved.starts_with(inside));
    if !is_plain || is_reserved {
        let at = inside.display();
        return Err(rejected(format!("no volume can be mounted at `{at}`; use a separate directory, such as `/data`")));
    }
    Ok(VolumeBind { host: host.clone(), inside: inside.clone(), writable: *access == VolumeAccess::ReadWrite })
}

fn rejected(detail: String) -> SandboxError {
    SandboxError::Failed { what: "start", detail }
}
