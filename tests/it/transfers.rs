//! Sessions that move by file, from a disk that fails and into a journal where an import was killed.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{
    driver::TestDriver,
    host,
    server::{StoppedServer, TestServer, TestServerHome, TestServerOptions},
};

/// Something that a session has done.
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
    std::fs::write(&file, text).expect("it is written");
    ended.run(&["import", file.to_str().expect("a path")]).await.expect("it is imported");
}

#[tokio::test]
async fn what_is_on_a_disk_that_takes_no_writes_any_more_is_exported() {
    let Some(home) = TestServerHome::on_a_disk() else {
        return eprintln!("skipped: root alone can mount a file system that fails");
    };
    let server = TestServer::start_in(home, TestServerOptions::new(TestDriver::Process)).await;
    let (session, before) = worked(&server).await;
    server.disk().expect("its data are on a disk of their own").fail();
    let busy = server.run(&["export"]).await.expect_err("a server runs");
    assert!(busy.contains("in use by another server"), "{busy}");
    let ended = server.kill9().await;
    host::clear(ended.home());
    let whole = ended.run(&["export"]).await.expect("it is exported");
    ended.run(&["export", "--skip-damaged"]).await.expect("it is exported");
    let refused = ended.run(&["import", "/dev/null"]).await.expect_err("nothing can be written there");
    assert!(refused.contains("Read-only file system"), "{refused}");

    let (new, dir) = (nowhere(), tempfile::tempdir().expect("a directory"));
    import(&new, dir.path(), &whole).await;
    let server = new.restart().await;
    assert_eq!(server.rest.events(&session).await[..before.len()], before);
    server.leaves_nothing().await;
}

/// As an import leaves it that is killed when all but the last of its writes are done.
fn cut_short(line: &str) -> String {
    let Ok(mut line) = serde_json::from_str::<Value>(line) else { panic!("no line of an export: {line}") };
    let Some(record) = line.get_mut("session") else { return line.to_string() };
    let why = "its import was cut short; import the file again";
    (record["state"], record["reason"], record["core"]) = (json!("stopped"), json!(why), json!(why));
    line.to_string()
}

#[tokio::test]
async fn nobody_goes_on_with_a_session_whose_import_was_killed_until_it_is_imported_again() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, before) = worked(&server).await;
    let (_, old) = server.terminate().await;
    let whole = old.run(&["export"]).await.expect("it is exported");
    let cut = whole.lines().map(|line| match line.starts_with(r#"{"session""#) {
        true => cut_short(line) + "\n",
        false => format!("{line}\n"),
    });
    let (new, dir) = (nowhere(), tempfile::tempdir().expect("a directory"));
    import(&new, dir.path(), &cut.collect::<String>()).await;

    let server = new.restart().await;
    let told = server.rest.session(&session).await;
    assert!(told["state"] == "stopped" && told["reason"].to_string().contains("cut short"), "{told}");
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
