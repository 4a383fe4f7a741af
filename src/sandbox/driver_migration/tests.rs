//! Every promise here is one of [`Succession`]: who is asked about which session.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;

use super::*;
use crate::sandbox::{Limits, Network, RunDir};

/// Keeps book of what it was told, and has no walls.
#[derive(Default)]
struct Bookkeeper {
    name: &'static str,
    place: Mutex<String>,
    has: Mutex<HashMap<SessionId, Presence>>,
    told: Mutex<Vec<&'static str>>,
    is_away: Mutex<bool>,
}

impl Bookkeeper {
    fn named(name: &'static str) -> Arc<Bookkeeper> {
        Arc::new(Bookkeeper { name, place: Mutex::new(name.to_owned()), ..Bookkeeper::default() })
    }

    fn told(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.told.lock().expect("nobody panics here"))
    }

    fn has(&self, session: SessionId) -> Option<Presence> {
        self.has.lock().expect("nobody panics here").get(&session).copied()
    }

    fn set(&self, session: SessionId, presence: Presence) {
        self.has.lock().expect("nobody panics here").insert(session, presence);
    }

    fn take(&self, what: &'static str) -> Result<(), SandboxError> {
        if *self.is_away.lock().expect("nobody panics here") {
            return Err(SandboxError::NoEngine { address: "unix:///engine".into(), detail: "nobody listens".into() });
        }
        self.told.lock().expect("nobody panics here").push(what);
        Ok(())
    }
}

#[async_trait]
impl Sandbox for Bookkeeper {
    fn name(&self) -> &'static str {
        self.name
    }
    fn place(&self) -> String {
        self.place.lock().expect("nobody panics here").clone()
    }
    fn isolation(&self) -> String {
        format!("the wall of {}", self.name)
    }
    async fn check(&self) -> Result<(), SandboxError> {
        self.take("check")
    }
    async fn start(&self, spec: &Spec, _: Progress<'_>) -> Result<(), SandboxError> {
        self.take("start")?;
        self.set(spec.session, Presence::Running);
        Ok(())
    }
    async fn freeze(&self, session: SessionId) -> Result<(), SandboxError> {
        self.take("freeze")?;
        self.set(session, Presence::Frozen);
        Ok(())
    }
    async fn thaw(&self, session: SessionId) -> Result<(), SandboxError> {
        self.take("thaw")?;
        self.set(session, Presence::Running);
        Ok(())
    }
    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        self.take("stop")?;
        self.set(session, Presence::Exited);
        Ok(())
    }
    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        self.take("remove")?;
        self.has.lock().expect("nobody panics here").remove(&session);
        Ok(())
    }
    async fn presence(&self, session: SessionId) -> Result<Option<Presence>, SandboxError> {
        self.take("presence")?;
        Ok(self.has(session))
    }
    async fn wait(&self, _: SessionId) -> Result<Exit, SandboxError> {
        self.take("wait")?;
        Ok(Exit { code: Some(0), out_of_memory: false, stderr_tail: self.name.to_owned() })
    }
    async fn list(&self) -> Result<Vec<Found>, SandboxError> {
        self.take("list")?;
        let has = self.has.lock().expect("nobody panics here");
        Ok(has.iter().map(|(&session, &presence)| Found { session, driver: self.name, presence }).collect())
    }
    async fn logs(&self, _: SessionId, _: usize) -> Result<String, SandboxError> {
        self.take("logs")?;
        Ok(format!("the log of {}", self.name))
    }
    async fn stats(&self, _: SessionId) -> Result<Stats, SandboxError> {
        self.take("stats")?;
        Ok(Stats::default())
    }
}

struct House {
    dir: tempfile::TempDir,
    docker: Arc<Bookkeeper>,
    process: Arc<Bookkeeper>,
    /// How often the former driver was looked for.
    reaches: Arc<AtomicUsize>,
    session: SessionId,
}

impl House {
    fn new() -> House {
        House {
            dir: tempfile::tempdir().expect("a temporary directory"),
            docker: Bookkeeper::named("docker"),
            process: Bookkeeper::named("process"),
            reaches: Arc::default(),
            session: SessionId::generate(),
        }
    }

    /// As a server does that starts.
    fn choose(&self, driver: &str) -> Succession {
        let (chosen, former) = match driver {
            "docker" => (self.docker.clone(), self.process.clone()),
            _ => (self.process.clone(), self.docker.clone()),
        };
        let reaches = self.reaches.clone();
        let reach: Reach = Box::new(move || {
            let former = former.clone();
            reaches.fetch_add(1, Ordering::Relaxed);
            async move { former.check().await.map(|()| former as Arc<dyn Sandbox>) }.boxed()
        });
        let traces = Traces::below(self.dir.path().join("drivers"));
        Succession::new(chosen, reach, traces).expect("what was noted can be read")
    }

    /// A session that was started under a server that had chosen Docker.
    async fn in_docker() -> House {
        let house = House::new();
        house.start(&house.choose("docker")).await.expect("it starts");
        assert_eq!(house.docker.told(), ["start"], "nobody else is asked");
        house
    }

    async fn start(&self, sandbox: &dyn Sandbox) -> Result<(), SandboxError> {
        let spec = Spec {
            session: self.session,
            image: String::new(),
            run: RunDir::of(self.dir.path(), self.session),
            agent: PathBuf::new(),
            workspace: PathBuf::new(),
            home: PathBuf::new(),
            volumes: Vec::new(),
            uid: 1,
            gid: 1,
            limits: Limits { memory_bytes: 0, cpus: 0.0, pids: 0 },
            network: Network::None,
        };
        sandbox.start(&spec, &|_, _| {}).await
    }

