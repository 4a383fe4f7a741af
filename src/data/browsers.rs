//! Signed-in browsers. Each has a cookie and a secret, derived from the token and never stored.
//!
//! A cookie is sent to every port of a host, so the cookie alone admits to nothing but the page.
//! See docs/adr/013-browser-secret.md.

use std::{
    fmt, io,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ring::hmac;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::{
    ClientName, DataDir, ExistingFile,
    token::{AccessGrant, BearerToken, CurrentToken, digests_equal, hex, random_token},
};
use crate::clock;

/// File in the data directory.
const FILE: &str = "browsers.json";
/// Largest size of the file that is read, bytes. The file of [`MAX_BROWSERS`] is far smaller.
const MAX_FILE: u64 = 1 << 20;
/// Bound: 100 browsers. When full: the browser that was unused the longest is signed out.
const MAX_BROWSERS: usize = 100;
/// Time without use after which a browser is signed out. Each use begins it anew.
const UNUSED_LIMIT: Duration = Duration::from_hours(30 * 24);
/// Interval at which the last use of a browser is written to the disk.
const SAVE_INTERVAL: Duration = Duration::from_hours(1);

/// Name of a browser in its cookie and in the list: 64 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowserId(u64);

impl BrowserId {
    fn generate() -> io::Result<BrowserId> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(BrowserId(u64::from_le_bytes(bytes)))
    }
}

impl fmt::Display for BrowserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for BrowserId {
    type Err = ();

    fn from_str(text: &str) -> Result<BrowserId, ()> {
        let id = u64::from_str_radix(text, 16).map(BrowserId).map_err(|_| ())?;
        // One spelling for each id.
        if id.to_string() == text { Ok(id) } else { Err(()) }
    }
}

/// Signed-in browser, as the list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedInBrowser {
    pub id: BrowserId,
    pub name: String,
    /// Time of the sign-in, milliseconds since 1970.
    pub created_ms: i64,
    /// Time of the last use, milliseconds since 1970.
    pub last_seen_ms: i64,
}

/// Cookie and secret that a browser gets when it signs in.
#[derive(Clone)]
pub struct BrowserCredentials {
    pub cookie: String,
    pub secret: String,
}

/// Reason why cookie and secret do not admit a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrowserRejection {
    /// Not derived from the current token: a guess, or the token was replaced.
    Forged,
    /// The browser was signed out, was unused too long, or cookie and secret belong to two
    /// browsers.
    SignedOut,
}

/// Browsers of this server. All methods follow a replaced token: its browsers are signed out.
#[derive(Debug)]
pub struct Browsers {
    data: Arc<DataDir>,
    token: CurrentToken,
    /// Short id of this data directory, part of the cookie's name.
    server_id: String,
    ledger: Mutex<BrowserLedger>,
    /// Number of the newest change on the disk. Locked during a write.
    saved: tokio::sync::Mutex<u64>,
}

impl Browsers {
    /// Reads the browsers of the data directory. A missing or damaged file counts as empty, so a
    /// damaged file signs out, and prevents no start.
    ///
    /// # Errors
    /// Fails if the kernel's random generator is not available.
    pub fn open(data: Arc<DataDir>, token: CurrentToken) -> io::Result<Browsers> {
        let found = data.read_private(FILE, MAX_FILE).unwrap_or_else(|e| {
            warn!("cannot read the signed-in browsers, so they are signed out: {e}");
            None
        });
        let stored = found.and_then(|text| {
            let parsed = serde_json::from_str(&text);
            parsed.inspect_err(|e| warn!("`{FILE}` is damaged, so the browsers are signed out: {e}")).ok()
        });
        let (secret, grant) = token.get_with_grant();
        let is_new = stored.is_none();
        let stored = match stored {
            Some(stored) => stored,
            None => StoredBrowsers { salt: random_token()?, token_tag: String::new(), items: Vec::new() },
        };
        let ledger = BrowserLedger::new(stored, secret, grant);
        // The salt stays, so that the cookie keeps its name.
        if is_new && let Err(e) = data.write_private(FILE, &ledger.to_json(), ExistingFile::Replace) {
            warn!("cannot write `{FILE}`; browsers have to sign in again after a restart: {e}");
        }
        let server_id = hex(&Sha256::digest(format!("greenroom server\0{}", ledger.salt))[..4]);
        Ok(Browsers { data, token, server_id, ledger: Mutex::new(ledger), saved: tokio::sync::Mutex::new(0) })
    }

