//! Tool calls that a server reviews, and questions to a person, between a scripted server and a
//! scripted model.

use std::fs;

use greenroom_protocol::{
    Action, Event, ObservationKind,
    action::ApprovalDecision,
    approval::{ApprovalMode, Verdict},
    link::{AgentCommand, WorkOutcome},
};
use serde_json::{Value, json};

use crate::{
    agent::AgentProcess,
    gateway::{ScriptedAnswer::Complete, ScriptedPart, call, text},
    session::AgentTestSession,
};

/// Starts a turn `t1` whose answers are these calls, one each, and a text.
async fn begin(calls: Vec<ScriptedPart>) -> AgentTestSession {
    let answers = calls.into_iter().map(|call| Complete(vec![call])).chain([Complete(vec![text("Over.")])]);
    let mut session = AgentTestSession::reviewed(AgentProcess::start(answers.collect()), Vec::new()).await;
    session.prompt("t1", "go").await;
    session
}

fn append() -> ScriptedPart {
    call("c1", "run", json!({ "command": "echo x >> f" }))
}

/// Question to a person, as the agent reported it.
struct Question {
    request: String,
    call: Action,
    editable: bool,
    diff: Option<String>,
}

/// Answers the newest review with a question, and waits for the question `count`, from 1.
async fn question(session: &mut AgentTestSession, count: usize) -> Question {
    let review = session.until_review(session.reviews.len().max(count)).await;
    session.settle(&review, Verdict::Ask).await;
    session.until(|session| questions(session).len() == count).await;
    questions(session).pop().expect("a question was asked")
}

fn questions(session: &AgentTestSession) -> Vec<Question> {
    let question = |kind: &ObservationKind| match kind.clone() {
        ObservationKind::Confirm { request, call: Some(call), editable, diff, .. } => {
            Some(Question { request, call: *call, editable, diff })
        }
        _ => None,
    };
    session.observations().iter().filter_map(|observation| question(&observation.kind)).collect()
}

fn answer(question: &Question, decision: ApprovalDecision, reason: Option<&str>, input: Option<Value>) -> AgentCommand {
    AgentCommand::Answer { request: question.request.clone(), decision, reason: reason.map(str::to_owned), input }
}

fn allow(question: &Question) -> AgentCommand {
    answer(question, ApprovalDecision::Allow, None, None)
}

fn content(session: &AgentTestSession, file: &str) -> String {
    fs::read_to_string(session.agent.file(file)).unwrap_or_default()
}

/// Waits for the end of `t1`, and returns the newest request to the model.
async fn end(session: &mut AgentTestSession) -> String {
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    session.agent.gateway.requests().pop().expect("the model was asked").to_string()
}

#[tokio::test]
async fn verdict_lost_with_its_connection_is_asked_for_again() {
    let mut session = begin(vec![append()]).await;
    let review = session.until_review(1).await;
    assert_eq!((review.item.as_deref(), &review.action), (Some("c1"), &Action::Run { command: "echo x >> f".into() }));
    session.redial().await;
    assert_eq!(session.until_review(2).await, review);
    assert_eq!(session.events(), [""; 0], "the call is reported after its verdict");
    session.settle(&review, Verdict::Allow).await;
    session.settle(&review, Verdict::Allow).await;
    end(&mut session).await;
    session.redial().await;
    assert_eq!(session.events(), ["run! c1", "run c1: [0] ", "message _: Over."]);
    assert_eq!((content(&session, "f").as_str(), session.reviews.len()), ("x\n", 2));
}

#[tokio::test]
async fn answer_after_a_reconnect_acts_once() {
    let mut session = begin(vec![append()]).await;
    let question = question(&mut session, 1).await;
    assert_eq!(content(&session, "f"), "");
    session.redial().await;
    let id = session.send_command(allow(&question)).await;
    session.resend_command(&id, allow(&question)).await;
    session.send_command(answer(&question, ApprovalDecision::Deny, None, None)).await;
    end(&mut session).await;
    assert_eq!((content(&session, "f").as_str(), session.reviews.len(), questions(&session).len()), ("x\n", 1, 1));
}

