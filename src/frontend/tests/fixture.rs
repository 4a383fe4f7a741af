//! Fixture for tests of sockets: sessions and clients without a Directory and without a network.

use std::{
    collections::HashMap,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use actix::prelude::*;
use actix_web::{
    FromRequest, HttpRequest, HttpResponse, body::BoxBody, body::MessageBody, dev, test::TestRequest, web::Payload,
};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, future::poll_fn, stream};
use greenroom_protocol::{
    Event, Observation, ObservationKind,
    client::ClientRequest,
    link::{AgentReport, WorkOutcome},
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
    frontend::{AttachQuery, ChatQuery, FrontendServices, SessionProvider, open, open_chat},
    net::testkit::{Codec, Decoder, Encoder, Frame, Message as WsMessage},
    session::{
        self, RequestError, Session,
        messages::{Relay, Reported},
        testkit,
    },
    store::{
        AppendBatch, JournalEvent, ReadLimit, Seq, SessionId, SessionRecord, Store, contract, faulty::FaultyStore,
    },
};

/// Longest wait of a test for a frame.
const FRAME_TIMEOUT: Duration = Duration::from_secs(10);

/// Source of sessions, which may fail or block.
pub(super) struct TestSessions {
    store: Arc<FaultyStore>,
    deps: Arc<session::SessionDeps>,
    live: Mutex<HashMap<SessionId, Addr<Session>>>,
    /// Error of all lookups, if any.
    pub(super) error: Mutex<Option<RequestError>>,
    /// Actor that the next lookup returns instead of the right one, once.
    pub(super) stale: Mutex<Option<Addr<Session>>>,
    pub(super) created: AtomicUsize,
    /// Number of lookups.
    pub(super) lookups: AtomicUsize,
    /// Lookups block while a writer holds this lock.
    pub(super) lookup_lock: RwLock<()>,
}

#[async_trait]
impl SessionProvider for TestSessions {
    async fn open(&self, id: SessionId) -> Result<Addr<Session>, RequestError> {
        self.lookups.fetch_add(1, SeqCst);
        let _lookup_allowed = self.lookup_lock.read().await;
        if let Some(error) = self.error.lock().expect("lock is never poisoned: no holder panics").clone() {
            return Err(error);
        }
        if let Some(stale) = self.stale.lock().expect("lock is never poisoned: no holder panics").take() {
            return Ok(stale);
        }
        let live = self.live.lock().expect("lock is never poisoned: no holder panics").get(&id).cloned();
        if let Some(live) = live.filter(Addr::connected) {
            return Ok(live);
        }
        let claimed = self.store.claim(id).await;
        let (epoch, snapshot) = claimed.map_err(|_| RequestError::NoSession(id.to_string()))?;
        let session = Session::start_from(self.deps.clone(), epoch, snapshot, None)?;
        self.live.lock().expect("lock is never poisoned: no holder panics").insert(id, session.clone());
        Ok(session)
    }

    async fn create(&self, _: &ClientRequest, key: Option<String>) -> Result<(SessionId, Addr<Session>), RequestError> {
        self.created.fetch_add(1, SeqCst);
        let id = SessionId::generate();
        self.store.create(record(id, key)).await.expect("the store creates the session");
        Ok((id, self.open(id).await?))
    }
}

pub(crate) fn record(id: SessionId, key: Option<String>) -> SessionRecord {
    SessionRecord { id, idempotency_key: key, state: AgentState::Starting, ..contract::record("") }
}

pub(super) struct FrontendFixture {
    pub(super) store: Arc<FaultyStore>,
    pub(super) sessions: Arc<TestSessions>,
    pub(super) services: Arc<FrontendServices>,
}

