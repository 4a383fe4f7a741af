//! Start: errors name the way out, with the documented exit code; the address is for a person or
//! for a script.

use std::{
    fs::File,
    io::Read,
    os::fd::{FromRawFd, OwnedFd},
    path::Path,
    ptr::{null, null_mut},
};

use rustix::process::Signal;
use serde_json::json;
use tokio::process::Command;

use greenroom_testkit::{
    driver::TestDriver,
    greenroom_binary,
    server::{FailedServerStart, TestServer, TestServerOptions, code},
    within,
};

/// Starts the server with a terminal as stdout. Returns what the terminal got, up to the link.
async fn start_on_terminal(home: &Path) -> String {
    let (mut terminal, mut stdout) = (-1, -1);
    // SAFETY: both descriptors are valid for writes; the other arguments may be null.
    let opened = unsafe { libc::openpty(&mut terminal, &mut stdout, null_mut(), null(), null()) };
    assert_eq!(opened, 0, "a terminal is free");
    // SAFETY: the call has opened both descriptors, and nothing else owns them.
    let (terminal, stdout) = unsafe { (OwnedFd::from_raw_fd(terminal), OwnedFd::from_raw_fd(stdout)) };
    let log = File::create(home.join("log")).expect("the log is created");
    let mut server = Command::new(greenroom_binary())
        .args(["--bind", "127.0.0.1:0", "--sandbox", "process", "--data"])
        .arg(home.join("data"))
        .env("XDG_CONFIG_HOME", home)
        .stdout(stdout)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("the binary that cargo built starts");
    let mut screen = File::from(terminal);
    let reads = tokio::task::spawn_blocking(move || {
        let (mut text, mut piece) = (String::new(), [0; 1024]);
        while text.matches("\r\n").count() < 3 {
            let count = screen.read(&mut piece).expect("the terminal is open");
            text.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        text
    });
    let text = within("three lines on the terminal", reads).await.expect("the terminal is readable");
    server.kill().await.expect("the server runs");
    text
}

/// A script gets the one line that it parses; see `TestServer::start`.
#[tokio::test]
async fn person_gets_a_frame_with_the_link_last() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let text = start_on_terminal(home.path()).await;
    let lines: Vec<&str> = text.lines().collect();
    let [above, line, below] = lines[..] else { panic!("three lines: {text}") };
    let link = line.strip_prefix("Greenroom is ready: http://127.0.0.1:").unwrap_or_else(|| panic!("{text}"));
    assert!(link.contains("/?token=") && !link.contains(' '), "the link ends the line: {line}");
    assert!(above == below && above.chars().all(|c| c == '─'), "{text}");
    assert_eq!(above.chars().count(), line.chars().count());
    let log = std::fs::read_to_string(home.path().join("log")).expect("the log is text");
    assert_eq!(log, "", "details are logged at debug level");
}

async fn refused(options: TestServerOptions) -> FailedServerStart {
    let home = tempfile::tempdir().expect("a temporary directory");
    TestServer::refused(home.path(), &options).await
}

#[track_caller]
fn check(refused: &FailedServerStart, exit: i32, parts: &[&str]) {
    assert_eq!(refused.code, Some(exit), "{refused:?}");
    assert_eq!(refused.stdout, "", "stdout is for the one line of a server that is ready");
    for part in parts {
        assert!(refused.stderr.contains(part), "no {part:?} in {}", refused.stderr);
    }
    assert!(!refused.stderr.contains("panicked"), "{}", refused.stderr);
}

#[tokio::test]
async fn port_in_use() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let bind = server.rest.authority.clone();
    check(&refused(TestServerOptions::new(TestDriver::Process).bind(&bind)).await, 1, &[&bind, "--bind"]);
}

#[tokio::test]
async fn data_directory_in_use() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let second = TestServer::refused(server.home(), &TestServerOptions::new(TestDriver::Process)).await;
    check(&second, 1, &[&server.data().to_string_lossy(), "--data"]);
    assert_eq!(server.rest.get("/readyz").await.status, 200, "the first server keeps running");
}

