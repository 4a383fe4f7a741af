//! Fixture: a session with a running turn, an analyzer that judges by one word, and a project.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use actix::prelude::*;
use futures::FutureExt;
use greenroom_protocol::{
    EventBody,
    action::ApprovalDecision,
    approval::{ReviewRequest, RiskLevel},
    client::ClientRequest,
    link::{AgentCommand, AgentReport},
};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::*;
use crate::{
    approvals::{ApprovalRule, RuleAction},
    config::LoopLimits,
    session::{
        ProjectRuleStore, Session, SessionDeps, SessionPolicy,
        effect::{AgentDelivery, Effect},
        messages::{DurableReply, Relay, Reported, RequestResult, ReviewToolCall, SessionStopReason},
        testkit,
    },
    store::{ReadLimit, SessionId, SessionRecord, Store, in_memory::MemoryStore},
};

/// Returns a `run` call.
pub(super) fn run(command: &str) -> Action {
    Action::Run { command: command.to_owned() }
}

/// Returns the client request that allows once.
pub(super) fn allow(request: &str) -> ClientRequest {
    ClientRequest::Confirm {
        request: request.to_owned(),
        decision: ApprovalDecision::Allow,
        reason: None,
        choice: None,
        input: None,
    }
}

/// Returns the rule that is proposed for a command.
pub(super) fn rule_for(command: &str) -> ApprovalRule {
    ApprovalRule {
        tool: None,
        command: Some(command.to_owned()),
        path: None,
        host: None,
        agent: None,
        action: RuleAction::Allow,
        reason: None,
    }
}

/// Judges commands with the word `danger` as high, and never answers about `hang`.
#[derive(Debug, Default)]
struct WordAnalyzer {
    assessed: AtomicUsize,
}

impl Analyzer for WordAnalyzer {
    fn name(&self) -> &'static str {
        "test"
    }

    fn assess(&self, AssessedCall { call, .. }: AssessedCall<'_>) -> BoxFuture<'static, RiskAssessment> {
        self.assessed.fetch_add(1, SeqCst);
        let call = call.summary_line();
        if call.contains("hang") {
            return futures::future::pending().boxed();
        }
        let (level, reason) =
            if call.contains("danger") { (RiskLevel::High, "dangerous") } else { (RiskLevel::Low, "harmless") };
        let risk = RiskAssessment { level, reasons: vec![reason.to_owned()], analyzer: "test".to_owned() };
        async move { risk }.boxed()
    }
}

/// Project rules in memory.
#[derive(Default)]
struct MemoryProjectRules {
    rules: Mutex<Vec<ApprovalRule>>,
    fails: AtomicBool,
}

impl ProjectRuleStore for MemoryProjectRules {
    fn rules(&self, _: &str) -> Arc<[ApprovalRule]> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone().into()
    }

    fn add(&self, _: &str, rule: ApprovalRule) -> BoxFuture<'static, Result<(), String>> {
        if self.fails.load(SeqCst) {
            return async { Err("the disk is full".to_owned()) }.boxed();
        }
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
        async { Ok(()) }.boxed()
    }
}

/// Link that keeps the commands to the agent.
struct CommandRecorder {
    commands: Arc<Mutex<Vec<AgentCommand>>>,
    arrived: Arc<Notify>,
}

impl Actor for CommandRecorder {
    type Context = Context<CommandRecorder>;
}

impl Handler<Effect> for CommandRecorder {
    type Result = ();

    fn handle(&mut self, effect: Effect, _: &mut Context<CommandRecorder>) {
        if let Effect::DeliverToAgent(AgentDelivery::Command(frame)) = effect {
            self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(frame.command);
            self.arrived.notify_one();
        }
    }
}

pub(super) struct ApprovalFixture {
    store: Arc<MemoryStore>,
    id: SessionId,
    pub(super) session: Addr<Session>,
    deps: Arc<SessionDeps>,
    analyzer: Arc<WordAnalyzer>,
    project: Arc<MemoryProjectRules>,
    commands: Arc<Mutex<Vec<AgentCommand>>>,
    arrived: Arc<Notify>,
    /// Number of the newest report.
    n: u64,
    /// Number of calls that [`ApprovalFixture::repeat`] has reported.
    repeated: usize,
}

