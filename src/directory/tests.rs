//! Sessions that fall and come back: over a store that can be told to fail, and a link that only listens.

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
    link::{AgentHello, AgentReport, AgentSettings, LINK_VERSION, ProviderApi, WorkOutcome},
};

use super::*;
use crate::{
    gateway::{GatewayNotice, GatewayOptions, MeteredUsage},
    sandbox::{FoundSandbox, ProgressCallback, SandboxError, SandboxExit, SandboxPresence, SandboxSpec, SandboxStats},
    session::messages::{
        Attach, End, GetView, HelloReceived, Interrupt, LinkPort, NoticeReceived, OutOfOrder, Published, Reconcile,
        Relay, Reported, SessionStopReason, UpdateMetadata, effects,
    },
    store::{JournalEvent, ReadLimit, Seq, SessionRecord, faulty::FaultyStore},
};

/// No wall at all: nothing ever runs in it.
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

/// Takes a session's orders and keeps their names; what is to be taken away stays until it is said to be gone.
#[derive(Clone)]
struct DirectoryTestLink {
    orders: Arc<Mutex<Vec<String>>>,
    stop_orders: Arc<Mutex<Vec<effects::StopSandbox>>>,
}

impl Actor for DirectoryTestLink {
    type Context = Context<DirectoryTestLink>;
}

macro_rules! hears {
    ($($order:ident),+) => {$(
        impl Handler<effects::$order> for DirectoryTestLink {
            type Result = ();
            fn handle(&mut self, order: effects::$order, _: &mut Context<DirectoryTestLink>) {
                self.orders.lock().expect("nobody panics here").push(format!("{order:?}"));
            }
        }
    )+};
}
hears!(StartSandbox, DeliverToAgent, AbortModelStreams, PauseSandbox, UnpauseSandbox);

impl Handler<effects::StopSandbox> for DirectoryTestLink {
    type Result = ();
    fn handle(&mut self, order: effects::StopSandbox, _: &mut Context<DirectoryTestLink>) {
        self.stop_orders.lock().expect("nobody panics here").push(order);
    }
}

struct DirectoryTestHarness {
    directory: Addr<Directory>,
    store: Arc<FaultyStore>,
    orders: Arc<Mutex<Vec<String>>>,
    /// Orders to take a sandbox away, under way.
    stop_orders: Arc<Mutex<Vec<effects::StopSandbox>>>,
    /// Where sessions made their links.
    links: Arc<Mutex<Vec<ThreadId>>>,
    threads: SessionThreads,
    starts: Arc<StartLimiter>,
}

fn harness(store: Arc<FaultyStore>) -> DirectoryTestHarness {
    let orders: Arc<Mutex<Vec<String>>> = Arc::default();
    let kills: Arc<Mutex<Vec<effects::StopSandbox>>> = Arc::default();
    let links: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let (made, threads) = (links.clone(), SessionThreads::start());
    let gateway = Gateway::new(GatewayOptions::default()).expect("a gateway without keys");
    let (census, starts) = (ActorRegistry::default(), Arc::new(StartLimiter::new(8, 8)));
    let (kept, register, ear) =
        (store.clone(), census.clone(), DirectoryTestLink { orders: orders.clone(), stop_orders: kills.clone() });
    let nowhere = || std::path::PathBuf::from("/nonexistent");
    let directory = Directory::start(DirectoryParts {
        store: store.clone(),
        actor_registry: census,
        gateway,
        sandbox: Arc::new(DirectoryTestSandbox),
        start_limiter: starts.clone(),
        runs: nowhere(),
        workspaces: nowhere(),
        homes: nowhere(),
        threads: threads.clone(),
        sessions: Box::new(move |fell| session::SessionDeps {
            store: kept,
            actor_registry: register,
            make_link: Box::new(move |_, _, _| {
                made.lock().expect("nobody panics here").push(thread::current().id());
                let ear = ear.clone().start();
                LinkPort {
                    cancel_on_drop: tokio_util::sync::CancellationToken::new().drop_guard(),
                    start_sandbox: ear.clone().recipient(),
                    deliver_to_agent: ear.clone().recipient(),
                    abort_model_streams: ear.clone().recipient(),
                    pause_sandbox: ear.clone().recipient(),
                    unpause_sandbox: ear.clone().recipient(),
                    stop_sandbox: ear.recipient(),
                }
            }),
            check_model: Box::new(|_| Ok(())),
            settings_for: Box::new(|record| AgentSettings {
                model: record.model.clone(),
                api: ProviderApi::Anthropic,
                directory: "/workspace".into(),
                run_timeout_s: 1,
                max_steps: 1,
            }),
            session_stopped: fell,
        }),
    });
    DirectoryTestHarness { directory, store, orders, stop_orders: kills, links, threads, starts }
}

