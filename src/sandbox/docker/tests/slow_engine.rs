//! An engine that stalls, and when it wakes does what it was asked for long ago. Not the one of this machine: that would have
//! to be stopped.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::watch,
    task::JoinHandle,
};

use super::{super::engine::FOLLOW_SECONDS, *};
use crate::{sandbox::SandboxDriver, store::SessionId};

/// An engine with one container, whatever it is called.
struct SlowEngine {
    dir: TempDir,
    container: Arc<Mutex<FakeContainer>>,
    stalls: watch::Sender<bool>,
    server: JoinHandle<()>,
}

/// A status and a body.
type EngineAnswer = (&'static str, &'static str);

#[derive(Default)]
struct FakeContainer {
    paused: bool,
    /// An order of that name is carried out, and its answer gets lost.
    unanswered_call: Option<&'static str>,
    /// What a look at it is answered with in place of how it stands.
    inspect_answer: Option<EngineAnswer>,
    /// What was done to it, in order.
    done: Vec<&'static str>,
}

impl SlowEngine {
    fn start() -> SlowEngine {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("engine.sock")).expect("it binds");
        let (stalls, container) = (watch::Sender::new(false), Arc::<Mutex<FakeContainer>>::default());
        let (told, served) = (stalls.clone(), container.clone());
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, told.subscribe(), served.clone()));
            }
        });
        SlowEngine { dir, container, stalls, server }
    }

    async fn driver(&self) -> Arc<DockerDriver> {
        let host = Some(format!("unix://{}", self.dir.path().join("engine.sock").display()));
        driver(DockerOptions { host, ..options() }).await
    }

    fn is_paused(&self) -> bool {
        self.container.lock().expect("nobody panicked").paused
    }

    fn drop_answer_to(&self, order: Option<&'static str>) {
        self.container.lock().expect("nobody panicked").unanswered_call = order;
    }

    fn set_inspect_answer(&self, answer: Option<EngineAnswer>) {
        self.container.lock().expect("nobody panicked").inspect_answer = answer;
    }

    fn done(&self) -> Vec<&'static str> {
        self.container.lock().expect("nobody panicked").done.clone()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&[&str]) -> bool) {
        contract::eventually(what, async || is_so(&self.done())).await;
    }
}

