//! Fixture for tests of the web layer: the real application, Directory and sessions on an in-memory
//! journal, without sandboxes.

use std::sync::Arc;

use actix_web::{
    body::{BoxBody, MessageBody, to_bytes},
    dev::{Service, ServiceResponse},
    http::{Method, StatusCode},
    test::{TestRequest, init_service},
    web::Data,
};
use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::contract::check_reply;
use crate::{
    actor_registry::ActorRegistry,
    approvals::{Analyzers, ProjectRules},
    checkpoints::Checkpoints,
    config::{Config, FilesConfig, ModelConfig},
    data::{BearerToken, Browsers, CurrentToken, DataDir},
    directory::{self, ApprovalDefaults, Directory},
    files::WorkspaceFiles,
    frontend,
    gateway::Gateway,
    link::StartLimiter,
    net::{KeyedThreads, testkit::Request},
    repositories::Repositories,
    sandbox::{
        FoundSandbox, ProgressCallback, SandboxDriver, SandboxError, SandboxExit, SandboxPresence, SandboxSpec,
        SandboxStats, WorkspaceDirs,
    },
    session::{SessionDeps, testkit},
    store::{SessionId, Store, in_memory::MemoryStore},
    sweeper::{self, Sweeper},
    web::{Auth, SearchLimiter, WebServices, application},
};

pub(super) const TOKEN: &str = "0123456789abcdef";
pub(super) const HOST: &str = "127.0.0.1:3000";

/// Sandbox driver that starts nothing.
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
        Err(SandboxError::Unconfinable { detail: "tests have no sandboxes".to_owned() })
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

