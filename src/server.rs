//! The parts list: how a server is put together, and how it is taken apart.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use actix::Addr;
use greenroom_protocol::link::AgentSettings;
use rustix::net::sockopt;
use tokio::{
    net::TcpSocket,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    actor_registry::ActorRegistry,
    config::{Config, JournalBackend},
    data::{CurrentToken, DataDir, DataError, NodeClaim},
    directory::{self, Directory, ShutDown},
    frontend,
    gateway::{Gateway, GatewayError},
    link::{self, AgentLink},
    sandbox::{SandboxDriver, SandboxError, WorkspaceDirs, remove_tree, sandbox_paths},
    session,
    session_threads::SessionThreads,
    store::{
        SessionRecord, Store,
        in_memory::MemoryStore,
        local::{LocalStore, OpenError},
    },
    sweeper::{self, Sweeper},
    web, wiring,
};

mod driver;

/// The agent that is put into every sandbox. Built with this server, so their versions always match.
static AGENT_BINARY: &[u8] = include_bytes!(env!("GREENROOM_AGENT_BIN"));

/// How many connections may wait to be taken up, where the kernel allows as many. Whoever comes when it is full asks again after a
/// second; and all clients come at once after a restart.
const ACCEPT_BACKLOG: u32 = 4096;
/// How long a connection may be silent until the kernel asks whether anybody is there, and for how long that may go unanswered,
/// or what was sent unread. Sockets and streams of events have a shorter patience of their own.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);
const UNACKED_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the calls of models have to be counted when the server ends.
const METERING_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a closing server waits for its clients.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a server does not start. The text names the way out.
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
    Exposed(#[from] wiring::DataDirExposed),
    #[error(
        "cannot listen on `{address}`: {source}; choose another address with --bind (port 0 takes one that is free)"
    )]
    Listen { address: String, source: io::Error },
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// A server that serves.
pub struct RunningServer {
    /// Where it is, with the token: what is shown to the person who started it.
    pub sign_in_url: String,
    server: actix_web::dev::Server,
    directory: Addr<Directory>,
    gateway: Gateway,
    sandbox: Arc<dyn SandboxDriver>,
    closing: CancellationToken,
    stop_sandboxes: bool,
    signals: ShutdownSignals,
    /// While it is open, no other server can open it.
    _data: Arc<DataDir>,
    /// The same of every copy.
    _claim: NodeClaim,
}

/// Starts everything. Must be called inside an actix system.
pub async fn start(config: Config) -> Result<RunningServer, StartError> {
    let config = Arc::new(config);
    let data = Arc::new(DataDir::open(&config.data.dir)?);
    let volumes = wiring::volumes(&config.sandbox);
    wiring::check_volumes_exclude(&volumes, data.path())?;
    let token = data.token(&config.server.token)?;
    let node = data.node()?;
    let claim = data.claim_node(&node)?;
    // The port before the journal: the likelier mistake is told first.
    let listener = listen(&config)?;
    let bound = listener.local_addr()?;
    let store: Arc<dyn Store> = match config.data.journal {
        JournalBackend::Local => Arc::new(LocalStore::open(&data.journal())?),
        JournalBackend::Memory => Arc::new(MemoryStore::new()),
    };
    let gateway = Gateway::new(wiring::gateway_options(&config.model))?;
    let sandbox = driver::choose_driver(&config, &data, &node, &*store).await?;
    let census = ActorRegistry::default();

    let (uid, gid) = wiring::user(&config.sandbox);
    let (shared, volumes) = wiring::split_shared_workspace(volumes);
    let workspaces = WorkspaceDirs { root: data.workspaces(), shared, uid, gid };
    let starts = Arc::new(link::StartLimiter::new(config.sandbox.max_starting, config.sandbox.max_waiting));
    let link = Arc::new(link::LinkParts {
        sandbox: sandbox.clone(),
        gateway: gateway.clone(),
        store: store.clone(),
        actor_registry: census.clone(),
        dirs: link::SessionDirs {
            runs: data.runs(),
            workspaces: workspaces.clone(),
            homes: data.homes(),
            agent: data.install_agent(AGENT_BINARY)?,
        },
        image: config.sandbox.image.clone(),
        volumes,
        uid,
        gid,
        limits: wiring::limits(&config.sandbox),
        network: wiring::network(&config.sandbox),
        start_limiter: starts.clone(),
    });
    let (settings, models) = (agent_settings(config.clone(), gateway.clone()), gateway.clone());
    let (store_of_sessions, census_of_sessions) = (store.clone(), census.clone());
    let threads = SessionThreads::start();
    let directory = Directory::start(directory::DirectoryParts {
        store: store.clone(),
        actor_registry: census.clone(),
        gateway: gateway.clone(),
        sandbox: sandbox.clone(),
        start_limiter: starts.clone(),
        runs: data.runs(),
        workspaces: data.workspaces(),
        homes: data.homes(),
        threads: threads.clone(),
        sessions: Box::new(move |fell| session::SessionDeps {
            store: store_of_sessions,
            actor_registry: census_of_sessions,
            make_link: Box::new(move |session, id, allowance| AgentLink::port(link.clone(), &session, id, allowance)),
            settings_for: settings,
            check_model: Box::new(move |model| models.ready(model)),
            session_stopped: fell,
        }),
    });
    let sweeper = Sweeper::start(sweeper::SweeperParts {
        directory: directory.clone(),
        store: store.clone(),
        sandbox: sandbox.clone(),
        actor_registry: census.clone(),
        runs: data.runs(),
        interval: config.sweeper.every.0,
        pause_after: wiring::never_if_zero(config.sweeper.pause_after),
        stop_after: wiring::never_if_zero(config.sweeper.stop_after),
    });
    let closing = CancellationToken::new();
    let sockets = Arc::new(frontend::FrontendServices {
        sessions: Arc::new(directory.clone()),
        store: store.clone(),
        actor_registry: census.clone(),
        closing: closing.clone(),
    });
    let link = format!("http://{bound}/?token={}", token.expose());
    let token = CurrentToken::follow(data.clone(), &config.server.token, token, &closing);
    let auth = web::Auth::new(token, bound, &config.server);
    let stop_sandboxes = config.sandbox.stop_with_server;
    let parts = web::WebServices {
        directory: directory.clone(),
        sweeper,
        start_limiter: starts,
        sockets,
        store,
        actor_registry: census,
        sandbox: sandbox.clone(),
        workspaces,
        models: gateway.models(),
        default_model: gateway.default_model(),
        config,
        node,
    };
    let server = web::serve(parts, auth, threads, listener)?;
    // Before the link is known: who has it may ask this server to end at once.
    let asked = ShutdownSignals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
    Ok(RunningServer {
        sign_in_url: link,
        server,
        directory,
        gateway,
        sandbox,
        closing,
        stop_sandboxes,
        signals: asked,
        _data: data,
        _claim: claim,
    })
}

