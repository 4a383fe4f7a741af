//! Names under which providers answer. A proxy may serve a model under an alias that has no price;
//! its answers name the model that has one.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Number of aliases that are remembered. Beyond it, an alias has its own price alone.
const ALIAS_LIMIT: usize = 1_000;

/// Name of the last answer to each alias.
#[derive(Debug, Default)]
pub(super) struct AnsweredNames(Mutex<HashMap<String, String>>);

impl AnsweredNames {
    /// Remembers that calls for `alias` are answered by `model`.
    pub(super) fn insert(&self, alias: &str, model: &str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.get(alias).is_some_and(|known| known == model) {
            return;
        }
        if names.len() < ALIAS_LIMIT || names.contains_key(alias) {
            names.insert(alias.to_owned(), model.to_owned());
        }
    }

    /// Returns the model that answered for `alias`.
    pub(super) fn get(&self, alias: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(alias).cloned()
    }
}
