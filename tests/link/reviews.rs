//! Reviews of tool calls over the link: repeated after a cut, and pending while other frames pass.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use greenroom::{
    approvals::{Analyzer, AssessedCall},
    session::{
        Session, SessionPolicy,
        messages::{Interrupt, Relay},
    },
    store::in_memory::MemoryStore,
};
use greenroom_protocol::{
    Action, Observation, ObservationKind,
    approval::{ReviewRequest, ReviewVerdict, RiskAssessment, Verdict},
    client::ClientRequest,
    link::{AgentCommand, AgentReport, CommandFrame, FromAgent, ToAgent},
};

use crate::{
    LinkHistories,
    scripted::{ScriptedLinkAgent, session},
};

/// Analyzer that never answers.
#[derive(Debug)]
struct HangingAnalyzer;

impl Analyzer for HangingAnalyzer {
    fn name(&self) -> &'static str {
        "hanging"
    }

    fn assess(&self, _: AssessedCall<'_>) -> BoxFuture<'static, RiskAssessment> {
        futures::future::pending().boxed()
    }
}

fn review(id: &str) -> FromAgent {
    let action = Action::Run { command: "ls".into() };
    FromAgent::Review(ReviewRequest { id: id.to_owned(), item: Some("i".into()), action })
}

/// Starts a turn of the agent.
async fn start_turn(session: &actix::Addr<Session>, agent: &mut ScriptedLinkAgent) {
    let request = ClientRequest::Start { task: "go".into() };
    let start = Relay { request, idempotency_key: None, requested_by: None };
    session.send(start).await.expect("the session runs").expect("the task is accepted");
    let prompt = agent.receive("the prompt").await;
    let ToAgent::Command(CommandFrame { id, command: AgentCommand::Prompt { .. } }) = prompt else {
        panic!("the first command is no prompt: {prompt:?}")
    };
    agent.say(&FromAgent::Taken { command: id }).await;
}

/// Returns the next frame that is neither an acknowledgement nor a hint.
async fn next_frame(agent: &mut ScriptedLinkAgent, what: &str) -> ToAgent {
    loop {
        match agent.receive(what).await {
            ToAgent::Ack { .. } | ToAgent::CancelHint(_) => {}
            other => return other,
        }
    }
}

#[actix::test]
async fn repeated_review_gets_the_same_verdict() {
    let histories = LinkHistories::new(Arc::new(MemoryStore::new()));
    let (session, listener) = session(&histories).await;
    let mut agent = ScriptedLinkAgent::meet(&listener, "b").await;
    agent.history().await;
    start_turn(&session, &mut agent).await;
    let allowed = || ToAgent::Verdict(ReviewVerdict { id: "v".into(), verdict: Verdict::Allow });
    agent.say(&review("v")).await;
    assert_eq!(next_frame(&mut agent, "the verdict").await, allowed());
    drop(agent);
    let mut agent = ScriptedLinkAgent::meet(&listener, "b").await;
    let welcome = agent.receive("the welcome").await;
    assert!(matches!(&welcome, ToAgent::Welcome(welcome) if welcome.reviews && !welcome.restore), "{welcome:?}");
    agent.say(&review("v")).await;
    assert_eq!(next_frame(&mut agent, "the verdict").await, allowed());
}

#[actix::test]
async fn pending_reviews_delay_neither_reports_nor_interrupts() {
    let policy = SessionPolicy {
        default_analyzer: "hanging".to_owned(),
        analyzer: Box::new(|_| Ok(Some(Arc::new(HangingAnalyzer)))),
        ..SessionPolicy::default()
    };
    let histories = LinkHistories::with_policy(Arc::new(MemoryStore::new()), policy);
    let (session, listener) = session(&histories).await;
    let mut agent = ScriptedLinkAgent::meet(&listener, "b").await;
    agent.history().await;
    start_turn(&session, &mut agent).await;
    // One less than the link reads without a verdict.
    for n in 0..63 {
        agent.say(&review(&n.to_string())).await;
    }
    let thought = Observation { kind: ObservationKind::Think { partial: false }, content: "hm".into() };
    let report = AgentReport::Event { item: Some("t".into()), body: thought.into() };
    agent.say(&FromAgent::Report { n: 1, report }).await;
    assert_eq!(agent.receive("the acknowledgement").await, ToAgent::Ack { n: 1 });
    // At the bound, the link reads no more, and still delivers what ends the reviews.
    for n in 63..80 {
        agent.say(&review(&n.to_string())).await;
    }
    session.send(Interrupt::default()).await.expect("the session runs").expect("the interrupt is accepted");
    let (mut verdicts, mut cancelled) = (0, false);
    while verdicts < 80 || !cancelled {
        match next_frame(&mut agent, "the verdicts and the cancel").await {
            ToAgent::Verdict(ReviewVerdict { verdict: Verdict::Deny { .. }, .. }) => verdicts += 1,
            ToAgent::Command(CommandFrame { command: AgentCommand::Cancel {}, .. }) => cancelled = true,
            ToAgent::Command(CommandFrame { command: AgentCommand::KillProcesses {}, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
