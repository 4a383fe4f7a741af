//! The driver that needs no engine: each sandbox is a jail of Linux namespaces, kept by a process of its own that outlives
//! the server. Only [`jail`] knows the crate that builds the walls.
//!
//! ```text
//! server ──order──▶ keeper          its own binary, `sandbox-keeper SESSION`, in a session of its own; writes the log
//!                     └ builder     waits for the jail, outside its pid namespace
//!                         └ init    first process inside: no rights left, reaps orphans
//!                             └ greenroom-agent
//! ```
//!
//! Each falls with the one above it, and none with the server. What a server has to know of a sandbox that another one
//! started is in its state directory ([`place`]).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use greenroom_protocol::observation::Phase;
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest, unix::AsyncFd},
    sync::{Mutex, OnceCell},
    time::timeout,
};

use super::{Exit, Found, Presence, Progress, Sandbox, SandboxError, Spec, Stats};
use crate::store::SessionId;

mod cgroup;
mod init;
mod jail;
mod keeper;
mod log;
mod order;
mod place;
mod processes;
mod seccomp;
mod stage;
#[cfg(test)]
mod tests;
mod trial;

use cgroup::{Cgroup, Cgroups};
pub use keeper::keeper_main;
use order::{Answer, Order};
use place::{Place, Running};

/// The hidden subcommand that `main` hands to [`keeper_main`], before it starts any thread.
pub const KEEPER_COMMAND: &str = "sandbox-keeper";

/// How long a keeper may take to build a jail; it takes milliseconds.
const START: Duration = Duration::from_secs(10);
/// How long the agent may take to end by itself when it is asked to.
const GRACE: Duration = Duration::from_millis(500);
/// How long the kernel may take to end, or to freeze, what it was told to.
const KERNEL: Duration = Duration::from_secs(5);
/// Sessions whose ids fall on the same one wait for each other's start and end.
const TURNS: usize = 64;

#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// Names this node among others on the same host.
    pub node: String,
    /// A directory of this node's own, in which each sandbox gets one.
    pub state: PathBuf,
    /// What is started as the keeper: this program itself ([`std::env::current_exe`]), but for tests.
    pub keeper: PathBuf,
    /// Whether to go on where the kernel cannot build every wall: root then does without a user namespace. Nobody does
    /// without the others, because the agent's directories are only where it expects them behind a mount namespace.
    pub unconfined: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Process {
    options: ProcessOptions,
    cgroups: Option<Cgroups>,
    turns: [Mutex<()>; TURNS],
    tried: OnceCell<()>,
}

impl Process {
    /// Makes the state directory; starts nothing.
    pub fn new(options: ProcessOptions) -> Result<Process, SandboxError> {
        std::fs::create_dir_all(&options.state).map_err(failed("make its state directory"))?;
        trial::clear(&options.state);
        let cgroups = Cgroups::find(&options.node);
        Ok(Process { options, cgroups, turns: std::array::from_fn(|_| Mutex::new(())), tried: OnceCell::new() })
    }

    fn place(&self, session: SessionId) -> Place {
        Place::of(&self.options.state, session)
    }

    /// Start, stop and removal of one session take turns.
    fn turn(&self, session: SessionId) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        &self.turns[hasher.finish() as usize % TURNS]
    }

    async fn launch(&self, spec: &Spec) -> Result<(), SandboxError> {
        let cgroup = self.cgroups.as_ref().map(|cgroups| cgroups.of(spec.session));
        let order = Order::of(spec, &self.place(spec.session), cgroup)?;
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
        let (place, limits) = (self.place(spec.session), spec.limits);
        let order = blocking("make its state directory", move || {
            place.make(order.uid, order.gid)?;
            order.cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.make(&limits, KERNEL))?;
            Ok(order)
        });
        match timeout(START, self.commission(&order.await?)).await {
            Err(_) => Err(SandboxError::Deadline { what: "start", seconds: START.as_secs() }),
            Ok(Err(e)) => Err(failed("start its keeper")(e)),
            Ok(Ok(Answer::Started)) => Ok(()),
            Ok(Ok(Answer::Held)) => self.is_somebody_elses(spec.session).await,
            Ok(Ok(Answer::Unconfinable(detail))) => Err(SandboxError::Unconfinable { detail: trial::explain(&detail) }),
            Ok(Ok(Answer::Failed(detail))) => Err(SandboxError::Failed { what: "start", detail }),
        }
    }

    /// Starts a keeper. It leaves at once the process that is started here, so there is nothing to wait for afterwards.
    async fn commission(&self, order: &Order) -> io::Result<Answer> {
        let mut command = tokio::process::Command::new(&self.options.keeper);
        command.args([KEEPER_COMMAND, &order.session]).env_clear().current_dir("/").kill_on_drop(true);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        if let Some(mut stdin) = keeper.stdin.take() {
            stdin.write_all(&serde_json::to_vec(order)?).await?;
        }
        let mut answer = Vec::new();
        if let Some(mut stdout) = keeper.stdout.take() {
            stdout.read_to_end(&mut answer).await?;
        }
        let status = keeper.wait().await?;
        let silent = || io::Error::other(format!("`{}` did not answer ({status})", self.options.keeper.display()));
        serde_json::from_slice(&answer).map_err(|_| silent())
    }

    /// Another server has its keeper. That is as good as ours, once it runs.
    async fn is_somebody_elses(&self, session: SessionId) -> Result<(), SandboxError> {
        let place = self.place(session);
        let runs = timeout(START, async {
            while place.running().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        runs.await.map_err(|_| SandboxError::Deadline { what: "start", seconds: START.as_secs() })
    }

    /// Asks a question of a sandbox that runs.
    async fn of_running<T: Send + 'static>(
        &self,
        session: SessionId,
        what: &'static str,
        ask: impl FnOnce(&Place, &Running) -> io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let place = self.place(session);
        let answer = blocking(what, move || place.running().map(|running| ask(&place, &running)).transpose());
        answer.await?.ok_or(SandboxError::Gone { session })
    }

    /// Ends it, the agent first if it can hear; and gives back what the kernel keeps for it.
    async fn end(&self, session: SessionId) -> Result<(), SandboxError> {
        let place = self.place(session);
        if let Some((running, keeper)) = place.running().and_then(|it| it.keeper.open().map(|keeper| (it, keeper))) {
            if !is_frozen(&place, &running) {
                running.init.signal(Signal::TERM).map_err(failed("stop"))?;
                let _ = timeout(GRACE, ended(&keeper)).await;
            }
            running.init.signal(Signal::KILL).map_err(failed("stop"))?;
            // In version 1 of control groups a frozen process is not even killed before it is thawed.
            let _ = running.cgroup.as_ref().map(Cgroup::thaw);
            if timeout(KERNEL, ended(&keeper)).await.is_err() {
                running.keeper.signal(Signal::KILL).map_err(failed("stop"))?;
                return Err(SandboxError::Deadline { what: "stop", seconds: KERNEL.as_secs() });
            }
        }
        let left = place.last_run().and_then(|running| running.cgroup);
        let left = left.or_else(|| self.cgroups.as_ref().map(|cgroups| cgroups.of(session)));
        blocking("give back its control group", move || left.map_or(Ok(()), |cgroup| cgroup.remove(KERNEL))).await
    }
}

