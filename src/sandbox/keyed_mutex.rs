//! Keyed mutex: serialises operations on the same key, for example one session's sandbox or one
//! image.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::store::SessionId;

/// Locks, one for each key that is in use. The key is a session by default.
#[derive(Debug)]
pub struct KeyedMutex<K = SessionId>(Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>);

impl<K> Default for KeyedMutex<K> {
    fn default() -> KeyedMutex<K> {
        KeyedMutex(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyedMutex<K> {
    /// Returns the lock of `key`. All callers with the same key get the same lock.
    pub fn of(&self, key: K) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        // The map has an entry for each key used so far, and most of them are dead. Dead entries
        // are dropped before the map would grow.
        if locks.len() == locks.capacity() {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::default();
        locks.insert(key, Arc::downgrade(&lock));
        lock
    }

    /// Returns true if `lock` is still the lock of `key`, and was not forgotten.
    pub fn is_current(&self, key: &K, lock: &Arc<tokio::sync::Mutex<()>>) -> bool {
        let locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.get(key).is_some_and(|current| std::ptr::eq(current.as_ptr(), Arc::as_ptr(lock)))
    }

    /// Gives later callers of `key` a new lock. They do not wait for the holders of the present
    /// lock.
    pub fn forget(&self, key: &K) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_keeps_its_lock_while_held_and_until_forgotten() {
        let (locks, session) = (KeyedMutex::default(), SessionId::generate());
        let held = locks.of(session);
        assert!(Arc::ptr_eq(&held, &locks.of(session)));
        assert!(!Arc::ptr_eq(&held, &locks.of(SessionId::generate())));
        for _ in 0..1000 {
            drop(locks.of(SessionId::generate()));
        }
        assert!(Arc::ptr_eq(&held, &locks.of(session)));
        assert!(locks.is_current(&session, &held));
        locks.forget(&session);
        assert!(!locks.is_current(&session, &held));
        assert!(!Arc::ptr_eq(&held, &locks.of(session)), "a forgotten lock is not returned again");
        let kept = locks.0.lock().expect("lock is never poisoned: no holder panics").len();
        assert!(kept < 100, "{kept} entries are kept");
    }
}
