//! `browse` with a real Chromium, against pages of a loopback server.

use std::{fs, os::unix::fs::PermissionsExt};

use base64::{Engine, prelude::BASE64_STANDARD};
use greenroom_protocol::{
    Action, Observation, ObservationKind,
    link::{AgentCommand, AgentReport, REPORT_LIMIT, WorkOutcome, html_item, screenshot_item},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    agent::AgentProcess,
    gateway::{ScriptedAnswer::Complete, call, text},
    session::AgentTestSession,
};

/// Browser of these tests (Debian: `apt install chromium`).
const CHROMIUM: &str = "/usr/bin/chromium";

const SHOP: &str = "<title>A shop</title><body><p>Loading</p><a href='/cart'>To the cart</a>
    <script>document.querySelector('p').textContent = 'Three apples';
    console.error('price missing', 7); alert('welcome'); window.open('/other'); undefinedName();</script>";

/// Server of pages. A connection serves one request.
struct PageServer {
    url: String,
}

impl PageServer {
    async fn start() -> PageServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        PageServer { url }
    }

    fn page(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }
}

async fn serve(mut stream: TcpStream) {
    let mut request = vec![0; 8192];
    let Ok(read) = stream.read(&mut request).await else { return };
    let request = String::from_utf8_lossy(&request[..read]).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let html = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/html; charset=utf-8\r\n";
    let answer = match path {
        "/shop" => format!("{html}\r\n{SHOP}"),
        "/moved" => "HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: /shop\r\n\r\n".to_owned(),
        "/json" => {
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n{\"apples\": 3}".to_owned()
        }
        "/file" => "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/x-unknown\r\n\
             content-disposition: attachment\r\n\r\nbytes"
            .to_owned(),
        "/private" => "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\nwww-authenticate: Basic realm=\"x\"\r\n\
             content-type: text/html\r\n\r\nSign in first"
            .to_owned(),
        "/busy" => format!("{html}\r\n<body>Busy<script>onload = () => {{ for (;;) {{}} }}</script>"),
        "/leave" => format!("{html}\r\n<title>Stay</title><script>onbeforeunload = () => 'no'</script>Stay"),
        "/large" => format!("{html}\r\n<title>Large</title><table>{}", "<tr><td>a<td>b".repeat(300_000)),
        // Neither of these is ever complete.
        "/half" => format!("{html}\r\n<title>Half</title><p>The first half</p><img src=/silent>"),
        _ => return std::future::pending().await,
    };
    // A browser that was killed reads no more.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn open() -> (PageServer, AgentTestSession) {
    let agent = AgentProcess::with_browser(Vec::new(), CHROMIUM);
    (PageServer::start().await, AgentTestSession::with_history(agent, Vec::new()).await)
}

/// Opens a page as the user, and returns the outcome.
async fn browse(session: &mut AgentTestSession, action: &str, url: String) -> WorkOutcome {
    session.user_action(action, Action::Browse { url }).await;
    session.outcome(action).await
}

fn failure(outcome: WorkOutcome) -> String {
    let WorkOutcome::Failed { detail, .. } = outcome else { panic!("the page was read: {outcome:?}") };
    detail
}

/// Returns the text of the newest observation and the console of its page.
fn newest(session: &AgentTestSession) -> (&Observation, &[String]) {
    let newest = session.observations().into_iter().next_back().expect("an observation");
    let ObservationKind::Browse { console, .. } = &newest.kind else { panic!("no page: {newest:?}") };
    (newest, console)
}

fn picture(session: &AgentTestSession, item: &str) -> Vec<u8> {
    let item = screenshot_item(item);
    let mut picture = Vec::new();
    for report in &session.reports {
        let AgentReport::Piece { item: target, offset, text, base64 } = report else { continue };
        if *target == item {
            assert!(*base64 && *offset == picture.len() as u64, "a gap between pieces");
            picture.extend(BASE64_STANDARD.decode(text).expect("the piece is Base64"));
        }
    }
    picture
}

/// Returns the pids of the browser's main process, below the agent.
fn browsers(session: &AgentTestSession) -> Vec<i32> {
    let profile = format!("--user-data-dir={}", session.agent.dir.path().display());
    let is_main = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&profile) && !line.contains("--type=")
    };
    let pids = fs::read_dir("/proc")
        .expect("a process list")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(is_main).collect()
}