impl DirectoryTestHarness {
    async fn create(&self, key: Option<&str>) -> CreatedSession {
        let create =
            Create { new: NewSession::default(), key: key.map(str::to_owned), dedup_key: None, preferred_thread: None };
        self.directory.send(create).await.expect("it lives").expect("it is made")
    }

    async fn open(&self, id: SessionId) -> OpenResult {
        self.directory.send(Open { id }).await.expect("the Directory lives")
    }

    async fn events(&self, id: SessionId) -> Vec<Event> {
        let page = self.store.read(id, 0, ReadLimit { events: 1000, bytes: 1 << 20 }).await.expect("it can be read");
        let event = |(_, event): (Seq, JournalEvent)| serde_json::from_slice(&event.json).expect("an event");
        page.into_iter().map(event).collect()
    }

    /// The name in the first order that has a field like that, once it has come: orders go to another thread.
    async fn ordered(&self, field: &str) -> String {
        let named = |order: &String| Some(order.split(&format!("{field}: \"")).nth(1)?.split('"').next()?.to_owned());
        let first = || self.orders.lock().expect("nobody panics here").iter().find_map(named);
        eventually(&format!("an order with `{field}`"), || async { first().is_some() }).await;
        first().expect("it was just there")
    }

    /// Lets one order be carried out that takes a sandbox away, once it is given: orders go to another thread.
    async fn complete_stop(&self) {
        let one = || self.stop_orders.lock().expect("nobody panics here").pop();
        eventually("an order to take a sandbox away", || async { one().is_some() }).await;
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
    panic!("waited in vain for {what}");
}

fn say(content: &str, key: Option<&str>) -> Relay {
    let wish = ClientRequest::Message { content: content.into(), mode: Default::default(), attachments: vec![] };
    Relay { request: wish, idempotency_key: key.map(str::to_owned) }
}

fn greet(boot: &str) -> HelloReceived {
    let hello = AgentHello {
        link_version: LINK_VERSION,
        boot: boot.into(),
        agent_version: String::new(),
        last_n: 0,
        turn: None,
    };
    HelloReceived { hello }
}

/// A listener that counts how often it was told to look.
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
async fn a_title_that_is_given_again_or_refused_changes_nothing() {
    let house = harness(Arc::default());
    let session = house.create(None).await.session;
    let initialize = |title: &str, key: &str| {
        let wish = ClientRequest::Initialize {
            title: Some(title.to_owned()),
            model: None,
            image: None,
            directory: None,
            agent_cls: None,
        };
        session.send(Relay { request: wish, idempotency_key: Some(key.to_owned()) })
    };
    let title = async || session.send(GetView).await.expect("it lives").title;
    initialize("first", "k").await.expect("it lives").expect("it is taken");
    let renamed = UpdateMetadata { title: Some("second".to_owned()), archived: None, model: None };
    session.send(renamed).await.expect("it lives").expect("it is taken");
    initialize("first", "k").await.expect("it lives").expect("it is known");
    assert_eq!(title().await, "second");
    session.send(End::default()).await.expect("it lives").expect("it ends");
    initialize("third", "l").await.expect("it lives").expect_err("it has ended");
    assert_eq!(title().await, "second");
}

#[actix::test]
async fn one_session_has_one_actor() {
    let house = harness(Arc::default());
    let id = house.create(None).await.view.id;
    let (one, two) = futures::join!(house.open(id), house.open(id));
    assert_eq!(one.expect("it is there"), two.expect("it is there"));
    let unknown = SessionId::generate();
    assert_eq!(house.open(unknown).await.expect_err("nobody made it").code(), "not_found");
}

/// Done when it is on disk; an error where it was not taken.
async fn report(session: &Addr<Session>, boot: &str, n: u64, reports: Vec<AgentReport>) -> Result<(), OutOfOrder> {
    let (durable, on_disk) = oneshot::channel();
    session.send(Reported { boot: boot.into(), n, reports, durable }).await.expect("it lives");
    on_disk.await.expect("it is told")
}

#[actix::test]
async fn a_report_is_taken_once_and_in_its_order() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    made.session.send(greet("b")).await.expect("it lives").expect("it is welcomed");
    made.session.send(say("go", None)).await.expect("it lives").expect("it is taken");
    let said = || {
        let seen = ObservationKind::Message { partial: false };
        let body = Observation { kind: seen, content: "x".repeat(100_000) }.into();
        vec![AgentReport::Event { item: Some("i".into()), body }]
    };
    for n in [1, 1] {
        report(&made.session, "b", n, said()).await.expect("it is on disk");
    }
    assert_eq!(report(&made.session, "b", 3, said()).await, Err(OutOfOrder { n: 3, newest: 1 }));
    assert_eq!(
        report(&made.session, "other", 2, said()).await,
        Err(OutOfOrder { n: 2, newest: 0 }),
        "of another start"
    );
    let events = house.events(made.view.id).await;
    let said: Vec<_> =
        events.iter().filter(|event| event.body.name() == "message" && event.item.as_deref() == Some("i")).collect();
    assert_eq!(said.len(), 1);
    let report = AgentReport::TurnEnded { turn: house.ordered("turn").await, outcome: WorkOutcome::Done };
    self::report(&made.session, "b", 2, vec![report]).await.expect("it is on disk");
    let refusal = made.session.send(Interrupt::default()).await.expect("it lives").expect_err("nothing runs");
    assert_eq!(refusal.code(), "nothing_to_interrupt");
}

