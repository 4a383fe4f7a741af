//! Rules for idempotency keys.

use super::*;

#[test]
fn idempotency_keys_are_kept_for_the_newest_requests() {
    let key_of = |key: &str, digest| IdempotencyKey { key: key.into(), digest };
    let mut state = SessionState::default();
    state.add_to_dedup_cache(key_of("a", 1), Some(7));
    state.add_to_dedup_cache(key_of("b", 2), None);
    assert_eq!(state.find_in_dedup_cache(&key_of("a", 1)), Ok(Some(Some(7))));
    assert_eq!(state.find_in_dedup_cache(&key_of("b", 2)), Ok(Some(None)));
    assert_eq!(state.find_in_dedup_cache(&key_of("c", 2)), Ok(None));
    assert_eq!(state.find_in_dedup_cache(&key_of("b", 1)), Err(RequestError::IdReused("b".into())));
    // An older version stored no digests.
    let mut stored = serde_json::to_value(&state).expect("session state serializes");
    stored.as_object_mut().expect("session state is an object").remove("digests");
    let mut state: SessionState = serde_json::from_value(stored).expect("session state deserializes");
    state.add_to_dedup_cache(key_of("c", 3), Some(9));
    assert_eq!(
        state.find_in_dedup_cache(&key_of("a", 5)),
        Ok(Some(Some(7))),
        "a key without a digest matches any request"
    );
    assert_eq!(state.find_in_dedup_cache(&key_of("c", 5)), Err(RequestError::IdReused("c".into())));
    for n in 0..63 {
        state.add_to_dedup_cache(key_of(&format!("later {n}"), n), None);
    }
    assert_eq!(state.find_in_dedup_cache(&key_of("b", 2)), Ok(None));
    assert_eq!(state.find_in_dedup_cache(&key_of("c", 3)), Ok(Some(Some(9))));
    state.add_to_dedup_cache(key_of("d", 4), None);
    assert_eq!(state.find_in_dedup_cache(&key_of("c", 3)), Ok(None));
}
