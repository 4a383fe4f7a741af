//! Process driver: each sandbox is a jail of Linux namespaces and needs no engine.
//!
//! A jailer process ([`greenroom_jailer`]) builds the jail and holds it. The jailer outlives the
//! server, which builds no isolation itself.
//!
//! ```text
//! server ──request──▶ jailer        `sandbox-jailer SESSION`, in its own session; writes the log
//!                       └ init      first process inside: no privileges left, reaps orphans
//!                           └ greenroom-agent
//! ```
//!
//! Each process ends with the one above it. None ends with the server. The state that a server
//! needs of a sandbox is in its state directory ([`sandbox_dir`]). If that directory cannot be
//! read, the sandbox's state is unknown: no sandbox is started, ended or reported dead.
//!
//! See `docs/internals/sandbox.md` and `docs/adr/006-jailer-binary.md`.

use std::{sync::Arc, thread::available_parallelism, time::Duration};

use async_trait::async_trait;
use greenroom_jailer::{
    cgroup::{Cgroup, NodeCgroups},
    processes,
};
use greenroom_protocol::observation::SandboxPhase;
use tokio::sync::{OnceCell, Semaphore};
use tracing::warn;

use super::{
    FoundSandbox, KeyedMutex, ProgressCallback, SandboxDriver, SandboxError, SandboxExit, SandboxNode, SandboxPresence,
    SandboxSpec, SandboxStats, drivers::DriverEntry,
};
use crate::{
    config::{DriverChoice, SandboxConfig},
    store::SessionId,
};

mod blocking;
mod jail_request;
mod jailer;
mod probe;
mod running_jail;
mod sandbox_dir;
mod signal_pause;
#[cfg(test)]
mod tests;

use blocking::{blocking, failed, inconclusive, inspect_blocking};
use sandbox_dir::SandboxDir;

/// Name of the driver, as in the config.
const NAME: &str = "process";

/// Entry of the driver in the registry.
pub(super) static ENTRY: DriverEntry = DriverEntry {
    choice: DriverChoice::Process,
    name: NAME,
    title: "the process driver",
    requirement: "process sandbox",
    has_engine: false,
    open: |config, node| {
        Box::pin(async move {
            let driver: Arc<dyn SandboxDriver> = Arc::new(ProcessDriver::open(config, node)?);
            Ok(driver)
        })
    },
};

/// Time that the kernel has to end or pause a jail.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of repeated inspections of a sandbox whose state cannot be read.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of attempts to read an exit record.
const EXIT_READ_ATTEMPTS: u32 = 10;

/// Sandbox driver without an engine. See the [module](self).
#[derive(Debug)]
pub(super) struct ProcessDriver {
    config: Arc<SandboxConfig>,
    node: SandboxNode,
    cgroups: Option<NodeCgroups>,
    /// Serialises start, stop and removal of one session.
    lifecycle_locks: KeyedMutex,
    /// Serialises pauses and unpauses of one session.
    pause_locks: KeyedMutex,
    /// Permits to build a jail. Bound: one per core, plus one. When full: starts wait.
    ///
    /// Building is work for a core, with a short wait for the kernel. If more jails are built at a
    /// time, all are ready later, and other requests wait for them.
    builders: Semaphore,
    probed: OnceCell<()>,
}

impl ProcessDriver {
    /// Creates the state directory and installs the jailer. Starts no process.
    ///
    /// # Errors
    /// Fails if one of the two directories is not writable.
    fn open(config: Arc<SandboxConfig>, node: SandboxNode) -> Result<ProcessDriver, SandboxError> {
        std::fs::create_dir_all(&node.sandboxes).map_err(failed("create its state directory"))?;
        probe::remove_leftovers(&node.sandboxes);
        jailer::install(&node.programs).map_err(failed("install the jailer"))?;
        let cgroups = NodeCgroups::find(&node.name);
        let cores = available_parallelism().map_or(1, |n| n.get());
        Ok(ProcessDriver {
            config,
            node,
            cgroups,
            lifecycle_locks: KeyedMutex::default(),
            pause_locks: KeyedMutex::default(),
            builders: Semaphore::new(cores + 1),
            probed: OnceCell::new(),
        })
    }

