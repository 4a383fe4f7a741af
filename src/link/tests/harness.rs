//! Harness of the link tests: a fake sandbox driver, an agent socket that never sends, and a
//! session whose links use both.

use std::{sync::Mutex as Lock, time::Duration};

use async_trait::async_trait;
use futures::SinkExt;
use greenroom_protocol::{
    client::ClientRequest,
    link::FromAgent,
    observation::{AgentState, SandboxPhase},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};

use super::super::*;
use crate::{
    config::UnixId,
    sandbox::{FoundSandbox, ProgressCallback, SandboxExit, SandboxHomes, SandboxPresence, SandboxSpec, SandboxStats},
    session::{
        self,
        messages::{GetView, Relay},
        testkit,
    },
    store::{SessionRecord, contract::record, faulty::FaultyStore},
};

/// Fake driver. Records each call and executes it unless it is blocked.
#[derive(Default)]
pub(super) struct LinkTestSandbox {
    calls: Lock<Vec<&'static str>>,
    /// Error of the next call.
    next_failure: Lock<Option<SandboxError>>,
    /// Call that blocks until this value changes.
    pub(super) blocked_call: watch::Sender<Option<&'static str>>,
    presence: Lock<Option<SandboxPresence>>,
    /// Error of the next presence queries.
    presence_error: Lock<Option<SandboxError>>,
    /// Makes [`SandboxDriver::wait`] panic.
    pub(super) is_faulty: AtomicBool,
    /// Exit of the sandbox, once it has exited.
    exit: watch::Sender<Option<SandboxExit>>,
}

impl LinkTestSandbox {
    async fn record_call(&self, call: &'static str) -> Result<(), SandboxError> {
        self.calls.lock().expect("lock is never poisoned: no holder panics").push(call);
        let _ = self.blocked_call.subscribe().wait_for(|blocked| *blocked != Some(call)).await;
        self.next_failure.lock().expect("lock is never poisoned: no holder panics").take().map_or(Ok(()), Err)
    }

