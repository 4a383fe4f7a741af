//! The one secret that lets a client in, and the cookie that stands for it.

use std::{fmt, io, sync::Arc, time::Duration};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::DataDir;
use crate::config::Secret;

/// How often the token's file is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The bearer token. Compared in constant time, never shown by `Debug`.
#[derive(Clone)]
pub struct Token {
    text: String,
    cookie: String,
}

impl Token {
    pub fn new(text: impl Into<String>) -> Token {
        let text = text.into();
        let cookie = hex(&Sha256::new().chain_update("greenroom cookie\0").chain_update(&text).finalize());
        Token { text, cookie }
    }

    /// For the one link that the server prints, and for nothing else.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// What a browser keeps in its place: it opens the same doors, and nobody learns the token from it.
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    pub fn is(&self, presented: &str) -> bool {
        same(&self.text, presented)
    }

    pub fn is_cookie(&self, presented: &str) -> bool {
        same(&self.cookie, presented)
    }
}

/// The token that lets clients in, which may be replaced while the server runs.
#[derive(Debug, Clone)]
pub struct TokenInForce(watch::Receiver<InForce>);

#[derive(Debug)]
struct InForce {
    token: Arc<Token>,
    pass: Pass,
}

impl TokenInForce {
    /// One that stays. `closing` ends every pass.
    pub fn always(token: Token, closing: &CancellationToken) -> TokenInForce {
        TokenInForce(watch::channel(InForce::new(token, closing)).1)
    }

    /// The one in the directory, whichever that is at the time, unless the configuration gives one. `closing` ends every pass.
    /// Must be called inside a tokio runtime.
    pub fn follow(data: Arc<DataDir>, given: &Secret, token: Token, closing: &CancellationToken) -> TokenInForce {
        if given.expose().is_some() {
            return TokenInForce::always(token, closing);
        }
        let (in_force, follower) = watch::channel(InForce::new(token, closing));
        let closing = closing.clone();
        tokio::spawn(async move {
            let mut unreadable = false;
            loop {
                tokio::time::sleep(LOOK).await;
                match data.token(&Secret::default()) {
                    Ok(found) => {
                        unreadable = false;
                        if in_force.send_if_modified(|in_force| in_force.replace(found, &closing)) {
                            info!("the token was replaced: whoever came with the old one is signed out");
                        }
                    }
                    Err(e) if !unreadable => {
                        warn!("the token of the start stays in force: {e}");
                        unreadable = true;
                    }
                    Err(_) => {}
                }
            }
        });
        TokenInForce(follower)
    }

    pub fn get(&self) -> Arc<Token> {
        self.0.borrow().token.clone()
    }

    /// Holds as long as the token that is in force now.
    pub fn pass(&self) -> Pass {
        self.0.borrow().pass.clone()
    }
}

impl InForce {
    fn new(token: Token, closing: &CancellationToken) -> InForce {
        InForce { token: Arc::new(token), pass: Pass(closing.child_token()) }
    }

    fn replace(&mut self, found: Token, closing: &CancellationToken) -> bool {
        if self.token.is(found.expose()) {
            return false;
        }
        std::mem::replace(self, InForce::new(found, closing)).pass.0.cancel();
        true
    }
}

/// What whoever was let in goes by: it holds until the token is replaced, or the server goes away.
#[derive(Debug, Clone)]
pub struct Pass(CancellationToken);

impl Pass {
    pub async fn revoked(&self) {
        self.0.cancelled().await;
    }

    pub fn is_revoked(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

/// Takes the same time wherever two texts differ, and however long they are: it compares their digests.
fn same(ours: &str, presented: &str) -> bool {
    Sha256::digest(ours).ct_eq(&Sha256::digest(presented)).into()
}

/// 256 bits that nobody can guess.
pub(super) fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::new("0123456789abcdef");
        let check = |presented: &str, expected| assert_eq!(token.is(presented), expected, "{presented}");
        check("0123456789abcdef", true);
        check("0123456789abcde", false);
        check("0123456789abcdeF", false);
        check("", false);
        check(token.cookie(), false);
        assert!(token.is_cookie(token.cookie()) && !token.is_cookie("0123456789abcdef"));
        assert!(!token.cookie().contains("0123456789abcdef"));
        assert_eq!(format!("{token:?}"), "Token(redacted)");
    }
}