    /// Returns the short id of this data directory. Not secret.
    pub fn server_id(&self) -> &str {
        &self.server_id
    }

    /// Signs a browser in, whose token was checked. The browser of a valid `cookie` stays the same.
    ///
    /// # Errors
    /// Fails if the kernel's random generator is not available.
    pub async fn sign_in(&self, cookie: Option<&str>, name: &str) -> io::Result<BrowserCredentials> {
        let new = BrowserId::generate()?;
        let credentials = self.ledger().sign_in(cookie, new, name, Now::get());
        if let Err(e) = self.save().await {
            warn!("cannot write `{FILE}`; this browser has to sign in again after a restart: {e}");
        }
        Ok(credentials)
    }

    /// Returns true if the cookie belongs to a signed-in browser.
    pub fn recognizes(&self, cookie: &str) -> bool {
        self.ledger().find(cookie, Now::get()).is_ok()
    }

    /// Returns the browser of a cookie and a secret.
    ///
    /// # Errors
    /// [`BrowserRejection`].
    pub fn check(&self, cookie: &str, secret: &str) -> Result<BrowserId, BrowserRejection> {
        self.ledger().check(cookie, secret, Now::get())
    }

    /// Records a use of a browser, and returns a grant that ends with its sign-in. `None` if it was
    /// signed out meanwhile.
    pub fn grant(self: &Arc<Self>, id: BrowserId) -> Option<AccessGrant> {
        let (grant, is_due) = self.ledger().record_use(id, Now::get())?;
        if is_due {
            let browsers = self.clone();
            tokio::spawn(async move {
                if let Err(e) = browsers.save().await {
                    warn!("cannot write the last use of a browser to `{FILE}`: {e}");
                }
            });
        }
        Some(grant)
    }

    /// Returns the name of a signed-in browser.
    pub fn name_of(&self, id: BrowserId) -> Option<ClientName> {
        let ledger = self.ledger();
        let entry = &ledger.entries[ledger.position(id)?];
        Some(ClientName::of_browser(&entry.browser.name))
    }

    /// Returns the signed-in browsers, newest use first.
    pub fn list(&self) -> Vec<SignedInBrowser> {
        self.ledger().list(Now::get())
    }

    /// Signs a browser out. Its connections end. Returns false if there is no such browser.
    ///
    /// # Errors
    /// The file cannot be written. The browser is signed out until the next start.
    pub async fn sign_out(&self, id: BrowserId) -> io::Result<bool> {
        let is_found = self.ledger().sign_out(id);
        if is_found {
            self.save().await?;
        }
        Ok(is_found)
    }

    fn ledger(&self) -> MutexGuard<'_, BrowserLedger> {
        // No change of the ledger is left half done by a panic.
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, grant) = self.token.get_with_grant();
        ledger.follow(token, grant);
        ledger
    }

    /// Writes the newest state, unless a later call has done so.
    async fn save(&self) -> io::Result<()> {
        let mut saved = self.saved.lock().await;
        let (change, text) = {
            let ledger = self.ledger();
            (ledger.changes, ledger.to_json())
        };
        if *saved == change {
            return Ok(());
        }
        let data = self.data.clone();
        let written = tokio::task::spawn_blocking(move || data.write_private(FILE, &text, ExistingFile::Replace)).await;
        written.map_err(io::Error::other)??;
        *saved = change;
        Ok(())
    }
}

/// Time of a decision.
#[derive(Debug, Clone, Copy)]
struct Now {
    /// Wall clock, milliseconds since 1970. May jump.
    wall_ms: i64,
    /// Time since the machine's start, sleep included. Never jumps.
    since_boot: Duration,
}

