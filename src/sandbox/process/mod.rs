//! The driver that needs no engine: each sandbox is a jail of Linux namespaces, kept by a process of its own that outlives
//! the server ([`greenroom_keeper`]). The server itself builds no wall.
//!
//! ```text
//! server ──order──▶ keeper          `sandbox-keeper SESSION`, in a session of its own; writes the log
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
use greenroom_keeper::{
    cgroup::{Cgroup, Cgroups},
    order::{Answer, Order},
    place::Running,
    processes,
};
use greenroom_protocol::observation::Phase;
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest, unix::AsyncFd},
    sync::{OnceCell, Semaphore},
    time::{Instant, timeout},
};
use tracing::warn;

use super::{Exit, Found, Presence, Progress, Sandbox, SandboxError, Spec, Stats, Turns, engines};
use crate::store::SessionId;

mod freeze;
mod order;
mod place;
#[cfg(test)]
mod tests;
mod trial;

use place::Place;

/// Linked statically, so a sandbox maps one small file and no library.
static KEEPER: &[u8] = include_bytes!(env!("GREENROOM_KEEPER_BIN"));
/// Its name, as a file and in the lists of processes.
const KEEPER_NAME: &str = "sandbox-keeper";

/// As in the config.
pub const NAME: &str = "process";

/// How long a keeper may take to build a jail; it takes milliseconds.
const START: Duration = Duration::from_secs(10);
/// How long another's keeper, which has the session's lock, may take for it.
const BUILDING: Duration = Duration::from_secs(2);
/// How long the agent may take to end by itself when it is asked to.
const GRACE: Duration = Duration::from_millis(500);
/// How long the kernel may take to end, or to freeze, what it was told to.
const KERNEL: Duration = Duration::from_secs(5);
/// How long a watch rests that could not tell whether its sandbox runs.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often it tries to read how a sandbox ended.
const LOOKS_AT_AN_END: u32 = 10;

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
pub struct Process {
    options: ProcessOptions,
    cgroups: Option<Cgroups>,
    /// Start, stop and removal of one session.
    turns: Turns,
    /// Freezing and thawing one session.
    freezing: Turns,
    /// A jail is work for a core, with a short wait for the kernel in it: more of them at once are all ready later, and
    /// whoever asks the server something meanwhile waits for them as well.
    builders: Semaphore,
    tried: OnceCell<()>,
}

/// Whose keeper a sandbox has.
enum Kept {
    ByOurs,
    /// That of another server, of which at most one is alive.
    ByAnother,
}

impl Process {
    /// Makes the state directory, and puts the keeper in its place; starts nothing.
    pub fn new(options: ProcessOptions) -> Result<Process, SandboxError> {
        std::fs::create_dir_all(&options.state).map_err(failed("make its state directory"))?;
        trial::clear(&options.state);
        install_keeper(&options.programs).map_err(failed("install its keeper"))?;
        let cgroups = Cgroups::find(&options.node);
        let (turns, freezing) = (Turns::default(), Turns::default());
        let cores = available_parallelism().map_or(1, |n| n.get());
        Ok(Process { options, cgroups, turns, freezing, builders: Semaphore::new(cores + 1), tried: OnceCell::new() })
    }

    fn place(&self, session: SessionId) -> Place {
        Place::of(&self.options.state, session)
    }

    async fn launch(&self, spec: &Spec) -> Result<(), SandboxError> {
        let cgroup = self.cgroups.as_ref().map(|cgroups| cgroups.of(&spec.session.to_string()));
        engines::refuse(spec, self.options.engine.as_deref())?;
        let order = order::of(spec, &self.place(spec.session), cgroup)?;
        match self.carry_out(order.clone(), spec).await {
            Err(SandboxError::Unconfinable { .. })
                if self.options.unconfined && rustix::process::geteuid().is_root() =>
            {
                self.carry_out(Order { user_namespace: false, ..order }, spec).await
            }
            other => other,
        }
    }

