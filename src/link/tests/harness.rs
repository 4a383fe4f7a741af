//! A sandbox that does as it is told, an agent that never says a word, and a session whose links speak with both.

use std::{sync::Mutex as Lock, time::Duration};

use async_trait::async_trait;
use greenroom_protocol::{
    link::{AgentSettings, ProviderApi},
    observation::{AgentState, SandboxPhase},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
    time::timeout,
};

use super::super::*;
use crate::{
    gateway::GatewayOptions,
    sandbox::{FoundSandbox, ProgressCallback, SandboxExit, SandboxPresence, SandboxSpec, SandboxStats},
    session::{
        self,
        messages::{GetView, SessionStopped, effects::InFlightStops},
    },
    store::{SessionRecord, contract::record, in_memory::MemoryStore},
};

/// Notes what it is told, and does it when it may.
#[derive(Default)]
pub(super) struct LinkTestSandbox {
    orders: Lock<Vec<&'static str>>,
    /// The next order fails so.
    next_failure: Lock<Option<SandboxError>>,
    /// What takes its time until it may end.
    pub(super) blocked_order: watch::Sender<Option<&'static str>>,
    presence: Lock<Option<SandboxPresence>>,
    /// Why it is not told how it stands.
    presence_error: Lock<Option<SandboxError>>,
    /// To wait for its end panics.
    pub(super) is_faulty: AtomicBool,
    /// How it ended, once it has.
    exit: watch::Sender<Option<SandboxExit>>,
}

impl LinkTestSandbox {
    async fn carry_out(&self, order: &'static str) -> Result<(), SandboxError> {
        self.orders.lock().expect("nobody panics here").push(order);
        let _ = self.blocked_order.subscribe().wait_for(|held| *held != Some(order)).await;
        self.next_failure.lock().expect("nobody panics here").take().map_or(Ok(()), Err)
    }

