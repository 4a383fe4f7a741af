//! Tests of reviews and approval requests over a store in memory, with a link that records the
//! effects.

mod faults;
mod fixture;

use greenroom_protocol::{
    approval::{ApprovalMode, Verdict},
    client::ClientRequest,
};
use serde_json::json;

use self::fixture::{ApprovalFixture, allow, rule_for, run};
use super::*;
use crate::session::{
    messages::UpdateMetadata,
    security::{AnalyzeCall, GetSecurity, RemoveSessionRule},
};

#[actix::test]
async fn allowed_review_writes_nothing_and_stamps_the_call() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Auto).await;
    let before = fixture.events().await.len();
    assert_eq!(fixture.review("v", "i", run("ls")).await, Verdict::Allow);
    assert_eq!(fixture.events().await.len(), before, "no event");
    fixture.report("i", json!({ "action": "run", "args": { "command": "ls" } })).await;
    let call = fixture.last_event("run").await;
    assert_eq!(call["risk"], json!({ "level": "low", "reasons": ["harmless"], "analyzer": "test" }));
}

#[actix::test]
async fn denied_review_is_recorded_once() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Plan).await;
    for _ in 0..2 {
        let verdict = fixture.review("v", "i", run("make")).await;
        assert!(matches!(verdict, Verdict::Deny { ref reason } if reason.contains("plan mode")), "{verdict:?}");
        // The agent repeats its reviews on another connection.
        fixture.hello("b").await;
    }
    let decisions = fixture.events_of("confirmed").await;
    assert_eq!(decisions.len(), 1);
    let expected = json!({ "request": "v", "decision": "deny", "by": "policy", "who": "mode `plan`" });
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&decisions[0]["extras"][name], value, "{name}");
    }
    assert_eq!(decisions[0]["item"], "i");
}

#[actix::test]
async fn asked_call_is_stamped_and_opens() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    assert_eq!(fixture.review("v", "i", run("git push origin")).await, Verdict::Ask);
    fixture.confirm("r", "i", run("git push origin")).await;
    let request = fixture.last_event("confirm").await;
    assert_eq!(request["extras"]["asked_by"], "mode `ask`");
    assert_eq!(request["extras"]["risk"]["level"], "low");
    assert_eq!(request["extras"]["options"], json!(["allow", "allow_always", "deny"]));
    let ids: Vec<_> = request["extras"]["choices"].as_array().expect("choices").iter().map(|c| &c["id"]).collect();
    assert_eq!(ids, ["once", "session", "project", "deny"]);
    assert_eq!(fixture.assessed(), 1, "the request uses the review's assessment");
    fixture.confirmed_as(allow("r"), "Firefox on Linux").await.expect("the request is open");
    let decision = fixture.last_event("confirmed").await;
    assert_eq!((&decision["extras"]["who"], &decision["item"]), (&json!("Firefox on Linux"), &json!("i")));
    fixture.report("i", json!({ "action": "run", "args": { "command": "git push origin" } })).await;
    let call_seq = fixture.last_event("run").await["seq"].clone();
    let extras = json!({ "command": "git push origin", "exit_code": 0, "duration_ms": 1, "timed_out": false });
    let done = json!({ "observation": "run", "extras": extras, "content": "ok" });
    fixture.report("i", done).await;
    let observations = fixture.events_of("run").await;
    let result = observations.last().expect("the result");
    assert_eq!(result["cause"], call_seq, "a request and its decision do not end the call");
}

#[actix::test]
async fn changed_call_is_judged_again() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    fixture.review("v", "i", run("make")).await;
    fixture.confirm("r", "i", run("make")).await;
    let changed = |command: &str| ClientRequest::Confirm {
        request: "r".into(),
        decision: greenroom_protocol::action::ApprovalDecision::Allow,
        reason: None,
        choice: None,
        input: Some(json!({ "command": command })),
    };
    let error = fixture.confirmed_as(changed("make && forbidden"), "me").await.expect_err("a rule denies the call");
    assert_eq!(error.code(), "invalid_args");
    fixture.confirmed_as(changed("make all"), "me").await.expect("the request is still open");
    assert_eq!(fixture.last_event("confirmed").await["extras"]["edited"], true);
}

