//! The rules in full: one line for each, and in its modules what one line does not say.

mod any_input;
mod concurrent_actions;
mod escalation;
mod pauses;
mod queue_limits;

use greenroom_protocol::{DeltaKind, EventBody, link::ProviderApi};

use super::*;
use crate::session::{messages::effects::AfterStop, transition::OpenItem};

/// A core and the journal that its decisions would make.
struct RulesFixture {
    state: SessionState,
    tail: Seq,
    now_ms: i64,
    open: Vec<OpenItem>,
}

impl RulesFixture {
    fn after(given: &[SessionInput]) -> RulesFixture {
        let mut world = RulesFixture { state: SessionState::default(), tail: 0, now_ms: 0, open: Vec::new() };
        for input in given {
            world.feed(input.clone()).unwrap_or_else(|refusal| panic!("{input:?} was refused: {refusal}"));
        }
        world
    }

    fn feed(&mut self, input: SessionInput) -> Result<Transition, RequestError> {
        self.now_ms += 10;
        let moment = DecisionContext { tail: self.tail, now_ms: self.now_ms, open: &self.open };
        let turn = |core: &SessionState| core.turn.as_ref().map(|turn| turn.id.clone());
        let before = turn(&self.state);
        let decision = self.state.decide(input, moment)?;
        let is_over = before.is_some() && before != turn(&self.state);
        assert_eq!(decision.turn_is_over, is_over, "{before:?}");
        self.tail += decision.new_events.len() as Seq;
        Ok(decision)
    }
}

/// An event in short: its name, and what of it the rules decide.
fn event_text(body: &EventBody) -> String {
    match body {
        EventBody::Observation(Observation { kind: seen, content }) => match seen {
            ObservationKind::AgentStateChanged { turn_over: true, .. } => "turn over".to_owned(),
            ObservationKind::AgentStateChanged { agent_state, .. } => format!("is {}", agent_state.name()),
            ObservationKind::Queue { items } => format!("queue {}", items.len()),
            ObservationKind::Chat { .. } => format!("chat {content}"),
            ObservationKind::Message { partial: true } => format!("partial {content}"),
            ObservationKind::Interrupted { what, escalation_step: rung, partial, .. } => {
                format!("interrupted {what} by {rung:?}{}", if *partial { " partial" } else { "" })
            }
            ObservationKind::Sandbox { phase, .. } => format!("sandbox {phase:?}"),
            ObservationKind::Error { code, .. } => format!("error {code}"),
            _ => body.name().to_owned(),
        },
        EventBody::Action(_) | EventBody::Opaque(_) => format!("{}!", body.name()),
    }
}

fn effect_text(order: &Effect) -> String {
    match order {
        Effect::DeliverToAgent(numbered) => match &numbered.command {
            AgentCommand::Prompt { turn, content, .. } => format!("prompt {turn} {content}"),
            AgentCommand::Steer { content, .. } => format!("steer {content}"),
            AgentCommand::UserAction { user_action: act, .. } => format!("act {act}"),
            AgentCommand::Cancel {} => "cancel".to_owned(),
            AgentCommand::KillProcesses {} => "kill processes".to_owned(),
            AgentCommand::Settings(_) => "settings".to_owned(),
            AgentCommand::Answer { request, .. } => format!("answer {request}"),
        },
        Effect::AgentConnected(_) => "anew".to_owned(),
        Effect::StartSandbox => "raise".to_owned(),
        Effect::AbortModelStreams => "cut".to_owned(),
        Effect::PauseSandbox => "freeze".to_owned(),
        Effect::UnpauseSandbox => "thaw".to_owned(),
        Effect::StopSandbox(AfterStop::Restart) => "restart".to_owned(),
        Effect::StopSandbox(AfterStop::KeepFiles) => "stop".to_owned(),
        Effect::StopSandbox(AfterStop::Remove) => "remove".to_owned(),
    }
}

fn check(given: &[SessionInput], input: SessionInput, state: AgentState, events: &[&str], orders: &[&str]) {
    let mut world = RulesFixture::after(given);
    let decision = world.feed(input.clone()).unwrap_or_else(|refusal| panic!("{input:?} was refused: {refusal}"));
    let got: Vec<String> = decision.new_events.iter().map(|draft| event_text(&draft.body)).collect();
    assert_eq!(got, events, "what {input:?} writes down");
    let ordered = decision.effects.iter().filter(|order| !matches!(order, Effect::AgentConnected(_))).map(effect_text);
    assert_eq!(ordered.collect::<Vec<_>>(), orders, "what {input:?} orders");
    assert_eq!(world.state.visible_state(), state, "after {input:?}");
}