#[tokio::test]
async fn reason_of_a_denial_reaches_the_model() {
    let mut session = begin(vec![append(), append()]).await;
    let review = session.until_review(1).await;
    session.settle(&review, Verdict::Deny { reason: "rule `echo *`".into() }).await;
    session.until_review(2).await;
    let question = question(&mut session, 1).await;
    session.send_command(answer(&question, ApprovalDecision::Deny, Some("use a temporary file"), None)).await;
    let request = end(&mut session).await;
    for reason in ["rule `echo *`", "use a temporary file"] {
        assert!(request.contains(&format!("This call was denied and did not run: {reason}")), "{request}");
    }
    let codes: Vec<String> = session
        .observations()
        .iter()
        .filter_map(|observation| match &observation.kind {
            ObservationKind::Error { code, detail } => Some(format!("{code}: {detail}")),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["denied: rule `echo *`", "denied: use a temporary file"]);
    assert_eq!(content(&session, "f"), "");
}

#[tokio::test]
async fn changed_call_runs_in_place_of_the_models() {
    let mut session = begin(vec![append()]).await;
    let question = question(&mut session, 1).await;
    assert!(question.editable);
    let input = Some(json!({ "command": "echo y >> g" }));
    session.send_command(answer(&question, ApprovalDecision::Allow, None, input)).await;
    let request = end(&mut session).await;
    assert_eq!((content(&session, "f").as_str(), content(&session, "g").as_str()), ("", "y\n"));
    assert!(request.contains("The user changed this call before it ran") && request.contains("echo y >> g"));
}

#[tokio::test]
async fn changed_arguments_that_do_not_fit_run_nothing() {
    let mut session = begin(vec![append()]).await;
    let question = question(&mut session, 1).await;
    let input = Some(json!({ "order": "echo y >> g" }));
    session.send_command(answer(&question, ApprovalDecision::Allow, None, input)).await;
    let request = end(&mut session).await;
    assert_eq!((content(&session, "f").as_str(), content(&session, "g").as_str()), ("", ""));
    assert!(request.contains("the user changed this call, so it did not run"), "{request}");
}

#[tokio::test]
async fn edit_is_shown_and_applied_to_the_file_as_it_then_is() {
    let edit = |old: &str, line: &str| {
        call("c1", "edit", json!({ "path": "f", "change": "REPLACE", "old": old, "lines": [line] }))
    };
    let mut session = begin(vec![edit("absent", "x"), edit("b", "x"), edit("c", "y")]).await;
    fs::write(session.agent.file("f"), "a\nb\nc\n").expect("the file is writable");
    let review = session.until_review(1).await;
    session.settle(&review, Verdict::Ask).await;
    session.until_review(2).await;
    assert_eq!(questions(&session).len(), 0, "an edit that would fail asks nobody");
    let first = question(&mut session, 1).await;
    assert_eq!(first.diff.as_deref(), Some("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"));
    assert_eq!(content(&session, "f"), "a\nb\nc\n");
    fs::write(session.agent.file("f"), "new\na\nb\nc\n").expect("the file is writable");
    session.send_command(allow(&first)).await;
    session.until_review(3).await;
    assert_eq!(content(&session, "f"), "new\na\nx\nc\n");
    let second = question(&mut session, 2).await;
    fs::write(session.agent.file("f"), "other\n").expect("the file is writable");
    session.send_command(allow(&second)).await;
    end(&mut session).await;
    assert_eq!(content(&session, "f"), "other\n");
}

#[tokio::test]
async fn long_call_is_abbreviated_and_not_editable() {
    let body = "x".repeat(1 << 17);
    let mut session = begin(vec![call("c1", "write", json!({ "path": "f", "content": body }))]).await;
    let question = question(&mut session, 1).await;
    let Action::Write { path, content: shown } = &question.call else { panic!("{:?}", question.call) };
    assert!(path == "f" && shown.len() < 1 << 15 && !question.editable);
    assert!(question.diff.as_ref().is_some_and(|diff| diff.starts_with("--- /dev/null") && diff.len() < 1 << 16));
    session.send_command(allow(&question)).await;
    end(&mut session).await;
    assert_eq!(content(&session, "f"), body);
}

#[tokio::test]
async fn thousand_calls_in_one_answer_are_reviewed_each() {
    let calls = (0..1000).map(|_| call("c", "read", json!({ "path": "f" }))).collect();
    let answers = vec![Complete(calls), Complete(vec![text("Over.")])];
    let mut session = AgentTestSession::reviewed(AgentProcess::start(answers), Vec::new()).await;
    fs::write(session.agent.file("f"), "a\n").expect("the file is writable");
    session.prompt("t1", "go").await;
    for count in 1..=1000 {
        let review = session.until_review(count).await;
        let verdict = if count % 2 == 0 { Verdict::Allow } else { Verdict::Deny { reason: "odd".into() } };
        session.settle(&review, verdict).await;
    }
    end(&mut session).await;
    let count = |prefix: &str| session.events().iter().filter(|event| event.starts_with(prefix)).count();
    assert_eq!((count("read! "), count("read "), count("error ")), (1000, 500, 500));
}

#[tokio::test]
async fn killed_agent_asks_anew_when_the_model_repeats_the_call() {
    let mut session = begin(vec![append(), append()]).await;
    let before = question(&mut session, 1).await;
    let AgentTestSession { mut agent, .. } = session;
    agent.restart();
    let event = |body: &str| -> Event {
        let json = format!(r#"{{"seq":1,"at":"2026-01-01T00:00:00.000Z",{body}}}"#);
        serde_json::from_str(&json).expect("an event")
    };
    let journal = vec![
        event(r#""source":"user","observation":"chat","extras":{},"content":"go""#),
        event(r#""source":"agent","item":"c1","action":"run","args":{"command":"echo x >> f"}"#),
    ];
    let mut session = AgentTestSession::reviewed(agent, journal).await;
    session.prompt("t1", "go").await;
    // A turn that was begun is not repeated.
    assert!(matches!(session.outcome("t1").await, WorkOutcome::Failed { .. }));
    session.prompt("t2", "go on").await;
    let anew = question(&mut session, 1).await;
    assert_ne!(anew.request, before.request);
    assert_eq!(content(&session, "f"), "");
    session.send_command(allow(&before)).await;
    session.send_command(allow(&anew)).await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    assert_eq!(content(&session, "f"), "x\n");
}

#[tokio::test]
async fn user_actions_are_not_reviewed() {
    let mut session = AgentTestSession::reviewed(AgentProcess::start(Vec::new()), Vec::new()).await;
    session.agent.settings.mode = Some(ApprovalMode::Plan);
    session.user_action("a1", Action::Run { command: "echo x >> f".into() }).await;
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
    session.user_action("a2", Action::Write { path: "g".into(), content: "y".into() }).await;
    assert_eq!(session.outcome("a2").await, WorkOutcome::Done);
    assert_eq!((content(&session, "f").as_str(), content(&session, "g").as_str()), ("x\n", "y"));
    assert!(session.reviews.is_empty());
}

#[tokio::test]
async fn plan_mode_instructs_the_model_and_denials_do_not_spin() {
    let mut agent =
        AgentProcess::start((0..6).map(|_| Complete(vec![append()])).chain([Complete(vec![text("Over.")])]).collect());
    agent.settings.mode = Some(ApprovalMode::Plan);
    let mut session = AgentTestSession::reviewed(agent, Vec::new()).await;
    session.prompt("t1", "go").await;
    for count in 1..=6 {
        let review = session.until_review(count).await;
        if count == 6 {
            session.agent.settings.mode = Some(ApprovalMode::Auto);
            let settings = session.agent.settings.clone();
            session.send_command(AgentCommand::Settings(settings)).await;
        }
        session.settle(&review, Verdict::Deny { reason: "plan mode".into() }).await;
    }
    end(&mut session).await;
    let requests = session.agent.gateway.requests();
    let is_planning = |request: &Value| request["system"].to_string().contains("# Plan mode");
    assert_eq!(requests.iter().map(is_planning).collect::<Vec<_>>(), [true, true, true, true, true, true, false]);
    assert!(!requests[4].to_string().contains("times in a row"));
    assert!(requests[5].to_string().contains("This very call has failed 5 times in a row"));
}
