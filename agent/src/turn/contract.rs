//! Contract suite of the port [`TurnDriver`]. A driver runs it with [`contract!`] and a function
//! that makes the driver for a script.
//!
//! The rules act on the driver as the server does: by commands to a [`Dispatcher`], and by reading
//! its reports.

use std::{path::Path, time::Duration};

use futures::FutureExt;
use greenroom_protocol::{
    Event, EventBody, Observation, ObservationKind,
    action::ApprovalDecision,
    approval::ReviewRequest,
    link::{AgentCommand, AgentReport, CommandFrame, FromAgent, WorkOutcome},
};

use super::{TurnDrivers, drivers::OpenDriver};
use crate::{agent_paths::AgentPaths, dispatcher::Dispatcher, outgoing::OutgoingQueue, processes::ChildProcesses};

mod builtin;
mod reviews;
mod scripted;

use reviews::{
    asked_call_runs_only_after_allow, denied_call_never_runs, interrupt_withdraws_question, interrupt_withdraws_review,
    reconnect_repeats_review,
};

/// Limit that only a missing report reaches.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Behaviour of the program behind the driver, in one turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScriptedTurn {
    /// Says the text.
    Says(&'static str),
    /// Says the text and works on until stopped.
    WorksOn(&'static str),
    /// Asks for approval of each action, all at once, and says the answers.
    Asks(&'static [&'static str]),
    /// Makes the file by a reviewed tool call, then says so.
    Makes(&'static str),
    Panics,
}

/// Driver with a scripted program behind it.
pub(super) struct DriverUnderTest {
    pub(super) open: OpenDriver,
    /// Returns everything that the program has read, as text.
    pub(super) heard: Box<dyn Fn() -> String>,
}

/// Generates one test per rule. `$make` returns a [`DriverUnderTest`] for a script; it gets a
/// directory for its files. Rules after `and` hold for a driver whose program can behave so.
macro_rules! contract {
    ($make:path $(, and $($rule:ident),*)?) => {
        $crate::turn::contract::contract!($make;
            each_turn_ends_once, stop_before_turn_does_nothing, stop_ends_work, steer_is_answered_once,
            restored_session_continues, reset_forgets_history, message_of_lost_turn_reaches_next
            $($(, $rule)*)?
        );
    };
    ($make:path; $($rule:ident),*) => {
        $(#[tokio::test]
        async fn $rule() {
            let dir = tempfile::tempdir().expect("a temporary directory");
            $crate::turn::contract::$rule(dir.path(), $make).await;
        })*
    };
}
use contract;

/// Agent with the driver under test, and the server's end of its link.
struct ContractAgent {
    dispatcher: Dispatcher,
    outgoing: OutgoingQueue,
    reports: Vec<AgentReport>,
    reviews: Vec<ReviewRequest>,
    command_count: usize,
}

impl ContractAgent {
    fn start(dir: &Path, open: OpenDriver) -> ContractAgent {
        ContractAgent::start_with(dir, open, false)
    }

    /// Starts an agent whose server reviews tool calls if `reviewed`.
    fn start_with(dir: &Path, open: OpenDriver, reviewed: bool) -> ContractAgent {
        let paths = AgentPaths {
            agent_socket: dir.join("agent.sock"),
            gateway_socket: dir.join("gateway.sock"),
            workspace: dir.to_owned(),
            executed_ids: dir.join("executed"),
        };
        let outgoing = OutgoingQueue::default();
        let processes = ChildProcesses::new(None).expect("the process can become a subreaper");
        let drivers = TurnDrivers(vec![("tested", open)]);
        let dispatcher = Dispatcher::new(outgoing.clone(), processes, &paths, drivers);
        outgoing.connect(0, reviewed);
        ContractAgent { dispatcher, outgoing, reports: Vec::new(), reviews: Vec::new(), command_count: 0 }
    }

    /// Sends a command and returns its id.
    fn send(&mut self, command: AgentCommand) -> String {
        self.command_count += 1;
        let id = format!("command-{}", self.command_count);
        self.dispatcher.handle_command(CommandFrame { id: id.clone(), command });
        id
    }

    fn prompt(&mut self, turn: &str, content: &str) {
        self.send(AgentCommand::Prompt { turn: turn.into(), content: content.into(), attachments: Vec::new() });
    }

    fn steer(&mut self, content: &str) -> String {
        self.send(AgentCommand::Steer { content: content.into(), attachments: Vec::new() })
    }

    fn answer(&mut self, request: &str, decision: ApprovalDecision) {
        self.send(AgentCommand::Answer {
            request: request.into(),
            decision,
            reason: Some("because".into()),
            input: None,
        });
    }

    /// Receives the next frame. Reports and reviews are kept.
    async fn receive(&mut self) -> FromAgent {
        let frame = tokio::time::timeout(TIMEOUT, self.outgoing.next_frame()).await.expect("a frame in time");
        let frame = serde_json::from_str(&frame).expect("a frame");
        if let FromAgent::Report { report, .. } = &frame {
            self.reports.push(report.clone());
        }
        if let FromAgent::Review(review) = &frame {
            self.reviews.push(review.clone());
        }
        frame
    }

    async fn until_delta(&mut self) {
        while !matches!(self.receive().await, FromAgent::Delta(_)) {}
    }

    /// Waits for `count` open approval requests, and returns their ids by the order of asking.
    async fn until_asked(&mut self, count: usize) -> Vec<String> {
        loop {
            let requests: Vec<String> = self.reports.iter().filter_map(request_of).collect();
            if requests.len() == count {
                return requests;
            }
            self.receive().await;
        }
    }

    /// Waits for the end of the turn, and asserts that nothing follows.
    async fn outcome(&mut self, turn: &str) -> WorkOutcome {
        let outcome = loop {
            if let FromAgent::Report { report: AgentReport::TurnEnded { turn: ended, outcome }, .. } =
                self.receive().await
            {
                assert_eq!(ended, turn);
                break outcome;
            }
        };
        self.dispatcher.work_finished().await;
        assert!(!self.dispatcher.is_busy());
        assert_eq!(self.outgoing.next_frame().now_or_never(), None, "a frame after the end of `{turn}`");
        let ends =
            |report: &&AgentReport| matches!(report, AgentReport::TurnEnded { turn: ended, .. } if ended == turn);
        assert_eq!(self.reports.iter().filter(ends).count(), 1);
        outcome
    }

    /// Returns the agent's messages, oldest first.
    fn messages(&self) -> Vec<&str> {
        let messages = self.reports.iter().filter_map(|report| match report {
            AgentReport::Event { body: EventBody::Observation(Observation { kind, content }), .. } => {
                matches!(kind, ObservationKind::Message { .. }).then_some(content.as_str())
            }
            _ => None,
        });
        messages.collect()
    }

    /// Returns the reports about a steering message: `steered` or `missed`.
    fn steer_reports(&self, steer: &str) -> Vec<&'static str> {
        let about = self.reports.iter().filter_map(|report| match report {
            AgentReport::Steered { command } if command == steer => Some("steered"),
            AgentReport::SteerMissed { command } if command == steer => Some("missed"),
            _ => None,
        });
        about.collect()
    }
}

