//! Dedup cache: idempotency keys of client requests. A repeated request acts once.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{RequestError, SessionState};
use crate::store::Seq;

/// Number of keys in the cache. When full: the oldest key is dropped.
const DEDUP_CACHE_SIZE: usize = 64;

/// Idempotency key of a client request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Name that the client gave the request.
    pub key: String,
    /// Digest of the request. Clients that count their frames reuse keys like `1` for different
    /// requests.
    pub digest: u32,
}

impl IdempotencyKey {
    /// Returns the key with the digest of `request`, or `None` without a key.
    pub fn from_client(key: Option<String>, request: &impl Serialize) -> Option<IdempotencyKey> {
        key.map(|key| IdempotencyKey { key, digest: request_digest(request) })
    }
}

/// Returns the digest that identifies a request: the first 32 bits of its JSON's SHA-256.
pub fn request_digest(request: &impl Serialize) -> u32 {
    // Invariant: requests are plain data with string keys.
    let digest = Sha256::digest(serde_json::to_vec(request).expect("requests serialize without errors"));
    digest.iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl SessionState {
    /// Returns the first event of the request with this key, if the request acted before.
    ///
    /// The outer option is `None` for an unknown key. The inner option is `None` for a request that
    /// caused no event.
    ///
    /// # Errors
    /// Returns [`RequestError::IdReused`] if another request has this key.
    pub fn find_in_dedup_cache(&self, idempotency_key: &IdempotencyKey) -> Result<Option<Option<Seq>>, RequestError> {
        let newest_first = self.dedup_cache.iter().rev();
        let Some((back, (_, seq))) = newest_first.enumerate().find(|(_, (key, _))| *key == idempotency_key.key) else {
            return Ok(None);
        };
        match self.digests.iter().rev().nth(back) {
            Some(digest) if *digest != idempotency_key.digest => {
                Err(RequestError::IdReused(idempotency_key.key.clone()))
            }
            Some(_) | None => Ok(Some(*seq)),
        }
    }

    /// Adds the key of an accepted request, with the first event that the request caused.
    pub fn add_to_dedup_cache(&mut self, IdempotencyKey { key, digest }: IdempotencyKey, seq: Option<Seq>) {
        self.dedup_cache.push_back((key, seq));
        self.digests.push_back(digest);
        let excess = |len: usize| len.saturating_sub(DEDUP_CACHE_SIZE);
        self.dedup_cache.drain(..excess(self.dedup_cache.len()));
        self.digests.drain(..excess(self.digests.len()));
    }
}
