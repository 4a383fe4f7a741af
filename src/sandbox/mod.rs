//! Isolation around an agent: the port [`SandboxDriver`], its drivers and their registry
//! ([`drivers`]).
//!
//! | driver | isolation | needs |
//! |---|---|---|
//! | `docker` | a container: namespaces, no capabilities, seccomp, cgroups | a running engine |
//! | `process` | namespaces with an empty root, Landlock, seccomp, rlimits | kernel permission |
//!
//! A driver starts, pauses and stops a sandbox and reports its exit. It does not read what an agent
//! reports. All drivers mount the same three things: the agent's binary, the [`RunDir`] and the
//! session's directories. All are directories of this host, so a session can change its driver from
//! one start to the next ([`driver_migration`]). A sandbox outlives the server that started it.
//!
//! See `docs/internals/sandbox.md`.

use std::{io, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use greenroom_protocol::observation::SandboxPhase;
pub use greenroom_protocol::sandbox_paths;

use crate::{
    config::{SandboxLimits, SandboxNetwork, SandboxVolume},
    store::SessionId,
};

#[cfg(test)]
mod contract;
mod docker;
pub mod driver_migration;
pub mod drivers;
mod engine_sockets;
mod homes;
mod keyed_mutex;
mod process;
pub mod remove_tree;
mod run_dir;
mod tree_owner;
mod volume_exposure;
mod volume_warnings;
mod workspace;

pub use driver_migration::{DriverMigration, SandboxLocations};
pub use drivers::SandboxNode;
pub use homes::{SandboxHome, SandboxHomes};
pub use keyed_mutex::KeyedMutex;
pub use run_dir::RunDir;
pub use tree_owner::change_owner;
pub use volume_exposure::{DataDirExposed, check_volumes_exclude};
pub use volume_warnings::{VolumeWarning, volume_warnings};
pub use workspace::{WorkspaceDirs, session_dir};

/// Specification of one sandbox.
///
/// Only `image` comes from a client. No request can name a mount, a privilege or a host network.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    pub session: SessionId,
    /// Docker image. The process driver runs the host's own `/usr` and ignores this field.
    pub image: String,
    pub run: RunDir,
    /// Path of the agent's binary on this host.
    pub agent: PathBuf,
    /// Host directory that is mounted at [`sandbox_paths::WORKSPACE`].
    pub workspace: PathBuf,
    /// Host directory that is mounted at [`sandbox_paths::HOME`].
    pub home: PathBuf,
    /// Volumes beside the workspace.
    pub volumes: Vec<SandboxVolume>,
    /// User id of the agent. Never root.
    pub uid: u32,
    /// Group id of the agent.
    pub gid: u32,
    pub limits: SandboxLimits,
    pub network: SandboxNetwork,
}

/// Exit of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxExit {
    /// Exit code, 128 + n for signal n. `None` if no record of the exit is left.
    pub code: Option<i64>,
    /// True if the kernel killed the agent because of the memory limit.
    pub out_of_memory: bool,
    /// Last lines of stderr, at most 4 KiB.
    pub stderr_tail: String,
}

/// Driver and user of a sandbox, and the isolation that the driver provides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxIsolation {
    /// [Name](SandboxDriver::name) of the driver.
    pub driver: &'static str,
    /// User id of the agent on this host.
    pub uid: u32,
    /// [Isolation](SandboxDriver::isolation) of the driver, in words for the user.
    pub description: String,
    /// Warnings about the directories that are mounted into the sandbox.
    pub warnings: Vec<VolumeWarning>,
}

/// Sandbox that a driver found on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSandbox {
    pub session: SessionId,
    /// [Name](SandboxDriver::name) of the driver that holds the sandbox.
    pub driver: &'static str,
    pub presence: SandboxPresence,
}

/// State of an existing sandbox, as its driver observes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SandboxPresence {
    Running,
    #[strum(serialize = "frozen")]
    Paused,
    /// The process has ended; the file system still exists.
    Exited,
}

impl SandboxPresence {
    pub const ALL: &[SandboxPresence] = <SandboxPresence as strum::VariantArray>::VARIANTS;

    /// Name in the API and in the metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Current resource usage of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SandboxStats {
    pub memory_bytes: u64,
    /// CPU time since the start, microseconds.
    pub cpu_us: u64,
    /// Number of processes.
    pub processes: u64,
}

