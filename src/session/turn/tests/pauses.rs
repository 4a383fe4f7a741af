//! Rules for pauses and resumes.

use super::*;
use crate::sandbox::SandboxPresence;

#[test]
fn pause_stops_work_and_resume_continues_it() {
    check(&working(), SessionInput::Pause, AgentState::Paused, &["pause!", "is paused"], &["pause"]);
    let paused = with(working(), &[SessionInput::Pause]);
    check(&paused, SessionInput::Resume, AgentState::Running, &["resume!", "is running"], &["unpause"]);
    check(&paused, say("m"), AgentState::Paused, &["message!", "queue 1"], &[]);
    let asked = ["interrupt!", "is interrupting"];
    check(
        &paused,
        SessionInput::Interrupt,
        AgentState::Interrupting,
        &asked,
        &["unpause", "hint turn-2", "abort streams", "cancel"],
    );
    check_rejected(&paused, SessionInput::Pause, "already");
    check_rejected(&[SessionInput::SessionCreated], SessionInput::Pause, "wrong_state");
    check_rejected(&with(working(), &[SessionInput::Interrupt]), SessionInput::Pause, "wrong_state");
    check_rejected(&[SessionInput::SessionCreated, up()], SessionInput::Resume, "already");
    let idle = [SessionInput::SessionCreated, up(), SessionInput::Pause];
    check(&idle, say("m"), AgentState::Running, &["message!", "chat m", "is running"], &["unpause", "prompt turn-2 m"]);
    check(&idle, run(), AgentState::Running, &["run!", "is running"], &["unpause", "user action act-1"]);
    let failed = SessionInput::EffectFailed { what: "pause", why: "no".into() };
    check(&paused, failed, AgentState::Running, &["error sandbox", "is running"], &["unpause"]);
}

/// The pause takes effect after commit and driver. If the agent finishes meanwhile, no other event
/// reports the end.
#[test]
fn turn_end_while_paused_is_reported() {
    let paused = with(working(), &[SessionInput::Pause]);
    check(&paused, turn_ended(2, WorkOutcome::Done), AgentState::Paused, &["turn over"], &[]);
    let over = with(paused, &[turn_ended(2, WorkOutcome::Done)]);
    check(&over, SessionInput::Resume, AgentState::Idle, &["resume!", "is idle"], &["unpause"]);
}

#[test]
fn paused_session_without_work_resumes_on_next_message() {
    let action_ended = SessionInput::UserActionEnded { user_action: "act-1".into(), outcome: WorkOutcome::Done };
    let given = [SessionInput::SessionCreated, up(), run(), run(), SessionInput::Pause, action_ended];
    let effects = ["unpause", "prompt turn-5 m", "user action act-3"];
    check(&given, say("m"), AgentState::Running, &["message!", "chat m", "is running"], &effects);
    let events = ["interrupt!", "error not_begun", "interrupted nothing that was still running by Cancel", "is idle"];
    check(&given, SessionInput::Interrupt, AgentState::Idle, &events, &["unpause"]);
}

#[test]
fn failed_unpause_is_retried_once_then_sandbox_is_stopped() {
    let failed = || SessionInput::EffectFailed { what: "unpause", why: "no".into() };
    let resumed = with(working(), &[SessionInput::Pause, SessionInput::Resume]);
    check(&resumed, failed(), AgentState::Running, &["error sandbox"], &["unpause"]);
    let again = with(resumed.clone(), &[failed()]);
    let events = ["error sandbox", "interrupted the turn by Sandbox", "is failed"];
    check(&again, failed(), AgentState::Failed, &events, &["hint turn-2", "abort streams", "stop"]);
    let failed_state = RulesFixture::after(&with(again.clone(), &[failed()])).state;
    assert_eq!(failed_state.reason().as_deref(), Some("the sandbox could not unpause: no"));
    check(
        &with(again.clone(), &[SessionInput::Pause, SessionInput::Resume]),
        failed(),
        AgentState::Running,
        &["error sandbox"],
        &["unpause"],
    );
    check(&with(again, &[SessionInput::Pause]), failed(), AgentState::Paused, &["error sandbox"], &[]);
    // A sandbox that could not be paused is unpaused. That does not count as a second attempt.
    let not_paused = SessionInput::EffectFailed { what: "pause", why: "no".into() };
    check(
        &with(working(), &[SessionInput::Pause, not_paused]),
        failed(),
        AgentState::Running,
        &["error sandbox"],
        &["unpause"],
    );
    let interrupted = with(resumed, &[SessionInput::Pause, SessionInput::Interrupt, failed()]);
    check(&interrupted, failed(), AgentState::Failed, &events, &["hint turn-2", "abort streams", "stop"]);
}

