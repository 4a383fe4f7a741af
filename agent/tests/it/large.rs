//! Reports are small enough for the server. `AgentTestSession` checks every frame and every event.

use greenroom_protocol::{
    Action, CONTENT_LIMIT, ObservationKind,
    link::{REPORT_LIMIT, WorkOutcome},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    gateway::{
        ScriptedAnswer::{Complete, Hangs},
        ScriptedPart, call, text,
    },
    session::AgentTestSession,
};

#[tokio::test]
async fn edit_in_a_long_line_reports_changed_part() {
    let edit = json!({ "path": "f", "change": "REPLACE", "old": "old", "lines": ["new"] });
    let mut session =
        AgentTestSession::open(vec![Complete(vec![call("c1", "edit", edit)]), Complete(vec![text("Over.")])]).await;
    let line = |word: &str| format!("{}{word}{}", "a".repeat(5 << 20), "b".repeat(5 << 20));
    std::fs::write(session.agent.file("f"), line("old")).expect("a file");
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert!(std::fs::read_to_string(session.agent.file("f")).expect("a file") == line("new"));
    let ObservationKind::Edit { lines, diff, .. } = &session.observations()[0].kind else { panic!("no edit") };
    assert_eq!(lines, &["new"]);
    assert!(diff.len() < CONTENT_LIMIT && diff.contains("aaoldbb") && diff.contains("aanewbb"), "{}", diff.len());
    let sent = session.agent.gateway.requests()[1].to_string();
    assert!(sent.contains("aanewbb") && sent.len() < CONTENT_LIMIT, "the model receives the same part");
}

#[tokio::test]
async fn edit_of_many_lines_reports_head_and_tail() {
    let lines: Vec<String> = (0..100_000).map(|n| format!("line {n} of many")).collect();
    let edit = json!({ "path": "f", "change": "INSERT", "line": 1, "lines": lines });
    let mut session =
        AgentTestSession::open(vec![Complete(vec![call("c1", "edit", edit)]), Complete(vec![text("Over.")])]).await;
    std::fs::write(session.agent.file("f"), "").expect("a file");
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(std::fs::read_to_string(session.agent.file("f")).expect("a file").lines().count(), 100_000);
    let ObservationKind::Edit { lines, diff, .. } = &session.observations()[0].kind else { panic!("no edit") };
    assert!(lines.last().is_some_and(|line| line.ends_with("lines left out …")));
    assert!(diff.contains("bytes left out") && diff.contains("+line 99999 of many"));
}

#[tokio::test]
async fn large_calls_are_reported_in_part_and_executed_whole() {
    let long = |bytes: usize| format!("BEGIN{}END", "\u{1}".repeat(bytes));
    let mut session = AgentTestSession::open(vec![
        Complete(vec![
            text(&long(REPORT_LIMIT)),
            call("c1", "write", json!({ "path": "f", "content": long(300_000) })),
        ]),
        Complete(vec![call("c2", "plan", json!({ "content": "- [ ] a step\n".repeat(100_000) }))]),
        Complete(vec![call("c3", "finish", json!({ "message": long(300_000) }))]),
    ])
    .await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(std::fs::metadata(session.agent.file("f")).expect("the file exists").len(), 300_008);
    let content = &session.observations()[0].content;
    assert!(content.starts_with("BEGIN") && content.ends_with("END") && content.contains("bytes left out"));
    let kinds: Vec<&str> = session.observations().iter().map(|observation| observation.name()).collect();
    assert_eq!(kinds, ["message", "write", "plan"]);
}

#[tokio::test]
async fn overlong_or_empty_call_id_is_replaced() {
    let long: &'static str = "x".repeat(5000).leak();
    let mut session = AgentTestSession::open(vec![
        Complete(vec![call(long, "run", json!({ "command": "echo one" }))]),
        Complete(vec![call("", "run", json!({ "command": "echo two" }))]),
        Complete(vec![text("Over.")]),
    ])
    .await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    // Each action and its result share one name, and it is not the model's.
    let names: Vec<&str> = session.items().into_iter().filter(|item| item.len() == 26).collect();
    assert_eq!((names.len(), names[0], names[2]), (5, names[1], names[3]), "{names:?}");
    let sent = session.agent.gateway.requests()[1]["messages"].to_string();
    assert!(sent.contains(names[0]) && !sent.contains(long));
}

#[tokio::test]
async fn interrupt_of_long_command_has_short_label() {
    let mut session = AgentTestSession::open(vec![Hangs(vec![ScriptedPart::Text("x".into())])]).await;
    let command = format!("sleep 600 # {}", "x".repeat(100 << 10));
    session.user_action("a1", Action::Run { command }).await;
    session.until(|session| !session.taken.is_empty()).await;
    session.send_command(greenroom_protocol::link::AgentCommand::Cancel {}).await;
    let WorkOutcome::Cancelled { what, .. } = session.outcome("a1").await else {
        panic!("the action was not cancelled")
    };
    assert!(what.len() < 1024, "{} bytes", what.len());
}

#[tokio::test]
async fn page_with_long_text_is_reported_in_pieces() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.read(&mut [0; 4096]).await;
        let wide = "<td>wide".to_owned() + &" word".repeat(20);
        let page =
            format!("<title>{}</title><table><tr>{wide}{wide}{}", "t".repeat(5000), "<tr><td>a<td>b".repeat(20_000));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        stream.write_all((head + &page).as_bytes()).await.expect("the agent reads");
    });
    let mut session = AgentTestSession::open(vec![]).await;
    session.user_action("a1", Action::Browse { url }).await;
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
    let observation = session.observations()[0];
    let ObservationKind::Browse { title: Some(title), truncated: Some(truncated), .. } = &observation.kind else {
        panic!("not marked as truncated: {:?}", observation.name())
    };
    assert!(title.len() < 1024 && truncated.bytes > REPORT_LIMIT as u64 && observation.content.len() < 70_000);
    assert_eq!(session.pieces("a1").len() as u64, truncated.bytes);
}