    fn sandbox_dir(&self, session: SessionId) -> SandboxDir {
        SandboxDir::of(&self.node.sandboxes, session)
    }
}

#[async_trait]
impl SandboxDriver for ProcessDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn isolation(&self) -> String {
        probe::isolation(self.cgroups.as_ref(), self.config.unconfined)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.probed.get_or_try_init(|| probe::probe_jail(self)).await.copied()
    }

    async fn start(&self, spec: &SandboxSpec, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        let _lock = self.lifecycle_locks.of(spec.session).lock_owned().await;
        if self.sandbox_dir(spec.session).running().map_err(inconclusive)?.is_some() {
            return Ok(());
        }
        progress(SandboxPhase::Starting, "");
        let started = self.launch(spec).await;
        match &started {
            // Another server's jailer may hold the sandbox, which may run by now.
            Ok(()) | Err(SandboxError::Inconclusive { .. }) => {}
            Err(_) => {
                // The error of the start is reported. A failed cleanup is not.
                let _ = self.end_jail(spec.session).await;
            }
        }
        started
    }

    async fn pause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.with_pause_lock(session, "pause", |dir, running| match &running.cgroup {
            Some(cgroup) => cgroup.freeze(KERNEL_TIMEOUT),
            None => signal_pause::pause(dir, running.init, KERNEL_TIMEOUT),
        })
        .await
    }

    async fn unpause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.with_pause_lock(session, "unpause", |dir, running| match &running.cgroup {
            Some(cgroup) => cgroup.unfreeze(),
            None => signal_pause::unpause(dir, running.init),
        })
        .await
    }

    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        let _lock = self.lifecycle_locks.of(session).lock_owned().await;
        self.end_jail(session).await
    }

    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        let _lock = self.lifecycle_locks.of(session).lock_owned().await;
        self.end_jail(session).await?;
        let dir = self.sandbox_dir(session);
        blocking("remove its state directory", move || dir.remove()).await
    }

    async fn presence(&self, session: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        let dir = self.sandbox_dir(session);
        inspect_blocking(move || dir.last_run()?.map(|_| running_jail::presence(&dir)).transpose()).await
    }

    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError> {
        let dir = self.sandbox_dir(session);
        let mut is_logged = false;
        while let Err(e) = running_jail::wait_for_jailer(&dir).await {
            if !std::mem::replace(&mut is_logged, true) {
                warn!(%session, "the state of the sandbox cannot be read; trying again: {e}");
            }
            tokio::time::sleep(RECHECK_INTERVAL).await;
        }
        // The sandbox has ended. The disk may return the exit record later. After the last attempt,
        // the call returns all the same, with the read error.
        for _ in 0..EXIT_READ_ATTEMPTS {
            match dir.exit_record() {
                Ok(exit) => return Ok(exit.into()),
                Err(_) => tokio::time::sleep(RECHECK_INTERVAL).await,
            }
        }
        dir.exit_record().map(SandboxExit::from).map_err(inconclusive)
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let state = self.node.sandboxes.clone();
        inspect_blocking(move || {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(&state)? {
                let Some(session) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                match running_jail::presence(&SandboxDir::of(&state, session)) {
                    Ok(presence) => found.push(FoundSandbox { session, driver: NAME, presence }),
                    // The caller does not treat a missing entry as dead. The other sandboxes are
                    // listed.
                    Err(e) => warn!(%session, "the state of the sandbox cannot be read: {e}"),
                }
            }
            Ok(found)
        })
        .await
    }

    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError> {
        let dir = self.sandbox_dir(session);
        if !dir.exists().map_err(inconclusive)? {
            return Err(SandboxError::NotFound { session });
        }
        blocking("read its log", move || dir.log(bytes)).await
    }

    async fn stats(&self, session: SessionId) -> Result<SandboxStats, SandboxError> {
        self.with_running(session, "measure its usage", |_, running| {
            let usage = running.cgroup.as_ref().and_then(Cgroup::usage);
            let processes::ResourceUsage { memory_bytes, cpu_us, processes } =
                usage.map_or_else(|| processes::usage(running.init), Ok)?;
            Ok(SandboxStats { memory_bytes, cpu_us, processes })
        })
        .await
    }
}