impl Drop for SlowEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What it has read it does, whether or not somebody waits for it still.
async fn serve(client: UnixStream, mut stalls: watch::Receiver<bool>, container: Arc<Mutex<FakeContainer>>) {
    let mut client = BufReader::new(client);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if client.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        if stalls.wait_for(|stalls| !stalls).await.is_err() {
            return;
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (status, body) = answer(path, &container);
        if container.lock().expect("nobody panicked").unanswered_call.is_some_and(|order| named(path) == Some(order)) {
            return std::future::pending().await;
        }
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        if client.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(path: &str, container: &Mutex<FakeContainer>) -> (&'static str, String) {
    let mut container = container.lock().expect("nobody panicked");
    let refused = |why: &str| ("409 Conflict", format!(r#"{{"message":"{why}"}}"#));
    match named(path) {
        Some("version") => ("200 OK", r#"{"ApiVersion":"1.44"}"#.to_owned()),
        Some("pause") if container.paused => refused("it is paused already"),
        Some("unpause") if !container.paused => refused("it is not paused"),
        Some("pause") => done(&mut container, "pause"),
        Some("unpause") => done(&mut container, "unpause"),
        Some("stop") => done(&mut container, "stop"),
        _ => {
            let status = if container.paused { "paused" } else { "running" };
            let (code, body) = container.inspect_answer.unzip();
            let body = body.map_or_else(|| format!(r#"{{"State":{{"Status":"{status}"}}}}"#), str::to_owned);
            (code.unwrap_or("200 OK"), body)
        }
    }
}

/// What is asked for: the last part of the path.
fn named(path: &str) -> Option<&str> {
    path.split('?').next()?.rsplit('/').next()
}

fn done(container: &mut FakeContainer, order: &'static str) -> (&'static str, String) {
    container.paused = order == "pause";
    container.done.push(order);
    ("204 No Content", String::new())
}

fn is_overdue(told: Result<(), SandboxError>) {
    assert!(matches!(told, Err(SandboxError::Deadline { seconds: 10, .. })), "{told:?}");
}

#[tokio::test]
async fn a_freeze_that_comes_too_late_is_undone() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.stalls.send_replace(true);
    // From here to `resume` nothing can come but deadlines, so they come at once.
    tokio::time::pause();
    is_overdue(driver.pause(session).await);
    tokio::time::resume();
    engine.stalls.send_replace(false);
    engine.until("the engine undoes what it did too late", |done| done == ["pause", "unpause"]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!engine.is_paused());
    driver.pause(session).await.expect("it freezes");
    assert!(engine.is_paused());
    driver.unpause(session).await.expect("it thaws");
    assert!(!engine.is_paused());
}

#[tokio::test]
async fn an_order_waits_for_one_before_it_that_is_overdue() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.stalls.send_replace(true);
    tokio::time::pause();
    is_overdue(driver.pause(session).await);
    is_overdue(driver.unpause(session).await);
    is_overdue(driver.pause(session).await);
    tokio::time::resume();
    let thawed = tokio::spawn({
        let driver = driver.clone();
        async move { driver.unpause(session).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    engine.stalls.send_replace(false);
    thawed.await.expect("it does not panic").expect("it thaws");
    assert!(!engine.is_paused());
    assert_eq!(engine.done(), ["pause", "unpause"], "what was given up before it was begun is not done");

    driver.pause(session).await.expect("it freezes");
    engine.stalls.send_replace(true);
    tokio::time::pause();
    is_overdue(driver.unpause(session).await);
    tokio::time::resume();
    let (frozen, ()) = tokio::join!(driver.pause(session), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        engine.stalls.send_replace(false);
    });
    frozen.expect("it freezes");
    assert!(engine.is_paused(), "also where the thaw before it came late");
    assert_eq!(engine.done()[2..], ["pause", "unpause", "pause"]);
}

/// An order that nobody waits for any more is not told to anybody, and so it was not given.
#[tokio::test]
async fn a_freeze_that_nobody_waits_for_is_undone() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.stalls.send_replace(true);
    let given_up = tokio::time::timeout(Duration::from_millis(50), driver.pause(session)).await;
    assert!(given_up.is_err());
    engine.stalls.send_replace(false);
    engine.until("it is undone", |done| done == ["pause", "unpause"]).await;
}

/// As over a connection that has died without a word.
#[tokio::test]
async fn a_freeze_whose_answer_got_lost_is_given_up_and_undone() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.drop_answer_to(Some("pause"));
    tokio::time::pause();
    is_overdue(driver.pause(session).await);
    is_overdue(driver.unpause(session).await);
    assert!(engine.is_paused(), "what comes late is waited for");
    tokio::time::advance(Duration::from_secs(FOLLOW_SECONDS)).await;
    tokio::time::resume();
    engine.until("it is undone", |done| done == ["pause", "unpause"]).await;
    engine.drop_answer_to(None);
    driver.pause(session).await.expect("it freezes");
    driver.unpause(session).await.expect("it thaws");
    assert_eq!(engine.done()[2..], ["pause", "unpause"]);
}

#[tokio::test]
async fn what_is_stopped_waits_for_no_answer_and_neither_does_its_next_run() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    for lost in ["pause", "unpause"] {
        if lost == "unpause" {
            driver.pause(session).await.expect("it freezes");
        }
        engine.drop_answer_to(Some(lost));
        tokio::time::pause();
        is_overdue(if lost == "pause" { driver.pause(session).await } else { driver.unpause(session).await });
        tokio::time::resume();
        engine.drop_answer_to(None);
        let next = tokio::time::timeout(Duration::from_secs(5), async {
            driver.stop(session).await.expect("it stops");
            driver.pause(session).await.expect("the next one freezes");
            driver.unpause(session).await.expect("and thaws");
        });
        next.await.expect("nobody has to wait");
    }
}

#[tokio::test]
async fn a_freeze_of_what_was_stopped_is_not_undone_on_its_next_run() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.drop_answer_to(Some("pause"));
    tokio::time::pause();
    is_overdue(driver.pause(session).await);
    tokio::time::resume();
    engine.drop_answer_to(None);
    driver.stop(session).await.expect("it stops");
    driver.pause(session).await.expect("the next one freezes");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(FOLLOW_SECONDS)).await;
    tokio::time::resume();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(engine.is_paused());
    assert_eq!(engine.done(), ["pause", "stop", "pause"]);
}

#[tokio::test]
async fn an_engine_that_is_busy_for_a_while_is_asked_patiently_what_is_there() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.stalls.send_replace(true);
    tokio::time::pause();
    let told = driver.presence(session).await;
    assert!(matches!(told, Err(SandboxError::Deadline { seconds: 30, .. })), "{told:?}");
}

/// As a proxy answers while the engine behind it is started anew, or one that fails itself. The container may work on.
#[tokio::test]
async fn an_answer_that_is_not_about_the_container_is_not_taken_for_one() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    for answer in [
        ("503 Service Unavailable", "<html>no server is available</html>"),
        ("503 Service Unavailable", ""),
        ("500 Internal Server Error", r#"{"message":"the store is busy"}"#),
        ("404 Not Found", "404 page not found"),
        ("404 Not Found", "<html><h1>404 Not Found</h1></html>"),
        ("404 Not Found", ""),
        ("404 Not Found", "Not Found"),
        ("404 Not Found", r#"{"detail":"Not Found"}"#),
        ("400 Bad Request", r#"{"message":"client version 1.44 is too new"}"#),
        ("200 OK", "<html>welcome</html>"),
        ("200 OK", ""),
    ] {
        engine.set_inspect_answer(Some(answer));
        let told = driver.presence(session).await.expect_err("it does not say how it stands");
        assert!(matches!(told, SandboxError::Inconclusive { .. }) && told.is_inconclusive(), "{answer:?}: {told:?}");
    }
    engine.set_inspect_answer(Some(("404 Not Found", r#"{"message":"no such container"}"#)));
    assert_eq!(driver.presence(session).await.expect("it is told"), None);
    engine.set_inspect_answer(None);
    assert_eq!(driver.presence(session).await.expect("it is told"), Some(SandboxPresence::Running));
}
