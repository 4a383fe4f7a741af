//! Terminals: shells in the sandbox that outlive the tab and the server.

use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest, http::HeaderValue},
};

use greenroom_testkit::{
    DEADLINE,
    driver::TestDriver,
    eventually, host, on_each_driver,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
    within,
};

on_each_driver!(
    shell_outlives_tab_and_server,
    terminal_starts_a_stopped_sandbox,
    smallest_window_decides_the_size,
    pause_freezes_a_terminal,
    killed_sandbox_ends_a_terminal_and_a_new_one_opens,
    interrupt_leaves_terminals_and_a_restart_names_them,
    flood_that_nobody_reads_costs_no_memory,
);

/// Allowed growth of server and agent during a flood, in KiB.
const FLOOD_KIB: u64 = 16 * 1024;

/// Client of a terminal.
struct TestTerminal {
    stream: WebSocketStream<TcpStream>,
    output: String,
    frames: Vec<Value>,
    /// Close code, once the server has closed.
    closed: Option<u16>,
}

impl TestTerminal {
    async fn open(rest: &RestClient, session: &str, query: &str) -> TestTerminal {
        let tcp = TcpStream::connect(&rest.authority).await.expect("the server listens");
        let path = format!("/ws/sessions/{session}/terminal{query}");
        TestTerminal::over(tcp, rest, &path, Some(&rest.token)).await.expect("the handshake is accepted")
    }

    /// Opens a terminal and waits until it is attached.
    async fn attach(rest: &RestClient, session: &str, query: &str) -> TestTerminal {
        let mut terminal = TestTerminal::open(rest, session, query).await;
        terminal.frame("ready").await;
        terminal
    }

    async fn over(tcp: TcpStream, rest: &RestClient, path: &str, token: Option<&str>) -> Result<TestTerminal, u16> {
        let mut request = format!("ws://{}{path}", rest.authority).into_client_request().expect("an address");
        if let Some(token) = token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}")).expect("a header is text");
            request.headers_mut().insert("authorization", bearer);
        }
        match within("the handshake", client_async(request, tcp)).await {
            Ok((stream, _)) => Ok(TestTerminal { stream, output: String::new(), frames: Vec::new(), closed: None }),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(e) => panic!("the handshake failed: {e}"),
        }
    }

    async fn input(&mut self, input: &str) {
        let message = Message::binary(input.as_bytes().to_vec());
        within("the server to take input", self.stream.send(message)).await.expect("the socket is open");
    }

    async fn control(&mut self, frame: Value) {
        let message = Message::text(frame.to_string());
        within("the server to take a frame", self.stream.send(message)).await.expect("the socket is open");
    }

    /// Receives one message. Returns `false` when the socket is closed.
    async fn step(&mut self) -> bool {
        match self.stream.next().await {
            Some(Ok(Message::Binary(bytes))) => self.output.push_str(&String::from_utf8_lossy(&bytes)),
            Some(Ok(Message::Text(text))) => self.frames.push(serde_json::from_str(&text).expect("JSON")),
            Some(Ok(Message::Close(close))) => {
                self.closed = close.map(|close| close.code.into());
                return false;
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return false,
        }
        true
    }

    async fn until(&mut self, what: &str, is: impl Fn(&TestTerminal) -> bool) {
        let found = tokio::time::timeout(DEADLINE, async {
            while !is(self) {
                assert!(self.step().await, "closed ({:?}) before {what}; {:?}", self.closed, self.frames);
            }
        });
        if found.await.is_err() {
            panic!("timed out waiting for {what}; {:?}; the output ends with {:?}", self.frames, self.tail());
        }
    }

    async fn shows(&mut self, text: &str) {
        self.until(text, |terminal| terminal.output.contains(text)).await;
    }

    /// Runs a command line, and waits for the text that it prints.
    async fn run(&mut self, line: &str, prints: &str) {
        self.input(&format!("{line}\r")).await;
        self.shows(prints).await;
    }

    /// Returns the next frame of this type that was not returned before.
    async fn frame(&mut self, kind: &str) -> Value {
        let is_it = |frame: &Value| frame["type"] == kind;
        self.until(kind, |terminal| terminal.frames.iter().any(is_it)).await;
        let at = self.frames.iter().position(is_it).expect("such a frame has come");
        self.frames.remove(at)
    }

    async fn until_size(&mut self, cols: u16, rows: u16, clients: u32) {
        let is_it = |frame: &Value| {
            frame["type"] == "size" && frame["cols"] == cols && frame["rows"] == rows && frame["clients"] == clients
        };
        self.until("the size", |terminal| terminal.frames.iter().any(is_it)).await;
    }

    /// Reads to the end, and returns the close code.
    async fn close_code(&mut self) -> Option<u16> {
        within("the close", async { while self.step().await {} }).await;
        self.closed
    }

    fn tail(&self) -> &str {
        &self.output[self.output.ceil_char_boundary(self.output.len().saturating_sub(300))..]
    }
}

