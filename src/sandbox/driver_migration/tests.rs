//! Every promise here is one of [`Succession`]: who is asked about which session.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;

use super::*;
use crate::sandbox::{RunDir, SandboxLimits, SandboxNetwork};

/// Keeps book of what it was told, and has no walls.
#[derive(Default)]
struct RecordingDriver {
    name: &'static str,
    place: Mutex<String>,
    sandboxes: Mutex<HashMap<SessionId, SandboxPresence>>,
    calls: Mutex<Vec<&'static str>>,
    is_unreachable: Mutex<bool>,
}

impl RecordingDriver {
    fn named(name: &'static str) -> Arc<RecordingDriver> {
        Arc::new(RecordingDriver { name, place: Mutex::new(name.to_owned()), ..RecordingDriver::default() })
    }

    fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().expect("nobody panics here"))
    }

    fn presence_of(&self, session: SessionId) -> Option<SandboxPresence> {
        self.sandboxes.lock().expect("nobody panics here").get(&session).copied()
    }

    fn set(&self, session: SessionId, presence: SandboxPresence) {
        self.sandboxes.lock().expect("nobody panics here").insert(session, presence);
    }

    fn record_call(&self, what: &'static str) -> Result<(), SandboxError> {
        if *self.is_unreachable.lock().expect("nobody panics here") {
            return Err(SandboxError::NoEngine { address: "unix:///engine".into(), detail: "nobody listens".into() });
        }
        self.calls.lock().expect("nobody panics here").push(what);
        Ok(())
    }
}

#[async_trait]
impl SandboxDriver for RecordingDriver {
    fn name(&self) -> &'static str {
        self.name
    }
    fn location(&self) -> String {
        self.place.lock().expect("nobody panics here").clone()
    }
    fn isolation(&self) -> String {
        format!("the wall of {}", self.name)
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
        self.record_call("freeze")?;
        self.set(session, SandboxPresence::Paused);
        Ok(())
    }
    async fn unpause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.record_call("thaw")?;
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
        self.sandboxes.lock().expect("nobody panics here").remove(&session);
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
        let has = self.sandboxes.lock().expect("nobody panics here");
        Ok(has.iter().map(|(&session, &presence)| FoundSandbox { session, driver: self.name, presence }).collect())
    }
    async fn logs(&self, _: SessionId, _: usize) -> Result<String, SandboxError> {
        self.record_call("logs")?;
        Ok(format!("the log of {}", self.name))
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
    /// How often the former driver was looked for.
    connects: Arc<AtomicUsize>,
    session: SessionId,
}

impl MigrationTestHarness {
    fn new() -> MigrationTestHarness {
        MigrationTestHarness {
            dir: tempfile::tempdir().expect("a temporary directory"),
            docker: RecordingDriver::named("docker"),
            process: RecordingDriver::named("process"),
            connects: Arc::default(),
            session: SessionId::generate(),
        }
    }

    /// As a server does that starts.
    fn choose(&self, driver: &str) -> DriverMigration {
        let (chosen, former) = match driver {
            "docker" => (self.docker.clone(), self.process.clone()),
            _ => (self.process.clone(), self.docker.clone()),
        };
        let reaches = self.connects.clone();
        let reach: ConnectPrevious = Box::new(move || {
            let former = former.clone();
            reaches.fetch_add(1, Ordering::Relaxed);
            async move { former.check().await.map(|()| former as Arc<dyn SandboxDriver>) }.boxed()
        });
        let traces = SandboxLocations::below(self.dir.path().join("drivers"));
        DriverMigration::new(chosen, reach, traces).expect("what was noted can be read")
    }

    /// A session that was started under a server that had chosen Docker.
    async fn in_docker() -> MigrationTestHarness {
        let house = MigrationTestHarness::new();
        house.start(&house.choose("docker")).await.expect("it starts");
        assert_eq!(house.docker.calls(), ["start"], "nobody else is asked");
        house
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
            limits: SandboxLimits { memory_bytes: 0, cpus: 0.0, pids: 0 },
            network: SandboxNetwork::None,
        };
        sandbox.start(&spec, &|_, _| {}).await
    }

    fn all_calls(&self) -> [Vec<&'static str>; 2] {
        [self.docker.calls(), self.process.calls()]
    }
}

#[tokio::test]
async fn what_runs_goes_on_where_it_runs() {
    let house = MigrationTestHarness::in_docker().await;
    let (walls, id) = (house.choose("process"), house.session);
    assert_eq!((walls.name(), walls.isolation()), ("process", "the wall of process".to_owned()));
    assert_eq!(walls.presence(id).await.expect("it is told"), Some(SandboxPresence::Running));
    house.start(&walls).await.expect("one that runs is left alone");
    walls.pause(id).await.expect("it is frozen");
    assert_eq!(house.docker.presence_of(id), Some(SandboxPresence::Paused));
    house.start(&walls).await.expect("so is one that is frozen");
    walls.unpause(id).await.expect("it is thawed");
    assert_eq!(walls.wait(id).await.expect("it is waited for").stderr_tail, "docker");
    assert_eq!(walls.logs(id, 1).await.expect("it has one"), "the log of docker");
    assert_eq!(
        walls.list().await.expect("it is listed"),
        [FoundSandbox { session: id, driver: "docker", presence: SandboxPresence::Running }]
    );
    assert_eq!(house.process.calls(), ["list"], "the other never has to do with it");
    assert_eq!(house.process.presence_of(id), None);
}

