//! Link tests: both real ends of the link, over a stream that is cut, delayed and split at random
//! bytes.
//!
//! Every report and command arrives exactly once and in order, both ways. Each run plays thousands
//! of histories, each from a seed that a failure names. The module `scripted` tests agents that
//! break the link's rules.

mod lossy_link;
mod model;
mod reviews;
mod scripted;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use actix::{Actor, Addr, Context, Handler};
use async_trait::async_trait;
use fastrand::Rng;
use futures::StreamExt;
use greenroom::{
    actor_registry::ActorRegistry,
    checkpoints::Checkpoints,
    config::{Config, UnixId},
    files::WorkspaceFiles,
    gateway::Gateway,
    link::{AgentLink, LinkDeps, SessionDirs, StartLimiter},
    repositories::Repositories,
    sandbox::{
        FoundSandbox, ProgressCallback, RunDir, SandboxDriver, SandboxError, SandboxExit, SandboxHomes,
        SandboxPresence, SandboxSpec, SandboxStats, WorkspaceDirs,
    },
    session::{
        ServerSpending, Session, SessionDeps, SessionPolicy,
        messages::{Relay, SessionStopped},
    },
    store::{
        AppendBatch, JournalEvent, JournalUsage, ReadLimit, SessionId, SessionRecord, Store, UsageTotals,
        in_memory::MemoryStore,
    },
};
use greenroom_agent::{
    dispatcher::Dispatcher, link::listen, outgoing::OutgoingQueue, processes::ChildProcesses, turn::TurnDrivers,
};
use greenroom_protocol::{
    DeltaKind, Event, EventBody, Observation, ObservationKind,
    client::ClientRequest,
    link::{AgentReport, AgentSettings, ProviderApi},
    observation::{AgentState, TruncationMark},
};
use lossy_link::{CutRange, LossyLink, random_delay};
use model::LinkModel;
use tokio::{net::UnixListener, task::JoinHandle};

const HISTORIES: u64 = 500;
const AT_ONCE: usize = 48;
/// Number of messages of the agent in one history.
const MESSAGES: usize = 24;
/// Number of user actions in one history.
const USER_ACTIONS: usize = 8;
/// Number of events before the session started. The agent receives them only with the history.
const BEFORE: usize = 2;

#[actix::test]
async fn early_cut_links_deliver_exactly_once_in_order() {
    play(CutRange::Early).await;
}

#[actix::test]
async fn late_cut_links_deliver_exactly_once_in_order() {
    play(CutRange::Late).await;
}

async fn play(cut: CutRange) {
    let histories = LinkHistories::new(Arc::new(MemoryStore::new()));
    let first = fastrand::u64(..1 << 40);
    let histories = futures::stream::iter(first..first + HISTORIES).map(|seed| {
        let histories = &histories;
        async move {
            let history = tokio::time::timeout(Duration::from_secs(120), histories.play(seed, cut));
            history.await.unwrap_or_else(|_| panic!("the history of seed {seed}, {cut:?}, does not end"))
        }
    });
    let cuts: usize = histories.buffer_unordered(AT_ONCE).fold(0, |sum, cuts| async move { sum + cuts }).await;
    assert!(cuts > HISTORIES as usize, "{cuts} cuts in {HISTORIES} histories are too few to show anything");
}

/// State that the histories share.
struct LinkHistories {
    dir: tempfile::TempDir,
    store: Arc<dyn Store>,
    sessions: Arc<SessionDeps>,
    processes: ChildProcesses,
    model: LinkModel,
}

impl LinkHistories {
    fn new(store: Arc<dyn Store>) -> LinkHistories {
        LinkHistories::with_policy(store, SessionPolicy::default())
    }

