//! One after the other: what is done to the same session's sandbox, or for the same image, and must not meet takes a turn.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::store::SessionId;

/// A lock for each session, or another key, of which somebody has one.
#[derive(Debug)]
pub struct KeyedMutex<K = SessionId>(Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>);

impl<K> Default for KeyedMutex<K> {
    fn default() -> KeyedMutex<K> {
        KeyedMutex(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyedMutex<K> {
    /// The lock of `key`, the same for all who have it.
    pub fn of(&self, key: K) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        // Before it would grow: there are as many as sessions had one, and most of those are done.
        if turns.len() == turns.capacity() {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        turns.insert(key, Arc::downgrade(&turn));
        turn
    }

    /// Whether `turn` is that of `key` still, and was not forgotten.
    pub fn is_current(&self, key: &K, turn: &Arc<tokio::sync::Mutex<()>>) -> bool {
        let turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.get(key).is_some_and(|current| std::ptr::eq(current.as_ptr(), Arc::as_ptr(turn)))
    }

    /// Whoever comes from here on waits for nobody who came before.
    pub fn forget(&self, key: &K) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_one_as_long_as_anybody_has_it() {
        let (turns, session) = (KeyedMutex::default(), SessionId::generate());
        let held = turns.of(session);
        assert!(Arc::ptr_eq(&held, &turns.of(session)));
        assert!(!Arc::ptr_eq(&held, &turns.of(SessionId::generate())));
        for _ in 0..1000 {
            drop(turns.of(SessionId::generate()));
        }
        assert!(Arc::ptr_eq(&held, &turns.of(session)));
        assert!(turns.is_current(&session, &held));
        turns.forget(&session);
        assert!(!turns.is_current(&session, &held));
        assert!(!Arc::ptr_eq(&held, &turns.of(session)), "but for whom nobody is to wait any more");
        let kept = turns.0.lock().expect("nobody panicked").len();
        assert!(kept < 100, "{kept} are kept");
    }
}
