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

use std::{
    fs::Permissions,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    thread::available_parallelism,
    time::Duration,
};

use async_trait::async_trait;
use greenroom_jailer::{
    cgroup::{Cgroup, NodeCgroups},
    processes,
    request::{JailReply, JailRequest},
    sandbox_dir::RunningSandbox,
};
use greenroom_protocol::observation::SandboxPhase;
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest, unix::AsyncFd},
    sync::{OnceCell, Semaphore},
    time::{Instant, timeout},
};
use tracing::warn;

use super::{
    FoundSandbox, KeyedMutex, ProgressCallback, SandboxDriver, SandboxError, SandboxExit, SandboxPresence, SandboxSpec,
    SandboxStats, engine_sockets,
};
use crate::store::SessionId;

mod jail_request;
mod probe;
mod sandbox_dir;
mod signal_pause;
#[cfg(test)]
mod tests;

use sandbox_dir::SandboxDir;

/// Program of the jailer. Statically linked, so a sandbox maps one small file and no library.
static JAILER: &[u8] = include_bytes!(env!("GREENROOM_JAILER_BIN"));
/// Name of the jailer's file and process.
const JAILER_NAME: &str = "sandbox-jailer";

/// Name of the driver, as in the config.
pub const NAME: &str = "process";

/// Deadline for a jailer to build a jail. Building takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that another server's jailer, which holds the session's lock, has to build its jail.
const BUILD_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that the agent has to end after SIGTERM. Then the jail is killed.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// Time that the kernel has to end or pause a jail.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of repeated inspections of a sandbox whose state cannot be read.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of attempts to read an exit record.
const EXIT_READ_ATTEMPTS: u32 = 10;

/// Settings of the process driver.
#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// Name of this node, unique on the host.
    pub node: String,
    /// Directory of this node that contains the sandboxes' state directories.
    pub state: PathBuf,
    /// Directory that the jailer's program is installed in and run from.
    pub programs: PathBuf,
    /// Allows root to build jails without a user namespace if the kernel denies one.
    ///
    /// All other namespaces are always required: the agent finds its directories only in a mount
    /// namespace.
    pub unconfined: bool,
    /// Socket of the configured engine. No sandbox may reach this socket or an engine's default
    /// socket.
    pub engine: Option<PathBuf>,
}

/// Sandbox driver without an engine. See the [module](self).
#[derive(Debug)]
pub struct ProcessDriver {
    options: ProcessOptions,
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

/// Server whose jailer holds a sandbox.
enum JailOwner {
    Ours,
    /// Another server. At most one of its jailers is alive.
    Another,
}

impl ProcessDriver {
    /// Creates the state directory and installs the jailer. Starts no process.
    ///
    /// # Errors
    /// Fails if one of the two directories is not writable.
    pub fn new(options: ProcessOptions) -> Result<ProcessDriver, SandboxError> {
        std::fs::create_dir_all(&options.state).map_err(failed("create its state directory"))?;
        probe::remove_leftovers(&options.state);
        install_jailer(&options.programs).map_err(failed("install the jailer"))?;
        let cgroups = NodeCgroups::find(&options.node);
        let cores = available_parallelism().map_or(1, |n| n.get());
        Ok(ProcessDriver {
            options,
            cgroups,
            lifecycle_locks: KeyedMutex::default(),
            pause_locks: KeyedMutex::default(),
            builders: Semaphore::new(cores + 1),
            probed: OnceCell::new(),
        })
    }

    fn sandbox_dir(&self, session: SessionId) -> SandboxDir {
        SandboxDir::of(&self.options.state, session)
    }

    async fn launch(&self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        let cgroup = self.cgroups.as_ref().map(|cgroups| cgroups.of(&spec.session.to_string()));
        engine_sockets::reject_engine_sockets(spec, self.options.engine.as_deref())?;
        let request = jail_request::build(spec, &self.sandbox_dir(spec.session), cgroup)?;
        match self.build_jail(request.clone(), spec).await {
            Err(SandboxError::Unconfinable { .. })
                if self.options.unconfined && rustix::process::geteuid().is_root() =>
            {
                self.build_jail(JailRequest { user_namespace: false, ..request }, spec).await
            }
            other => other,
        }
    }