impl RunningServer {
    /// Serves until it is asked to end: by SIGTERM or SIGINT. Sandboxes stay for the next start, unless they are to go too.
    pub async fn run_until_signal(self) -> io::Result<()> {
        let RunningServer { server, directory, gateway, sandbox, closing, stop_sandboxes, signals: mut asked, .. } =
            self;
        let handle = server.handle();
        let mut serving = std::pin::pin!(server);
        tokio::select! {
            served = &mut serving => return served,
            () = asked.recv() => {}
        }
        info!("closing; ask once more to end at once");
        closing.cancel();
        let drained = async {
            // Before the sessions write down the last: what the calls took that end now is part of it. With a disk that hangs there
            // is no last.
            let _ = tokio::time::timeout(METERING_TIMEOUT, gateway.close()).await;
            // Before the web server's threads end, and the sessions on them. No answer is as good: it only tells that it ended.
            let _ = directory.send(ShutDown { stop: stop_sandboxes }).await;
            tokio::join!(handle.stop(true), async {
                let _ends_by_itself_once_stopped = serving.await;
            });
            if stop_sandboxes {
                stop_all_sandboxes(&*sandbox).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(DRAIN_TIMEOUT + Duration::from_secs(if stop_sandboxes { 20 } else { 0 }), drained) => {}
            () = asked.recv() => warn!("ended at once; the journal is safe"),
        }
        remove_tree::cancel_all();
        Ok(())
    }
}

/// The ways to ask for the end.
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
        Err(e) => return warn!("the sandboxes cannot be seen, so they are left as they are: {e}"),
    };
    let stops = found.into_iter().map(|found| async move {
        if let Err(e) = sandbox.stop(found.session).await {
            warn!(session = %found.session, "its sandbox could not be stopped: {e}");
        }
    });
    futures::future::join_all(stops).await;
}

fn listen(config: &Config) -> Result<TcpListener, StartError> {
    let address = config.server.bind;
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // What the server before had open may still be closing.
        socket.set_reuseaddr(true)?;
        // All connections have this from here.
        socket.set_keepalive(true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_user_timeout(&socket, UNACKED_TIMEOUT.as_millis() as u32)?;
        socket.bind(address)?;
        socket.listen(ACCEPT_BACKLOG)?.into_std()
    };
    listen().map_err(|source| StartError::Listen { address: address.to_string(), source })
}

/// What an agent works with, from its session's record.
fn agent_settings(config: Arc<Config>, gateway: Gateway) -> Box<dyn Fn(&SessionRecord) -> AgentSettings + Send + Sync> {
    Box::new(move |record| AgentSettings {
        model: record.model.clone(),
        api: gateway.resolve(&record.model).api,
        directory: record.directory.clone().unwrap_or_else(|| sandbox_paths::WORKSPACE.to_owned()),
        run_timeout_s: config.agent.run_timeout.0.as_secs(),
        max_steps: config.agent.max_steps,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_client_that_vanishes_keeps_no_connection_for_ever() {
        let mut config = Config::with_data_dir("/nowhere");
        config.server.bind = "127.0.0.1:0".parse().expect("an address");
        let listener = listen(&config).expect("there is a port");
        listener.set_nonblocking(false).expect("it is a socket");
        let _client = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        let (connection, _) = listener.accept().expect("it is there");
        assert!(sockopt::socket_keepalive(&connection).expect("it is told"));
        assert_eq!(sockopt::tcp_keepidle(&connection).expect("it is told"), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_user_timeout(&connection).expect("it is told"), UNACKED_TIMEOUT.as_millis() as u32);
    }
}
