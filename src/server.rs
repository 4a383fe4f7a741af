//! Server: assembles the parts, and shuts them down.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use actix::Addr;
use greenroom_protocol::link::AgentSettings;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    actor_registry::ActorRegistry,
    approvals::{Analyzers, AnalyzersError, ProjectRules},
    checkpoints::Checkpoints,
    config::{Config, ServerConfig, TlsFiles, TlsSetting},
    data::{Browsers, CurrentToken, DataDir, DataError, NodeClaim},
    directory::{self, ApprovalDefaults, Directory, ShutDown},
    files::WorkspaceFiles,
    frontend,
    gateway::{Gateway, GatewayError, ModelCapabilities},
    link::{self, AgentLink},
    net::{self, KeyedThreads},
    repositories::Repositories,
    sandbox::{
        DataDirExposed, SandboxDriver, SandboxError, SandboxHomes, SandboxLocations, SandboxNode, VolumeWarning,
        WorkspaceDirs, check_volumes_exclude, remove_tree, sandbox_paths, volume_warnings,
    },
    session,
    store::{self, OpenError, SessionRecord},
    sweeper::{self, Sweeper},
    web,
};

mod driver;
mod policy;

/// Agent binary for every sandbox. Built with this server, so the versions always match.
static AGENT_BINARY: &[u8] = include_bytes!(env!("GREENROOM_AGENT_BIN"));