impl Now {
    fn get() -> Now {
        let boot = clock_gettime(ClockId::Boottime);
        let since_boot = Duration::try_from(boot).unwrap_or_default();
        Now { wall_ms: clock::now_ms(), since_boot }
    }
}

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct StoredBrowsers {
    salt: String,
    /// Recognizes the token, so that a token replaced while no server ran ends all sign-ins.
    token_tag: String,
    /// Unused the longest first.
    items: Vec<StoredBrowser>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredBrowser {
    id: String,
    name: String,
    created_ms: i64,
    last_seen_ms: i64,
}

#[derive(Debug)]
struct BrowserEntry {
    browser: SignedInBrowser,
    grant: AccessGrant,
    /// Last use by this process, in time since the machine's start.
    used: Option<Duration>,
    /// Last use on the disk, milliseconds since 1970.
    saved_ms: i64,
}

impl BrowserEntry {
    /// Returns true if the browser was unused for too long.
    ///
    /// A use by this process is measured by a clock that never jumps. The wall clock decides only
    /// after a restart. The entry stays, so a clock that jumps forward and back ends no sign-in.
    fn is_expired(&self, now: Now) -> bool {
        let limit = i64::try_from(UNUSED_LIMIT.as_millis()).unwrap_or(i64::MAX);
        match self.used {
            Some(used) => now.since_boot.saturating_sub(used) > UNUSED_LIMIT,
            None => now.wall_ms.saturating_sub(self.browser.last_seen_ms) > limit,
        }
    }
}

/// Rules of the browsers. Pure: without a clock and without a disk.
#[derive(Debug)]
struct BrowserLedger {
    salt: String,
    token: Arc<BearerToken>,
    token_grant: AccessGrant,
    /// Unused the longest first.
    entries: Vec<BrowserEntry>,
    /// Number of changes that belong on the disk.
    changes: u64,
}

impl BrowserLedger {
    fn new(stored: StoredBrowsers, token: Arc<BearerToken>, token_grant: AccessGrant) -> BrowserLedger {
        let StoredBrowsers { salt, token_tag, items } = stored;
        let mut ledger = BrowserLedger { salt, token, token_grant, entries: Vec::new(), changes: 0 };
        if !digests_equal(&ledger.token_tag(), &token_tag) {
            return ledger;
        }
        let entries = items.into_iter().filter_map(|item| {
            let StoredBrowser { id, name, created_ms, last_seen_ms } = item;
            let browser = SignedInBrowser { id: id.parse().ok()?, name, created_ms, last_seen_ms };
            Some(BrowserEntry { browser, grant: ledger.token_grant.child(), used: None, saved_ms: last_seen_ms })
        });
        ledger.entries = entries.take(MAX_BROWSERS).collect();
        ledger
    }

    fn to_json(&self) -> String {
        let items = self.entries.iter().map(|entry| {
            let SignedInBrowser { id, name, created_ms, last_seen_ms } = entry.browser.clone();
            StoredBrowser { id: id.to_string(), name, created_ms, last_seen_ms }
        });
        let stored = StoredBrowsers { salt: self.salt.clone(), token_tag: self.token_tag(), items: items.collect() };
        serde_json::to_string(&stored).expect("texts and numbers are JSON")
    }

    /// Signs out all browsers if the token was replaced. Its grant has ended their connections.
    fn follow(&mut self, token: Arc<BearerToken>, grant: AccessGrant) {
        if Arc::ptr_eq(&self.token, &token) {
            return;
        }
        (self.token, self.token_grant) = (token, grant);
        self.entries.clear();
        self.changes += 1;
    }

    fn sign_in(&mut self, cookie: Option<&str>, new: BrowserId, name: &str, now: Now) -> BrowserCredentials {
        let known = cookie.and_then(|cookie| self.read(cookie, "cookie")).and_then(|id| self.position(id));
        let entry = match known {
            Some(at) => self.entries.remove(at),
            None => {
                let browser = SignedInBrowser {
                    id: new,
                    name: String::new(),
                    created_ms: now.wall_ms,
                    last_seen_ms: now.wall_ms,
                };
                BrowserEntry { browser, grant: self.token_grant.child(), used: None, saved_ms: now.wall_ms }
            }
        };
        let browser = SignedInBrowser { name: name.to_owned(), last_seen_ms: now.wall_ms, ..entry.browser };
        let id = browser.id;
        if self.entries.len() >= MAX_BROWSERS {
            // A script that opens the link signs in each time, and is never seen again.
            let is_unused = |entry: &BrowserEntry| entry.browser.last_seen_ms <= entry.browser.created_ms;
            let unused = self.entries.remove(self.entries.iter().position(is_unused).unwrap_or(0));
            info!(browser = %unused.browser.id, "signed out the browser that was unused the longest");
            unused.grant.revoke();
        }
        self.entries.push(BrowserEntry { browser, used: Some(now.since_boot), saved_ms: now.wall_ms, ..entry });
        self.changes += 1;
        BrowserCredentials { cookie: self.derive("cookie", id), secret: self.derive("secret", id) }
    }

    /// Returns the position of the signed-in browser of a cookie.
    fn find(&self, cookie: &str, now: Now) -> Result<usize, BrowserRejection> {
        let id = self.read(cookie, "cookie").ok_or(BrowserRejection::Forged)?;
        let at = self.position(id).ok_or(BrowserRejection::SignedOut)?;
        if self.entries[at].is_expired(now) { Err(BrowserRejection::SignedOut) } else { Ok(at) }
    }

    fn check(&self, cookie: &str, secret: &str, now: Now) -> Result<BrowserId, BrowserRejection> {
        let of_secret = self.read(secret, "secret").ok_or(BrowserRejection::Forged)?;
        let id = self.entries[self.find(cookie, now)?].browser.id;
        if id == of_secret { Ok(id) } else { Err(BrowserRejection::SignedOut) }
    }

    /// Returns the browser's grant, and true if the use is to be written to the disk.
    fn record_use(&mut self, id: BrowserId, now: Now) -> Option<(AccessGrant, bool)> {
        let mut entry = self.entries.remove(self.position(id)?);
        (entry.browser.last_seen_ms, entry.used) = (now.wall_ms, Some(now.since_boot));
        let is_due = u128::from(now.wall_ms.abs_diff(entry.saved_ms)) >= SAVE_INTERVAL.as_millis();
        if is_due {
            entry.saved_ms = now.wall_ms;
            self.changes += 1;
        }
        let grant = entry.grant.clone();
        self.entries.push(entry);
        Some((grant, is_due))
    }

    fn list(&self, now: Now) -> Vec<SignedInBrowser> {
        let signed_in = self.entries.iter().rev().filter(|entry| !entry.is_expired(now));
        signed_in.map(|entry| entry.browser.clone()).collect()
    }

    fn sign_out(&mut self, id: BrowserId) -> bool {
        let Some(at) = self.position(id) else { return false };
        self.entries.remove(at).grant.revoke();
        self.changes += 1;
        true
    }

    fn position(&self, id: BrowserId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.browser.id == id)
    }

    /// Returns the browser of a presented cookie or secret. `None` if it was not derived from the
    /// current token.
    fn read(&self, presented: &str, purpose: &str) -> Option<BrowserId> {
        let id: BrowserId = presented.split_once('.')?.0.parse().ok()?;
        digests_equal(&self.derive(purpose, id), presented).then_some(id)
    }

    fn derive(&self, purpose: &str, id: BrowserId) -> String {
        format!("{id}.{}", self.tag(&format!("{purpose}\0{id}")))
    }

    fn token_tag(&self) -> String {
        self.tag("token")
    }

    fn tag(&self, message: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.token.expose().as_bytes());
        hex(hmac::sign(&key, format!("greenroom\0{}\0{message}", self.salt).as_bytes()).as_ref())
    }
}

#[cfg(test)]
mod tests;
