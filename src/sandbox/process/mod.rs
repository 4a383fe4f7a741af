//! The driver that needs no engine: each sandbox is a jail of Linux namespaces, kept by a process of its own that outlives
//! the server ([`greenroom_jailer`]). The server itself builds no wall.
//!
//! ```text
//! server ──order──▶ keeper          `sandbox-jailer SESSION`, in a session of its own; writes the log
//!                     └ init        first process inside: no rights left, reaps orphans
//!                         └ greenroom-agent
//! ```
//!
//! Each falls with the one above it, and none with the server. What a server has to know of a sandbox that another one
//! started is in its state directory ([`place`]). Where that cannot be read, nothing is known: nobody is started, ended or
//! reported dead then.

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

/// Linked statically, so a sandbox maps one small file and no library.
static JAILER: &[u8] = include_bytes!(env!("GREENROOM_JAILER_BIN"));
/// Its name, as a file and in the lists of processes.
const JAILER_NAME: &str = "sandbox-jailer";

/// As in the config.
pub const NAME: &str = "process";

/// How long a keeper may take to build a jail; it takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long another's keeper, which has the session's lock, may take for it.
const BUILD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the agent may take to end by itself when it is asked to.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// How long the kernel may take to end, or to freeze, what it was told to.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a watch rests that could not tell whether its sandbox runs.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often it tries to read how a sandbox ended.
const EXIT_READ_ATTEMPTS: u32 = 10;

#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// Names this node among others on the same host.
    pub node: String,
    /// A directory of this node's own, in which each sandbox gets one.
    pub state: PathBuf,
    /// The directory in which the keeper is put, and from which it is run.
    pub programs: PathBuf,
    /// Whether to go on where the kernel cannot build every wall: root then does without a user namespace. Nobody does
    /// without the others, because the agent's directories are only where it expects them behind a mount namespace.
    pub unconfined: bool,
    /// The socket of the engine that is configured, which no sandbox may reach, as it may none that listens where engines do.
    pub engine: Option<PathBuf>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct ProcessDriver {
    options: ProcessOptions,
    cgroups: Option<NodeCgroups>,
    /// Start, stop and removal of one session.
    lifecycle_locks: KeyedMutex,
    /// Freezing and thawing one session.
    pause_locks: KeyedMutex,
    /// A jail is work for a core, with a short wait for the kernel in it: more of them at once are all ready later, and
    /// whoever asks the server something meanwhile waits for them as well.
    builders: Semaphore,
    probed: OnceCell<()>,
}

/// Whose keeper a sandbox has.
enum JailOwner {
    Ours,
    /// That of another server, of which at most one is alive.
    Another,
}

