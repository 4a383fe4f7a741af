//! Terminals: shells with a screen that outlive their clients.

use std::time::Duration;

use greenroom_protocol::{
    Action,
    link::{AgentCommand, WorkOutcome},
    terminal::{
        TERMINALS_LIMIT, TerminalControl, TerminalErrorCode, TerminalFrame, TerminalFrameReader, TerminalReply,
        TerminalRequest, TerminalStatus, read_control,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

use crate::{agent::AgentProcess, session::AgentTestSession};

/// Limit that only a missing frame reaches.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Client of the terminal socket.
struct TerminalClient {
    stream: UnixStream,
    reader: TerminalFrameReader,
    /// Output so far.
    output: String,
    /// Control frames so far.
    replies: Vec<TerminalReply>,
}

impl TerminalClient {
    async fn request(agent: &AgentProcess, request: &TerminalRequest) -> TerminalClient {
        let socket = agent.dir.path().join("terminal.sock");
        let mut stream = loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        stream.write_all(&TerminalFrame::control(request)).await.expect("the agent reads");
        TerminalClient { stream, reader: TerminalFrameReader::default(), output: String::new(), replies: Vec::new() }
    }

    async fn attach_at(agent: &AgentProcess, name: &str, cols: u16, rows: u16) -> TerminalClient {
        let request = TerminalRequest::Attach { name: name.to_owned(), cols, rows };
        let mut client = TerminalClient::request(agent, &request).await;
        client.until("the terminal", |client| !client.replies.is_empty()).await;
        client
    }

    async fn attach(agent: &AgentProcess, name: &str) -> TerminalClient {
        let client = TerminalClient::attach_at(agent, name, 80, 24).await;
        assert!(matches!(client.replies[0], TerminalReply::Attached { .. }), "{:?}", client.replies);
        client
    }

    async fn input(&mut self, input: &str) {
        self.stream.write_all(&TerminalFrame::bytes(input.as_bytes())).await.expect("the agent reads");
    }

    async fn resize(&mut self, cols: u16, rows: u16) {
        let frame = TerminalFrame::control(&TerminalControl::Resize { cols, rows });
        self.stream.write_all(&frame).await.expect("the agent reads");
    }

    /// Receives one frame. Returns `false` at the end.
    async fn step(&mut self) -> bool {
        loop {
            match self.reader.next_frame().expect("a frame") {
                Some(TerminalFrame::Bytes(bytes)) => self.output.push_str(&String::from_utf8_lossy(&bytes)),
                Some(TerminalFrame::Control(json)) => self.replies.push(read_control(&json).expect("a reply")),
                None => {
                    let mut bytes = vec![0; 16 * 1024];
                    let count = self.stream.read(&mut bytes).await.unwrap_or(0);
                    self.reader.push(&bytes[..count]);
                    if count == 0 {
                        return false;
                    }
                    continue;
                }
            }
            return true;
        }
    }

    async fn until(&mut self, what: &str, is: impl Fn(&TerminalClient) -> bool) {
        let found = timeout(TIMEOUT, async {
            while !is(self) {
                assert!(self.step().await, "the connection ended before {what}: {:?}", self.replies);
            }
        });
        if found.await.is_err() {
            panic!("timed out waiting for {what}; the output ends with {:?}", tail(&self.output));
        }
    }

    async fn shows(&mut self, text: &str) {
        self.until(text, |client| client.output.contains(text)).await;
    }

    /// Size in force, number of clients, and whether this client answers queries.
    fn size(&self) -> Option<(u16, u16, u32, bool)> {
        self.replies.iter().rev().find_map(|reply| match *reply {
            TerminalReply::Size { cols, rows, clients, answers } => Some((cols, rows, clients, answers)),
            _ => None,
        })
    }

    async fn until_size(&mut self, size: (u16, u16, u32, bool)) {
        self.until("the size", |client| client.size() == Some(size)).await;
    }

    async fn exit(&mut self) -> (i32, Option<String>) {
        let exit = |client: &TerminalClient| {
            client.replies.iter().find_map(|reply| match reply {
                TerminalReply::Exit { code, signal } => Some((*code, signal.clone())),
                _ => None,
            })
        };
        self.until("the exit", |client| exit(client).is_some()).await;
        assert!(!self.step().await, "nothing follows the exit");
        exit(self).expect("the exit has come")
    }

    async fn answer(agent: &AgentProcess, request: &TerminalRequest) -> TerminalReply {
        let mut client = TerminalClient::request(agent, request).await;
        client.until("the answer", |client| !client.replies.is_empty()).await;
        client.replies.remove(0)
    }

    async fn rejection(agent: &AgentProcess, request: &TerminalRequest) -> TerminalErrorCode {
        match TerminalClient::answer(agent, request).await {
            TerminalReply::Error { code, .. } => code,
            other => panic!("not rejected: {other:?}"),
        }
    }

    async fn list(agent: &AgentProcess) -> Vec<TerminalStatus> {
        match TerminalClient::answer(agent, &TerminalRequest::List {}).await {
            TerminalReply::Terminals { items } => items,
            other => panic!("no list: {other:?}"),
        }
    }
}

fn tail(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(300))..]
}