fn check_rejected(given: &[SessionInput], input: SessionInput, code: &str) {
    let mut world = RulesFixture::after(given);
    let before = world.state.clone();
    let refusal = world.feed(input.clone()).expect_err("it is refused");
    assert_eq!(refusal.code(), code, "{input:?}: {refusal}");
    assert_eq!(world.state, before, "a refusal changes nothing");
}

// Inputs, in short.

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
    }
}

/// Names are counted through, so the first message is 1, its turn 2 and the command that carries it 3.
fn working() -> Vec<SessionInput> {
    vec![SessionInput::SessionCreated, up(), start("t")]
}

fn with(given: Vec<SessionInput>, more: &[SessionInput]) -> Vec<SessionInput> {
    [given, more.to_vec()].concat()
}

#[test]
fn a_session_comes_up_and_works() {
    check(&[], SessionInput::SessionCreated, AgentState::Starting, &[], &["raise"]);
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
    let act = with(
        vec![SessionInput::SessionCreated, up()],
        &[SessionInput::UserAction(Action::Run { command: "ls".into() })],
    );
    let act_failed = SessionInput::UserActionEnded { user_action: "act-1".into(), outcome: failed };
    check(&act, act_failed, AgentState::Idle, &["is idle"], &[]);
}

#[test]
fn a_task_waits_for_the_sandbox() {
    check(&[SessionInput::SessionCreated], start("t"), AgentState::Starting, &["start!", "queue 1"], &[]);
    let events = ["sandbox Ready", "chat t", "queue 0", "is running"];
    check(&[SessionInput::SessionCreated, start("t")], up(), AgentState::Running, &events, &["prompt turn-2 t"]);
    check_rejected(&[SessionInput::SessionCreated, start("t")], start("u"), "busy");
    check_rejected(&working(), start("u"), "busy");
}

