//! Containers are described only here. [`SandboxSpec`] has no field for a privilege, a device, a
//! capability or a host namespace. So a request cannot ask for any. The golden test shows the
//! complete body.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits,
};
use greenroom_jailer::confinement::{
    ENVIRONMENT, MASKED_PATHS, MESSAGE_QUEUE_BYTES, OOM_SCORE_ADJUSTMENT, OPEN_FILES, PENDING_SIGNALS, group_file,
    passwd_file,
};
use serde_json::Value;

use super::{
    super::{SandboxError, SandboxSpec, sandbox_paths},
    seccomp_profile::PROFILE,
};
use crate::{
    config::{SandboxConfig, SandboxNetwork, VolumeAccess},
    store::SessionId,
};

/// Label with the session's id.
pub(super) const SESSION_LABEL: &str = "greenroom.session";
/// Label with the node that owns the container.
pub(super) const NODE_LABEL: &str = "greenroom.node";
/// Label with a fingerprint of the whole body except the image.
///
/// An exited container with another fingerprint is created again. The value is `greenroom.wall`
/// because containers of earlier versions carry that label.
pub(super) const FINGERPRINT_LABEL: &str = "greenroom.wall";

/// Size of `/dev/shm`, bytes. A browser crashes with the engine's default of 64 MiB. Counts towards
/// the memory limit.
const SHARED_MEMORY: i64 = 256 << 20;

/// Settings of the operator for every container, and the node that owns the containers.
///
/// Servers that share an engine leave containers of other nodes alone.
#[derive(Debug, Clone)]
pub(super) struct ContainerPolicy {
    pub(super) node: String,
    pub(super) config: Arc<SandboxConfig>,
    /// True if the engine labels containers with SELinux. Such an engine must write in `/proc`
    /// after it has made paths read-only.
    pub(super) selinux: bool,
}

impl ContainerPolicy {
    /// Returns the name of a session's container.
    ///
    /// Contains the node, because another node may have a session of the same id after an import.
    pub(super) fn container_name(&self, session: SessionId) -> String {
        format!("greenroom-{}-{session}", self.node)
    }

    /// Returns the OCI runtime. `None` is the engine's default.
    pub(super) fn runtime(&self) -> Option<&str> {
        Some(self.config.runtime.as_str()).filter(|runtime| !runtime.is_empty())
    }
}

/// Describes the container.
///
/// # Errors
/// Fails for a specification without isolation: root as user, or the network of the host or of
/// another container.
pub(super) fn create_body(policy: &ContainerPolicy, spec: &SandboxSpec) -> Result<ContainerCreateBody, SandboxError> {
    if spec.uid == 0 {
        return Err(rejected("a sandbox never runs as root; set `sandbox.uid` to another user than 0"));
    }
    let session = spec.session.to_string();
    let mut body = ContainerCreateBody {
        hostname: Some("greenroom".into()),
        user: Some(format!("{}:{}", spec.uid, spec.gid)),
        // PATH is left to the image, which contains the tools. The engine has a default if the
        // image sets none.
        env: Some(environment(&session)),
        // With an explicit entry point, the engine also drops the image's command.
        entrypoint: Some(vec![sandbox_paths::AGENT_BINARY.into()]),
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        working_dir: Some(sandbox_paths::WORKSPACE.into()),
        stop_signal: Some("SIGTERM".into()),
        labels: Some([(SESSION_LABEL.into(), session), (NODE_LABEL.into(), policy.node.clone())].into()),
        host_config: Some(host_config(policy, spec)?),
        ..ContainerCreateBody::default()
    };
    let fingerprint = fingerprint(&body);
    body.labels.get_or_insert_default().insert(FINGERPRINT_LABEL.into(), fingerprint);
    body.image = Some(spec.image.clone());
    Ok(body)
}

fn host_config(policy: &ContainerPolicy, spec: &SandboxSpec) -> Result<HostConfig, SandboxError> {
    let memory = i64::try_from(spec.limits.memory.as_u64()).unwrap_or(i64::MAX);
    Ok(HostConfig {
        runtime: policy.runtime().map(str::to_owned),
        readonly_rootfs: Some(policy.config.readonly_root),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(vec!["no-new-privileges:true".into(), format!("seccomp={}", *PROFILE)]),
        masked_paths: Some(MASKED_PATHS.map(str::to_owned).into()),
        readonly_paths: Some(read_only_paths(policy)),
        oom_score_adj: Some(OOM_SCORE_ADJUSTMENT.into()),
        ulimits: Some(ulimits()),
        privileged: Some(false),
        ipc_mode: Some("private".into()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        network_mode: Some(network_mode(&spec.network)?),
        memory: Some(memory),
        // Equal to `memory`: no swap.
        memory_swap: Some(memory),
        nano_cpus: Some((spec.limits.cpus * 1e9) as i64),
        pids_limit: Some(i64::try_from(spec.limits.pids).unwrap_or(i64::MAX)),
        shm_size: Some(SHARED_MEMORY.min(memory / 2)),
        tmpfs: Some([("/tmp".into(), tmpfs_options(memory / 2, spec))].into()),
        // The init process reaps the orphans of the agent's commands.
        init: Some(true),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some(options(&[("max-size", "1m"), ("max-file", "2")])),
        }),
        mounts: Some(mounts(spec)),
        ..HostConfig::default()
    })
}

