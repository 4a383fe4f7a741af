//! Promises of [`DriverMigration`]: which driver is called for which session.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;

use super::*;
use crate::{
    config::{SandboxLimits, SandboxNetwork},
    sandbox::RunDir,
};

/// Driver that records its calls and isolates nothing.
#[derive(Default)]
struct RecordingDriver {
    name: &'static str,
    location: Mutex<String>,
    sandboxes: Mutex<HashMap<SessionId, SandboxPresence>>,
    calls: Mutex<Vec<&'static str>>,
    is_unreachable: Mutex<bool>,
}

impl RecordingDriver {
    fn named(name: &'static str) -> Arc<RecordingDriver> {
        Arc::new(RecordingDriver { name, location: Mutex::new(name.to_owned()), ..RecordingDriver::default() })
    }

    fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().expect("lock is never poisoned: no holder panics"))
    }

    fn presence_of(&self, session: SessionId) -> Option<SandboxPresence> {
        self.sandboxes.lock().expect("lock is never poisoned: no holder panics").get(&session).copied()
    }

    fn set(&self, session: SessionId, presence: SandboxPresence) {
        self.sandboxes.lock().expect("lock is never poisoned: no holder panics").insert(session, presence);
    }

    fn record_call(&self, what: &'static str) -> Result<(), SandboxError> {
        if *self.is_unreachable.lock().expect("lock is never poisoned: no holder panics") {
            return Err(SandboxError::NoEngine {
                address: "unix:///engine".into(),
                detail: "connection refused".into(),
            });
        }
        self.calls.lock().expect("lock is never poisoned: no holder panics").push(what);
        Ok(())
    }
}

#[async_trait]
impl SandboxDriver for RecordingDriver {
    fn name(&self) -> &'static str {
        self.name
    }
    fn location(&self) -> String {
        self.location.lock().expect("lock is never poisoned: no holder panics").clone()
    }
    fn isolation(&self) -> String {
        format!("isolation of {}", self.name)
    }
    async fn check(&self) -> Result<(), SandboxError> {
        self.record_call("check")
    }
    async fn start(&self, spec: &SandboxSpec, _: ProgressCallback<'_>) -> Result<(), SandboxError> {
        self.record_call("start")?;
        self.set(spec.session, SandboxPresence::Running);
        Ok(())
    }
    async fn pause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.record_call("pause")?;
        self.set(session, SandboxPresence::Paused);
        Ok(())
    }
    async fn unpause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.record_call("unpause")?;
        self.set(session, SandboxPresence::Running);
        Ok(())
    }
    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        self.record_call("stop")?;
        self.set(session, SandboxPresence::Exited);
        Ok(())
    }
    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        self.record_call("remove")?;
        self.sandboxes.lock().expect("lock is never poisoned: no holder panics").remove(&session);
        Ok(())
    }
    async fn presence(&self, session: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        self.record_call("presence")?;
        Ok(self.presence_of(session))
    }
    async fn wait(&self, _: SessionId) -> Result<SandboxExit, SandboxError> {
        self.record_call("wait")?;
        Ok(SandboxExit { code: Some(0), out_of_memory: false, stderr_tail: self.name.to_owned() })
    }
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        self.record_call("list")?;
        let sandboxes = self.sandboxes.lock().expect("lock is never poisoned: no holder panics");
        Ok(sandboxes
            .iter()
            .map(|(&session, &presence)| FoundSandbox { session, driver: self.name, presence })
            .collect())
    }
    async fn logs(&self, _: SessionId, _: usize) -> Result<String, SandboxError> {
        self.record_call("logs")?;
        Ok(format!("log of {}", self.name))
    }
    async fn stats(&self, _: SessionId) -> Result<SandboxStats, SandboxError> {
        self.record_call("stats")?;
        Ok(SandboxStats::default())
    }
}

struct MigrationTestHarness {
    dir: tempfile::TempDir,
    docker: Arc<RecordingDriver>,
    process: Arc<RecordingDriver>,
    vm: Arc<RecordingDriver>,
    /// Number of attempts to connect to other drivers.
    connects: Arc<AtomicUsize>,
    session: SessionId,
}

impl MigrationTestHarness {
    fn new() -> MigrationTestHarness {
        MigrationTestHarness {
            dir: tempfile::tempdir().expect("temporary directory is created"),
            docker: RecordingDriver::named("docker"),
            process: RecordingDriver::named("process"),
            vm: RecordingDriver::named("vm"),
            connects: Arc::default(),
            session: SessionId::generate(),
        }
    }

    /// Opens the migration as a starting server does.
    fn choose(&self, driver: &str) -> DriverMigration {
        let all = [&self.docker, &self.process, &self.vm];
        let (current, others): (Vec<_>, Vec<_>) = all.into_iter().cloned().partition(|other| other.name == driver);
        let connect = |other: Arc<RecordingDriver>| {
            let (name, connects) = (other.name, self.connects.clone());
            let connect: ConnectDriver = Box::new(move || {
                let other = other.clone();
                connects.fetch_add(1, Ordering::Relaxed);
                async move { other.check().await.map(|()| other as Arc<dyn SandboxDriver>) }.boxed()
            });
            OtherDriver::new(name, connect)
        };
        let locations = SandboxLocations::below(self.dir.path().join("drivers"));
        DriverMigration::new(current[0].clone(), others.into_iter().map(connect).collect(), locations)
            .expect("location files are readable")
    }