#[test]
fn messages_wait_their_turn() {
    check(&working(), say("m"), AgentState::Running, &["message!", "queue 1"], &[]);
    let next = ["chat m", "queue 0"];
    check(
        &with(working(), &[say("m")]),
        turn_ended(2, WorkOutcome::Done),
        AgentState::Running,
        &next,
        &["prompt turn-5 m"],
    );
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
fn a_steering_message_is_taken_in_or_waits() {
    let steering = with(working(), &[say_as(MessageMode::Steer, "s")]);
    check(&working(), say_as(MessageMode::Steer, "s"), AgentState::Running, &["message!"], &["steer s"]);
    check(&steering, SessionInput::Steered { command: "command-5".into() }, AgentState::Running, &["chat s"], &[]);
    let missed = SessionInput::SteerMissed { command: "command-5".into() };
    check(&steering, missed.clone(), AgentState::Running, &["queue 1"], &[]);
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
fn what_steered_nothing_waits_in_the_order_in_which_it_was_said() {
    let queue = |given: &[SessionInput]| -> Vec<String> {
        RulesFixture::after(given).state.queue.into_iter().map(|waiting| waiting.item.content).collect()
    };
    let missed = |n: u64| SessionInput::SteerMissed { command: format!("command-{n}") };
    let said = [say("q"), say_as(MessageMode::Steer, "s"), say_as(MessageMode::Steer, "t")];
    let steering = with(working(), &said);
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
    // Nor does it go before what was said instead of it, where the agent took neither.
    let instead = [
        say_as(MessageMode::Steer, "s"),
        say_as(MessageMode::Interrupt, "i"),
        SessionInput::EscalationDue,
        SessionInput::EscalationDue,
    ];
    assert_eq!(queue(&with(working(), &instead)), ["i", "s"]);
}

#[test]
fn the_user_acts_beside_the_agent_one_at_a_time() {
    check(&working(), run(), AgentState::Running, &["run!"], &["act act-4"]);
    check(&with(working(), &[run()]), run(), AgentState::Running, &["run!"], &[]);
    let two = with(working(), &[run(), run()]);
    check(
        &two,
        SessionInput::UserActionEnded { user_action: "act-4".into(), outcome: WorkOutcome::Done },
        AgentState::Running,
        &[],
        &["act act-6"],
    );
    check(&[SessionInput::SessionCreated, up()], run(), AgentState::Running, &["run!", "is running"], &["act act-1"]);
}

#[test]
fn an_interrupt_ends_what_runs() {
    let asked = ["interrupt!", "is interrupting"];
    check(&working(), SessionInput::Interrupt, AgentState::Interrupting, &asked, &["cancel", "cut"]);
    check_rejected(&[SessionInput::SessionCreated, up()], SessionInput::Interrupt, "nothing_to_interrupt");
    check_rejected(&[SessionInput::SessionCreated, start("t")], SessionInput::Interrupt, "nothing_to_interrupt");
    let interrupting = with(working(), &[SessionInput::Interrupt]);
    let receipt = ["interrupted the command `ls` by Cancel", "is idle"];
    check(&interrupting, turn_ended(2, cancelled("the command `ls`")), AgentState::Idle, &receipt, &[]);
    let late = ["interrupted the turn, which had just ended by Cancel", "is idle"];
    check(&interrupting, turn_ended(2, WorkOutcome::Done), AgentState::Idle, &late, &[]);
}

#[test]
fn an_interrupt_waits_for_turn_and_act_and_drops_the_acts_behind_it() {
    let both = with(working(), &[run(), run()]);
    check(
        &both,
        SessionInput::Interrupt,
        AgentState::Interrupting,
        &["interrupt!", "error not_begun", "is interrupting"],
        &["cancel", "cut"],
    );
    let turn_gone = with(both, &[SessionInput::Interrupt, turn_ended(2, cancelled("a"))]);
    let act_gone = SessionInput::UserActionEnded { user_action: "act-4".into(), outcome: cancelled("b") };
    check(&turn_gone, act_gone, AgentState::Idle, &["interrupted a and b by Cancel", "is idle"], &[]);
}

#[test]
fn a_second_interrupt_takes_the_agent_away() {
    let given = with(working(), &[SessionInput::Interrupt]);
    let events = ["interrupt!", "interrupted the turn by RestartAgent", "is starting"];
    check(&given, SessionInput::Interrupt, AgentState::Starting, &events, &["restart"]);
    let back = with(given, &[SessionInput::Interrupt]);
    check(
        &back,
        SessionInput::HelloReceived { boot: "b2".into() },
        AgentState::Idle,
        &["sandbox Ready", "is idle"],
        &[],
    );
}

#[test]
fn what_waits_is_held_after_an_interrupt_until_a_person_says_more() {
    let held = with(working(), &[say("m"), SessionInput::Interrupt]);
    let stopped = ["interrupted x by Cancel", "is idle"];
    check(&held, turn_ended(2, cancelled("x")), AgentState::Idle, &stopped, &[]);
    let held = with(held, &[turn_ended(2, cancelled("x"))]);
    check(
        &held,
        SessionInput::Resume,
        AgentState::Running,
        &["resume!", "chat m", "queue 0", "is running"],
        &["prompt turn-6 m"],
    );
    check(&held, say("n"), AgentState::Running, &["message!", "chat m", "queue 1", "is running"], &["prompt turn-7 m"]);
    check(&held, run(), AgentState::Running, &["run!", "is running"], &["act act-6"]);
    let steered = with(working(), &[say_as(MessageMode::Steer, "s"), SessionInput::Interrupt]);
    let missed = with(steered, &[SessionInput::SteerMissed { command: "command-5".into() }]);
    check(&missed, turn_ended(2, cancelled("x")), AgentState::Idle, &stopped, &[]);
}

#[test]
fn a_message_can_interrupt() {
    let events = ["message!", "queue 1", "is interrupting"];
    check(&working(), say_as(MessageMode::Interrupt, "m"), AgentState::Interrupting, &events, &["cancel", "cut"]);
    let given = with(working(), &[say_as(MessageMode::Interrupt, "m")]);
    let events = ["interrupted x by Cancel", "chat m", "queue 0", "is running"];
    check(&given, turn_ended(2, cancelled("x")), AgentState::Running, &events, &["prompt turn-6 m"]);
    // Where nothing runs yet there is nothing to break into.
    let waiting = [SessionInput::SessionCreated, run()];
    check(&waiting, say_as(MessageMode::Interrupt, "m"), AgentState::Starting, &["message!", "queue 1"], &[]);
}

#[test]
fn a_stopped_session_comes_back() {
    let events = ["stop!", "interrupted the turn by Sandbox", "is stopped"];
    check(&working(), SessionInput::Stop { reason: None }, AgentState::Stopped, &events, &["cut", "stop"]);
    let stopped = [SessionInput::SessionCreated, up(), SessionInput::Stop { reason: None }];
    check(&stopped, SessionInput::Resume, AgentState::Starting, &["resume!", "is starting"], &["raise"]);
    check(&stopped, say("m"), AgentState::Starting, &["message!", "queue 1", "is starting"], &["raise"]);
    check(&stopped, run(), AgentState::Starting, &["run!", "is starting"], &["raise"]);
    check_rejected(&stopped, SessionInput::Stop { reason: None }, "already");
    check_rejected(&stopped, SessionInput::Interrupt, "nothing_to_interrupt");
    check(&stopped, lost(), AgentState::Stopped, &[], &[]);
}

#[test]
fn an_ended_session_is_closed_for_good() {
    let events = ["end!", "interrupted the turn by Sandbox", "is ended"];
    check(&working(), SessionInput::End, AgentState::Ended, &events, &["cut", "remove"]);
    let ended = [SessionInput::SessionCreated, up(), SessionInput::End];
    for wish in [
        start("t"),
        say("m"),
        run(),
        SessionInput::Interrupt,
        SessionInput::Pause,
        SessionInput::Resume,
        SessionInput::End,
    ] {
        check_rejected(&ended, wish, "ended");
    }
}

#[test]
fn a_lost_sandbox_is_told_and_the_next_message_starts_a_fresh_one() {
    let events = ["sandbox Lost", "interrupted the turn by Sandbox", "is failed"];
    check(&working(), lost(), AgentState::Failed, &events, &["cut"]);
    let failed = with(working(), &[lost()]);
    check(&failed, say("m"), AgentState::Starting, &["message!", "queue 1", "is starting"], &["raise"]);
    let never = SessionInput::StartFailed { why: "no image".into(), stderr_tail: None };
    check(
        &[SessionInput::SessionCreated, start("t")],
        never.clone(),
        AgentState::Failed,
        &["sandbox Failed", "is failed"],
        &["cut"],
    );
    let back = [SessionInput::SessionCreated, start("t"), never];
    check(&back, SessionInput::Resume, AgentState::Starting, &["resume!", "is starting"], &["raise"]);
    let events = ["sandbox Ready", "chat t", "queue 0", "is running"];
    check(&with(back.to_vec(), &[SessionInput::Resume]), up(), AgentState::Running, &events, &["prompt turn-2 t"]);
}

#[test]
fn what_a_person_has_read_does_not_go_away() {
    let mut world = RulesFixture::after(&working());
    world.open = vec![
        OpenItem { item: "i".into(), kind: DeltaKind::Text, start: 0, text: "Once upon".into() },
        OpenItem { item: "j".into(), kind: DeltaKind::ToolInput, start: 0, text: "{".into() },
    ];
    let decision = world.feed(lost()).expect("it is taken");
    let got: Vec<String> = decision.new_events.iter().map(|draft| event_text(&draft.body)).collect();
    assert_eq!(got, ["sandbox Lost", "partial Once upon", "interrupted the turn by Sandbox partial", "is failed"]);
}

#[test]
fn an_agent_that_started_again_gets_what_it_had_not_taken_and_loses_what_it_had() {
    let fresh = SessionInput::HelloReceived { boot: "b2".into() };
    check(&working(), fresh.clone(), AgentState::Running, &[], &["prompt turn-2 t"]);
    let taken = with(working(), &[SessionInput::CommandAccepted { command: "command-3".into() }]);
    check(&taken, fresh, AgentState::Idle, &["error agent_restarted", "is idle"], &[]);
    check(&taken, up(), AgentState::Running, &[], &[]);
    check(&working(), up(), AgentState::Running, &[], &["prompt turn-2 t"]);
    let world = RulesFixture::after(&working());
    assert_eq!(world.state.history_to(99), 3, "a prompt that is still to come is no history");
    assert_eq!(RulesFixture::after(&taken).state.history_to(99), 99);
}

/// Its link was down, or the server died before it was told.
#[test]
fn an_interrupt_that_has_not_reached_the_agent_reaches_whoever_comes_next() {
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
fn what_ended_is_not_begun_again_by_an_agent_that_never_said_it_took_it() {
    let turn = with(working(), &[turn_ended(2, WorkOutcome::Done)]);
    check(&turn, up(), AgentState::Idle, &[], &[]);
    let act = [
        SessionInput::SessionCreated,
        up(),
        run(),
        SessionInput::UserActionEnded { user_action: "act-1".into(), outcome: WorkOutcome::Done },
    ];
    check(&act, up(), AgentState::Idle, &[], &[]);
}

#[test]
fn a_person_is_asked_once() {
    let asked = with(working(), &[SessionInput::ApprovalRequested { request: "r".into() }]);
    let answer =
        |request: &str| SessionInput::Confirm { request: request.into(), decision: Verdict::Allow, reason: None };
    check(
        &working(),
        SessionInput::ApprovalRequested { request: "r".into() },
        AgentState::AwaitingConfirmation,
        &["is awaiting_confirmation"],
        &[],
    );
    check(&asked, answer("r"), AgentState::Running, &["confirm!", "confirmed", "is running"], &["answer r"]);
    check_rejected(&asked, answer("q"), "no_request");
    check_rejected(&with(asked, &[answer("r")]), answer("r"), "no_request");
}

/// Its agent is about to be taken away, and has not noticed.
#[test]
fn what_comes_late_of_a_turn_that_is_over_begins_nothing() {
    let late = [
        SessionInput::ApprovalRequested { request: "r".into() },
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
fn a_model_is_changed_in_its_place() {
    let change = || SessionInput::SetModel { settings: settings(), title: None };
    check(&[SessionInput::SessionCreated], change(), AgentState::Starting, &["set_model!"], &[]);
    check(&[SessionInput::SessionCreated, up()], change(), AgentState::Idle, &["set_model!"], &["settings"]);
}

#[test]
fn a_death_is_told_with_its_code_its_cause_and_the_last_words() {
    for (code, out_of_memory, why) in [
        (Some(137), true, "the sandbox ran out of memory"),
        (Some(3), false, "the sandbox died with exit code 3"),
        (None, false, "the sandbox is gone"),
    ] {
        let mut world = RulesFixture::after(&working());
        let exit = SandboxExit { code, out_of_memory, stderr_tail: "last words".into() };
        let decision = world.feed(SessionInput::SandboxLost(exit)).expect("nobody can refuse that");
        let told = ObservationKind::Sandbox {
            phase: SandboxPhase::Lost,
            exit_code: code,
            out_of_memory,
            stderr_tail: Some("last words".into()),
            isolation: None,
        };
        assert_eq!(decision.new_events[0].body, Observation { kind: told, content: why.to_owned() }.into());
        assert_eq!((world.state.visible_state(), world.state.reason().as_deref()), (AgentState::Failed, Some(why)));
    }
}

#[test]
fn what_was_asked_under_an_id_is_remembered_for_a_while() {
    let named = |key: &str, digest| IdempotencyKey { key: key.into(), digest };
    let mut core = SessionState::default();
    core.add_to_dedup_cache(named("a", 1), Some(7));
    core.add_to_dedup_cache(named("b", 2), None);
    assert_eq!(core.find_in_dedup_cache(&named("a", 1)), Ok(Some(Some(7))));
    assert_eq!(core.find_in_dedup_cache(&named("b", 2)), Ok(Some(None)));
    assert_eq!(core.find_in_dedup_cache(&named("c", 2)), Ok(None));
    assert_eq!(core.find_in_dedup_cache(&named("b", 1)), Err(RequestError::IdReused("b".into())));
    // An older version kept no digests.
    let mut kept = serde_json::to_value(&core).expect("it is stored");
    kept.as_object_mut().expect("an object").remove("digests");
    let mut core: SessionState = serde_json::from_value(kept).expect("it comes back");
    core.add_to_dedup_cache(named("c", 3), Some(9));
    assert_eq!(core.find_in_dedup_cache(&named("a", 5)), Ok(Some(Some(7))), "whatever it was");
    assert_eq!(core.find_in_dedup_cache(&named("c", 5)), Err(RequestError::IdReused("c".into())));
    for n in 0..63 {
        core.add_to_dedup_cache(named(&format!("later {n}"), n), None);
    }
    assert_eq!(core.find_in_dedup_cache(&named("b", 2)), Ok(None));
    assert_eq!(core.find_in_dedup_cache(&named("c", 3)), Ok(Some(Some(9))));
    core.add_to_dedup_cache(named("d", 4), None);
    assert_eq!(core.find_in_dedup_cache(&named("c", 3)), Ok(None));
}
