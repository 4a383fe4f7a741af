//! The parts list: how a server is put together, and how it is taken apart.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use actix::Addr;
use greenroom_protocol::link::Settings;
use rustix::net::sockopt;
use tokio::{
    net::TcpSocket,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    census::Census,
    config::{Config, Journal},
    data::{Claim, DataDir, DataError, TokenInForce},
    directory::{self, Close, Directory},
    frontend,
    gateway::{Gateway, GatewayError},
    link::{self, AgentLink},
    sandbox::{Sandbox, SandboxError, Workspaces, inside, removal},
    session,
    store::{
        Record, Store,
        local::{LocalStore, OpenError},
        memory::MemoryStore,
    },
    sweeper::{self, Sweeper},
    threads::Threads,
    web, wiring,
};

mod driver;

/// The agent that is put into every sandbox. Built with this server, so their versions always match.
static AGENT: &[u8] = include_bytes!(env!("GREENROOM_AGENT_BIN"));

/// How many connections may wait to be taken up, where the kernel allows as many. Whoever comes when it is full asks again after a
/// second; and all clients come at once after a restart.
const BACKLOG: u32 = 4096;
/// How long a connection may be silent until the kernel asks whether anybody is there, and for how long that may go unanswered,
/// or what was sent unread. Sockets and streams of events have a shorter patience of their own.
const ALIVE: Duration = Duration::from_secs(60);
const GIVE_UP: Duration = Duration::from_secs(300);
/// How long the calls of models have to be counted when the server ends.
const LAST_CALLS: Duration = Duration::from_millis(500);
/// How long a closing server waits for its clients.
const DRAIN: Duration = Duration::from_secs(3);

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
    Exposed(#[from] wiring::Exposed),
    #[error(
        "cannot listen on `{address}`: {source}; choose another address with --bind (port 0 takes one that is free)"
    )]
    Listen { address: String, source: io::Error },
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// A server that serves.
pub struct Running {
    /// Where it is, with the token: what is shown to the person who started it.
    pub link: String,
    server: actix_web::dev::Server,
    directory: Addr<Directory>,
    gateway: Gateway,
    sandbox: Arc<dyn Sandbox>,
    closing: CancellationToken,
    stop_sandboxes: bool,
    asked: Asked,
    /// While it is open, no other server can open it.
    _data: Arc<DataDir>,
    /// The same of every copy.
    _claim: Claim,
}

/// Starts everything. Must be called inside an actix system.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let config = Arc::new(config);
    let data = Arc::new(DataDir::open(&config.data.dir)?);
    let volumes = wiring::volumes(&config.sandbox);
    wiring::keep_out_of(&volumes, data.path())?;
    let token = data.token(&config.server.token)?;
    let node = data.node()?;
    let claim = data.claim(&node)?;
    // The port before the journal: the likelier mistake is told first.
    let listener = listen(&config)?;
    let bound = listener.local_addr()?;
    let store: Arc<dyn Store> = match config.data.journal {
        Journal::Local => Arc::new(LocalStore::open(&data.journal())?),
        Journal::Memory => Arc::new(MemoryStore::new()),
    };
    let gateway = Gateway::new(wiring::gateway_options(&config.model))?;
    let sandbox = driver::choose(&config, &data, &node, &*store).await?;
    let census = Census::default();

    let (uid, gid) = wiring::user(&config.sandbox);
    let (shared, volumes) = wiring::workspace(volumes);
    let workspaces = Workspaces { below: data.workspaces(), shared, uid, gid };
    let starts = Arc::new(link::Starts::new(config.sandbox.max_starting, config.sandbox.max_waiting));
    let link = Arc::new(link::Parts {
        sandbox: sandbox.clone(),
        gateway: gateway.clone(),
        store: store.clone(),
        census: census.clone(),
        places: link::Places {
            runs: data.runs(),
            workspaces: workspaces.clone(),
            homes: data.homes(),
            agent: data.install_agent(AGENT)?,
        },
        image: config.sandbox.image.clone(),
        volumes,
        uid,
        gid,
        limits: wiring::limits(&config.sandbox),
        network: wiring::network(&config.sandbox),
        starting: starts.clone(),
    });
    let (settings, models) = (settings(config.clone(), gateway.clone()), gateway.clone());
    let (store_of_sessions, census_of_sessions) = (store.clone(), census.clone());
    let threads = Threads::start();
    let directory = Directory::start(directory::Parts {
        store: store.clone(),
        census: census.clone(),
        gateway: gateway.clone(),
        sandbox: sandbox.clone(),
        starts: starts.clone(),
        runs: data.runs(),
        workspaces: data.workspaces(),
        homes: data.homes(),
        threads: threads.clone(),
        sessions: Box::new(move |fell| session::Parts {
            store: store_of_sessions,
            census: census_of_sessions,
            link: Box::new(move |session, id, allowance| AgentLink::port(link.clone(), &session, id, allowance)),
            settings,
            may_use: Box::new(move |model| models.ready(model)),
            fell,
        }),
    });
    let sweeper = Sweeper::start(sweeper::Parts {
        directory: directory.clone(),
        store: store.clone(),
        sandbox: sandbox.clone(),
        census: census.clone(),
        runs: data.runs(),
        every: config.sweeper.every.0,
        pause_after: wiring::never_if_zero(config.sweeper.pause_after),
        stop_after: wiring::never_if_zero(config.sweeper.stop_after),
    });
    let closing = CancellationToken::new();
    let sockets = Arc::new(frontend::Parts {
        sessions: Arc::new(directory.clone()),
        store: store.clone(),
        census: census.clone(),
        closing: closing.clone(),
    });
    let link = format!("http://{bound}/?token={}", token.expose());
    let token = TokenInForce::follow(data.clone(), &config.server.token, token, &closing);
    let auth = web::Auth::new(token, bound, &config.server);
    let stop_sandboxes = config.sandbox.stop_with_server;
    let parts = web::Parts {
        directory: directory.clone(),
        sweeper,
        starts,
        sockets,
        store,
        census,
        sandbox: sandbox.clone(),
        workspaces,
        models: gateway.models(),
        default_model: gateway.default_model(),
        config,
        node,
    };
    let server = web::serve(parts, auth, threads, listener)?;
    // Before the link is known: who has it may ask this server to end at once.
    let asked = Asked { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
    Ok(Running {
        link,
        server,
        directory,
        gateway,
        sandbox,
        closing,
        stop_sandboxes,
        asked,
        _data: data,
        _claim: claim,
    })
}

