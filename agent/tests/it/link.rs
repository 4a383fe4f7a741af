//! What the link promises, whatever happens to connections.

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
async fn reports_come_once_and_in_order_over_cut_links() {
    let step = |n: usize| {
        let command = format!("for i in 1 2 3 4 5 6 7 8; do echo {n}-$i; sleep 0.002; done");
        Complete(vec![text(&format!("Step {n}.")), call("call", "run", json!({ "command": command }))])
    };
    let steps = 12;
    let mut session =
        AgentTestSession::open((0..steps).map(step).chain([Complete(vec![text("Over.")])]).collect()).await;
    session.prompt("t1", "go").await;
    // A cut after 1, 2, 3 … frames falls into every kind of moment; `step` and `redial` check each frame.
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
    let said: Vec<String> = session.events().into_iter().filter(|event| event.starts_with("message")).collect();
    let expected: Vec<String> =
        (0..steps).map(|n| format!("message _: Step {n}.")).chain(["message _: Over.".into()]).collect();
    assert_eq!(said, expected);
    let outputs: Vec<String> =
        session.observations().iter().filter(|seen| seen.name() == "run").map(|seen| seen.content.clone()).collect();
    let output = |n| (1..=8).map(|i| format!("{n}-{i}\n")).collect::<String>();
    assert_eq!(outputs, (0..steps).map(output).collect::<Vec<_>>());
}

#[tokio::test]
async fn work_goes_on_without_a_link() {
    let mut session = AgentTestSession::open(vec![
        Complete(vec![call("c1", "run", json!({ "command": "until [ -e go ]; do sleep 0.01; done; touch went" }))]),
        Complete(vec![text("Over.")]),
    ])
    .await;
    session.prompt("t1", "go").await;
    session.until(|session| session.events().contains(&"run! c1".to_owned())).await;
    let AgentTestSession { agent, reports, .. } = session;
    std::fs::write(agent.file("go"), "").expect("it is written");
    while agent.gateway.requests().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let mut link = agent.dial().await;
    let FromAgent::Hello(hello) = link.receive().await else { panic!("no hello") };
    assert!(hello.last_n > reports.len() as u64);
    let (acked, settings) = (reports.len() as u64, agent.settings.clone());
    link.send(&ToAgent::Welcome(ServerWelcome { session: "s".into(), acked, restore: false, settings })).await;
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
async fn a_command_that_comes_twice_acts_once() {
    let mut session = AgentTestSession::open(vec![]).await;
    let act =
        || AgentCommand::UserAction { user_action: "a1".into(), action: Action::Run { command: "echo x >> f".into() } };
    let id = session.send_command(act()).await;
    session.resend_command(&id, act()).await;
    session.outcome("a1").await;
    session.redial().await;
    session.resend_command(&id, act()).await;
    session.user_action("a2", Action::Read { path: "f".into() }).await;
    session.outcome("a2").await;
    assert_eq!(session.events(), ["run a1: [0] ", "read a2: x\n"]);
    assert!(session.taken.iter().filter(|taken| **taken == id).count() >= 2, "{:?}", session.taken);
}

/// The server was killed before it knew that the act had begun, and the agent before it could say so again.
#[tokio::test]
async fn an_act_that_comes_again_to_another_start_of_the_agent_is_not_done_twice() {
    let mut session = AgentTestSession::open(vec![]).await;
    let act =
        || AgentCommand::UserAction { user_action: "a1".into(), action: Action::Run { command: "echo x >> f".into() } };
    session.send_command(act()).await;
    session.outcome("a1").await;
    let AgentTestSession { mut agent, .. } = session;
    agent.start_again();
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.send_command(act()).await;
    let outcome = session.outcome("a1").await;
    assert!(matches!(&outcome, WorkOutcome::Failed { code, .. } if code == "agent_restarted"), "{outcome:?}");
    assert!(
        session
            .observations()
            .iter()
            .any(|seen| matches!(&seen.kind, ObservationKind::Error { code, .. } if code == "agent_restarted"))
    );
    session.user_action("a2", Action::Read { path: "f".into() }).await;
    session.outcome("a2").await;
    assert_eq!(session.events().last().map(String::as_str), Some("read a2: x\n"));
}

/// What the model has the agent do then may be done already.
#[tokio::test]
async fn a_turn_that_comes_again_to_another_start_of_the_agent_is_not_done_twice() {
    let mut session = AgentTestSession::open(vec![Complete(vec![text("Hello.")]), Complete(vec![text("Yes.")])]).await;
    let prompt = || AgentCommand::Prompt { turn: "t1".into(), content: "hello".into(), attachments: vec![] };
    session.send_command(prompt()).await;
    session.outcome("t1").await;
    let AgentTestSession { mut agent, .. } = session;
    agent.start_again();
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.send_command(prompt()).await;
    let outcome = session.outcome("t1").await;
    assert!(matches!(&outcome, WorkOutcome::Failed { code, .. } if code == "agent_restarted"), "{outcome:?}");
    assert!(session.events().is_empty(), "{:?}", session.events());
    session.prompt("t2", "do you hear me?").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    let requests = session.agent.gateway.requests();
    let told = requests.last().expect("two requests")["messages"].to_string();
    assert!(requests.len() == 2 && told.contains(r"hello\n\ndo you hear me?"), "the model has heard it: {told}");
}

#[tokio::test]
async fn the_newest_connection_wins() {
    let mut session = AgentTestSession::open(vec![]).await;
    let mut newer = session.agent.dial().await;
    assert!(matches!(newer.receive().await, FromAgent::Hello(_)));
    assert!(session.link.message().await.is_none());
}

#[tokio::test]
async fn what_is_no_frame_closes_its_connection_with_a_reason() {
    let mut session = AgentTestSession::open(vec![]).await;
    for (garbage, reason) in [
        ("{", "not a frame of this link"),
        (r#"{"frame":"song"}"#, "unknown variant `song`"),
        (r#"{"frame":"command","id":"1","command":"cancel"}"#, "`command` has no place here"),
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

/// The server may have written its welcome, and the history, into a socket that was cut.
#[tokio::test]
async fn a_welcome_that_did_not_come_is_asked_for_again() {
    let agent = AgentProcess::start(vec![]);
    let FromAgent::Hello(first) = agent.dial().await.receive().await else { panic!("no hello") };
    let FromAgent::Hello(second) = agent.dial().await.receive().await else { panic!("no hello") };
    assert_ne!(first.boot, second.boot);
}

#[tokio::test]
async fn a_history_that_was_cut_is_asked_for_again() {
    let agent = AgentProcess::start(vec![]);
    let mut link = agent.dial().await;
    let FromAgent::Hello(first) = link.receive().await else { panic!("no hello") };
    let settings = agent.settings.clone();
    link.send(&ToAgent::Welcome(ServerWelcome { session: "s".into(), acked: 0, restore: true, settings })).await;
    link.send(&ToAgent::History { events: vec![], complete: false }).await;
    // The agent answers a ping in order, so it has read what came before.
    link.ping().await;
    let mut link = agent.dial().await;
    let FromAgent::Hello(second) = link.receive().await else { panic!("no hello") };
    assert_ne!(first.boot, second.boot);
}