#[tokio::test]
async fn shell_has_a_terminal_in_the_workspace() {
    let agent = AgentProcess::start(Vec::new());
    let mut client = TerminalClient::attach(&agent, "main").await;
    assert_eq!(client.replies[0], TerminalReply::Attached { name: "main".into(), opened: true });
    client.input("echo $((40+2))-$TERM; pwd; test -t 0 && echo tty; tty | grep -c /dev/pts; stty size\r").await;
    client.shows("42-xterm-256color").await;
    client.shows(agent.file("").display().to_string().trim_end_matches('/')).await;
    client.shows("tty\r\n").await;
    client.shows("24 80\r\n").await;
    client.resize(100, 30).await;
    client.until_size((100, 30, 1, true)).await;
    client.input("stty size\r").await;
    client.shows("30 100\r\n").await;
    client.input("ps -o tty= -p $$ >/dev/null; exit 7\r").await;
    assert_eq!(client.exit().await, (7, None));
    assert_eq!(TerminalClient::list(&agent).await, []);
}

#[tokio::test]
async fn signal_that_ended_the_shell_is_named() {
    let agent = AgentProcess::start(Vec::new());
    let mut client = TerminalClient::attach(&agent, "main").await;
    client.input("kill -9 $$\r").await;
    assert_eq!(client.exit().await, (137, Some("SIGKILL".to_owned())));
}

#[tokio::test]
async fn screen_is_restored_for_a_client_that_comes_back() {
    let agent = AgentProcess::start(Vec::new());
    let mut client = TerminalClient::attach(&agent, "main").await;
    client
        .input("seq 1 200; printf '\\033[?1049h\\033[2J\\033[5;10H\\033[31mEDITOR\\033[?2004h'; read -r line\r")
        .await;
    client.shows("\x1b[31mEDITOR\x1b[?2004h").await;
    drop(client);
    let mut client = TerminalClient::attach(&agent, "main").await;
    assert_eq!(client.replies[0], TerminalReply::Attached { name: "main".into(), opened: false });
    client.shows("EDITOR").await;
    client.shows("\x1b[?2004h").await;
    assert!(client.output.contains("\x1b[?1047h"), "the alternate screen: {:?}", tail(&client.output));
    assert!(client.output.contains("\r\n42\r\n"), "the scrollback: {:?}", client.output);
    client.input("\rprintf '\\033[?1049lBA''CK\\n'\r").await;
    client.shows("BACK").await;
}