    /// Returns a harness whose session was started by a server with the Docker driver.
    async fn in_docker() -> MigrationTestHarness {
        let harness = MigrationTestHarness::new();
        harness.start(&harness.choose("docker")).await.expect("start succeeds");
        assert_eq!(harness.docker.calls(), ["start"], "the other driver is not called");
        harness
    }

    async fn start(&self, sandbox: &dyn SandboxDriver) -> Result<(), SandboxError> {
        let spec = SandboxSpec {
            session: self.session,
            image: String::new(),
            run: RunDir::of(self.dir.path(), self.session),
            agent: PathBuf::new(),
            workspace: PathBuf::new(),
            home: PathBuf::new(),
            volumes: Vec::new(),
            uid: 1,
            gid: 1,
            limits: SandboxLimits { memory: bytesize::ByteSize(0), cpus: 0.0, pids: 0 },
            network: SandboxNetwork::None,
        };
        sandbox.start(&spec, &|_, _| {}).await
    }

    fn all_calls(&self) -> [Vec<&'static str>; 2] {
        [self.docker.calls(), self.process.calls()]
    }
}

#[tokio::test]
async fn running_sandbox_stays_with_its_driver() {
    let harness = MigrationTestHarness::in_docker().await;
    let (migration, id) = (harness.choose("process"), harness.session);
    assert_eq!((migration.name(), migration.isolation()), ("process", "isolation of process".to_owned()));
    assert_eq!(migration.presence(id).await.expect("state is reported"), Some(SandboxPresence::Running));
    harness.start(&migration).await.expect("a running sandbox is left alone");
    migration.pause(id).await.expect("pause succeeds");
    assert_eq!(harness.docker.presence_of(id), Some(SandboxPresence::Paused));
    harness.start(&migration).await.expect("a paused sandbox is left alone");
    migration.unpause(id).await.expect("unpause succeeds");
    assert_eq!(migration.wait(id).await.expect("exit is reported").stderr_tail, "docker");
    assert_eq!(migration.logs(id, 1).await.expect("log is readable"), "log of docker");
    assert_eq!(
        migration.list().await.expect("list succeeds"),
        [FoundSandbox { session: id, driver: "docker", presence: SandboxPresence::Running }]
    );
    assert_eq!(harness.process.calls(), ["list"], "the current driver does not touch the session");
    assert_eq!(harness.process.presence_of(id), None);
}

#[tokio::test]
async fn exited_sandbox_moves_to_current_driver() {
    let harness = MigrationTestHarness::in_docker().await;
    let (migration, id) = (harness.choose("process"), harness.session);
    migration.stop(id).await.expect("stop succeeds");
    harness.all_calls();
    harness.start(&migration).await.expect("start succeeds");
    assert_eq!(harness.all_calls(), [vec!["presence", "remove"], vec!["start"]]);
    assert_eq!(
        (harness.docker.presence_of(id), harness.process.presence_of(id)),
        (None, Some(SandboxPresence::Running))
    );

    // Later servers find the session at the same location, in both directions.
    for (driver, others) in [("process", "docker"), ("docker", "process")] {
        let migration = harness.choose(driver);
        harness.all_calls();
        assert_eq!(
            migration.presence(id).await.expect("state is reported"),
            Some(SandboxPresence::Running),
            "{driver}, not {others}"
        );
        assert_eq!(harness.docker.calls(), [] as [&str; 0]);
    }
}

#[tokio::test]
async fn remove_deletes_the_noted_location() {
    let harness = MigrationTestHarness::in_docker().await;
    let (migration, id) = (harness.choose("process"), harness.session);
    migration.remove(id).await.expect("remove succeeds");
    assert_eq!(harness.docker.presence_of(id), None);
    harness.all_calls();
    for migration in [migration, harness.choose("process")] {
        assert_eq!(migration.presence(id).await.expect("state is reported"), None);
        assert_eq!(migration.list().await.expect("list succeeds"), []);
    }
    assert_eq!(harness.docker.calls(), [] as [&str; 0], "a removed session needs no engine");
}

