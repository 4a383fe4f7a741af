//! Tests with an engine that starts beside the server: some of its queries fail at first.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use futures::future::join_all;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
};

use super::*;
use crate::{
    config::{Config, DriverChoice},
    store::{SessionRecord, contract::record, in_memory::MemoryStore},
};

/// Serves an engine. The first query whose path contains `part` fails, and all others succeed.
async fn serve(listener: UnixListener, part: &'static str, failed: Arc<AtomicBool>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(respond(client, part, failed.clone()));
    }
}

async fn respond(client: UnixStream, part: &'static str, failed: Arc<AtomicBool>) {
    let mut client = BufReader::new(client);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if client.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let matches = head.split(' ').nth(1).is_some_and(|path| path.contains(part));
        let status = if matches && !failed.swap(true, SeqCst) { "503 Service Unavailable" } else { "200 OK" };
        let body = r#"{"ApiVersion":"1.44","DockerRootDir":"/var/lib/docker"}"#;
        let length = body.len();
        let response =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        if client.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Returns the result of `auto` with an engine that fails one query, with or without a live session
/// in that engine.
async fn connect_failing_at(part: &'static str, has_session: bool) -> Result<(), SandboxError> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (socket, notes) = (dir.path().join("engine.sock"), dir.path().join("drivers"));
    let failed = Arc::new(AtomicBool::new(false));
    let engine = tokio::spawn(serve(UnixListener::bind(&socket).expect("the socket is bound"), part, failed.clone()));
    let mut config = Config::with_data_dir(dir.path()).sandbox;
    config.docker_host = format!("unix://{}", socket.display());
    let store = MemoryStore::new();
    if has_session {
        let session = store
            .create(SessionRecord { state: AgentState::Idle, ..record("") })
            .await
            .expect("the session is created")
            .into_snapshot()
            .record
            .id;
        let location = notes.join("docker-var-lib-docker");
        std::fs::create_dir_all(&location).expect("the directory is created");
        std::fs::write(location.join(session.to_string()), "").expect("the file is written");
    }
    let nowhere = || std::path::PathBuf::from("/nonexistent");
    let parts = DriverParts {
        config: Arc::new(config),
        node: SandboxNode { name: "node".to_owned(), sandboxes: nowhere(), programs: nowhere() },
        store: &store,
        locations: SandboxLocations::below(notes),
    };
    let docker = DriverEntry::of(DriverChoice::Docker).expect("the registry has the driver");
    let outcome = parts.awaited_for_sessions(docker).await;
    engine.abort();
    assert!(failed.load(SeqCst), "no query contained `{part}`");
    outcome.map(drop)
}

#[tokio::test]
async fn engine_with_live_sessions_is_retried_after_any_failed_query() {
    let queries = ["/version", "/info", "/_ping", "/images/"];
    for (query, outcome) in queries.iter().zip(join_all(queries.map(|part| connect_failing_at(part, true))).await) {
        outcome.unwrap_or_else(|e| panic!("{query}: {e}"));
    }
}

#[tokio::test]
async fn engine_without_sessions_is_not_retried() {
    let outcome = connect_failing_at("/images/", false).await;
    assert!(matches!(outcome, Err(SandboxError::Failed { .. })), "{outcome:?}");
}