/// Starts a server with an idle session.
async fn idle_session(options: TestServerOptions) -> (TestServer, String) {
    let server = TestServer::start(options).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    (server, session)
}

async fn shell_outlives_tab_and_server(driver: TestDriver) {
    let (server, session) = idle_session(TestServerOptions::new(driver)).await;
    let mut terminal = TestTerminal::attach(&server.rest, &session, "?name=main&cols=100&rows=30").await;
    terminal.run("pwd; echo $TERM; stty size; tty", "/dev/pts/").await;
    assert!(terminal.output.contains("xterm-256color") && terminal.output.contains("30 100"), "{}", terminal.output);
    terminal.run("kept=yes; seq 100; printf '\\033[31mre''d\\033[m\\n'", "\x1b[31mred").await;
    drop(terminal);
    // The tab comes back.
    let mut terminal = TestTerminal::attach(&server.rest, &session, "?name=main&cols=100&rows=30").await;
    terminal.shows("red").await;
    terminal.run("echo is-$kept", "is-yes").await;
    // The server comes back.
    let server = server.kill9().await.restart().await;
    assert_eq!(terminal.close_code().await, None);
    let mut terminal = TestTerminal::attach(&server.rest, &session, "?name=main&cols=100&rows=30").await;
    terminal.shows("is-yes").await;
    assert!(terminal.output.contains("\r\n42\r\n"), "the scrollback is there: {}", terminal.output);
    terminal.run("echo still-$kept", "still-yes").await;
    // A server that stops says so, and its successor finds the shell.
    let (_, server) = server.terminate().await;
    assert_eq!(terminal.close_code().await, Some(1001));
    let server = server.restart().await;
    let mut terminal = TestTerminal::attach(&server.rest, &session, "?name=main&cols=100&rows=30").await;
    terminal.run("echo even-$kept", "even-yes").await;
    server.leaves_nothing().await;
}

async fn terminal_starts_a_stopped_sandbox(driver: TestDriver) {
    let (server, session) = idle_session(TestServerOptions::new(driver)).await;
    server.rest.post(&format!("/api/sessions/{session}/stop"), json!({})).await.expect(200);
    server.rest.until_state(&session, "stopped").await;
    assert_eq!(server.rest.get(&format!("/api/sessions/{session}/terminals")).await.expect(200)["items"], json!([]));
    let mut terminal = TestTerminal::open(&server.rest, &session, "").await;
    terminal.input("echo ty''ped-early\r").await;
    terminal.frame("starting").await;
    let ready = terminal.frame("ready").await;
    assert_eq!((&ready["name"], &ready["opened"]), (&json!("main"), &json!(true)));
    terminal.shows("typed-early").await;
    terminal.run("exit 3", "exit").await;
    assert_eq!(terminal.frame("exit").await, json!({ "type": "exit", "code": 3 }));
    assert_eq!(terminal.close_code().await, Some(1000));
    server.leaves_nothing().await;
}

async fn smallest_window_decides_the_size(driver: TestDriver) {
    let (server, session) = idle_session(TestServerOptions::new(driver)).await;
    let mut wide = TestTerminal::attach(&server.rest, &session, "?cols=120&rows=30").await;
    wide.until_size(120, 30, 1).await;
    let mut high = TestTerminal::attach(&server.rest, &session, "?cols=90&rows=50").await;
    high.until_size(90, 30, 2).await;
    wide.until_size(90, 30, 2).await;
    wide.run("stty size", "30 90\r\n").await;
    high.shows("30 90\r\n").await;
    high.control(json!({ "type": "resize", "cols": 70, "rows": 20 })).await;
    wide.until_size(70, 20, 2).await;
    drop(high);
    wide.until_size(120, 30, 1).await;
    server.leaves_nothing().await;
}

