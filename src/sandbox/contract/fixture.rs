//! Fixtures of the contract: a driver, and a sandbox for each promise that is removed however the
//! test ends.

use std::{
    fs,
    ops::Deref,
    os::unix::fs::{PermissionsExt, chown},
    panic::{AssertUnwindSafe, resume_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use tempfile::TempDir;

use super::super::{RunDir, SandboxDriver, SandboxExit, SandboxPresence, SandboxSpec};
use crate::{
    config::{SandboxLimits, SandboxNetwork},
    store::SessionId,
};

/// Deadline of a wait in a test. Reached only by a failing test.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Driver under test.
pub(crate) struct DriverFixture {
    pub(crate) sandbox: Arc<dyn SandboxDriver>,
    /// Second instance of the same driver, as after a server's restart.
    pub(crate) reopened: Arc<dyn SandboxDriver>,
    /// Image with `sh` and the usual commands.
    pub(crate) image: String,
}

impl Deref for DriverFixture {
    type Target = dyn SandboxDriver;

    fn deref(&self) -> &Self::Target {
        &*self.sandbox
    }
}

impl DriverFixture {
    /// Runs `test` with a session whose agent is the `sh` script. The sandbox is not started yet.
    ///
    /// The sandbox is removed afterwards, also if `test` panics.
    pub(crate) async fn with_sandbox(&self, script: &str, test: impl AsyncFnOnce(&SandboxFixture<'_>)) {
        let sandbox = SandboxFixture::prepare(self, script);
        let result = AssertUnwindSafe(test(&sandbox)).catch_unwind().await;
        let removed = self.reopened.remove(sandbox.spec.session).await;
        if let Err(panic) = result {
            resume_unwind(panic);
        }
        removed.expect("remove succeeds");
    }
}

/// Sandbox under test, with its session's directories.
pub(crate) struct SandboxFixture<'a> {
    driver: &'a DriverFixture,
    pub(crate) spec: SandboxSpec,
    /// Stands in for the server's data directory.
    data: TempDir,
}

impl<'a> SandboxFixture<'a> {
    fn prepare(driver: &'a DriverFixture, script: &str) -> SandboxFixture<'a> {
        let data = tempfile::tempdir().expect("temporary directory is created");
        let session = SessionId::generate();
        let is_root = rustix::process::geteuid().is_root();
        let (uid, gid) = match is_root {
            true => (10_001, 10_001),
            false => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        };
        let owned = |name: &str| {
            let path = data.path().join(name);
            fs::create_dir(&path).expect("directory is created");
            if is_root {
                chown(&path, Some(uid), Some(gid)).expect("owner is changed");
            }
            path
        };
        let run = RunDir::of(&data.path().join("run"), session);
        run.prepare(uid, gid).expect("run directory is created");
        let agent = data.path().join("agent.sh");
        fs::write(&agent, format!("#!/bin/sh\n{script}\n")).expect("script is written");
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("program is executable");
        if is_root {
            // As if the server ran as the same user: only the mounts protect these files from the
            // sandbox.
            for path in [&agent, run.root(), &run.gateway()] {
                chown(path, Some(uid), Some(gid)).expect("owner is changed");
            }
        }
        let spec = SandboxSpec {
            session,
            image: driver.image.clone(),
            run,
            agent,
            workspace: owned("workspace"),
            home: owned("home"),
            volumes: Vec::new(),
            uid,
            gid,
            limits: SandboxLimits { memory: bytesize::ByteSize::mib(128), cpus: 1.5, pids: 64 },
            network: SandboxNetwork::None,
        };
        SandboxFixture { driver, spec, data }
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    pub(crate) async fn start(&self) {
        self.driver.start(&self.spec, &|_, _| ()).await.expect("start succeeds");
    }

    pub(crate) async fn exit(&self) -> SandboxExit {
        let exit = tokio::time::timeout(TEST_TIMEOUT, self.driver.wait(self.spec.session)).await;
        exit.expect("wait returns in time").expect("exit is reported")
    }

    pub(crate) async fn presence(&self) -> Option<SandboxPresence> {
        let found = self.driver.list().await.expect("list succeeds");
        found.into_iter().find(|found| found.session == self.spec.session).map(|found| found.presence)
    }

    /// Returns the state that a restarted server finds.
    pub(crate) async fn presence_after_reopen(&self) -> Option<SandboxPresence> {
        self.driver.reopened.presence(self.spec.session).await.expect("presence is reported")
    }

    /// Waits for a file in the workspace and reads it. The script moves the file into place, or its
    /// content does not matter.
    pub(crate) async fn wait_for_file(&self, name: &str) -> String {
        let path = self.spec.workspace.join(name);
        eventually(&format!("`{name}` appears"), async || path.exists()).await;
        read(path)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        read(self.spec.workspace.join(name))
    }

    pub(crate) fn read_home(&self, name: &str) -> String {
        read(self.spec.home.join(name))
    }

    pub(crate) fn remove_file(&self, name: &str) {
        fs::remove_file(self.spec.workspace.join(name)).expect("file exists");
    }
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Polls until the condition holds.
///
/// # Panics
/// Panics after [`TEST_TIMEOUT`].
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let polled = tokio::time::timeout(TEST_TIMEOUT, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    polled.await.unwrap_or_else(|_| panic!("{what}: not within {TEST_TIMEOUT:?}"));
}