impl Running {
    /// Serves until it is asked to end: by SIGTERM or SIGINT. Sandboxes stay for the next start, unless they are to go too.
    pub async fn until_asked(self) -> io::Result<()> {
        let Running { server, directory, gateway, sandbox, closing, stop_sandboxes, mut asked, .. } = self;
        let handle = server.handle();
        let mut serving = std::pin::pin!(server);
        tokio::select! {
            served = &mut serving => return served,
            () = asked.until_either() => {}
        }
        info!("closing; ask once more to end at once");
        closing.cancel();
        let drained = async {
            // Before the sessions write down the last: what the calls took that end now is part of it. With a disk that hangs there
            // is no last.
            let _ = tokio::time::timeout(LAST_CALLS, gateway.close()).await;
            // Before the web server's threads end, and the sessions on them. No answer is as good: it only tells that it ended.
            let _ = directory.send(Close { stop: stop_sandboxes }).await;
            tokio::join!(handle.stop(true), async {
                let _ends_by_itself_once_stopped = serving.await;
            });
            if stop_sandboxes {
                stop_all(&*sandbox).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(DRAIN + Duration::from_secs(if stop_sandboxes { 20 } else { 0 }), drained) => {}
            () = asked.until_either() => warn!("ended at once; the journal is safe"),
        }
        removal::end();
        Ok(())
    }
}

/// The ways to ask for the end.
struct Asked {
    term: Signal,
    int: Signal,
}

impl Asked {
    async fn until_either(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

async fn stop_all(sandbox: &dyn Sandbox) {
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
        sockopt::set_tcp_keepidle(&socket, ALIVE)?;
        sockopt::set_tcp_keepintvl(&socket, ALIVE)?;
        sockopt::set_tcp_user_timeout(&socket, GIVE_UP.as_millis() as u32)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    listen().map_err(|source| StartError::Listen { address: address.to_string(), source })
}

/// What an agent works with, from its session's record.
fn settings(config: Arc<Config>, gateway: Gateway) -> Box<dyn Fn(&Record) -> Settings + Send + Sync> {
    Box::new(move |record| Settings {
        model: record.model.clone(),
        api: gateway.resolve(&record.model).api,
        directory: record.directory.clone().unwrap_or_else(|| inside::WORKSPACE.to_owned()),
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
        assert_eq!(sockopt::tcp_keepidle(&connection).expect("it is told"), ALIVE);
        assert_eq!(sockopt::tcp_user_timeout(&connection).expect("it is told"), GIVE_UP.as_millis() as u32);
    }
}