#[async_trait]
impl Sandbox for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn isolation(&self) -> String {
        trial::isolation(self.cgroups.as_ref(), self.options.unconfined)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.tried.get_or_try_init(|| trial::build_a_jail(self)).await.copied()
    }

    async fn start(&self, spec: &Spec, progress: Progress<'_>) -> Result<(), SandboxError> {
        let _turn = self.turn(spec.session).lock().await;
        if self.place(spec.session).running().is_some() {
            return Ok(());
        }
        progress(Phase::Starting, "");
        let started = self.launch(spec).await;
        if started.is_err() {
            // Why it did not start is worth more than why nothing could be cleared away.
            let _ = self.end(spec.session).await;
        }
        started
    }

    async fn freeze(&self, session: SessionId) -> Result<(), SandboxError> {
        self.of_running(session, "freeze", |place, running| match &running.cgroup {
            Some(cgroup) => cgroup.freeze(KERNEL),
            None if place.frozen().is_some() => Ok(()),
            None => place.set_frozen(&processes::stop_all(running.init, KERNEL)?),
        })
        .await
    }

    async fn thaw(&self, session: SessionId) -> Result<(), SandboxError> {
        self.of_running(session, "thaw", |place, running| match &running.cgroup {
            Some(cgroup) => cgroup.thaw(),
            None => match place.frozen() {
                Some(stood_still) => {
                    processes::continue_all(running.init, &stood_still)?;
                    place.forget_frozen()
                }
                None => Ok(()),
            },
        })
        .await
    }

    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        let _turn = self.turn(session).lock().await;
        self.end(session).await
    }

    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        let _turn = self.turn(session).lock().await;
        self.end(session).await?;
        let place = self.place(session);
        blocking("remove its state directory", move || place.remove()).await
    }

    async fn wait(&self, session: SessionId) -> Result<Exit, SandboxError> {
        let place = self.place(session);
        if let Some(keeper) = place.running().and_then(|running| running.keeper.open()) {
            ended(&keeper).await.map_err(failed("wait for its end"))?;
        }
        Ok(place.ended().into())
    }

    async fn list(&self) -> Result<Vec<Found>, SandboxError> {
        let state = self.options.state.clone();
        blocking("list its state directory", move || {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(&state)? {
                let Some(session) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                found.push(Found { session, presence: presence(&Place::of(&state, session)) });
            }
            Ok(found)
        })
        .await
    }

    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError> {
        let place = self.place(session);
        if !place.exists() {
            return Err(SandboxError::Gone { session });
        }
        blocking("read its log", move || place.log(bytes)).await
    }

    async fn stats(&self, session: SessionId) -> Result<Stats, SandboxError> {
        self.of_running(session, "count", |_, running| {
            let counted = running.cgroup.as_ref().and_then(Cgroup::stats);
            Ok(counted.unwrap_or_else(|| processes::stats(running.init)))
        })
        .await
    }
}

fn presence(place: &Place) -> Presence {
    match place.running() {
        None => Presence::Exited,
        Some(running) if is_frozen(place, &running) => Presence::Frozen,
        Some(_) => Presence::Running,
    }
}

fn is_frozen(place: &Place, running: &Running) -> bool {
    running.cgroup.as_ref().map_or_else(|| place.frozen().is_some(), Cgroup::is_frozen)
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

/// Files and `/proc` are read beside the runtime's threads.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(failed(what))
}
