//! Rules for approval requests.

use super::*;
use crate::approvals::RuleAction;

/// Request about an editable call, which an "always" rule can cover.
pub(super) fn asks(request: &str) -> SessionInput {
    asks_of(OpenApproval { rule: Some(rule("git push *")), editable: true, ..open(request) })
}

fn asks_of(approval: OpenApproval) -> SessionInput {
    SessionInput::ApprovalRequested { approval, answer: None }
}

fn open(request: &str) -> OpenApproval {
    OpenApproval { request: request.into(), item: Some(format!("item-{request}")), ..OpenApproval::default() }
}

pub(super) fn rule(command: &str) -> ApprovalRule {
    ApprovalRule {
        tool: None,
        command: Some(command.into()),
        path: None,
        host: None,
        agent: None,
        action: RuleAction::Allow,
        reason: None,
    }
}

fn answer_as(request: &str, decision: ApprovalDecision) -> ApprovalReply {
    ApprovalReply { request: request.into(), decision, reason: None, choice: None, input: None, who: None }
}

pub(super) fn answer(request: &str) -> SessionInput {
    SessionInput::Confirm(answer_as(request, ApprovalDecision::Allow))
}

fn choose(choice: &str, decision: ApprovalDecision) -> SessionInput {
    SessionInput::Confirm(ApprovalReply { choice: Some(choice.into()), ..answer_as("r", decision) })
}

pub(super) fn policy_allows(request: &str) -> PolicyAnswer {
    let who = "mode `auto`".to_owned();
    PolicyAnswer { request: request.into(), decision: ApprovalDecision::Allow, who, reason: None }
}