#[test]
fn only_idle_sessions_are_paused_and_stopped() {
    let pause_idle = || SessionInput::PauseIdle { reason: "idle".into() };
    check(
        &[SessionInput::SessionCreated, up()],
        pause_idle(),
        AgentState::Paused,
        &["sandbox Paused", "is paused"],
        &["pause"],
    );
    check_rejected(&working(), pause_idle(), "busy");
    check_rejected(&[SessionInput::SessionCreated], pause_idle(), "wrong_state");
    let stop_idle = || SessionInput::StopIdle { reason: Some("idle".into()) };
    check(
        &[SessionInput::SessionCreated, up(), pause_idle()],
        stop_idle(),
        AgentState::Stopped,
        &["stop!", "is stopped"],
        &["abort streams", "stop"],
    );
    check_rejected(&with(working(), &[SessionInput::Pause]), stop_idle(), "busy");
    // Clients see the reason, unless a person requested the pause.
    let reason = |given: &[SessionInput]| {
        let mut rules = RulesFixture::after(&[SessionInput::SessionCreated]);
        let last_event =
            given.iter().flat_map(|input| rules.feed(input.clone()).expect("the input is accepted").new_events).last();
        let Some(EventBody::Observation(Observation {
            kind: ObservationKind::AgentStateChanged { reason, .. }, ..
        })) = last_event.map(|new_event| new_event.body)
        else {
            panic!("the last event is a change of state");
        };
        assert_eq!(reason, rules.state.reason());
        reason
    };
    assert_eq!(reason(&[up(), pause_idle()]).as_deref(), Some("idle"));
    assert_eq!(reason(&[up(), SessionInput::Pause]), None);
    assert_eq!(reason(&[up(), pause_idle(), SessionInput::Resume]), None);
    assert_eq!(reason(&[up(), pause_idle(), SessionInput::Resume, SessionInput::Pause]), None);
    assert_eq!(reason(&[up(), pause_idle(), SessionInput::End]), None);
}

#[test]
fn reconcile_restores_intended_sandbox_state() {
    let check_reconcile = |given: &[SessionInput], expected: [Option<&str>; 3]| {
        let state = RulesFixture::after(given).state;
        let observed = [SandboxPresence::Running, SandboxPresence::Paused, SandboxPresence::Exited];
        let effects =
            observed.map(|observed| state.reconcile(observed, &InFlightStops::default()).as_ref().map(effect_text));
        assert_eq!(effects.each_ref().map(Option::as_deref), expected, "{given:?}");
    };
    check_reconcile(&[SessionInput::SessionCreated], [None; 3]);
    check_reconcile(&[SessionInput::SessionCreated, up()], [None, Some("unpause"), None]);
    check_reconcile(&working(), [None, Some("unpause"), None]);
    check_reconcile(&[SessionInput::SessionCreated, up(), SessionInput::Pause], [Some("pause"), None, None]);
    for end in [SessionInput::Stop { reason: None }, lost(), SessionInput::End] {
        check_reconcile(&[SessionInput::SessionCreated, up(), end], [Some("stop"), Some("stop"), None]);
    }
}
