//! Where an agent runs: walls around a process, behind one trait.
//!
//! | driver | the wall | needs |
//! |---|---|---|
//! | [`docker`] | a container: namespaces, no capabilities, seccomp, cgroup limits | an engine that answers |
//! | [`process`] | namespaces with an empty root, Landlock, seccomp, rlimits | a kernel that lets us |
//!
//! A driver starts, freezes and ends a sandbox and tells when it died; it does not know what an agent says. Both put the
//! same three things inside: the agent's binary, the [`RunDir`], and the session's workspace, all of them directories of
//! this host, so a session can change its driver from one start to the next ([`succession`]). A sandbox outlives the server
//! that started it.

use std::{io, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use greenroom_protocol::observation::SandboxPhase;
pub use greenroom_protocol::sandbox_paths;

use crate::store::SessionId;

#[cfg(test)]
mod contract;
pub mod docker;
pub mod driver_migration;
mod engine_sockets;
mod keyed_mutex;
#[cfg(target_os = "linux")]
pub mod process;
pub mod remove_tree;
mod run_dir;
mod workspace;

pub use docker::{DockerDriver, DockerOptions};
pub use driver_migration::{DriverMigration, SandboxLocations};
pub use keyed_mutex::KeyedMutex;
pub use run_dir::RunDir;
pub use workspace::{ExistingFilePolicy, InnerPath, InvalidInnerPath, UploadOutcome, WorkspaceDirs, session_dir};

/// All that a driver is told about one sandbox. Nothing in it comes from a client but `image`, so no request can name a
/// mount, a privilege or a host network.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    pub session: SessionId,
    /// The Docker image; the process driver runs the host's own `/usr` and ignores it.
    pub image: String,
    pub run: RunDir,
    /// The agent's binary on this host.
    pub agent: PathBuf,
    /// Becomes [`inside::WORKSPACE`].
    pub workspace: PathBuf,
    /// Becomes [`inside::HOME`].
    pub home: PathBuf,
    /// What the operator mounts into every sandbox (`SANDBOX_VOLUMES`).
    pub volumes: Vec<SandboxVolume>,
    /// Who the sandbox runs as: never root.
    pub uid: u32,
    pub gid: u32,
    pub limits: SandboxLimits,
    pub network: SandboxNetwork,
}

/// A directory of this host inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxVolume {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub access: VolumeAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeAccess {
    ReadOnly,
    ReadWrite,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SandboxLimits {
    pub memory_bytes: u64,
    /// In CPUs: 1.5 is one and a half.
    pub cpus: f64,
    pub pids: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxNetwork {
    /// Loopback and nothing else.
    None,
    /// An engine's network of that name. The process driver refuses it.
    Named(String),
}

/// How a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxExit {
    /// The exit code, 128 + n for signal n; `None` where nobody can tell any more.
    pub code: Option<i64>,
    pub out_of_memory: bool,
    /// The last lines of what it wrote to stderr, at most 4 KiB.
    pub stderr_tail: String,
}

/// Who keeps a sandbox in, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxIsolation {
    /// The driver's [name](Sandbox::name).
    pub driver: &'static str,
    /// Its [isolation](Sandbox::isolation).
    pub description: String,
}

/// What a driver finds of its own on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSandbox {
    pub session: SessionId,
    /// The [name](Sandbox::name) of the driver that has it.
    pub driver: &'static str,
    pub presence: SandboxPresence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxPresence {
    Running,
    Paused,
    /// Not running, its file system still there.
    Exited,
}

/// What a sandbox takes right now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SandboxStats {
    pub memory_bytes: u64,
    /// CPU time so far, microseconds.
    pub cpu_us: u64,
    pub processes: u64,
}

