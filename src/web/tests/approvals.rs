//! Approvals over REST: security of a session, rules, answers.

use serde_json::json;

use super::{
    UNKNOWN_SESSION,
    fixture::{fixture, fixture_with},
    id_of,
};
use crate::approvals::{ApprovalRule, RuleAction};

#[actix_web::test]
async fn security_of_a_session_is_shown_and_changed() {
    let fixture = fixture().await;
    let session = format!("/api/sessions/{}", id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await));
    let security = format!("{session}/security");
    let shown = fixture.call("GET", &security, None).await.json();
    let settings = json!({ "timeout_s": null, "analyzer_timeout_s": null, "project": null });
    let expected = json!({
        "mode": "auto", "analyzer": "rules", "settings": settings, "rules": [], "findings": [], "requests": [],
    });
    assert_eq!(shown, expected);
    let changed = fixture.call("PATCH", &security, Some(r#"{"mode":"plan"}"#)).await;
    assert_eq!(changed.json()["mode"], "plan", "{}", changed.text);
    assert_eq!(fixture.call("GET", &session, None).await.json()["mode"], "plan");
    let again = fixture.call("PATCH", &session, Some(r#"{"mode":"plan"}"#)).await;
    assert_eq!(again.json()["mode"], "plan", "an unchanged mode is no error: {}", again.text);
    assert_eq!(fixture.call("PATCH", &security, Some(r#"{"rules":[]}"#)).await.error().0, 400);
    let events = fixture.call("GET", &format!("{session}/events?kind=set_mode"), None).await.json();
    assert_eq!(events["items"].as_array().map(Vec::len), Some(1), "{events}");
    let unknown = format!("{UNKNOWN_SESSION}/security");
    assert_eq!(fixture.call("GET", &unknown, None).await.error(), (404, "not_found".to_owned()));
}

#[actix_web::test]
async fn dry_run_judges_a_call_and_changes_nothing() {
    let fixture = fixture().await;
    let created = fixture.call("POST", "/api/sessions", Some(r#"{"mode":"plan"}"#)).await;
    let session = format!("/api/sessions/{}", id_of(&created));
    let analyze = async |body: &str| fixture.call("POST", &format!("{session}/security/analyze"), Some(body)).await;
    let last_seq = async || fixture.call("GET", &session, None).await.json()["last_seq"].clone();
    let before = last_seq().await;
    let denied = analyze(r#"{"action":"run","args":{"command":"touch a"}}"#).await.json();
    assert_eq!(denied["decision"], "deny", "{denied}");
    assert!(denied["decided_by"].is_string() && denied["reason"].is_string(), "{denied}");
    assert_eq!(analyze(r#"{"action":"read","args":{"path":"a"}}"#).await.json()["decision"], "allow");
    for bad in [r#"{"action":"fly"}"#, r#"{"action":"run","args":{}}"#, r#"{"args":{}}"#, r#"{"action":"run","x":1}"#] {
        assert_eq!(analyze(bad).await.error(), (400, "invalid_args".to_owned()), "{bad}");
    }
    assert_eq!(last_seq().await, before);
}

#[actix_web::test]
async fn rules_of_the_configuration_are_listed_and_stay() {
    let rule = ApprovalRule {
        tool: Some("run".to_owned()),
        command: Some("git push*".to_owned()),
        path: None,
        host: None,
        agent: None,
        action: RuleAction::Ask,
        reason: None,
    };
    let fixture = fixture_with(|config| config.approvals.rules = vec![rule]).await;
    let listed = fixture.call("GET", "/api/approvals/rules", None).await;
    let rules = json!([{ "tool": "run", "command": "git push*", "action": "ask" }]);
    assert_eq!(listed.json(), json!({ "config": rules, "projects": [] }), "{}", listed.text);
    let session = format!("/api/sessions/{}", id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await));
    for uri in ["/api/approvals/rules/0".to_owned(), format!("{session}/security/rules/0")] {
        assert_eq!(fixture.call("DELETE", &uri, None).await.error(), (404, "not_found".to_owned()), "{uri}");
    }
}

#[actix_web::test]
async fn answer_needs_an_open_request_and_passage_needs_a_service() {
    let fixture = fixture().await;
    let session = format!("/api/sessions/{}", id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await));
    let confirm = format!("{session}/confirm");
    let answer = fixture.call("POST", &confirm, Some(r#"{"request":"r","decision":"allow"}"#)).await;
    assert_eq!(answer.error(), (404, "no_request".to_owned()));
    for bad in [
        r#"{"request":"r","decision":"perhaps"}"#,
        r#"{"decision":"allow"}"#,
        r#"{"request":"r","decision":"allow","input":1}"#,
    ] {
        assert_eq!(fixture.call("POST", &confirm, Some(bad)).await.error(), (400, "invalid_args".to_owned()), "{bad}");
    }
    for (method, body) in
        [("GET", None), ("POST", Some("{}")), ("PUT", Some("{}")), ("PATCH", Some("{}")), ("DELETE", None)]
    {
        let reply = fixture.call(method, &format!("{session}/security/x/a/b"), body).await;
        assert_eq!(reply.error(), (404, "not_found".to_owned()), "{method}");
        assert!(reply.text.contains("`http`"), "{}", reply.text);
    }
}
