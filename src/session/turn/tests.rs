//! Rules of a session, one line for each. The submodules hold longer cases.

mod any_input;
mod approvals;
mod budget;
mod captures;
mod concurrent_actions;
mod failed_turns;
mod idempotency_keys;
mod interrupts;
mod leftovers;
mod modes;
mod pauses;
mod queue_limits;
mod quota;
mod restore_notes;
mod sandboxes;
mod terminals;

use greenroom_protocol::{
    EventBody,
    action::{ApprovalDecision, MessageMode},
    approval::DecidedBy,
    link::{AgentSettings, ProviderApi, WorkOutcome},
};

use super::*;
use crate::{
    sandbox::SandboxExit,
    session::{
        effect::{AfterStop, InFlightStops},
        transition::OpenItem,
    },
};

/// Session state with the journal that its transitions would create.
struct RulesFixture {
    state: SessionState,
    tail: Seq,
    now_ms: i64,
    open: Vec<OpenItem>,
    captures_turns: bool,
    in_flight_stops: InFlightStops,
}

impl RulesFixture {
    fn after(given: &[SessionInput]) -> RulesFixture {
        let mut rules = RulesFixture {
            state: SessionState::default(),
            tail: 0,
            now_ms: 0,
            open: Vec::new(),
            captures_turns: false,
            in_flight_stops: InFlightStops::default(),
        };
        for input in given {
            rules.feed(input.clone()).unwrap_or_else(|error| panic!("{input:?} was rejected: {error}"));
        }
        rules
    }

    fn feed(&mut self, input: SessionInput) -> Result<Transition, RequestError> {
        self.now_ms += 10;
        let RulesFixture { tail, now_ms, ref open, ref in_flight_stops, .. } = *self;
        let captures_turns = self.captures_turns;
        let context = DecisionContext { tail, now_ms, open, captures_turns, in_flight_stops };
        let turn = |state: &SessionState| state.turn.as_ref().map(|turn| turn.id.clone());
        let before = turn(&self.state);
        let transition = self.state.decide(input, context)?;
        let is_over = before.is_some() && before != turn(&self.state);
        assert_eq!(transition.turn_is_over, is_over, "{before:?}");
        self.tail += transition.new_events.len() as Seq;
        Ok(transition)
    }
}

/// Describes an event: its name, and the part that the rules decide.
fn event_text(body: &EventBody) -> String {
    match body {
        EventBody::Observation(Observation { kind, content }) => match kind {
            ObservationKind::AgentStateChanged { turn_over: true, .. } => "turn over".to_owned(),
            ObservationKind::AgentStateChanged { agent_state, .. } => format!("is {}", agent_state.name()),
            ObservationKind::Queue { items } => format!("queue {}", items.len()),
            ObservationKind::Chat { .. } => format!("chat {content}"),
            ObservationKind::Message { partial: true } => format!("partial {content}"),
            ObservationKind::Interrupted { what, escalation_step: step, partial, .. } => {
                format!("interrupted {what} by {step:?}{}", if *partial { " partial" } else { "" })
            }
            ObservationKind::Sandbox { phase, .. } => format!("sandbox {phase:?}"),
            ObservationKind::Error { code, .. } => format!("error {code}"),
            ObservationKind::Confirmed { withdrawn: true, .. } => "withdrawn".to_owned(),
            ObservationKind::Confirmed { decision: ApprovalDecision::Deny, who: Some(who), .. } => {
                format!("denied by {who}")
            }
            ObservationKind::Confirmed { by: Some(DecidedBy::Policy), who: Some(who), .. } => {
                format!("allowed by {who}")
            }
            ObservationKind::Notice { code, .. } => format!("notice {code}"),
            _ => body.name().to_owned(),
        },
        EventBody::Action(_) | EventBody::Opaque(_) => format!("{}!", body.name()),
    }
}

