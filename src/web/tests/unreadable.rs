//! Session that another version of Greenroom wrote: readable, but not usable.

use serde_json::{json, value::to_raw_value};

use super::fixture::fixture;
use crate::store::{SessionRecord, contract::record};

#[actix_web::test]
async fn unreadable_session_rejects_requests_without_retry_after() {
    let fixture = fixture().await;
    let state = to_raw_value(&json!({ "life": "Hibernating" })).expect("the state is JSON").into();
    let created = fixture
        .store
        .create(SessionRecord { actor_state: state, ..record("mine") })
        .await
        .expect("the store creates the session")
        .into_snapshot();
    let session = format!("/api/sessions/{}", created.record.id);
    assert_eq!(fixture.call("GET", &session, None).await.json()["title"], "mine");
    for (method, uri, body) in [
        ("POST", format!("{session}/messages"), Some(r#"{"content":"go on"}"#)),
        ("POST", format!("{session}/resume"), None),
        ("PATCH", session.clone(), Some(r#"{"title":"yours"}"#)),
        ("DELETE", session.clone(), None),
    ] {
        let rejected = fixture.call(method, &uri, body).await;
        assert_eq!(rejected.error(), (409, "conflict".to_owned()), "{method} {uri}: {}", rejected.text);
        assert_eq!(rejected.header("retry-after"), "", "{method} {uri}");
        let message = rejected.json()["error"]["message"].to_string();
        assert!(message.contains(&created.record.id.to_string()) && message.contains("start that one"), "{message}");
    }
    assert_eq!(fixture.call("DELETE", &format!("{session}?purge=true"), None).await.status, 204);
    assert_eq!(fixture.call("GET", &session, None).await.error(), (404, "not_found".to_owned()));
}
