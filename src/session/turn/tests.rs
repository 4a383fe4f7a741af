//! The rules in full: one line for each, and in its modules what one line does not say.

mod beside;
mod ladder;
mod pauses;
mod room;
mod whatever;

use greenroom_protocol::{Body, DeltaKind, link::Api};

use super::*;
use crate::session::{decision::OpenItem, messages::orders::Then};

/// A core and the journal that its decisions would make.
struct World {
    core: Core,
    tail: Seq,
    now_ms: i64,
    open: Vec<OpenItem>,
}

impl World {
    fn after(given: &[Input]) -> World {
        let mut world = World { core: Core::default(), tail: 0, now_ms: 0, open: Vec::new() };
        for input in given {
            world.feed(input.clone()).unwrap_or_else(|refusal| panic!("{input:?} was refused: {refusal}"));
        }
        world
    }

    fn feed(&mut self, input: Input) -> Result<Decision, Refusal> {
        self.now_ms += 10;
        let moment = Moment { tail: self.tail, now_ms: self.now_ms, open: &self.open };
        let turn = |core: &Core| core.turn.as_ref().map(|turn| turn.id.clone());
        let before = turn(&self.core);
        let decision = self.core.decide(input, moment)?;
        let is_over = before.is_some() && before != turn(&self.core);
        assert_eq!(decision.turn_is_over, is_over, "{before:?}");
        self.tail += decision.drafts.len() as Seq;
        Ok(decision)
    }
}

/// An event in short: its name, and what of it the rules decide.
fn event(body: &Body) -> String {
    match body {
        Body::Observation(Observation { seen, content }) => match seen {
            Seen::AgentStateChanged { turn_over: true, .. } => "turn over".to_owned(),
            Seen::AgentStateChanged { agent_state, .. } => format!("is {}", agent_state.name()),
            Seen::Queue { items } => format!("queue {}", items.len()),
            Seen::Chat { .. } => format!("chat {content}"),
            Seen::Message { partial: true } => format!("partial {content}"),
            Seen::Interrupted { what, rung, partial, .. } => {
                format!("interrupted {what} by {rung:?}{}", if *partial { " partial" } else { "" })
            }
            Seen::Sandbox { phase, .. } => format!("sandbox {phase:?}"),
            Seen::Error { code, .. } => format!("error {code}"),
            _ => body.name().to_owned(),
        },
        Body::Action(_) | Body::Opaque(_) => format!("{}!", body.name()),
    }
}

fn order(order: &Order) -> String {
    match order {
        Order::Deliver(numbered) => match &numbered.command {
            Command::Prompt { turn, content, .. } => format!("prompt {turn} {content}"),
            Command::Steer { content, .. } => format!("steer {content}"),
            Command::Act { act, .. } => format!("act {act}"),
            Command::Cancel {} => "cancel".to_owned(),
            Command::KillProcesses {} => "kill processes".to_owned(),
            Command::Settings(_) => "settings".to_owned(),
            Command::Answer { request, .. } => format!("answer {request}"),
        },
        Order::Anew(_) => "anew".to_owned(),
        Order::Raise => "raise".to_owned(),
        Order::Cut => "cut".to_owned(),
        Order::Freeze => "freeze".to_owned(),
        Order::Thaw => "thaw".to_owned(),
        Order::Kill(Then::Restart) => "restart".to_owned(),
        Order::Kill(Then::Rest) => "stop".to_owned(),
        Order::Kill(Then::Remove) => "remove".to_owned(),
    }
}

fn check(given: &[Input], input: Input, state: State, events: &[&str], orders: &[&str]) {
    let mut world = World::after(given);
    let decision = world.feed(input.clone()).unwrap_or_else(|refusal| panic!("{input:?} was refused: {refusal}"));
    let got: Vec<String> = decision.drafts.iter().map(|draft| event(&draft.body)).collect();
    assert_eq!(got, events, "what {input:?} writes down");
    let ordered = decision.orders.iter().filter(|order| !matches!(order, Order::Anew(_))).map(order);
    assert_eq!(ordered.collect::<Vec<_>>(), orders, "what {input:?} orders");
    assert_eq!(world.core.state(), state, "after {input:?}");
}