fn effect_text(effect: &Effect) -> String {
    match effect {
        Effect::DeliverToAgent(AgentDelivery::CancelHint(hint)) => {
            let work = [&hint.turn, &hint.user_action].into_iter().flatten().cloned();
            format!("hint {}", work.collect::<Vec<_>>().join(" "))
        }
        Effect::DeliverToAgent(AgentDelivery::AgentConnected { .. }) => "agent connected".to_owned(),
        Effect::DeliverToAgent(AgentDelivery::Command(frame)) => match &frame.command {
            AgentCommand::Prompt { turn, content, .. } => format!("prompt {turn} {content}"),
            AgentCommand::Steer { content, .. } => format!("steer {content}"),
            AgentCommand::UserAction { user_action, .. } => format!("user action {user_action}"),
            AgentCommand::Cancel {} => "cancel".to_owned(),
            AgentCommand::KillProcesses {} => "kill processes".to_owned(),
            AgentCommand::KillProcess { pid } => format!("kill process {pid}"),
            AgentCommand::KillLeftovers {} => "kill leftovers".to_owned(),
            AgentCommand::Settings(_) => "settings".to_owned(),
            AgentCommand::Answer { request, .. } => format!("answer {request}"),
        },
        Effect::StartSandbox { .. } => "start".to_owned(),
        Effect::AbortModelStreams => "abort streams".to_owned(),
        Effect::PauseSandbox => "pause".to_owned(),
        Effect::UnpauseSandbox => "unpause".to_owned(),
        Effect::CaptureWorkspace { checkpoint, .. } => format!("capture {checkpoint}"),
        Effect::StopSandbox { then: AfterStop::Restart, .. } => "restart".to_owned(),
        Effect::StopSandbox { then: AfterStop::KeepFiles, .. } => "stop".to_owned(),
        Effect::StopSandbox { then: AfterStop::Remove, .. } => "remove".to_owned(),
    }
}

fn check(given: &[SessionInput], input: SessionInput, state: AgentState, events: &[&str], effects: &[&str]) {
    let mut rules = RulesFixture::after(given);
    let transition = rules.feed(input.clone()).unwrap_or_else(|error| panic!("{input:?} was rejected: {error}"));
    let got: Vec<String> = transition.new_events.iter().map(|new_event| event_text(&new_event.body)).collect();
    assert_eq!(got, events, "events of {input:?}");
    let ordered = transition.effects.iter().map(effect_text).filter(|effect| effect != "agent connected");
    assert_eq!(ordered.collect::<Vec<_>>(), effects, "effects of {input:?}");
    assert_eq!(rules.state.visible_state(), state, "after {input:?}");
}

fn check_rejected(given: &[SessionInput], input: SessionInput, code: &str) {
    let mut rules = RulesFixture::after(given);
    let before = rules.state.clone();
    let error = rules.feed(input.clone()).expect_err("the input is rejected");
    assert_eq!(error.code(), code, "{input:?}: {error}");
    assert_eq!(rules.state, before, "a rejected input changes nothing");
}

// Abbreviations of inputs.

fn start(task: &str) -> SessionInput {
    SessionInput::Start { task: task.into() }
}

fn say(content: &str) -> SessionInput {
    SessionInput::Message { content: content.into(), mode: MessageMode::Queue, attachments: vec![] }
}

fn say_as(mode: MessageMode, content: &str) -> SessionInput {
    SessionInput::Message { content: content.into(), mode, attachments: vec![] }
}

fn up() -> SessionInput {
    SessionInput::HelloReceived { boot: "b1".into() }
}

fn starting() -> SessionInput {
    SessionInput::SandboxPhaseChanged { phase: SandboxPhase::Starting, detail: String::new(), isolation: None }
}

fn run() -> SessionInput {
    SessionInput::UserAction(Action::Run { command: "ls".into() })
}

fn turn_ended(n: u64, outcome: WorkOutcome) -> SessionInput {
    SessionInput::TurnEnded { turn: format!("turn-{n}"), outcome }
}

fn cancelled(what: &str) -> WorkOutcome {
    WorkOutcome::Cancelled { what: what.into(), partial: false }
}

fn lost() -> SessionInput {
    SessionInput::SandboxLost(SandboxExit { code: Some(137), out_of_memory: false, stderr_tail: "Killed".into() })
}

fn settings() -> AgentSettings {
    AgentSettings {
        model: "m".into(),
        api: ProviderApi::Openai,
        directory: "/workspace".into(),
        run_timeout_s: 1,
        max_steps: 1,
        program: None,
        effort: None,
        takes_images: false,
        context_limit: None,
        orphan_after_s: None,
        plan_path: None,
        mode: None,
    }
}

