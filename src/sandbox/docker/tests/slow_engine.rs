//! Engine that stalls, and executes old calls when it recovers.
//!
//! A fake engine: this machine's engine would have to be stopped for that.

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

/// Fake engine with one container, which answers to every name.
struct SlowEngine {
    dir: TempDir,
    container: Arc<Mutex<FakeContainer>>,
    stalls: watch::Sender<bool>,
    server: JoinHandle<()>,
}

/// Status line and body.
type EngineAnswer = (&'static str, &'static str);

#[derive(Default)]
struct FakeContainer {
    paused: bool,
    /// Name of the call that is executed without an answer.
    unanswered_call: Option<&'static str>,
    /// Answer to an inspection, in place of the container's state.
    inspect_answer: Option<EngineAnswer>,
    /// Executed calls, in order.
    executed: Vec<&'static str>,
}

impl SlowEngine {
    fn start() -> SlowEngine {
        let dir = tempfile::tempdir().expect("temporary directory is created");
        let listener = UnixListener::bind(dir.path().join("engine.sock")).expect("socket binds");
        let (stalls, container) = (watch::Sender::new(false), Arc::<Mutex<FakeContainer>>::default());
        let (stalls_of_server, served) = (stalls.clone(), container.clone());
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, stalls_of_server.subscribe(), served.clone()));
            }
        });
        SlowEngine { dir, container, stalls, server }
    }

    async fn driver(&self) -> Arc<DockerDriver> {
        let docker_host = format!("unix://{}", self.dir.path().join("engine.sock").display());
        driver(SandboxConfig { docker_host, ..options() }).await
    }

    fn is_paused(&self) -> bool {
        self.container.lock().expect("lock is never poisoned: no holder panics").paused
    }

    fn drop_answer_to(&self, call: Option<&'static str>) {
        self.container.lock().expect("lock is never poisoned: no holder panics").unanswered_call = call;
    }

    fn set_inspect_answer(&self, answer: Option<EngineAnswer>) {
        self.container.lock().expect("lock is never poisoned: no holder panics").inspect_answer = answer;
    }

    fn executed(&self) -> Vec<&'static str> {
        self.container.lock().expect("lock is never poisoned: no holder panics").executed.clone()
    }

    async fn until(&self, what: &str, condition: impl Fn(&[&str]) -> bool) {
        contract::eventually(what, async || condition(&self.executed())).await;
    }
}