fn profiles(session: &AgentTestSession) -> usize {
    let entries = fs::read_dir(session.agent.dir.path()).expect("a directory");
    entries.filter_map(Result::ok).filter(|e| e.file_name().to_string_lossy().starts_with("greenroom-browser")).count()
}

#[tokio::test]
async fn page_is_read_after_its_scripts_with_picture_html_and_console() {
    let server = PageServer::start().await;
    let answers = vec![
        Complete(vec![call("c1", "browse", json!({ "url": server.page("moved") }))]),
        Complete(vec![text("Seen.")]),
    ];
    let mut session = AgentTestSession::with_history(AgentProcess::with_browser(answers, CHROMIUM), Vec::new()).await;
    session.prompt("t1", "look").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let observation = session.observations()[0];
    let ObservationKind::Browse { url, title, console, plain, truncated, .. } = &observation.kind else {
        panic!("no page: {observation:?}")
    };
    assert_eq!((url, title.as_deref()), (&server.page("shop"), Some("A shop")));
    assert!(!plain && truncated.is_none());
    assert!(
        observation.content.contains("Three apples") && observation.content.contains("[1]: /cart"),
        "{observation:?}"
    );
    for line in ["error: price missing 7", "alert: welcome", "uncaught: ReferenceError: undefinedName"] {
        assert!(console.iter().any(|noted| noted.starts_with(line)), "`{line}` is missing: {console:?}");
    }
    assert!(console.iter().any(|line| line.contains("new tab") && line.contains("/other")), "{console:?}");
    let picture = picture(&session, "c1");
    assert!(picture.starts_with(&[0xff, 0xd8, 0xff]) && picture.len() > 1000, "{} bytes", picture.len());
    assert!(session.pieces(&html_item("c1")).contains("<p>Three apples</p>"));
    let sent = session.agent.gateway.requests()[1]["messages"].to_string();
    for part in ["A shop", "Three apples", "Console of the page", "price missing 7"] {
        assert!(sent.contains(part), "the model receives `{part}`: {sent}");
    }
}

#[tokio::test]
async fn addresses_and_answers_that_are_no_pages_are_explained() {
    let (server, mut session) = open().await;
    for (n, (url, expected)) in [
        ("file:///etc/passwd".to_owned(), "is not an http or https address"),
        ("chrome://version".to_owned(), "is not an http or https address"),
        (server.page("file"), "it is a download"),
        (server.page("private"), "asks for a user name and a password"),
        ("http://127.0.0.1:1/".to_owned(), "cannot be fetched: net::ERR_"),
    ]
    .into_iter()
    .enumerate()
    {
        let detail = failure(browse(&mut session, &format!("a{n}"), url).await);
        assert!(detail.contains(expected), "{detail}");
    }
    assert_eq!(browse(&mut session, "json", server.page("json")).await, WorkOutcome::Done);
    assert!(newest(&session).0.content.contains("{\"apples\": 3}"));
}

#[tokio::test]
async fn gateway_is_closed_to_pages() {
    let (_server, mut session) = open().await;
    let printed = Action::Run { command: "echo url=$GREENROOM_GATEWAY_URL".into() };
    session.user_action("url", printed).await;
    assert_eq!(session.outcome("url").await, WorkOutcome::Done);
    let gateway = session.observations()[0].content.trim().to_owned();
    let port = gateway.rsplit(':').next().expect("a port");
    for (n, host) in ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"].into_iter().enumerate() {
        let detail = failure(browse(&mut session, &format!("a{n}"), format!("http://{host}:{port}/")).await);
        assert!(detail.contains("ERR_NAME_NOT_RESOLVED"), "`{host}`: {detail}");
    }
}

#[tokio::test]
async fn interrupt_ends_the_load_and_keeps_the_browser() {
    let (server, mut session) = open().await;
    assert_eq!(browse(&mut session, "a1", server.page("leave")).await, WorkOutcome::Done);
    let before = browsers(&session);
    assert_eq!(before.len(), 1);
    session.user_action("a2", Action::Browse { url: server.page("silent") }).await;
    session.until(|session| session.taken.len() == 2).await;
    session.send_command(AgentCommand::Cancel {}).await;
    assert!(matches!(session.outcome("a2").await, WorkOutcome::Cancelled { .. }));
    assert_eq!(browse(&mut session, "a3", server.page("shop")).await, WorkOutcome::Done);
    assert_eq!(newest(&session).0.content.matches("Three apples").count(), 1);
    assert_eq!(browsers(&session), before);
    let is_leftover = |observation: &&Observation| observation.name() == "commands";
    assert!(!session.observations().iter().any(is_leftover), "the browser is no leftover");
}