    fn with_policy(store: Arc<dyn Store>, policy: SessionPolicy) -> LinkHistories {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = ActorRegistry::default();
        let at = |name: &str| dir.path().join(name);
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mut config = Config::with_data_dir(dir.path());
        (config.sandbox.uid, config.sandbox.gid) = (UnixId::Fixed(uid), UnixId::Fixed(gid));
        let workspaces = WorkspaceDirs { root: at("w"), shared: None, uid, gid };
        let files = WorkspaceFiles::open(workspaces.clone(), at("u")).expect("the directory is created");
        let captures = config.checkpoints.clone();
        let checkpoints = Checkpoints::new(workspaces.clone(), at("c"), captures, files.writer());
        let repositories =
            Repositories::new(at("repositories"), workspaces.clone(), Vec::new(), config.repositories.clone());
        let links = Arc::new(LinkDeps {
            sandbox: Arc::new(InProcessSandbox),
            gateway: Gateway::new(config.model.clone(), &config.gateway).expect("a gateway without keys"),
            store: store.clone(),
            actor_registry: registry.clone(),
            dirs: SessionDirs {
                runs: at("r"),
                workspaces,
                homes: SandboxHomes::open(at("h"), &config.sandbox).expect("homes are readable"),
                agent: PathBuf::new(),
            },
            checkpoints,
            repositories,
            config: Arc::new(config),
            start_limiter: Arc::new(StartLimiter::new(AT_ONCE, AT_ONCE)),
        });
        let defaults = Config::with_data_dir(at("data"));
        let spending = Arc::new(ServerSpending::new(defaults.budget, defaults.gateway, &at("data")));
        let work = at("w");
        let sessions = Arc::new(SessionDeps {
            store: store.clone(),
            actor_registry: registry,
            make_link: Box::new(move |session, record, budget| {
                AgentLink::port(links.clone(), &session, record, budget)
            }),
            check_model: Box::new(|_| Ok(())),
            spending,
            quota: defaults.quota,
            policy: Arc::new(policy),
            captures_turns: false,
            settings_for: Box::new(move |record| AgentSettings {
                model: String::new(),
                api: ProviderApi::Anthropic,
                directory: work.join(record.id.to_string()).display().to_string(),
                run_timeout_s: 60,
                max_steps: 1,
                program: None,
                effort: None,
                takes_images: false,
                context_limit: None,
                orphan_after_s: None,
                plan_path: None,
                mode: None,
            }),
            session_stopped: SessionStopSink.start().recipient(),
        });
        let model = LinkModel::start(&at("model.sock"));
        LinkHistories {
            dir,
            store,
            sessions,
            processes: ChildProcesses::new(None).expect("the kernel allows it"),
            model,
        }
    }

    /// Plays one history to its end and checks the journal. Returns the number of cuts.
    async fn play(&self, seed: u64, cut: CutRange) -> usize {
        let mut dice = Rng::with_seed(seed);
        let id = self.session_with_history().await;
        let inside = self.dir.path().join(id.to_string());
        let outgoing = OutgoingQueue::default();
        let agent = self.agent(&inside, &outgoing);
        let cuts = Arc::new(AtomicUsize::new(0));
        let wire = LossyLink { dice: dice.fork(), agent: inside.clone(), cuts: cuts.clone(), cut };
        let wire = tokio::spawn(wire.carry(self.listen(id)));

        let session = self.start(id).await;
        send_request(&session, 0, &mut dice).await;
        // The agent sends nothing before its first user action: until then it may receive the
        // history again.
        self.until_ended(id, 1).await;
        let acting = async {
            for n in 1..USER_ACTIONS {
                send_request(&session, n, &mut dice.fork()).await;
            }
        };
        futures::future::join(speak(&outgoing, Rng::with_seed(seed)), acting).await;
        self.until_ended(id, USER_ACTIONS + 1).await;
        let events = self.events(id).await;
        check(&events, seed);
        self.check_whole(id, &events, seed).await;
        self.check_history(id, &session, seed).await;
        agent.abort();
        wire.abort();
        cuts.load(Relaxed)
    }