#[actix::test]
async fn session_rule_allows_later_calls_and_open_requests() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    for (review, item, request) in [("v", "i", "r"), ("w", "j", "s")] {
        assert_eq!(fixture.review(review, item, run("git push")).await, Verdict::Ask);
        fixture.confirm(request, item, run("git push")).await;
    }
    let always = |choice: &str| ClientRequest::Confirm {
        request: "r".into(),
        decision: greenroom_protocol::action::ApprovalDecision::AllowAlways,
        reason: None,
        choice: Some(choice.into()),
        input: None,
    };
    fixture.confirmed_as(always("session"), "me").await.expect("the request is open");
    let decisions = fixture.events_of("confirmed").await;
    assert_eq!(decisions[0]["extras"]["rule"], "`git push` in this session");
    assert_eq!((&decisions[1]["extras"]["request"], &decisions[1]["extras"]["by"]), (&json!("s"), &json!("policy")));
    assert_eq!(fixture.review("x", "k", run("git push")).await, Verdict::Allow);
    let security = fixture.session.send(GetSecurity).await.expect("session actor is running");
    assert_eq!(security.rules, [rule_for("git push")]);
    let removed = fixture.session.send(RemoveSessionRule { rule: rule_for("git push") }).await;
    removed.expect("session actor is running").expect("the rule exists");
    assert_eq!(fixture.review("y", "l", run("git push")).await, Verdict::Ask);
    let state = fixture.stored_state().await;
    assert!(!state.contains("git push") || !state.contains(r#""rules""#), "the removal is stored: {state}");
}

#[actix::test]
async fn project_rule_is_stored_for_the_workspace() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    fixture.review("v", "i", run("make")).await;
    fixture.confirm("r", "i", run("make")).await;
    let always = ClientRequest::Confirm {
        request: "r".into(),
        decision: greenroom_protocol::action::ApprovalDecision::AllowAlways,
        reason: None,
        choice: Some("project".into()),
        input: None,
    };
    fixture.project_fails(true);
    let error = fixture.confirmed_as(always.clone(), "me").await.expect_err("the rule is not stored");
    assert_eq!(error.code(), "unavailable");
    fixture.project_fails(false);
    fixture.confirmed_as(always, "me").await.expect("the request is still open");
    assert_eq!(fixture.project_rules(), [rule_for("make")]);
    assert_eq!(fixture.review("w", "j", run("make")).await, Verdict::Allow);
    let security = fixture.session.send(GetSecurity).await.expect("session actor is running");
    assert_eq!((security.rules.len(), security.project.as_deref()), (0, Some("/src")));
}

#[actix::test]
async fn mode_change_answers_what_it_allows() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    for (item, request, command) in [("i", "r", "make"), ("j", "s", "danger")] {
        fixture.review(request, item, run(command)).await;
        fixture.confirm(request, item, run(command)).await;
    }
    let set_mode = |mode, message: Option<&str>| ClientRequest::SetMode { mode, message: message.map(str::to_owned) };
    let same = fixture.confirmed_as(set_mode(ApprovalMode::Ask, Some("go")), "me").await;
    assert_eq!(same.expect_err("the mode is the same").code(), "already");
    fixture.confirmed_as(set_mode(ApprovalMode::Auto, Some("go")), "me").await.expect("the mode changes");
    let decisions = fixture.events_of("confirmed").await;
    assert_eq!(decisions.len(), 1, "a high risk still asks");
    assert_eq!(
        (&decisions[0]["extras"]["request"], &decisions[0]["extras"]["who"]),
        (&json!("r"), &json!("mode `auto`"))
    );
    assert_eq!(fixture.last_event("set_mode").await["args"]["mode"], "auto");
    assert_eq!(fixture.last_event("message").await["args"]["content"], "go");
    assert_eq!(fixture.record().await.mode, Some(ApprovalMode::Auto));
    let update = UpdateMetadata { mode: Some(ApprovalMode::Plan), ..UpdateMetadata::default() };
    fixture.session.send(update).await.expect("session actor is running").expect("the mode changes");
    assert_eq!(fixture.record().await.mode, Some(ApprovalMode::Plan));
    assert_eq!(fixture.last_event("set_mode").await["args"]["mode"], "plan");
}

