//! Faults: restarts at each step of a request, rivals, hanging analyzers, changed calls.

use std::time::Duration;

use futures::future::join_all;
use greenroom_protocol::client::ClientRequest;
use serde_json::json;

use super::{fixture::confirm_body, *};
use crate::session::messages::{Interrupt, Pause};

#[actix::test]
async fn restart_between_review_and_request_assesses_anew() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Auto).await;
    assert_eq!(fixture.review("v", "i", run("danger")).await, Verdict::Ask);
    fixture.restart().await;
    assert_eq!(fixture.review("v", "i", run("danger")).await, Verdict::Ask, "a repeated review");
    fixture.restart().await;
    fixture.confirm("r", "i", run("danger")).await;
    let request = fixture.last_event("confirm").await;
    assert_eq!(request["extras"]["risk"]["reasons"], json!(["dangerous"]));
    assert_eq!(request["extras"]["asked_by"], "analyzer `test`");
    assert_eq!(fixture.events_of("confirmed").await.len(), 0, "the request is open");
}

#[actix::test]
async fn open_request_survives_restarts_and_is_answered_once() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    fixture.review("v", "i", run("make")).await;
    fixture.confirm("r", "i", run("make")).await;
    fixture.restart().await;
    let always = ClientRequest::Confirm {
        request: "r".into(),
        decision: greenroom_protocol::action::ApprovalDecision::AllowAlways,
        reason: None,
        choice: Some("session".into()),
        input: None,
    };
    let mut changed = always.clone();
    if let ClientRequest::Confirm { input, .. } = &mut changed {
        *input = Some(json!({ "command": "make all" }));
    }
    let error = fixture.confirmed_as(changed, "me").await.expect_err("the rule would be for another call");
    assert_eq!(error.code(), "invalid_args");
    fixture.confirmed_as(always, "me").await.expect("the request is open, with its choices");
    assert_eq!(fixture.answers(), [("r".to_owned(), "allow".to_owned())]);
    // The agent has not taken the answer.
    fixture.restart().await;
    fixture.events().await;
    assert_eq!(fixture.answers().len(), 2, "the answer is sent again");
    let late = fixture.confirmed_as(allow("r"), "you").await.expect_err("the request is answered");
    assert_eq!(late.code(), "no_request");
    assert_eq!(fixture.events_of("confirmed").await.len(), 1);
    assert_eq!(fixture.review("w", "j", run("make")).await, Verdict::Allow, "the rule survives");
}

#[actix::test]
async fn first_of_two_answers_wins() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    fixture.confirm("r", "i", run("make")).await;
    let answers = join_all([fixture.confirmed_as(allow("r"), "me"), fixture.confirmed_as(allow("r"), "you")]).await;
    assert!(answers[0].is_ok());
    assert_eq!(answers[1].as_ref().expect_err("the second is late").code(), "no_request");
    assert_eq!(fixture.events_of("confirmed").await[0]["extras"]["who"], "me");
    assert_eq!(fixture.answers().len(), 1);
}

#[actix::test]
async fn answer_to_a_withdrawn_request_is_rejected() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    fixture.confirm("r", "i", run("make")).await;
    fixture.session.send(Interrupt::default()).await.expect("session actor is running").expect("it is accepted");
    let withdrawn = fixture.last_event("confirmed").await;
    assert_eq!((&withdrawn["extras"]["withdrawn"], &withdrawn["extras"]["decision"]), (&json!(true), &json!("deny")));
    assert_eq!(fixture.confirmed_as(allow("r"), "me").await.expect_err("it is withdrawn").code(), "no_request");
    assert!(fixture.answers().is_empty());
}

/// Only the analyzer hangs: requests, reports and other reviews go on.
#[actix::test]
async fn hanging_analyzer_delays_only_its_review() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Auto).await;
    let hanging = fixture.begin_review("v", "i", run("hang"));
    assert_eq!(fixture.review("w", "j", run("ls")).await, Verdict::Allow);
    fixture.report("j", json!({ "action": "run", "args": { "command": "ls" } })).await;
    // An agent without reviews: its request waits for the assessment.
    let asked = fixture.begin_report("k", confirm_body("r", &run("hang again")));
    fixture.session.send(Pause::default()).await.expect("session actor is running").expect("it is accepted");
    fixture.session.send(Interrupt::default()).await.expect("session actor is running").expect("it is accepted");
    let verdict = hanging.await.expect("session actor is running");
    assert!(matches!(verdict, Verdict::Deny { .. }), "{verdict:?}");
    asked.await.expect("reply arrives").expect("the report is accepted");
    assert_eq!(fixture.last_event("confirmed").await["extras"]["withdrawn"], true);
    let verdict = fixture.review("x", "l", run("ls")).await;
    assert!(matches!(verdict, Verdict::Deny { .. }), "an interrupted turn runs no call: {verdict:?}");
}

#[actix::test]
async fn new_connection_repeats_pending_reviews() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Auto).await;
    let lost: Vec<_> = (0..64).map(|n| fixture.begin_review(&n.to_string(), "i", run("hang"))).collect();
    fixture.hello("b").await;
    for verdict in join_all(lost).await {
        assert!(matches!(verdict.expect("session actor is running"), Verdict::Deny { .. }));
    }
    assert_eq!(fixture.events_of("confirmed").await.len(), 0, "nobody decided");
}

#[actix::test]
async fn changed_call_is_assessed_anew_and_never_judged_milder() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Auto).await;
    assert_eq!(fixture.review("v", "i", run("ls")).await, Verdict::Allow);
    fixture.confirm("r", "i", run("danger")).await;
    let request = fixture.last_event("confirm").await;
    assert_eq!((&request["extras"]["risk"]["level"], fixture.assessed()), (&json!("high"), 2));
    assert_eq!(fixture.events_of("confirmed").await.len(), 0, "the changed call asks");
    // The agent shortens a call for people. Its review was about the whole call.
    assert_eq!(fixture.review("w", "j", run("danger and more")).await, Verdict::Ask);
    fixture.confirm("s", "j", run("d … more")).await;
    let request = fixture.last_event("confirm").await;
    assert_eq!(request["extras"]["risk"]["reasons"], json!(["dangerous"]));
    assert_eq!(fixture.events_of("confirmed").await.len(), 0, "the shortened call asks");
}

#[actix::test]
async fn overdue_request_is_denied_also_after_a_restart() {
    let mut fixture = ApprovalFixture::new(ApprovalMode::Ask, Duration::from_millis(20)).await;
    fixture.confirm("r", "i", run("make")).await;
    fixture.restart().await;
    while fixture.answers().is_empty() {
        fixture.next_command().await;
    }
    assert_eq!(fixture.answers(), [("r".to_owned(), "deny".to_owned())]);
    let denied = fixture.last_event("confirmed").await;
    assert_eq!((&denied["extras"]["by"], &denied["extras"]["who"]), (&json!("policy"), &json!("timeout")));
}

#[actix::test]
async fn thousand_requests_leave_the_newest_open() {
    let mut fixture = ApprovalFixture::in_mode(ApprovalMode::Ask).await;
    for n in 0..1000 {
        fixture.confirm(&format!("r{n}"), &format!("i{n}"), run("make")).await;
    }
    let withdrawn = fixture.events_of("confirmed").await;
    assert_eq!(withdrawn.len(), 936);
    assert!(fixture.stored_state().await.len() < 64 * 1024, "the state stays small");
    assert_eq!(fixture.confirmed_as(allow("r0"), "me").await.expect_err("it is withdrawn").code(), "no_request");
    fixture.confirmed_as(allow("r999"), "me").await.expect("the newest is open");
}
