//! Tests of the Directory, over a store that fails on request and a link that only records effects.

mod fork;
mod idempotency_keys;
mod restarts;
mod unreadable;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use greenroom_protocol::{
    Event, EventBody, Observation, ObservationKind,
    link::{AgentReport, WorkOutcome},
};

use super::*;
use crate::{
    config::Config,
    gateway::{GatewayNotice, MeteredUsage},
    sandbox::{FoundSandbox, ProgressCallback, SandboxError, SandboxExit, SandboxPresence, SandboxSpec, SandboxStats},
    session::{
        effect::Effect,
        messages::{
            Attach, End, GetView, Interrupt, NoticeReceived, OutOfOrder, Published, Reconcile, Relay, Reported,
            SessionStopReason, UpdateMetadata,
        },
        testkit,
    },
    store::{JournalEvent, ReadLimit, Seq, SessionRecord, faulty::FaultyStore},
};

/// Driver whose calls all succeed and in which nothing runs.
struct DirectoryTestSandbox;

#[async_trait]
impl SandboxDriver for DirectoryTestSandbox {
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

/// Link that records effects as text. A stop stays in flight until the test completes it.
#[derive(Clone)]
struct DirectoryTestLink {
    recorded: Arc<Mutex<Vec<String>>>,
    stops: Arc<Mutex<Vec<Effect>>>,
}

impl Actor for DirectoryTestLink {
    type Context = Context<DirectoryTestLink>;
}

impl Handler<Effect> for DirectoryTestLink {
    type Result = ();
    fn handle(&mut self, effect: Effect, _: &mut Context<DirectoryTestLink>) {
        match effect {
            Effect::StopSandbox { .. } => {
                self.stops.lock().expect("lock is never poisoned: no holder panics").push(effect);
            }
            effect => {
                self.recorded.lock().expect("lock is never poisoned: no holder panics").push(format!("{effect:?}"))
            }
        }
    }
}

struct DirectoryTestHarness {
    directory: Addr<Directory>,
    store: Arc<FaultyStore>,
    recorded: Arc<Mutex<Vec<String>>>,
    /// Stops in flight.
    stops: Arc<Mutex<Vec<Effect>>>,
    /// Threads on which sessions created their links.
    links: Arc<Mutex<Vec<ThreadId>>>,
    threads: KeyedThreads,
    start_limiter: Arc<StartLimiter>,
}

fn harness(store: Arc<FaultyStore>) -> DirectoryTestHarness {
    let recorded: Arc<Mutex<Vec<String>>> = Arc::default();
    let stops: Arc<Mutex<Vec<Effect>>> = Arc::default();
    let links: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let (link_threads, threads) = (links.clone(), KeyedThreads::start());
    let gateway = Gateway::new(Config::with_data_dir("/nonexistent").model, &crate::config::GatewayConfig::default())
        .expect("a gateway without keys");
    let (actor_registry, start_limiter) = (ActorRegistry::default(), Arc::new(StartLimiter::new(8, 8)));
    let (session_store, session_registry, link) =
        (store.clone(), actor_registry.clone(), DirectoryTestLink { recorded: recorded.clone(), stops: stops.clone() });
    let nowhere = || std::path::PathBuf::from("/nonexistent");
    let directory = Directory::start(DirectoryParts {
        store: store.clone(),
        actor_registry,
        gateway,
        sandbox: Arc::new(DirectoryTestSandbox),
        start_limiter: start_limiter.clone(),
        approvals: ApprovalDefaults::of(&Config::with_data_dir("/nonexistent")),
        runs: nowhere(),
        workspaces: nowhere(),
        homes: nowhere(),
        checkpoints: Checkpoints::below(tempfile::tempdir().expect("a directory").path()),
        repositories: Repositories::below(tempfile::tempdir().expect("a directory").path()),
        threads: threads.clone(),
        sessions: Box::new(move |session_stopped| session::SessionDeps {
            store: session_store,
            actor_registry: session_registry,
            make_link: Box::new(move |_, _, _| {
                link_threads.lock().expect("lock is never poisoned: no holder panics").push(thread::current().id());
                testkit::link_port(link.clone().start().recipient())
            }),
            check_model: Box::new(|_| Ok(())),
            spending: testkit::unlimited_spending(),
            quota: crate::config::QuotaConfig::default(),
            captures_turns: false,
            policy: Arc::default(),
            settings_for: Box::new(|record| testkit::agent_settings(&record.model)),
            session_stopped,
        }),
    });
    DirectoryTestHarness { directory, store, recorded, stops, links, threads, start_limiter }
}

impl DirectoryTestHarness {
    async fn create(&self, key: Option<&str>) -> CreatedSession {
        let create =
            Create { new: NewSession::default(), key: key.map(str::to_owned), dedup_key: None, preferred_thread: None };
        self.directory.send(create).await.expect("the actor is alive").expect("the session is created")
    }

