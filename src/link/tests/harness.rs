//! A sandbox that does as it is told, an agent that never says a word, and a session whose links speak with both.

use std::{sync::Mutex as Lock, time::Duration};

use async_trait::async_trait;
use greenroom_protocol::{
    link::{Api, Settings},
    observation::{Phase, State},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
    time::timeout,
};

use super::super::*;
use crate::{
    gateway::GatewayOptions,
    sandbox::{Exit, Found, Presence, Progress, Spec, Stats},
    session::{
        self,
        messages::{Fell, Look, orders::UnderWay},
    },
    store::{Record, contract::record, memory::MemoryStore},
};

/// Notes what it is told, and does it when it may.
#[derive(Default)]
pub(super) struct Obedient {
    told: Lock<Vec<&'static str>>,
    /// The next order fails so.
    fails: Lock<Option<SandboxError>>,
    /// What takes its time until it may end.
    pub(super) held: watch::Sender<Option<&'static str>>,
    presence: Lock<Option<Presence>>,
    /// Why it is not told how it stands.
    silence: Lock<Option<SandboxError>>,
    /// To wait for its end panics.
    pub(super) is_faulty: AtomicBool,
    /// How it ended, once it has.
    exit: watch::Sender<Option<Exit>>,
}

impl Obedient {
    async fn take(&self, order: &'static str) -> Result<(), SandboxError> {
        self.told.lock().expect("nobody panics here").push(order);
        let _ = self.held.subscribe().wait_for(|held| *held != Some(order)).await;
        self.fails.lock().expect("nobody panics here").take().map_or(Ok(()), Err)
    }