impl ProcessDriver {
    /// Makes the state directory, and puts the keeper in its place; starts nothing.
    pub fn new(options: ProcessOptions) -> Result<ProcessDriver, SandboxError> {
        std::fs::create_dir_all(&options.state).map_err(failed("make its state directory"))?;
        probe::remove_leftovers(&options.state);
        install_jailer(&options.programs).map_err(failed("install its keeper"))?;
        let cgroups = NodeCgroups::find(&options.node);
        let (turns, freezing) = (KeyedMutex::default(), KeyedMutex::default());
        let cores = available_parallelism().map_or(1, |n| n.get());
        Ok(ProcessDriver {
            options,
            cgroups,
            lifecycle_locks: turns,
            pause_locks: freezing,
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
        let order = jail_request::build(spec, &self.sandbox_dir(spec.session), cgroup)?;
        match self.build_jail(order.clone(), spec).await {
            Err(SandboxError::Unconfinable { .. })
                if self.options.unconfined && rustix::process::geteuid().is_root() =>
            {
                self.build_jail(JailRequest { user_namespace: false, ..order }, spec).await
            }
            other => other,
        }
    }

    async fn build_jail(&self, order: JailRequest, spec: &SandboxSpec) -> Result<(), SandboxError> {
        let overdue = Instant::now() + START_TIMEOUT;
        while Instant::now() < overdue {
            match self.request_jail(order.clone(), spec).await? {
                JailOwner::Ours => return Ok(()),
                JailOwner::Another if self.starts_running(spec.session).await? => return Ok(()),
                // It came to nothing, as one does whose sandbox was half built when its server was killed: it was in what was just
                // cleared away.
                JailOwner::Another => {}
            }
        }
        Err(SandboxError::Deadline { what: "start", seconds: START_TIMEOUT.as_secs() })
    }

    async fn request_jail(&self, order: JailRequest, spec: &SandboxSpec) -> Result<JailOwner, SandboxError> {
        let builder = self.builders.acquire().await;
        let place = self.sandbox_dir(spec.session);
        let order = blocking("make its state directory", move || {
            place.make(order.uid, order.gid)?;
            order.cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.make(&order.limits, KERNEL_TIMEOUT))?;
            Ok(order)
        });
        let answer = timeout(START_TIMEOUT, self.run_jailer(&order.await?)).await;
        drop(builder);
        match answer {
            Err(_) => Err(SandboxError::Deadline { what: "start", seconds: START_TIMEOUT.as_secs() }),
            Ok(Err(e)) => Err(failed("start its keeper")(e)),
            Ok(Ok(JailReply::Started)) => Ok(JailOwner::Ours),
            Ok(Ok(JailReply::AlreadyLocked)) => Ok(JailOwner::Another),
            Ok(Ok(JailReply::Unconfinable(detail))) => {
                Err(SandboxError::Unconfinable { detail: probe::explain(&detail) })
            }
            Ok(Ok(JailReply::Failed(detail))) => Err(SandboxError::Failed { what: "start", detail }),
        }
    }

    /// Starts a keeper. It leaves at once the process that is started here, so there is nothing to wait for afterwards.
    async fn run_jailer(&self, order: &JailRequest) -> io::Result<JailReply> {
        let program = self.options.programs.join(JAILER_NAME);
        let mut command = tokio::process::Command::new(&program);
        command.arg0(JAILER_NAME).arg(&order.session).env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = loop {
            match command.spawn() {
                // A child of another thread may still hold the file as it was written, until it becomes another program.
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                    tokio::time::sleep(Duration::from_millis(1)).await
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(noexec_error(&program, e)),
                spawned => break spawned?,
            }
        };
        if let Some(mut stdin) = keeper.stdin.take() {
            stdin.write_all(&serde_json::to_vec(order)?).await?;
        }
        let mut answer = Vec::new();
        if let Some(mut stdout) = keeper.stdout.take() {
            stdout.read_to_end(&mut answer).await?;
        }
        let status = keeper.wait().await?;
        let silent = || io::Error::other(format!("`{}` did not answer ({status})", program.display()));
        serde_json::from_slice(&answer).map_err(|_| silent())
    }

    /// Whether it comes to run within a moment.
    async fn starts_running(&self, session: SessionId) -> Result<bool, SandboxError> {
        let place = self.sandbox_dir(session);
        let runs = timeout(BUILD_TIMEOUT, async {
            while place.running().map_err(inconclusive)?.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, SandboxError>(true)
        });
        runs.await.unwrap_or(Ok(false))
    }

    /// Asks a question of a sandbox that runs.
    async fn with_running<T: Send + 'static>(
        &self,
        session: SessionId,
        what: &'static str,
        ask: impl FnOnce(&SandboxDir, &RunningSandbox) -> io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let place = self.sandbox_dir(session);
        let looked = inspect_blocking(move || Ok(place.running()?.map(|running| (place, running))));
        let (place, running) = looked.await?.ok_or(SandboxError::NotFound { session })?;
        blocking(what, move || ask(&place, &running)).await
    }