    async fn open(&self, id: SessionId) -> OpenResult {
        self.directory.send(Open { id }).await.expect("the Directory is alive")
    }

    async fn events(&self, id: SessionId) -> Vec<Event> {
        let page =
            self.store.read(id, 0, ReadLimit { events: 1000, bytes: 1 << 20 }).await.expect("the journal is readable");
        let event = |(_, event): (Seq, JournalEvent)| serde_json::from_slice(&event.json).expect("an event");
        page.into_iter().map(event).collect()
    }

    /// Waits for the first recorded effect with this field, and returns the field's value. Effects
    /// arrive from another thread.
    async fn first_effect_field(&self, field: &str) -> String {
        let named = |effect: &String| Some(effect.split(&format!("{field}: \"")).nth(1)?.split('"').next()?.to_owned());
        let first = || self.recorded.lock().expect("lock is never poisoned: no holder panics").iter().find_map(named);
        eventually(&format!("an effect with `{field}`"), || async { first().is_some() }).await;
        first().expect("recorded effects are never removed")
    }

    /// Waits for a stop and completes it. Effects arrive from another thread.
    async fn complete_stop(&self) {
        let one = || self.stops.lock().expect("lock is never poisoned: no holder panics").pop();
        eventually("a stop of the sandbox", || async { one().is_some() }).await;
    }

    async fn has_error(&self, id: SessionId, code: &str) -> bool {
        let is = |event: &Event| matches!(&event.body, greenroom_protocol::EventBody::Observation(Observation { kind: ObservationKind::Error { code: c, .. }, .. }) if c == code);
        self.events(id).await.iter().any(is)
    }
}

async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out waiting for {what}");
}

fn say(content: &str, key: Option<&str>) -> Relay {
    let request = ClientRequest::Message { content: content.into(), mode: Default::default(), attachments: vec![] };
    Relay { request, idempotency_key: key.map(str::to_owned), requested_by: None }
}

fn run(command: &str) -> Relay {
    let request = ClientRequest::Run { command: command.into() };
    Relay { request, idempotency_key: None, requested_by: None }
}

/// Subscriber that records whether it was notified.
struct PublishedProbe(Arc<AtomicBool>);

impl Actor for PublishedProbe {
    type Context = Context<PublishedProbe>;
}

impl Handler<Published> for PublishedProbe {
    type Result = ();
    fn handle(&mut self, _: Published, _: &mut Context<PublishedProbe>) {
        self.0.store(true, SeqCst);
    }
}

#[actix::test]
async fn repeated_or_rejected_title_changes_nothing() {
    let harness = harness(Arc::default());
    let session = harness.create(None).await.session;
    let initialize = |title: &str, key: &str| {
        let request = ClientRequest::Initialize {
            title: Some(title.to_owned()),
            model: None,
            image: None,
            directory: None,
            agent_cls: None,
            effort: None,
            mode: None,
            analyzer: None,
            repo: None,
            reference: None,
        };
        session.send(Relay { request, idempotency_key: Some(key.to_owned()), requested_by: None })
    };
    let title = async || session.send(GetView).await.expect("the actor is alive").title;
    initialize("first", "k").await.expect("the actor is alive").expect("the request is accepted");
    let renamed = UpdateMetadata { title: Some("second".to_owned()), ..UpdateMetadata::default() };
    session.send(renamed).await.expect("the actor is alive").expect("the request is accepted");
    initialize("first", "k").await.expect("the actor is alive").expect("the repeated request is accepted");
    assert_eq!(title().await, "second");
    session.send(End::default()).await.expect("the actor is alive").expect("the session ends");
    initialize("third", "l").await.expect("the actor is alive").expect_err("the session has ended");
    assert_eq!(title().await, "second");
}