fn environment(session: &str) -> Vec<String> {
    let session = ("GREENROOM_SESSION", session);
    ENVIRONMENT.into_iter().chain([session]).map(|(name, value)| format!("{name}={value}")).collect()
}

/// Returns the paths that are read-only inside.
///
/// All of `/proc`. If the engine lacks `CAP_SYS_RESOURCE`, a process could otherwise lower its
/// `oom_score_adj`.
fn read_only_paths(policy: &ContainerPolicy) -> Vec<String> {
    let paths: &[&str] = if policy.selinux { &["/proc/bus", "/proc/irq", "/proc/sys"] } else { &["/proc"] };
    paths.iter().map(|path| (*path).to_owned()).collect()
}

fn ulimits() -> Vec<ResourcesUlimits> {
    let limits =
        [("core", 0), ("nofile", OPEN_FILES), ("sigpending", PENDING_SIGNALS), ("msgqueue", MESSAGE_QUEUE_BYTES)];
    let ulimit = |(name, value): (&str, u64)| {
        let value = i64::try_from(value).ok();
        ResourcesUlimits { name: Some(name.to_owned()), soft: value, hard: value }
    };
    limits.map(ulimit).into()
}

/// Returns the mount options of `/tmp`.
///
/// `bytes` is half the memory limit. So a program that fills `/tmp` gets an error, and the sandbox
/// is not killed. The directory belongs to the agent, because runc up to 1.1 ignores the requested
/// mode. It uses the mode of the image's own `/tmp` instead.
fn tmpfs_options(bytes: i64, spec: &SandboxSpec) -> String {
    format!("rw,exec,nosuid,nodev,mode=1777,uid={},gid={},size={bytes}", spec.uid, spec.gid)
}

fn options(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn network_mode(network: &SandboxNetwork) -> Result<String, SandboxError> {
    match network {
        SandboxNetwork::None => Ok("none".into()),
        SandboxNetwork::Named(name) if name == "host" || name.contains(':') || name.is_empty() => {
            Err(rejected(&format!("network `{name}` does not isolate; name one that `docker network create` made")))
        }
        SandboxNetwork::Named(name) => Ok(name.clone()),
    }
}

/// Returns the mounts in mount order. The agent's part of the run directory covers the read-only
/// whole.
fn mounts(spec: &SandboxSpec) -> Vec<Mount> {
    use VolumeAccess::{ReadOnly, ReadWrite};
    let mut mounts = vec![
        bind(&spec.agent, sandbox_paths::AGENT_BINARY, ReadOnly),
        bind(spec.run.root(), "/greenroom/run", ReadOnly),
        bind(&spec.run.agent(), "/greenroom/run/agent", ReadWrite),
        bind(&spec.workspace, sandbox_paths::WORKSPACE, ReadWrite),
        bind(&spec.home, sandbox_paths::HOME, ReadWrite),
    ];
    let is_covered =
        |file: &UserFile| spec.volumes.iter().any(|volume| Path::new(file.inside).starts_with(&volume.inside));
    let user_files = user_files(spec).into_iter().filter(|file| !is_covered(file));
    mounts.extend(user_files.map(|file| bind(&file.host, file.inside, ReadOnly)));
    mounts
        .extend(spec.volumes.iter().map(|volume| bind(&volume.host, &volume.inside.to_string_lossy(), volume.access)));
    mounts
}

/// File with names of users, in place of the image's own.
pub(super) struct UserFile {
    /// Path on this host, in the session's run directory.
    pub(super) host: PathBuf,
    pub(super) inside: &'static str,
    pub(super) content: String,
}

/// Returns the files that give the sandbox's user a name and a home. Programs ask for both.
///
/// Other accounts of the image lose their names: no process inside can become another user.
pub(super) fn user_files(spec: &SandboxSpec) -> [UserFile; 2] {
    let file = |name, inside, content| UserFile { host: spec.run.root().join(name), inside, content };
    [
        // The image may have no other shell.
        file("passwd", "/etc/passwd", passwd_file(spec.uid, spec.gid, "/bin/sh")),
        file("group", "/etc/group", group_file(spec.gid)),
    ]
}

/// Returns a bind mount, which fails if the host directory is missing. The older "binds" create a
/// missing directory as root.
fn bind(host: &Path, inside: &str, access: VolumeAccess) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(host.to_string_lossy().into_owned()),
        target: Some(inside.to_owned()),
        read_only: Some(access == VolumeAccess::ReadOnly),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

fn rejected(detail: &str) -> SandboxError {
    SandboxError::Failed { what: "be created", detail: detail.to_owned() }
}

fn fingerprint(body: &ContainerCreateBody) -> String {
    let json = serde_json::to_value(body).expect("a body holds only strings, numbers and lists");
    format!("{:08x}", crc32fast::hash(sorted(json).to_string().as_bytes()))
}

/// Sorts the keys of every object. A `HashMap` has no stable order.
fn sorted(json: Value) -> Value {
    match json {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => json,
    }
}

#[cfg(test)]
mod tests;
