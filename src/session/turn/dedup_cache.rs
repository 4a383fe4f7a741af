//! What clients called their wishes: one that comes again is answered with what it led to, and acts once.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{Core, Refusal};
use crate::store::Seq;

/// How many names are remembered.
const REMEMBERED: usize = 64;

/// A client's own name for a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub key: String,
    /// Of the wish: clients that count their frames all have a first one, and give its name to another wish each.
    pub digest: u32,
}

impl Named {
    /// A wish that comes with a name; `None` where it comes without.
    pub fn given(key: Option<String>, wish: &impl Serialize) -> Option<Named> {
        key.map(|key| Named { key, digest: digest_of(wish) })
    }
}

/// By which a wish is known again.
pub fn digest_of(wish: &impl Serialize) -> u32 {
    // Wishes are plain data with string keys, so this cannot fail.
    let digest = Sha256::digest(serde_json::to_vec(wish).expect("a wish is JSON"));
    digest.iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl Core {
    /// What a wish led to, if it was carried out before. Refused where another one was, under its name.
    pub fn remembers(&self, named: &Named) -> Result<Option<Option<Seq>>, Refusal> {
        let newest_first = self.remembered.iter().rev();
        let Some((back, (_, seq))) = newest_first.enumerate().find(|(_, (key, _))| *key == named.key) else {
            return Ok(None);
        };
        match self.digests.iter().rev().nth(back) {
            Some(digest) if *digest != named.digest => Err(Refusal::IdReused(named.key.clone())),
            Some(_) | None => Ok(Some(*seq)),
        }
    }

    /// A client may send this wish again; then it is answered with what it led to.
    pub fn remember(&mut self, Named { key, digest }: Named, seq: Option<Seq>) {
        self.remembered.push_back((key, seq));
        self.digests.push_back(digest);
        let forgotten = |len: usize| len.saturating_sub(REMEMBERED);
        self.remembered.drain(..forgotten(self.remembered.len()));
        self.digests.drain(..forgotten(self.digests.len()));
    }
}