fn set_model() -> SessionInput {
    SessionInput::SetModel { settings: settings(), title: None, analyzer: None, mode: None }
}

/// Inputs of a session with a running turn. Names are numbered in one sequence: `message-1`,
/// `turn-2`, `command-3`.
fn working() -> Vec<SessionInput> {
    vec![SessionInput::SessionCreated, up(), start("t")]
}

fn with(given: Vec<SessionInput>, more: &[SessionInput]) -> Vec<SessionInput> {
    [given, more.to_vec()].concat()
}

#[test]
fn session_starts_and_works() {
    check(&[], SessionInput::SessionCreated, AgentState::Starting, &[], &["start"]);
    check(&[SessionInput::SessionCreated], up(), AgentState::Idle, &["sandbox Ready", "is idle"], &[]);
    check(&[SessionInput::SessionCreated, starting()], up(), AgentState::Idle, &["sandbox Ready", "is idle"], &[]);
    check(&[SessionInput::SessionCreated, up()], up(), AgentState::Idle, &[], &[]);
    check(&[SessionInput::SessionCreated, up(), starting()], up(), AgentState::Idle, &["sandbox Ready"], &[]);
    check(
        &[SessionInput::SessionCreated, up()],
        start("t"),
        AgentState::Running,
        &["start!", "chat t", "is running"],
        &["prompt turn-2 t"],
    );
    check(&working(), turn_ended(2, WorkOutcome::Done), AgentState::Idle, &["is idle"], &[]);
    check(&working(), turn_ended(9, WorkOutcome::Done), AgentState::Running, &[], &[]);
    let failed = WorkOutcome::Failed { code: "model_error".into(), detail: "why".into() };
    check(&working(), turn_ended(2, failed.clone()), AgentState::Idle, &["error model_error", "is idle"], &[]);
    let user_action = with(
        vec![SessionInput::SessionCreated, up()],
        &[SessionInput::UserAction(Action::Run { command: "ls".into() })],
    );
    let action_failed = SessionInput::UserActionEnded { user_action: "act-1".into(), outcome: failed };
    check(&user_action, action_failed, AgentState::Idle, &["is idle"], &[]);
}

#[test]
fn task_waits_for_sandbox() {
    check(&[SessionInput::SessionCreated], start("t"), AgentState::Starting, &["start!", "queue 1"], &[]);
    let events = ["sandbox Ready", "chat t", "queue 0", "is running"];
    check(&[SessionInput::SessionCreated, start("t")], up(), AgentState::Running, &events, &["prompt turn-2 t"]);
    check_rejected(&[SessionInput::SessionCreated, start("t")], start("u"), "busy");
    check_rejected(&working(), start("u"), "busy");
}

#[test]
fn messages_are_queued_and_editable() {
    check(&working(), say("m"), AgentState::Running, &["message!", "queue 1"], &[]);
    let next = ["chat m", "queue 0"];
    check(
        &with(working(), &[say("m")]),
        turn_ended(2, WorkOutcome::Done),
        AgentState::Running,
        &next,
        &["prompt turn-5 m"],
    );
    // Cancelled by the hint of an interrupt that is not in the journal.
    check(&with(working(), &[say("m")]), turn_ended(2, cancelled("the turn")), AgentState::Idle, &["is idle"], &[]);
    let edit = |content: Option<&str>, remove| SessionInput::EditQueue {
        item: "message-4".into(),
        content: content.map(Into::into),
        remove,
    };
    check(&with(working(), &[say("m")]), edit(None, true), AgentState::Running, &["queue 0"], &[]);
    check(&with(working(), &[say("m")]), edit(Some("n"), false), AgentState::Running, &["queue 1"], &[]);
    check_rejected(&with(working(), &[say("m")]), edit(None, false), "invalid_args");
    check_rejected(&with(working(), &[say("m")]), edit(Some("n"), true), "invalid_args");
    check_rejected(&working(), edit(None, true), "not_queued");
}