fn request_of(report: &AgentReport) -> Option<String> {
    let AgentReport::Event { body: EventBody::Observation(Observation { kind, .. }), .. } = report else { return None };
    if let ObservationKind::Confirm { request, .. } = kind { Some(request.clone()) } else { None }
}

fn history(lines: &[&str]) -> Vec<Event> {
    let event = |(index, line): (usize, &&str)| {
        let json = format!(r#"{{"seq":{},"at":"2026-01-01T00:00:00.000Z",{line}}}"#, index + 1);
        serde_json::from_str(&json).expect("an event")
    };
    lines.iter().enumerate().map(event).collect()
}

/// Asserts that `text` contains all of `parts`, in this order.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("no `{part}` in order in {text}"));
        rest = after;
    }
}

type MakeDriver = fn(&Path, &[ScriptedTurn]) -> DriverUnderTest;

async fn each_turn_ends_once(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::Says("one"), ScriptedTurn::Says("two")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    for (turn, said) in [("t1", "one"), ("t2", "two")] {
        agent.prompt(turn, "go");
        assert_eq!(agent.outcome(turn).await, WorkOutcome::Done);
        assert_eq!(agent.messages().last(), Some(&said));
    }
    assert_eq!(agent.messages(), ["one", "two"]);
}

async fn stop_before_turn_does_nothing(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::Says("one")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.prompt("t1", "first");
    agent.send(AgentCommand::Cancel {});
    let outcome = agent.outcome("t1").await;
    assert!(matches!(outcome, WorkOutcome::Cancelled { partial: false, .. }), "{outcome:?}");
    assert_eq!((driver.heard)(), "", "the program has read nothing");
    agent.prompt("t2", "second");
    assert_eq!(agent.outcome("t2").await, WorkOutcome::Done);
    assert_in_order(&(driver.heard)(), &["first", "second"]);
}