    /// Freezes or thaws it, once nobody else does.
    async fn with_pause_lock(
        &self,
        session: SessionId,
        what: &'static str,
        work: impl FnOnce(&SandboxDir, &RunningSandbox) -> io::Result<()> + Send + 'static,
    ) -> Result<(), SandboxError> {
        let turn = self.pause_locks.of(session).lock_owned().await;
        // The turn goes with the work, which ends also where nobody waits for it any more.
        let work = move |place: &SandboxDir, running: &RunningSandbox| {
            let _turn = turn;
            work(place, running)
        };
        self.with_running(session, what, work).await
    }

    /// Ends it, the agent first if it can hear; and gives back what the kernel keeps for it. Where it cannot be told how it
    /// stands, nothing is changed.
    async fn end_jail(&self, session: SessionId) -> Result<(), SandboxError> {
        let place = self.sandbox_dir(session);
        if let Some((running, keeper)) = place.running_jailer().map_err(inconclusive)? {
            if !is_paused(&place, &running).map_err(inconclusive)? {
                running.init.signal(Signal::TERM).map_err(failed("stop"))?;
                let _ = timeout(STOP_GRACE, wait_for_exit(&keeper)).await;
            }
            running.init.signal(Signal::KILL).map_err(failed("stop"))?;
            // In version 1 of control groups a frozen process is not even killed before it is thawed.
            let _ = running.cgroup.as_ref().map(Cgroup::unfreeze);
            let Ok(is_over) = timeout(KERNEL_TIMEOUT, wait_for_exit(&keeper)).await else {
                running.jailer.signal(Signal::KILL).map_err(failed("stop"))?;
                return Err(SandboxError::Deadline { what: "stop", seconds: KERNEL_TIMEOUT.as_secs() });
            };
            is_over.map_err(failed("wait for its end"))?;
        }
        let left = place.last_run().map_err(inconclusive)?.and_then(|running| running.cgroup);
        let left = left.or_else(|| self.cgroups.as_ref().map(|cgroups| cgroups.of(&session.to_string())));
        blocking("give back its control group", move || left.map_or(Ok(()), |cgroup| cgroup.remove(KERNEL_TIMEOUT)))
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
        let _turn = self.lifecycle_locks.of(spec.session).lock_owned().await;
        if self.sandbox_dir(spec.session).running().map_err(inconclusive)?.is_some() {
            return Ok(());
        }
        progress(SandboxPhase::Starting, "");
        let started = self.launch(spec).await;
        match &started {
            // Another's keeper has it, and it may run by now.
            Ok(()) | Err(SandboxError::Inconclusive { .. }) => {}
            Err(_) => {
                // Why it did not start is worth more than why nothing could be cleared away.
                let _ = self.end_jail(spec.session).await;
            }
        }
        started
    }