#[test]
fn steering_message_is_taken_in_or_queued() {
    let steering = with(working(), &[say_as(MessageMode::Steer, "s")]);
    check(&working(), say_as(MessageMode::Steer, "s"), AgentState::Running, &["message!"], &["steer s"]);
    check(&steering, SessionInput::Steered { command: "command-5".into() }, AgentState::Running, &["chat s"], &[]);
    let missed = SessionInput::SteerMissed { command: "command-5".into() };
    check(&steering, missed.clone(), AgentState::Running, &["queue 1"], &[]);
    // Either report implies that the agent has the command.
    for report in [SessionInput::Steered { command: "command-5".into() }, missed.clone()] {
        let outgoing = RulesFixture::after(&with(steering.clone(), &[report])).state.outgoing;
        assert!(outgoing.iter().all(|frame| frame.id != "command-5"), "{outgoing:?}");
    }
    let over = with(steering, &[turn_ended(2, WorkOutcome::Done)]);
    check(&over, missed, AgentState::Running, &["chat s", "is running"], &["prompt turn-6 s"]);
    check(
        &[SessionInput::SessionCreated, up()],
        say_as(MessageMode::Steer, "s"),
        AgentState::Running,
        &["message!", "chat s", "is running"],
        &["prompt turn-2 s"],
    );
}

#[test]
fn missed_steering_messages_keep_their_order() {
    let queue = |given: &[SessionInput]| -> Vec<String> {
        RulesFixture::after(given).state.queue.into_iter().map(|queued| queued.item.content).collect()
    };
    let missed = |n: u64| SessionInput::SteerMissed { command: format!("command-{n}") };
    let messages = [say("q"), say_as(MessageMode::Steer, "s"), say_as(MessageMode::Steer, "t")];
    let steering = with(working(), &messages);
    assert_eq!(queue(&with(steering.clone(), &[missed(6), missed(8)])), ["s", "t", "q"]);
    assert_eq!(queue(&with(steering.clone(), &[missed(6), lost()])), ["s", "t", "q"]);
    assert_eq!(
        queue(&with(steering.clone(), &[missed(6), SessionInput::HelloReceived { boot: "b2".into() }])),
        ["s", "t", "q"]
    );
    let interrupted = with(steering, &[missed(6), say_as(MessageMode::Interrupt, "i"), missed(8)]);
    assert_eq!(queue(&interrupted), ["i", "s", "t", "q"]);
    let twice = with(interrupted, &[say_as(MessageMode::Interrupt, "rather j"), say("r")]);
    assert_eq!(queue(&twice), ["i", "rather j", "s", "t", "q", "r"]);
    // A missed message does not precede the message that replaced it, if the agent took neither.
    let instead = [
        say_as(MessageMode::Steer, "s"),
        say_as(MessageMode::Interrupt, "i"),
        SessionInput::EscalationDue,
        SessionInput::EscalationDue,
    ];
    assert_eq!(queue(&with(working(), &instead)), ["i", "s"]);
}

#[test]
fn user_actions_run_one_at_a_time_beside_agent() {
    check(&working(), run(), AgentState::Running, &["run!"], &["user action act-4"]);
    check(&with(working(), &[run()]), run(), AgentState::Running, &["run!"], &[]);
    let two = with(working(), &[run(), run()]);
    check(
        &two,
        SessionInput::UserActionEnded { user_action: "act-4".into(), outcome: WorkOutcome::Done },
        AgentState::Running,
        &[],
        &["user action act-6"],
    );
    check(
        &[SessionInput::SessionCreated, up()],
        run(),
        AgentState::Running,
        &["run!", "is running"],
        &["user action act-1"],
    );
}

#[test]
fn stopped_session_starts_again() {
    let events = ["stop!", "interrupted the turn by Sandbox", "is stopped"];
    check(
        &working(),
        SessionInput::Stop { reason: None },
        AgentState::Stopped,
        &events,
        &["hint turn-2", "abort streams", "stop"],
    );
    let stopped = [SessionInput::SessionCreated, up(), SessionInput::Stop { reason: None }];
    check(&stopped, SessionInput::Resume, AgentState::Starting, &["resume!", "is starting"], &["start"]);
    check(&stopped, say("m"), AgentState::Starting, &["message!", "queue 1", "is starting"], &["start"]);
    check(&stopped, run(), AgentState::Starting, &["run!", "is starting"], &["start"]);
    check_rejected(&stopped, SessionInput::Stop { reason: None }, "already");
    check_rejected(&stopped, SessionInput::Interrupt, "nothing_to_interrupt");
    check(&stopped, lost(), AgentState::Stopped, &[], &[]);
}

