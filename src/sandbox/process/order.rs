//! What the server tells a keeper, on its stdin, and what the keeper answers, on its stdout. One JSON document each way.
//!
//! Not by arguments: those can be read by every user of the host, and by the sandbox itself through its first process.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{cgroup::Cgroup, place::Place};
use crate::sandbox::{Access, Network, SandboxError, Spec, Volume, inside};

/// Everything that a keeper needs to build one jail and to keep it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) session: String,
    /// The session's state directory on this host.
    pub(super) place: PathBuf,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) memory_bytes: u64,
    pub(super) pids: u64,
    pub(super) sources: Sources,
    pub(super) volumes: Vec<Bind>,
    /// Where the sandbox is counted, limited and frozen, if this host lets us have such a place.
    pub(super) cgroup: Option<Cgroup>,
    /// Whether the walls are built by an ordinary user, in a user namespace. Otherwise root builds them, and the first
    /// process becomes the user behind them.
    pub(super) user_namespace: bool,
}

/// The directories and files of this host that become the sandbox's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Sources {
    /// An empty directory, on which the sandbox's root is put together.
    pub(super) root: PathBuf,
    pub(super) agent: PathBuf,
    pub(super) workspace: PathBuf,
    pub(super) home: PathBuf,
    pub(super) run: PathBuf,
    pub(super) run_agent: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Bind {
    pub(super) host: PathBuf,
    pub(super) inside: PathBuf,
    pub(super) writable: bool,
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The agent runs, and the keeper stays with it.
    Started,
    /// Another keeper holds this session already.
    Held,
    /// The kernel refused a wall.
    Unconfinable(String),
    Failed(String),
}

impl Order {
    /// What a jail cannot do is refused here, before anything is made.
    pub(super) fn of(spec: &Spec, place: &Place, cgroup: Option<Cgroup>) -> Result<Order, SandboxError> {
        // Only root can become somebody else; anybody else's sandboxes run as their own user.
        let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let (uid, gid) = match own_uid.is_root() {
            true => (spec.uid, spec.gid),
            false => (own_uid.as_raw(), own_gid.as_raw()),
        };
        if uid == 0 {
            return Err(refused("an agent does not run as root; set `sandbox.uid` to another user".into()));
        }
        if let Network::Named(name) = &spec.network {
            let way_out = "set `sandbox.network` to `none`, or use Docker";
            return Err(refused(format!("the process driver has no network `{name}`; {way_out}")));
        }
        Ok(Order {
            session: spec.session.to_string(),
            place: place.dir().to_owned(),
            uid,
            gid,
            memory_bytes: spec.limits.memory_bytes,
            pids: spec.limits.pids,
            sources: Sources {
                root: place.dir().join("root"),
                agent: spec.agent.clone(),
                workspace: spec.workspace.clone(),
                home: spec.home.clone(),
                run: spec.run.root().to_owned(),
                run_agent: spec.run.agent(),
            },
            volumes: spec.volumes.iter().map(Bind::of).collect::<Result<_, _>>()?,
            cgroup,
            user_namespace: true,
        })
    }
}

/// What the jail itself puts together, and what lies below.
const TAKEN: &[&str] = &[
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
    inside::WORKSPACE,
    inside::HOME,
];

impl Bind {
    fn of(volume: &Volume) -> Result<Bind, SandboxError> {
        let Volume { host, inside, access } = volume;
        let plain = inside.is_absolute() && !inside.components().any(|part| part == Component::ParentDir);
        // A mount at `/home`, say, would cover what is below it.
        let taken = TAKEN.iter().map(Path::new).any(|taken| inside.starts_with(taken) || taken.starts_with(inside));
        if !plain || taken {
            let at = inside.display();
            return Err(refused(format!(
                "no volume can be mounted at `{at}`; name a directory of its own, such as `/data`"
            )));
        }
        Ok(Bind { host: host.clone(), inside: inside.clone(), writable: *access == Access::ReadWrite })
    }
}

fn refused(detail: String) -> SandboxError {
    SandboxError::Failed { what: "start", detail }
}
