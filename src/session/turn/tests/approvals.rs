//! Rules for approval requests.

use super::*;

fn asks(request: &str) -> SessionInput {
    SessionInput::ApprovalRequested { request: request.into() }
}

fn answer(request: &str) -> SessionInput {
    SessionInput::Confirm { request: request.into(), decision: ApprovalDecision::Allow, reason: None }
}

#[test]
fn approval_request_is_answered_once() {
    let asked = with(working(), &[asks("r")]);
    check(&working(), asks("r"), AgentState::AwaitingConfirmation, &["is awaiting_confirmation"], &[]);
    check(&asked, answer("r"), AgentState::Running, &["confirm!", "confirmed", "is running"], &["answer r"]);
    check_rejected(&asked, answer("q"), "no_request");
    check_rejected(&with(asked, &[answer("r")]), answer("r"), "no_request");
}

#[test]
fn several_requests_are_open_until_each_is_answered() {
    let both = with(working(), &[asks("r"), asks("s")]);
    check(&with(working(), &[asks("r")]), asks("s"), AgentState::AwaitingConfirmation, &[], &[]);
    for (first, second) in [("r", "s"), ("s", "r")] {
        let (sent_first, sent_second) = (format!("answer {first}"), format!("answer {second}"));
        let confirmed = ["confirm!", "confirmed"];
        check(&both, answer(first), AgentState::AwaitingConfirmation, &confirmed, &[&sent_first]);
        let answered = with(both.clone(), &[answer(first)]);
        check_rejected(&answered, answer(first), "no_request");
        check(
            &answered,
            answer(second),
            AgentState::Running,
            &["confirm!", "confirmed", "is running"],
            &[&sent_second],
        );
    }
}

#[test]
fn interrupt_and_turn_end_withdraw_all_requests() {
    let both = with(working(), &[asks("r"), asks("s")]);
    let interrupted = with(both.clone(), &[SessionInput::Interrupt]);
    // The agent asked before it received the cancel.
    check(&interrupted, asks("t"), AgentState::Interrupting, &[], &[]);
    for input in [SessionInput::Interrupt, turn_ended(2, WorkOutcome::Done), SessionInput::Stop { reason: None }] {
        let over = with(both.clone(), &[input]);
        for request in ["r", "s"] {
            check_rejected(&over, answer(request), "no_request");
        }
    }
}

/// Only the end of a turn withdraws the requests that nobody answers.
#[test]
fn request_without_a_turn_is_not_opened() {
    let acting = [SessionInput::SessionCreated, up(), run()];
    check(&acting, asks("r"), AgentState::Running, &[], &[]);
    check_rejected(&with(acting.to_vec(), &[asks("r")]), answer("r"), "no_request");
}

#[test]
fn state_of_earlier_version_keeps_its_request() {
    let state = RulesFixture::after(&with(working(), &[asks("r")])).state;
    let mut stored = serde_json::to_value(&state).expect("session state serializes");
    assert_eq!(stored["confirm"], "r", "an earlier version reads one open request");
    stored["confirm"] = serde_json::Value::Null;
    let read: SessionState = serde_json::from_value(stored).expect("session state deserializes");
    assert!(read.open_approvals.is_empty());
}