async fn pause_freezes_a_terminal(driver: TestDriver) {
    let (server, session) = idle_session(TestServerOptions::new(driver)).await;
    let agent = host::agents(server.home())[0].pid;
    let mut terminal = TestTerminal::attach(&server.rest, &session, "").await;
    terminal.run("echo rea''dy", "ready").await;
    server.rest.post(&format!("/api/sessions/{session}/pause"), json!({})).await.expect(200);
    terminal.frame("paused").await;
    eventually("the sandbox to be frozen", || async { host::is_frozen(agent) }).await;
    server.rest.get(&format!("/api/sessions/{session}/terminals")).await.error(503, "unavailable");
    let patch = server.rest.patch(&format!("/api/sessions/{session}/terminals/main"), json!({ "name": "a" })).await;
    patch.error(409, "wrong_state");
    terminal.input("echo thaw''ed\r").await;
    let mut second = TestTerminal::open(&server.rest, &session, "").await;
    second.frame("paused").await;
    terminal.control(json!({ "type": "ping" })).await;
    terminal.frame("pong").await;
    assert!(!terminal.output.contains("thawed"), "a paused shell answered");
    server.rest.post(&format!("/api/sessions/{session}/resume"), json!({})).await.expect(200);
    terminal.frame("resumed").await;
    terminal.shows("thawed").await;
    second.frame("ready").await;
    second.shows("thawed").await;
    server.leaves_nothing().await;
}

async fn killed_sandbox_ends_a_terminal_and_a_new_one_opens(driver: TestDriver) {
    let (server, session) = idle_session(TestServerOptions::new(driver)).await;
    let mut terminal = TestTerminal::attach(&server.rest, &session, "").await;
    terminal.run("echo rea''dy", "ready").await;
    host::kill(host::agents(server.home())[0].pid, Signal::KILL);
    assert_eq!(terminal.frame("exit").await, json!({ "type": "exit", "reason": "sandbox" }));
    assert_eq!(terminal.close_code().await, Some(1000));
    server.rest.until_state(&session, "failed").await;
    let mut terminal = TestTerminal::attach(&server.rest, &session, "").await;
    terminal.run("echo a''new", "anew").await;
    server.rest.delete(&format!("/api/sessions/{session}")).await.expect(200);
    assert_eq!(terminal.frame("exit").await, json!({ "type": "exit", "reason": "session" }));
    assert_eq!(terminal.close_code().await, Some(1000));
    let mut terminal = TestTerminal::open(&server.rest, &session, "").await;
    assert_eq!(terminal.frame("exit").await, json!({ "type": "exit", "reason": "session" }));
    server.leaves_nothing().await;
}

async fn interrupt_leaves_terminals_and_a_restart_names_them(driver: TestDriver) {
    let (server, session) = idle_session(TestServerOptions::new(driver)).await;
    let mut terminal = TestTerminal::attach(&server.rest, &session, "?name=build").await;
    terminal.run("sleep 1000 & echo be''gun", "begun").await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.send_request("run", json!({ "command": "sleep 2000" })).await;
    socket.action("run").await;
    socket.send_request("interrupt", json!({})).await;
    let receipt = socket.observation("interrupted").await;
    assert!(!receipt["extras"]["what"].as_str().expect("words").contains("terminal"), "{receipt}");
    terminal.run("jobs; echo list''ed", "listed").await;
    assert!(terminal.output.contains("sleep 1000"), "{}", terminal.output);
    // An agent that does not answer is restarted, and its terminals end with it.
    socket.send_request("run", json!({ "command": "sleep 3000" })).await;
    socket.action("run").await;
    host::kill(host::agents(server.home())[0].pid, Signal::STOP);
    socket.send_request("interrupt", json!({})).await;
    socket.state("interrupting").await;
    socket.send_request("interrupt", json!({})).await;
    let receipt = socket.observation("interrupted").await;
    assert!(receipt["extras"]["what"].as_str().expect("words").contains("the terminal `build`"), "{receipt}");
    assert_eq!(terminal.frame("exit").await, json!({ "type": "exit", "reason": "sandbox" }));
    let mut terminal = TestTerminal::attach(&server.rest, &session, "?name=build").await;
    terminal.run("echo a''new", "anew").await;
    server.leaves_nothing().await;
}

