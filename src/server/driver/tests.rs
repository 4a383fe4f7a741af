//! An engine that comes up beside the server: it answers one question, and fails over the next.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use futures::future::join_all;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
};

use super::*;
use crate::store::{SessionRecord, contract::record, in_memory::MemoryStore};

/// An engine that fails over the first question whose path has `part` in it, and over no other.
async fn serve(listener: UnixListener, part: &'static str, failed: Arc<AtomicBool>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(answer(client, part, failed.clone()));
    }
}

async fn answer(client: UnixStream, part: &'static str, failed: Arc<AtomicBool>) {
    let mut client = BufReader::new(client);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if client.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let is_it = head.split(' ').nth(1).is_some_and(|path| path.contains(part));
        let status = if is_it && !failed.swap(true, SeqCst) { "503 Service Unavailable" } else { "200 OK" };
        let body = r#"{"ApiVersion":"1.44","DockerRootDir":"/var/lib/docker"}"#;
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        if client.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// What `auto` makes of an engine that fails over one question, where a session lives in it or none does.
async fn found(part: &'static str, lives_there: bool) -> Result<(), SandboxError> {
    let dir = tempfile::tempdir().expect("a directory");
    let (socket, notes) = (dir.path().join("engine.sock"), dir.path().join("drivers"));
    let failed = Arc::new(AtomicBool::new(false));
    let engine = tokio::spawn(serve(UnixListener::bind(&socket).expect("it binds"), part, failed.clone()));
    let mut config = Config::with_data_dir(dir.path());
    config.sandbox.docker_host = format!("unix://{}", socket.display());
    let store = MemoryStore::new();
    if lives_there {
        let session =
            store.create(SessionRecord { state: AgentState::Idle, ..record("") }).await.expect("it is made").record.id;
        let place = notes.join("docker-var-lib-docker");
        std::fs::create_dir_all(&place).expect("it is made");
        std::fs::write(place.join(session.to_string()), "").expect("it is noted");
    }
    let found = docker_awaited_for_sessions(&config, "node", &store, &SandboxLocations::below(notes)).await;
    engine.abort();
    assert!(failed.load(SeqCst), "nobody asked for `{part}`");
    found.map(drop)
}

#[tokio::test]
async fn an_engine_in_which_sessions_live_is_waited_for_whichever_answer_it_fails_over() {
    let questions = ["/version", "/info", "/_ping", "/images/"];
    for (question, found) in questions.iter().zip(join_all(questions.map(|part| found(part, true))).await) {
        found.unwrap_or_else(|e| panic!("{question}: {e}"));
    }
}

#[tokio::test]
async fn an_engine_in_which_none_lives_is_not_waited_for() {
    let found = found("/images/", false).await;
    assert!(matches!(found, Err(SandboxError::Failed { .. })), "{found:?}");
}