#[tokio::test]
async fn unreachable_previous_driver_blocks_only_its_sessions() {
    let mut harness = MigrationTestHarness::in_docker().await;
    *harness.docker.is_unreachable.lock().expect("lock is never poisoned: no holder panics") = true;
    let migration = harness.choose("process");
    for result in [
        migration.presence(harness.session).await.map(drop),
        harness.start(&migration).await,
        migration.stop(harness.session).await,
        migration.remove(harness.session).await,
    ] {
        let error = result.expect_err("sandbox may still run").to_string();
        let location_file = harness.dir.path().join("drivers/docker").join(harness.session.to_string());
        assert!(error.contains("`docker`") && error.contains("connection refused"), "{error}");
        assert!(error.contains(location_file.to_str().expect("path is UTF-8")) && location_file.exists(), "{error}");
        assert!(!error.contains("--sandbox"), "{error}");
    }
    assert_eq!(harness.connects.load(Ordering::Relaxed), 1, "all calls share one attempt for a while");
    assert_eq!(migration.list().await.expect("list of the current driver succeeds"), []);
    let previous_session = std::mem::replace(&mut harness.session, SessionId::generate());
    harness.start(&migration).await.expect("start of another session succeeds");

    *harness.docker.is_unreachable.lock().expect("lock is never poisoned: no holder panics") = false;
    migration.others[0]
        .last
        .lock()
        .expect("lock is never poisoned: no holder panics")
        .as_mut()
        .expect("an attempt was made")
        .started_at -= RETRY_AFTER;
    assert_eq!(
        migration.presence(previous_session).await.expect("driver is reachable again"),
        Some(SandboxPresence::Running)
    );
}

#[tokio::test]
async fn sessions_of_several_drivers_stay_where_they_are() {
    let mut harness = MigrationTestHarness::in_docker().await;
    let in_docker = std::mem::replace(&mut harness.session, SessionId::generate());
    let in_vm = harness.session;
    harness.start(&harness.choose("vm")).await.expect("start succeeds");
    let migration = harness.choose("process");
    harness.all_calls();
    harness.vm.calls();

    for (session, driver) in [(in_docker, "docker"), (in_vm, "vm")] {
        assert_eq!(migration.logs(session, 1).await.expect("log is readable"), format!("log of {driver}"));
    }
    let mut found = migration.list().await.expect("list succeeds");
    found.sort_by_key(|found| found.driver);
    assert_eq!(
        found,
        [(in_docker, "docker"), (in_vm, "vm")].map(|(session, driver)| FoundSandbox {
            session,
            driver,
            presence: SandboxPresence::Running
        })
    );
    assert_eq!(harness.vm.calls(), ["check", "logs", "list"], "each driver is called for its own session");

    // An unreachable driver blocks its own sessions only.
    *harness.docker.is_unreachable.lock().expect("lock is never poisoned: no holder panics") = true;
    let migration = harness.choose("process");
    migration.presence(in_docker).await.expect_err("sandbox may still run");
    let found = migration.list().await.expect("list succeeds");
    assert_eq!(found.iter().map(|found| found.session).collect::<Vec<_>>(), [in_vm]);
    migration.stop(in_vm).await.expect("stop succeeds");
    harness.start(&migration).await.expect("start succeeds");
    assert_eq!(
        (harness.vm.presence_of(in_vm), harness.process.presence_of(in_vm)),
        (None, Some(SandboxPresence::Running))
    );
    assert_eq!(harness.docker.presence_of(in_docker), Some(SandboxPresence::Running));
}

/// The error names this way out.
#[tokio::test]
async fn session_without_location_file_starts_in_current_driver() {
    let harness = MigrationTestHarness::in_docker().await;
    *harness.docker.is_unreachable.lock().expect("lock is never poisoned: no holder panics") = true;
    std::fs::remove_file(harness.dir.path().join("drivers/docker").join(harness.session.to_string()))
        .expect("file exists");
    harness.start(&harness.choose("process")).await.expect("start succeeds");
    assert_eq!(harness.process.presence_of(harness.session), Some(SandboxPresence::Running));
}

/// An engine reports its own containers and none of another engine.
#[tokio::test]
async fn another_engine_is_another_location() {
    let harness = MigrationTestHarness::in_docker().await;
    *harness.docker.location.lock().expect("lock is never poisoned: no holder panics") = "docker-elsewhere".to_owned();
    for driver in ["docker", "process"] {
        let error = harness.start(&harness.choose(driver)).await.expect_err("sandbox may still run").to_string();
        assert!(error.contains("at `docker`") && error.contains("`docker-elsewhere`"), "{error}");
    }
    assert_eq!(harness.process.presence_of(harness.session), None);
}

#[tokio::test]
async fn sandbox_without_location_file_gets_one() {
    let harness = MigrationTestHarness::new();
    harness.docker.set(harness.session, SandboxPresence::Running);
    assert_eq!(
        harness.choose("docker").presence(harness.session).await.expect("state is reported"),
        Some(SandboxPresence::Running)
    );
    let migration = harness.choose("process");
    assert_eq!(migration.presence(harness.session).await.expect("state is reported"), Some(SandboxPresence::Running));
    assert_eq!(harness.process.calls(), [] as [&str; 0]);
}

#[tokio::test]
async fn unwritable_location_file_is_reported_with_the_way_out() {
    let harness = MigrationTestHarness::in_docker().await;
    let location_file = harness.dir.path().join("drivers/docker").join(harness.session.to_string());
    fs::remove_file(&location_file).expect("file exists");
    fs::create_dir(&location_file).expect("directory is created");
    let error = harness
        .choose("docker")
        .remove(harness.session)
        .await
        .expect_err("directory blocks the location file")
        .to_string();
    assert!(error.contains(&format!("`{}`", location_file.display())) && error.contains("remove it"), "{error}");
}