    async fn pause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.with_pause_lock(session, "freeze", |place, running| match &running.cgroup {
            Some(cgroup) => cgroup.freeze(KERNEL_TIMEOUT),
            None => signal_pause::pause(place, running.init, KERNEL_TIMEOUT),
        })
        .await
    }

    async fn unpause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.with_pause_lock(session, "thaw", |place, running| match &running.cgroup {
            Some(cgroup) => cgroup.unfreeze(),
            None => signal_pause::unpause(place, running.init),
        })
        .await
    }

    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        let _turn = self.lifecycle_locks.of(session).lock_owned().await;
        self.end_jail(session).await
    }

    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        let _turn = self.lifecycle_locks.of(session).lock_owned().await;
        self.end_jail(session).await?;
        let place = self.sandbox_dir(session);
        blocking("remove its state directory", move || place.remove()).await
    }

    async fn presence(&self, session: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        let place = self.sandbox_dir(session);
        inspect_blocking(move || place.last_run()?.map(|_| presence(&place)).transpose()).await
    }

    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError> {
        let place = self.sandbox_dir(session);
        let mut is_said = false;
        while let Err(e) = wait_for_jailer(&place).await {
            if !std::mem::replace(&mut is_said, true) {
                warn!(%session, "whether its sandbox runs cannot be told, and is asked again: {e}");
            }
            tokio::time::sleep(RECHECK_INTERVAL).await;
        }
        // It is over. How, the disk may give later; if it does not, that it is over is to be told all the same.
        for _ in 0..EXIT_READ_ATTEMPTS {
            match place.exit_record() {
                Ok(ended) => return Ok(ended.into()),
                Err(_) => tokio::time::sleep(RECHECK_INTERVAL).await,
            }
        }
        place.exit_record().map(SandboxExit::from).map_err(inconclusive)
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let state = self.options.state.clone();
        inspect_blocking(move || {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(&state)? {
                let Some(session) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                match presence(&SandboxDir::of(&state, session)) {
                    Ok(presence) => found.push(FoundSandbox { session, driver: NAME, presence }),
                    // Nobody is thought gone who is not in the list, and the others are not to wait for this one.
                    Err(e) => warn!(%session, "how its sandbox stands cannot be told: {e}"),
                }
            }
            Ok(found)
        })
        .await
    }

    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError> {
        let place = self.sandbox_dir(session);
        if !place.exists().map_err(inconclusive)? {
            return Err(SandboxError::NotFound { session });
        }
        blocking("read its log", move || place.log(bytes)).await
    }

    async fn stats(&self, session: SessionId) -> Result<SandboxStats, SandboxError> {
        self.with_running(session, "count", |_, running| {
            let counted = running.cgroup.as_ref().and_then(Cgroup::usage);
            let processes::ResourceUsage { memory_bytes, cpu_us, processes } =
                counted.map_or_else(|| processes::usage(running.init), Ok)?;
            Ok(SandboxStats { memory_bytes, cpu_us, processes })
        })
        .await
    }
}

/// Keepers that run have a file of their own, also when another version's takes its name.
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
    let detail =
        format!("`{}`: {e}; no program can be run where it is mounted `noexec`: take another --data", path.display());
    io::Error::new(e.kind(), detail)
}

fn presence(place: &SandboxDir) -> io::Result<SandboxPresence> {
    Ok(match place.running()? {
        None => SandboxPresence::Exited,
        Some(running) if is_paused(place, &running)? => SandboxPresence::Paused,
        Some(_) => SandboxPresence::Running,
    })
}

fn is_paused(place: &SandboxDir, running: &RunningSandbox) -> io::Result<bool> {
    match &running.cgroup {
        Some(cgroup) => cgroup.is_frozen(),
        None => Ok(place.pause_record()?.is_some()),
    }
}

/// Waits until nobody is there who keeps it.
async fn wait_for_jailer(place: &SandboxDir) -> io::Result<()> {
    // Of what was read no more is kept: there is one of these for each session that lives.
    let keeper = place.running_jailer()?.map(|(_, keeper)| keeper);
    match keeper {
        Some(keeper) => wait_for_exit(&keeper).await,
        None => Ok(()),
    }
}

/// Returns when the process has ended.
async fn wait_for_exit(process: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for longer than it is registered.
    let process = unsafe { AsyncFd::register_with_interest(process.as_fd(), Interest::READABLE) }?;
    process.readable().await.map(drop)
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> SandboxError {
    move |e| match e.kind() {
        io::ErrorKind::PermissionDenied => SandboxError::Forbidden { what: what.into(), detail: e.to_string() },
        io::ErrorKind::TimedOut => SandboxError::Deadline { what, seconds: KERNEL_TIMEOUT.as_secs() },
        _ => SandboxError::Io { what, source: Arc::new(e) },
    }
}

/// Of a look at a sandbox that failed. It says nothing about the sandbox, which may work on: descriptors or memory ran out, say.
fn inconclusive(e: io::Error) -> SandboxError {
    SandboxError::Inconclusive { what: "tell how it stands", detail: e.to_string() }
}

/// Looks how sandboxes stand.
async fn inspect_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(inconclusive)
}

/// Files and `/proc` are read beside the runtime's threads.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(failed(what))
}