#[actix::test]
async fn session_has_one_actor() {
    let harness = harness(Arc::default());
    let id = harness.create(None).await.view.id;
    let (one, two) = futures::join!(harness.open(id), harness.open(id));
    assert_eq!(one.expect("the session exists"), two.expect("the session exists"));
    let unknown = SessionId::generate();
    assert_eq!(harness.open(unknown).await.expect_err("no such session exists").code(), "not_found");
}

/// Sends reports and waits until they are on disk.
///
/// # Errors
/// `OutOfOrder` if the session did not accept the reports.
async fn report(session: &Addr<Session>, boot: &str, n: u64, reports: Vec<AgentReport>) -> Result<(), OutOfOrder> {
    let (durable, persisted) = oneshot::channel();
    session.send(Reported { boot: boot.into(), n, reports, durable }).await.expect("the actor is alive");
    persisted.await.expect("the session replies")
}

#[actix::test]
async fn report_is_stored_once_and_in_order() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    created.session.send(testkit::hello("b")).await.expect("the actor is alive").expect("the hello is accepted");
    created.session.send(say("go", None)).await.expect("the actor is alive").expect("the request is accepted");
    let messages = || {
        let seen = ObservationKind::Message { partial: false };
        let body = Observation { kind: seen, content: "x".repeat(100_000) }.into();
        vec![AgentReport::Event { item: Some("i".into()), body }]
    };
    for n in [1, 1] {
        report(&created.session, "b", n, messages()).await.expect("the report is on disk");
    }
    assert_eq!(report(&created.session, "b", 3, messages()).await, Err(OutOfOrder { n: 3, newest: 1 }));
    assert_eq!(
        report(&created.session, "other", 2, messages()).await,
        Err(OutOfOrder { n: 2, newest: 0 }),
        "the numbers of another boot start anew"
    );
    let events = harness.events(created.view.id).await;
    let messages: Vec<_> =
        events.iter().filter(|event| event.body.name() == "message" && event.item.as_deref() == Some("i")).collect();
    assert_eq!(messages.len(), 1);
    let report = AgentReport::TurnEnded { turn: harness.first_effect_field("turn").await, outcome: WorkOutcome::Done };
    self::report(&created.session, "b", 2, vec![report]).await.expect("the report is on disk");
    let error =
        created.session.send(Interrupt::default()).await.expect("the actor is alive").expect_err("no turn is running");
    assert_eq!(error.code(), "nothing_to_interrupt");
}

#[actix::test]
async fn overlapping_report_batches_are_stored_once() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    created.session.send(testkit::hello("b")).await.expect("the actor is alive").expect("the hello is accepted");
    let messages = |content: u64| {
        let body =
            Observation { kind: ObservationKind::Message { partial: false }, content: content.to_string() }.into();
        AgentReport::Event { item: None, body }
    };
    let report_batch = |n, count| report(&created.session, "b", n, (n..n + count).map(messages).collect());
    // Overlapping reports: the connection was cut before the acknowledgement arrived.
    for (n, count) in [(1, 3), (1, 3), (2, 4), (5, 1), (6, 2)] {
        report_batch(n, count).await.expect("the reports are on disk");
    }
    assert!(report_batch(9, 2).await.is_err(), "report 8 is missing");
    let events = harness.events(created.view.id).await;
    let messages = events.iter().filter_map(|event| match &event.body {
        EventBody::Observation(Observation { kind: ObservationKind::Message { .. }, content }) => Some(content.clone()),
        _ => None,
    });
    assert_eq!(messages.collect::<Vec<_>>(), ["1", "2", "3", "4", "5", "6", "7"]);
    let seqs: Vec<_> = events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
}

