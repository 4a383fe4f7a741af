//! Promises of the link, over any sequence of connections.

use greenroom_protocol::{
    Action, ObservationKind,
    link::{AgentCommand, AgentReport, FromAgent, ServerWelcome, ToAgent, WorkOutcome},
};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    agent::AgentProcess,
    gateway::{ScriptedAnswer::Complete, call, text},
    session::AgentTestSession,
};

#[tokio::test]
async fn reports_arrive_exactly_once_over_cut_links() {
    let step = |n: usize| {
        let command = format!("for i in 1 2 3 4 5 6 7 8; do echo {n}-$i; sleep 0.002; done");
        Complete(vec![text(&format!("Step {n}.")), call("call", "run", json!({ "command": command }))])
    };
    let steps = 12;
    let mut session =
        AgentTestSession::open((0..steps).map(step).chain([Complete(vec![text("Over.")])]).collect()).await;
    session.prompt("t1", "go").await;
    // Cuts after 1, 2, 3 … frames fall into every kind of moment. `step` and `redial` check each
    // frame.
    let mut frames = 0;
    while !matches!(session.reports.last(), Some(AgentReport::TurnEnded { .. })) {
        frames += 1;
        for _ in 0..frames % 9 + 1 {
            if matches!(session.reports.last(), Some(AgentReport::TurnEnded { .. })) {
                break;
            }
            session.step().await;
        }
        session.redial().await;
    }
    let messages: Vec<String> = session.events().into_iter().filter(|event| event.starts_with("message")).collect();
    let expected: Vec<String> =
        (0..steps).map(|n| format!("message _: Step {n}.")).chain(["message _: Over.".into()]).collect();
    assert_eq!(messages, expected);
    let outputs: Vec<String> = session
        .observations()
        .iter()
        .filter(|observation| observation.name() == "run")
        .map(|observation| observation.content.clone())
        .collect();
    let output = |n| (1..=8).map(|i| format!("{n}-{i}\n")).collect::<String>();
    assert_eq!(outputs, (0..steps).map(output).collect::<Vec<_>>());
}

#[tokio::test]
async fn work_continues_without_a_link() {
    let mut session = AgentTestSession::open(vec![
        Complete(vec![call("c1", "run", json!({ "command": "until [ -e go ]; do sleep 0.01; done; touch went" }))]),
        Complete(vec![text("Over.")]),
    ])
    .await;
    session.prompt("t1", "go").await;
    session.until(|session| session.events().contains(&"run! c1".to_owned())).await;
    let AgentTestSession { agent, reports, .. } = session;
    std::fs::write(agent.file("go"), "").expect("the file is writable");
    while agent.gateway.requests().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let mut link = agent.dial().await;
    let FromAgent::Hello(hello) = link.receive().await else { panic!("no hello") };
    assert!(hello.last_n > reports.len() as u64);
    let (acked, settings) = (reports.len() as u64, agent.settings.clone());
    link.send(&ToAgent::Welcome(ServerWelcome {
        session: "s".into(),
        acked,
        restore: false,
        settings,
        reviews: false,
    }))
    .await;
    let mut next = acked;
    loop {
        if let FromAgent::Report { n, report } = link.receive().await {
            next += 1;
            assert_eq!(n, next);
            if let AgentReport::TurnEnded { outcome, .. } = report {
                break assert_eq!(outcome, WorkOutcome::Done);
            }
        }
    }
}

#[tokio::test]
async fn repeated_command_acts_once() {
    let mut session = AgentTestSession::open(vec![]).await;
    let command =
        || AgentCommand::UserAction { user_action: "a1".into(), action: Action::Run { command: "echo x >> f".into() } };
    let id = session.send_command(command()).await;
    session.resend_command(&id, command()).await;
    session.outcome("a1").await;
    session.redial().await;
    session.resend_command(&id, command()).await;
    session.user_action("a2", Action::Read { path: "f".into() }).await;
    session.outcome("a2").await;
    assert_eq!(session.events(), ["run a1: [0] ", "read a2: x\n"]);
    assert!(session.taken.iter().filter(|taken| **taken == id).count() >= 2, "{:?}", session.taken);
}

