//! The real application, with its real Directory and sessions, on a journal in memory and walls that hold nothing.

use std::sync::Arc;

use actix::prelude::*;
use actix_web::{
    App,
    body::{BoxBody, MessageBody, to_bytes},
    dev::{Service, ServiceResponse},
    http::{Method, StatusCode},
    middleware::from_fn,
    test::{TestRequest, init_service},
    web::Data,
};
use async_trait::async_trait;
use greenroom_protocol::link::{Api, Settings};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::super::*;
use crate::{
    data::{Token, TokenInForce},
    directory,
    gateway::{Gateway, GatewayOptions},
    sandbox::{Exit, Found, Presence, Progress, SandboxError, Spec, Stats, Workspaces},
    session::{
        self,
        messages::{
            LinkPort,
            orders::{Cut, Deliver, Freeze, Kill, Raise, Thaw},
        },
    },
    store::{SessionId, memory::MemoryStore},
    sweeper,
};

pub(super) const TOKEN: &str = "0123456789abcdef";
pub(super) const HOST: &str = "127.0.0.1:3000";

/// A driver that starts nothing.
struct NoWalls;

#[async_trait]
impl Sandbox for NoWalls {
    fn name(&self) -> &'static str {
        "process"
    }
    fn isolation(&self) -> String {
        "nothing".to_owned()
    }
    async fn check(&self) -> Result<(), SandboxError> {
        Err(SandboxError::Unconfinable { detail: "it is a test".to_owned() })
    }
    async fn start(&self, _: &Spec, _: Progress<'_>) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn freeze(&self, _: SessionId) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn thaw(&self, _: SessionId) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn stop(&self, _: SessionId) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn remove(&self, _: SessionId) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn presence(&self, _: SessionId) -> Result<Option<Presence>, SandboxError> {
        Ok(None)
    }
    async fn wait(&self, _: SessionId) -> Result<Exit, SandboxError> {
        std::future::pending().await
    }
    async fn list(&self) -> Result<Vec<Found>, SandboxError> {
        Ok(Vec::new())
    }
    async fn logs(&self, session: SessionId, _: usize) -> Result<String, SandboxError> {
        Err(SandboxError::Gone { session })
    }
    async fn stats(&self, session: SessionId) -> Result<Stats, SandboxError> {
        Err(SandboxError::Gone { session })
    }
}

/// A link whose agent never answers.
struct Silence;

impl Actor for Silence {
    type Context = Context<Silence>;
}

macro_rules! hears {
    ($($order:ty),*) => {$(
        impl Handler<$order> for Silence {
            type Result = ();
            fn handle(&mut self, _: $order, _: &mut Context<Silence>) {}
        }
    )*};
}
hears!(Raise, Deliver, Cut, Freeze, Thaw, Kill);

fn silent_link() -> LinkPort {
    let link = Silence.start();
    LinkPort {
        leash: CancellationToken::new().drop_guard(),
        raise: link.clone().recipient(),
        deliver: link.clone().recipient(),
        cut: link.clone().recipient(),
        freeze: link.clone().recipient(),
        thaw: link.clone().recipient(),
        kill: link.recipient(),
    }
}

fn settings() -> Settings {
    let (model, directory) = ("demo".to_owned(), "/workspace".to_owned());
    Settings { model, api: Api::Anthropic, directory, run_timeout_s: 60, max_steps: 10 }
}