/// Decide, persist, publish: an event in flight to disk is not readable, not published and causes
/// no effect.
#[actix::test]
async fn nothing_is_published_before_it_is_on_disk() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    created.session.send(testkit::hello("b")).await.expect("the actor is alive").expect("the hello is accepted");
    let subscriber = PublishedProbe(Arc::default()).start().recipient();
    let subscription = created.session.send(Attach { subscriber }).await.expect("the actor is alive").subscription;
    let persisted_tail =
        || async { harness.store.get(created.view.id).await.ok().flatten().map(|snapshot| snapshot.tail) };
    eventually("the earlier events to be published", || async { persisted_tail().await == Some(subscription.tail()) })
        .await;
    let before = subscription.tail();
    harness.store.gate_appends();
    let mut answers: Vec<_> =
        ["one", "two", "three"].map(|command| Box::pin(created.session.send(run(command)))).into();
    let delivered_count = || {
        harness
            .recorded
            .lock()
            .expect("lock is never poisoned: no holder panics")
            .iter()
            .filter(|o| o.contains("command: \""))
            .count()
    };
    for (n, answer) in answers.iter_mut().enumerate() {
        let early = tokio::time::timeout(Duration::from_millis(20), &mut *answer).await;
        assert!(early.is_err(), "answer {n} came before its event was on disk");
    }
    assert_eq!((subscription.tail(), delivered_count()), (before, 0));
    let mut tail = before;
    for (n, answer) in answers.into_iter().enumerate() {
        harness.store.release_one();
        let accepted = answer.await.expect("the actor is alive").expect("the request is accepted");
        assert!(accepted.seq.is_some_and(|seq| seq > tail && seq <= subscription.tail()), "answer {n}: {accepted:?}");
        tail = subscription.tail();
        // User actions run one at a time, so only the first is delivered.
        eventually("the first command to be delivered", || async { delivered_count() == 1 }).await;
    }
}

/// An agent does not resend acknowledged reports, so a later server must have all their
/// consequences.
#[actix::test]
async fn acknowledged_reports_survive_a_server_change() {
    let first = harness(Arc::default());
    let created = first.create(None).await;
    created.session.send(testkit::hello("b")).await.expect("the actor is alive").expect("the hello is accepted");
    created.session.send(say("go", None)).await.expect("the actor is alive").expect("the request is accepted");
    created.session.send(run("true")).await.expect("the actor is alive").expect("the request is accepted");
    let action_ended = AgentReport::UserActionEnded {
        user_action: first.first_effect_field("user_action").await,
        outcome: WorkOutcome::Done,
    };
    let turn_ended =
        AgentReport::TurnEnded { turn: first.first_effect_field("turn").await, outcome: WorkOutcome::Done };
    report(&created.session, "b", 1, vec![action_ended]).await.expect("the report is on disk");
    let second = harness(first.store.clone());
    let again = second.open(created.view.id).await.expect("the session is restarted");
    again.send(testkit::hello("b")).await.expect("the actor is alive").expect("the hello is accepted");
    report(&again, "b", 2, vec![turn_ended]).await.expect("the report is on disk");
    assert_eq!(
        again.send(GetView).await.expect("the actor is alive").state,
        AgentState::Idle,
        "the command ended before the restart"
    );
}