/// Answer to a request.
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

    /// Returns status and code of an error in the common form.
    pub(super) fn error(&self) -> (u16, String) {
        let code = self.json()["error"]["code"].as_str().expect("an error has a code").to_owned();
        (self.status.as_u16(), code)
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Application under test.
pub(super) struct WebFixture<S> {
    app: S,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub search_limiter: SearchLimiter,
    pub checkpoints: Arc<Checkpoints>,
    /// Name of the browser's cookie.
    pub cookie_name: String,
    dir: tempfile::TempDir,
}

/// Setup of an application under test.
#[derive(Debug, Default)]
pub(super) struct FixtureSetup {
    pub files: FilesConfig,
    pub shared_workspace: Option<std::path::PathBuf>,
}

pub(super) async fn fixture()
-> WebFixture<impl Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> {
    fixture_of(Arc::new(MemoryStore::new()), None, |_| {}).await
}

/// Returns the application on this journal.
pub(super) async fn fixture_on(
    store: Arc<dyn Store>,
) -> WebFixture<impl Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> {
    fixture_of(store, None, |_| {}).await
}

/// Returns the application with other settings of files.
pub(super) async fn fixture_with_files(
    setup: FixtureSetup,
) -> WebFixture<impl Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> {
    let FixtureSetup { files, shared_workspace } = setup;
    fixture_of(Arc::new(MemoryStore::new()), shared_workspace, |config| config.files = files).await
}

/// Returns the application with a changed configuration.
pub(super) async fn fixture_with(
    change: impl FnOnce(&mut Config),
) -> WebFixture<impl Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> {
    fixture_of(Arc::new(MemoryStore::new()), None, change).await
}

async fn fixture_of(
    store: Arc<dyn Store>,
    shared_workspace: Option<std::path::PathBuf>,
    change: impl FnOnce(&mut Config),
) -> WebFixture<impl Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config::with_data_dir(dir.path());
    config.server.max_upload = bytesize::ByteSize::b(32);
    config.files.max_files = 3;
    config.server.allowed_origins = vec!["https://friend.test".to_owned()];
    change(&mut config);
    let config = Arc::new(config);
    let sandbox: Arc<dyn SandboxDriver> = Arc::new(StubSandbox);
    let search_limiter = SearchLimiter::default();
    let actor_registry = ActorRegistry::default();
    let model = ModelConfig { models: Vec::new(), ..config.model.clone() };
    let gateway =
        Gateway::new(model, &crate::config::GatewayConfig::default()).expect("the gateway's defaults are valid");
    let (session_store, session_registry) = (store.clone(), actor_registry.clone());
    let start_limiter = Arc::new(StartLimiter::new(8, 8));
    // Before anything else is in the directory: a foreign one is rejected.
    let data = Arc::new(DataDir::open(dir.path()).expect("the directory opens"));
    let workspaces = WorkspaceDirs {
        root: dir.path().join("workspaces"),
        shared: shared_workspace.clone(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
    };
    let files = WorkspaceFiles::open(workspaces.clone(), dir.path().join("uploads")).expect("the directory is created");
    let stores = dir.path().join("checkpoints");
    let checkpoints = Checkpoints::new(workspaces.clone(), stores, config.checkpoints.clone(), files.writer());
    let (root, sources) = (dir.path().join("repositories"), config.workspace.sources.clone());
    let repositories = Repositories::new(root, workspaces, sources, config.repositories.clone());
    let approvals = ApprovalDefaults::of(&config);
    let directory = Directory::start(directory::DirectoryParts {
        store: store.clone(),
        actor_registry: actor_registry.clone(),
        gateway: gateway.clone(),
        sandbox: sandbox.clone(),
        start_limiter: start_limiter.clone(),
        approvals: approvals.clone(),
        runs: dir.path().join("run"),
        workspaces: dir.path().join("workspaces"),
        homes: dir.path().join("homes"),
        checkpoints: checkpoints.clone(),
        repositories: repositories.clone(),
        threads: KeyedThreads::start(),
        sessions: Box::new(move |session_stopped| {
            let deps = testkit::session_deps(session_store, session_registry);
            SessionDeps { session_stopped, ..deps }
        }),
    });
    let sweeper = Sweeper::start(sweeper::SweeperParts {
        directory: directory.clone(),
        store: store.clone(),
        sandbox: sandbox.clone(),
        actor_registry: actor_registry.clone(),
        runs: dir.path().join("run"),
        written_dirs: Vec::new(),
        workspace_quota: config.quota.workspace,
        config: config.sweeper.clone(),
    });
    let sessions: Arc<dyn frontend::SessionProvider> = Arc::new(directory.clone());
    let closing = CancellationToken::new();
    let token = CurrentToken::fixed(BearerToken::new(TOKEN), &closing);
    let services = WebServices {
        sockets: Arc::new(frontend::FrontendServices {
            sessions,
            store: store.clone(),
            actor_registry: actor_registry.clone(),
            runs: dir.path().join("run"),
            closing,
        }),
        directory,
        sweeper,
        start_limiter,
        search_limiter: search_limiter.clone(),
        store: store.clone(),
        actor_registry: actor_registry.clone(),
        sandbox,
        files,
        checkpoints: checkpoints.clone(),
        repositories,
        gateway: gateway.clone(),
        models: gateway.models(),
        default_model: gateway.default_model(),
        approvals,
        analyzers: Analyzers::new(&config.approvals).expect("the default analyzer needs nothing"),
        project_rules: Arc::new(ProjectRules::open(data.clone())),
        config: config.clone(),
        node: "node".to_owned(),
    };
    let browsers = Browsers::open(data, token.clone()).expect("random numbers are available");
    let auth = Auth::new(token, browsers, HOST.parse().expect("an address"), &config.server);
    let cookie_name = auth.cookie_name(false);
    let (services, auth) = (Data::new(services), Data::new(auth));
    let app = init_service(application(services, auth)).await;
    WebFixture { app, store, actor_registry, search_limiter, checkpoints, cookie_name, dir }
}

impl<S: Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>> WebFixture<S> {
    /// Returns the directory of a session's workspace.
    pub(super) fn workspace(&self, id: &str) -> std::path::PathBuf {
        self.dir.path().join("workspaces").join(id)
    }

    /// Sends a request as given. Returns the answer with its body unread.
    pub(super) async fn respond(&self, request: TestRequest) -> ServiceResponse<BoxBody> {
        self.app.call(request.to_request()).await.expect("the application answers every request").map_into_boxed_body()
    }

    /// Sends a request as given. Checks the answer against the OpenAPI document.
    pub(super) async fn send(&self, request: TestRequest) -> ApiReply {
        let response = self.respond(request).await;
        let (method, path) = (response.request().method().clone(), response.request().uri().path().to_owned());
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body().boxed()).await.expect("the body arrives");
        let reply = ApiReply { status, headers, text: String::from_utf8_lossy(&body).into_owned() };
        check_reply(&method, &path, &reply);
        reply
    }

    /// Sends a request with the token.
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