impl ApprovalFixture {
    /// Creates a session in this mode, whose agent has a turn.
    pub(super) async fn in_mode(mode: ApprovalMode) -> ApprovalFixture {
        ApprovalFixture::new(mode, Duration::ZERO).await
    }

    pub(super) async fn new(mode: ApprovalMode, timeout: Duration) -> ApprovalFixture {
        let (store, analyzer) = (Arc::new(MemoryStore::new()), Arc::new(WordAnalyzer::default()));
        let (project, commands) = (Arc::new(MemoryProjectRules::default()), Arc::<Mutex<Vec<_>>>::default());
        let arrived = Arc::<Notify>::default();
        let (test_analyzer, project_rules) = (analyzer.clone(), project.clone());
        let policy = SessionPolicy {
            default_mode: mode,
            default_analyzer: "test".to_owned(),
            analyzer: Box::new(move |name| match name {
                "none" => Ok(None),
                "test" => Ok(Some(test_analyzer.clone())),
                other => Err(format!("no analyzer `{other}`")),
            }),
            project_of: Box::new(|_| Some("/src".to_owned())),
            project_rules,
            propose_rule: |call, _| match call {
                Action::Run { command } => Some(rule_for(command)),
                _ => None,
            },
            rules: vec![ApprovalRule { action: RuleAction::Deny, ..rule_for("forbidden") }],
            timeout,
            loops: LoopLimits { same_call: 3, alternations: 3, same_error: 5, steps_without_change: 50 },
        };
        let (recorded, arrivals) = (commands.clone(), arrived.clone());
        let make_link: Box<crate::session::LinkFactory> = Box::new(move |_, _, _| {
            let recorder = CommandRecorder { commands: recorded.clone(), arrived: arrivals.clone() };
            testkit::link_port(recorder.start().recipient())
        });
        let (policy, make_link) = (Arc::new(policy), Arc::new(make_link));
        let deps_of = move |deps: SessionDeps| {
            let make_link = make_link.clone();
            let make_link: Box<crate::session::LinkFactory> =
                Box::new(move |session, record, budget| make_link(session, record, budget));
            SessionDeps { policy: policy.clone(), make_link, ..deps }
        };
        let deps = Arc::new(deps_of(testkit::session_deps(store.clone(), Default::default())));
        let (id, session) = testkit::idle_session_with(store.clone(), deps_of).await;
        let fixture =
            ApprovalFixture { store, id, session, deps, analyzer, project, commands, arrived, n: 0, repeated: 0 };
        fixture.confirmed_as(ClientRequest::Start { task: "work".into() }, "me").await.expect("the task starts");
        // Taken, so that the turn is the agent's.
        let taken = crate::session::messages::CommandAccepted { command: "command-3".to_owned() };
        fixture.session.send(taken).await.expect("session actor is running");
        fixture
    }

    pub(super) async fn hello(&mut self, boot: &str) {
        self.session.send(testkit::hello(boot)).await.expect("session actor is running").expect("hello is accepted");
    }

    /// Kills the actor and starts another from the journal. The agent keeps its boot.
    pub(super) async fn restart(&mut self) {
        let (epoch, snapshot) = self.store.claim(self.id).await.expect("session exists");
        let after = Some(SessionStopReason::JournalRejected);
        self.session = Session::start_from(self.deps.clone(), epoch, snapshot, after).expect("the state is readable");
        self.hello("b").await;
    }

    pub(super) async fn review(&self, id: &str, item: &str, action: Action) -> Verdict {
        self.begin_review(id, item, action).await.expect("session actor is running")
    }

    pub(super) fn begin_review(&self, id: &str, item: &str, action: Action) -> Request<Session, ReviewToolCall> {
        let review = ReviewRequest { id: id.to_owned(), item: Some(item.to_owned()), action };
        self.session.send(ReviewToolCall { review })
    }

    /// Sends a report. Returns when it is on disk.
    pub(super) async fn report(&mut self, item: &str, body: Value) {
        self.begin_report(item, body).await.expect("reply arrives").expect("report number follows the newest");
    }