#[tokio::test]
async fn what_has_ended_starts_in_the_chosen_one_and_leaves_nothing_behind() {
    let house = MigrationTestHarness::in_docker().await;
    let (walls, id) = (house.choose("process"), house.session);
    walls.stop(id).await.expect("it is stopped");
    house.all_calls();
    house.start(&walls).await.expect("it starts");
    assert_eq!(house.all_calls(), [vec!["presence", "remove"], vec!["start"]]);
    assert_eq!((house.docker.presence_of(id), house.process.presence_of(id)), (None, Some(SandboxPresence::Running)));

    // And so it stays for the servers to come, in both directions.
    for (driver, others) in [("process", "docker"), ("docker", "process")] {
        let walls = house.choose(driver);
        house.all_calls();
        assert_eq!(
            walls.presence(id).await.expect("it is told"),
            Some(SandboxPresence::Running),
            "{driver}, not {others}"
        );
        assert_eq!(house.docker.calls(), [] as [&str; 0]);
    }
}

#[tokio::test]
async fn a_removed_one_is_forgotten() {
    let house = MigrationTestHarness::in_docker().await;
    let (walls, id) = (house.choose("process"), house.session);
    walls.remove(id).await.expect("it is removed");
    assert_eq!(house.docker.presence_of(id), None);
    house.all_calls();
    for walls in [walls, house.choose("process")] {
        assert_eq!(walls.presence(id).await.expect("it is told"), None);
        assert_eq!(walls.list().await.expect("they are listed"), []);
    }
    assert_eq!(house.docker.calls(), [] as [&str; 0], "nobody asks for an engine any more");
}

#[tokio::test]
async fn while_the_former_is_away_its_sessions_do_not_start_and_others_do() {
    let mut house = MigrationTestHarness::in_docker().await;
    *house.docker.is_unreachable.lock().expect("nobody panics here") = true;
    let walls = house.choose("process");
    for refused in [
        walls.presence(house.session).await.map(drop),
        house.start(&walls).await,
        walls.stop(house.session).await,
        walls.remove(house.session).await,
    ] {
        let why = refused.expect_err("it may run yet").to_string();
        let trace = house.dir.path().join("drivers/docker").join(house.session.to_string());
        assert!(why.contains("`docker`") && why.contains("nobody listens"), "{why}");
        assert!(why.contains(trace.to_str().expect("it is text")) && trace.exists(), "{why}");
        assert!(!why.contains("--sandbox"), "{why}");
    }
    assert_eq!(house.connects.load(Ordering::Relaxed), 1, "one attempt does for all, and for a while");
    assert_eq!(walls.list().await.expect("the chosen one's are"), []);
    let old = std::mem::replace(&mut house.session, SessionId::generate());
    house.start(&walls).await.expect("another one starts");

    *house.docker.is_unreachable.lock().expect("nobody panics here") = false;
    walls.previous.last.lock().expect("nobody panics here").as_mut().expect("there was one").started_at -= RETRY_AFTER;
    assert_eq!(walls.presence(old).await.expect("it is back"), Some(SandboxPresence::Running));
}

/// What the way out of the error says.
#[tokio::test]
async fn without_its_trace_it_starts_in_the_chosen_one() {
    let house = MigrationTestHarness::in_docker().await;
    *house.docker.is_unreachable.lock().expect("nobody panics here") = true;
    std::fs::remove_file(house.dir.path().join("drivers/docker").join(house.session.to_string())).expect("it is there");
    house.start(&house.choose("process")).await.expect("it starts");
    assert_eq!(house.process.presence_of(house.session), Some(SandboxPresence::Running));
}

/// It answers for its own containers, and knows nothing of another engine's.
#[tokio::test]
async fn another_engine_is_another_place() {
    let house = MigrationTestHarness::in_docker().await;
    *house.docker.place.lock().expect("nobody panics here") = "docker-elsewhere".to_owned();
    for driver in ["docker", "process"] {
        let why = house.start(&house.choose(driver)).await.expect_err("it may run yet").to_string();
        assert!(why.contains("at `docker`") && why.contains("`docker-elsewhere`"), "{why}");
    }
    assert_eq!(house.process.presence_of(house.session), None);
}

#[tokio::test]
async fn what_was_started_before_there_were_traces_gets_one() {
    let house = MigrationTestHarness::new();
    house.docker.set(house.session, SandboxPresence::Running);
    assert_eq!(
        house.choose("docker").presence(house.session).await.expect("it is told"),
        Some(SandboxPresence::Running)
    );
    let walls = house.choose("process");
    assert_eq!(walls.presence(house.session).await.expect("it is told"), Some(SandboxPresence::Running));
    assert_eq!(house.process.calls(), [] as [&str; 0]);
}

#[tokio::test]
async fn what_cannot_be_noted_is_named_with_the_way_out() {
    let house = MigrationTestHarness::in_docker().await;
    let trace = house.dir.path().join("drivers/docker").join(house.session.to_string());
    fs::remove_file(&trace).expect("it is there");
    fs::create_dir(&trace).expect("it is made");
    let why = house.choose("docker").remove(house.session).await.expect_err("it is in the way").to_string();
    assert!(why.contains(&format!("`{}`", trace.display())) && why.contains("remove it"), "{why}");
}
