//! Authorization: a pure function from a request's facts to a decision. Independent of the HTTP
//! library; [`super::middleware`] calls it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    tickets::{Tickets, takes_ticket, without_ticket},
    wrong_tokens::WrongTokens,
};
use crate::data::{AccessGrant, BrowserId, BrowserRejection, Browsers, ClientName, CurrentToken};

/// Access rules of this server: token, browsers, names, origins.
#[derive(Debug, Clone)]
pub struct Auth {
    token: CurrentToken,
    browsers: Arc<Browsers>,
    tickets: Arc<Tickets>,
    bound: SocketAddr,
    /// Further names of this server, with or without a port.
    hosts: Vec<String>,
    /// Further allowed origins, compared exactly.
    origins: Vec<String>,
    wrong_tokens: Arc<WrongTokens>,
}

/// Facts of a request that the decision depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestFacts<'a> {
    pub route: RouteClass,
    pub access: RequestAccess,
    /// Host that the client asked for, without the default port of its scheme.
    pub host: Option<&'a str>,
    /// True if the browser sees `https`, also if a proxy ends TLS.
    pub is_https: bool,
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`. Only browsers send the header, and no page can forge it.
    pub fetch_site: Option<&'a str>,
    pub bearer: Option<&'a str>,
    /// Value of the query parameter `token`.
    pub query: Option<&'a str>,
    pub cookie: Option<&'a str>,
    /// Secret of the browser, from the page's storage.
    pub secret: Option<&'a str>,
    /// Ticket of a `GET` request.
    pub ticket: Option<&'a str>,
    /// Path and query, as the client sent them.
    pub address: &'a str,
    pub body: RequestBodyKind,
}

/// Kind of address that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteClass {
    /// `/healthz`
    Health,
    /// Shell of the application and its assets, which anybody may read. They contain no data.
    Page,
    Socket,
    /// Sign-in with the token in the body.
    SignIn,
    /// Any other address.
    Api,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestAccess {
    Read,
    Write,
    /// `OPTIONS`: a browser asks whether a page of another origin may send a request.
    Preflight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestBodyKind {
    /// No body and no content type.
    None,
    Json,
    /// Body of a `PUT`, or a form with files at the address of uploads. A page of another origin
    /// needs a preflight for a `PUT`, and names its origin with a form.
    File,
    Other,
}

/// Proof with which a client was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientProof {
    /// The address is open to anybody.
    None,
    Token,
    /// Cookie and secret of a browser.
    Browser(BrowserId),
    Ticket,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthDecision {
    Pass(ClientProof),
    /// Pass, and allow a page of this other origin to read the answer.
    PassCrossOrigin(String, ClientProof),
    /// Answer the browser's preflight; no handler runs.
    AnswerPreflight(String),
    /// Pass. The page signs the browser in: the address has the token.
    SignIn,
    Reject(AuthError),
    /// Reject, and allow a page of this other origin to read the reason.
    RejectCrossOrigin(String, AuthError),
}

/// Reason for a rejected request. The text names the way out and never contains a presented secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AuthError {
    #[error("`{0}` is not a name of this server; to use that name, add it to `server.allowed_hosts`")]
    Host(String),
    #[error("pages of `{0}` may not send this request; to allow them, add that origin to `server.allowed_origins`")]
    Origin(String),
    #[error("the token is missing; open the link that the server printed, or send `Authorization: Bearer …`")]
    NoToken,
    #[error(
        "the token is not valid here, or was replaced; open `/?token=` with the token that `greenroom token` prints"
    )]
    WrongToken,
    #[error(
        "the cookie is not enough without the browser's secret; open the link that the server printed, or send \
         `Authorization: Bearer …`"
    )]
    NoSecret,
    #[error("this browser is signed out; open the link that the server printed, or enter the token")]
    SignedOut,
    #[error("the ticket is not valid for this address, or is older than 60 s; follow the link on the page again")]
    BadTicket,
    #[error("cookie and secret are not enough here without an `Origin`; send `Authorization: Bearer …`")]
    NoOrigin,
    #[error("a body must be JSON; send `Content-Type: application/json`")]
    NotJson,
}

/// Origin of a request, as the browser reports it.
enum RequestOrigin<'a> {
    /// No page: a script, or an address typed by a person.
    NoPage,
    /// Page of this server.
    Own,
    /// Page of an origin that the operator allowed.
    Allowed(&'a str),
    Foreign(&'a str),
}

impl AuthError {
    /// Returns true if the client has no valid credentials, so that a sign-in helps.
    pub(super) fn is_unauthenticated(&self) -> bool {
        match self {
            AuthError::NoToken
            | AuthError::WrongToken
            | AuthError::NoSecret
            | AuthError::SignedOut
            | AuthError::BadTicket => true,
            AuthError::Host(_) | AuthError::Origin(_) | AuthError::NoOrigin | AuthError::NotJson => false,
        }
    }
}

impl Auth {
    pub fn new(
        token: CurrentToken,
        browsers: Browsers,
        bound: SocketAddr,
        config: &crate::config::ServerConfig,
    ) -> Auth {
        Auth {
            token,
            browsers: Arc::new(browsers),
            tickets: Arc::default(),
            bound,
            hosts: config.allowed_hosts.clone(),
            origins: config.allowed_origins.clone(),
            wrong_tokens: Arc::default(),
        }
    }

    pub(super) fn wrong_tokens(&self) -> &Arc<WrongTokens> {
        &self.wrong_tokens
    }

    pub(super) fn browsers(&self) -> &Arc<Browsers> {
        &self.browsers
    }

    pub(super) fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    /// Returns true if this is the token.
    pub(super) fn is_token(&self, presented: &str) -> bool {
        self.token.get().matches(presented)
    }

    /// Returns the name of a browser's cookie, which contains the short id of the data directory.
    ///
    /// Cookies do not depend on ports. With the id in the name, two servers under one host name do
    /// not sign each other out. The prefix keeps pages without TLS from replacing the cookie, and
    /// makes the browser insist on `Secure`.
    pub(super) fn cookie_name(&self, is_https: bool) -> String {
        let prefix = if is_https { "__Host-" } else { "" };
        format!("{prefix}greenroom_{}", self.browsers.server_id())
    }

    /// Returns the access grant of the token.
    ///
    /// Take the grant before [`Auth::authorize`]. A token that is replaced in between then revokes
    /// the grant.
    pub(super) fn token_grant(&self) -> AccessGrant {
        self.token.grant()
    }

    /// Returns the access grant of an authorized client, and records the use of its browser.
    ///
    /// # Errors
    /// The browser was signed out meanwhile, or the ticket has expired.
    pub(super) fn grant_of(
        &self,
        proof: ClientProof,
        facts: &RequestFacts<'_>,
        of_token: AccessGrant,
    ) -> Result<AccessGrant, AuthError> {
        match proof {
            ClientProof::None | ClientProof::Token => Ok(of_token),
            ClientProof::Browser(id) => self.browsers.grant(id).ok_or(AuthError::SignedOut),
            ClientProof::Ticket => {
                let grant = facts.ticket.and_then(|ticket| self.tickets.check(ticket, &without_ticket(facts.address)));
                grant.ok_or(AuthError::BadTicket)
            }
        }
    }

    /// Returns the name of an authorized client. `None` if the client has only a ticket or nothing.
    pub(super) fn name_of(&self, proof: ClientProof) -> Option<ClientName> {
        match proof {
            ClientProof::Token => Some(ClientName::of_token()),
            ClientProof::Browser(id) => self.browsers.name_of(id),
            ClientProof::None | ClientProof::Ticket => None,
        }
    }

    /// Returns true if clients reach this server over TLS under `host`, through a reverse proxy.
    pub(super) fn is_tls(&self, host: &str) -> bool {
        self.origins.iter().any(|origin| origin.strip_prefix("https://") == Some(host))
    }

    /// Decides on a request. Errors become decisions that an allowed origin can read.
    pub(super) fn authorize(&self, facts: &RequestFacts<'_>) -> AuthDecision {
        match self.decide(facts) {
            Ok(decision) => decision,
            Err(error @ AuthError::Host(_)) => AuthDecision::Reject(error),
            Err(error) => match self.sender(facts, facts.host.unwrap_or_default()) {
                RequestOrigin::Allowed(origin) => AuthDecision::RejectCrossOrigin(origin.to_owned(), error),
                RequestOrigin::NoPage | RequestOrigin::Own | RequestOrigin::Foreign(_) => AuthDecision::Reject(error),
            },
        }
    }

    fn decide(&self, facts: &RequestFacts<'_>) -> Result<AuthDecision, AuthError> {
        let host = facts.host.unwrap_or_default();
        if !self.is_own_host(host, facts.is_https) {
            return Err(AuthError::Host(host.to_owned()));
        }
        let sender = self.sender(facts, host);
        match (facts.route, facts.access) {
            (RouteClass::Health, _) => Ok(AuthDecision::Pass(ClientProof::None)),
            (RouteClass::Page, RequestAccess::Read) => match facts.query {
                None => Ok(AuthDecision::Pass(ClientProof::None)),
                Some(token) if self.is_token(token) => Ok(AuthDecision::SignIn),
                Some(_) => Err(AuthError::WrongToken),
            },
            (RouteClass::SignIn, RequestAccess::Write) => match sender {
                // An allowed page of another origin has the token in its own requests.
                RequestOrigin::Allowed(origin) | RequestOrigin::Foreign(origin) => {
                    Err(AuthError::Origin(origin.to_owned()))
                }
                // No form of another page can send JSON.
                RequestOrigin::NoPage | RequestOrigin::Own if facts.body == RequestBodyKind::Json => {
                    Ok(AuthDecision::Pass(ClientProof::None))
                }
                RequestOrigin::NoPage | RequestOrigin::Own => Err(AuthError::NotJson),
            },
            (_, RequestAccess::Preflight) => match sender {
                RequestOrigin::Allowed(origin) => Ok(AuthDecision::AnswerPreflight(origin.to_owned())),
                RequestOrigin::Own => Ok(AuthDecision::Pass(ClientProof::None)),
                RequestOrigin::NoPage => self.check_credentials(facts, &sender).map(AuthDecision::Pass),
                RequestOrigin::Foreign(origin) => Err(AuthError::Origin(origin.to_owned())),
            },
            (
                RouteClass::Page | RouteClass::Socket | RouteClass::SignIn | RouteClass::Api,
                RequestAccess::Read | RequestAccess::Write,
            ) => {
                if let RequestOrigin::Foreign(origin) = sender {
                    return Err(AuthError::Origin(origin.to_owned()));
                }
                let proof = self.check_credentials(facts, &sender)?;
                if facts.access == RequestAccess::Write && facts.body == RequestBodyKind::Other {
                    return Err(AuthError::NotJson);
                }
                match sender {
                    RequestOrigin::Allowed(origin) => Ok(AuthDecision::PassCrossOrigin(origin.to_owned(), proof)),
                    RequestOrigin::NoPage | RequestOrigin::Own | RequestOrigin::Foreign(_) => {
                        Ok(AuthDecision::Pass(proof))
                    }
                }
            }
        }
    }

    /// Checks the credentials of a request.
    ///
    /// A wrong token is rejected even if the cookie is valid, so that the client's mistake becomes
    /// visible.
    fn check_credentials(
        &self,
        facts: &RequestFacts<'_>,
        sender: &RequestOrigin<'_>,
    ) -> Result<ClientProof, AuthError> {
        // Only sockets take the token from the address, because a browser cannot send it elsewhere.
        // The token in an API address would end up in a proxy's log.
        let in_query = facts.query.filter(|_| facts.route == RouteClass::Socket);
        if let Some(token) = facts.bearer.or(in_query) {
            return if self.is_token(token) { Ok(ClientProof::Token) } else { Err(AuthError::WrongToken) };
        }
        if let Some(ticket) = facts.ticket {
            let address = without_ticket(facts.address);
            let is_valid = takes_ticket(&address) && self.tickets.check(ticket, &address).is_some();
            return if is_valid { Ok(ClientProof::Ticket) } else { Err(AuthError::BadTicket) };
        }
        let cookie = facts.cookie.ok_or(AuthError::NoToken)?;
        let secret = facts.secret.ok_or(AuthError::NoSecret)?;
        let browser = self.browsers.check(cookie, secret).map_err(|rejection| match rejection {
            BrowserRejection::Forged => AuthError::WrongToken,
            BrowserRejection::SignedOut => AuthError::SignedOut,
        })?;
        let needs_origin = facts.route == RouteClass::Socket || facts.access == RequestAccess::Write;
        match sender {
            RequestOrigin::NoPage if needs_origin => Err(AuthError::NoOrigin),
            RequestOrigin::NoPage | RequestOrigin::Own | RequestOrigin::Allowed(_) | RequestOrigin::Foreign(_) => {
                Ok(ClientProof::Browser(browser))
            }
        }
    }

    fn sender<'a>(&self, facts: &RequestFacts<'a>, host: &str) -> RequestOrigin<'a> {
        let scheme = if facts.is_https { "https://" } else { "http://" };
        match facts.origin {
            Some(origin) if origin.strip_prefix(scheme) == Some(host) => RequestOrigin::Own,
            Some(origin) if self.origins.iter().any(|allowed| allowed == origin) => RequestOrigin::Allowed(origin),
            Some(origin) => RequestOrigin::Foreign(origin),
            // A browser omits `Origin` on a plain GET. Pages of other ports of this host count as
            // the same site, so SameSite does not stop their requests. Only pages of this origin
            // and typed addresses pass.
            None => match facts.fetch_site {
                None | Some("same-origin" | "none") => RequestOrigin::NoPage,
                Some(other) => RequestOrigin::Foreign(other),
            },
        }
    }

    /// Returns true if `host` is a name of this server. Protects against DNS rebinding: a page that
    /// points its own name at this server still sends that name.
    fn is_own_host(&self, host: &str, is_https: bool) -> bool {
        let Ok(authority) = host.parse::<actix_web::http::uri::Authority>() else { return false };
        if host.contains('@') {
            return false;
        }
        let name = authority.host();
        let listed = |allowed: &String| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name);
        if self.hosts.iter().any(listed) {
            return true;
        }
        // A loopback name cannot be rebound. Behind a forwarded port it has another port.
        if matches!(name.to_ascii_lowercase().as_str(), "localhost" | "127.0.0.1" | "[::1]") {
            return true;
        }
        let default_port = if is_https { 443 } else { 80 };
        let address: Option<IpAddr> = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
        match address {
            None => false,
            Some(_) if authority.port_u16().unwrap_or(default_port) != self.bound.port() => false,
            // The bound address may be a loopback address of its own, as with several servers on a
            // port.
            Some(ip) if ip == self.bound.ip() => true,
            Some(ip) if ip.is_loopback() => false,
            // A server bound to all addresses is reached by any of them. A numeric address cannot
            // be rebound.
            Some(_) => self.bound.ip().is_unspecified(),
        }
    }
}

#[cfg(test)]
mod tests;
