//! Start of a jail: installs the jailer's program, runs a jailer and reads its reply.

use std::{fs::Permissions, io, os::unix::fs::PermissionsExt, path::Path, process::Stdio, time::Duration};

use greenroom_jailer::request::{JailReply, JailRequest};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use super::{
    KERNEL_TIMEOUT, ProcessDriver,
    blocking::{blocking, failed, inconclusive},
    jail_request, probe,
};
use crate::{
    sandbox::{SandboxError, SandboxSpec, engine_sockets},
    store::SessionId,
};

/// Program of the jailer. Statically linked, so a sandbox maps one small file and no library.
static JAILER: &[u8] = include_bytes!(env!("GREENROOM_JAILER_BIN"));
/// Name of the jailer's file and process.
pub(super) const JAILER_NAME: &str = "sandbox-jailer";

/// Deadline for a jailer to build a jail. Building takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that another server's jailer, which holds the session's lock, has to build its jail.
const BUILD_TIMEOUT: Duration = Duration::from_secs(2);

/// Server whose jailer holds a sandbox.
enum JailOwner {
    Ours,
    /// Another server. At most one of its jailers is alive.
    Another,
}

impl ProcessDriver {
    /// Builds the jail of a sandbox and starts the agent in it.
    pub(super) async fn launch(&self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        let cgroup = self.cgroups.as_ref().map(|cgroups| cgroups.of(&spec.session.to_string()));
        engine_sockets::reject_engine_sockets(spec, self.config.engine_socket().as_deref())?;
        let request = jail_request::build(spec, &self.sandbox_dir(spec.session), cgroup)?;
        match self.build_jail(request.clone(), spec).await {
            Err(SandboxError::Unconfinable { .. })
                if self.config.unconfined && rustix::process::geteuid().is_root() =>
            {
                self.build_jail(JailRequest { user_namespace: false, ..request }, spec).await
            }
            other => other,
        }
    }

    pub(super) async fn build_jail(&self, request: JailRequest, spec: &SandboxSpec) -> Result<(), SandboxError> {
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
        let program = self.node.programs.join(JAILER_NAME);
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
}

/// Installs the jailer's program. Jailers that run keep their own file if another version is
/// installed.
pub(super) fn install(programs: &Path) -> io::Result<()> {
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