/// Failure of a sandbox operation. The text names the way out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SandboxError {
    #[error("the Docker engine at `{address}` does not answer: {detail}; start it, or run with `--sandbox process`")]
    NoEngine { address: String, detail: String },
    #[error(
        "image `{image}` is not on this machine and cannot be pulled: {detail}; build or load it, or set `sandbox.image`"
    )]
    NoImage { image: String, detail: String },
    #[error("no permission to {what}: {detail}")]
    Forbidden { what: String, detail: String },
    #[error(
        "this kernel cannot confine a process: {detail}; use Docker, or accept the risk with `sandbox.unconfined = true`"
    )]
    Unconfinable { detail: String },
    #[error("the sandbox of session `{session}` does not exist or does not run")]
    NotFound { session: SessionId },
    #[error(
        "the sandbox of session `{session}` was last at `{location}` and may still run there: {reason}; make that driver \
         answer or, if the sandbox is gone for good, remove `{location_file}` and restart the server"
    )]
    PreviousUnreachable { session: SessionId, location: String, reason: String, location_file: PathBuf },
    #[error("the sandbox driver did not {what} within {seconds} s")]
    Deadline { what: &'static str, seconds: u64 },
    /// The driver could not inspect the sandbox, or the engine's answer does not fit the request.
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
    /// Returns true if the error leaves the state of the sandbox unknown. The call may be repeated.
    ///
    /// The driver did not answer, could not inspect, or got an answer that does not fit the
    /// request. Permission errors count too: a starting engine first opens its socket without
    /// permissions for others.
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

/// Callback for each step of a start, with a detail for the user (`12 of 48 MB`). May be called
/// often.
pub type ProgressCallback<'a> = &'a (dyn Fn(SandboxPhase, &str) + Send + Sync);

/// Port of a sandbox driver.
///
/// Every call may be repeated. Every call except [`fetch`](SandboxDriver::fetch) and
/// [`wait`](SandboxDriver::wait) ends within a short deadline of the driver, whatever the engine
/// does.
#[async_trait]
pub trait SandboxDriver: Send + Sync + 'static {
    /// Returns the name of the driver, as in the config: `docker`, `process`.
    fn name(&self) -> &'static str;

    /// Returns the location of the driver's sandboxes, as a file name.
    ///
    /// The driver's name, alone or with a suffix after `-`.
    ///
    /// Sandboxes at one location are not visible from another, even through the same kind of
    /// driver.
    fn location(&self) -> String {
        self.name().to_owned()
    }

    /// Describes in a sentence or two, for the user, what the isolation covers and what it does
    /// not.
    fn isolation(&self) -> String;

    /// Checks that sandboxes can be started now.
    async fn check(&self) -> Result<(), SandboxError>;

    /// Starts the sandbox. Returns when its first process runs, before the agent answers.
    ///
    /// - A sandbox that runs is left as it is.
    /// - An exited sandbox is started again on its file system.
    /// - A sandbox that does not exist is created.
    ///
    /// Fails with [`SandboxError::NoImage`] if the image must be [fetched](SandboxDriver::fetch)
    /// first.
    async fn start(&self, spec: &SandboxSpec, progress: ProgressCallback<'_>) -> Result<(), SandboxError>;

    /// Returns true if a start needs no [fetch](SandboxDriver::fetch) of the image first.
    async fn has_image(&self, _image: &str) -> Result<bool, SandboxError> {
        Ok(true)
    }

    /// Fetches an image to this host. May take long.
    ///
    /// Dropping the future cancels the fetch. A later fetch continues from the parts that arrived.
    /// A driver without images does nothing.
    async fn fetch(&self, _image: &str, _progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        Ok(())
    }

    /// Pauses every process of the sandbox. A paused sandbox stays paused.
    ///
    /// If the call fails, no process stays paused, even if the engine executes the call too late.
    /// If the driver cannot undo the pause, an [`unpause`](SandboxDriver::unpause) does.
    async fn pause(&self, session: SessionId) -> Result<(), SandboxError>;

    /// Lets every process continue. A sandbox that is not paused is no error. May be repeated after
    /// a failure.
    async fn unpause(&self, session: SessionId) -> Result<(), SandboxError>;

    /// Ends every process and frees the memory. The file system stays. A sandbox that does not run
    /// is no error.
    async fn stop(&self, session: SessionId) -> Result<(), SandboxError>;

    /// Removes all traces of the sandbox except workspace, home and run directory. A missing
    /// sandbox is no error.
    async fn remove(&self, session: SessionId) -> Result<(), SandboxError>;

    /// Returns the state of the sandbox, also if another server started it.
    ///
    /// `None` if there is no sandbox, or if it has never run. If the state cannot be determined,
    /// the error is [inconclusive](SandboxError::is_inconclusive): the sandbox may still work.
    async fn presence(&self, session: SessionId) -> Result<Option<SandboxPresence>, SandboxError>;

    /// Waits without a deadline until the sandbox does not run, and returns its exit.
    ///
    /// An exit that already happened is returned with the same details, until the next start or
    /// removal.
    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError>;

    /// Lists every sandbox of this node on this host, including those that dead servers started.
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError>;

    /// Returns the newest `bytes` of stdout and stderr.
    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError>;

    /// Returns the current resource usage of a running sandbox.
    async fn stats(&self, session: SessionId) -> Result<SandboxStats, SandboxError>;
}
