//! Tickets: short admissions of one address, for links that a browser follows itself.
//!
//! A followed link has no header of the page's script, so it cannot carry the browser's secret.

use std::{
    borrow::Cow,
    collections::VecDeque,
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::data::AccessGrant;

/// Time for which a ticket is valid.
pub(super) const TICKET_LIFETIME: Duration = Duration::from_mins(1);
/// Bound: 1,024 tickets. When full: the oldest is dropped.
const MAX_TICKETS: usize = 1024;

/// Tickets of this server. They live in memory only.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<VecDeque<Ticket>>);

#[derive(Debug)]
struct Ticket {
    /// Digest, so that a lookup reveals nothing by its time.
    digest: [u8; 32],
    /// Path and query, exactly as the browser will request them.
    address: String,
    expires: Instant,
    grant: AccessGrant,
}

impl Tickets {
    /// Issues a ticket for an address. The ticket ends with `grant`.
    ///
    /// # Errors
    /// Fails if the kernel's random generator is not available.
    pub(super) fn issue(&self, address: &str, grant: AccessGrant) -> io::Result<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let ticket: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let now = Instant::now();
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tickets.len() >= MAX_TICKETS || tickets.front().is_some_and(|oldest| oldest.expires <= now) {
            tickets.pop_front();
        }
        tickets.push_back(Ticket {
            digest: Sha256::digest(&ticket).into(),
            address: address.to_owned(),
            expires: now + TICKET_LIFETIME,
            grant,
        });
        Ok(ticket)
    }

    /// Returns the grant of a ticket that is valid for this address now.
    pub(super) fn check(&self, ticket: &str, address: &str) -> Option<AccessGrant> {
        let digest: [u8; 32] = Sha256::digest(ticket).into();
        let tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tickets.iter().find(|ticket| ticket.digest == digest)?;
        let is_same = comparable(&found.address) == comparable(address);
        let is_valid = is_same && Instant::now() < found.expires && !found.grant.is_revoked();
        is_valid.then(|| found.grant.clone())
    }
}

/// Returns the decoded path, and the query. A proxy that removes a base path may encode the path
/// anew.
fn comparable(address: &str) -> (Cow<'_, str>, &str) {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    (percent_decode_str(path).decode_utf8_lossy(), query)
}

/// Returns true if a ticket can admit to the address: a file of a session that a browser downloads
/// or shows.
pub(super) fn takes_ticket(address: &str) -> bool {
    let path = address.split('?').next().unwrap_or_default();
    let mut parts = path.strip_prefix("/api/sessions/").unwrap_or_default().splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(id), Some("export" | "archive" | "patch"), None) => !id.is_empty(),
        (Some(id), Some("contents" | "files"), Some(rest)) => !id.is_empty() && !rest.is_empty(),
        _ => false,
    }
}

/// Returns an address without its ticket.
pub(super) fn without_ticket(address: &str) -> String {
    let Some((path, query)) = address.split_once('?') else { return address.to_owned() };
    let is_other = |pair: &&str| *pair != "ticket" && !pair.starts_with("ticket=");
    let rest: Vec<_> = query.split('&').filter(is_other).collect();
    if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::data::{BearerToken, CurrentToken};

    fn grant(closing: &CancellationToken) -> AccessGrant {
        CurrentToken::fixed(BearerToken::new("0123456789abcdef"), closing).grant()
    }

    #[tokio::test(start_paused = true)]
    async fn ticket_admits_to_one_address_for_a_minute() {
        let (tickets, closing) = (Tickets::default(), CancellationToken::new());
        let ticket = tickets.issue("/a?b=1", grant(&closing)).expect("random numbers");
        let check = |ticket: &str, address: &str, expected: bool| {
            assert_eq!(tickets.check(ticket, address).is_some(), expected, "{ticket} {address}");
        };
        check(&ticket, "/a?b=1", true);
        check(&ticket, "/a?b=1", true);
        for other in ["/a", "/a?b=2", "/a?b=1&c=2", "/A?b=1", "/a?b=1#c", ""] {
            check(&ticket, other, false);
        }
        check("", "/a?b=1", false);
        let encoded = tickets.issue("/a%40b%20%3Fc?d=%40", grant(&closing)).expect("random numbers");
        check(&encoded, "/a@b%20%3fc?d=%40", true);
        check(&encoded, "/a@b%20?c?d=%40", false);
        check(&encoded, "/a%40b%20%3Fc?d=@", false);
        check(&ticket[1..], "/a?b=1", false);
        tokio::time::advance(TICKET_LIFETIME.checked_sub(Duration::from_millis(1)).expect("longer")).await;
        check(&ticket, "/a?b=1", true);
        tokio::time::advance(Duration::from_millis(1)).await;
        check(&ticket, "/a?b=1", false);
        let revoked = tickets.issue("/a", grant(&closing)).expect("random numbers");
        closing.cancel();
        check(&revoked, "/a", false);
    }

    #[tokio::test(start_paused = true)]
    async fn tickets_are_bounded() {
        let (tickets, closing) = (Tickets::default(), CancellationToken::new());
        let issue = || tickets.issue("/a", grant(&closing)).expect("random numbers");
        let (first, second) = (issue(), issue());
        (2..=MAX_TICKETS).for_each(|_| drop(issue()));
        assert!(tickets.check(&first, "/a").is_none() && tickets.check(&second, "/a").is_some());
        tokio::time::advance(TICKET_LIFETIME).await;
        issue();
        assert_eq!(tickets.0.lock().expect("no panic").len(), 1, "expired tickets are removed");
    }

    #[test]
    fn only_files_of_a_session_take_tickets() {
        let check = |address, expected| assert_eq!(takes_ticket(address), expected, "{address}");
        check("/api/sessions/A/export", true);
        check("/api/sessions/A/export?format=md", true);
        check("/api/sessions/A/archive", true);
        check("/api/sessions/A/patch?to=turn-1", true);
        check("/api/sessions/A/contents/1", true);
        check("/api/sessions/A/files/a/b.png", true);
        check("/api/sessions/A/files/", false);
        check("/api/sessions/A/export/x", false);
        check("/api/sessions/A/events", false);
        check("/api/sessions/A", false);
        check("/api/sessions//export", false);
        check("/api/sessions?export", false);
        check("/api/options", false);
        check("/ws/sessions/A/files/a", false);
        check("https://evil.test/api/sessions/A/export", false);
        check("", false);
    }

    #[test]
    fn ticket_leaves_the_address() {
        let check = |address, expected| assert_eq!(without_ticket(address), expected, "{address}");
        check("/a?ticket=x", "/a");
        check("/a?b=1&ticket=x&c=2", "/a?b=1&c=2");
        check("/a?b=1", "/a?b=1");
        check("/a?tickets=1&ticket", "/a?tickets=1");
        check("/a", "/a");
    }
}