impl Drop for SlowEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Executes each call that was read, even if the client has gone.
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
        if container
            .lock()
            .expect("lock is never poisoned: no holder panics")
            .unanswered_call
            .is_some_and(|call| called(path) == Some(call))
        {
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
    let mut container = container.lock().expect("lock is never poisoned: no holder panics");
    let refused = |reason: &str| ("409 Conflict", format!(r#"{{"message":"{reason}"}}"#));
    match called(path) {
        Some("version") => ("200 OK", r#"{"ApiVersion":"1.44"}"#.to_owned()),
        Some("pause") if container.paused => refused("the container is already paused"),
        Some("unpause") if !container.paused => refused("the container is not paused"),
        Some("pause") => executed(&mut container, "pause"),
        Some("unpause") => executed(&mut container, "unpause"),
        Some("stop") => executed(&mut container, "stop"),
        _ => {
            let status = if container.paused { "paused" } else { "running" };
            let (code, body) = container.inspect_answer.unzip();
            let body = body.map_or_else(|| format!(r#"{{"State":{{"Status":"{status}"}}}}"#), str::to_owned);
            (code.unwrap_or("200 OK"), body)
        }
    }
}

/// Returns the name of the call: the last part of the path.
fn called(path: &str) -> Option<&str> {
    path.split('?').next()?.rsplit('/').next()
}

fn executed(container: &mut FakeContainer, call: &'static str) -> (&'static str, String) {
    container.paused = call == "pause";
    container.executed.push(call);
    ("204 No Content", String::new())
}

fn assert_overdue(result: Result<(), SandboxError>) {
    assert!(matches!(result, Err(SandboxError::Deadline { seconds: 10, .. })), "{result:?}");
}

#[tokio::test]
async fn late_pause_is_undone() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.stalls.send_replace(true);
    // Until `resume`, no task but the deadlines can run, so they come at once.
    tokio::time::pause();
    assert_overdue(driver.pause(session).await);
    tokio::time::resume();
    engine.stalls.send_replace(false);
    engine.until("the late pause is undone", |executed| executed == ["pause", "unpause"]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!engine.is_paused());
    driver.pause(session).await.expect("pause succeeds");
    assert!(engine.is_paused());
    driver.unpause(session).await.expect("unpause succeeds");
    assert!(!engine.is_paused());
}

#[tokio::test]
async fn call_waits_behind_an_overdue_one() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.stalls.send_replace(true);
    tokio::time::pause();
    assert_overdue(driver.pause(session).await);
    assert_overdue(driver.unpause(session).await);
    assert_overdue(driver.pause(session).await);
    tokio::time::resume();
    let unpausing = tokio::spawn({
        let driver = driver.clone();
        async move { driver.unpause(session).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    engine.stalls.send_replace(false);
    unpausing.await.expect("task does not panic").expect("unpause succeeds");
    assert!(!engine.is_paused());
    assert_eq!(engine.executed(), ["pause", "unpause"], "a call that timed out before it began is not executed");

    driver.pause(session).await.expect("pause succeeds");
    engine.stalls.send_replace(true);
    tokio::time::pause();
    assert_overdue(driver.unpause(session).await);
    tokio::time::resume();
    let (paused, ()) = tokio::join!(driver.pause(session), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        engine.stalls.send_replace(false);
    });
    paused.expect("pause succeeds");
    assert!(engine.is_paused(), "the pause holds although the unpause before it came late");
    assert_eq!(engine.executed()[2..], ["pause", "unpause", "pause"]);
}

/// A call whose caller is gone has no reported result, so it counts as failed.
#[tokio::test]
async fn pause_without_caller_is_undone() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.stalls.send_replace(true);
    let dropped_call = tokio::time::timeout(Duration::from_millis(50), driver.pause(session)).await;
    assert!(dropped_call.is_err());
    engine.stalls.send_replace(false);
    engine.until("the pause is undone", |executed| executed == ["pause", "unpause"]).await;
}

/// The answer is lost, as over a connection that died without a reset.
#[tokio::test]
async fn pause_with_lost_answer_is_given_up_and_undone() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.drop_answer_to(Some("pause"));
    tokio::time::pause();
    assert_overdue(driver.pause(session).await);
    assert_overdue(driver.unpause(session).await);
    assert!(engine.is_paused(), "the pause is followed until its answer");
    tokio::time::advance(Duration::from_secs(FOLLOW_SECONDS)).await;
    tokio::time::resume();
    engine.until("the pause is undone", |executed| executed == ["pause", "unpause"]).await;
    engine.drop_answer_to(None);
    driver.pause(session).await.expect("pause succeeds");
    driver.unpause(session).await.expect("unpause succeeds");
    assert_eq!(engine.executed()[2..], ["pause", "unpause"]);
}

#[tokio::test]
async fn stop_and_next_run_do_not_wait_for_a_lost_answer() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    for lost in ["pause", "unpause"] {
        if lost == "unpause" {
            driver.pause(session).await.expect("pause succeeds");
        }
        engine.drop_answer_to(Some(lost));
        tokio::time::pause();
        assert_overdue(if lost == "pause" { driver.pause(session).await } else { driver.unpause(session).await });
        tokio::time::resume();
        engine.drop_answer_to(None);
        let next = tokio::time::timeout(Duration::from_secs(5), async {
            driver.stop(session).await.expect("stop succeeds");
            driver.pause(session).await.expect("pause of the next run succeeds");
            driver.unpause(session).await.expect("unpause of the next run succeeds");
        });
        next.await.expect("calls do not wait for the lost answer");
    }
}

#[tokio::test]
async fn pause_of_a_stopped_run_is_not_undone_on_the_next_run() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.drop_answer_to(Some("pause"));
    tokio::time::pause();
    assert_overdue(driver.pause(session).await);
    tokio::time::resume();
    engine.drop_answer_to(None);
    driver.stop(session).await.expect("stop succeeds");
    driver.pause(session).await.expect("pause of the next run succeeds");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(FOLLOW_SECONDS)).await;
    tokio::time::resume();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(engine.is_paused());
    assert_eq!(engine.executed(), ["pause", "stop", "pause"]);
}

#[tokio::test]
async fn presence_call_has_a_long_deadline() {
    let engine = SlowEngine::start();
    let (driver, session) = (engine.driver().await, SessionId::generate());
    engine.stalls.send_replace(true);
    tokio::time::pause();
    let result = driver.presence(session).await;
    assert!(matches!(result, Err(SandboxError::Deadline { seconds: 30, .. })), "{result:?}");
}

/// A proxy answers like this while the engine behind it restarts, and so does an engine that fails.
/// The container may still work.
#[tokio::test]
async fn answers_not_about_the_container_are_inconclusive() {
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
        let result = driver.presence(session).await.expect_err("answer is inconclusive");
        assert!(
            matches!(result, SandboxError::Inconclusive { .. }) && result.is_inconclusive(),
            "{answer:?}: {result:?}"
        );
    }
    engine.set_inspect_answer(Some(("404 Not Found", r#"{"message":"no such container"}"#)));
    assert_eq!(driver.presence(session).await.expect("state is reported"), None);
    engine.set_inspect_answer(None);
    assert_eq!(driver.presence(session).await.expect("state is reported"), Some(SandboxPresence::Running));
}