#[tokio::test]
async fn interrupt_key_ends_a_flood_at_once() {
    let agent = AgentProcess::start(Vec::new());
    let mut client = TerminalClient::attach(&agent, "main").await;
    client.input("yes\r").await;
    client.until("the flood", |client| client.output.len() > 1 << 20).await;
    let begun = tokio::time::Instant::now();
    client.input("\x03echo do''ne\r").await;
    client.shows("done\r\n").await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "the interrupt took {took:?}");
}

#[tokio::test]
async fn smallest_client_decides_the_size() {
    let agent = AgentProcess::start(Vec::new());
    let mut first = TerminalClient::attach_at(&agent, "main", 120, 40).await;
    first.until_size((120, 40, 1, true)).await;
    let mut second = TerminalClient::attach_at(&agent, "main", 100, 50).await;
    second.until_size((100, 40, 2, false)).await;
    first.until_size((100, 40, 2, true)).await;
    first.input("stty size; echo to''gether\r").await;
    for client in [&mut first, &mut second] {
        client.shows("40 100\r\n").await;
        client.shows("together").await;
    }
    drop(first);
    second.until_size((100, 50, 1, true)).await;
}

#[tokio::test]
async fn client_that_does_not_read_holds_nobody_up() {
    let agent = AgentProcess::start(Vec::new());
    let mut deaf = TerminalClient::attach(&agent, "main").await;
    let mut client = TerminalClient::attach(&agent, "main").await;
    client.input("yes | head -c 8000000; echo fin''ished\r").await;
    client.until("the end", |client| tail(&client.output).contains("finished")).await;
    // The client gets what the screen shows when it reads again, and not the whole flood.
    deaf.shows("finished").await;
    assert!(deaf.output.len() < 2_000_000, "{} bytes", deaf.output.len());
}

#[tokio::test]
async fn shell_goes_on_without_a_client() {
    let agent = AgentProcess::start(Vec::new());
    let mut client = TerminalClient::attach(&agent, "main").await;
    client.input("yes | head -c 50000; touch gone-on; echo fin''ished\r").await;
    // The shell has the command before the client goes.
    client.shows("gone-on").await;
    drop(client);
    while !agent.file("gone-on").exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    TerminalClient::attach(&agent, "main").await.shows("finished").await;
}

#[tokio::test]
async fn paste_that_nobody_reads_blocks_only_itself() {
    let agent = AgentProcess::start(Vec::new());
    let mut client = TerminalClient::attach(&agent, "main").await;
    client.input("cat >/dev/null; echo ca''t\r").await;
    client.shows("cat >").await;
    for _ in 0..100 {
        client.input(&"pasted line\r".repeat(2000)).await;
    }
    client.input("\x04").await;
    client.until("the end", |client| tail(&client.output).contains("cat\r\n")).await;
}

#[tokio::test]
async fn names_and_number_are_limited() {
    let agent = AgentProcess::start(Vec::new());
    let attach = |name: &str| TerminalRequest::Attach { name: name.to_owned(), cols: 80, rows: 24 };
    let mut clients = Vec::new();
    for n in 0..TERMINALS_LIMIT {
        clients.push(TerminalClient::attach(&agent, &format!("t{n}")).await);
    }
    assert_eq!(TerminalClient::rejection(&agent, &attach("more")).await, TerminalErrorCode::TooManyTerminals);
    for name in ["", "a/b", "..", "a b"] {
        assert_eq!(TerminalClient::rejection(&agent, &attach(name)).await, TerminalErrorCode::InvalidArgs, "{name}");
    }
    let zero = TerminalRequest::Attach { name: "t0".into(), cols: 0, rows: 24 };
    assert_eq!(TerminalClient::rejection(&agent, &zero).await, TerminalErrorCode::InvalidArgs);
    let rename = |name: &str, to: &str| TerminalRequest::Rename { name: name.to_owned(), to: to.to_owned() };
    assert_eq!(TerminalClient::rejection(&agent, &rename("t0", "t1")).await, TerminalErrorCode::NameTaken);
    assert_eq!(TerminalClient::rejection(&agent, &rename("missing", "a")).await, TerminalErrorCode::NoTerminal);
    assert_eq!(TerminalClient::answer(&agent, &rename("t0", "build")).await, TerminalReply::Done {});
    clients[0]
        .until("the name", |client| client.replies.contains(&TerminalReply::Renamed { name: "build".into() }))
        .await;
    let names: Vec<String> = TerminalClient::list(&agent).await.into_iter().map(|status| status.name).collect();
    assert_eq!(names, ["build", "t1", "t2", "t3", "t4", "t5", "t6", "t7"]);
    // A foreground program that ignores the hang-up is ended too.
    clients[0].input("trap '' HUP; sleep 1000\r").await;
    clients[0].shows("sleep 1000").await;
    let close = TerminalRequest::Close { name: "build".into() };
    assert_eq!(TerminalClient::answer(&agent, &close).await, TerminalReply::Done {});
    clients[0].exit().await;
    assert_eq!(TerminalClient::rejection(&agent, &close).await, TerminalErrorCode::NoTerminal);
    TerminalClient::attach(&agent, "more").await;
}