#[tokio::test]
async fn killed_browser_is_started_anew() {
    let (server, mut session) = open().await;
    assert_eq!(browse(&mut session, "a1", server.page("shop")).await, WorkOutcome::Done);
    let pid = Pid::from_raw(browsers(&session)[0]).expect("a pid");
    session.user_action("a2", Action::Browse { url: server.page("silent") }).await;
    session.until(|session| session.taken.len() == 2).await;
    kill_process(pid, Signal::KILL).expect("the browser runs");
    assert!(failure(session.outcome("a2").await).contains("the browser ended unexpectedly"));
    assert_eq!(browse(&mut session, "a3", server.page("shop")).await, WorkOutcome::Done);
    assert_eq!((browsers(&session).len(), profiles(&session)), (1, 1));
}

#[tokio::test]
async fn browser_ends_with_the_agent() {
    let (server, mut session) = open().await;
    assert_eq!(browse(&mut session, "a1", server.page("shop")).await, WorkOutcome::Done);
    let agent = Pid::from_raw(session.agent.process.id() as i32).expect("a pid");
    kill_process(agent, Signal::TERM).expect("the agent runs");
    session.agent.process.wait().expect("the agent is a child");
    assert_eq!((browsers(&session).len(), profiles(&session)), (0, 0));
}

#[tokio::test]
async fn page_that_never_completes_is_read_as_it_stands() {
    let mut agent = AgentProcess::with_browser(Vec::new(), CHROMIUM);
    agent.settings.run_timeout_s = 20;
    let (server, mut session) = (PageServer::start().await, AgentTestSession::with_history(agent, Vec::new()).await);
    assert_eq!(browse(&mut session, "a1", server.page("half")).await, WorkOutcome::Done);
    let (observation, console) = newest(&session);
    assert!(observation.content.contains("The first half"));
    assert!(console.iter().any(|line| line.contains("still loading after 10 s")), "{console:?}");
    let detail = failure(browse(&mut session, "a2", server.page("silent")).await);
    assert!(detail.contains("did not answer within 10 s"), "{detail}");
    assert_eq!(browse(&mut session, "a3", server.page("shop")).await, WorkOutcome::Done);
}

#[tokio::test]
async fn endless_script_costs_the_browser_and_not_the_session() {
    let (server, mut session) = open().await;
    let detail = failure(browse(&mut session, "a1", server.page("busy")).await);
    assert!(detail.contains("its scripts do not let go"), "{detail}");
    assert_eq!(browse(&mut session, "a2", server.page("shop")).await, WorkOutcome::Done);
}

#[tokio::test]
async fn huge_page_is_bounded() {
    let (server, mut session) = open().await;
    assert_eq!(browse(&mut session, "a1", server.page("large")).await, WorkOutcome::Done);
    let observation = newest(&session).0;
    let ObservationKind::Browse { truncated: Some(truncated), .. } = &observation.kind else {
        panic!("not marked as truncated: {:?}", observation.kind)
    };
    assert!(truncated.bytes > REPORT_LIMIT as u64);
    assert!(session.pieces(&html_item("a1")).len() <= 2 << 20);
}

#[tokio::test]
async fn plain_fetch_says_that_no_script_ran() {
    let server = PageServer::start().await;
    // This program ends at once, as a browser without its libraries does.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broken = dir.path().join("chromium");
    fs::write(&broken, "#!/bin/sh\nexit 1\n").expect("a file");
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).expect("the owner may");
    for (program, reason) in [
        ("", "this sandbox has no Chromium"),
        (broken.display().to_string().leak(), "the Chromium of this sandbox does not start"),
    ] {
        let answers = vec![
            Complete(vec![call("c1", "browse", json!({ "url": server.page("shop") }))]),
            Complete(vec![text("Seen.")]),
        ];
        let agent = AgentProcess::with_browser(answers, program);
        let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
        session.prompt("t1", "look").await;
        assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
        let observation = session.observations()[0];
        assert!(matches!(&observation.kind, ObservationKind::Browse { plain: true, .. }), "{:?}", observation.kind);
        assert!(observation.content.contains("Loading"));
        let sent = session.agent.gateway.requests()[1]["messages"].to_string();
        assert!(sent.contains("Fetched without a browser, so no script ran") && sent.contains(reason), "{sent}");
    }
}