#[actix::test]
async fn reports_that_come_together_are_each_taken_once() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    made.session.send(greet("b")).await.expect("it lives").expect("it is welcomed");
    let said = |content: u64| {
        let body =
            Observation { kind: ObservationKind::Message { partial: false }, content: content.to_string() }.into();
        AgentReport::Event { item: None, body }
    };
    let together = |n, count| report(&made.session, "b", n, (n..n + count).map(said).collect());
    // Those that overlap: the connection was cut before the agent knew.
    for (n, count) in [(1, 3), (1, 3), (2, 4), (5, 1), (6, 2)] {
        together(n, count).await.expect("they are on disk");
    }
    assert!(together(9, 2).await.is_err(), "one is missing");
    let events = house.events(made.view.id).await;
    let said = events.iter().filter_map(|event| match &event.body {
        EventBody::Observation(Observation { kind: ObservationKind::Message { .. }, content }) => Some(content.clone()),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), ["1", "2", "3", "4", "5", "6", "7"]);
    let seqs: Vec<_> = events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
}

/// Decide, write down, tell: while an event is on its way to disk, nobody sees it, hears of it, or is ordered by it.
#[actix::test]
async fn nothing_is_told_before_it_is_on_disk() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    made.session.send(greet("b")).await.expect("it lives").expect("it is welcomed");
    let listener = PublishedProbe(Arc::default()).start().recipient();
    let listening = made.session.send(Attach { subscriber: listener }).await.expect("it lives").subscription;
    let on_disk = || async { house.store.get(made.view.id).await.ok().flatten().map(|snapshot| snapshot.tail) };
    eventually("what came before to be told", || async { on_disk().await == Some(listening.tail()) }).await;
    let before = listening.tail();
    let run = |command: &str| Relay { request: ClientRequest::Run { command: command.into() }, idempotency_key: None };
    house.store.gate_appends();
    let mut answers: Vec<_> = ["one", "two", "three"].map(|command| Box::pin(made.session.send(run(command)))).into();
    let ordered =
        || house.orders.lock().expect("nobody panics here").iter().filter(|o| o.contains("command: \"")).count();
    for (n, answer) in answers.iter_mut().enumerate() {
        let early = tokio::time::timeout(Duration::from_millis(20), &mut *answer).await;
        assert!(early.is_err(), "answer {n} came before its event was on disk");
    }
    assert_eq!((listening.tail(), ordered()), (before, 0));
    let mut tail = before;
    for (n, answer) in answers.into_iter().enumerate() {
        house.store.release_one();
        let accepted = answer.await.expect("it lives").expect("it is taken");
        assert!(accepted.seq.is_some_and(|seq| seq > tail && seq <= listening.tail()), "answer {n}: {accepted:?}");
        tail = listening.tail();
        // One command runs at a time, so only the first is ordered.
        eventually("the first to be ordered", || async { ordered() == 1 }).await;
    }
}

/// An agent does not say again what was acknowledged, so a server that comes later must know all that followed from it.
#[actix::test]
async fn what_is_acknowledged_is_known_to_the_next_server() {
    let first = harness(Arc::default());
    let made = first.create(None).await;
    made.session.send(greet("b")).await.expect("it lives").expect("it is welcomed");
    made.session.send(say("go", None)).await.expect("it lives").expect("it is taken");
    let run = Relay { request: ClientRequest::Run { command: "true".into() }, idempotency_key: None };
    made.session.send(run).await.expect("it lives").expect("it is taken");
    let act_ended =
        AgentReport::UserActionEnded { user_action: first.ordered("user_action").await, outcome: WorkOutcome::Done };
    let turn_ended = AgentReport::TurnEnded { turn: first.ordered("turn").await, outcome: WorkOutcome::Done };
    report(&made.session, "b", 1, vec![act_ended]).await.expect("it is on disk");
    let second = harness(first.store.clone());
    let again = second.open(made.view.id).await.expect("it is brought back");
    again.send(greet("b")).await.expect("it lives").expect("it is welcomed");
    report(&again, "b", 2, vec![turn_ended]).await.expect("it is on disk");
    assert_eq!(again.send(GetView).await.expect("it lives").state, AgentState::Idle, "the command ended before");
}