/// Time limit for metering the running model calls at shutdown.
const METERING_TIMEOUT: Duration = Duration::from_millis(500);
/// Time limit for the clients at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Reason why a server does not start. The text names the way out.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Analyzers(#[from] AnalyzersError),
    #[error(transparent)]
    Exposed(#[from] DataDirExposed),
    #[error(
        "cannot listen on `{address}`: {source}; choose another address with --bind (port 0 takes one that is free)"
    )]
    Listen { address: String, source: io::Error },
    #[error(transparent)]
    Tls(#[from] net::TlsFileError),
    #[error(transparent)]
    Spending(#[from] session::SpendingError),
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// Running server.
pub struct RunningServer {
    /// Address with the token, for the user who started the server.
    pub sign_in_url: String,
    server: actix_web::dev::Server,
    directory: Addr<Directory>,
    gateway: Gateway,
    sandbox: Arc<dyn SandboxDriver>,
    checkpoints: Arc<Checkpoints>,
    closing: CancellationToken,
    stop_sandboxes: bool,
    signals: ShutdownSignals,
    /// Locks the data directory against other servers.
    _data: Arc<DataDir>,
    /// Locks the node's id against servers on copies of the data directory.
    _claim: NodeClaim,
}

/// Starts a server. Must be called inside an actix system.
///
/// # Errors
/// Returns the first part that cannot start, with the way out.
pub async fn start(config: Config) -> Result<RunningServer, StartError> {
    let config = Arc::new(config);
    let data = Arc::new(DataDir::open(&config.data.dir)?);
    check_volumes_exclude(&config.sandbox.volumes, data.path())?;
    let token = data.token(&config.server.token)?;
    let node = data.node()?;
    let claim = data.claim_node(&node)?;
    let tls = match &config.server.tls {
        TlsSetting::Off => None,
        TlsSetting::Files(TlsFiles { cert, key }) => Some(net::tls_config(cert, key)?),
    };
    // The port before the journal, so that the likelier mistake is reported first.
    let address = config.server.bind;
    let listener =
        net::listen(address).map_err(|source| StartError::Listen { address: address.to_string(), source })?;
    let bound = listener.local_addr()?;
    if is_exposed(&config.server, bound.ip()) {
        warn!(
            "`{bound}` is reachable from other machines without TLS, so they can read the token on its way; set \
             `server.tls`, or put a TLS proxy before it and list that in `server.trusted_proxies`"
        );
    }
    let store = store::open(&config.data, &data)?;
    let gateway = Gateway::new(config.model.clone(), &config.gateway)?;
    for warning in gateway.warnings() {
        warn!("{warning}");
    }
    let spending = Arc::new(session::ServerSpending::new(config.budget.clone(), config.gateway.clone(), data.path()));
    spending.restore(&*store).await?;
    let drivers = driver::DriverParts {
        config: Arc::new(config.sandbox.clone()),
        node: SandboxNode { name: node.clone(), sandboxes: data.sandboxes(), programs: data.programs() },
        store: &*store,
        locations: SandboxLocations::below(data.drivers()),
    };
    let sandbox = drivers.choose().await?;
    let actor_registry = ActorRegistry::default();

    let (uid, gid) = config.sandbox.user();
    let shared = config.sandbox.shared_workspace().map(Into::into);
    let workspaces = WorkspaceDirs { root: data.workspaces(), shared, uid, gid };
    let files = WorkspaceFiles::open(workspaces.clone(), data.uploads())?;
    let checkpoints =
        Checkpoints::new(workspaces.clone(), data.checkpoints(), config.checkpoints.clone(), files.writer());
    let repositories = Repositories::new(
        data.repositories(),
        workspaces.clone(),
        config.workspace.sources.clone(),
        config.repositories.clone(),
    );
    let volumes = config.sandbox.volumes.clone();
    // Each session reports the same when its sandbox starts. A volume that hangs delays no start.
    std::thread::spawn(move || {
        for VolumeWarning { text, .. } in volume_warnings(&volumes, uid, gid) {
            warn!("{text}");
        }
    });
    let start_limiter = Arc::new(link::StartLimiter::new(config.sandbox.max_starting, config.sandbox.max_waiting));
    let link = Arc::new(link::LinkDeps {
        sandbox: sandbox.clone(),
        gateway: gateway.clone(),
        store: store.clone(),
        actor_registry: actor_registry.clone(),
        dirs: link::SessionDirs {
            runs: data.runs(),
            workspaces,
            homes: SandboxHomes::open(data.homes(), &config.sandbox)?,
            agent: data.install_agent(AGENT_BINARY)?,
        },
        checkpoints: checkpoints.clone(),
        repositories: repositories.clone(),
        config: config.clone(),
        start_limiter: start_limiter.clone(),
    });
    let (settings, models) = (agent_settings(config.clone(), gateway.clone()), gateway.clone());
    let (session_store, session_registry) = (store.clone(), actor_registry.clone());
    let threads = KeyedThreads::start();
    let quota = config.quota.clone();
    let approvals = ApprovalDefaults::of(&config);
    let analyzers = Analyzers::new(&config.approvals)?;
    let project_rules = Arc::new(ProjectRules::open(data.clone()));
    let policy = Arc::new(policy::session_policy(&config, analyzers.clone(), project_rules.clone()));
    let captures_turns = checkpoints.check_offered().is_ok();
    let directory = Directory::start(directory::DirectoryParts {
        store: store.clone(),
        actor_registry: actor_registry.clone(),
        gateway: gateway.clone(),
        sandbox: sandbox.clone(),
        start_limiter: start_limiter.clone(),
        approvals: approvals.clone(),
        runs: data.runs(),
        workspaces: data.workspaces(),
        homes: data.homes(),
        checkpoints: checkpoints.clone(),
        repositories: repositories.clone(),
        threads: threads.clone(),
        sessions: Box::new(move |session_stopped| session::SessionDeps {
            store: session_store,
            actor_registry: session_registry,
            make_link: Box::new(move |session, record, budget| AgentLink::port(link.clone(), &session, record, budget)),
            settings_for: settings,
            check_model: Box::new(move |model| models.ready(model)),
            spending,
            quota,
            policy,
            captures_turns,
            session_stopped,
        }),
    });
    let sweeper = Sweeper::start(sweeper::SweeperParts {
        directory: directory.clone(),
        store: store.clone(),
        sandbox: sandbox.clone(),
        actor_registry: actor_registry.clone(),
        runs: data.runs(),
        written_dirs: vec![data.workspaces(), data.homes()],
        workspace_quota: config.quota.workspace,
        config: config.sweeper.clone(),
    });
    let closing = CancellationToken::new();
    let sockets = Arc::new(frontend::FrontendServices {
        sessions: Arc::new(directory.clone()),
        store: store.clone(),
        actor_registry: actor_registry.clone(),
        runs: data.runs(),
        closing: closing.clone(),
    });
    let sign_in_url = format!("{}/?token={}", config.server.address(bound), token.expose());
    let token = CurrentToken::follow(data.clone(), &config.server.token, token, &closing);
    let browsers = Browsers::open(data.clone(), token.clone())?;
    let auth = web::Auth::new(token, browsers, bound, &config.server);
    let stop_sandboxes = config.sandbox.stop_with_server;
    let services = web::WebServices {
        directory: directory.clone(),
        sweeper,
        start_limiter,
        search_limiter: web::SearchLimiter::default(),
        sockets,
        store,
        actor_registry,
        sandbox: sandbox.clone(),
        files,
        checkpoints: checkpoints.clone(),
        repositories,
        gateway: gateway.clone(),
        models: gateway.models(),
        default_model: gateway.default_model(),
        approvals,
        analyzers,
        project_rules,
        config,
        node,
    };
    let server = web::serve(services, auth, threads, listener, tls)?;
    // Before the URL is published: a client with the URL may ask this server to end at once.
    let signals = ShutdownSignals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
    Ok(RunningServer {
        sign_in_url,
        server,
        directory,
        gateway,
        sandbox,
        checkpoints,
        closing,
        stop_sandboxes,
        signals,
        _data: data,
        _claim: claim,
    })
}

impl RunningServer {
    /// Serves until SIGTERM or SIGINT. Sandboxes keep running for the next start, unless the
    /// configuration stops them. A second signal ends the server at once.
    ///
    /// # Errors
    /// Returns an error of the web server.
    pub async fn run_until_signal(self) -> io::Result<()> {
        let RunningServer {
            server,
            directory,
            gateway,
            sandbox,
            checkpoints,
            closing,
            stop_sandboxes,
            mut signals,
            ..
        } = self;
        let handle = server.handle();
        let mut serving = std::pin::pin!(server);
        tokio::select! {
            result = &mut serving => return result,
            () = signals.recv() => {}
        }
        info!("closing; a second signal ends the server at once");
        closing.cancel();
        let drained = async {
            // Before the sessions persist their last events, which include the usage of the calls
            // that end now. If the disk hangs, nothing more is persisted.
            let _ = tokio::time::timeout(METERING_TIMEOUT, gateway.close()).await;
            // Before the web server's threads end, and the sessions on them. An error means that
            // the directory has ended already.
            let _ = directory.send(ShutDown { stop: stop_sandboxes }).await;
            tokio::join!(handle.stop(true), async {
                let _ends_after_stop = serving.await;
            });
            if stop_sandboxes {
                stop_all_sandboxes(&*sandbox).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(DRAIN_TIMEOUT + Duration::from_secs(if stop_sandboxes { 20 } else { 0 }), drained) => {}
            () = signals.recv() => warn!("ended at once; the journal is intact"),
        }
        checkpoints.cancel_all();
        remove_tree::cancel_all();
        Ok(())
    }
}

/// Returns true if clients of other machines connect without TLS and without a trusted proxy.
fn is_exposed(config: &ServerConfig, bound: IpAddr) -> bool {
    !bound.is_loopback() && config.tls == TlsSetting::Off && config.trusted_proxies.is_empty()
}

/// Signals that end the server.
struct ShutdownSignals {
    term: Signal,
    int: Signal,
}

impl ShutdownSignals {
    async fn recv(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

async fn stop_all_sandboxes(sandbox: &dyn SandboxDriver) {
    let found = match sandbox.list().await {
        Ok(found) => found,
        Err(e) => return warn!("cannot list the sandboxes, so they keep running: {e}"),
    };
    let stops = found.into_iter().map(|found| async move {
        if let Err(e) = sandbox.stop(found.session).await {
            warn!(session = %found.session, "cannot stop the sandbox: {e}");
        }
    });
    futures::future::join_all(stops).await;
}

/// Returns the function that derives an agent's settings from its session's record.
fn agent_settings(config: Arc<Config>, gateway: Gateway) -> Box<dyn Fn(&SessionRecord) -> AgentSettings + Send + Sync> {
    Box::new(move |record| {
        let ModelCapabilities { context_limit, takes_images } = gateway.capabilities(&record.model);
        AgentSettings {
            model: record.model.clone(),
            api: gateway.resolve(&record.model).api,
            directory: record.directory.clone().unwrap_or_else(|| sandbox_paths::WORKSPACE.to_owned()),
            run_timeout_s: config.agent.run_timeout.whole_seconds(),
            max_steps: config.agent.max_steps,
            program: None,
            effort: record.effort,
            takes_images,
            context_limit,
            orphan_after_s: Some(config.sandbox.orphan_after.whole_seconds()).filter(|seconds| *seconds > 0),
            plan_path: Some(session::plan_path(record.id, config.sandbox.shared_workspace().is_some())),
            mode: record.mode,
        }
    })
}