fn refuses(given: &[Input], input: Input, code: &str) {
    let mut world = World::after(given);
    let before = world.core.clone();
    let refusal = world.feed(input.clone()).expect_err("it is refused");
    assert_eq!(refusal.code(), code, "{input:?}: {refusal}");
    assert_eq!(world.core, before, "a refusal changes nothing");
}

// Inputs, in short.

fn start(task: &str) -> Input {
    Input::Start { task: task.into() }
}

fn say(content: &str) -> Input {
    Input::Message { content: content.into(), mode: Mode::Queue, attachments: vec![] }
}

fn say_as(mode: Mode, content: &str) -> Input {
    Input::Message { content: content.into(), mode, attachments: vec![] }
}

fn up() -> Input {
    Input::Greeted { boot: "b1".into() }
}

fn starting() -> Input {
    Input::Phased { phase: Phase::Starting, detail: String::new(), isolation: None }
}

fn run() -> Input {
    Input::Act(Action::Run { command: "ls".into() })
}

fn turn_ended(n: u64, outcome: Outcome) -> Input {
    Input::TurnEnded { turn: format!("turn-{n}"), outcome }
}

fn cancelled(what: &str) -> Outcome {
    Outcome::Cancelled { what: what.into(), partial: false }
}

fn lost() -> Input {
    Input::Lost(Exit { code: Some(137), out_of_memory: false, stderr_tail: "Killed".into() })
}

fn settings() -> Settings {
    Settings { model: "m".into(), api: Api::Openai, directory: "/workspace".into(), run_timeout_s: 1, max_steps: 1 }
}

/// Names are counted through, so the first message is 1, its turn 2 and the command that carries it 3.
fn working() -> Vec<Input> {
    vec![Input::Born, up(), start("t")]
}

fn with(given: Vec<Input>, more: &[Input]) -> Vec<Input> {
    [given, more.to_vec()].concat()
}

#[test]
fn a_session_comes_up_and_works() {
    check(&[], Input::Born, State::Starting, &[], &["raise"]);
    check(&[Input::Born], up(), State::Idle, &["sandbox Ready", "is idle"], &[]);
    check(&[Input::Born, starting()], up(), State::Idle, &["sandbox Ready", "is idle"], &[]);
    check(&[Input::Born, up()], up(), State::Idle, &[], &[]);
    check(&[Input::Born, up(), starting()], up(), State::Idle, &["sandbox Ready"], &[]);
    check(&[Input::Born, up()], start("t"), State::Running, &["start!", "chat t", "is running"], &["prompt turn-2 t"]);
    check(&working(), turn_ended(2, Outcome::Done), State::Idle, &["is idle"], &[]);
    check(&working(), turn_ended(9, Outcome::Done), State::Running, &[], &[]);
    let failed = Outcome::Failed { code: "model_error".into(), detail: "why".into() };
    check(&working(), turn_ended(2, failed.clone()), State::Idle, &["error model_error", "is idle"], &[]);
    let act = with(vec![Input::Born, up()], &[Input::Act(Action::Run { command: "ls".into() })]);
    let act_failed = Input::ActEnded { act: "act-1".into(), outcome: failed };
    check(&act, act_failed, State::Idle, &["is idle"], &[]);
}

#[test]
fn a_task_waits_for_the_sandbox() {
    check(&[Input::Born], start("t"), State::Starting, &["start!", "queue 1"], &[]);
    let events = ["sandbox Ready", "chat t", "queue 0", "is running"];
    check(&[Input::Born, start("t")], up(), State::Running, &events, &["prompt turn-2 t"]);
    refuses(&[Input::Born, start("t")], start("u"), "busy");
    refuses(&working(), start("u"), "busy");
}

