//! Token latency: from the moment the model sends a token until a client has it.
//!
//! The way is gateway, agent, link, session, socket. A client that reads the same model directly is
//! measured beside. The streams do not run in step: each begins a little after the one before.
//!
//! A third client's bytes go the same way, from process to process, through hops that only copy.
//! The difference to the first is the price of the wall between agent and server. The rest is
//! Greenroom's own.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use tokio::time::sleep;

use crate::figures::{Figures, table, times};
use greenroom_testkit::{
    driver::TestDriver,
    model::{ScriptedModel, ScriptedRule},
    rest,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Tokens of a turn: 20 a second for two and a half seconds.
const EVERY_MS: u64 = 50;
const TOKENS: usize = 50;
/// Rounds in which the three ways take turns, so that each sees the same machine.
const ROUNDS: usize = 6;

pub(crate) async fn run() {
    let mut rows = Vec::new();
    for clients in [1, 10, 50] {
        let model = Arc::new(stamped());
        let server = Arc::new(TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await);
        let mut sockets = Vec::new();
        for _ in 0..clients {
            sockets.push(client(&server).await);
        }
        let [mut direct, mut copied, mut through] = [(); 3].map(|()| Figures::default());
        for _ in 0..ROUNDS {
            let late = |n: usize| Duration::from_micros(EVERY_MS * 1000 * n as u64 / clients as u64);
            direct.extend(together((0..clients).map(|n| read(model.url(), late(n)))).await);
            copied.extend(together((0..clients).map(|n| read(hops(&model.url()), late(n)))).await);
            let turns = sockets.drain(..).enumerate().map(|(n, mut socket)| {
                let late = late(n);
                async move {
                    let figures = turn(&mut socket, late).await;
                    (socket, figures)
                }
            });
            let (ended, figures): (Vec<_>, Vec<_>) = all(turns).await.into_iter().unzip();
            sockets = ended;
            figures.into_iter().for_each(|figures| through.extend(figures));
        }
        let us = |figures: &Figures| format!("{:.0} / {:.0} µs", figures.p(50), figures.p(99));
        let beside =
            |floor: &Figures| format!("{} / {}", times(through.p(50), floor.p(50)), times(through.p(99), floor.p(99)));
        let row = [clients.to_string(), us(&direct), us(&copied), us(&through), beside(&direct), beside(&copied)];
        rows.push(row.to_vec());
    }
    let head =
        ["sessions", "directly", "through three bare hops", "through Greenroom", "beside directly", "beside bare hops"];
    table("Token latency, model → client (20 tokens/s a session), p50 / p99", &head, &rows);
}

/// Model whose tokens carry the time at which they were sent.
pub(crate) fn stamped() -> ScriptedModel {
    ScriptedModel::with(vec![ScriptedRule {
        say: Some("token ".into()),
        times: TOKENS,
        every_ms: EVERY_MS,
        stamped: true,
        ..ScriptedRule::default()
    }])
}

/// Client with a session of its own.
pub(crate) async fn client(server: &TestServer) -> TestSocket {
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.until("idle", |frame| frame["extras"]["agent_state"] == "idle").await;
    socket
}

async fn together<F: Future<Output = Figures> + Send + 'static>(clients: impl Iterator<Item = F>) -> Figures {
    let mut figures = Figures::default();
    all(clients).await.into_iter().for_each(|others| figures.extend(others));
    figures
}

async fn all<F: Future<Output: Send> + Send + 'static>(clients: impl Iterator<Item = F>) -> Vec<F::Output> {
    let clients: Vec<_> = clients.map(tokio::spawn).collect();
    let mut done = Vec::new();
    for client in clients {
        done.push(client.await.expect("no client fails"));
    }
    done
}

/// Returns the time of each token that is read from the model itself, in microseconds.
pub(crate) async fn read(url: String, late: Duration) -> Figures {
    sleep(late).await;
    let body =
        json!({ "model": "m", "max_tokens": 1, "stream": true, "messages": [{ "role": "user", "content": "go" }] });
    let request = rest::client().post(format!("{url}/v1/messages")).json(&body);
    let mut response = request.send().await.expect("the model answers");
    let mut figures = Figures::default();
    while let Some(chunk) = response.chunk().await.expect("the stream holds") {
        stamps(&String::from_utf8_lossy(&chunk), &mut figures);
    }
    figures
}

/// Returns the time of each token of a turn, in microseconds.
pub(crate) async fn turn(socket: &mut TestSocket, late: Duration) -> Figures {
    sleep(late).await;
    socket.send_request("message", json!({ "content": "go" })).await;
    let mut figures = Figures::default();
    loop {
        let frame = socket.next().await;
        if frame["delta"] == "text" {
            stamps(frame["content"].as_str().unwrap_or_default(), &mut figures);
        }
        if frame["extras"]["agent_state"] == "idle" && figures.len() > 0 {
            return figures;
        }
    }
}

/// Opens a way to `url` with as many hops as Greenroom's: into the server, into the agent's
/// process, back into the server. Ends with its first connection.
fn hops(url: &str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let model = TcpStream::connect(url.trim_start_matches("http://")).expect("the model listens");
    thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client comes");
        let [(into_agent, at_agent), (out_of_agent, back)] =
            [(); 2].map(|()| UnixStream::pair().expect("a pair of sockets"));
        for tcp in [&client, &model] {
            tcp.set_nodelay(true).expect("a socket can be told so");
        }
        let (asking, asked) = (client.try_clone().expect("a handle"), model.try_clone().expect("a handle"));
        thread::spawn(move || copy(asking, asked));
        thread::spawn(move || copy(model, into_agent));
        thread::spawn(move || copy(at_agent, out_of_agent));
        copy(back, client)
    });
    format!("http://{address}")
}

/// Unlike `io::copy`, passes each piece on at once.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            n => to.write_all(&buffer[..n])?,
        }
    }
}

/// Reads the words that are times in microseconds, and records how long each took to arrive.
fn stamps(text: &str, figures: &mut Figures) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_micros() as f64;
    let words = text.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() == 16);
    words.filter_map(|word| word.parse::<f64>().ok()).for_each(|sent| figures.add(now - sent));
}