#[tokio::test]
async fn volume_containing_data_directory() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let data = home.path().join("data");
    let whole = home.path().display().to_string();
    let part = data.join("journal").display().to_string();
    for (host, inside) in [(&whole, "/v:ro"), (&whole, "/workspace"), (&part, "/v:ro")] {
        let options = TestServerOptions::new(TestDriver::Process).env("SANDBOX_VOLUMES", &format!("{host}:{inside}"));
        check(&TestServer::refused(home.path(), &options).await, 1, &[host, &data.to_string_lossy(), "--data"]);
        let failed = TestServer::refused(home.path(), &options.arg("doctor")).await;
        let line =
            failed.stdout.lines().find(|line| line.contains("data directory")).expect("doctor prints a line about it");
        assert!(line.starts_with("!!") && line.contains(host), "{line}");
    }
}

#[tokio::test]
async fn invalid_config() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let table: [(&str, &[&str]); 3] = [
        ("[server\nbind = 1", &["config.toml"]),
        ("[server]\nbnd = \"127.0.0.1:0\"", &["`server.bnd`", "line 2"]),
        ("[sandbox]\npids = \"many\"", &["sandbox.pids", "line 2"]),
    ];
    for (text, parts) in table {
        let path = home.path().join("config.toml");
        std::fs::write(&path, text).expect("the write succeeds");
        check(&refused(TestServerOptions::new(TestDriver::Process).arg("--config").arg(path)).await, 2, parts);
    }
}

#[tokio::test]
async fn invalid_command_line() {
    check(&refused(TestServerOptions::new(TestDriver::Process).arg("--colour")).await, 2, &["--colour"]);
    check(
        &refused(TestServerOptions::new(TestDriver::Process).arg("--config").arg("/nowhere.toml")).await,
        2,
        &["/nowhere.toml"],
    );
    check(&refused(TestServerOptions::new(TestDriver::Process).bind("localhost:many")).await, 2, &["localhost:many"]);
    let variable = TestServerOptions::new(TestDriver::Process).env("GREENROOM_SERVER__BND", "1");
    check(&refused(variable).await, 2, &["GREENROOM_SERVER__BND"]);
}

#[tokio::test]
async fn unreachable_engine() {
    let options = TestServerOptions::new(TestDriver::Docker).env("DOCKER_HOST", "unix:///nowhere/docker.sock");
    check(&refused(options).await, 1, &["/nowhere/docker.sock", "--sandbox process"]);
}

/// The doctor also reports what another driver lacks, without counting it as an error.
#[tokio::test]
async fn doctor_fails_only_for_the_named_driver() {
    let check = async |driver, code: i32, mark: &str| {
        let options = TestServerOptions::new(driver).env("DOCKER_HOST", "unix:///nowhere/docker.sock").arg("doctor");
        let failed = refused(options).await;
        assert_eq!(failed.code, Some(code), "{failed:?}");
        let engine =
            failed.stdout.lines().find(|line| line.contains("Docker engine")).expect("doctor prints a line about it");
        assert!(engine.starts_with(mark) && engine.contains("/nowhere/docker.sock"), "{engine}");
        assert_eq!(failed.stderr.contains("before a server can start"), code != 0, "{}", failed.stderr);
    };
    check(TestDriver::Docker, 1, "!!").await;
    check(TestDriver::Process, 0, "--").await;
}

#[tokio::test]
async fn second_signal_ends_server_at_once() {
    let mut server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    server.signal(Signal::INT);
    server.signal(Signal::TERM);
    let status = server.wait().await;
    assert!([0, 1, 128 + 2, 128 + 15].contains(&code(status)), "{status}");
}

/// Covers a log whose disk is full, or whose reader is gone.
#[tokio::test]
async fn unwritable_log_stops_nothing() {
    let server = TestServer::start(
        TestServerOptions::new(TestDriver::Process).env("GREENROOM_LOG__LEVEL", "debug").log_to("/dev/full"),
    )
    .await;
    let session = server.rest.create(json!({ "task": "hello" })).await;
    server.rest.until_state(&session, "idle").await;
    let (status, _ended) = server.terminate().await;
    assert_eq!(code(status), 0, "the server ends by itself");
}
