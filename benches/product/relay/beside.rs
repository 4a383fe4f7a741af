//! The bench's agent without Greenroom: for direct clients, and for clients through a proxy.

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::SinkExt;
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};
use tokio_tungstenite::{accept_async_with_config, client_async_with_config, tungstenite::Message};

use super::{
    ARRIVED, ClientFigures, EVERY, PacedSender, RelayClient, RelayClients, SendPace, WARM_UP, hop, latencies, rate,
    small,
};
use crate::figures::Figures;

/// Pace with a random start for each connection.
const EVENLY: SendPace = SendPace::Every { late: Duration::ZERO };

/// The same agent without a server: on Unix sockets for the proxy and the hop, as Greenroom dials
/// it, and on a port for direct clients.
pub(super) struct BaselineAgent {
    port: u16,
    proxy: u16,
    hop: u16,
    signal: Arc<BaselineSignal>,
    listening: [JoinHandle<()>; 3],
}

/// Pace that all connections of the agent follow.
#[derive(Default)]
struct BaselineSignal {
    /// Path that sends, and its pace. Written under a lock, read without one.
    now: watch::Sender<Option<(RelayPath, SendPace)>>,
    /// Number of changes.
    changes: AtomicUsize,
    stop: AtomicBool,
    waiting: tokio::sync::Notify,
}

impl BaselineSignal {
    fn say(&self, now: Option<(RelayPath, SendPace)>) {
        self.now.send_replace(now);
        self.changes.fetch_add(1, Relaxed);
        self.waiting.notify_waiters();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayPath {
    Direct,
    Proxied,
    Hop,
}

impl BaselineAgent {
    pub(super) async fn start(home: &Path, proxy: u16) -> BaselineAgent {
        let signal = Arc::new(BaselineSignal::default());
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = tcp.local_addr().expect("an address").port();
        let heard = signal.clone();
        let direct = tokio::spawn(async move {
            while let Ok((stream, _)) = tcp.accept().await {
                stream.set_nodelay(true).expect("it is a socket");
                tokio::spawn(serve(stream, RelayPath::Direct, heard.clone()));
            }
        });
        let behind_hop = home.join("behind-hop.sock");
        let hopped = listen(&behind_hop, RelayPath::Hop, signal.clone());
        let proxied = listen(&home.join("agent.sock"), RelayPath::Proxied, signal.clone());
        let hop = hop::start(home, behind_hop);
        BaselineAgent { port, proxy, hop, signal, listening: [direct, proxied, hopped] }
    }

    pub(super) async fn directly(&self) -> RelayClient {
        dial(self.port).await
    }

    pub(super) async fn through_the_proxy(&self) -> RelayClient {
        dial(self.proxy).await
    }

    pub(super) async fn through_the_hop(&self) -> RelayClient {
        dial(self.hop).await
    }

    pub(super) async fn paced(&self, run: &mut RelayClients, way: RelayPath) -> Figures {
        latencies(self.speak(run, way, EVENLY).await)
    }

    pub(super) async fn at_full_speed(&self, run: &mut RelayClients, pace: SendPace) -> f64 {
        rate(&self.speak(run, RelayPath::Proxied, pace).await)
    }

    /// Lets every agent send this many frames without a pause. Returns frames a second until every
    /// client has all of them.
    pub(super) async fn flood(&self, run: &mut RelayClients, way: RelayPath, frames: u64) -> f64 {
        self.signal.say(Some((way, SendPace::Flood { frames })));
        let rate = run.read_all(frames).await;
        self.signal.say(None);
        rate
    }

    async fn speak(&self, run: &mut RelayClients, way: RelayPath, pace: SendPace) -> Vec<ClientFigures> {
        self.signal.say(Some((way, pace)));
        let heard = run.read().await;
        self.signal.say(None);
        sleep(WARM_UP).await;
        heard
    }
}

impl Drop for BaselineAgent {
    fn drop(&mut self) {
        self.signal.stop.store(true, Relaxed);
        self.signal.waiting.notify_waiters();
        self.listening.iter().for_each(JoinHandle::abort);
    }
}

fn listen(path: &Path, way: RelayPath, signal: Arc<BaselineSignal>) -> JoinHandle<()> {
    let _left_by_the_last = fs::remove_file(path);
    let unix = UnixListener::bind(path).expect("a socket");
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("it is ours");
    tokio::spawn(async move {
        while let Ok((stream, _)) = unix.accept().await {
            tokio::spawn(serve(stream, way, signal.clone()));
        }
    })
}

/// Serves one connection of the agent: the frames that a client of Greenroom would see.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, way: RelayPath, signal: Arc<BaselineSignal>) {
    let Ok(mut socket) = accept_async_with_config(stream, Some(small())).await else { return };
    let (mut speaker, late) = (PacedSender::new(), EVERY.mul_f64(fastrand::f64()));
    let (mut offset, mut known, mut now) = (0, usize::MAX, None);
    loop {
        if signal.stop.load(Relaxed) {
            return;
        }
        let changes = signal.changes.load(Relaxed);
        if changes != known {
            (known, now) = (changes, *signal.now.borrow());
            // Frames of the last pace.
            ARRIVED[speaker.number].forget_permits(usize::MAX >> 4);
        }
        let speaks = now.filter(|(speaks, pace)| *speaks == way && !speaker.has_said_all(*pace));
        let Some((_, pace)) = speaks else {
            offset = 0;
            let mut woken = pin!(signal.waiting.notified());
            // Frames from here on are not missed.
            woken.as_mut().enable();
            if signal.changes.load(Relaxed) == known {
                woken.await;
            }
            if matches!(*signal.now.borrow(), Some((_, SendPace::Every { .. } | SendPace::OneByOne))) {
                sleep(late).await;
            }
            speaker.begin();
            continue;
        };
        let content = speaker.words();
        let frame = if let SendPace::Flood { .. } = pace {
            json!({ "seq": offset, "at": "2026-01-01T00:00:00.000Z", "source": "agent", "observation": "think", "extras": {},
                "content": content })
        } else {
            json!({ "delta": "text", "item": "item", "offset": offset, "content": content })
        };
        offset += content.len();
        if socket.send(Message::text(frame.to_string())).await.is_err() {
            return;
        }
        speaker.wait_for_turn(pace).await;
    }
}

async fn dial(port: u16) -> RelayClient {
    let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("somebody listens");
    let address = format!("ws://127.0.0.1:{port}/");
    client_async_with_config(address, tcp, Some(small())).await.expect("it speaks WebSocket").0
}
