//! Authorization: a pure function from a request's facts to a decision. Independent of the HTTP
//! library; [`super::middleware`] calls it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::wrong_tokens::WrongTokens;
use crate::data::{AccessGrant, CurrentToken};

/// Access rules of this server: token, names, origins.
#[derive(Debug, Clone)]
pub struct Auth {
    token: CurrentToken,
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
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`. Only browsers send the header, and no page can forge it.
    pub fetch_site: Option<&'a str>,
    pub bearer: Option<&'a str>,
    /// Value of the query parameter `token`.
    pub query: Option<&'a str>,
    pub cookie: Option<&'a str>,
    pub body: RequestBodyKind,
}

/// Kind of address that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteClass {
    /// `/healthz`
    Health,
    /// Shell of the application and its assets, which anybody may read. The page of a session
    /// contains its newest events if the request is authenticated.
    Page,
    Socket,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthDecision {
    Pass,
    /// Pass. A page may contain data for authenticated clients.
    PassAuthenticated,
    /// Pass, and allow a page of this other origin to read the answer.
    PassCrossOrigin(String),
    /// Answer the browser's preflight; no handler runs.
    AnswerPreflight(String),
    /// Sign-in link: exchange the token for the cookie.
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
    #[error("a cookie is not enough here without an `Origin`; send `Authorization: Bearer …`")]
    CookieAlone,
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

impl Auth {
    pub fn new(token: CurrentToken, bound: SocketAddr, config: &crate::config::ServerConfig) -> Auth {
        Auth {
            token,
            bound,
            hosts: config.allowed_hosts.clone(),
            origins: config.allowed_origins.clone(),
            wrong_tokens: Arc::default(),
        }
    }

    pub(super) fn wrong_tokens(&self) -> &Arc<WrongTokens> {
        &self.wrong_tokens
    }

    /// Returns the cookie's name, which contains this server's port.
    ///
    /// Cookies do not depend on ports. With the port in the name, two servers on one host do not
    /// sign each other out.
    pub(super) fn cookie_name(&self) -> String {
        format!("greenroom_{}", self.bound.port())
    }

    pub(super) fn cookie_value(&self) -> String {
        self.token.get().cookie().to_owned()
    }

    /// Returns an access grant.
    ///
    /// Take the grant before [`Auth::authorize`]. A token that is replaced in between then revokes
    /// the grant.
    pub(super) fn grant(&self) -> AccessGrant {
        self.token.grant()
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
        let is_authenticated =
            || !matches!(sender, RequestOrigin::Foreign(_)) && self.check_credentials(facts, sender).is_ok();
        match facts.query {
            None if is_authenticated() => Ok(AuthDecision::PassAuthenticated),
            None => Ok(AuthDecision::Pass),
            Some(token) if self.token.get().matches(token) => Ok(AuthDecision::SignIn),
            Some(_) => Err(AuthError::WrongToken),
        }
    }

    /// Checks the credentials of a request.
    ///
    /// A wrong token is rejected even if the cookie is valid, so that the client's mistake becomes
    /// visible.
    fn check_credentials(&self, facts: &RequestFacts<'_>, sender: &RequestOrigin<'_>) -> Result<(), AuthError> {
        // Only sockets take the token from the address, because a browser cannot send it elsewhere.
        // The token in an API address would end up in a proxy's log.
        let in_query = facts.query.filter(|_| facts.route == RouteClass::Socket);
        if let Some(token) = facts.bearer.or(in_query) {
            return if self.token.get().matches(token) { Ok(()) } else { Err(AuthError::WrongToken) };
        }
        let cookie = facts.cookie.ok_or(AuthError::NoToken)?;
        if !self.token.get().matches_cookie(cookie) {
            return Err(AuthError::WrongToken);
        }
        let needs_origin = facts.route == RouteClass::Socket || facts.access == RequestAccess::Write;
        match sender {
            RequestOrigin::NoPage if needs_origin => Err(AuthError::CookieAlone),
            RequestOrigin::NoPage | RequestOrigin::Own | RequestOrigin::Allowed(_) | RequestOrigin::Foreign(_) => {
                Ok(())
            }
        }
    }

    fn sender<'a>(&self, facts: &RequestFacts<'a>, host: &str) -> RequestOrigin<'a> {
        match facts.origin {
            Some(origin) if self.origins.iter().any(|allowed| allowed == origin) => RequestOrigin::Allowed(origin),
            Some(origin) if origin.strip_prefix("http://") == Some(host) => RequestOrigin::Own,
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
            // The bound address may be a loopback address of its own, as with several servers on a
            // port.
            Some(ip) if ip == self.bound.ip() => true,
            Some(ip) if ip.is_loopback() => ip.to_string() == "127.0.0.1" || ip.to_string() == "::1",
            // A server bound to all addresses is reached by any of them. A numeric address cannot
            // be rebound.
            Some(_) => self.bound.ip().is_unspecified(),
        }
    }
}

#[cfg(test)]
mod tests;