/// The server is killed before it receives the action's begin. The agent is killed before it can
/// repeat its report.
#[tokio::test]
async fn user_action_is_not_repeated_after_agent_restart() {
    let mut session = AgentTestSession::open(vec![]).await;
    let command =
        || AgentCommand::UserAction { user_action: "a1".into(), action: Action::Run { command: "echo x >> f".into() } };
    session.send_command(command()).await;
    session.outcome("a1").await;
    let AgentTestSession { mut agent, .. } = session;
    agent.restart();
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.send_command(command()).await;
    let outcome = session.outcome("a1").await;
    assert!(matches!(&outcome, WorkOutcome::Failed { code, .. } if code == "agent_restarted"), "{outcome:?}");
    assert!(session.observations().iter().any(
        |observation| matches!(&observation.kind, ObservationKind::Error { code, .. } if code == "agent_restarted")
    ));
    session.user_action("a2", Action::Read { path: "f".into() }).await;
    session.outcome("a2").await;
    assert_eq!(session.events().last().map(String::as_str), Some("read a2: x\n"));
}

/// The tool calls of the turn may be done already.
#[tokio::test]
async fn turn_is_not_repeated_after_agent_restart() {
    let mut session = AgentTestSession::open(vec![Complete(vec![text("Hello.")]), Complete(vec![text("Yes.")])]).await;
    let prompt = || AgentCommand::Prompt { turn: "t1".into(), content: "hello".into(), attachments: vec![] };
    session.send_command(prompt()).await;
    session.outcome("t1").await;
    let AgentTestSession { mut agent, .. } = session;
    agent.restart();
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.send_command(prompt()).await;
    let outcome = session.outcome("t1").await;
    assert!(matches!(&outcome, WorkOutcome::Failed { code, .. } if code == "agent_restarted"), "{outcome:?}");
    assert!(session.events().is_empty(), "{:?}", session.events());
    session.prompt("t2", "do you hear me?").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    let requests = session.agent.gateway.requests();
    let sent = requests.last().expect("two requests")["messages"].to_string();
    assert!(requests.len() == 2 && sent.contains(r"hello\n\ndo you hear me?"), "the message is missing: {sent}");
}

#[tokio::test]
async fn newest_connection_wins() {
    let mut session = AgentTestSession::open(vec![]).await;
    let mut newer = session.agent.dial().await;
    assert!(matches!(newer.receive().await, FromAgent::Hello(_)));
    assert!(session.link.message().await.is_none());
}

#[tokio::test]
async fn invalid_frame_closes_connection_with_reason() {
    let mut session = AgentTestSession::open(vec![]).await;
    for (garbage, reason) in [
        ("{", "invalid frame"),
        (r#"{"frame":"song"}"#, "unknown variant `song`"),
        (r#"{"frame":"command","id":"1","command":"cancel"}"#, "unexpected frame `command`"),
    ] {
        let mut link = session.agent.dial().await;
        assert!(matches!(link.receive().await, FromAgent::Hello(_)));
        link.send_text(garbage).await;
        let Some(Message::Close(Some(close))) = link.message().await else { panic!("no reason for {garbage}") };
        assert!(close.reason.contains(reason), "{}", close.reason);
    }
    session.redial().await;
    session.user_action("a1", Action::Run { command: "echo fine".into() }).await;
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
}

/// The server may have written its welcome and the history into a socket that was cut.
#[tokio::test]
async fn lost_welcome_gets_new_boot_id() {
    let agent = AgentProcess::start(vec![]);
    let FromAgent::Hello(first) = agent.dial().await.receive().await else { panic!("no hello") };
    let FromAgent::Hello(second) = agent.dial().await.receive().await else { panic!("no hello") };
    assert_ne!(first.boot, second.boot);
}

#[tokio::test]
async fn cut_history_gets_new_boot_id() {
    let agent = AgentProcess::start(vec![]);
    let mut link = agent.dial().await;
    let FromAgent::Hello(first) = link.receive().await else { panic!("no hello") };
    let settings = agent.settings.clone();
    link.send(&ToAgent::Welcome(ServerWelcome {
        session: "s".into(),
        acked: 0,
        restore: true,
        settings,
        reviews: false,
    }))
    .await;
    link.send(&ToAgent::History { events: vec![], complete: false }).await;
    // The agent answers a ping in order, so it has read the frames before.
    link.ping().await;
    let mut link = agent.dial().await;
    let FromAgent::Hello(second) = link.receive().await else { panic!("no hello") };
    assert_ne!(first.boot, second.boot);
}