#[test]
fn messages_wait_their_turn() {
    check(&working(), say("m"), State::Running, &["message!", "queue 1"], &[]);
    let next = ["chat m", "queue 0"];
    check(&with(working(), &[say("m")]), turn_ended(2, Outcome::Done), State::Running, &next, &["prompt turn-5 m"]);
    let edit = |content: Option<&str>, remove| Input::EditQueue {
        item: "message-4".into(),
        content: content.map(Into::into),
        remove,
    };
    check(&with(working(), &[say("m")]), edit(None, true), State::Running, &["queue 0"], &[]);
    check(&with(working(), &[say("m")]), edit(Some("n"), false), State::Running, &["queue 1"], &[]);
    refuses(&with(working(), &[say("m")]), edit(None, false), "invalid_args");
    refuses(&with(working(), &[say("m")]), edit(Some("n"), true), "invalid_args");
    refuses(&working(), edit(None, true), "not_queued");
}

#[test]
fn a_steering_message_is_taken_in_or_waits() {
    let steering = with(working(), &[say_as(Mode::Steer, "s")]);
    check(&working(), say_as(Mode::Steer, "s"), State::Running, &["message!"], &["steer s"]);
    check(&steering, Input::Steered { command: "command-5".into() }, State::Running, &["chat s"], &[]);
    let missed = Input::SteerMissed { command: "command-5".into() };
    check(&steering, missed.clone(), State::Running, &["queue 1"], &[]);
    let over = with(steering, &[turn_ended(2, Outcome::Done)]);
    check(&over, missed, State::Running, &["chat s", "is running"], &["prompt turn-6 s"]);
    check(
        &[Input::Born, up()],
        say_as(Mode::Steer, "s"),
        State::Running,
        &["message!", "chat s", "is running"],
        &["prompt turn-2 s"],
    );
}

#[test]
fn what_steered_nothing_waits_in_the_order_in_which_it_was_said() {
    let queue = |given: &[Input]| -> Vec<String> {
        World::after(given).core.queue.into_iter().map(|waiting| waiting.item.content).collect()
    };
    let missed = |n: u64| Input::SteerMissed { command: format!("command-{n}") };
    let said = [say("q"), say_as(Mode::Steer, "s"), say_as(Mode::Steer, "t")];
    let steering = with(working(), &said);
    assert_eq!(queue(&with(steering.clone(), &[missed(6), missed(8)])), ["s", "t", "q"]);
    assert_eq!(queue(&with(steering.clone(), &[missed(6), lost()])), ["s", "t", "q"]);
    assert_eq!(queue(&with(steering.clone(), &[missed(6), Input::Greeted { boot: "b2".into() }])), ["s", "t", "q"]);
    let interrupted = with(steering, &[missed(6), say_as(Mode::Interrupt, "i"), missed(8)]);
    assert_eq!(queue(&interrupted), ["i", "s", "t", "q"]);
    let twice = with(interrupted, &[say_as(Mode::Interrupt, "rather j"), say("r")]);
    assert_eq!(queue(&twice), ["i", "rather j", "s", "t", "q", "r"]);
    // Nor does it go before what was said instead of it, where the agent took neither.
    let instead = [say_as(Mode::Steer, "s"), say_as(Mode::Interrupt, "i"), Input::LadderDue, Input::LadderDue];
    assert_eq!(queue(&with(working(), &instead)), ["i", "s"]);
}

#[test]
fn the_user_acts_beside_the_agent_one_at_a_time() {
    check(&working(), run(), State::Running, &["run!"], &["act act-4"]);
    check(&with(working(), &[run()]), run(), State::Running, &["run!"], &[]);
    let two = with(working(), &[run(), run()]);
    check(&two, Input::ActEnded { act: "act-4".into(), outcome: Outcome::Done }, State::Running, &[], &["act act-6"]);
    check(&[Input::Born, up()], run(), State::Running, &["run!", "is running"], &["act act-1"]);
}

#[test]
fn an_interrupt_ends_what_runs() {
    let asked = ["interrupt!", "is interrupting"];
    check(&working(), Input::Interrupt, State::Interrupting, &asked, &["cancel", "cut"]);
    refuses(&[Input::Born, up()], Input::Interrupt, "nothing_to_interrupt");
    refuses(&[Input::Born, start("t")], Input::Interrupt, "nothing_to_interrupt");
    let interrupting = with(working(), &[Input::Interrupt]);
    let receipt = ["interrupted the command `ls` by Cancel", "is idle"];
    check(&interrupting, turn_ended(2, cancelled("the command `ls`")), State::Idle, &receipt, &[]);
    let late = ["interrupted the turn, which had just ended by Cancel", "is idle"];
    check(&interrupting, turn_ended(2, Outcome::Done), State::Idle, &late, &[]);
}