#[actix::test]
async fn analyzer_is_checked_and_changed() {
    let fixture = ApprovalFixture::in_mode(ApprovalMode::Auto).await;
    let change = |analyzer: &str| UpdateMetadata { analyzer: Some(analyzer.to_owned()), ..UpdateMetadata::default() };
    let unknown = fixture.session.send(change("oracle")).await.expect("session actor is running");
    assert_eq!(unknown.expect_err("there is no such analyzer").code(), "invalid_args");
    fixture.session.send(change("none")).await.expect("session actor is running").expect("the analyzer exists");
    assert_eq!(fixture.review("v", "i", run("danger")).await, Verdict::Allow, "without an analyzer there is no risk");
    let analysis = fixture.session.send(AnalyzeCall { call: run("danger") }).await.expect("session actor is running");
    assert_eq!((analysis.risk, analysis.decision), (None, PolicyDecision::Allow));
    fixture.session.send(change("test")).await.expect("session actor is running").expect("the analyzer exists");
    let before = fixture.events().await.len();
    let analysis = fixture.session.send(AnalyzeCall { call: run("danger") }).await.expect("session actor is running");
    assert!(analysis.risk.is_some() && matches!(analysis.decision, PolicyDecision::Ask { .. }));
    assert_eq!(fixture.events().await.len(), before, "an analysis has no effect");
}

/// Agents of other kinds ask by themselves, without a review.
#[actix::test]
async fn unreviewed_request_is_answered_by_the_policy() {
    for (mode, decision) in [(ApprovalMode::Auto, "allow"), (ApprovalMode::Plan, "deny")] {
        let mut fixture = ApprovalFixture::in_mode(mode).await;
        fixture.confirm("r", "i", run("make")).await;
        let request = fixture.last_event("confirm").await;
        assert_eq!(request["extras"]["risk"]["analyzer"], "test");
        let answered = fixture.last_event("confirmed").await;
        assert_eq!((&answered["extras"]["decision"], &answered["extras"]["by"]), (&json!(decision), &json!("policy")));
        assert_eq!(fixture.answers(), [("r".to_owned(), decision.to_owned())]);
    }
}

#[actix::test]
async fn agent_that_repeats_itself_is_told_and_then_asked_about() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Auto).await;
    fixture.repeat("make", 3).await;
    assert_eq!(fixture.events_of("notice").await.len(), 1);
    assert_eq!(fixture.review("v", "i", run("make")).await, Verdict::Allow, "the first repetition is only noted");
    fixture.restart().await;
    fixture.repeat("make", 3).await;
    assert_eq!(fixture.review("w", "j", run("make")).await, Verdict::Ask, "the note is known after a restart");
    fixture.confirm("r", "j", run("make")).await;
    let asked_by = fixture.last_event("confirm").await["extras"]["asked_by"].clone();
    assert_eq!(asked_by, "loop: `Running command: make` was called 3 times with the same result");
    let set_mode = ClientRequest::SetMode { mode: ApprovalMode::Edits, message: None };
    fixture.confirmed_as(set_mode, "me").await.expect("the mode changes");
    assert_eq!(fixture.events_of("confirmed").await.len(), 0, "only a person decides about a repetition");
    fixture.confirmed_as(allow("r"), "me").await.expect("the request is open");
}