#[actix::test]
async fn only_what_is_at_rest_is_let_go() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    assert_eq!(house.directory.send(PassivateIdle).await.expect("it lives"), 0);
    made.session.send(End::default()).await.expect("it lives").expect("it ends");
    assert_eq!(house.directory.send(PassivateIdle).await.expect("it lives"), 0, "its sandbox is being taken away");
    house.complete_stop().await;
    assert_eq!(house.directory.send(PassivateIdle).await.expect("it lives"), 1);
    eventually("its actor to be gone", || async { !made.session.connected() }).await;
    let again = house.open(made.view.id).await.expect("its journal is there");
    let refusal = again.send(say("more", None)).await.expect("it lives").expect_err("it is closed");
    assert_eq!(refusal.code(), "ended");
    house.directory.send(Purge { id: made.view.id }).await.expect("it lives").expect("it is purged");
    assert_eq!(house.open(made.view.id).await.expect_err("no trace").code(), "not_found");
}

/// Otherwise the order would be carried out on the sandbox that the next actor of the session brings up.
#[actix::test]
async fn a_session_is_not_let_go_while_its_sandbox_is_being_stopped() {
    let house = harness(Arc::default());
    let session = house.create(None).await.session;
    let settle = || session.send(Reconcile { observed: SandboxPresence::Running });
    let tidy = || house.directory.send(PassivateIdle);
    session.send(Stop::default()).await.expect("it lives").expect("it is stopped");
    assert_eq!((settle().await, tidy().await), (Ok(false), Ok(0)), "it is being stopped, once");
    house.complete_stop().await;
    assert_eq!((settle().await, tidy().await), (Ok(true), Ok(0)), "it was seen to run all the same");
    house.complete_stop().await;
    assert_eq!(tidy().await, Ok(1));
}

#[actix::test]
async fn a_server_that_goes_stops_what_it_is_asked_to_and_brings_nothing_back() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    house.directory.send(ShutDown { stop: true }).await.expect("it lives");
    let view = made.session.send(GetView).await.expect("it lives");
    assert_eq!((view.state, view.reason.as_deref()), (AgentState::Stopped, Some("the server ended")));
    house.directory.do_send(SessionStopped { id: made.view.id, reason: SessionStopReason::Panicked });
    let create = Create { new: NewSession::default(), key: None, dedup_key: None, preferred_thread: None };
    let refused = house.directory.send(create).await.expect("it lives").map(drop);
    assert!(matches!(refused, Err(RequestError::Unavailable(_))), "{refused:?}");
    assert_eq!(house.open(made.view.id).await.map(drop), Ok(()), "what is live can still be asked");
}

#[actix::test]
async fn a_session_lives_where_whoever_asked_for_it_listens() {
    let house = harness(Arc::default());
    for near in house.threads.indexes() {
        let (tell, told) = oneshot::channel();
        house.threads.run(near, move || tell.send(thread::current().id()).expect("somebody waits"));
        let thread = told.await.expect("the thread runs");
        let create = Create { new: NewSession::default(), key: None, dedup_key: None, preferred_thread: Some(near) };
        let made = house.directory.send(create).await.expect("it lives").expect("it is made");
        assert!(made.session.connected());
        assert_eq!(house.threads.thread_of(made.view.id), near, "whoever comes later finds it there");
        assert_eq!(house.links.lock().expect("nobody panics here").pop(), Some(thread));
    }
}

#[actix::test]
async fn a_server_that_goes_has_written_down_what_its_sessions_heard() {
    let house = harness(Arc::default());
    let made = house.create(None).await;
    house.store.gate_appends();
    let notice = GatewayNotice::Used(MeteredUsage { model: "m".into(), input_tokens: 7, ..MeteredUsage::default() });
    made.session.do_send(NoticeReceived { notice, permit: None });
    let closing = house.directory.send(ShutDown { stop: false });
    let disk = async {
        made.session.send(GetView).await.expect("it lives");
        house.store.release_one();
    };
    let (closed, ()) = tokio::join!(closing, disk);
    closed.expect("it lives");
    let record = house.store.get(made.view.id).await.expect("it is read").expect("it is there").record;
    assert_eq!(record.usage.input_tokens, 7);
}
