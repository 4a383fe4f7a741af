//! Who may do what: one pure function from what a request shows to a verdict. Knows no HTTP library; `gate` asks it.

use std::net::{IpAddr, SocketAddr};

use crate::data::{AccessGrant, CurrentToken};

/// Whom this server lets in.
#[derive(Debug, Clone)]
pub struct Auth {
    token: CurrentToken,
    bound: SocketAddr,
    /// Further names of this server, with or without a port.
    hosts: Vec<String>,
    /// Further origins, exact.
    origins: Vec<String>,
}

/// What a request shows of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestFacts<'a> {
    pub route: RouteClass,
    pub access: RequestAccess,
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`, which only browsers send, and no page can forge.
    pub fetch_site: Option<&'a str>,
    pub bearer: Option<&'a str>,
    /// `?token=`
    pub query: Option<&'a str>,
    pub cookie: Option<&'a str>,
    pub body: RequestBodyKind,
}

/// What a request knocks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteClass {
    /// `/healthz`
    Health,
    /// The application's shell and its assets: no secret, whoever asks. To those who are let in, the page of a session comes
    /// with its newest events.
    Page,
    Socket,
    /// Everything else.
    Api,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestAccess {
    Read,
    Write,
    /// `OPTIONS`: a browser asks whether a page of another origin may.
    Preflight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestBodyKind {
    /// No body and no type of one.
    None,
    Json,
    /// By PUT, which no form can send: a page of another origin would have to ask first.
    File,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthDecision {
    Pass,
    /// Pass, and a page may come with what only those see who are let in.
    PassAuthenticated,
    /// Pass, and tell the browser that a page of this other origin may read the answer.
    PassCrossOrigin(String),
    /// Answer the browser's question; nothing else happens.
    AnswerPreflight(String),
    /// The link was opened: trade the token for the cookie.
    SignIn,
    Reject(AuthError),
    /// Refuse, and let a page of this other origin read why.
    RejectCrossOrigin(String, AuthError),
}

/// Why not. The text names the way out, and never what was presented as a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AuthError {
    #[error("this server is not called `{0}`; where that is meant to be its name, add it to `server.allowed_hosts`")]
    Host(String),
    #[error("pages of `{0}` may not do this; where they should, add that origin to `server.allowed_origins`")]
    Origin(String),
    #[error("the token is missing; open the link that the server printed, or send `Authorization: Bearer …`")]
    NoToken,
    #[error(
        "the token is not this server's, or was replaced; put the one that `greenroom token` prints behind `/?token=`"
    )]
    WrongToken,
    #[error("a cookie is not enough here without an `Origin`; send `Authorization: Bearer …`")]
    CookieAlone,
    #[error("a body must be JSON; send `Content-Type: application/json`")]
    NotJson,
}

/// Where a request comes from, by what the browser says about it.
enum RequestOrigin<'a> {
    /// No page: a script, or somebody who typed the address.
    NoPage,
    /// A page of this server.
    Own,
    /// A page of an origin that the operator named.
    Allowed(&'a str),
    Foreign(&'a str),
}

impl Auth {
    pub fn new(token: CurrentToken, bound: SocketAddr, config: &crate::config::ServerConfig) -> Auth {
        Auth { token, bound, hosts: config.allowed_hosts.clone(), origins: config.allowed_origins.clone() }
    }

    /// The cookie's name. Cookies know no ports, so it holds ours: two servers on one host must not sign each other out.
    pub(super) fn cookie_name(&self) -> String {
        format!("greenroom_{}", self.bound.port())
    }

    pub(super) fn cookie_value(&self) -> String {
        self.token.get().cookie().to_owned()
    }

    /// To be taken before the judgement, so that no change of the token goes unseen by whoever is let in.
    pub(super) fn pass(&self) -> AccessGrant {
        self.token.grant()
    }

    /// Whether this server is reached over TLS under that name, through somebody's proxy.
    pub(super) fn is_tls(&self, host: &str) -> bool {
        self.origins.iter().any(|origin| origin.strip_prefix("https://") == Some(host))
    }

    pub(super) fn authorize(&self, facts: &RequestFacts<'_>) -> AuthDecision {
        match self.decide(facts) {
            Ok(verdict) => verdict,
            Err(denial @ AuthError::Host(_)) => AuthDecision::Reject(denial),
            Err(denial) => match self.sender(facts, facts.host.unwrap_or_default()) {
                RequestOrigin::Allowed(origin) => AuthDecision::RejectCrossOrigin(origin.to_owned(), denial),
                RequestOrigin::NoPage | RequestOrigin::Own | RequestOrigin::Foreign(_) => AuthDecision::Reject(denial),
            },
        }
    }

    fn decide(&self, facts: &RequestFacts<'_>) -> Result<AuthDecision, AuthError> {
        let host = facts.host.unwrap_or_default();
        if !self.is_own_host(host) {
            return Err(AuthError::Host(host.to_owned()));
        }
        let sender = self.sender(facts, host);
        match (facts.route, facts.access) {
            (RouteClass::Health, _) => Ok(AuthDecision::Pass),
            (RouteClass::Page, RequestAccess::Read) => self.decide_page(facts, &sender),
            (_, RequestAccess::Preflight) => match sender {
                RequestOrigin::Allowed(origin) => Ok(AuthDecision::AnswerPreflight(origin.to_owned())),
                RequestOrigin::Own => Ok(AuthDecision::Pass),
                RequestOrigin::NoPage => self.check_credentials(facts, &sender).map(|()| AuthDecision::Pass),
                RequestOrigin::Foreign(origin) => Err(AuthError::Origin(origin.to_owned())),
            },
            (RouteClass::Page | RouteClass::Socket | RouteClass::Api, RequestAccess::Read | RequestAccess::Write) => {
                if let RequestOrigin::Foreign(origin) = sender {
                    return Err(AuthError::Origin(origin.to_owned()));
                }
                self.check_credentials(facts, &sender)?;
                if facts.access == RequestAccess::Write && facts.body == RequestBodyKind::Other {
                    return Err(AuthError::NotJson);
                }
                match sender {
                    RequestOrigin::Allowed(origin) => Ok(AuthDecision::PassCrossOrigin(origin.to_owned())),
                    RequestOrigin::NoPage | RequestOrigin::Own | RequestOrigin::Foreign(_) => Ok(AuthDecision::Pass),
                }
            }
        }
    }

    fn decide_page(&self, facts: &RequestFacts<'_>, sender: &RequestOrigin<'_>) -> Result<AuthDecision, AuthError> {
        let is_inside =
            || !matches!(sender, RequestOrigin::Foreign(_)) && self.check_credentials(facts, sender).is_ok();
        match facts.query {
            None if is_inside() => Ok(AuthDecision::PassAuthenticated),
            None => Ok(AuthDecision::Pass),
            Some(token) if self.token.get().matches(token) => Ok(AuthDecision::SignIn),
            Some(_) => Err(AuthError::WrongToken),
        }
    }

    /// Whether the request shows that it may. A wrong token is refused also where the cookie is right: somebody is
    /// mistaken, and should hear of it.
    fn check_credentials(&self, facts: &RequestFacts<'_>, sender: &RequestOrigin<'_>) -> Result<(), AuthError> {
        // An API address with the token in it would end in a proxy's log; a browser's socket has no other place for it.
        let in_query = facts.query.filter(|_| facts.route == RouteClass::Socket);
        if let Some(token) = facts.bearer.or(in_query) {
            return if self.token.get().matches(token) { Ok(()) } else { Err(AuthError::WrongToken) };
        }
        let cookie = facts.cookie.ok_or(AuthError::NoToken)?;
        if !self.token.get().matches_cookie(cookie) {
            return Err(AuthError::WrongToken);
        }
        let changes_something = facts.route == RouteClass::Socket || facts.access == RequestAccess::Write;
        match sender {
            RequestOrigin::NoPage if changes_something => Err(AuthError::CookieAlone),
            RequestOrigin::NoPage | RequestOrigin::Own | RequestOrigin::Allowed(_) | RequestOrigin::Foreign(_) => {
                Ok(())
            }
        }
    }

    fn sender<'a>(&self, facts: &RequestFacts<'a>, host: &str) -> RequestOrigin<'a> {
        match facts.origin {
            Some(origin) if self.origins.iter().any(|friend| friend == origin) => RequestOrigin::Allowed(origin),
            Some(origin) if origin.strip_prefix("http://") == Some(host) => RequestOrigin::Own,
            Some(origin) => RequestOrigin::Foreign(origin),
            // A browser omits `Origin` on a plain GET. Pages of other ports of this host count as the same site, so
            // SameSite alone does not stop their requests: only those of our own origin, and typed addresses, are ours.
            None => match facts.fetch_site {
                None | Some("same-origin" | "none") => RequestOrigin::NoPage,
                Some(other) => RequestOrigin::Foreign(other),
            },
        }
    }

    /// Whether `host` is a name of this server. A page that rebinds its own name to our address comes with its own name.
    fn is_own_host(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<actix_web::http::uri::Authority>() else { return false };
        if host.contains('@') {
            return false;
        }
        let name = authority.host();
        let listed = |allowed: &String| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name);
        if self.hosts.iter().any(listed) {
            return true;
        }
        if authority.port_u16().unwrap_or(80) != self.bound.port() {
            return false;
        }
        let address: Option<IpAddr> = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
        match address {
            None => name.eq_ignore_ascii_case("localhost"),
            // It may be a loopback address of its own, as of one of several servers on a port.
            Some(ip) if ip == self.bound.ip() => true,
            Some(ip) if ip.is_loopback() => ip.to_string() == "127.0.0.1" || ip.to_string() == "::1",
            // Bound to every address, it is reached by any of them; an address in numbers cannot be rebound.
            Some(_) => self.bound.ip().is_unspecified(),
        }
    }
}

#[cfg(test)]
mod tests;
