//! Sessions that move by file: from a disk that fails, and into a journal after a killed import.

use std::path::Path;

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    host,
    server::{StoppedServer, TestServer, TestServerHome, TestServerOptions},
};

/// Creates a session that has done a task. Returns its id and events.
async fn worked(server: &TestServer) -> (String, Vec<Value>) {
    let session = server.rest.start("write a bash script that prints hello").await;
    server.rest.until_state(&session, "idle").await;
    let events = server.rest.events(&session).await;
    (session, events)
}

fn nowhere() -> StoppedServer {
    StoppedServer::nowhere(tempfile::tempdir().expect("a directory"), TestServerOptions::new(TestDriver::Process))
}

async fn import(ended: &StoppedServer, dir: &Path, text: &str) {
    let file = dir.join("sessions.jsonl");
    std::fs::write(&file, text).expect("the file can be written");
    ended.run(&["import", file.to_str().expect("a path")]).await.expect("the import succeeds");
}

#[tokio::test]
async fn sessions_on_read_only_disk_are_exported() {
    let Some(home) = TestServerHome::on_a_disk() else {
        return eprintln!("skipped: mounting a file system needs root");
    };
    let server = TestServer::start_in(home, TestServerOptions::new(TestDriver::Process)).await;
    let (session, before) = worked(&server).await;
    server.disk().expect("the data are on a disk of their own").fail();
    let busy = server.run(&["export"]).await.expect_err("a server runs");
    assert!(busy.contains("in use by another server"), "{busy}");
    let ended = server.kill9().await;
    host::clear(ended.home());
    let whole = ended.run(&["export"]).await.expect("the export succeeds");
    ended.run(&["export", "--skip-damaged"]).await.expect("the export succeeds");
    let refused = ended.run(&["import", "/dev/null"]).await.expect_err("nothing can be written there");
    assert!(refused.contains("Read-only file system"), "{refused}");

    let (new, dir) = (nowhere(), tempfile::tempdir().expect("a directory"));
    import(&new, dir.path(), &whole).await;
    let server = new.restart().await;
    assert_eq!(server.rest.events(&session).await[..before.len()], before);
    server.leaves_nothing().await;
}

/// Changes a line of an export so that its import looks killed before the last of its writes.
fn cut_short(line: &str) -> String {
    let Ok(mut line) = serde_json::from_str::<Value>(line) else { panic!("no line of an export: {line}") };
    let Some(record) = line.get_mut("session") else { return line.to_string() };
    let reason = "its import was cut short; import the file again";
    (record["state"], record["reason"], record["core"]) = (json!("stopped"), json!(reason), json!(reason));
    line.to_string()
}

#[tokio::test]
async fn partially_imported_session_runs_only_after_repeated_import() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, before) = worked(&server).await;
    let (_, old) = server.terminate().await;
    let whole = old.run(&["export"]).await.expect("the export succeeds");
    let cut = whole.lines().map(|line| match line.starts_with(r#"{"session""#) {
        true => cut_short(line) + "\n",
        false => format!("{line}\n"),
    });
    let (new, dir) = (nowhere(), tempfile::tempdir().expect("a directory"));
    import(&new, dir.path(), &cut.collect::<String>()).await;

    let server = new.restart().await;
    let found = server.rest.session(&session).await;
    assert!(found["state"] == "stopped" && found["reason"].to_string().contains("cut short"), "{found}");
    let messages = format!("/api/sessions/{session}/messages");
    let refused = server.rest.post(&messages, json!({ "content": "hello?" })).await.error(409, "conflict");
    assert!(refused.contains("import the file again"), "{refused}");
    assert_eq!(server.rest.events(&session).await, before);

    let (_, new) = server.terminate().await;
    import(&new, dir.path(), &whole).await;
    let server = new.restart().await;
    server.rest.until_state(&session, "idle").await;
    server.rest.post(&messages, json!({ "content": "hello?" })).await.expect(202);
    server.rest.until_state(&session, "idle").await;
    assert_eq!(server.rest.events(&session).await[..before.len()], before);
    server.leaves_nothing().await;
}
