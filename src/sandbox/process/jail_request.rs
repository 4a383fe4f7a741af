//! What a keeper is told to build, and what it is not asked for because a jail cannot do it.

use std::path::{Component, Path};

use greenroom_jailer::{
    cgroup::Cgroup,
    request::{JailLimits, JailRequest, JailSources, VolumeBind},
};

use super::sandbox_dir::SandboxDir;
use crate::sandbox::{self, SandboxError, SandboxNetwork, SandboxSpec, SandboxVolume, VolumeAccess, sandbox_paths};

/// What a jail cannot do is refused here, before anything is made.
pub(super) fn build(
    spec: &SandboxSpec,
    place: &SandboxDir,
    cgroup: Option<Cgroup>,
) -> Result<JailRequest, SandboxError> {
    // Only root can become somebody else; anybody else's sandboxes run as their own user.
    let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let (uid, gid) = match own_uid.is_root() {
        true => (spec.uid, spec.gid),
        false => (own_uid.as_raw(), own_gid.as_raw()),
    };
    if uid == 0 {
        return Err(refused("an agent does not run as root; set `sandbox.uid` to another user".into()));
    }
    if let SandboxNetwork::Named(name) = &spec.network {
        let way_out = "set `sandbox.network` to `none`, or use Docker";
        return Err(refused(format!("the process driver has no network `{name}`; {way_out}")));
    }
    let sandbox::SandboxLimits { memory_bytes, cpus, pids } = spec.limits;
    Ok(JailRequest {
        session: spec.session.to_string(),
        sandbox_dir: place.dir().to_owned(),
        uid,
        gid,
        limits: JailLimits { memory_bytes, cpus, pids },
        sources: JailSources {
            root: place.dir().join("root"),
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

/// What the jail itself puts together, and what lies below.
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
    // Where the agent can write, it could lay a link in the mount's way.
    sandbox_paths::WORKSPACE,
    sandbox_paths::HOME,
];

fn bind(volume: &SandboxVolume) -> Result<VolumeBind, SandboxError> {
    let SandboxVolume { host, inside, access } = volume;
    let plain = inside.is_absolute() && !inside.components().any(|part| part == Component::ParentDir);
    // A mount at `/home`, say, would cover what is below it.
    let taken =
        RESERVED_PATHS.iter().map(Path::new).any(|taken| inside.starts_with(taken) || taken.starts_with(inside));
    if !plain || taken {
        let at = inside.display();
        return Err(refused(format!(
            "no volume can be mounted at `{at}`; name a directory of its own, such as `/data`"
        )));
    }
    Ok(VolumeBind { host: host.clone(), inside: inside.clone(), writable: *access == VolumeAccess::ReadWrite })
}

fn refused(detail: String) -> SandboxError {
    SandboxError::Failed { what: "start", detail }
}
