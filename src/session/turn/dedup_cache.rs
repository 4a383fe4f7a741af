//! What clients called their wishes: one that comes again is answered with what it led to, and acts once.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{RequestError, SessionState};
use crate::store::Seq;

/// How many names are remembered.
const DEDUP_CACHE_SIZE: usize = 64;

/// A client's own name for a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// Of the wish: clients that count their frames all have a first one, and give its name to another wish each.
    pub digest: u32,
}

impl IdempotencyKey {
    /// A wish that comes with a name; `None` where it comes without.
    pub fn from_client(key: Option<String>, wish: &impl Serialize) -> Option<IdempotencyKey> {
        key.map(|key| IdempotencyKey { key, digest: request_digest(wish) })
    }
}

/// By which a wish is known again.
pub fn request_digest(wish: &impl Serialize) -> u32 {
    // Wishes are plain data with string keys, so this cannot fail.
    let digest = Sha256::digest(serde_json::to_vec(wish).expect("a wish is JSON"));
    digest.iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl SessionState {
    /// What a wish led to, if it was carried out before. Refused where another one was, under its name.
    pub fn find_in_dedup_cache(&self, named: &IdempotencyKey) -> Result<Option<Option<Seq>>, RequestError> {
        let newest_first = self.dedup_cache.iter().rev();
        let Some((back, (_, seq))) = newest_first.enumerate().find(|(_, (key, _))| *key == named.key) else {
            return Ok(None);
        };
        match self.digests.iter().rev().nth(back) {
            Some(digest) if *digest != named.digest => Err(RequestError::IdReused(named.key.clone())),
            Some(_) | None => Ok(Some(*seq)),
        }
    }

    /// A client may send this wish again; then it is answered with what it led to.
    pub fn add_to_dedup_cache(&mut self, IdempotencyKey { key, digest }: IdempotencyKey, seq: Option<Seq>) {
        self.dedup_cache.push_back((key, seq));
        self.digests.push_back(digest);
        let forgotten = |len: usize| len.saturating_sub(DEDUP_CACHE_SIZE);
        self.dedup_cache.drain(..forgotten(self.dedup_cache.len()));
        self.digests.drain(..forgotten(self.digests.len()));
    }
}
