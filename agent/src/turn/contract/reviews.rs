//! Rules about tool calls that the server reviews.

use std::path::Path;

use greenroom_protocol::{
    action::ApprovalDecision,
    approval::{ReviewRequest, ReviewVerdict, Verdict},
    link::{AgentCommand, WorkOutcome},
};

use super::{ContractAgent, MakeDriver, ScriptedTurn};

/// File that a reviewed call makes.
const MARK: &str = "mark";

const TURNS: [ScriptedTurn; 2] = [ScriptedTurn::Makes(MARK), ScriptedTurn::Says("two")];

impl ContractAgent {
    /// Starts an agent whose server reviews tool calls, and the turn `t1` with a call. Also returns
    /// the program.
    fn start_call(dir: &Path, make: MakeDriver) -> (ContractAgent, impl Fn() -> String + use<>) {
        let driver = make(dir, &TURNS);
        let mut agent = ContractAgent::start_with(dir, driver.open, true);
        agent.prompt("t1", "go");
        // The program ends when `heard` is dropped.
        (agent, driver.heard)
    }

    async fn until_review(&mut self) -> ReviewRequest {
        let before = self.reviews.len();
        while self.reviews.len() == before {
            self.receive().await;
        }
        self.reviews[before].clone()
    }

    fn settle(&self, review: &ReviewRequest, verdict: Verdict) {
        self.outgoing.settle_review(ReviewVerdict { id: review.id.clone(), verdict });
    }

    /// Interrupts `t1` and asserts that nothing was made, not even by a late decision.
    async fn assert_withdrawn(&mut self, dir: &Path, late_decision: impl FnOnce(&mut ContractAgent)) {
        self.send(AgentCommand::Cancel {});
        let outcome = self.outcome("t1").await;
        assert!(matches!(outcome, WorkOutcome::Cancelled { .. }), "{outcome:?}");
        late_decision(self);
        let reviews = self.reviews.len();
        self.outgoing.disconnect();
        self.outgoing.connect(self.reports.len() as u64, true);
        self.prompt("t2", "second");
        assert_eq!(self.outcome("t2").await, WorkOutcome::Done);
        assert_eq!(self.reviews.len(), reviews, "a withdrawn review came again");
        assert!(!dir.join(MARK).exists(), "the call ran");
    }
}

pub(super) async fn denied_call_never_runs(dir: &Path, make: MakeDriver) {
    let (mut agent, _program) = ContractAgent::start_call(dir, make);
    let review = agent.until_review().await;
    agent.settle(&review, Verdict::Deny { reason: "not here".into() });
    assert_eq!(agent.outcome("t1").await, WorkOutcome::Done);
    assert!(!dir.join(MARK).exists(), "the call ran");
}

pub(super) async fn asked_call_runs_only_after_allow(dir: &Path, make: MakeDriver) {
    for (decision, runs) in [(ApprovalDecision::Deny, false), (ApprovalDecision::Allow, true)] {
        let dir = &dir.join(format!("{decision:?}"));
        std::fs::create_dir(dir).expect("a directory");
        let (mut agent, _program) = ContractAgent::start_call(dir, make);
        let review = agent.until_review().await;
        assert!(!dir.join(MARK).exists(), "the call ran before its verdict");
        agent.settle(&review, Verdict::Ask);
        let requests = agent.until_asked(1).await;
        assert!(!dir.join(MARK).exists(), "the call ran before the answer");
        agent.answer(&requests[0], decision);
        assert_eq!(agent.outcome("t1").await, WorkOutcome::Done);
        assert_eq!(dir.join(MARK).exists(), runs);
    }
}

pub(super) async fn interrupt_withdraws_review(dir: &Path, make: MakeDriver) {
    let (mut agent, _program) = ContractAgent::start_call(dir, make);
    let review = agent.until_review().await;
    agent.assert_withdrawn(dir, |agent| agent.settle(&review, Verdict::Allow)).await;
}

pub(super) async fn interrupt_withdraws_question(dir: &Path, make: MakeDriver) {
    let (mut agent, _program) = ContractAgent::start_call(dir, make);
    let review = agent.until_review().await;
    agent.settle(&review, Verdict::Ask);
    let requests = agent.until_asked(1).await;
    agent.assert_withdrawn(dir, |agent| agent.answer(&requests[0], ApprovalDecision::Allow)).await;
}

pub(super) async fn reconnect_repeats_review(dir: &Path, make: MakeDriver) {
    let (mut agent, _program) = ContractAgent::start_call(dir, make);
    let review = agent.until_review().await;
    for _ in 0..2 {
        agent.outgoing.disconnect();
        agent.outgoing.connect(agent.reports.len() as u64, true);
        assert_eq!(agent.until_review().await, review);
    }
    assert!(!dir.join(MARK).exists(), "the call ran before its verdict");
    agent.settle(&review, Verdict::Allow);
    assert_eq!(agent.outcome("t1").await, WorkOutcome::Done);
    assert!(dir.join(MARK).exists());
}
