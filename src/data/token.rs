//! Bearer token that admits clients.

use std::{fmt, io, sync::Arc, time::Duration};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::DataDir;
use crate::config::SecretString;

/// Interval between two reads of the token file.
const TOKEN_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Bearer token. Compared in constant time, hidden by `Debug`.
#[derive(Clone)]
pub struct BearerToken {
    text: String,
}

impl BearerToken {
    pub fn new(text: impl Into<String>) -> BearerToken {
        BearerToken { text: text.into() }
    }

    /// Returns the token's text. Only for the link that the server prints, and for what is derived
    /// from the token.
    pub fn expose(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, presented: &str) -> bool {
        digests_equal(&self.text, presented)
    }
}

/// Token that admits clients. May be replaced while the server runs.
#[derive(Debug, Clone)]
pub struct CurrentToken(watch::Receiver<TokenState>);

#[derive(Debug)]
struct TokenState {
    token: Arc<BearerToken>,
    grant: AccessGrant,
}

impl CurrentToken {
    /// Returns a token that is never replaced. `closing` revokes all grants.
    pub fn fixed(token: BearerToken, closing: &CancellationToken) -> CurrentToken {
        CurrentToken(watch::channel(TokenState::new(token, closing)).1)
    }

    /// Follows the token file, unless the configuration sets a token. `closing` revokes all grants.
    /// Must be called inside a tokio runtime.
    pub fn follow(
        data: Arc<DataDir>,
        given: &SecretString,
        token: BearerToken,
        closing: &CancellationToken,
    ) -> CurrentToken {
        if given.expose().is_some() {
            return CurrentToken::fixed(token, closing);
        }
        let (current, receiver) = watch::channel(TokenState::new(token, closing));
        let closing = closing.clone();
        tokio::spawn(async move {
            let mut unreadable = false;
            loop {
                tokio::time::sleep(TOKEN_POLL_INTERVAL).await;
                match data.token(&SecretString::default()) {
                    Ok(found) => {
                        unreadable = false;
                        if current.send_if_modified(|current| current.replace(found, &closing)) {
                            info!("the token was replaced; clients with the old token are signed out");
                        }
                    }
                    Err(e) if !unreadable => {
                        warn!("could not read the token file; the current token stays valid: {e}");
                        unreadable = true;
                    }
                    Err(_) => {}
                }
            }
        });
        CurrentToken(receiver)
    }

    pub fn get(&self) -> Arc<BearerToken> {
        self.0.borrow().token.clone()
    }

    /// Returns the token with its grant, both of one moment.
    pub(super) fn get_with_grant(&self) -> (Arc<BearerToken>, AccessGrant) {
        let current = self.0.borrow();
        (current.token.clone(), current.grant.clone())
    }

    /// Returns a grant that is valid while the current token is.
    pub fn grant(&self) -> AccessGrant {
        self.0.borrow().grant.clone()
    }
}

impl TokenState {
    fn new(token: BearerToken, closing: &CancellationToken) -> TokenState {
        TokenState { token: Arc::new(token), grant: AccessGrant(closing.child_token()) }
    }

    fn replace(&mut self, found: BearerToken, closing: &CancellationToken) -> bool {
        if self.token.matches(found.expose()) {
            return false;
        }
        std::mem::replace(self, TokenState::new(found, closing)).grant.0.cancel();
        true
    }
}

/// Access grant of an admitted client. Valid until the token is replaced, the client's browser is
/// signed out, or the server shuts down.
#[derive(Debug, Clone)]
pub struct AccessGrant(CancellationToken);

impl AccessGrant {
    /// Returns a grant that ends with this one, or when it is revoked itself.
    pub(super) fn child(&self) -> AccessGrant {
        AccessGrant(self.0.child_token())
    }

    pub(super) fn revoke(&self) {
        self.0.cancel();
    }

    pub async fn revoked(&self) {
        self.0.cancelled().await;
    }

    pub fn is_revoked(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

/// Compares digests, so the time depends neither on the first difference nor on the lengths.
pub(super) fn digests_equal(ours: &str, presented: &str) -> bool {
    Sha256::digest(ours).ct_eq(&Sha256::digest(presented)).into()
}

/// Returns 256 random bits in hexadecimal.
///
/// # Errors
/// Fails if the kernel's random generator is not available.
pub(super) fn random_token() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(hex(&bytes))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_full_token_matches() {
        let token = BearerToken::new("0123456789abcdef");
        let check = |presented: &str, expected| assert_eq!(token.matches(presented), expected, "{presented}");
        check("0123456789abcdef", true);
        check("0123456789abcde", false);
        check("0123456789abcdeF", false);
        check("", false);
        assert_eq!(format!("{token:?}"), "Token(redacted)");
    }
}