    async fn build_jail(&self, request: JailRequest, spec: &SandboxSpec) -> Result<(), SandboxError> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            match self.request_jail(request.clone(), spec).await? {
                JailOwner::Ours => return Ok(()),
                JailOwner::Another if self.starts_running(spec.session).await? => return Ok(()),
                // The other jailer failed. For example, its server was killed during the build, and
                // the half-built directory has just been cleared.
                JailOwner::Another => {}
            }
        }
        Err(SandboxError::Deadline { what: "start", seconds: START_TIMEOUT.as_secs() })
    }

    async fn request_jail(&self, request: JailRequest, spec: &SandboxSpec) -> Result<JailOwner, SandboxError> {
        let builder = self.builders.acquire().await;
        let dir = self.sandbox_dir(spec.session);
        let request = blocking("create its state directory", move || {
            dir.make(request.uid, request.gid)?;
            request.cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.make(&request.limits, KERNEL_TIMEOUT))?;
            Ok(request)
        });
        let reply = timeout(START_TIMEOUT, self.run_jailer(&request.await?)).await;
        drop(builder);
        match reply {
            Err(_) => Err(SandboxError::Deadline { what: "start", seconds: START_TIMEOUT.as_secs() }),
            Ok(Err(e)) => Err(failed("start the jailer")(e)),
            Ok(Ok(JailReply::Started)) => Ok(JailOwner::Ours),
            Ok(Ok(JailReply::AlreadyLocked)) => Ok(JailOwner::Another),
            Ok(Ok(JailReply::Unconfinable(detail))) => {
                Err(SandboxError::Unconfinable { detail: probe::explain(&detail) })
            }
            Ok(Ok(JailReply::Failed(detail))) => Err(SandboxError::Failed { what: "start", detail }),
        }
    }

    /// Runs a jailer and returns its reply.
    ///
    /// The jailer detaches from the process that is started here, so no child remains to be
    /// awaited.
    async fn run_jailer(&self, request: &JailRequest) -> io::Result<JailReply> {
        let program = self.options.programs.join(JAILER_NAME);
        let mut command = tokio::process::Command::new(&program);
        command.arg0(JAILER_NAME).arg(&request.session).env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut jailer = loop {
            match command.spawn() {
                // Another thread may just have forked a child. Until that child executes its
                // program, it holds the jailer's file open for writing.
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                    tokio::time::sleep(Duration::from_millis(1)).await
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(noexec_error(&program, e)),
                spawned => break spawned?,
            }
        };
        if let Some(mut stdin) = jailer.stdin.take() {
            stdin.write_all(&serde_json::to_vec(request)?).await?;
        }
        let mut reply = Vec::new();
        if let Some(mut stdout) = jailer.stdout.take() {
            stdout.read_to_end(&mut reply).await?;
        }
        let status = jailer.wait().await?;
        let no_reply = || io::Error::other(format!("`{}` did not reply ({status})", program.display()));
        serde_json::from_slice(&reply).map_err(|_| no_reply())
    }

    /// Returns true if the sandbox runs within [`BUILD_TIMEOUT`].
    async fn starts_running(&self, session: SessionId) -> Result<bool, SandboxError> {
        let dir = self.sandbox_dir(session);
        let runs = timeout(BUILD_TIMEOUT, async {
            while dir.running().map_err(inconclusive)?.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, SandboxError>(true)
        });
        runs.await.unwrap_or(Ok(false))
    }

    /// Calls `work` with a running sandbox, off the runtime's threads.
    ///
    /// # Errors
    /// Fails with [`SandboxError::NotFound`] if the sandbox does not run.
    async fn with_running<T: Send + 'static>(
        &self,
        session: SessionId,
        what: &'static str,
        work: impl FnOnce(&SandboxDir, &RunningSandbox) -> io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let dir = self.sandbox_dir(session);
        let inspected = inspect_blocking(move || Ok(dir.running()?.map(|running| (dir, running))));
        let (dir, running) = inspected.await?.ok_or(SandboxError::NotFound { session })?;
        blocking(what, move || work(&dir, &running)).await
    }

    /// Calls `work` with a running sandbox, after earlier pauses and unpauses of the session.
    async fn with_pause_lock(
        &self,
        session: SessionId,
        what: &'static str,
        work: impl FnOnce(&SandboxDir, &RunningSandbox) -> io::Result<()> + Send + 'static,
    ) -> Result<(), SandboxError> {
        let lock = self.pause_locks.of(session).lock_owned().await;
        // The lock moves into the work. The work completes even if the caller gives up.
        let work = move |dir: &SandboxDir, running: &RunningSandbox| {
            let _lock = lock;
            work(dir, running)
        };
        self.with_running(session, what, work).await
    }

    /// Ends the jail and removes its control group. The agent gets SIGTERM first, unless it is
    /// paused.
    ///
    /// If the state cannot be read, nothing is changed.
    async fn end_jail(&self, session: SessionId) -> Result<(), SandboxError> {
        let dir = self.sandbox_dir(session);
        if let Some((running, jailer)) = dir.running_jailer().map_err(inconclusive)? {
            if !is_paused(&dir, &running).map_err(inconclusive)? {
                running.init.signal(Signal::TERM).map_err(failed("stop"))?;
                let _ = timeout(STOP_GRACE, wait_for_exit(&jailer)).await;
            }
            running.init.signal(Signal::KILL).map_err(failed("stop"))?;
            // In version 1 of control groups, a frozen process is killed only after it is unfrozen.
            let _ = running.cgroup.as_ref().map(Cgroup::unfreeze);
            let Ok(exited) = timeout(KERNEL_TIMEOUT, wait_for_exit(&jailer)).await else {
                running.jailer.signal(Signal::KILL).map_err(failed("stop"))?;
                return Err(SandboxError::Deadline { what: "stop", seconds: KERNEL_TIMEOUT.as_secs() });
            };
            exited.map_err(failed("confirm its exit"))?;
        }
        let cgroup = dir.last_run().map_err(inconclusive)?.and_then(|running| running.cgroup);
        let cgroup = cgroup.or_else(|| self.cgroups.as_ref().map(|cgroups| cgroups.of(&session.to_string())));
        blocking("remove its control group", move || cgroup.map_or(Ok(()), |cgroup| cgroup.remove(KERNEL_TIMEOUT)))
            .await
    }
}