    pub(super) fn told(&self) -> Vec<&'static str> {
        self.told.lock().expect("nobody panics here").iter().filter(|order| **order != "thaw").copied().collect()
    }

    pub(super) fn stands(&self, presence: Presence) {
        *self.presence.lock().expect("nobody panics here") = Some(presence);
    }

    pub(super) fn is_silent(&self, why: Option<SandboxError>) {
        *self.silence.lock().expect("nobody panics here") = why;
    }

    /// Ends it with code 3.
    pub(super) fn end(&self) {
        let exit = Exit { code: Some(3), out_of_memory: false, stderr_tail: "no words left".to_owned() };
        self.exit.send_replace(Some(exit));
    }

    pub(super) fn fail(&self, how: SandboxError) {
        *self.fails.lock().expect("nobody panics here") = Some(how);
    }

    pub(super) async fn until(&self, told: &[&'static str]) {
        let so = timeout(Duration::from_secs(10), async {
            while self.told() != told {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        so.await.unwrap_or_else(|_| panic!("{:?} and not {told:?}", self.told()));
    }
}

#[async_trait]
impl Sandbox for Obedient {
    fn name(&self) -> &'static str {
        "obedient"
    }
    fn isolation(&self) -> String {
        String::new()
    }
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn start(&self, _: &Spec, _: Progress<'_>) -> Result<(), SandboxError> {
        self.take("start").await
    }
    async fn fetch(&self, _: &str, progress: Progress<'_>) -> Result<(), SandboxError> {
        progress(Phase::Pulling, "1 of 2 MB");
        self.take("fetch").await
    }
    async fn freeze(&self, _: SessionId) -> Result<(), SandboxError> {
        self.take("freeze").await
    }
    async fn thaw(&self, _: SessionId) -> Result<(), SandboxError> {
        self.take("thaw").await
    }
    async fn stop(&self, _: SessionId) -> Result<(), SandboxError> {
        self.take("stop").await
    }
    async fn remove(&self, _: SessionId) -> Result<(), SandboxError> {
        self.take("remove").await
    }
    async fn presence(&self, _: SessionId) -> Result<Option<Presence>, SandboxError> {
        match self.silence.lock().expect("nobody panics here").clone() {
            Some(why) => Err(why),
            None => Ok(*self.presence.lock().expect("nobody panics here")),
        }
    }
    async fn wait(&self, _: SessionId) -> Result<Exit, SandboxError> {
        assert!(!self.is_faulty.load(Ordering::Relaxed), "a fault");
        let exit = self.exit.subscribe().wait_for(Option::is_some).await.expect("it lives").clone();
        Ok(exit.expect("it is some"))
    }
    async fn list(&self) -> Result<Vec<Found>, SandboxError> {
        Ok(Vec::new())
    }
    async fn logs(&self, _: SessionId, _: usize) -> Result<String, SandboxError> {
        Ok(String::new())
    }
    async fn stats(&self, _: SessionId) -> Result<Stats, SandboxError> {
        Ok(Stats::default())
    }
}

/// Hears orders, and that a session fell, and does nothing.
struct Deaf;

impl Actor for Deaf {
    type Context = Context<Deaf>;
}

macro_rules! hears {
    ($($message:ty),+) => {$(
        impl Handler<$message> for Deaf {
            type Result = ();
            fn handle(&mut self, _: $message, _: &mut Context<Deaf>) {}
        }
    )+};
}
hears!(Raise, Deliver, Cut, Freeze, Thaw, Kill, Fell);

/// How many sandboxes start at a time.
pub(super) const PLACES: usize = 8;

pub(super) struct House {
    _dir: tempfile::TempDir,
    pub(super) sandbox: Arc<Obedient>,
    pub(super) parts: Arc<Parts>,
    pub(super) id: SessionId,
    /// Whom the links tell. What it orders itself nobody hears.
    pub(super) session: Addr<Session>,
    allowance: Arc<Allowance>,
    agent: UnixListener,
}

impl House {
    pub(super) async fn new() -> House {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, census) = (Arc::new(MemoryStore::new()), Census::default());
        let sandbox = Arc::new(Obedient::default());
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let at = |name: &str| dir.path().join(name);
        let parts = Arc::new(Parts {
            sandbox: sandbox.clone(),
            gateway: Gateway::new(GatewayOptions::default()).expect("a gateway without keys"),
            store: store.clone(),
            census: census.clone(),
            places: Places {
                runs: at("r"),
                workspaces: Workspaces { below: at("w"), shared: None, uid, gid },
                homes: at("h"),
                agent: PathBuf::new(),
            },
            image: String::new(),
            volumes: Vec::new(),
            uid,
            gid,
            limits: Limits { memory_bytes: 0, cpus: 0.0, pids: 0 },
            network: Network::None,
            starting: Arc::new(Starts::new(PLACES, PLACES)),
        });
        let id = store.create(Record { state: State::Starting, ..record("") }).await.expect("it is made").record.id;
        let (epoch, snapshot) = store.claim(id).await.expect("it is there");
        let (tell, mut told) = watch::channel(None);
        let sessions = Arc::new(session::Parts {
            store,
            census,
            link: Box::new(move |_, _, allowance| {
                tell.send_replace(Some(allowance));
                let deaf = Deaf.start();
                LinkPort {
                    raise: deaf.clone().recipient(),
                    deliver: deaf.clone().recipient(),
                    cut: deaf.clone().recipient(),
                    freeze: deaf.clone().recipient(),
                    thaw: deaf.clone().recipient(),
                    kill: deaf.recipient(),
                    leash: CancellationToken::new().drop_guard(),
                }
            }),
            may_use: Box::new(|_| Ok(())),
            settings: Box::new(|_| Settings {
                model: String::new(),
                api: Api::Anthropic,
                directory: "/workspace".into(),
                run_timeout_s: 1,
                max_steps: 1,
            }),
            fell: Deaf.start().recipient(),
        });
        let session = Session::start_from(sessions, epoch, snapshot, None).expect("it starts");
        let run = RunDir::of(&parts.places.runs, id);
        run.prepare(uid, gid).expect("the run directory is made");
        let agent = UnixListener::bind(run.agent().join("agent.sock")).expect("it binds");
        let allowance = told.wait_for(Option::is_some).await.expect("it makes a link").clone();
        let allowance = allowance.expect("it is some");
        House { _dir: dir, sandbox, parts, id, session, allowance, agent }
    }

    /// Where the agent listens.
    pub(super) fn run(&self) -> RunDir {
        RunDir::of(&self.parts.places.runs, self.id)
    }

    pub(super) fn link(&self) -> LinkPort {
        AgentLink::port(self.parts.clone(), &self.session, self.id, self.allowance.clone())
    }

    pub(super) async fn dialled(&self) -> UnixStream {
        timeout(Duration::from_secs(10), self.agent.accept()).await.expect("the agent is dialled").expect("a socket").0
    }

    /// All places of those who start, as soon as nobody else has any.
    pub(super) async fn take_all_places(&self) -> Vec<impl Sized + use<>> {
        let mut places = Vec::new();
        for _ in 0..PLACES {
            let place = timeout(Duration::from_secs(5), self.parts.starting.place());
            places.push(place.await.expect("nobody keeps any"));
        }
        places
    }

    /// A link whose sandbox needs an image, which is being fetched until `held` says otherwise.
    pub(super) async fn fetching(&self) -> LinkPort {
        self.sandbox.fail(no_image());
        self.sandbox.held.send_replace(Some("fetch"));
        let link = self.link();
        raise(&link).await;
        self.sandbox.until(&["start", "fetch"]).await;
        link
    }

    /// Why the session failed, once it has.
    pub(super) async fn failure(&self) -> String {
        let failed = timeout(Duration::from_secs(10), async {
            loop {
                let view = self.session.send(Look).await.expect("it lives");
                match view.reason {
                    Some(reason) if view.state == State::Failed => return reason,
                    _ => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
        failed.await.expect("it fails")
    }

    pub(super) async fn is_not_dialled(&self) {
        let dialled = timeout(Duration::from_millis(200), self.agent.accept()).await;
        assert!(dialled.is_err(), "it is dialled");
    }
}

pub(super) async fn raise(link: &LinkPort) {
    raise_what_was(Was::Down, link).await;
}

pub(super) async fn raise_what_was(was: Was, link: &LinkPort) {
    link.raise.send(Raise { image: None, was }).await.expect("it lives");
}

/// All that was ordered is carried out.
pub(super) async fn settled(link: &LinkPort) {
    link.cut.send(Cut).await.expect("it lives");
}

pub(super) fn kill(then: Then) -> Kill {
    Kill { then, under_way: UnderWay::default() }
}

pub(super) fn no_image() -> SandboxError {
    SandboxError::NoImage { image: "far:1".to_owned(), detail: "it is far away".to_owned() }
}

pub(super) fn unclear() -> SandboxError {
    SandboxError::Unclear { what: "tell how it stands", detail: "no server is available".to_owned() }
}

pub(super) fn overdue() -> SandboxError {
    SandboxError::Deadline { what: "answer", seconds: 10 }
}