#[test]
fn ended_session_rejects_all_requests() {
    let events = ["end!", "interrupted the turn by Sandbox", "is ended"];
    check(&working(), SessionInput::End, AgentState::Ended, &events, &["hint turn-2", "abort streams", "remove"]);
    let ended = [SessionInput::SessionCreated, up(), SessionInput::End];
    for input in [
        start("t"),
        say("m"),
        run(),
        SessionInput::Interrupt,
        SessionInput::Pause,
        SessionInput::Resume,
        SessionInput::End,
    ] {
        check_rejected(&ended, input, "ended");
    }
}

#[test]
fn restarted_agent_gets_untaken_commands_and_loses_taken_ones() {
    let fresh = SessionInput::HelloReceived { boot: "b2".into() };
    check(&working(), fresh.clone(), AgentState::Running, &[], &["prompt turn-2 t"]);
    let taken = with(working(), &[SessionInput::CommandAccepted { command: "command-3".into() }]);
    check(&taken, fresh, AgentState::Idle, &["error agent_restarted", "is idle"], &[]);
    check(&taken, up(), AgentState::Running, &[], &[]);
    check(&working(), up(), AgentState::Running, &[], &["prompt turn-2 t"]);
    let rules = RulesFixture::after(&working());
    assert_eq!(rules.state.history_to(99), 3, "an undelivered prompt is no history");
    assert_eq!(RulesFixture::after(&taken).state.history_to(99), 99);
}

/// Case: the link was down, or the server was killed before the delivery.
#[test]
fn undelivered_interrupt_reaches_next_agent() {
    let fresh = || SessionInput::HelloReceived { boot: "b2".into() };
    let interrupted = with(working(), &[SessionInput::Interrupt]);
    for next in [up(), fresh()] {
        check(&interrupted, next, AgentState::Interrupting, &[], &["prompt turn-2 t", "cancel"]);
    }
    let taken = with(interrupted, &[SessionInput::CommandAccepted { command: "command-3".into() }]);
    check(&taken, up(), AgentState::Interrupting, &[], &["cancel"]);
    let events = ["error agent_restarted", "interrupted nothing that was still running by Cancel", "is idle"];
    check(&taken, fresh(), AgentState::Idle, &events, &[]);
}

#[test]
fn ended_work_is_not_delivered_again() {
    let turn = with(working(), &[turn_ended(2, WorkOutcome::Done)]);
    check(&turn, up(), AgentState::Idle, &[], &[]);
    let user_action = [
        SessionInput::SessionCreated,
        up(),
        run(),
        SessionInput::UserActionEnded { user_action: "act-1".into(), outcome: WorkOutcome::Done },
    ];
    check(&user_action, up(), AgentState::Idle, &[], &[]);
}

/// Case: the agent is about to be stopped and has not noticed.
#[test]
fn late_reports_of_ended_turn_have_no_effect() {
    let late = [
        SessionInput::Steered { command: "command-5".into() },
        SessionInput::SteerMissed { command: "command-5".into() },
        turn_ended(2, WorkOutcome::Done),
        SessionInput::UserActionEnded { user_action: "act-4".into(), outcome: WorkOutcome::Done },
    ];
    for end in [
        vec![SessionInput::Interrupt, SessionInput::Interrupt],
        vec![SessionInput::Stop { reason: None }],
        vec![lost()],
    ] {
        let over = with(with(working(), &[run()]), &end);
        let state = RulesFixture::after(&over).state.visible_state();
        for late in &late {
            check(&over, late.clone(), state, &[], &[]);
        }
    }
    let over = with(with(working(), &[SessionInput::Interrupt, SessionInput::Interrupt]), &late);
    check(
        &over,
        SessionInput::HelloReceived { boot: "b2".into() },
        AgentState::Idle,
        &["sandbox Ready", "is idle"],
        &[],
    );
}

#[test]
fn model_change_is_recorded_and_delivered() {
    let change = || set_model();
    check(&[SessionInput::SessionCreated], change(), AgentState::Starting, &["set_model!"], &[]);
    check(&[SessionInput::SessionCreated, up()], change(), AgentState::Idle, &["set_model!"], &["settings"]);
}
