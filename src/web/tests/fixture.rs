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
use greenroom_protocol::link::{AgentSettings, ProviderApi};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::super::*;
use crate::{
    data::{BearerToken, CurrentToken},
    directory,
    gateway::{Gateway, GatewayOptions},
    sandbox::{
        FoundSandbox, ProgressCallback, SandboxError, SandboxExit, SandboxPresence, SandboxSpec, SandboxStats,
        WorkspaceDirs,
    },
    session::{
        self,
        messages::{
            LinkPort,
            effects::{AbortModelStreams, DeliverToAgent, PauseSandbox, StartSandbox, StopSandbox, UnpauseSandbox},
        },
    },
    store::{SessionId, in_memory::MemoryStore},
    sweeper,
};

pub(super) const TOKEN: &str = "0123456789abcdef";
pub(super) const HOST: &str = "127.0.0.1:3000";

/// A driver that starts nothing.
struct StubSandbox;

#[async_trait]
impl SandboxDriver for StubSandbox {
    fn name(&self) -> &'static str {
        "process"
    }
    fn isolation(&self) -> String {
        "nothing".to_owned()
    }
    async fn check(&self) -> Result<(), SandboxError> {
        Err(SandboxError::Unconfinable { detail: "it is a test".to_owned() })
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
    async fn logs(&self, session: SessionId, _: usize) -> Result<String, SandboxError> {
        Err(SandboxError::NotFound { session })
    }
    async fn stats(&self, session: SessionId) -> Result<SandboxStats, SandboxError> {
        Err(SandboxError::NotFound { session })
    }
}

/// A link whose agent never answers.
struct WebSilentLink;

impl Actor for WebSilentLink {
    type Context = Context<WebSilentLink>;
}

macro_rules! hears {
    ($($order:ty),*) => {$(
        impl Handler<$order> for WebSilentLink {
            type Result = ();
            fn handle(&mut self, _: $order, _: &mut Context<WebSilentLink>) {}
        }
    )*};
}
hears!(StartSandbox, DeliverToAgent, AbortModelStreams, PauseSandbox, UnpauseSandbox, StopSandbox);

fn silent_link() -> LinkPort {
    let link = WebSilentLink.start();
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

fn settings() -> AgentSettings {
    let (model, directory) = ("demo".to_owned(), "/workspace".to_owned());
    AgentSettings { model, api: ProviderApi::Anthropic, directory, run_timeout_s: 60, max_steps: 10 }
}

/// What a request was answered with.
#[derive(Debug)]
pub(super) struct ApiReply {
    pub status: StatusCode,
    pub headers: actix_web::http::header::HeaderMap,
    pub text: String,
}

impl ApiReply {
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
pub(super) struct WebFixture<S> {
    app: S,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    dir: tempfile::TempDir,
}

pub(super) async fn fixture()
-> WebFixture<impl Service<actix_http::Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config::with_data_dir(dir.path());
    config.server.max_upload = bytesize::ByteSize::b(32);
    config.server.allowed_origins = vec!["https://friend.test".to_owned()];
    let config = Arc::new(config);
    let (store, sandbox): (Arc<dyn Store>, Arc<dyn SandboxDriver>) =
        (Arc::new(MemoryStore::new()), Arc::new(StubSandbox));
    let census = ActorRegistry::default();
    let gateway = Gateway::new(GatewayOptions::default()).expect("its defaults make sense");
    let (of_sessions, count) = (store.clone(), census.clone());
    let starts = Arc::new(StartLimiter::new(8, 8));
    let directory = Directory::start(directory::DirectoryParts {
        store: store.clone(),
        actor_registry: census.clone(),
        gateway: gateway.clone(),
        sandbox: sandbox.clone(),
        start_limiter: starts.clone(),
        runs: dir.path().join("run"),
        workspaces: dir.path().join("workspaces"),
        homes: dir.path().join("homes"),
        threads: SessionThreads::start(),
        sessions: Box::new(move |fell| session::SessionDeps {
            store: of_sessions,
            actor_registry: count,
            make_link: Box::new(|_, _, _| silent_link()),
            settings_for: Box::new(|_| settings()),
            check_model: Box::new(|_| Ok(())),
            session_stopped: fell,
        }),
    });
    let sweeper = Sweeper::start(sweeper::SweeperParts {
        directory: directory.clone(),
        store: store.clone(),
        sandbox: sandbox.clone(),
        actor_registry: census.clone(),
        runs: dir.path().join("run"),
        interval: config.sweeper.every.0,
        pause_after: config.sweeper.pause_after.0,
        stop_after: config.sweeper.stop_after.0,
    });
    let sessions: Arc<dyn frontend::SessionProvider> = Arc::new(directory.clone());
    let closing = CancellationToken::new();
    let token = CurrentToken::fixed(BearerToken::new(TOKEN), &closing);
    let parts = WebServices {
        sockets: Arc::new(frontend::FrontendServices {
            sessions,
            store: store.clone(),
            actor_registry: census.clone(),
            closing,
        }),
        directory,
        sweeper,
        start_limiter: starts,
        store: store.clone(),
        actor_registry: census.clone(),
        sandbox,
        workspaces: WorkspaceDirs {
            root: dir.path().join("workspaces"),
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
    let app = App::new().wrap(from_fn(middleware::authorize)).wrap(from_fn(middleware::security_headers));
    let app = init_service(app.configure(move |app| routes(app, parts, auth))).await;
    WebFixture { app, store, actor_registry: census, dir }
}

impl<S: Service<actix_http::Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> WebFixture<S> {
    /// Where the session works.
    pub(super) fn workspace(&self, id: &str) -> std::path::PathBuf {
        self.dir.path().join("workspaces").join(id)
    }

    /// Sends a request as it is.
    pub(super) async fn send(&self, request: TestRequest) -> ApiReply {
        let response = self.app.call(request.to_request()).await.expect("every request is answered");
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body().boxed()).await.expect("the body arrives");
        ApiReply { status, headers, text: String::from_utf8_lossy(&body).into_owned() }
    }

    /// Sends a request of somebody who may.
    pub(super) async fn call(&self, method: &str, uri: &str, body: Option<&str>) -> ApiReply {
        self.send(authenticated(method, uri, body)).await
    }
}

pub(super) fn anonymous(method: &str, uri: &str) -> TestRequest {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    TestRequest::default().method(method).uri(uri).insert_header(("host", HOST))
}

pub(super) fn authenticated(method: &str, uri: &str, body: Option<&str>) -> TestRequest {
    let request = anonymous(method, uri).insert_header(("authorization", format!("Bearer {TOKEN}")));
    match body {
        None => request,
        Some(body) => request.insert_header(("content-type", "application/json")).set_payload(body.to_owned()),
    }
}