#[actix::test]
async fn only_idle_sessions_are_passivated() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    assert_eq!(harness.directory.send(PassivateIdle).await.expect("the actor is alive"), 0);
    created.session.send(End::default()).await.expect("the actor is alive").expect("the session ends");
    assert_eq!(
        harness.directory.send(PassivateIdle).await.expect("the actor is alive"),
        0,
        "the sandbox is being stopped"
    );
    harness.complete_stop().await;
    assert_eq!(harness.directory.send(PassivateIdle).await.expect("the actor is alive"), 1);
    eventually("the actor to stop", || async { !created.session.connected() }).await;
    let again = harness.open(created.view.id).await.expect("the journal exists");
    let error = again.send(say("more", None)).await.expect("the actor is alive").expect_err("the session has ended");
    assert_eq!(error.code(), "ended");
    harness
        .directory
        .send(Purge { id: created.view.id })
        .await
        .expect("the actor is alive")
        .expect("the session is purged");
    assert_eq!(harness.open(created.view.id).await.expect_err("the session is gone").code(), "not_found");
}

/// Otherwise the stop would hit the sandbox that the session's next actor starts.
#[actix::test]
async fn session_with_stop_in_flight_is_not_passivated() {
    let harness = harness(Arc::default());
    let session = harness.create(None).await.session;
    let reconcile = || session.send(Reconcile { observed: SandboxPresence::Running });
    let passivate_idle = || harness.directory.send(PassivateIdle);
    session.send(Stop::default()).await.expect("the actor is alive").expect("the session is stopped");
    assert_eq!((reconcile().await, passivate_idle().await), (Ok(false), Ok(0)), "a stop in flight is not repeated");
    harness.complete_stop().await;
    assert_eq!(
        (reconcile().await, passivate_idle().await),
        (Ok(true), Ok(0)),
        "a sandbox that still runs is stopped again"
    );
    harness.complete_stop().await;
    assert_eq!(passivate_idle().await, Ok(1));
}

#[actix::test]
async fn shutdown_stops_sessions_and_restarts_none() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    harness.directory.send(ShutDown { stop: true }).await.expect("the actor is alive");
    let view = created.session.send(GetView).await.expect("the actor is alive");
    assert_eq!((view.state, view.reason.as_deref()), (AgentState::Stopped, Some("the server ended")));
    harness.directory.do_send(SessionStopped { id: created.view.id, reason: SessionStopReason::Panicked });
    let create = Create { new: NewSession::default(), key: None, dedup_key: None, preferred_thread: None };
    let rejected = harness.directory.send(create).await.expect("the actor is alive").map(drop);
    assert!(matches!(rejected, Err(RequestError::Unavailable(_))), "{rejected:?}");
    assert_eq!(harness.open(created.view.id).await.map(drop), Ok(()), "a running session stays available");
}

#[actix::test]
async fn session_runs_on_preferred_thread() {
    let harness = harness(Arc::default());
    for preferred in harness.threads.indexes() {
        let (id_tx, id_rx) = oneshot::channel();
        harness.threads.run(preferred, move || id_tx.send(thread::current().id()).expect("the receiver is open"));
        let thread = id_rx.await.expect("the thread runs");
        let create =
            Create { new: NewSession::default(), key: None, dedup_key: None, preferred_thread: Some(preferred) };
        let created =
            harness.directory.send(create).await.expect("the actor is alive").expect("the session is created");
        assert!(created.session.connected());
        assert_eq!(harness.threads.thread_of(&created.view.id), preferred, "the id names the thread");
        assert_eq!(harness.links.lock().expect("lock is never poisoned: no holder panics").pop(), Some(thread));
    }
}

#[actix::test]
async fn shutdown_flushes_pending_usage() {
    let harness = harness(Arc::default());
    let created = harness.create(None).await;
    harness.store.gate_appends();
    let notice = GatewayNotice::Used(MeteredUsage { model: "m".into(), input_tokens: 7, ..MeteredUsage::default() });
    created.session.do_send(NoticeReceived { notice, permit: None });
    let closing = harness.directory.send(ShutDown { stop: false });
    let disk = async {
        created.session.send(GetView).await.expect("the actor is alive");
        harness.store.release_one();
    };
    let (closed, ()) = tokio::join!(closing, disk);
    closed.expect("the actor is alive");
    let record =
        harness.store.get(created.view.id).await.expect("the store is readable").expect("the session exists").record;
    assert_eq!(record.usage.input_tokens, 7);
}
