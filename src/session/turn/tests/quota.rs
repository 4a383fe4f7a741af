//! Sessions that have exceeded a disk quota.

use super::*;

fn exceeded(is_hard: bool) -> SessionInput {
    SessionInput::QuotaExceeded(QuotaExceeded { reason: "too much".to_owned(), is_hard })
}

#[test]
fn exceeded_quota_interrupts_running_work() {
    let turn = RulesFixture::after(&working()).state.turn.expect("a turn runs").id;
    let hint = format!("hint {turn}");
    check(
        &working(),
        exceeded(false),
        AgentState::Interrupting,
        &["error quota", "is interrupting"],
        &[&hint, "abort streams", "cancel"],
    );
    let interrupting = with(working(), &[exceeded(false)]);
    check(&interrupting, exceeded(false), AgentState::Interrupting, &[], &[]);
    let outcome = WorkOutcome::Cancelled { what: "the turn".into(), partial: false };
    let queued = with(working(), &[say("next"), exceeded(false)]);
    let over = with(queued, &[SessionInput::TurnEnded { turn, outcome }]);
    let rules = RulesFixture::after(&over);
    assert_eq!((rules.state.visible_state(), rules.state.reason().as_deref()), (AgentState::Idle, Some("quota")));
    let next = RulesFixture::after(&with(over, &[say("go on")]));
    assert_eq!((next.state.visible_state(), next.state.reason()), (AgentState::Running, None));
}

#[test]
fn hard_excess_stops_the_sandbox() {
    let idle = [SessionInput::SessionCreated, up()];
    check(&idle, exceeded(true), AgentState::Failed, &["error quota", "is failed"], &["abort streams", "stop"]);
    let failed = RulesFixture::after(&with(idle.to_vec(), &[exceeded(true)]));
    assert_eq!(failed.state.reason().as_deref(), Some("too much"));
    let interrupting = with(working(), &[exceeded(false)]);
    let mut rules = RulesFixture::after(&interrupting);
    rules.feed(exceeded(true)).expect("the excess is no request");
    assert_eq!(rules.state.visible_state(), AgentState::Failed);
}

#[test]
fn exceeded_quota_without_work_or_sandbox_changes_nothing() {
    check(&[SessionInput::SessionCreated, up()], exceeded(false), AgentState::Idle, &[], &[]);
    let stopped = [SessionInput::SessionCreated, up(), SessionInput::Stop { reason: None }];
    check(&stopped, exceeded(true), AgentState::Stopped, &[], &[]);
}
