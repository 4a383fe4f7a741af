//! Where a driver is put to the test: a session of its own for each promise, cleaned up however the test ends.

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

use super::super::{RunDir, SandboxDriver, SandboxExit, SandboxLimits, SandboxNetwork, SandboxPresence, SandboxSpec};
use crate::store::SessionId;

/// How long a test waits for what must come. Reached only by a test that fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A driver under test.
pub(crate) struct DriverFixture {
    pub(crate) sandbox: Arc<dyn SandboxDriver>,
    /// The same kind, opened once more, as a server does after its restart.
    pub(crate) reopened: Arc<dyn SandboxDriver>,
    /// Has `sh` and the usual commands.
    pub(crate) image: String,
}

impl Deref for DriverFixture {
    type Target = dyn SandboxDriver;

    fn deref(&self) -> &Self::Target {
        &*self.sandbox
    }
}

impl DriverFixture {
    /// A session whose agent is the `sh` script, not started yet. Nothing of it is left afterwards, also where `test` panics.
    pub(crate) async fn with_sandbox(&self, script: &str, test: impl AsyncFnOnce(&SandboxFixture<'_>)) {
        let room = SandboxFixture::prepare(self, script);
        let result = AssertUnwindSafe(test(&room)).catch_unwind().await;
        let removed = self.reopened.remove(room.spec.session).await;
        if let Err(panic) = result {
            resume_unwind(panic);
        }
        removed.expect("nothing is left");
    }
}

/// One session on the bench.
pub(crate) struct SandboxFixture<'a> {
    driver: &'a DriverFixture,
    pub(crate) spec: SandboxSpec,
    /// Stands for the server's data directory.
    data: TempDir,
}

impl<'a> SandboxFixture<'a> {
    fn prepare(driver: &'a DriverFixture, script: &str) -> SandboxFixture<'a> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = SessionId::generate();
        let root = rustix::process::geteuid().is_root();
        let (uid, gid) = match root {
            true => (10_001, 10_001),
            false => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        };
        let owned = |name: &str| {
            let path = data.path().join(name);
            fs::create_dir(&path).expect("it is made");
            if root {
                chown(&path, Some(uid), Some(gid)).expect("it is given away");
            }
            path
        };
        let run = RunDir::of(&data.path().join("run"), session);
        run.prepare(uid, gid).expect("the run directory is made");
        let agent = data.path().join("agent.sh");
        fs::write(&agent, format!("#!/bin/sh\n{script}\n")).expect("the script is written");
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("it may be run");
        if root {
            // As where the server runs as the same user: only the mounts keep the sandbox from writing here.
            for path in [&agent, run.root(), &run.gateway()] {
                chown(path, Some(uid), Some(gid)).expect("it is given away");
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
            limits: SandboxLimits { memory_bytes: 128 << 20, cpus: 1.5, pids: 64 },
            network: SandboxNetwork::None,
        };
        SandboxFixture { driver, spec, data }
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    pub(crate) async fn start(&self) {
        self.driver.start(&self.spec, &|_, _| ()).await.expect("it starts");
    }

    pub(crate) async fn exit(&self) -> SandboxExit {
        let exit = tokio::time::timeout(TEST_TIMEOUT, self.driver.wait(self.spec.session)).await;
        exit.expect("its end is noticed").expect("its end is told")
    }

    pub(crate) async fn presence(&self) -> Option<SandboxPresence> {
        let found = self.driver.list().await.expect("they are listed");
        found.into_iter().find(|found| found.session == self.spec.session).map(|found| found.presence)
    }

    /// How a server that starts anew finds it.
    pub(crate) async fn presence_after_reopen(&self) -> Option<SandboxPresence> {
        self.driver.reopened.presence(self.spec.session).await.expect("it is looked for")
    }

    /// Waits for a file in the workspace and reads it. The script moves it there whole, or its content does not matter.
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
        fs::remove_file(self.spec.workspace.join(name)).expect("it was there");
    }
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Asks until it is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asked = tokio::time::timeout(TEST_TIMEOUT, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    asked.await.unwrap_or_else(|_| panic!("{what}: not within {TEST_TIMEOUT:?}"));
}
