//! Agents whose server does not return in time.

use greenroom_protocol::{
    Action,
    link::{FromAgent, ORPHANED_EXIT_CODE, ServerWelcome, ToAgent, WorkOutcome},
};

use crate::{agent::AgentProcess, session::AgentTestSession};

/// Returns a session whose agent has ended during a user action, after another one.
async fn orphaned() -> AgentTestSession {
    let mut agent = AgentProcess::start(Vec::new());
    agent.settings.orphan_after_s = Some(1);
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.user_action("act-1", Action::Run { command: "true".into() }).await;
    assert_eq!(session.outcome("act-1").await, WorkOutcome::Done);
    session.user_action("act-2", Action::Run { command: "echo begun; sleep 1000".into() }).await;
    session.output_after("begun").await;
    session.link.close().await;
    let status = session.agent.process.wait().expect("the agent is a child");
    assert_eq!(status.code(), Some(ORPHANED_EXIT_CODE.into()));
    session
}

/// Waits for the end of the connection. Returns the `hello` of the next one.
async fn next_boot(session: &mut AgentTestSession) -> String {
    assert!(session.link.message().await.is_none(), "the connection ends with the delivery");
    session.link = session.agent.dial().await;
    let FromAgent::Hello(hello) = session.link.receive().await else { panic!("the first frame is no hello") };
    assert_eq!((hello.last_n, hello.turn), (0, None));
    hello.boot
}

#[tokio::test]
async fn next_server_gets_reports_of_orphaned_agent() {
    let mut session = orphaned().await;
    session.agent.restart();
    let before = session.hello.boot.clone();
    session.redial().await;
    let outcome = session.outcome("act-2").await;
    assert!(matches!(outcome, WorkOutcome::Cancelled { partial: true, .. }), "{outcome:?}");
    let events = session.events();
    assert!(events.iter().any(|event| event.contains("`sandbox.orphan_after`")), "{events:?}");
    assert!(events.iter().any(|event| event.contains("[killed] begun")), "{events:?}");
    assert_ne!(next_boot(&mut session).await, before);
    session.agent.restart();
    session.link = session.agent.dial().await;
    let FromAgent::Hello(hello) = session.link.receive().await else { panic!("the first frame is no hello") };
    assert_ne!(hello.boot, before, "delivered reports are not sent again");
}

/// Covers a journal that was restored from a backup.
#[tokio::test]
async fn reports_that_server_does_not_expect_are_dropped() {
    let mut session = orphaned().await;
    session.agent.restart();
    session.link = session.agent.dial().await;
    let FromAgent::Hello(hello) = session.link.receive().await else { panic!("the first frame is no hello") };
    assert_eq!(hello.boot, session.hello.boot);
    let settings = session.agent.settings.clone();
    let welcome = ServerWelcome { session: "s".into(), acked: 0, restore: true, settings, reviews: false };
    session.link.send(&ToAgent::Welcome(welcome)).await;
    assert_ne!(next_boot(&mut session).await, hello.boot);
}

#[tokio::test]
async fn agent_with_server_does_not_end() {
    let mut agent = AgentProcess::start(Vec::new());
    agent.settings.orphan_after_s = Some(0);
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.user_action("act-1", Action::Run { command: "sleep 0.3".into() }).await;
    assert_eq!(session.outcome("act-1").await, WorkOutcome::Done);
}