async fn flood_that_nobody_reads_costs_no_memory(driver: TestDriver) {
    let (server, session) = idle_session(TestServerOptions::new(driver)).await;
    let tcp = TcpSocket::new_v4().expect("a socket");
    tcp.set_recv_buffer_size(4096).expect("a small buffer is allowed");
    let address = server.rest.authority.parse().expect("an address");
    let tcp = tcp.connect(address).await.expect("the server listens");
    let path = format!("/ws/sessions/{session}/terminal");
    let deaf = TestTerminal::over(tcp, &server.rest, &path, Some(&server.rest.token)).await;
    let mut deaf = deaf.expect("the handshake is accepted");
    deaf.frame("ready").await;
    let mut terminal = TestTerminal::attach(&server.rest, &session, "").await;
    let agent = host::agents(server.home())[0].pid;
    let before = [server.pid(), agent].map(host::forget_peak);
    terminal.input("yes\r").await;
    terminal.until("a long flood", |terminal| terminal.output.len() > 8 << 20).await;
    for (pid, before) in [server.pid(), agent].into_iter().zip(before) {
        let grown = host::peak_kib(pid).saturating_sub(before);
        assert!(grown < FLOOD_KIB, "process {pid} grew by {grown} KiB");
    }
    // Other requests are answered meanwhile.
    server.rest.get("/healthz").await.expect(200);
    let interrupted = Instant::now();
    terminal.input("\x03").await;
    terminal.run("echo af''ter", "after\r\n").await;
    assert!(interrupted.elapsed() < Duration::from_secs(5), "the key took {:?}", interrupted.elapsed());
    // Without any client the shell goes on.
    terminal.run("yes | head -c 3000000 >/dev/tty; echo do''ne > finished; echo do''ne", "").await;
    drop(terminal);
    let mut terminal = TestTerminal::attach(&server.rest, &session, "").await;
    terminal.shows("done").await;
    deaf.shows("done").await;
    assert!(deaf.output.len() < 4 << 20, "the client that comes back gets the screen: {} bytes", deaf.output.len());
    server.leaves_nothing().await;
}

