//! Sessions, and clients of theirs, without a Directory and without a network.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use actix::prelude::*;
use actix_codec::{Decoder, Encoder};
use actix_http::ws::{Codec, Frame, Message as Words};
use actix_web::{
    FromRequest, HttpRequest, HttpResponse, body::BoxBody, body::MessageBody, dev, test::TestRequest, web::Payload,
};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, future::poll_fn, stream};
use greenroom_protocol::{
    Event, Observation, ObservationKind,
    client::ClientRequest,
    link::{AgentHello, AgentReport, AgentSettings, LINK_VERSION, ProviderApi, WorkOutcome},
    observation::AgentState,
};
use serde_json::Value;
use tokio::{
    sync::{RwLock, mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    actor_registry::ActorRegistry,
    frontend::{AttachQuery, FrontendServices, SessionProvider, open, open_chat},
    session::{
        self, RequestError, Session,
        messages::{
            HelloReceived, LinkPort, Relay, Reported, SessionStopped,
            effects::{AbortModelStreams, DeliverToAgent, PauseSandbox, StartSandbox, StopSandbox, UnpauseSandbox},
        },
    },
    store::{
        AppendBatch, JournalEvent, ReadLimit, Seq, SessionId, SessionRecord, Store, contract, faulty::FaultyStore,
    },
};

/// How long a client waits for what it is to be told.
const FRAME_TIMEOUT: Duration = Duration::from_secs(10);

/// A link whose agent never answers, and whoever should hear that a session fell.
struct FrontendSilentLink;

impl Actor for FrontendSilentLink {
    type Context = Context<FrontendSilentLink>;
}

macro_rules! hears {
    ($($message:ty),*) => {$(
        impl Handler<$message> for FrontendSilentLink {
            type Result = ();
            fn handle(&mut self, _: $message, _: &mut Context<FrontendSilentLink>) {}
        }
    )*};
}
hears!(StartSandbox, DeliverToAgent, AbortModelStreams, PauseSandbox, UnpauseSandbox, StopSandbox, SessionStopped);

fn silent_link() -> LinkPort {
    let link = FrontendSilentLink.start();
    LinkPort {
        cancel_on_drop: CancellationToken::new().drop_guard(),
        start_sandbox: link.clone().recipient(),
        deliver_to_agent: link.clone().recipient(),
        abort_model_streams: link.clone().recipient(),
        pause_sandbox: link.clone().recipient(),
        unpause_sandbox: link.clone().recipient(),
        stop_sandbox: link.recipient(),
    }
}

/// Where clients find sessions, or do not.
pub(super) struct TestSessions {
    store: Arc<FaultyStore>,
    parts: Arc<session::SessionDeps>,
    live: Mutex<HashMap<SessionId, Addr<Session>>>,
    /// Why none is to be had.
    pub(super) error: Mutex<Option<RequestError>>,
    /// Given in place of the right one, once.
    pub(super) stale: Mutex<Option<Addr<Session>>>,
    pub(super) created: AtomicUsize,
    /// How many times one was looked for.
    pub(super) lookups: AtomicUsize,
    /// Whoever looks for a session waits while somebody writes this.
    pub(super) lookup_lock: RwLock<()>,
}

#[async_trait]
impl SessionProvider for TestSessions {
    async fn open(&self, id: SessionId) -> Result<Addr<Session>, RequestError> {
        self.lookups.fetch_add(1, SeqCst);
        let _open = self.lookup_lock.read().await;
        if let Some(refusal) = self.error.lock().expect("nobody panics here").clone() {
            return Err(refusal);
        }
        if let Some(stale) = self.stale.lock().expect("nobody panics here").take() {
            return Ok(stale);
        }
        let live = self.live.lock().expect("nobody panics here").get(&id).cloned();
        if let Some(live) = live.filter(Addr::connected) {
            return Ok(live);
        }
        let claimed = self.store.claim(id).await;
        let (epoch, snapshot) = claimed.map_err(|_| RequestError::NoSession(id.to_string()))?;
        let session = Session::start_from(self.parts.clone(), epoch, snapshot, None)?;
        self.live.lock().expect("nobody panics here").insert(id, session.clone());
        Ok(session)
    }

    async fn create(&self, _: &ClientRequest, key: Option<String>) -> Result<(SessionId, Addr<Session>), RequestError> {
        self.created.fetch_add(1, SeqCst);
        let id = SessionId::generate();
        self.store.create(record(id, key)).await.expect("it is made");
        Ok((id, self.open(id).await?))
    }
}

pub(crate) fn record(id: SessionId, key: Option<String>) -> SessionRecord {
    SessionRecord { id, idempotency_key: key, state: AgentState::Starting, ..contract::record("") }
}

pub(super) struct FrontendFixture {
    pub(super) store: Arc<FaultyStore>,
    pub(super) sessions: Arc<TestSessions>,
    pub(super) parts: Arc<FrontendServices>,
}

pub(super) fn fixture() -> FrontendFixture {
    let (store, census) = (Arc::new(FaultyStore::default()), ActorRegistry::default());
    let sessions = session::SessionDeps {
        store: store.clone(),
        actor_registry: census.clone(),
        make_link: Box::new(|_, _, _| silent_link()),
        settings_for: Box::new(|record| AgentSettings {
            model: record.model.clone(),
            api: ProviderApi::Anthropic,
            directory: "/workspace".into(),
            run_timeout_s: 1,
            max_steps: 1,
        }),
        check_model: Box::new(|_| Ok(())),
        session_stopped: FrontendSilentLink.start().recipient(),
    };
    let rooms = Arc::new(TestSessions {
        store: store.clone(),
        parts: Arc::new(sessions),
        live: Mutex::default(),
        error: Mutex::default(),
        stale: Mutex::default(),
        created: AtomicUsize::new(0),
        lookups: AtomicUsize::new(0),
        lookup_lock: RwLock::default(),
    });
    let closing = CancellationToken::new();
    let parts =
        Arc::new(FrontendServices { sessions: rooms.clone(), store: store.clone(), actor_registry: census, closing });
    FrontendFixture { store, sessions: rooms, parts }
}

impl FrontendFixture {
    /// A session that nobody has opened, with so many events of the agent's.
    pub(super) async fn journal(&self, events: Seq) -> SessionId {
        let id = SessionId::generate();
        self.store.create(record(id, None)).await.expect("it is made");
        let (epoch, _) = self.store.claim(id).await.expect("it is there");
        let event = |seq| JournalEvent {
            kind: "message".into(),
            json: Bytes::from(format!(
                r#"{{"seq":{seq},"at":"","source":"agent","observation":"message","extras":{{}},"content":"{seq}","message":""}}"#
            )),
        };
        let batch = AppendBatch { events: (1..=events).map(event).collect(), ..AppendBatch::default() };
        self.store.append(id, epoch, 0, batch).await.expect("it is written");
        id
    }

    /// A session whose agent is there, and has nothing to do.
    pub(super) async fn session(&self) -> (SessionId, Addr<Session>) {
        let (id, session) = self.sessions.create(&ClientRequest::Ping {}, None).await.expect("it is made");
        let (boot, agent_version) = ("b".to_owned(), String::new());
        let hello = AgentHello { link_version: LINK_VERSION, boot, agent_version, last_n: 0, turn: None };
        session.send(HelloReceived { hello }).await.expect("it lives").expect("it is welcomed");
        (id, session)
    }

    pub(super) async fn session_of(&self, id: SessionId) -> Addr<Session> {
        self.sessions.open(id).await.expect("it is to be had")
    }

    pub(super) fn fail_lookups(&self, refusal: Option<RequestError>) {
        *self.sessions.error.lock().expect("nobody panics here") = refusal;
    }

    pub(super) fn delay_store(&self, slowness: Duration) {
        *self.store.read_delay.lock().expect("nobody panics here") = slowness;
    }

    pub(super) async fn events(&self, id: SessionId) -> Vec<Event> {
        let page = self.store.read(id, 0, ReadLimit { events: 1000, bytes: 1 << 20 }).await.expect("it can be read");
        page.into_iter().map(|(_, event)| serde_json::from_slice(&event.json).expect("an event")).collect()
    }

    /// The turn that began last.
    pub(super) async fn turn(&self, id: SessionId) -> String {
        let turn = |event: Event| match event.body {
            greenroom_protocol::EventBody::Observation(Observation {
                kind: ObservationKind::Chat { turn, .. },
                ..
            }) => turn,
            _ => None,
        };
        self.events(id).await.into_iter().filter_map(turn).next_back().expect("a turn has begun")
    }
}

pub(super) async fn send_request(session: &Addr<Session>, wish: ClientRequest) {
    session.send(Relay { request: wish, idempotency_key: None }).await.expect("it lives").expect("it is taken");
}

pub(super) async fn send_message(session: &Addr<Session>, content: &str) {
    send_request(
        session,
        ClientRequest::Message { content: content.into(), mode: Default::default(), attachments: vec![] },
    )
    .await;
}

/// The agent's report `n`; done when it is on disk.
pub(super) async fn report(session: &Addr<Session>, n: u64, report: AgentReport) {
    let (durable, on_disk) = oneshot::channel();
    session.send(Reported { boot: "b".into(), n, reports: vec![report], durable }).await.expect("it lives");
    on_disk.await.expect("it is told").expect("it follows on what came before");
}

pub(super) fn turn_ended(turn: String) -> AgentReport {
    AgentReport::TurnEnded { turn, outcome: WorkOutcome::Done }
}

/// A client, at the other end of a socket.
pub(crate) struct TestClient {
    sender: mpsc::UnboundedSender<Bytes>,
    body: Pin<Box<BoxBody>>,
    received: BytesMut,
    codec: Codec,
}

impl TestClient {
    pub(crate) async fn attach(parts: &Arc<FrontendServices>, session: Option<SessionId>) -> TestClient {
        let query = AttachQuery { session: session.map(|id| id.to_string()), after: None };
        TestClient::open_with(|req, body| open(req, body, &query, parts.clone())).await
    }

    pub(crate) async fn chat(parts: &Arc<FrontendServices>, session: SessionId) -> TestClient {
        TestClient::open_with(|req, body| open_chat(req, body, &session.to_string(), parts.clone())).await
    }

    async fn open_with(
        open: impl FnOnce(&HttpRequest, Payload) -> Result<HttpResponse, actix_web::Error>,
    ) -> TestClient {
        let headers = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let request = headers.into_iter().fold(TestRequest::default(), |request, header| request.insert_header(header));
        let request = request.to_http_request();
        let (says, said) = mpsc::unbounded_channel();
        let said = stream::unfold(said, |mut said| async move { Some((Ok(said.recv().await?), said)) });
        let mut payload = dev::Payload::Stream { payload: said.boxed_local() };
        let payload = Payload::from_request(&request, &mut payload).await.expect("it is there");
        let body = open(&request, payload).expect("it is let in").into_body();
        let codec = Codec::new().max_size(4 << 20).client_mode();
        TestClient { sender: says, body: Box::pin(body), received: BytesMut::new(), codec }
    }

    pub(crate) fn send_json(&mut self, frame: Value) {
        self.send(Words::Text(frame.to_string().into()));
    }

    fn send(&mut self, words: Words) {
        let mut bytes = BytesMut::new();
        self.codec.encode(words, &mut bytes).expect("it is a frame");
        // A socket that is closed hears nothing more.
        let _ = self.sender.send(bytes.freeze());
    }

    /// The next frame; `Err` with the code where the server closed.
    pub(crate) async fn receive(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match self.codec.decode(&mut self.received).expect("the server speaks the protocol") {
                Some(Frame::Text(text)) => return Ok(serde_json::from_slice(&text).expect("JSON")),
                Some(Frame::Close(reason)) => return Err(reason.map(|reason| reason.code.into())),
                Some(Frame::Ping(payload)) => self.send(Words::Pong(payload)),
                Some(Frame::Binary(_) | Frame::Continuation(_) | Frame::Pong(_)) => {}
                None => match poll_fn(|cx| self.body.as_mut().poll_next(cx)).await {
                    Some(Ok(bytes)) => self.received.extend_from_slice(&bytes),
                    Some(Err(_)) | None => return Err(None),
                },
            }
        }
    }

    /// Reads on to the first frame for which `is` holds; all of them.
    pub(crate) async fn until(&mut self, is: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        let last = timeout(FRAME_TIMEOUT, async {
            while !frames.last().is_some_and(&is) {
                frames.push(self.receive().await.expect("the socket stays open"));
            }
        });
        let came = last.await.is_ok();
        assert!(came, "waited in vain; there were {} frames, and last {:?}", frames.len(), frames.last());
        frames
    }

    /// Reads to the end; the code with which the server closed.
    pub(crate) async fn closed(&mut self) -> Option<u16> {
        let closed = async {
            loop {
                if let Err(code) = self.receive().await {
                    return code;
                }
            }
        };
        timeout(FRAME_TIMEOUT, closed).await.expect("it is closed in time")
    }

    /// What is said of a chat before its answer to a ping: each frame's type.
    pub(crate) async fn so_far(&mut self) -> Vec<String> {
        self.send_json(serde_json::json!({ "type": "ping" }));
        let frames = self.until(|frame| frame["type"] == "pong").await;
        let kinds = frames.iter().filter_map(|frame| frame["type"].as_str());
        kinds.filter(|kind| *kind != "pong").map(str::to_owned).collect()
    }
}
