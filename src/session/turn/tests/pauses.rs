//! What stands still, by whose wish, and what wakes it.

use super::*;
use crate::sandbox::Presence;

#[test]
fn a_pause_freezes_and_a_resume_goes_on() {
    check(&working(), Input::Pause, State::Paused, &["pause!", "is paused"], &["freeze"]);
    let paused = with(working(), &[Input::Pause]);
    check(&paused, Input::Resume, State::Running, &["resume!", "is running"], &["thaw"]);
    check(&paused, say("m"), State::Paused, &["message!", "queue 1"], &[]);
    let asked = ["interrupt!", "is interrupting"];
    check(&paused, Input::Interrupt, State::Interrupting, &asked, &["thaw", "cancel", "cut"]);
    refuses(&paused, Input::Pause, "already");
    refuses(&[Input::Born], Input::Pause, "wrong_state");
    refuses(&with(working(), &[Input::Interrupt]), Input::Pause, "wrong_state");
    refuses(&[Input::Born, up()], Input::Resume, "already");
    let idle = [Input::Born, up(), Input::Pause];
    check(&idle, say("m"), State::Running, &["message!", "chat m", "is running"], &["thaw", "prompt turn-2 m"]);
    check(&idle, run(), State::Running, &["run!", "is running"], &["thaw", "act act-1"]);
    let failed = Input::OrderFailed { what: "freeze", why: "no".into() };
    check(&paused, failed, State::Running, &["error sandbox", "is running"], &["thaw"]);
}

/// The freeze comes after the disk and the driver, and meanwhile the agent may be done: nothing else would say so.
#[test]
fn a_turn_that_ends_as_it_is_paused_is_told() {
    let paused = with(working(), &[Input::Pause]);
    check(&paused, turn_ended(2, Outcome::Done), State::Paused, &["turn over"], &[]);
    let over = with(paused, &[turn_ended(2, Outcome::Done)]);
    check(&over, Input::Resume, State::Idle, &["resume!", "is idle"], &["thaw"]);
}

#[test]
fn what_ends_while_paused_leaves_the_session_to_be_woken() {
    let act_ended = Input::ActEnded { act: "act-1".into(), outcome: Outcome::Done };
    let given = [Input::Born, up(), run(), run(), Input::Pause, act_ended];
    let orders = ["thaw", "prompt turn-5 m", "act act-3"];
    check(&given, say("m"), State::Running, &["message!", "chat m", "is running"], &orders);
    let events = ["interrupt!", "error not_begun", "interrupted nothing that was still running by Cancel", "is idle"];
    check(&given, Input::Interrupt, State::Idle, &events, &["thaw"]);
}

#[test]
fn a_sandbox_that_cannot_be_thawed_is_tried_again_and_then_given_up() {
    let failed = || Input::OrderFailed { what: "thaw", why: "no".into() };
    let resumed = with(working(), &[Input::Pause, Input::Resume]);
    check(&resumed, failed(), State::Running, &["error sandbox"], &["thaw"]);
    let again = with(resumed.clone(), &[failed()]);
    let events = ["error sandbox", "interrupted the turn by Sandbox", "is failed"];
    check(&again, failed(), State::Failed, &events, &["cut", "stop"]);
    let failed_so = World::after(&with(again.clone(), &[failed()])).core;
    assert_eq!(failed_so.reason().as_deref(), Some("the sandbox could not thaw: no"));
    check(
        &with(again.clone(), &[Input::Pause, Input::Resume]),
        failed(),
        State::Running,
        &["error sandbox"],
        &["thaw"],
    );
    check(&with(again, &[Input::Pause]), failed(), State::Paused, &["error sandbox"], &[]);
    // What could not be frozen is thawed, and that is no second try.
    let not_frozen = Input::OrderFailed { what: "freeze", why: "no".into() };
    check(&with(working(), &[Input::Pause, not_frozen]), failed(), State::Running, &["error sandbox"], &["thaw"]);
    let interrupted = with(resumed, &[Input::Pause, Input::Interrupt, failed()]);
    check(&interrupted, failed(), State::Failed, &events, &["cut", "stop"]);
}

#[test]
fn only_what_is_idle_rests() {
    let rest = || Input::Rest { reason: "idle".into() };
    check(&[Input::Born, up()], rest(), State::Paused, &["sandbox Paused", "is paused"], &["freeze"]);
    refuses(&working(), rest(), "busy");
    refuses(&[Input::Born], rest(), "wrong_state");
    let stop = || Input::StopResting { reason: Some("idle".into()) };
    check(&[Input::Born, up(), rest()], stop(), State::Stopped, &["stop!", "is stopped"], &["cut", "stop"]);
    refuses(&with(working(), &[Input::Pause]), stop(), "busy");
    // Whoever looks is told why, unless a person wanted it.
    let reason = |given: &[Input]| {
        let mut world = World::after(&[Input::Born]);
        let told = given.iter().flat_map(|input| world.feed(input.clone()).expect("it is taken").drafts).last();
        let Some(Body::Observation(Observation { seen: Seen::AgentStateChanged { reason, .. }, .. })) =
            told.map(|draft| draft.body)
        else {
            panic!("its state changed last");
        };
        assert_eq!(reason, world.core.reason());
        reason
    };
    assert_eq!(reason(&[up(), rest()]).as_deref(), Some("idle"));
    assert_eq!(reason(&[up(), Input::Pause]), None);
    assert_eq!(reason(&[up(), rest(), Input::Resume]), None);
    assert_eq!(reason(&[up(), rest(), Input::Resume, Input::Pause]), None);
    assert_eq!(reason(&[up(), rest(), Input::End]), None);
}

#[test]
fn a_sandbox_that_is_seen_otherwise_is_made_what_its_session_says() {
    let settles = |given: &[Input], wanted: [Option<&str>; 3]| {
        let core = World::after(given).core;
        let seen = [Presence::Running, Presence::Frozen, Presence::Exited];
        let orders = seen.map(|seen| core.settles(seen).as_ref().map(order));
        assert_eq!(orders.each_ref().map(Option::as_deref), wanted, "{given:?}");
    };
    settles(&[Input::Born], [None; 3]);
    settles(&[Input::Born, up()], [None, Some("thaw"), None]);
    settles(&working(), [None, Some("thaw"), None]);
    settles(&[Input::Born, up(), Input::Pause], [Some("freeze"), None, None]);
    for end in [Input::Stop { reason: None }, lost(), Input::End] {
        settles(&[Input::Born, up(), end], [Some("stop"), Some("stop"), None]);
    }
}
