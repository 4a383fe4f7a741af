//! Whatever the agent has to tell is small enough for the server: `Session` checks every frame and every event.

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
async fn a_small_edit_in_a_file_with_one_long_line_is_told_by_the_part_that_changed() {
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
    let told = session.agent.gateway.requests()[1].to_string();
    assert!(told.contains("aanewbb") && told.len() < CONTENT_LIMIT, "the model is told the same");
}

#[tokio::test]
async fn an_edit_of_many_lines_is_told_with_its_head_and_tail() {
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
async fn much_that_a_model_says_is_told_with_head_and_tail_and_done_whole() {
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
    assert_eq!(std::fs::metadata(session.agent.file("f")).expect("it is written").len(), 300_008);
    let said = &session.observations()[0].content;
    assert!(said.starts_with("BEGIN") && said.ends_with("END") && said.contains("bytes left out"));
    let kinds: Vec<&str> = session.observations().iter().map(|seen| seen.name()).collect();
    assert_eq!(kinds, ["message", "write", "plan"]);
}

#[tokio::test]
async fn a_call_whose_id_is_too_long_for_a_name_gets_one() {
    let long: &'static str = "x".repeat(5000).leak();
    let mut session = AgentTestSession::open(vec![
        Complete(vec![call(long, "run", json!({ "command": "echo one" }))]),
        Complete(vec![call("", "run", json!({ "command": "echo two" }))]),
        Complete(vec![text("Over.")]),
    ])
    .await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    // An action, its result: of one name, which is none of the model's.
    let names: Vec<&str> = session.items().into_iter().filter(|item| item.len() == 26).collect();
    assert_eq!((names.len(), names[0], names[2]), (5, names[1], names[3]), "{names:?}");
    let told = session.agent.gateway.requests()[1]["messages"].to_string();
    assert!(told.contains(names[0]) && !told.contains(long));
}

#[tokio::test]
async fn an_interrupt_of_a_long_command_is_told_in_few_words() {
    let mut session = AgentTestSession::open(vec![Hangs(vec![ScriptedPart::Text("x".into())])]).await;
    let command = format!("sleep 600 # {}", "x".repeat(100 << 10));
    session.user_action("a1", Action::Run { command }).await;
    session.until(|session| !session.taken.is_empty()).await;
    session.send_command(greenroom_protocol::link::AgentCommand::Cancel {}).await;
    let WorkOutcome::Cancelled { what, .. } = session.outcome("a1").await else { panic!("it was not cancelled") };
    assert!(what.len() < 1024, "{} bytes", what.len());
}

#[tokio::test]
async fn a_page_that_is_long_as_a_text_is_told_in_pieces() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a caller");
        let _ = stream.read(&mut [0; 4096]).await;
        let wide = "<td>wide".to_owned() + &" word".repeat(20);
        let page =
            format!("<title>{}</title><table><tr>{wide}{wide}{}", "t".repeat(5000), "<tr><td>a<td>b".repeat(20_000));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        stream.write_all((head + &page).as_bytes()).await.expect("it listens");
    });
    let mut session = AgentTestSession::open(vec![]).await;
    session.user_action("a1", Action::Browse { url }).await;
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
    let seen = session.observations()[0];
    let ObservationKind::Browse { title: Some(title), truncated: Some(truncated), .. } = &seen.kind else {
        panic!("it is not cut: {:?}", seen.name())
    };
    assert!(title.len() < 1024 && truncated.bytes > REPORT_LIMIT as u64 && seen.content.len() < 70_000);
    assert_eq!(session.pieces("a1").len() as u64, truncated.bytes);
}