#[test]
fn an_interrupt_waits_for_turn_and_act_and_drops_the_acts_behind_it() {
    let both = with(working(), &[run(), run()]);
    check(
        &both,
        Input::Interrupt,
        State::Interrupting,
        &["interrupt!", "error not_begun", "is interrupting"],
        &["cancel", "cut"],
    );
    let turn_gone = with(both, &[Input::Interrupt, turn_ended(2, cancelled("a"))]);
    let act_gone = Input::ActEnded { act: "act-4".into(), outcome: cancelled("b") };
    check(&turn_gone, act_gone, State::Idle, &["interrupted a and b by Cancel", "is idle"], &[]);
}

#[test]
fn a_second_interrupt_takes_the_agent_away() {
    let given = with(working(), &[Input::Interrupt]);
    let events = ["interrupt!", "interrupted the turn by RestartAgent", "is starting"];
    check(&given, Input::Interrupt, State::Starting, &events, &["restart"]);
    let back = with(given, &[Input::Interrupt]);
    check(&back, Input::Greeted { boot: "b2".into() }, State::Idle, &["sandbox Ready", "is idle"], &[]);
}

#[test]
fn what_waits_is_held_after_an_interrupt_until_a_person_says_more() {
    let held = with(working(), &[say("m"), Input::Interrupt]);
    let stopped = ["interrupted x by Cancel", "is idle"];
    check(&held, turn_ended(2, cancelled("x")), State::Idle, &stopped, &[]);
    let held = with(held, &[turn_ended(2, cancelled("x"))]);
    check(&held, Input::Resume, State::Running, &["resume!", "chat m", "queue 0", "is running"], &["prompt turn-6 m"]);
    check(&held, say("n"), State::Running, &["message!", "chat m", "queue 1", "is running"], &["prompt turn-7 m"]);
    check(&held, run(), State::Running, &["run!", "is running"], &["act act-6"]);
    let steered = with(working(), &[say_as(Mode::Steer, "s"), Input::Interrupt]);
    let missed = with(steered, &[Input::SteerMissed { command: "command-5".into() }]);
    check(&missed, turn_ended(2, cancelled("x")), State::Idle, &stopped, &[]);
}

#[test]
fn a_message_can_interrupt() {
    let events = ["message!", "queue 1", "is interrupting"];
    check(&working(), say_as(Mode::Interrupt, "m"), State::Interrupting, &events, &["cancel", "cut"]);
    let given = with(working(), &[say_as(Mode::Interrupt, "m")]);
    let events = ["interrupted x by Cancel", "chat m", "queue 0", "is running"];
    check(&given, turn_ended(2, cancelled("x")), State::Running, &events, &["prompt turn-6 m"]);
    // Where nothing runs yet there is nothing to break into.
    let waiting = [Input::Born, run()];
    check(&waiting, say_as(Mode::Interrupt, "m"), State::Starting, &["message!", "queue 1"], &[]);
}

#[test]
fn a_stopped_session_comes_back() {
    let events = ["stop!", "interrupted the turn by Sandbox", "is stopped"];
    check(&working(), Input::Stop { reason: None }, State::Stopped, &events, &["cut", "stop"]);
    let stopped = [Input::Born, up(), Input::Stop { reason: None }];
    check(&stopped, Input::Resume, State::Starting, &["resume!", "is starting"], &["raise"]);
    check(&stopped, say("m"), State::Starting, &["message!", "queue 1", "is starting"], &["raise"]);
    check(&stopped, run(), State::Starting, &["run!", "is starting"], &["raise"]);
    refuses(&stopped, Input::Stop { reason: None }, "already");
    refuses(&stopped, Input::Interrupt, "nothing_to_interrupt");
    check(&stopped, lost(), State::Stopped, &[], &[]);
}