#[async_trait]
impl SandboxDriver for ProcessDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn isolation(&self) -> String {
        probe::isolation(self.cgroups.as_ref(), self.options.unconfined)
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
        inspect_blocking(move || dir.last_run()?.map(|_| presence(&dir)).transpose()).await
    }

    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError> {
        let dir = self.sandbox_dir(session);
        let mut is_logged = false;
        while let Err(e) = wait_for_jailer(&dir).await {
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
        let state = self.options.state.clone();
        inspect_blocking(move || {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(&state)? {
                let Some(session) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                match presence(&SandboxDir::of(&state, session)) {
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

/// Installs the jailer's program. Jailers that run keep their own file if another version is
/// installed.
fn install_jailer(programs: &Path) -> io::Result<()> {
    let path = programs.join(JAILER_NAME);
    if std::fs::read(&path).is_ok_and(|installed| installed == JAILER) {
        return Ok(());
    }
    let unfinished = programs.join(format!("{JAILER_NAME}.{}.new", std::process::id()));
    std::fs::write(&unfinished, JAILER)?;
    std::fs::set_permissions(&unfinished, Permissions::from_mode(0o755))?;
    std::fs::rename(unfinished, path)
}

fn noexec_error(path: &Path, e: io::Error) -> io::Error {
    let detail = format!("`{}`: {e}; programs cannot run on a `noexec` mount; use another `--data`", path.display());
    io::Error::new(e.kind(), detail)
}

fn presence(dir: &SandboxDir) -> io::Result<SandboxPresence> {
    Ok(match dir.running()? {
        None => SandboxPresence::Exited,
        Some(running) if is_paused(dir, &running)? => SandboxPresence::Paused,
        Some(_) => SandboxPresence::Running,
    })
}

fn is_paused(dir: &SandboxDir, running: &RunningSandbox) -> io::Result<bool> {
    match &running.cgroup {
        Some(cgroup) => cgroup.is_frozen(),
        None => Ok(dir.pause_record()?.is_some()),
    }
}

/// Waits until no jailer holds the sandbox.
async fn wait_for_jailer(dir: &SandboxDir) -> io::Result<()> {
    // Only the descriptor is kept. One of these futures exists for each live session.
    let jailer = dir.running_jailer()?.map(|(_, jailer)| jailer);
    match jailer {
        Some(jailer) => wait_for_exit(&jailer).await,
        None => Ok(()),
    }
}

/// Returns when the process has ended.
async fn wait_for_exit(process: &OwnedFd) -> io::Result<()> {
    // SAFETY: the borrow of the descriptor outlives the registration.
    let process = unsafe { AsyncFd::register_with_interest(process.as_fd(), Interest::READABLE) }?;
    process.readable().await.map(drop)
}

/// Returns a conversion of an I/O error into the error of operation `what`.
fn failed(what: &'static str) -> impl Fn(io::Error) -> SandboxError {
    move |e| match e.kind() {
        io::ErrorKind::PermissionDenied => SandboxError::Forbidden { what: what.into(), detail: e.to_string() },
        io::ErrorKind::TimedOut => SandboxError::Deadline { what, seconds: KERNEL_TIMEOUT.as_secs() },
        _ => SandboxError::Io { what, source: Arc::new(e) },
    }
}

/// Converts the error of a failed inspection.
///
/// The sandbox's state is unknown, and it may still work. A cause is a lack of descriptors or
/// memory.
fn inconclusive(e: io::Error) -> SandboxError {
    SandboxError::Inconclusive { what: "report its state", detail: e.to_string() }
}

/// Runs an inspection off the runtime's threads. A failure is inconclusive.
async fn inspect_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(inconclusive)
}

/// Runs work on files and `/proc` off the runtime's threads.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(failed(what))
}