    pub(super) fn orders(&self) -> Vec<&'static str> {
        self.orders.lock().expect("nobody panics here").iter().filter(|order| **order != "thaw").copied().collect()
    }

    pub(super) fn set_presence(&self, presence: SandboxPresence) {
        *self.presence.lock().expect("nobody panics here") = Some(presence);
    }

    pub(super) fn set_presence_error(&self, why: Option<SandboxError>) {
        *self.presence_error.lock().expect("nobody panics here") = why;
    }

    /// Ends it with code 3.
    pub(super) fn exit(&self) {
        let exit = SandboxExit { code: Some(3), out_of_memory: false, stderr_tail: "no words left".to_owned() };
        self.exit.send_replace(Some(exit));
    }

    pub(super) fn fail_next(&self, how: SandboxError) {
        *self.next_failure.lock().expect("nobody panics here") = Some(how);
    }

    pub(super) async fn wait_for_orders(&self, told: &[&'static str]) {
        let so = timeout(Duration::from_secs(10), async {
            while self.orders() != told {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        so.await.unwrap_or_else(|_| panic!("{:?} and not {told:?}", self.orders()));
    }
}

#[async_trait]
impl SandboxDriver for LinkTestSandbox {
    fn name(&self) -> &'static str {
        "obedient"
    }
    fn isolation(&self) -> String {
        String::new()
    }
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn start(&self, _: &SandboxSpec, _: ProgressCallback<'_>) -> Result<(), SandboxError> {
        self.carry_out("start").await
    }
    async fn fetch(&self, _: &str, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        progress(SandboxPhase::Pulling, "1 of 2 MB");
        self.carry_out("fetch").await
    }
    async fn pause(&self, _: SessionId) -> Result<(), SandboxError> {
        self.carry_out("freeze").await
    }
    async fn unpause(&self, _: SessionId) -> Result<(), SandboxError> {
        self.carry_out("thaw").await
    }
    async fn stop(&self, _: SessionId) -> Result<(), SandboxError> {
        self.carry_out("stop").await
    }
    async fn remove(&self, _: SessionId) -> Result<(), SandboxError> {
        self.carry_out("remove").await
    }
    async fn presence(&self, _: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        match self.presence_error.lock().expect("nobody panics here").clone() {
            Some(why) => Err(why),
            None => Ok(*self.presence.lock().expect("nobody panics here")),
        }
    }
    async fn wait(&self, _: SessionId) -> Result<SandboxExit, SandboxError> {
        assert!(!self.is_faulty.load(Ordering::Relaxed), "a fault");
        let exit = self.exit.subscribe().wait_for(Option::is_some).await.expect("it lives").clone();
        Ok(exit.expect("it is some"))
    }
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        Ok(Vec::new())
    }
    async fn logs(&self, _: SessionId, _: usize) -> Result<String, SandboxError> {
        Ok(String::new())
    }
    async fn stats(&self, _: SessionId) -> Result<SandboxStats, SandboxError> {
        Ok(SandboxStats::default())
    }
}

/// Hears orders, and that a session fell, and does nothing.
struct LinkTestSink;

impl Actor for LinkTestSink {
    type Context = Context<LinkTestSink>;
}

macro_rules! hears {
    ($($message:ty),+) => {$(
        impl Handler<$message> for LinkTestSink {
            type Result = ();
            fn handle(&mut self, _: $message, _: &mut Context<LinkTestSink>) {}
        }
    )+};
}
hears!(StartSandbox, DeliverToAgent, AbortModelStreams, PauseSandbox, UnpauseSandbox, StopSandbox, SessionStopped);

/// How many sandboxes start at a time.
pub(super) const START_PERMITS: usize = 8;

pub(super) struct LinkTestHarness {
    _dir: tempfile::TempDir,
    pub(super) sandbox: Arc<LinkTestSandbox>,
    pub(super) parts: Arc<LinkParts>,
    pub(super) id: SessionId,
    /// Whom the links tell. What it orders itself nobody hears.
    pub(super) session: Addr<Session>,
    budget: Arc<SessionBudget>,
    agent: UnixListener,
}

impl LinkTestHarness {
    pub(super) async fn new() -> LinkTestHarness {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, census) = (Arc::new(MemoryStore::new()), ActorRegistry::default());
        let sandbox = Arc::new(LinkTestSandbox::default());
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let at = |name: &str| dir.path().join(name);
        let parts = Arc::new(LinkParts {
            sandbox: sandbox.clone(),
            gateway: Gateway::new(GatewayOptions::default()).expect("a gateway without keys"),
            store: store.clone(),
            actor_registry: census.clone(),
            dirs: SessionDirs {
                runs: at("r"),
                workspaces: WorkspaceDirs { root: at("w"), shared: None, uid, gid },
                homes: at("h"),
                agent: PathBuf::new(),
            },
            image: String::new(),
            volumes: Vec::new(),
            uid,
            gid,
            limits: SandboxLimits { memory_bytes: 0, cpus: 0.0, pids: 0 },
            network: SandboxNetwork::None,
            start_limiter: Arc::new(StartLimiter::new(START_PERMITS, START_PERMITS)),
        });
        let id = store
            .create(SessionRecord { state: AgentState::Starting, ..record("") })
            .await
            .expect("it is made")
            .record
            .id;
        let (epoch, snapshot) = store.claim(id).await.expect("it is there");
        let (tell, mut told) = watch::channel(None);
        let sessions = Arc::new(session::SessionDeps {
            store,
            actor_registry: census,
            make_link: Box::new(move |_, _, allowance| {
                tell.send_replace(Some(allowance));
                let deaf = LinkTestSink.start();
                LinkPort {
                    start_sandbox: deaf.clone().recipient(),
                    deliver_to_agent: deaf.clone().recipient(),
                    abort_model_streams: deaf.clone().recipient(),
                    pause_sandbox: deaf.clone().recipient(),
                    unpause_sandbox: deaf.clone().recipient(),
                    stop_sandbox: deaf.recipient(),
                    cancel_on_drop: CancellationToken::new().drop_guard(),
                }
            }),
            check_model: Box::new(|_| Ok(())),
            settings_for: Box::new(|_| AgentSettings {
                model: String::new(),
                api: ProviderApi::Anthropic,
                directory: "/workspace".into(),
                run_timeout_s: 1,
                max_steps: 1,
            }),
            session_stopped: LinkTestSink.start().recipient(),
        });
        let session = Session::start_from(sessions, epoch, snapshot, None).expect("it starts");
        let run = RunDir::of(&parts.dirs.runs, id);
        run.prepare(uid, gid).expect("the run directory is made");
        let agent = UnixListener::bind(run.agent().join("agent.sock")).expect("it binds");
        let allowance = told.wait_for(Option::is_some).await.expect("it makes a link").clone();
        let allowance = allowance.expect("it is some");
        LinkTestHarness { _dir: dir, sandbox, parts, id, session, budget: allowance, agent }
    }

    /// Where the agent listens.
    pub(super) fn run(&self) -> RunDir {
        RunDir::of(&self.parts.dirs.runs, self.id)
    }

    pub(super) fn link(&self) -> LinkPort {
        AgentLink::port(self.parts.clone(), &self.session, self.id, self.budget.clone())
    }

    pub(super) async fn accept_dial(&self) -> UnixStream {
        timeout(Duration::from_secs(10), self.agent.accept()).await.expect("the agent is dialled").expect("a socket").0
    }

    /// All places of those who start, as soon as nobody else has any.
    pub(super) async fn take_all_permits(&self) -> Vec<impl Sized + use<>> {
        let mut places = Vec::new();
        for _ in 0..START_PERMITS {
            let place = timeout(Duration::from_secs(5), self.parts.start_limiter.start_permit());
            places.push(place.await.expect("nobody keeps any"));
        }
        places
    }

    /// A link whose sandbox needs an image, which is being fetched until `held` says otherwise.
    pub(super) async fn link_fetching_image(&self) -> LinkPort {
        self.sandbox.fail_next(no_image());
        self.sandbox.blocked_order.send_replace(Some("fetch"));
        let link = self.link();
        start_sandbox(&link).await;
        self.sandbox.wait_for_orders(&["start", "fetch"]).await;
        link
    }

    /// Why the session failed, once it has.
    pub(super) async fn failure(&self) -> String {
        let failed = timeout(Duration::from_secs(10), async {
            loop {
                let view = self.session.send(GetView).await.expect("it lives");
                match view.reason {
                    Some(reason) if view.state == AgentState::Failed => return reason,
                    _ => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
        failed.await.expect("it fails")
    }

    pub(super) async fn assert_not_dialled(&self) {
        let dialled = timeout(Duration::from_millis(200), self.agent.accept()).await;
        assert!(dialled.is_err(), "it is dialled");
    }
}

pub(super) async fn start_sandbox(link: &LinkPort) {
    start_sandbox_from(RecordedSandbox::Down, link).await;
}

pub(super) async fn start_sandbox_from(was: RecordedSandbox, link: &LinkPort) {
    link.start_sandbox.send(StartSandbox { image: None, recorded: was }).await.expect("it lives");
}

/// All that was ordered is carried out.
pub(super) async fn drain(link: &LinkPort) {
    link.abort_model_streams.send(AbortModelStreams).await.expect("it lives");
}

pub(super) fn stop_order(then: AfterStop) -> StopSandbox {
    StopSandbox { then, in_flight: InFlightStops::default() }
}

pub(super) fn no_image() -> SandboxError {
    SandboxError::NoImage { image: "far:1".to_owned(), detail: "it is far away".to_owned() }
}

pub(super) fn inconclusive() -> SandboxError {
    SandboxError::Inconclusive { what: "tell how it stands", detail: "no server is available".to_owned() }
}

pub(super) fn overdue() -> SandboxError {
    SandboxError::Deadline { what: "answer", seconds: 10 }
}