    async fn carry_out(&self, order: Order, spec: &Spec) -> Result<(), SandboxError> {
        let overdue = Instant::now() + START;
        while Instant::now() < overdue {
            match self.keep(order.clone(), spec).await? {
                Kept::ByOurs => return Ok(()),
                Kept::ByAnother if self.runs(spec.session).await? => return Ok(()),
                // It came to nothing, as one does whose sandbox was half built when its server was killed: it was in what was just
                // cleared away.
                Kept::ByAnother => {}
            }
        }
        Err(SandboxError::Deadline { what: "start", seconds: START.as_secs() })
    }

    async fn keep(&self, order: Order, spec: &Spec) -> Result<Kept, SandboxError> {
        let builder = self.builders.acquire().await;
        let place = self.place(spec.session);
        let order = blocking("make its state directory", move || {
            place.make(order.uid, order.gid)?;
            order.cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.make(&order.limits, KERNEL))?;
            Ok(order)
        });
        let answer = timeout(START, self.commission(&order.await?)).await;
        drop(builder);
        match answer {
            Err(_) => Err(SandboxError::Deadline { what: "start", seconds: START.as_secs() }),
            Ok(Err(e)) => Err(failed("start its keeper")(e)),
            Ok(Ok(Answer::Started)) => Ok(Kept::ByOurs),
            Ok(Ok(Answer::Held)) => Ok(Kept::ByAnother),
            Ok(Ok(Answer::Unconfinable(detail))) => Err(SandboxError::Unconfinable { detail: trial::explain(&detail) }),
            Ok(Ok(Answer::Failed(detail))) => Err(SandboxError::Failed { what: "start", detail }),
        }
    }

    /// Starts a keeper. It leaves at once the process that is started here, so there is nothing to wait for afterwards.
    async fn commission(&self, order: &Order) -> io::Result<Answer> {
        let program = self.options.programs.join(KEEPER_NAME);
        let mut command = tokio::process::Command::new(&program);
        command.arg0(KEEPER_NAME).arg(&order.session).env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = loop {
            match command.spawn() {
                // A child of another thread may still hold the file as it was written, until it becomes another program.
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                    tokio::time::sleep(Duration::from_millis(1)).await
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(no_program_runs_at(&program, e)),
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
    async fn runs(&self, session: SessionId) -> Result<bool, SandboxError> {
        let place = self.place(session);
        let runs = timeout(BUILDING, async {
            while place.running().map_err(unclear)?.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, SandboxError>(true)
        });
        runs.await.unwrap_or(Ok(false))
    }

    /// Asks a question of a sandbox that runs.
    async fn of_running<T: Send + 'static>(
        &self,
        session: SessionId,
        what: &'static str,
        ask: impl FnOnce(&Place, &Running) -> io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let place = self.place(session);
        let looked = look(move || Ok(place.running()?.map(|running| (place, running))));
        let (place, running) = looked.await?.ok_or(SandboxError::Gone { session })?;
        blocking(what, move || ask(&place, &running)).await
    }

    /// Freezes or thaws it, once nobody else does.
    async fn in_turn(
        &self,
        session: SessionId,
        what: &'static str,
        work: impl FnOnce(&Place, &Running) -> io::Result<()> + Send + 'static,
    ) -> Result<(), SandboxError> {
        let turn = self.freezing.of(session).lock_owned().await;
        // The turn goes with the work, which ends also where nobody waits for it any more.
        let work = move |place: &Place, running: &Running| {
            let _turn = turn;
            work(place, running)
        };
        self.of_running(session, what, work).await
    }

    /// Ends it, the agent first if it can hear; and gives back what the kernel keeps for it. Where it cannot be told how it
    /// stands, nothing is changed.
    async fn end(&self, session: SessionId) -> Result<(), SandboxError> {
        let place = self.place(session);
        if let Some((running, keeper)) = place.kept().map_err(unclear)? {
            if !is_frozen(&place, &running).map_err(unclear)? {
                running.init.signal(Signal::TERM).map_err(failed("stop"))?;
                let _ = timeout(GRACE, ended(&keeper)).await;
            }
            running.init.signal(Signal::KILL).map_err(failed("stop"))?;
            // In version 1 of control groups a frozen process is not even killed before it is thawed.
            let _ = running.cgroup.as_ref().map(Cgroup::thaw);
            let Ok(is_over) = timeout(KERNEL, ended(&keeper)).await else {
                running.keeper.signal(Signal::KILL).map_err(failed("stop"))?;
                return Err(SandboxError::Deadline { what: "stop", seconds: KERNEL.as_secs() });
            };
            is_over.map_err(failed("wait for its end"))?;
        }
        let left = place.last_run().map_err(unclear)?.and_then(|running| running.cgroup);
        let left = left.or_else(|| self.cgroups.as_ref().map(|cgroups| cgroups.of(&session.to_string())));
        blocking("give back its control group", move || left.map_or(Ok(()), |cgroup| cgroup.remove(KERNEL))).await
    }
}

#[async_trait]
impl Sandbox for Process {
    fn name(&self) -> &'static str {
        NAME
    }

    fn isolation(&self) -> String {
        trial::isolation(self.cgroups.as_ref(), self.options.unconfined)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.tried.get_or_try_init(|| trial::build_a_jail(self)).await.copied()
    }

    async fn start(&self, spec: &Spec, progress: Progress<'_>) -> Result<(), SandboxError> {
        let _turn = self.turns.of(spec.session).lock_owned().await;
        if self.place(spec.session).running().map_err(unclear)?.is_some() {
            return Ok(());
        }
        progress(Phase::Starting, "");
        let started = self.launch(spec).await;
        match &started {
            // Another's keeper has it, and it may run by now.
            Ok(()) | Err(SandboxError::Unclear { .. }) => {}
            Err(_) => {
                // Why it did not start is worth more than why nothing could be cleared away.
                let _ = self.end(spec.session).await;
            }
        }
        started
    }

    async fn freeze(&self, session: SessionId) -> Result<(), SandboxError> {
        self.in_turn(session, "freeze", |place, running| match &running.cgroup {
            Some(cgroup) => cgroup.freeze(KERNEL),
            None => freeze::freeze(place, running.init, KERNEL),
        })
        .await
    }

    async fn thaw(&self, session: SessionId) -> Result<(), SandboxError> {
        self.in_turn(session, "thaw", |place, running| match &running.cgroup {
            Some(cgroup) => cgroup.thaw(),
            None => freeze::thaw(place, running.init),
        })
        .await
    }

    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        let _turn = self.turns.of(session).lock_owned().await;
        self.end(session).await
    }

    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        let _turn = self.turns.of(session).lock_owned().await;
        self.end(session).await?;
        let place = self.place(session);
        blocking("remove its state directory", move || place.remove()).await
    }

    async fn presence(&self, session: SessionId) -> Result<Option<Presence>, SandboxError> {
        let place = self.place(session);
        look(move || place.last_run()?.map(|_| presence(&place)).transpose()).await
    }

    async fn wait(&self, session: SessionId) -> Result<Exit, SandboxError> {
        let place = self.place(session);
        let mut is_said = false;
        while let Err(e) = outlived(&place).await {
            if !std::mem::replace(&mut is_said, true) {
                warn!(%session, "whether its sandbox runs cannot be told, and is asked again: {e}");
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        // It is over. How, the disk may give later; if it does not, that it is over is to be told all the same.
        for _ in 0..LOOKS_AT_AN_END {
            match place.ended() {
                Ok(ended) => return Ok(ended.into()),
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
        place.ended().map(Exit::from).map_err(unclear)
    }

    async fn list(&self) -> Result<Vec<Found>, SandboxError> {
        let state = self.options.state.clone();
        look(move || {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(&state)? {
                let Some(session) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                match presence(&Place::of(&state, session)) {
                    Ok(presence) => found.push(Found { session, driver: NAME, presence }),
                    // Nobody is thought gone who is not in the list, and the others are not to wait for this one.
                    Err(e) => warn!(%session, "how its sandbox stands cannot be told: {e}"),
                }
            }
            Ok(found)
        })
        .await
    }

    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError> {
        let place = self.place(session);
        if !place.exists().map_err(unclear)? {
            return Err(SandboxError::Gone { session });
        }
        blocking("read its log", move || place.log(bytes)).await
    }

    async fn stats(&self, session: SessionId) -> Result<Stats, SandboxError> {
        self.of_running(session, "count", |_, running| {
            let counted = running.cgroup.as_ref().and_then(Cgroup::usage);
            let processes::Usage { memory_bytes, cpu_us, processes } =
                counted.map_or_else(|| processes::usage(running.init), Ok)?;
            Ok(Stats { memory_bytes, cpu_us, processes })
        })
        .await
    }
}

/// Keepers that run have a file of their own, also when another version's takes its name.
fn install_keeper(programs: &Path) -> io::Result<()> {
    let path = programs.join(KEEPER_NAME);
    if std::fs::read(&path).is_ok_and(|installed| installed == KEEPER) {
        return Ok(());
    }
    let unfinished = programs.join(format!("{KEEPER_NAME}.{}.new", std::process::id()));
    std::fs::write(&unfinished, KEEPER)?;
    std::fs::set_permissions(&unfinished, Permissions::from_mode(0o755))?;
    std::fs::rename(unfinished, path)
}

fn no_program_runs_at(path: &Path, e: io::Error) -> io::Error {
    let detail =
        format!("`{}`: {e}; no program can be run where it is mounted `noexec`: take another --data", path.display());
    io::Error::new(e.kind(), detail)
}

fn presence(place: &Place) -> io::Result<Presence> {
    Ok(match place.running()? {
        None => Presence::Exited,
        Some(running) if is_frozen(place, &running)? => Presence::Frozen,
        Some(_) => Presence::Running,
    })
}

fn is_frozen(place: &Place, running: &Running) -> io::Result<bool> {
    match &running.cgroup {
        Some(cgroup) => cgroup.is_frozen(),
        None => Ok(place.frozen()?.is_some()),
    }
}

/// Waits until nobody is there who keeps it.
async fn outlived(place: &Place) -> io::Result<()> {
    // Of what was read no more is kept: there is one of these for each session that lives.
    let keeper = place.kept()?.map(|(_, keeper)| keeper);
    match keeper {
        Some(keeper) => ended(&keeper).await,
        None => Ok(()),
    }
}

/// Returns when the process has ended.
async fn ended(process: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for longer than it is registered.
    let process = unsafe { AsyncFd::register_with_interest(process.as_fd(), Interest::READABLE) }?;
    process.readable().await.map(drop)
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> SandboxError {
    move |e| match e.kind() {
        io::ErrorKind::PermissionDenied => SandboxError::Forbidden { what: what.into(), detail: e.to_string() },
        io::ErrorKind::TimedOut => SandboxError::Deadline { what, seconds: KERNEL.as_secs() },
        _ => SandboxError::Io { what, source: Arc::new(e) },
    }
}

/// Of a look at a sandbox that failed. It says nothing about the sandbox, which may work on: descriptors or memory ran out, say.
fn unclear(e: io::Error) -> SandboxError {
    SandboxError::Unclear { what: "tell how it stands", detail: e.to_string() }
}

/// Looks how sandboxes stand.
async fn look<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(unclear)
}

/// Files and `/proc` are read beside the runtime's threads.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(failed(what))
}
