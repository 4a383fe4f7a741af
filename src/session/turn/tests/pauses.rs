//! What stands still, by whose wish, and what wakes it.

use super::*;
use crate::sandbox::SandboxPresence;

#[test]
fn a_pause_freezes_and_a_resume_goes_on() {
    check(&working(), SessionInput::Pause, AgentState::Paused, &["pause!", "is paused"], &["freeze"]);
    let paused = with(working(), &[SessionInput::Pause]);
    check(&paused, SessionInput::Resume, AgentState::Running, &["resume!", "is running"], &["thaw"]);
    check(&paused, say("m"), AgentState::Paused, &["message!", "queue 1"], &[]);
    let asked = ["interrupt!", "is interrupting"];
    check(&paused, SessionInput::Interrupt, AgentState::Interrupting, &asked, &["thaw", "cancel", "cut"]);
    check_rejected(&paused, SessionInput::Pause, "already");
    check_rejected(&[SessionInput::SessionCreated], SessionInput::Pause, "wrong_state");
    check_rejected(&with(working(), &[SessionInput::Interrupt]), SessionInput::Pause, "wrong_state");
    check_rejected(&[SessionInput::SessionCreated, up()], SessionInput::Resume, "already");
    let idle = [SessionInput::SessionCreated, up(), SessionInput::Pause];
    check(&idle, say("m"), AgentState::Running, &["message!", "chat m", "is running"], &["thaw", "prompt turn-2 m"]);
    check(&idle, run(), AgentState::Running, &["run!", "is running"], &["thaw", "act act-1"]);
    let failed = SessionInput::EffectFailed { what: "freeze", why: "no".into() };
    check(&paused, failed, AgentState::Running, &["error sandbox", "is running"], &["thaw"]);
}

/// The freeze comes after the disk and the driver, and meanwhile the agent may be done: nothing else would say so.
#[test]
fn a_turn_that_ends_as_it_is_paused_is_told() {
    let paused = with(working(), &[SessionInput::Pause]);
    check(&paused, turn_ended(2, WorkOutcome::Done), AgentState::Paused, &["turn over"], &[]);
    let over = with(paused, &[turn_ended(2, WorkOutcome::Done)]);
    check(&over, SessionInput::Resume, AgentState::Idle, &["resume!", "is idle"], &["thaw"]);
}

#[test]
fn what_ends_while_paused_leaves_the_session_to_be_woken() {
    let act_ended = SessionInput::UserActionEnded { user_action: "act-1".into(), outcome: WorkOutcome::Done };
    let given = [SessionInput::SessionCreated, up(), run(), run(), SessionInput::Pause, act_ended];
    let orders = ["thaw", "prompt turn-5 m", "act act-3"];
    check(&given, say("m"), AgentState::Running, &["message!", "chat m", "is running"], &orders);
    let events = ["interrupt!", "error not_begun", "interrupted nothing that was still running by Cancel", "is idle"];
    check(&given, SessionInput::Interrupt, AgentState::Idle, &events, &["thaw"]);
}

#[test]
fn a_sandbox_that_cannot_be_thawed_is_tried_again_and_then_given_up() {
    let failed = || SessionInput::EffectFailed { what: "thaw", why: "no".into() };
    let resumed = with(working(), &[SessionInput::Pause, SessionInput::Resume]);
    check(&resumed, failed(), AgentState::Running, &["error sandbox"], &["thaw"]);
    let again = with(resumed.clone(), &[failed()]);
    let events = ["error sandbox", "interrupted the turn by Sandbox", "is failed"];
    check(&again, failed(), AgentState::Failed, &events, &["cut", "stop"]);
    let failed_so = RulesFixture::after(&with(again.clone(), &[failed()])).state;
    assert_eq!(failed_so.reason().as_deref(), Some("the sandbox could not thaw: no"));
    check(
        &with(again.clone(), &[SessionInput::Pause, SessionInput::Resume]),
        failed(),
        AgentState::Running,
        &["error sandbox"],
        &["thaw"],
    );
    check(&with(again, &[SessionInput::Pause]), failed(), AgentState::Paused, &["error sandbox"], &[]);
    // What could not be frozen is thawed, and that is no second try.
    let not_frozen = SessionInput::EffectFailed { what: "freeze", why: "no".into() };
    check(
        &with(working(), &[SessionInput::Pause, not_frozen]),
        failed(),
        AgentState::Running,
        &["error sandbox"],
        &["thaw"],
    );
    let interrupted = with(resumed, &[SessionInput::Pause, SessionInput::Interrupt, failed()]);
    check(&interrupted, failed(), AgentState::Failed, &events, &["cut", "stop"]);
}

#[test]
fn only_what_is_idle_rests() {
    let rest = || SessionInput::PauseIdle { reason: "idle".into() };
    check(
        &[SessionInput::SessionCreated, up()],
        rest(),
        AgentState::Paused,
        &["sandbox Paused", "is paused"],
        &["freeze"],
    );
    check_rejected(&working(), rest(), "busy");
    check_rejected(&[SessionInput::SessionCreated], rest(), "wrong_state");
    let stop = || SessionInput::StopIdle { reason: Some("idle".into()) };
    check(
        &[SessionInput::SessionCreated, up(), rest()],
        stop(),
        AgentState::Stopped,
        &["stop!", "is stopped"],
        &["cut", "stop"],
    );
    check_rejected(&with(working(), &[SessionInput::Pause]), stop(), "busy");
    // Whoever looks is told why, unless a person wanted it.
    let reason = |given: &[SessionInput]| {
        let mut world = RulesFixture::after(&[SessionInput::SessionCreated]);
        let told = given.iter().flat_map(|input| world.feed(input.clone()).expect("it is taken").new_events).last();
        let Some(EventBody::Observation(Observation {
            kind: ObservationKind::AgentStateChanged { reason, .. }, ..
        })) = told.map(|draft| draft.body)
        else {
            panic!("its state changed last");
        };
        assert_eq!(reason, world.state.reason());
        reason
    };
    assert_eq!(reason(&[up(), rest()]).as_deref(), Some("idle"));
    assert_eq!(reason(&[up(), SessionInput::Pause]), None);
    assert_eq!(reason(&[up(), rest(), SessionInput::Resume]), None);
    assert_eq!(reason(&[up(), rest(), SessionInput::Resume, SessionInput::Pause]), None);
    assert_eq!(reason(&[up(), rest(), SessionInput::End]), None);
}

#[test]
fn a_sandbox_that_is_seen_otherwise_is_made_what_its_session_says() {
    let settles = |given: &[SessionInput], wanted: [Option<&str>; 3]| {
        let core = RulesFixture::after(given).state;
        let seen = [SandboxPresence::Running, SandboxPresence::Paused, SandboxPresence::Exited];
        let orders = seen.map(|seen| core.reconcile(seen).as_ref().map(effect_text));
        assert_eq!(orders.each_ref().map(Option::as_deref), wanted, "{given:?}");
    };
    settles(&[SessionInput::SessionCreated], [None; 3]);
    settles(&[SessionInput::SessionCreated, up()], [None, Some("thaw"), None]);
    settles(&working(), [None, Some("thaw"), None]);
    settles(&[SessionInput::SessionCreated, up(), SessionInput::Pause], [Some("freeze"), None, None]);
    for end in [SessionInput::Stop { reason: None }, lost(), SessionInput::End] {
        settles(&[SessionInput::SessionCreated, up(), end], [Some("stop"), Some("stop"), None]);
    }
}
