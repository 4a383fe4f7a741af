//! Sessions that another version of Greenroom wrote.

use serde_json::{json, value::to_raw_value};

use super::*;
use crate::frontend::tests::fixture::record;

/// It was up, so a server that starts brings it back, or tries to.
#[actix::test]
async fn a_session_that_another_version_wrote_is_tried_once_and_can_be_purged() {
    let (store, id) = (Arc::new(FaultyStore::default()), SessionId::generate());
    let core = to_raw_value(&json!({ "life": "Hibernating" })).expect("it is JSON").into();
    store
        .create(SessionRecord { state: AgentState::Idle, actor_state: core, ..record(id, None) })
        .await
        .expect("it is made");
    let house = harness(store.clone());
    let is_refused = async || {
        let refusal = house.open(id).await.expect_err("nobody here knows what it remembers");
        let (code, why) = (refusal.code(), refusal.to_string());
        assert!(
            code == "conflict" && why.contains(&id.to_string()) && why.contains("another version"),
            "{code}: {why}"
        );
    };
    is_refused().await;
    // Longer than it takes until one that fell is tried again.
    tokio::time::sleep(Duration::from_millis(300)).await;
    is_refused().await;
    assert_eq!(store.claim_count.load(SeqCst), 1);
    house.directory.send(Purge { id }).await.expect("it lives").expect("it is purged");
    assert_eq!(house.open(id).await.expect_err("no trace").code(), "not_found");
}