pub(super) fn fixture() -> FrontendFixture {
    let (store, actor_registry) = (Arc::new(FaultyStore::default()), ActorRegistry::default());
    let deps = testkit::session_deps(store.clone(), actor_registry.clone());
    let sessions = Arc::new(TestSessions {
        store: store.clone(),
        deps: Arc::new(deps),
        live: Mutex::default(),
        error: Mutex::default(),
        stale: Mutex::default(),
        created: AtomicUsize::new(0),
        lookups: AtomicUsize::new(0),
        lookup_lock: RwLock::default(),
    });
    let (closing, runs) = (CancellationToken::new(), PathBuf::from("/nowhere"));
    let services =
        Arc::new(FrontendServices { sessions: sessions.clone(), store: store.clone(), actor_registry, runs, closing });
    FrontendFixture { store, sessions, services }
}

impl FrontendFixture {
    /// Creates a session with this number of agent events. No client has opened the session.
    pub(super) async fn journal(&self, events: Seq) -> SessionId {
        let id = SessionId::generate();
        self.store.create(record(id, None)).await.expect("the store creates the session");
        let (epoch, _) = self.store.claim(id).await.expect("the store claims the session");
        let event = |seq| JournalEvent {
            kind: "message".into(),
            json: Bytes::from(format!(
                r#"{{"seq":{seq},"at":"","source":"agent","observation":"message","extras":{{}},"content":"{seq}","message":""}}"#
            )),
        };
        let batch = AppendBatch { events: (1..=events).map(event).collect(), ..AppendBatch::default() };
        self.store.append(id, epoch, 0, batch).await.expect("the store appends");
        id
    }

    /// Creates a session whose agent is connected and idle.
    pub(super) async fn session(&self) -> (SessionId, Addr<Session>) {
        let (id, session) = self.sessions.create(&ClientRequest::Ping {}, None).await.expect("the session is created");
        session.send(testkit::hello("b")).await.expect("the session runs").expect("the hello is accepted");
        (id, session)
    }

    pub(super) async fn session_of(&self, id: SessionId) -> Addr<Session> {
        self.sessions.open(id).await.expect("the session is available")
    }

    pub(super) fn fail_lookups(&self, error: Option<RequestError>) {
        *self.sessions.error.lock().expect("lock is never poisoned: no holder panics") = error;
    }

    pub(super) fn delay_store(&self, delay: Duration) {
        *self.store.read_delay.lock().expect("lock is never poisoned: no holder panics") = delay;
    }

    pub(super) async fn events(&self, id: SessionId) -> Vec<Event> {
        let page =
            self.store.read(id, 0, ReadLimit { events: 1000, bytes: 1 << 20 }).await.expect("the events are readable");
        page.into_iter().map(|(_, event)| serde_json::from_slice(&event.json).expect("an event")).collect()
    }

    /// Returns the name of the newest turn.
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

pub(super) async fn send_request(session: &Addr<Session>, request: ClientRequest) {
    session
        .send(Relay { request, idempotency_key: None, requested_by: None })
        .await
        .expect("the session runs")
        .expect("the request is accepted");
}

pub(super) async fn send_message(session: &Addr<Session>, content: &str) {
    send_request(
        session,
        ClientRequest::Message { content: content.into(), mode: Default::default(), attachments: vec![] },
    )
    .await;
}

/// Sends the agent's report `n`, and waits until it is on disk.
pub(super) async fn report(session: &Addr<Session>, n: u64, report: AgentReport) {
    let (durable, on_disk) = oneshot::channel();
    session.send(Reported { boot: "b".into(), n, reports: vec![report], durable }).await.expect("the session runs");
    on_disk.await.expect("the session replies").expect("the report follows the previous one");
}

pub(super) fn turn_ended(turn: String) -> AgentReport {
    AgentReport::TurnEnded { turn, outcome: WorkOutcome::Done }
}

/// Client at the other end of a socket.
pub(crate) struct TestClient {
    sender: mpsc::UnboundedSender<Bytes>,
    body: Pin<Box<BoxBody>>,
    received: BytesMut,
    codec: Codec,
}

impl TestClient {
    pub(crate) async fn attach(services: &Arc<FrontendServices>, session: Option<SessionId>) -> TestClient {
        TestClient::attach_with(services, session, AttachQuery::default()).await
    }