/// Why a sandbox did not do what it should. The text names the way out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SandboxError {
    #[error("the Docker engine does not answer at {address}: {detail}; start it, or run with `--sandbox process`")]
    NoEngine { address: String, detail: String },
    #[error(
        "there is no image `{image}` here and it cannot be pulled: {detail}; build or load it, or set `sandbox.image`"
    )]
    NoImage { image: String, detail: String },
    #[error("no permission to {what}: {detail}")]
    Forbidden { what: String, detail: String },
    #[error(
        "this kernel cannot confine a process: {detail}; use Docker, or accept the risk with `sandbox.unconfined = true`"
    )]
    Unconfinable { detail: String },
    #[error("the sandbox of session `{session}` is not there")]
    NotFound { session: SessionId },
    #[error(
        "the session `{session}` was last in a sandbox at `{place}`, and whether that still runs cannot be told: {why}; make it \
         answer or, where it is gone for good, remove `{trace}` and start this server again"
    )]
    PreviousUnreachable { session: SessionId, place: String, why: String, trace: PathBuf },
    #[error("the sandbox driver did not {what} within {seconds} s")]
    Deadline { what: &'static str, seconds: u64 },
    /// It could not look, or its engine answered with something that is no answer to what it was asked.
    #[error("the sandbox driver did not {what}: {detail}")]
    Inconclusive { what: &'static str, detail: String },
    #[error("the sandbox could not {what}: {detail}")]
    Failed { what: &'static str, detail: String },
    #[error("the sandbox could not {what}: {source}")]
    Io {
        what: &'static str,
        #[source]
        source: Arc<io::Error>,
    },
}

impl SandboxError {
    /// Whether the driver did not come to answer, or could not, or answered something else, so that nothing is known. It may
    /// be asked again. (An engine on its way up opens its socket to nobody at first.)
    pub fn is_inconclusive(&self) -> bool {
        matches!(
            self,
            SandboxError::NoEngine { .. }
                | SandboxError::Forbidden { .. }
                | SandboxError::PreviousUnreachable { .. }
                | SandboxError::Deadline { .. }
                | SandboxError::Inconclusive { .. }
        )
    }
}

/// Told of each step on the way to a running sandbox, with a detail for a person (`12 of 48 MB`), possibly often.
pub type ProgressCallback<'a> = &'a (dyn Fn(SandboxPhase, &str) + Send + Sync);

/// A kind of wall. Every call but a fetch ends within a short deadline of the driver's own, whatever the engine does, and may be repeated.
#[async_trait]
pub trait SandboxDriver: Send + Sync + 'static {
    /// `docker` or `process`, as in the config.
    fn name(&self) -> &'static str;

    /// Where its sandboxes are, as a file name: what is in one place cannot be seen from another, be it with the same driver.
    fn location(&self) -> String {
        self.name().to_owned()
    }

    /// What the wall holds and what it does not, in a sentence or two for the person at the screen.
    fn isolation(&self) -> String;

    /// Whether sandboxes can be started now.
    async fn check(&self) -> Result<(), SandboxError>;

    /// Makes the sandbox run: leaves one that runs alone, starts one that has exited again on its file system, makes one
    /// that is not there. Returns when its first process runs, not when the agent answers. [`SandboxError::NoImage`] where its
    /// image is to be [fetched](Sandbox::fetch) first.
    async fn start(&self, spec: &SandboxSpec, progress: ProgressCallback<'_>) -> Result<(), SandboxError>;

    /// Brings an image here, however long that takes. Whoever drops this breaks it off, and nothing of it is left but what a
    /// later one goes on with. A driver without images never asks for one.
    async fn fetch(&self, _image: &str, _progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        Ok(())
    }

    /// Stops every process in it where it stands; one that is frozen stays so. Where it fails, none stays stopped, also not
    /// by an engine that carries it out too late, unless the driver cannot undo it: then a thaw does.
    async fn pause(&self, session: SessionId) -> Result<(), SandboxError>;

    /// Lets every process go on; one that is not frozen is no error. Where it fails, it may be tried again.
    async fn unpause(&self, session: SessionId) -> Result<(), SandboxError>;

    /// Ends every process and frees the memory; the file system stays. One that is not running is no error.
    async fn stop(&self, session: SessionId) -> Result<(), SandboxError>;

    /// Leaves no trace of it but the workspace, the home and the run directory. One that is not there is no error.
    async fn remove(&self, session: SessionId) -> Result<(), SandboxError>;

    /// How it stands, also where another server started it. `None` where none is there, or one that has never run. An answer that
    /// says neither is an error that [tells nothing](SandboxError::tells_nothing): what is there may work on.
    async fn presence(&self, session: SessionId) -> Result<Option<SandboxPresence>, SandboxError>;

    /// Waits until it does not run any more. No deadline: this is how a death is noticed. Of one that has ended already it is
    /// told as of one that was watched, until it is started again or removed.
    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError>;

    /// Every sandbox on this host that belongs to this node, also of servers that died.
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError>;

    /// What it wrote to stdout and stderr, the newest `bytes` of it.
    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError>;

    async fn stats(&self, session: SessionId) -> Result<SandboxStats, SandboxError>;
}