    pub(super) fn calls(&self) -> Vec<&'static str> {
        self.calls
            .lock()
            .expect("lock is never poisoned: no holder panics")
            .iter()
            .filter(|call| **call != "unpause")
            .copied()
            .collect()
    }

    pub(super) fn set_presence(&self, presence: SandboxPresence) {
        *self.presence.lock().expect("lock is never poisoned: no holder panics") = Some(presence);
    }

    pub(super) fn set_presence_error(&self, error: Option<SandboxError>) {
        *self.presence_error.lock().expect("lock is never poisoned: no holder panics") = error;
    }

    /// Ends the sandbox with exit code 3.
    pub(super) fn exit(&self) {
        self.exit_with(3);
    }

    pub(super) fn exit_with(&self, code: i64) {
        let exit = SandboxExit { code: Some(code), out_of_memory: false, stderr_tail: "last words".to_owned() };
        self.exit.send_replace(Some(exit));
    }

    /// Forgets the exit, as a start does.
    pub(super) fn forget_exit(&self) {
        self.exit.send_replace(None);
    }

    pub(super) fn fail_next(&self, error: SandboxError) {
        *self.next_failure.lock().expect("lock is never poisoned: no holder panics") = Some(error);
    }

    pub(super) async fn wait_for_calls(&self, expected: &[&'static str]) {
        let reached = timeout(Duration::from_secs(10), async {
            while self.calls() != expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        reached.await.unwrap_or_else(|_| panic!("the calls are {:?}, expected {expected:?}", self.calls()));
    }
}

#[async_trait]
impl SandboxDriver for LinkTestSandbox {
    fn name(&self) -> &'static str {
        "link-test"
    }
    fn isolation(&self) -> String {
        String::new()
    }
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn start(&self, _: &SandboxSpec, _: ProgressCallback<'_>) -> Result<(), SandboxError> {
        self.record_call("start").await
    }
    async fn fetch(&self, _: &str, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        progress(SandboxPhase::Pulling, "1 of 2 MB");
        self.record_call("fetch").await
    }
    async fn pause(&self, _: SessionId) -> Result<(), SandboxError> {
        self.record_call("pause").await
    }
    async fn unpause(&self, _: SessionId) -> Result<(), SandboxError> {
        self.record_call("unpause").await
    }
    async fn stop(&self, _: SessionId) -> Result<(), SandboxError> {
        self.record_call("stop").await
    }
    async fn remove(&self, _: SessionId) -> Result<(), SandboxError> {
        self.record_call("remove").await
    }
    async fn presence(&self, _: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        match self.presence_error.lock().expect("lock is never poisoned: no holder panics").clone() {
            Some(error) => Err(error),
            None => Ok(*self.presence.lock().expect("lock is never poisoned: no holder panics")),
        }
    }
    async fn wait(&self, _: SessionId) -> Result<SandboxExit, SandboxError> {
        assert!(!self.is_faulty.load(Ordering::Relaxed), "injected panic");
        let exit = self.exit.subscribe().wait_for(Option::is_some).await.expect("the sender is alive").clone();
        Ok(exit.expect("`wait_for` returns a set value"))
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

/// Sandboxes that start at a time.
pub(super) const START_PERMITS: usize = 8;

pub(super) struct LinkTestHarness {
    _dir: tempfile::TempDir,
    pub(super) sandbox: Arc<LinkTestSandbox>,
    pub(super) parts: Arc<LinkDeps>,
    pub(super) store: Arc<FaultyStore>,
    pub(super) id: SessionId,
    record: SessionRecord,
    /// Session that the links report to. Its own effects are ignored.
    pub(super) session: Addr<Session>,
    budget: Arc<SessionBudget>,
    agent: UnixListener,
}

impl LinkTestHarness {
    pub(super) async fn new() -> LinkTestHarness {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, actor_registry) = (Arc::new(FaultyStore::default()), ActorRegistry::default());
        let sandbox = Arc::new(LinkTestSandbox::default());
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let at = |name: &str| dir.path().join(name);
        let mut config = Config::with_data_dir(dir.path());
        (config.sandbox.uid, config.sandbox.gid) = (UnixId::Fixed(uid), UnixId::Fixed(gid));
        let parts = Arc::new(LinkDeps {
            sandbox: sandbox.clone(),
            gateway: Gateway::new(config.model.clone(), &config.gateway).expect("a gateway without keys"),
            store: store.clone(),
            actor_registry: actor_registry.clone(),
            dirs: SessionDirs {
                runs: at("r"),
                workspaces: WorkspaceDirs { root: at("w"), shared: None, uid, gid },
                homes: SandboxHomes::open(at("h"), &config.sandbox).expect("homes are readable"),
                agent: PathBuf::new(),
            },
            checkpoints: Checkpoints::below(dir.path()),
            repositories: Repositories::below(dir.path()),
            config: Arc::new(config),
            start_limiter: Arc::new(StartLimiter::new(START_PERMITS, START_PERMITS)),
        });
        let id = store
            .create(SessionRecord { state: AgentState::Starting, ..record("") })
            .await
            .expect("the session is created")
            .into_snapshot()
            .record
            .id;
        let (epoch, snapshot) = store.claim(id).await.expect("the session exists");
        let (budget_tx, mut budget_rx) = watch::channel(None);
        let make_link: Box<session::LinkFactory> = Box::new(move |_, _, budget| {
            budget_tx.send_replace(Some(budget));
            testkit::null_link()
        });
        let deps = testkit::session_deps(store.clone(), actor_registry);
        let sessions = Arc::new(session::SessionDeps { make_link, ..deps });
        let record = snapshot.record.clone();
        let session = Session::start_from(sessions, epoch, snapshot, None).expect("the session starts");
        let run = RunDir::of(&parts.dirs.runs, id);
        run.prepare(uid, gid).expect("the run directory is made");
        let agent = UnixListener::bind(run.agent().join("agent.sock")).expect("the socket binds");
        let budget = budget_rx.wait_for(Option::is_some).await.expect("the session creates a link").clone();
        let budget = budget.expect("`wait_for` returns a set value");
        LinkTestHarness { _dir: dir, sandbox, parts, store, id, record, session, budget, agent }
    }

    /// Run directory with the agent's socket.
    pub(super) fn run(&self) -> RunDir {
        RunDir::of(&self.parts.dirs.runs, self.id)
    }

    pub(super) fn link(&self) -> LinkPort {
        AgentLink::port(self.parts.clone(), &self.session, &self.record, self.budget.clone())
    }

    pub(super) async fn accept_dial(&self) -> UnixStream {
        timeout(Duration::from_secs(10), self.agent.accept()).await.expect("the agent is dialled").expect("a socket").0
    }

    /// Returns the agent's end of a connection, after the agent's hello.
    pub(super) async fn greeted_agent(&self) -> WebSocketStream<UnixStream> {
        let mut socket = accept_async(self.accept_dial().await).await.expect("a handshake");
        send_frame(&mut socket, &FromAgent::Hello(testkit::hello("b").hello)).await;
        self.until_state(AgentState::Idle).await;
        socket
    }

    /// Starts a turn of the session, whose agent has sent its hello and no more.
    pub(super) async fn agent_with_turn(&self) -> WebSocketStream<UnixStream> {
        let socket = self.greeted_agent().await;
        let request = ClientRequest::Start { task: "go".to_owned() };
        let start = Relay { request, idempotency_key: None, requested_by: None };
        self.session.send(start).await.expect("the actor is alive").expect("the task is accepted");
        self.until_state(AgentState::Running).await;
        socket
    }

    /// Returns the reason of the state, once the session is in it.
    pub(super) async fn until_state(&self, state: AgentState) -> Option<String> {
        loop {
            let view = self.session.send(GetView).await.expect("the actor is alive");
            if view.state == state {
                return view.reason;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Takes all start permits, once they are free.
    pub(super) async fn take_all_permits(&self) -> Vec<impl Sized + use<>> {
        let mut permits = Vec::new();
        for _ in 0..START_PERMITS {
            let permit = timeout(Duration::from_secs(5), self.parts.start_limiter.start_permit());
            permits.push(permit.await.expect("the permits are free"));
        }
        permits
    }

    /// Returns a link whose sandbox needs an image. The fetch blocks until `blocked_call` changes.
    pub(super) async fn link_fetching_image(&self) -> LinkPort {
        self.sandbox.fail_next(no_image());
        self.sandbox.blocked_call.send_replace(Some("fetch"));
        let link = self.link();
        start_sandbox(&link).await;
        self.sandbox.wait_for_calls(&["start", "fetch"]).await;
        link
    }

    /// Waits until the session has failed. Returns the reason.
    pub(super) async fn failure(&self) -> String {
        let failed = timeout(Duration::from_secs(10), async {
            loop {
                let view = self.session.send(GetView).await.expect("the actor is alive");
                match view.reason {
                    Some(reason) if view.state == AgentState::Failed => return reason,
                    _ => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
        failed.await.expect("the session fails")
    }

    pub(super) async fn assert_not_dialled(&self) {
        let dialled = timeout(Duration::from_millis(200), self.agent.accept()).await;
        assert!(dialled.is_err(), "the agent is dialed");
    }
}

/// Sends a frame of the agent.
pub(super) async fn send_frame(socket: &mut WebSocketStream<UnixStream>, frame: &FromAgent) {
    let text = serde_json::to_string(frame).expect("the frame serializes");
    socket.send(Message::text(text)).await.expect("the frame is sent");
}

pub(super) async fn start_sandbox(link: &LinkPort) {
    start_sandbox_from(RecordedSandbox::Down, link).await;
}

pub(super) async fn start_sandbox_from(recorded: RecordedSandbox, link: &LinkPort) {
    link.effects.send(Effect::StartSandbox { recorded }).await.expect("the actor is alive");
}

/// Waits until all earlier messages are handled.
pub(super) async fn drain(link: &LinkPort) {
    link.effects.send(Effect::AbortModelStreams).await.expect("the actor is alive");
}

pub(super) fn stop_effect(then: AfterStop) -> Effect {
    Effect::StopSandbox { then, in_flight: InFlightStops::default() }
}

pub(super) fn no_image() -> SandboxError {
    SandboxError::NoImage { image: "far:1".to_owned(), detail: "the registry is unreachable".to_owned() }
}

pub(super) fn inconclusive() -> SandboxError {
    SandboxError::Inconclusive { what: "report the sandbox's state", detail: "no server is available".to_owned() }
}

pub(super) fn overdue() -> SandboxError {
    SandboxError::Deadline { what: "answer", seconds: 10 }
}