async fn stop_ends_work(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::WorksOn("working"), ScriptedTurn::Says("two")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.prompt("t1", "first");
    agent.until_delta().await;
    agent.send(AgentCommand::Cancel {});
    let outcome = agent.outcome("t1").await;
    assert!(matches!(outcome, WorkOutcome::Cancelled { .. }), "{outcome:?}");
    agent.prompt("t2", "second");
    assert_eq!(agent.outcome("t2").await, WorkOutcome::Done);
    assert_eq!(agent.messages().last(), Some(&"two"));
}

async fn steer_is_answered_once(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::Says("one"), ScriptedTurn::WorksOn("working")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.prompt("t1", "first");
    let early = agent.steer("hurry");
    assert_eq!(agent.outcome("t1").await, WorkOutcome::Done);
    let late = agent.steer("too late");
    agent.receive().await;
    assert_eq!(agent.steer_reports(&late), ["missed"]);
    agent.prompt("t2", "second");
    agent.until_delta().await;
    let unread = agent.steer("unread");
    agent.send(AgentCommand::Cancel {});
    agent.outcome("t2").await;
    for steer in [early, unread] {
        assert_eq!(agent.steer_reports(&steer).len(), 1);
    }
    assert!(!(driver.heard)().contains("too late"), "a missed message is not the driver's");
}