#[test]
fn an_ended_session_is_closed_for_good() {
    let events = ["end!", "interrupted the turn by Sandbox", "is ended"];
    check(&working(), Input::End, State::Ended, &events, &["cut", "remove"]);
    let ended = [Input::Born, up(), Input::End];
    for wish in [start("t"), say("m"), run(), Input::Interrupt, Input::Pause, Input::Resume, Input::End] {
        refuses(&ended, wish, "ended");
    }
}

#[test]
fn a_lost_sandbox_is_told_and_the_next_message_starts_a_fresh_one() {
    let events = ["sandbox Lost", "interrupted the turn by Sandbox", "is failed"];
    check(&working(), lost(), State::Failed, &events, &["cut"]);
    let failed = with(working(), &[lost()]);
    check(&failed, say("m"), State::Starting, &["message!", "queue 1", "is starting"], &["raise"]);
    let never = Input::StartFailed { why: "no image".into(), stderr_tail: None };
    check(&[Input::Born, start("t")], never.clone(), State::Failed, &["sandbox Failed", "is failed"], &["cut"]);
    let back = [Input::Born, start("t"), never];
    check(&back, Input::Resume, State::Starting, &["resume!", "is starting"], &["raise"]);
    let events = ["sandbox Ready", "chat t", "queue 0", "is running"];
    check(&with(back.to_vec(), &[Input::Resume]), up(), State::Running, &events, &["prompt turn-2 t"]);
}

#[test]
fn what_a_person_has_read_does_not_go_away() {
    let mut world = World::after(&working());
    world.open = vec![
        OpenItem { item: "i".into(), kind: DeltaKind::Text, start: 0, text: "Once upon".into() },
        OpenItem { item: "j".into(), kind: DeltaKind::ToolInput, start: 0, text: "{".into() },
    ];
    let decision = world.feed(lost()).expect("it is taken");
    let got: Vec<String> = decision.drafts.iter().map(|draft| event(&draft.body)).collect();
    assert_eq!(got, ["sandbox Lost", "partial Once upon", "interrupted the turn by Sandbox partial", "is failed"]);
}

#[test]
fn an_agent_that_started_again_gets_what_it_had_not_taken_and_loses_what_it_had() {
    let fresh = Input::Greeted { boot: "b2".into() };
    check(&working(), fresh.clone(), State::Running, &[], &["prompt turn-2 t"]);
    let taken = with(working(), &[Input::Took { command: "command-3".into() }]);
    check(&taken, fresh, State::Idle, &["error agent_restarted", "is idle"], &[]);
    check(&taken, up(), State::Running, &[], &[]);
    check(&working(), up(), State::Running, &[], &["prompt turn-2 t"]);
    let world = World::after(&working());
    assert_eq!(world.core.history_to(99), 3, "a prompt that is still to come is no history");
    assert_eq!(World::after(&taken).core.history_to(99), 99);
}

/// Its link was down, or the server died before it was told.
#[test]
fn an_interrupt_that_has_not_reached_the_agent_reaches_whoever_comes_next() {
    let fresh = || Input::Greeted { boot: "b2".into() };
    let interrupted = with(working(), &[Input::Interrupt]);
    for next in [up(), fresh()] {
        check(&interrupted, next, State::Interrupting, &[], &["prompt turn-2 t", "cancel"]);
    }
    let taken = with(interrupted, &[Input::Took { command: "command-3".into() }]);
    check(&taken, up(), State::Interrupting, &[], &["cancel"]);
    let events = ["error agent_restarted", "interrupted nothing that was still running by Cancel", "is idle"];
    check(&taken, fresh(), State::Idle, &events, &[]);
}

#[test]
fn what_ended_is_not_begun_again_by_an_agent_that_never_said_it_took_it() {
    let turn = with(working(), &[turn_ended(2, Outcome::Done)]);
    check(&turn, up(), State::Idle, &[], &[]);
    let act = [Input::Born, up(), run(), Input::ActEnded { act: "act-1".into(), outcome: Outcome::Done }];
    check(&act, up(), State::Idle, &[], &[]);
}