    /// Creates a session with events from before its agent's start.
    async fn session_with_history(&self) -> SessionId {
        let id = self.store.create(record()).await.expect("the store creates the session").into_snapshot().record.id;
        let asked = r#""source":"user","observation":"chat","extras":{},"content":"once asked""#;
        let message =
            format!(r#""source":"agent","item":"m","observation":"message","extras":{{}},"content":"{}""#, once(id));
        self.write(id, &[("chat", asked.to_owned()), ("message", message)]).await;
        id
    }

    /// Writes events before the session starts, each in a batch of its own.
    async fn write(&self, id: SessionId, events: &[(&'static str, String)]) {
        let (epoch, snapshot) = self.store.claim(id).await.expect("the session exists");
        for (at, (kind, body)) in (snapshot.tail..).zip(events) {
            let json = format!(r#"{{"seq":{},"at":"2026-01-01T00:00:00.000Z",{body}}}"#, at + 1).into();
            let batch =
                AppendBatch { events: vec![JournalEvent { kind: (*kind).into(), json }], mark: None, record: None };
            self.store.append(id, epoch, at, batch).await.expect("there is room");
        }
    }

    /// Binds the socket on which the session expects its agent.
    fn listen(&self, id: SessionId) -> UnixListener {
        let run = RunDir::of(&self.dir.path().join("r"), id);
        run.prepare(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()).expect("a run directory");
        UnixListener::bind(run.agent().join("agent.sock")).expect("a socket")
    }

    async fn start(&self, id: SessionId) -> Addr<Session> {
        let (epoch, snapshot) = self.store.claim(id).await.expect("the session exists");
        Session::start_from(self.sessions.clone(), epoch, snapshot, None).expect("the session starts")
    }

    fn agent(&self, socket: &Path, outgoing: &OutgoingQueue) -> JoinHandle<std::io::Result<()>> {
        let places = greenroom_agent::agent_paths::AgentPaths {
            agent_socket: socket.to_owned(),
            gateway_socket: self.model.socket.clone(),
            workspace: "/nonexistent".into(),
            executed_ids: socket.with_extension("acts"),
        };
        let dispatcher = Dispatcher::new(outgoing.clone(), self.processes.clone(), &places, TurnDrivers::new(&places));
        let (socket, outgoing) = (socket.to_owned(), outgoing.clone());
        tokio::spawn(async move { listen(&socket, dispatcher, outgoing).await })
    }

    /// Waits until this many user actions have ended.
    async fn until_ended(&self, id: SessionId, count: usize) {
        let mut after = 0;
        let mut ended = 0;
        while ended < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let page =
                self.store.read(id, after, ReadLimit { events: 64, bytes: usize::MAX }).await.expect("the store reads");
            after = page.last().map_or(after, |(seq, _)| *seq);
            ended +=
                page.iter().filter(|(_, event)| ["write", "run"].contains(&&*event.kind) && is_result(event)).count();
        }
    }

    async fn events(&self, id: SessionId) -> Vec<Event> {
        let page =
            self.store.read(id, 0, ReadLimit { events: usize::MAX, bytes: usize::MAX }).await.expect("the store reads");
        page.iter().map(|(_, event)| serde_json::from_slice(&event.json).expect("an event")).collect()
    }

    /// Checks what the agent sends its model of the history before its start.
    async fn check_history(&self, id: SessionId, session: &Addr<Session>, seed: u64) {
        let request = ClientRequest::Message {
            content: LinkModel::question(id),
            mode: Default::default(),
            attachments: Vec::new(),
        };
        session
            .send(Relay { request, idempotency_key: None, requested_by: None })
            .await
            .expect("the session runs")
            .expect("the session accepts the request");
        let prompt = self.model.take_prompt(id).await;
        assert_eq!(prompt.matches(&once(id)).count(), 1, "seed {seed}: the prompt lacks the earlier history: {prompt}");
    }

    /// Checks the text that was sent in pieces.
    async fn check_whole(&self, id: SessionId, events: &[Event], seed: u64) {
        let href = events.iter().find_map(|event| match &event.body {
            EventBody::Observation(Observation { kind: ObservationKind::Run { truncated: Some(cut), .. }, .. }) => {
                cut.href.clone()
            }
            _ => None,
        });
        let name = href.as_deref().and_then(|href| href.rsplit('/').next()).expect("a link to the whole content");
        let whole = self
            .store
            .content(id, name, 0, usize::MAX >> 1)
            .await
            .expect("the store reads")
            .expect("the store keeps the content");
        assert!(whole.bytes == large().concat(), "seed {seed}: the pieces do not make the whole");
    }
}

/// Returns the agent's message from before its restart.
fn once(id: SessionId) -> String {
    format!("once said in {id}")
}

fn large() -> Vec<String> {
    (0..6).map(|n| format!("piece {n} {}", "ä".repeat(500))).collect()
}

/// Sends the agent's reports: growing messages, with a large text in pieces among them.
async fn speak(outgoing: &OutgoingQueue, mut dice: Rng) {
    let mut pieces = large().into_iter();
    let mut offset = 0;
    for n in 0..MESSAGES {
        let item = format!("i{n}");
        for _ in 0..dice.usize(0..4) {
            outgoing.delta(DeltaKind::Text, &item, "a part of it ").await;
            random_delay(&mut dice).await;
        }
        let content = format!("saying {n} {}", "ö".repeat(dice.usize(0..200)));
        outgoing.event(Some(&item), Observation { kind: ObservationKind::Message { partial: false }, content }).await;
        if let Some(text) = pieces.next() {
            let len = text.len() as u64;
            outgoing.report(AgentReport::Piece { item: "large".into(), offset, text, base64: false }).await;
            offset += len;
        }
        random_delay(&mut dice).await;
    }
    let truncated = Some(TruncationMark { bytes: offset, href: None });
    let seen = ObservationKind::Run {
        command: String::new(),
        exit_code: Some(0),
        signal: None,
        duration_ms: 0,
        timed_out: false,
        truncated,
    };
    outgoing.event(Some("large"), Observation { kind: seen, content: "head and tail".into() }).await;
}

/// Sends one user action, often twice.
async fn send_request(session: &Addr<Session>, n: usize, dice: &mut Rng) {
    let request = ClientRequest::Write { path: format!("f{n}"), content: n.to_string() };
    for _ in 0..dice.usize(1..3) {
        let relay = Relay { request: request.clone(), idempotency_key: Some(format!("k{n}")), requested_by: None };
        session.send(relay).await.expect("the session runs").expect("the session accepts the request");
    }
    random_delay(dice).await;
}

/// Returns true for an observation. An action and its observation have the same kind.
fn is_result(event: &JournalEvent) -> bool {
    event.json.windows(13).any(|part| part == br#""observation""#)
}

fn check(events: &[Event], seed: u64) {
    let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>(), "seed {seed}: numbers");
    let mut sayings = 0;
    let mut written = Vec::new();
    for event in &events[BEFORE..] {
        match &event.body {
            EventBody::Observation(Observation { kind: ObservationKind::Message { .. }, content }) => {
                assert!(content.starts_with(&format!("saying {sayings} ")), "seed {seed}: {content} is not {sayings}");
                sayings += 1;
            }
            EventBody::Observation(Observation { kind: ObservationKind::Write { path, .. }, .. }) => {
                written.push(path.clone())
            }
            EventBody::Observation(Observation { kind: ObservationKind::Error { code, detail }, .. }) => {
                panic!("seed {seed}: {code}: {detail}");
            }
            _ => {}
        }
    }
    assert_eq!(sayings, MESSAGES, "seed {seed}: messages");
    let expected: Vec<String> = (0..USER_ACTIONS).map(|n| format!("f{n}")).collect();
    assert_eq!(written, expected, "seed {seed}: user actions");
}

/// Receives the notices of stopped sessions.
struct SessionStopSink;

impl Actor for SessionStopSink {
    type Context = Context<SessionStopSink>;
}

impl Handler<SessionStopped> for SessionStopSink {
    type Result = ();
    fn handle(&mut self, _: SessionStopped, _: &mut Context<SessionStopSink>) {}
}

/// Driver without isolation: the agent lives in this process.
struct InProcessSandbox;

#[async_trait]
impl SandboxDriver for InProcessSandbox {
    fn name(&self) -> &'static str {
        "nowhere"
    }
    fn isolation(&self) -> String {
        String::new()
    }
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn start(&self, _: &SandboxSpec, _: ProgressCallback<'_>) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn pause(&self, _: SessionId) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn unpause(&self, _: SessionId) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn stop(&self, _: SessionId) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn remove(&self, _: SessionId) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn presence(&self, _: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        Ok(None)
    }
    async fn wait(&self, _: SessionId) -> Result<SandboxExit, SandboxError> {
        std::future::pending().await
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

fn record() -> SessionRecord {
    SessionRecord {
        id: SessionId::generate(),
        title: String::new(),
        state: AgentState::Starting,
        reason: None,
        agent: "greenroom".into(),
        model: "demo".into(),
        effort: None,
        mode: None,
        analyzer: None,
        image: None,
        sandbox: "nowhere".into(),
        sandbox_uid: None,
        directory: None,
        created_at: "2026-01-01T00:00:00.000Z".into(),
        updated_at: "2026-01-01T00:00:00.000Z".into(),
        usage: UsageTotals::default(),
        budget_usd: None,
        spent_on: None,
        reported_budget_usd: None,
        journal_usage: JournalUsage::default(),
        latest: None,
        parent: None,
        repository: None,
        further_models: Vec::new(),
        archived: false,
        idempotency_key: None,
        actor_state: greenroom::store::OpaqueState::default(),
    }
}