    pub(crate) async fn attach_with(
        services: &Arc<FrontendServices>,
        session: Option<SessionId>,
        query: AttachQuery,
    ) -> TestClient {
        let query = AttachQuery { session: session.map(|id| id.to_string()), ..query };
        TestClient::open_with(|req, body| open(req, body, &query, services.clone())).await
    }

    pub(crate) async fn chat(services: &Arc<FrontendServices>, session: SessionId) -> TestClient {
        TestClient::chat_after(services, session, None).await
    }

    pub(crate) async fn chat_after(
        services: &Arc<FrontendServices>,
        session: SessionId,
        after: Option<&str>,
    ) -> TestClient {
        let (session, query) = (session.to_string(), ChatQuery { after: after.map(str::to_owned) });
        TestClient::open_with(|req, body| open_chat(req, body, (&session, &query), services.clone())).await
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
        let (sender, frames) = mpsc::unbounded_channel();
        let frames = stream::unfold(frames, |mut frames| async move { Some((Ok(frames.recv().await?), frames)) });
        let mut payload = dev::Payload::Stream { payload: frames.boxed_local() };
        let payload = Payload::from_request(&request, &mut payload).await.expect("the payload is readable");
        let body = open(&request, payload).expect("the handshake succeeds").into_body();
        let codec = Codec::new().max_size(4 << 20).client_mode();
        TestClient { sender, body: Box::pin(body), received: BytesMut::new(), codec }
    }

    pub(crate) fn send_json(&mut self, frame: Value) {
        self.send(WsMessage::Text(frame.to_string().into()));
    }

    fn send(&mut self, message: WsMessage) {
        let mut bytes = BytesMut::new();
        self.codec.encode(message, &mut bytes).expect("the message is encodable");
        // A closed socket receives nothing more.
        let _ = self.sender.send(bytes.freeze());
    }

    /// Receives the next frame. `Err` with the code if the server closed the socket.
    pub(crate) async fn receive(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match self.codec.decode(&mut self.received).expect("the server follows the protocol") {
                Some(Frame::Text(text)) => return Ok(serde_json::from_slice(&text).expect("a text frame is JSON")),
                Some(Frame::Close(reason)) => return Err(reason.map(|reason| reason.code.into())),
                Some(Frame::Ping(payload)) => self.send(WsMessage::Pong(payload)),
                Some(Frame::Binary(_) | Frame::Continuation(_) | Frame::Pong(_)) => {}
                None => match poll_fn(|cx| self.body.as_mut().poll_next(cx)).await {
                    Some(Ok(bytes)) => self.received.extend_from_slice(&bytes),
                    Some(Err(_)) | None => return Err(None),
                },
            }
        }
    }

    /// Receives frames up to the first for which `is` holds, and returns all of them.
    pub(crate) async fn until(&mut self, is: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        let last = timeout(FRAME_TIMEOUT, async {
            while !frames.last().is_some_and(&is) {
                frames.push(self.receive().await.expect("the socket stays open"));
            }
        });
        let in_time = last.await.is_ok();
        assert!(in_time, "no such frame in time; received {} frames, the last: {:?}", frames.len(), frames.last());
        frames
    }

    /// Reads to the end, and returns the code with which the server closed.
    pub(crate) async fn closed(&mut self) -> Option<u16> {
        let closed = async {
            loop {
                if let Err(code) = self.receive().await {
                    return code;
                }
            }
        };
        timeout(FRAME_TIMEOUT, closed).await.expect("the server closes the socket in time")
    }

    /// Returns the types of a chat's frames up to the answer to a ping.
    pub(crate) async fn so_far(&mut self) -> Vec<String> {
        self.send_json(serde_json::json!({ "type": "ping" }));
        let frames = self.until(|frame| frame["type"] == "pong").await;
        let kinds = frames.iter().filter_map(|frame| frame["type"].as_str());
        kinds.filter(|kind| *kind != "pong").map(str::to_owned).collect()
    }
}
