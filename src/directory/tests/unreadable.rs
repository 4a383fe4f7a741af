//! Tests of sessions that another version of Greenroom wrote.

use serde_json::{json, value::to_raw_value};

use super::*;
use crate::frontend::tests::fixture::record;

/// The session was running, so a starting server tries to restart it.
#[actix::test]
async fn unreadable_session_is_tried_once_and_can_be_purged() {
    let (store, id) = (Arc::new(FaultyStore::default()), SessionId::generate());
    let state = to_raw_value(&json!({ "life": "Hibernating" })).expect("the state serializes").into();
    store
        .create(SessionRecord { state: AgentState::Idle, actor_state: state, ..record(id, None) })
        .await
        .expect("the session is created");
    let harness = harness(store.clone());
    let assert_rejected = async || {
        let error = harness.open(id).await.expect_err("this version cannot read the state");
        let (code, text) = (error.code(), error.to_string());
        assert!(
            code == "conflict" && text.contains(&id.to_string()) && text.contains("another version"),
            "{code}: {text}"
        );
    };
    assert_rejected().await;
    // Longer than the first restart backoff.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_rejected().await;
    assert_eq!(store.claim_count.load(SeqCst), 1);
    harness.directory.send(Purge { id }).await.expect("the actor is alive").expect("the session is purged");
    assert_eq!(harness.open(id).await.expect_err("the session is gone").code(), "not_found");
}