async fn restored_session_continues(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::Says("so it is")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.dispatcher.begin_restore().await;
    let part = history(&[r#""source":"user","observation":"chat","extras":{},"content":"it is 17""#]);
    agent.dispatcher.restore(&part, false).await;
    let part = history(&[r#""source":"agent","item":"m","observation":"message","extras":{},"content":"noted""#]);
    agent.dispatcher.restore(&part, true).await;
    agent.prompt("t1", "what is it");
    assert_eq!(agent.outcome("t1").await, WorkOutcome::Done);
    assert_in_order(&(driver.heard)(), &["it is 17", "noted", "what is it"]);
    assert_eq!(agent.messages(), ["so it is"]);
}

async fn reset_forgets_history(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::Says("one")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    let part = history(&[r#""source":"user","observation":"chat","extras":{},"content":"it is 17""#]);
    agent.dispatcher.restore(&part, false).await;
    agent.dispatcher.begin_restore().await;
    agent.dispatcher.restore(&part, true).await;
    agent.prompt("t1", "go");
    assert_eq!(agent.outcome("t1").await, WorkOutcome::Done);
    assert_eq!((driver.heard)().matches("it is 17").count(), 1);
}

/// A turn that an earlier start of the agent began is not repeated.
async fn message_of_lost_turn_reaches_next(dir: &Path, make: MakeDriver) {
    let earlier = dir.join("earlier");
    std::fs::create_dir(&earlier).expect("a directory");
    let driver = make(&earlier, &[ScriptedTurn::Says("one")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.prompt("t1", "first");
    agent.outcome("t1").await;
    let driver = make(dir, &[ScriptedTurn::Says("two")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.prompt("t1", "first");
    let outcome = agent.outcome("t1").await;
    assert!(matches!(outcome, WorkOutcome::Failed { ref code, .. } if code == "agent_restarted"), "{outcome:?}");
    assert_eq!((driver.heard)(), "", "the program has read nothing");
    agent.prompt("t2", "second");
    assert_eq!(agent.outcome("t2").await, WorkOutcome::Done);
    assert_in_order(&(driver.heard)(), &["first", "second"]);
}

async fn panic_fails_turn_and_agent_continues(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::Panics, ScriptedTurn::Says("two")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.prompt("t1", "first");
    let steer = agent.steer("hurry");
    let outcome = agent.outcome("t1").await;
    assert!(matches!(outcome, WorkOutcome::Failed { ref code, .. } if code == "agent_panicked"), "{outcome:?}");
    assert_eq!(agent.steer_reports(&steer).len(), 1);
    agent.prompt("t2", "second");
    assert_eq!(agent.outcome("t2").await, WorkOutcome::Done);
}

async fn answer_reaches_turn_once(dir: &Path, make: MakeDriver) {
    let asks = ScriptedTurn::Asks(&["rm"]);
    let driver = make(dir, &[asks, asks]);
    let mut agent = ContractAgent::start(dir, driver.open);
    for (count, decision, said) in
        [(1, ApprovalDecision::Allow, "rm: Allow because"), (2, ApprovalDecision::Deny, "rm: Deny because")]
    {
        let turn = format!("t{count}");
        agent.prompt(&turn, "go");
        let requests = agent.until_asked(count).await;
        let request = &requests[count - 1];
        agent.answer("another", ApprovalDecision::Allow);
        agent.answer(request, decision);
        agent.answer(request, ApprovalDecision::AllowAlways);
        assert_eq!(agent.outcome(&turn).await, WorkOutcome::Done);
        agent.answer(request, ApprovalDecision::AllowAlways);
        assert_eq!(agent.messages().last(), Some(&said));
    }
}

async fn two_requests_are_open_at_once(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::Asks(&["rm", "mv"])]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.prompt("t1", "go");
    let requests = agent.until_asked(2).await;
    assert_ne!(requests[0], requests[1]);
    agent.answer(&requests[1], ApprovalDecision::Deny);
    agent.answer(&requests[0], ApprovalDecision::AllowAlways);
    assert_eq!(agent.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(agent.messages(), ["rm: AllowAlways because, mv: Deny because"]);
}

async fn stop_cancels_requests(dir: &Path, make: MakeDriver) {
    let driver = make(dir, &[ScriptedTurn::Asks(&["rm", "mv"]), ScriptedTurn::Says("two")]);
    let mut agent = ContractAgent::start(dir, driver.open);
    agent.prompt("t1", "go");
    let requests = agent.until_asked(2).await;
    agent.answer(&requests[0], ApprovalDecision::Allow);
    agent.send(AgentCommand::Cancel {});
    let outcome = agent.outcome("t1").await;
    assert!(matches!(outcome, WorkOutcome::Cancelled { .. }), "{outcome:?}");
    assert!(!agent.messages().last().is_some_and(|said| said.contains("mv: Allow")));
    agent.answer(&requests[1], ApprovalDecision::Allow);
    agent.prompt("t2", "second");
    assert_eq!(agent.outcome("t2").await, WorkOutcome::Done);
    assert_eq!(agent.messages().last(), Some(&"two"));
}
