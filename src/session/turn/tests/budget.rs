//! Turns that a spent budget ends.

use super::*;

fn budget_spent() -> SessionInput {
    SessionInput::BudgetSpent { why: "the session's budget is spent".to_owned() }
}

/// Returns the inputs until the gateway has rejected a call of the running turn.
fn denied() -> Vec<SessionInput> {
    with(working(), &[budget_spent()])
}

fn reason_after(given: &[SessionInput]) -> Option<String> {
    RulesFixture::after(given).state.reason()
}

#[test]
fn turn_ends_idle_with_the_reason_and_without_an_error() {
    let turn = RulesFixture::after(&working()).state.turn.expect("a turn runs").id;
    let ended = |outcome| SessionInput::TurnEnded { turn: turn.clone(), outcome };
    let failure = WorkOutcome::Failed { code: "model_error".into(), detail: "402".into() };
    for outcome in [failure, WorkOutcome::Done] {
        check(&denied(), ended(outcome.clone()), AgentState::Idle, &["is idle"], &[]);
        assert_eq!(reason_after(&with(denied(), &[ended(outcome)])).as_deref(), Some("budget"));
    }
    assert_eq!(reason_after(&denied()), None, "the turn still runs");
}

#[test]
fn raised_budget_other_model_or_next_turn_clears_the_reason() {
    let turn = RulesFixture::after(&working()).state.turn.expect("a turn runs").id;
    let over = with(denied(), &[SessionInput::TurnEnded { turn, outcome: WorkOutcome::Done }]);
    let set_model = set_model();
    for input in [SessionInput::SetBudget { usd: Some(9.0) }, set_model, say("go on")] {
        assert_eq!(reason_after(&with(over.clone(), std::slice::from_ref(&input))), None, "{input:?}");
    }
}

#[test]
fn queued_messages_wait_for_a_person() {
    let turn = RulesFixture::after(&working()).state.turn.expect("a turn runs").id;
    let given = with(denied(), &[say("next")]);
    let ended = SessionInput::TurnEnded { turn, outcome: WorkOutcome::Done };
    check(&given, ended, AgentState::Idle, &["is idle"], &[]);
}

#[test]
fn rejected_call_outside_a_turn_changes_nothing() {
    check(&[SessionInput::SessionCreated, up()], budget_spent(), AgentState::Idle, &[], &[]);
    assert_eq!(reason_after(&[SessionInput::SessionCreated, up(), budget_spent()]), None);
}

#[test]
fn rejection_is_reported_once_in_a_turn() {
    check(&working(), budget_spent(), AgentState::Running, &["notice budget_spent"], &[]);
    check(&denied(), budget_spent(), AgentState::Running, &[], &[]);
}

#[test]
fn other_failure_of_the_turn_is_still_reported() {
    let turn = RulesFixture::after(&working()).state.turn.expect("a turn runs").id;
    let outcome = WorkOutcome::Failed { code: "too_many_steps".into(), detail: "40 steps".into() };
    check(
        &denied(),
        SessionInput::TurnEnded { turn, outcome },
        AgentState::Idle,
        &["error too_many_steps", "is idle"],
        &[],
    );
}

#[test]
fn budget_change_is_recorded_in_any_open_session() {
    let change = |usd| SessionInput::SetBudget { usd };
    check(&[SessionInput::SessionCreated], change(Some(2.5)), AgentState::Starting, &["set_budget!"], &[]);
    check(&[SessionInput::SessionCreated, up()], change(None), AgentState::Idle, &["set_budget!"], &[]);
}
