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
    server.rest.until_captured(&session).await;
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

/// An import file comes from anybody. What it says reaches a terminal, where it could set the
/// clipboard or imitate a line.
#[tokio::test]
async fn foreign_text_reaches_terminal_escaped() {
    let (here, dir) = (nowhere(), tempfile::tempdir().expect("a directory"));
    let head = r#"{"greenroom_journal":1,"version":"0.1.0","at":"2026-01-01T00:00:00.000Z"}"#;
    let hostile = "\u{1b}]52;c;cm0gLXJm\u{7}\u{9b}2J\rdone";
    for (name, text) in [
        ("a.jsonl".to_owned(), format!("{hostile}\n")),
        ("a.jsonl".to_owned(), format!("{head}\n{hostile}\n")),
        ("a.jsonl".to_owned(), format!("{head}\n{{\"content\":\"\\u001b]52;c;x\\u0007\",\"text\":\"x\"}}\n")),
        (hostile.to_owned(), "nonsense".to_owned()),
        ("a\nimported 7 sessions".to_owned(), "nonsense".to_owned()),
    ] {
        let file = dir.path().join(&name);
        std::fs::write(&file, text).expect("the file can be written");
        let told = here.run(&["import", file.to_str().expect("a path")]).await.expect_err("it is no export");
        let has_control = |line: &str| line.contains(char::is_control);
        assert!(!told.trim_end().is_empty() && !told.trim_end().lines().any(has_control), "{name:?}: {told:?}");
        assert_eq!(told.trim_end().lines().filter(|line| line.starts_with("imported")).count(), 0, "{told:?}");
    }
    let told = here.run(&["export", hostile]).await.expect_err("it is no session");
    assert!(told.contains("done") && !told.lines().any(|line| line.contains(char::is_control)), "{told:?}");
}

#[tokio::test]
async fn export_writes_to_stdout_on_request_and_replaces_a_file_by_force() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    server.rest.create(json!({})).await;
    let (_, ended) = server.terminate().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("all.jsonl");
    let path = file.to_str().expect("a path");
    let plain = ended.run(&["export"]).await.expect("the export succeeds");
    let sessions = |text: &str| text.lines().filter(|line| line.starts_with(r#"{"session""#)).count();
    assert_eq!((sessions(&plain), sessions(&ended.run(&["export", "-o", "-"]).await.expect("stdout"))), (1, 1));
    assert_eq!(ended.run(&["export", "-o", path]).await, Ok(String::new()));
    let whole = std::fs::read_to_string(&file).expect("the file exists");
    assert_eq!(sessions(&whole), 1);
    let told = ended.run(&["export", "-o", path]).await.expect_err("the file exists");
    assert!(told.contains("`--force` replaces it"), "{told}");
    std::fs::write(&file, "mine").expect("the file can be written");
    ended.run(&["export", "-o", path]).await.expect_err("the file exists");
    assert_eq!(std::fs::read_to_string(&file).expect("the file exists"), "mine");
    // Of a flag given twice, the last applies.
    ended.run(&["export", "-o", "/nowhere/x", "-o", path, "--force"]).await.expect("the file may be replaced");
    assert_eq!(sessions(&std::fs::read_to_string(&file).expect("the file exists")), 1);
}