/// Returns the `confirmed` observation of a transition.
fn confirmed(transition: &Transition) -> &ObservationKind {
    let confirmed = transition.new_events.iter().find_map(|new_event| match &new_event.body {
        EventBody::Observation(Observation { kind: kind @ ObservationKind::Confirmed { .. }, .. }) => Some(kind),
        _ => None,
    });
    confirmed.expect("the transition has a decision")
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
fn end_of_the_work_withdraws_all_requests() {
    let both = with(working(), &[asks("r"), asks("s")]);
    let interrupted = with(both.clone(), &[SessionInput::Interrupt]);
    // The agent asked before it received the cancel.
    check(&interrupted, asks("t"), AgentState::Interrupting, &["withdrawn"], &[]);
    let taken = SessionInput::CommandAccepted { command: "command-3".into() };
    for inputs in [
        vec![SessionInput::Interrupt],
        vec![turn_ended(2, WorkOutcome::Done)],
        vec![SessionInput::Stop { reason: None }],
        vec![SessionInput::End],
        vec![lost()],
        vec![SessionInput::SandboxFailed { why: "w".into(), stderr_tail: None }],
        vec![taken, SessionInput::HelloReceived { boot: "b2".into() }],
    ] {
        let mut rules = RulesFixture::after(&both);
        let mut withdrawn = Vec::new();
        for input in &inputs {
            let transition = rules.feed(input.clone()).expect("the input is accepted");
            let events = transition.new_events.iter().filter(|new_event| event_text(&new_event.body) == "withdrawn");
            withdrawn.extend(events.map(|new_event| new_event.item.clone().expect("the item of the call")));
        }
        assert_eq!(withdrawn, ["item-r", "item-s"], "{inputs:?}");
        let over = with(both.clone(), &inputs);
        for request in ["r", "s"] {
            let code = if inputs[0] == SessionInput::End { "ended" } else { "no_request" };
            check_rejected(&over, answer(request), code);
        }
    }
}

#[test]
fn pause_and_agent_reconnect_keep_requests() {
    let asked = with(working(), &[asks("r")]);
    let paused = with(asked.clone(), &[SessionInput::Pause]);
    check(
        &paused,
        SessionInput::Resume,
        AgentState::AwaitingConfirmation,
        &["resume!", "is awaiting_confirmation"],
        &["unpause"],
    );
    check(&paused, answer("r"), AgentState::Paused, &["confirm!", "confirmed"], &["answer r"]);
    check(&asked, up(), AgentState::AwaitingConfirmation, &[], &["prompt turn-2 t"]);
}

/// Only the end of a turn withdraws the requests that nobody answers.
#[test]
fn request_without_a_turn_is_withdrawn() {
    let acting = [SessionInput::SessionCreated, up(), run()];
    check(&acting, asks("r"), AgentState::Running, &["withdrawn"], &[]);
    check_rejected(&with(acting.to_vec(), &[asks("r")]), answer("r"), "no_request");
}

#[test]
fn oldest_of_a_thousand_requests_are_withdrawn() {
    let mut rules = RulesFixture::after(&working());
    let mut withdrawn = 0;
    for n in 0..1000 {
        let transition = rules.feed(asks(&n.to_string())).expect("a report is accepted");
        let texts = transition.new_events.iter().map(|new_event| event_text(&new_event.body));
        withdrawn += texts.filter(|text| text == "withdrawn").count();
    }
    assert_eq!((withdrawn, rules.state.open_approvals().len()), (936, 64));
    assert!(rules.feed(answer("935")).is_err() && rules.feed(answer("936")).is_ok());
}

#[test]
fn repeated_request_takes_the_changed_call() {
    let mut rules = RulesFixture::after(&with(working(), &[asks("r")]));
    let since_ms = rules.state.open_approvals()[0].since_ms;
    let changed = OpenApproval { since_ms: 9_000, ..open("r") };
    rules.feed(asks_of(changed)).expect("a report is accepted");
    assert_eq!(rules.state.open_approvals(), [OpenApproval { since_ms, ..open("r") }]);
}

#[test]
fn policy_answers_without_a_person() {
    let allowed = SessionInput::ApprovalRequested { approval: open("r"), answer: Some(policy_allows("r")) };
    check(&working(), allowed, AgentState::Running, &["allowed by mode `auto`"], &["answer r"]);
    let both = with(working(), &[asks("r"), asks("s")]);
    let answered = SessionInput::PolicyAnswered(vec![policy_allows("s"), policy_allows("x")]);
    check(&both, answered, AgentState::AwaitingConfirmation, &["allowed by mode `auto`"], &["answer s"]);
}

#[test]
fn overdue_requests_are_denied() {
    let since = |request: &str, since_ms| asks_of(OpenApproval { since_ms, ..open(request) });
    let asked = with(working(), &[since("r", 0), since("s", 30)]);
    let due = |timeout_ms| SessionInput::ApprovalsDue { timeout_ms };
    // The fixture's clock goes on by 10 ms per input.
    check(&asked, due(100), AgentState::AwaitingConfirmation, &[], &[]);
    check(&asked, due(40), AgentState::AwaitingConfirmation, &["denied by timeout"], &["answer r"]);
    let events = ["denied by timeout", "denied by timeout", "is running"];
    check(&asked, due(10), AgentState::Running, &events, &["answer r", "answer s"]);
}

#[test]
fn choices_are_checked() {
    use ApprovalDecision::{Allow, AllowAlways, Deny};
    let asked = with(working(), &[asks("r")]);
    let check_choice = |choice: &str, decision, expected: Result<&str, &str>| {
        let mut rules = RulesFixture::after(&asked);
        let before = rules.state.clone();
        match (rules.feed(choose(choice, decision)), expected) {
            (Ok(transition), Ok(rule)) => {
                let ObservationKind::Confirmed { rule: added, .. } = confirmed(&transition) else { unreachable!() };
                assert_eq!(added.as_deref().unwrap_or_default(), rule, "{choice}");
            }
            (Err(error), Err(part)) => {
                assert!(error.code() == "invalid_args" && error.to_string().contains(part), "{error}");
                assert_eq!(rules.state, before);
            }
            (result, _) => panic!("{choice}: {result:?}"),
        }
    };
    check_choice("once", Allow, Ok(""));
    check_choice("session", AllowAlways, Ok("`git push *` in this session"));
    check_choice("deny", Deny, Ok(""));
    check_choice("project", AllowAlways, Err("no choice `project`; its choices are `once`, `session`, `deny`"));
    check_choice("session", Allow, Err("choice `session` contradicts the decision"));
    let bare = with(working(), &[asks_of(open("r"))]);
    let always = SessionInput::Confirm(answer_as("r", AllowAlways));
    check_rejected(&bare, always.clone(), "invalid_args");
    let rules = RulesFixture::after(&with(asked.clone(), &[always]));
    assert_eq!(rules.state.session_rules(), [rule("git push *")], "without a choice: the first of its kind");
}

#[test]
fn rules_are_added_once_and_removed() {
    let always = |request: &str| SessionInput::Confirm(answer_as(request, ApprovalDecision::AllowAlways));
    let twice = with(working(), &[asks("r"), always("r"), asks("s"), always("s")]);
    assert_eq!(RulesFixture::after(&twice).state.session_rules().len(), 1);
    check_rejected(&twice, SessionInput::RemoveRule { rule: rule("other") }, "invalid_args");
    let removed = RulesFixture::after(&with(twice, &[SessionInput::RemoveRule { rule: rule("git push *") }]));
    assert!(removed.state.session_rules().is_empty());
    let mut rules = RulesFixture::after(&working());
    for n in 0..64 {
        let approval = OpenApproval { rule: Some(rule(&n.to_string())), ..open("r") };
        rules.feed(asks_of(approval)).and_then(|_| rules.feed(always("r"))).expect("there is room for the rule");
    }
    rules.feed(asks("r")).expect("a report is accepted");
    let error = rules.feed(always("r")).expect_err("there is no room for another rule");
    assert!(error.to_string().contains("has 64 rules"), "{error}");
}

#[test]
fn edited_call_needs_an_editable_request() {
    let edited = |decision| {
        SessionInput::Confirm(ApprovalReply { input: Some(serde_json::json!({})), ..answer_as("r", decision) })
    };
    let mut rules = RulesFixture::after(&with(working(), &[asks("r")]));
    let transition = rules.feed(edited(ApprovalDecision::Allow)).expect("the call is editable");
    assert!(matches!(confirmed(&transition), ObservationKind::Confirmed { edited: true, .. }));
    let sent = transition.effects.iter().any(|effect| {
        let Effect::DeliverToAgent(AgentDelivery::Command(frame)) = effect else { return false };
        matches!(&frame.command, AgentCommand::Answer { input: Some(_), .. })
    });
    assert!(sent, "the agent gets the arguments");
    check_rejected(&with(working(), &[asks("r")]), edited(ApprovalDecision::Deny), "invalid_args");
    check_rejected(&with(working(), &[asks_of(open("r"))]), edited(ApprovalDecision::Allow), "invalid_args");
}

#[test]
fn decision_names_the_person() {
    let denial = ApprovalReply {
        reason: Some("not today".into()),
        who: Some("Firefox on Linux".into()),
        ..answer_as("r", ApprovalDecision::Deny)
    };
    let mut rules = RulesFixture::after(&with(working(), &[asks("r")]));
    let transition = rules.feed(SessionInput::Confirm(denial)).expect("the request is open");
    let ObservationKind::Confirmed { by, who, reason, .. } = confirmed(&transition) else { unreachable!() };
    assert_eq!((*by, who.as_deref()), (Some(DecidedBy::Person), Some("Firefox on Linux")));
    assert_eq!(reason.as_deref(), Some("not today"));
}

#[test]
fn state_of_earlier_version_keeps_its_request() {
    let state = RulesFixture::after(&with(working(), &[asks("r")])).state;
    let mut stored = serde_json::to_value(&state).expect("session state serializes");
    assert_eq!(stored["confirm"], "r", "an earlier version reads one open request");
    stored.as_object_mut().expect("an object").remove("approvals");
    let read: SessionState = serde_json::from_value(stored.clone()).expect("session state deserializes");
    assert_eq!(read.open_approvals(), [OpenApproval { request: "r".into(), ..OpenApproval::default() }]);
    stored["confirm"] = serde_json::Value::Null;
    let read: SessionState = serde_json::from_value(stored).expect("session state deserializes");
    assert!(read.open_approvals.is_empty());
}