#[tokio::test]
async fn list_shows_title_and_command() {
    let agent = AgentProcess::start(Vec::new());
    let mut client = TerminalClient::attach(&agent, "main").await;
    client.input("printf '\\033]0;my title\\007'; echo title''d; sleep 1000\r").await;
    client.shows("titled").await;
    let status = loop {
        let status = TerminalClient::list(&agent).await.remove(0);
        if status.command.as_deref() == Some("sleep 1000") {
            break status;
        }
    };
    assert_eq!((status.title.as_deref(), status.cols, status.rows, status.clients), (Some("my title"), 80, 24, 1));
}

#[tokio::test]
async fn terminal_is_no_leftover_and_survives_interrupts() {
    let mut session = AgentTestSession::open(Vec::new()).await;
    let mut client = TerminalClient::attach(&session.agent, "main").await;
    client.input("sleep 1000 & env -i sleep 1001 & echo go''ing\r").await;
    client.shows("going").await;
    let run = Action::Run { command: "sleep 1002 & true".to_owned() };
    session.user_action("act-1", run).await;
    assert_eq!(session.outcome("act-1").await, WorkOutcome::Done);
    session.send_command(AgentCommand::KillLeftovers {}).await;
    session.send_command(AgentCommand::KillProcesses {}).await;
    session.send_command(AgentCommand::Cancel {}).await;
    session.user_action("act-2", Action::Run { command: "sleep 1003".to_owned() }).await;
    session.send_command(AgentCommand::Cancel {}).await;
    assert!(matches!(session.outcome("act-2").await, WorkOutcome::Cancelled { .. }));
    let left: Vec<String> = session.observations().iter().flat_map(|observation| leftovers(observation)).collect();
    assert!(left.iter().all(|name| !name.contains("1000") && !name.contains("1001")), "{left:?}");
    client.input("echo run''ning-$(jobs -r | grep -c sleep)\r").await;
    client.shows("running-2").await;
}

fn leftovers(observation: &greenroom_protocol::Observation) -> Vec<String> {
    match &observation.kind {
        greenroom_protocol::ObservationKind::Commands { items, .. } => {
            items.iter().map(|item| item.name.clone()).collect()
        }
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn broken_connections_end_alone() {
    let agent = AgentProcess::start(Vec::new());
    let mut client = TerminalClient::attach(&agent, "main").await;
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\0", b"\0\0\0\x03\0{}", b"\0\0\0\x02\x01x"] {
        let mut stream = UnixStream::connect(agent.dir.path().join("terminal.sock")).await.expect("the agent listens");
        stream.write_all(garbage).await.expect("the agent reads");
        let ended = timeout(TIMEOUT, stream.read(&mut [0; 8])).await.expect("the agent closes the connection");
        assert!(matches!(ended, Ok(0) | Err(_)), "{garbage:?}");
    }
    client.input("echo ali''ve\r").await;
    client.shows("alive").await;
}
