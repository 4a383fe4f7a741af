//! A session that another version of Greenroom wrote: it is shown, and nobody goes on with it.

use serde_json::{json, value::to_raw_value};

use super::fixture::fixture;
use crate::store::{SessionRecord, contract::record};

#[actix_web::test]
async fn nobody_is_told_to_ask_again_for_what_cannot_be_read() {
    let stage = fixture().await;
    let core = to_raw_value(&json!({ "life": "Hibernating" })).expect("it is JSON").into();
    let made = stage.store.create(SessionRecord { actor_state: core, ..record("mine") }).await.expect("it is made");
    let session = format!("/api/sessions/{}", made.record.id);
    assert_eq!(stage.call("GET", &session, None).await.json()["title"], "mine");
    for (method, uri, body) in [
        ("POST", format!("{session}/messages"), Some(r#"{"content":"go on"}"#)),
        ("POST", format!("{session}/resume"), None),
        ("PATCH", session.clone(), Some(r#"{"title":"yours"}"#)),
        ("DELETE", session.clone(), None),
    ] {
        let refused = stage.call(method, &uri, body).await;
        assert_eq!(refused.error(), (409, "conflict".to_owned()), "{method} {uri}: {}", refused.text);
        assert_eq!(refused.header("retry-after"), "", "{method} {uri}");
        let why = refused.json()["error"]["message"].to_string();
        assert!(why.contains(&made.record.id.to_string()) && why.contains("start that one"), "{why}");
    }
    assert_eq!(stage.call("DELETE", &format!("{session}?purge=true"), None).await.status, 204);
    assert_eq!(stage.call("GET", &session, None).await.error(), (404, "not_found".to_owned()));
}