/// What a request was answered with.
#[derive(Debug)]
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: actix_web::http::header::HeaderMap,
    pub text: String,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("no JSON ({e}): {}", self.text))
    }

    /// Status and code, if it is an error in the one form.
    pub(super) fn error(&self) -> (u16, String) {
        let code = self.json()["error"]["code"].as_str().expect("an error has a code").to_owned();
        (self.status.as_u16(), code)
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// The application.
pub(super) struct Stage<S> {
    app: S,
    pub store: Arc<dyn Store>,
    pub census: Census,
    dir: tempfile::TempDir,
}

pub(super) async fn stage()
-> Stage<impl Service<actix_http::Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config::with_data_dir(dir.path());
    config.server.max_upload = bytesize::ByteSize::b(32);
    config.server.allowed_origins = vec!["https://friend.test".to_owned()];
    let config = Arc::new(config);
    let (store, sandbox): (Arc<dyn Store>, Arc<dyn Sandbox>) = (Arc::new(MemoryStore::new()), Arc::new(NoWalls));
    let census = Census::default();
    let gateway = Gateway::new(GatewayOptions::default()).expect("its defaults make sense");
    let (of_sessions, count) = (store.clone(), census.clone());
    let starts = Arc::new(Starts::new(8, 8));
    let directory = Directory::start(directory::Parts {
        store: store.clone(),
        census: census.clone(),
        gateway: gateway.clone(),
        sandbox: sandbox.clone(),
        starts: starts.clone(),
        runs: dir.path().join("run"),
        workspaces: dir.path().join("workspaces"),
        homes: dir.path().join("homes"),
        threads: Threads::start(),
        sessions: Box::new(move |fell| session::Parts {
            store: of_sessions,
            census: count,
            link: Box::new(|_, _, _| silent_link()),
            settings: Box::new(|_| settings()),
            may_use: Box::new(|_| Ok(())),
            fell,
        }),
    });
    let sweeper = Sweeper::start(sweeper::Parts {
        directory: directory.clone(),
        store: store.clone(),
        sandbox: sandbox.clone(),
        census: census.clone(),
        runs: dir.path().join("run"),
        every: config.sweeper.every.0,
        pause_after: config.sweeper.pause_after.0,
        stop_after: config.sweeper.stop_after.0,
    });
    let sessions: Arc<dyn frontend::Sessions> = Arc::new(directory.clone());
    let closing = CancellationToken::new();
    let token = TokenInForce::always(Token::new(TOKEN), &closing);
    let parts = Parts {
        sockets: Arc::new(frontend::Parts { sessions, store: store.clone(), census: census.clone(), closing }),
        directory,
        sweeper,
        starts,
        store: store.clone(),
        census: census.clone(),
        sandbox,
        workspaces: Workspaces {
            below: dir.path().join("workspaces"),
            shared: None,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        },
        models: gateway.models(),
        default_model: gateway.default_model(),
        config: config.clone(),
        node: "node".to_owned(),
    };
    let auth = Auth::new(token, HOST.parse().expect("an address"), &config.server);
    let (parts, auth) = (Data::new(parts), Data::new(auth));
    let app = App::new().wrap(from_fn(gate::gate)).wrap(from_fn(gate::dress));
    let app = init_service(app.configure(move |app| routes(app, parts, auth))).await;
    Stage { app, store, census, dir }
}

impl<S: Service<actix_http::Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> Stage<S> {
    /// Where the session works.
    pub(super) fn workspace(&self, id: &str) -> std::path::PathBuf {
        self.dir.path().join("workspaces").join(id)
    }

    /// Sends a request as it is.
    pub(super) async fn send(&self, request: TestRequest) -> Reply {
        let response = self.app.call(request.to_request()).await.expect("every request is answered");
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body().boxed()).await.expect("the body arrives");
        Reply { status, headers, text: String::from_utf8_lossy(&body).into_owned() }
    }

    /// Sends a request of somebody who may.
    pub(super) async fn ask(&self, method: &str, uri: &str, body: Option<&str>) -> Reply {
        self.send(known(method, uri, body)).await
    }
}

pub(super) fn anybody(method: &str, uri: &str) -> TestRequest {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    TestRequest::default().method(method).uri(uri).insert_header(("host", HOST))
}

pub(super) fn known(method: &str, uri: &str, body: Option<&str>) -> TestRequest {
    let request = anybody(method, uri).insert_header(("authorization", format!("Bearer {TOKEN}")));
    match body {
        None => request,
        Some(body) => request.insert_header(("content-type", "application/json")).set_payload(body.to_owned()),
    }
}