    fn all_told(&self) -> [Vec<&'static str>; 2] {
        [self.docker.told(), self.process.told()]
    }
}

#[tokio::test]
async fn what_runs_goes_on_where_it_runs() {
    let house = House::in_docker().await;
    let (walls, id) = (house.choose("process"), house.session);
    assert_eq!((walls.name(), walls.isolation()), ("process", "the wall of process".to_owned()));
    assert_eq!(walls.presence(id).await.expect("it is told"), Some(Presence::Running));
    house.start(&walls).await.expect("one that runs is left alone");
    walls.freeze(id).await.expect("it is frozen");
    assert_eq!(house.docker.has(id), Some(Presence::Frozen));
    house.start(&walls).await.expect("so is one that is frozen");
    walls.thaw(id).await.expect("it is thawed");
    assert_eq!(walls.wait(id).await.expect("it is waited for").stderr_tail, "docker");
    assert_eq!(walls.logs(id, 1).await.expect("it has one"), "the log of docker");
    assert_eq!(
        walls.list().await.expect("it is listed"),
        [Found { session: id, driver: "docker", presence: Presence::Running }]
    );
    assert_eq!(house.process.told(), ["list"], "the other never has to do with it");
    assert_eq!(house.process.has(id), None);
}

#[tokio::test]
async fn what_has_ended_starts_in_the_chosen_one_and_leaves_nothing_behind() {
    let house = House::in_docker().await;
    let (walls, id) = (house.choose("process"), house.session);
    walls.stop(id).await.expect("it is stopped");
    house.all_told();
    house.start(&walls).await.expect("it starts");
    assert_eq!(house.all_told(), [vec!["presence", "remove"], vec!["start"]]);
    assert_eq!((house.docker.has(id), house.process.has(id)), (None, Some(Presence::Running)));

    // And so it stays for the servers to come, in both directions.
    for (driver, others) in [("process", "docker"), ("docker", "process")] {
        let walls = house.choose(driver);
        house.all_told();
        assert_eq!(walls.presence(id).await.expect("it is told"), Some(Presence::Running), "{driver}, not {others}");
        assert_eq!(house.docker.told(), [] as [&str; 0]);
    }
}

#[tokio::test]
async fn a_removed_one_is_forgotten() {
    let house = House::in_docker().await;
    let (walls, id) = (house.choose("process"), house.session);
    walls.remove(id).await.expect("it is removed");
    assert_eq!(house.docker.has(id), None);
    house.all_told();
    for walls in [walls, house.choose("process")] {
        assert_eq!(walls.presence(id).await.expect("it is told"), None);
        assert_eq!(walls.list().await.expect("they are listed"), []);
    }
    assert_eq!(house.docker.told(), [] as [&str; 0], "nobody asks for an engine any more");
}

#[tokio::test]
async fn while_the_former_is_away_its_sessions_do_not_start_and_others_do() {
    let mut house = House::in_docker().await;
    *house.docker.is_away.lock().expect("nobody panics here") = true;
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
    assert_eq!(house.reaches.load(Ordering::Relaxed), 1, "one attempt does for all, and for a while");
    assert_eq!(walls.list().await.expect("the chosen one's are"), []);
    let old = std::mem::replace(&mut house.session, SessionId::generate());
    house.start(&walls).await.expect("another one starts");

    *house.docker.is_away.lock().expect("nobody panics here") = false;
    walls.former.last.lock().expect("nobody panics here").as_mut().expect("there was one").began -= TRIED_AGAIN;
    assert_eq!(walls.presence(old).await.expect("it is back"), Some(Presence::Running));
}

/// What the way out of the error says.
#[tokio::test]
async fn without_its_trace_it_starts_in_the_chosen_one() {
    let house = House::in_docker().await;
    *house.docker.is_away.lock().expect("nobody panics here") = true;
    std::fs::remove_file(house.dir.path().join("drivers/docker").join(house.session.to_string())).expect("it is there");
    house.start(&house.choose("process")).await.expect("it starts");
    assert_eq!(house.process.has(house.session), Some(Presence::Running));
}

/// It answers for its own containers, and knows nothing of another engine's.
#[tokio::test]
async fn another_engine_is_another_place() {
    let house = House::in_docker().await;
    *house.docker.place.lock().expect("nobody panics here") = "docker-elsewhere".to_owned();
    for driver in ["docker", "process"] {
        let why = house.start(&house.choose(driver)).await.expect_err("it may run yet").to_string();
        assert!(why.contains("at `docker`") && why.contains("`docker-elsewhere`"), "{why}");
    }
    assert_eq!(house.process.has(house.session), None);
}

#[tokio::test]
async fn what_was_started_before_there_were_traces_gets_one() {
    let house = House::new();
    house.docker.set(house.session, Presence::Running);
    assert_eq!(house.choose("docker").presence(house.session).await.expect("it is told"), Some(Presence::Running));
    let walls = house.choose("process");
    assert_eq!(walls.presence(house.session).await.expect("it is told"), Some(Presence::Running));
    assert_eq!(house.process.told(), [] as [&str; 0]);
}

#[tokio::test]
async fn what_cannot_be_noted_is_named_with_the_way_out() {
    let house = House::in_docker().await;
    let trace = house.dir.path().join("drivers/docker").join(house.session.to_string());
    fs::remove_file(&trace).expect("it is there");
    fs::create_dir(&trace).expect("it is made");
    let why = house.choose("docker").remove(house.session).await.expect_err("it is in the way").to_string();
    assert!(why.contains(&format!("`{}`", trace.display())) && why.contains("remove it"), "{why}");
}