    pub(super) fn begin_report(
        &mut self,
        item: &str,
        body: Value,
    ) -> oneshot::Receiver<Result<(), crate::session::messages::OutOfOrder>> {
        self.n += 1;
        let body: EventBody = serde_json::from_value(body).expect("a body");
        let reports = vec![AgentReport::Event { item: Some(item.to_owned()), body }];
        let (durable, on_disk): (DurableReply, _) = oneshot::channel();
        self.session.do_send(Reported { boot: "b".into(), n: self.n, reports, durable });
        on_disk
    }

    pub(super) async fn confirm(&mut self, request: &str, item: &str, call: Action) {
        self.report(item, confirm_body(request, &call)).await;
    }

    /// Reports a call with its result, several times.
    pub(super) async fn repeat(&mut self, command: &str, times: usize) {
        for _ in 0..times {
            self.repeated += 1;
            let item = format!("repeated-{}", self.repeated);
            self.report(&item, json!({ "action": "run", "args": { "command": command } })).await;
            let extras =
                json!({ "command": command, "exit_code": 2, "duration_ms": self.repeated, "timed_out": false });
            let result = json!({ "observation": "run", "extras": extras, "content": "no rule" });
            self.report(&item, result).await;
        }
    }

    /// Sends a client request in the name of `who`.
    pub(super) async fn confirmed_as(&self, request: ClientRequest, who: &str) -> RequestResult {
        let relay = Relay { request, idempotency_key: None, requested_by: Some(who.to_owned()) };
        self.session.send(relay).await.expect("session actor is running")
    }

    pub(super) async fn events(&self) -> Vec<Value> {
        let flushed = self.session.send(crate::session::messages::Flush).await;
        flushed.expect("session actor is running").expect("the store works");
        let limit = ReadLimit { events: 10_000, bytes: usize::MAX };
        let page = self.store.read(self.id, 0, limit).await.expect("store is readable");
        page.iter().map(|(_, event)| serde_json::from_slice(&event.json).expect("JSON")).collect()
    }

    /// Returns the events of a kind: actions and observations.
    pub(super) async fn events_of(&self, kind: &str) -> Vec<Value> {
        let mut events = self.events().await;
        events.retain(|event| event["action"] == kind || event["observation"] == kind);
        events
    }

    pub(super) async fn last_event(&self, kind: &str) -> Value {
        self.events_of(kind).await.pop().unwrap_or_else(|| panic!("no event `{kind}`"))
    }

    pub(super) async fn record(&self) -> SessionRecord {
        self.events().await;
        self.store.get(self.id).await.expect("store is readable").expect("session exists").record
    }

    pub(super) async fn stored_state(&self) -> String {
        self.record().await.actor_state.as_str().to_owned()
    }

    /// Returns the answers that the agent has got: request and decision.
    pub(super) fn answers(&self) -> Vec<(String, String)> {
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = |command: &AgentCommand| match command {
            AgentCommand::Answer { request, decision, .. } => {
                let decision = serde_json::to_value(decision).expect("a decision serializes");
                Some((request.clone(), decision.as_str().expect("a name").to_owned()))
            }
            _ => None,
        };
        commands.iter().filter_map(answer).collect()
    }

    /// Waits for the next command to the agent.
    pub(super) async fn next_command(&self) {
        self.arrived.notified().await;
    }

    pub(super) fn assessed(&self) -> usize {
        self.analyzer.assessed.load(SeqCst)
    }

    pub(super) fn project_rules(&self) -> Vec<ApprovalRule> {
        self.project.rules("/src").to_vec()
    }

    pub(super) fn project_fails(&self, fails: bool) {
        self.project.fails.store(fails, SeqCst);
    }
}

/// Returns the body of an approval request.
pub(super) fn confirm_body(request: &str, call: &Action) -> Value {
    json!({
        "observation": "confirm",
        "extras": {
            "request": request, "action": call.summary_line(), "options": ["allow", "deny"], "call": call,
            "editable": true, "asked_by": "forged", "risk": { "level": "low", "reasons": ["forged"] },
        },
        "content": "",
    })
}