#[tokio::test]
async fn terminals_are_listed_renamed_and_closed() {
    let (server, session) = idle_session(TestServerOptions::new(TestDriver::Process)).await;
    let all = format!("/api/sessions/{session}/terminals");
    let mut terminals = Vec::new();
    for n in 0..8 {
        terminals.push(TestTerminal::attach(&server.rest, &session, &format!("?name=t{n}")).await);
    }
    let mut ninth = TestTerminal::open(&server.rest, &session, "?name=ninth").await;
    assert_eq!(ninth.frame("error").await["error"]["code"], "too_many_terminals");
    assert_eq!(ninth.close_code().await, Some(4409));
    terminals[0].run("printf '\\033]0;my title\\007'; sleep 1000", "sleep 1000").await;
    let list = || async { server.rest.get(&all).await.expect(200)["items"].clone() };
    eventually("the command in the foreground", || async { list().await[0]["command"] == "sleep 1000" }).await;
    let first = list().await[0].clone();
    assert_eq!((&first["title"], &first["clients"], &first["cols"]), (&json!("my title"), &json!(1), &json!(80)));
    server.rest.patch(&format!("{all}/t0"), json!({ "name": "t1" })).await.error(409, "name_taken");
    server.rest.patch(&format!("{all}/t0"), json!({ "name": "a b" })).await.error(400, "invalid_args");
    server.rest.patch(&format!("{all}/none"), json!({ "name": "x" })).await.error(404, "not_found");
    let renamed = server.rest.patch(&format!("{all}/t0"), json!({ "name": "build" })).await.expect(200);
    assert_eq!(renamed["items"][0]["name"], "build");
    assert_eq!(terminals[0].frame("renamed").await["name"], "build");
    let left = server.rest.delete(&format!("{all}/build")).await.expect(200);
    assert_eq!(left["items"].as_array().map(Vec::len), Some(7));
    assert_eq!(terminals[0].frame("exit").await["signal"], "SIGHUP");
    assert_eq!(terminals[0].close_code().await, Some(1000));
    server.rest.delete(&format!("{all}/build")).await.error(404, "not_found");
    let sleeping = || host::processes(server.home()).iter().any(|process| process.command.contains("sleep 1000"));
    eventually("its processes to be gone", || async { !sleeping() }).await;
    TestTerminal::attach(&server.rest, &session, "?name=ninth").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn handshake_has_the_rules_of_the_other_sockets() {
    let (server, session) = idle_session(TestServerOptions::new(TestDriver::Process)).await;
    let connect = || async { TcpStream::connect(&server.rest.authority).await.expect("the server listens") };
    let path = format!("/ws/sessions/{session}/terminal");
    for (path, token, status) in [
        (path.as_str(), None, 401),
        (path.as_str(), Some("wrong-token-of-some-length"), 401),
        ("/ws/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE/terminal", Some(server.rest.token.as_str()), 404),
    ] {
        let rejected = TestTerminal::over(connect().await, &server.rest, path, token).await.err();
        assert_eq!(rejected, Some(status), "{path}");
    }
    for query in ["?name=a/b", "?cols=0", "?rows=x"] {
        assert_eq!(TestTerminal::open(&server.rest, &session, query).await.close_code().await, Some(4400), "{query}");
    }
    let mut terminal = TestTerminal::attach(&server.rest, &session, "").await;
    terminal.control(json!({ "type": "resize", "cols": 0, "rows": 1 })).await;
    assert_eq!(terminal.frame("error").await["error"]["code"], "invalid_args");
    terminal.run("echo ali''ve", "alive").await;
    let actors = server.rest.get("/api/admin/actors").await.expect(200);
    let is_it = |actor: &&Value| actor["kind"] == "terminal_socket" && actor["session"] == session.as_str();
    assert_eq!(actors["items"].as_array().expect("items").iter().filter(is_it).count(), 1, "{actors}");
    server.renew_token().await;
    assert_eq!(terminal.close_code().await, Some(4401));
}

#[tokio::test]
async fn attached_terminal_keeps_a_session_awake() {
    let options = TestServerOptions::new(TestDriver::Process)
        .env("GREENROOM_SWEEPER__EVERY", "1h")
        .env("GREENROOM_SWEEPER__PAUSE_AFTER", "1ms");
    let (server, session) = idle_session(options).await;
    let terminal = TestTerminal::attach(&server.rest, &session, "").await;
    for _ in 0..10 {
        server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
        assert_eq!(server.rest.session(&session).await["state"], "idle", "a terminal is attached");
    }
    drop(terminal);
    eventually("a sweep to pause the session", || async {
        server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
        server.rest.session(&session).await["state"] == "paused"
    })
    .await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn hostile_output_harms_neither_screen_nor_server() {
    let (server, session) = idle_session(TestServerOptions::new(TestDriver::Process)).await;
    let mut terminal = TestTerminal::attach(&server.rest, &session, "").await;
    let agent = host::agents(server.home())[0].pid;
    let before = host::forget_peak(agent);
    // Random bytes, a sequence without an end, and sequences with huge parameters.
    let flood = "head -c 2000000 /dev/urandom; printf '\\033]0;'; yes | tr -d '\\n' | head -c 3000000; \
                 yes \"$(printf '\\033[99999999999;9999999b\\033[?1049h\\033[8;9999;9999t\\033[99999S')\" | head -c 500000; \
                 printf '\\030\\033c'; stty sane; echo fini''shed";
    terminal.run(flood, "finished").await;
    let grown = host::peak_kib(agent).saturating_sub(before);
    assert!(grown < FLOOD_KIB, "the agent grew by {grown} KiB");
    let mut second = TestTerminal::attach(&server.rest, &session, "").await;
    second.shows("finished").await;
    second.run("echo us''able", "usable").await;
    assert_eq!(server.rest.session(&session).await["state"], "idle");
    server.leaves_nothing().await;
}
