//! Work on a jail that runs: inspection, pause, end, and the wait for its end.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use greenroom_jailer::{cgroup::Cgroup, sandbox_dir::RunningSandbox};
use rustix::process::Signal;
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::timeout,
};

use super::{
    KERNEL_TIMEOUT, ProcessDriver,
    blocking::{blocking, failed, inconclusive, inspect_blocking},
    sandbox_dir::SandboxDir,
};
use crate::{
    sandbox::{SandboxError, SandboxPresence},
    store::SessionId,
};

/// Time that the agent has to end after SIGTERM. Then the jail is killed.
const STOP_GRACE: Duration = Duration::from_millis(500);

impl ProcessDriver {
    /// Calls `work` with a running sandbox, off the runtime's threads.
    ///
    /// # Errors
    /// Fails with [`SandboxError::NotFound`] if the sandbox does not run.
    pub(super) async fn with_running<T: Send + 'static>(
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
    pub(super) async fn with_pause_lock(
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
    pub(super) async fn end_jail(&self, session: SessionId) -> Result<(), SandboxError> {
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

pub(super) fn presence(dir: &SandboxDir) -> io::Result<SandboxPresence> {
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
pub(super) async fn wait_for_jailer(dir: &SandboxDir) -> io::Result<()> {
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