#[test]
fn a_person_is_asked_once() {
    let asked = with(working(), &[Input::Asked { request: "r".into() }]);
    let answer = |request: &str| Input::Confirm { request: request.into(), decision: Verdict::Allow, reason: None };
    check(
        &working(),
        Input::Asked { request: "r".into() },
        State::AwaitingConfirmation,
        &["is awaiting_confirmation"],
        &[],
    );
    check(&asked, answer("r"), State::Running, &["confirm!", "confirmed", "is running"], &["answer r"]);
    refuses(&asked, answer("q"), "no_request");
    refuses(&with(asked, &[answer("r")]), answer("r"), "no_request");
}

/// Its agent is about to be taken away, and has not noticed.
#[test]
fn what_comes_late_of_a_turn_that_is_over_begins_nothing() {
    let late = [
        Input::Asked { request: "r".into() },
        Input::Steered { command: "command-5".into() },
        Input::SteerMissed { command: "command-5".into() },
        turn_ended(2, Outcome::Done),
        Input::ActEnded { act: "act-4".into(), outcome: Outcome::Done },
    ];
    for end in [vec![Input::Interrupt, Input::Interrupt], vec![Input::Stop { reason: None }], vec![lost()]] {
        let over = with(with(working(), &[run()]), &end);
        let state = World::after(&over).core.state();
        for late in &late {
            check(&over, late.clone(), state, &[], &[]);
        }
    }
    let over = with(with(working(), &[Input::Interrupt, Input::Interrupt]), &late);
    check(&over, Input::Greeted { boot: "b2".into() }, State::Idle, &["sandbox Ready", "is idle"], &[]);
}

#[test]
fn a_model_is_changed_in_its_place() {
    let change = || Input::SetModel { settings: settings(), title: None };
    check(&[Input::Born], change(), State::Starting, &["set_model!"], &[]);
    check(&[Input::Born, up()], change(), State::Idle, &["set_model!"], &["settings"]);
}

#[test]
fn a_death_is_told_with_its_code_its_cause_and_the_last_words() {
    for (code, out_of_memory, why) in [
        (Some(137), true, "the sandbox ran out of memory"),
        (Some(3), false, "the sandbox died with exit code 3"),
        (None, false, "the sandbox is gone"),
    ] {
        let mut world = World::after(&working());
        let exit = Exit { code, out_of_memory, stderr_tail: "last words".into() };
        let decision = world.feed(Input::Lost(exit)).expect("nobody can refuse that");
        let told = Seen::Sandbox {
            phase: Phase::Lost,
            exit_code: code,
            out_of_memory,
            stderr_tail: Some("last words".into()),
            isolation: None,
        };
        assert_eq!(decision.drafts[0].body, Observation { seen: told, content: why.to_owned() }.into());
        assert_eq!((world.core.state(), world.core.reason().as_deref()), (State::Failed, Some(why)));
    }
}

#[test]
fn what_was_asked_under_an_id_is_remembered_for_a_while() {
    let named = |key: &str, digest| Named { key: key.into(), digest };
    let mut core = Core::default();
    core.remember(named("a", 1), Some(7));
    core.remember(named("b", 2), None);
    assert_eq!(core.remembers(&named("a", 1)), Ok(Some(Some(7))));
    assert_eq!(core.remembers(&named("b", 2)), Ok(Some(None)));
    assert_eq!(core.remembers(&named("c", 2)), Ok(None));
    assert_eq!(core.remembers(&named("b", 1)), Err(Refusal::IdReused("b".into())));
    // An older version kept no digests.
    let mut kept = serde_json::to_value(&core).expect("it is stored");
    kept.as_object_mut().expect("an object").remove("digests");
    let mut core: Core = serde_json::from_value(kept).expect("it comes back");
    core.remember(named("c", 3), Some(9));
    assert_eq!(core.remembers(&named("a", 5)), Ok(Some(Some(7))), "whatever it was");
    assert_eq!(core.remembers(&named("c", 5)), Err(Refusal::IdReused("c".into())));
    for n in 0..63 {
        core.remember(named(&format!("later {n}"), n), None);
    }
    assert_eq!(core.remembers(&named("b", 2)), Ok(None));
    assert_eq!(core.remembers(&named("c", 3)), Ok(Some(Some(9))));
    core.remember(named("d", 4), None);
    assert_eq!(core.remembers(&named("c", 3)), Ok(None));
}
