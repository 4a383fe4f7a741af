//! Facts of a request's client: address, scheme and host, behind any number of trusted proxies, and
//! the base path that proxies offer this server under.
//!
//! The headers `X-Forwarded-For`, `-Proto` and `-Host` are read only from a peer in
//! `server.trusted_proxies`. Other clients could write any address into them. `Forwarded` is not
//! read: proxies pass the header of a client on unchanged.

use std::net::{IpAddr, SocketAddr};

use actix_web::{
    Error, HttpRequest,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, Uri,
        header::{self, HeaderMap},
        uri::{Authority, PathAndQuery},
    },
    middleware::Next,
    web::Data,
};

use super::{auth::Auth, state::WebServices};
use crate::config::{ServerConfig, TlsSetting, TrustedProxies};

/// Addresses that `server.open_monitoring` opens to this machine.
const MONITORING_PATHS: [&str; 2] = ["/readyz", "/metrics"];
/// Headers of which a proxy sends at least one.
const PROXY_HEADERS: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// Facts of a request's client, with the headers of trusted proxies applied.
pub(super) struct ClientFacts {
    services: Data<WebServices>,
    address: Option<IpAddr>,
    is_https: bool,
    host: Option<String>,
}

impl ClientFacts {
    /// Returns the facts of a request. In a middleware: `ClientFacts::of(req.request())`.
    pub(super) fn of(req: &HttpRequest) -> ClientFacts {
        let services = req.app_data::<Data<WebServices>>().expect("`register` adds `WebServices`").clone();
        let ForwardedFacts { address, is_https, host } =
            ForwardedFacts::of(&services.config.server, req.peer_addr(), req.headers());
        ClientFacts { services, address, is_https, host }
    }

    /// Returns the address of the client. `None` only without a connection.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Returns true if the client speaks HTTPS: to this server, or to the first trusted proxy.
    pub(super) fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the host that the client asked for, without the default port of its scheme. `None`
    /// if the header is missing, repeated or not text.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns the base path: empty, or such as `/greenroom`.
    pub(super) fn base_path(&self) -> &str {
        self.services.config.server.base_path.as_str()
    }

    /// Returns true if the request needs no token: it reads an address for monitoring from this
    /// machine.
    ///
    /// The peer and the `Host` are loopback addresses, no proxy has forwarded the request, and no
    /// page sends it.
    pub(super) fn is_open_monitoring(&self, req: &HttpRequest) -> bool {
        let is_monitoring =
            MONITORING_PATHS.contains(&req.path()) && matches!(*req.method(), Method::GET | Method::HEAD);
        is_monitoring
            && self.services.config.server.open_monitoring
            && is_from_this_machine(req.peer_addr(), req.headers())
    }
}

/// Returns true if the client's browser sees `https`: this server or a proxy ends TLS.
///
/// A proxy that is not trusted may end TLS, too. Then `server.allowed_origins` lists the origin.
pub(super) fn is_https(auth: &Auth, req: &HttpRequest) -> bool {
    let client = ClientFacts::of(req);
    client.is_https() || client.host().is_some_and(|host| auth.is_tls(without_default_port(host, true)))
}

/// Facts that proxies may report.
#[derive(Debug, PartialEq, Eq)]
struct ForwardedFacts {
    address: Option<IpAddr>,
    is_https: bool,
    host: Option<String>,
}

impl ForwardedFacts {
    fn of(config: &ServerConfig, peer: Option<SocketAddr>, headers: &HeaderMap) -> ForwardedFacts {
        let peer = peer.map(|peer| peer.ip().to_canonical());
        let is_proxy = peer.is_some_and(|peer| config.trusted_proxies.contains(peer));
        let forwarded = |name: &str| single(headers, name).filter(|_| is_proxy);
        let address = match peer {
            Some(peer) if is_proxy => Some(client_address(&config.trusted_proxies, peer, headers)),
            peer => peer,
        };
        let is_https = match forwarded("x-forwarded-proto") {
            // `wss` is what Traefik reports for a socket.
            Some(scheme) => matches!(first(scheme), "https" | "wss"),
            None => config.tls != TlsSetting::Off,
        };
        let host = forwarded("x-forwarded-host").map(first).or_else(|| single(headers, header::HOST.as_str()));
        ForwardedFacts { address, is_https, host: host.map(|host| without_default_port(host, is_https).to_owned()) }
    }
}

/// Returns the client of a chain of proxies: the last address that is no trusted proxy.
///
/// Each proxy appends the address of its own peer. The entries before the last untrusted one were
/// written by that client, so they prove nothing.
fn client_address(proxies: &TrustedProxies, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let values: Vec<&str> =
        headers.get_all("x-forwarded-for").map(|value| value.to_str().unwrap_or_default()).collect();
    let mut nearest = peer;
    for entry in values.iter().flat_map(|value| value.split(',')).rev() {
        let Some(address) = address_of(entry.trim()) else { break };
        nearest = address;
        if !proxies.contains(address) {
            break;
        }
    }
    nearest
}

/// Returns the address of an entry, which some proxies write with a port.
fn address_of(entry: &str) -> Option<IpAddr> {
    let bare = entry.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse().ok().or_else(|| entry.parse::<SocketAddr>().ok().map(|address| address.ip()))?;
    Some(address.to_canonical())
}

/// Returns the first entry of a list: the value that the proxy next to the client has set.
fn first(list: &str) -> &str {
    list.split(',').next().unwrap_or_default().trim()
}

/// Returns the value of a header. `None` if the header is missing, repeated or not text.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name);
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Browsers leave the default port out of `Host` and `Origin`. Some proxies add it.
fn without_default_port(host: &str, is_https: bool) -> &str {
    host.strip_suffix(if is_https { ":443" } else { ":80" }).unwrap_or(host)
}

fn is_from_this_machine(peer: Option<SocketAddr>, headers: &HeaderMap) -> bool {
    let is_loopback_host =
        single(headers, header::HOST.as_str()).and_then(|host| host.parse::<Authority>().ok()).is_some_and(|host| {
            let name = host.host().trim_start_matches('[').trim_end_matches(']');
            name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        });
    let is_forwarded = PROXY_HEADERS.iter().any(|name| headers.contains_key(*name));
    let is_from_page = headers.contains_key(header::ORIGIN)
        || headers.get("sec-fetch-site").is_some_and(|site| !matches!(site.as_bytes(), b"none" | b"same-origin"));
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
        && is_loopback_host
        && !is_forwarded
        && !is_from_page
}

/// Outermost middleware: removes the base path from the address of a request.
///
/// Middleware and routes see addresses without the base path. A proxy may also remove the path, so
/// an address without the base path passes unchanged.
pub(super) async fn strip_base_path(
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let services = req.app_data::<Data<WebServices>>().expect("`register` adds `WebServices`");
    let base_path = &services.config.server.base_path;
    if let Some(uri) = base_path.strip(req.path()).and_then(|path| with_path(req.uri(), path)) {
        req.match_info_mut().get_mut().update(&uri);
        req.head_mut().uri = uri;
    }
    Ok(next.call(req).await?.map_into_boxed_body())
}

/// Returns the address with another path and the same query.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let address = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    parts.path_and_query = Some(PathAndQuery::try_from(address).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::config::Config;

    /// Configuration with `10.0.0.0/8` as trusted proxies.
    fn config() -> ServerConfig {
        let mut config = Config::with_data_dir("/nowhere").server;
        config.trusted_proxies = serde_json::from_str(r#"["10.0.0.0/8"]"#).expect("the list is valid");
        config
    }

    fn request(peer: &str, headers: &[(&'static str, &'static str)]) -> HttpRequest {
        let peer = format!("{peer}:4000").parse().expect("an address");
        let request = TestRequest::default().peer_addr(peer).insert_header(("host", "own.test"));
        headers.iter().fold(request, |request, header| request.append_header(*header)).to_http_request()
    }

    fn check(peer: &str, headers: &[(&'static str, &'static str)], expected: (&str, bool, Option<&str>)) {
        let request = request(peer, headers);
        let facts = ForwardedFacts::of(&config(), request.peer_addr(), request.headers());
        let address = facts.address.expect("the request has a peer").to_string();
        assert_eq!((address.as_str(), facts.is_https, facts.host.as_deref()), expected, "{peer} {headers:?}");
    }

    #[test]
    fn forwarded_headers_count_only_from_trusted_proxies() {
        let own = Some("own.test");
        let all = [
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "web.test"),
            ("forwarded", "for=9.9.9.9;proto=http;host=evil.test"),
        ];
        check("9.9.9.9", &all, ("9.9.9.9", false, own));
        check("10.1.1.1", &all, ("1.2.3.4", true, Some("web.test")));
        check("10.1.1.1", &[], ("10.1.1.1", false, own));
        check("10.1.1.1", &[("x-forwarded-proto", "http")], ("10.1.1.1", false, own));
        check("10.1.1.1", &[("x-forwarded-proto", "wss")], ("10.1.1.1", true, own));
    }

    #[test]
    fn client_is_the_last_untrusted_address() {
        let check = |values: &[&'static str], expected: &str| {
            let headers: Vec<_> = values.iter().map(|value| ("x-forwarded-for", *value)).collect();
            let request = request("10.1.1.1", &headers);
            let facts = ForwardedFacts::of(&config(), request.peer_addr(), request.headers());
            assert_eq!(facts.address.map(|address| address.to_string()).as_deref(), Some(expected), "{values:?}");
        };
        check(&["1.1.1.1, 2.2.2.2"], "2.2.2.2");
        check(&["1.1.1.1", "2.2.2.2, 10.5.5.5"], "2.2.2.2");
        check(&["10.9.9.9, 10.5.5.5"], "10.9.9.9");
        check(&["1.1.1.1:5000"], "1.1.1.1");
        check(&["[2001:db8::1]:5000"], "2001:db8::1");
        check(&["2001:db8::1"], "2001:db8::1");
        check(&["::ffff:1.1.1.1"], "1.1.1.1");
        check(&["1.1.1.1, nonsense"], "10.1.1.1");
        check(&["1.1.1.1, nonsense, 10.5.5.5"], "10.5.5.5");
        check(&[""], "10.1.1.1");
    }

    #[test]
    fn host_is_single_and_has_no_default_port() {
        let web = |host, proto| [("x-forwarded-host", host), ("x-forwarded-proto", proto)];
        check("10.1.1.1", &web("web.test:443", "https"), ("10.1.1.1", true, Some("web.test")));
        check("10.1.1.1", &web("web.test:443", "http"), ("10.1.1.1", false, Some("web.test:443")));
        check("10.1.1.1", &web("web.test:80", "http"), ("10.1.1.1", false, Some("web.test")));
        check("10.1.1.1", &web("web.test, inner.test", "https, http"), ("10.1.1.1", true, Some("web.test")));
        check("9.9.9.9", &[("host", "two.test")], ("9.9.9.9", false, None));
    }

    #[test]
    fn own_tls_is_https() {
        let mut config = config();
        config.tls = serde_json::from_str(r#"{"cert": "/c", "key": "/k"}"#).expect("the setting is valid");
        let request = request("9.9.9.9", &[("x-forwarded-proto", "http")]);
        assert!(ForwardedFacts::of(&config, request.peer_addr(), request.headers()).is_https);
    }

    #[test]
    fn monitoring_opens_to_this_machine_only() {
        let check = |peer: &str, host: &'static str, header: Option<(&'static str, &'static str)>, expected: bool| {
            let peer = format!("{peer}:4000").parse().expect("an address");
            let request = TestRequest::default().peer_addr(peer).insert_header(("host", host));
            let request = header.into_iter().fold(request, TestRequest::insert_header).to_http_request();
            let is_open = is_from_this_machine(request.peer_addr(), request.headers());
            assert_eq!(is_open, expected, "{peer} {host} {header:?}");
        };
        check("127.0.0.1", "127.0.0.1:3000", None, true);
        check("127.0.0.1", "localhost:9999", None, true);
        check("[::1]", "[::1]:3000", None, true);
        check("[::ffff:127.0.0.1]", "localhost", None, true);
        check("127.0.0.1", "evil.test", None, false);
        check("127.0.0.1", "10.0.0.1:3000", None, false);
        check("10.0.0.1", "127.0.0.1:3000", None, false);
        for name in PROXY_HEADERS {
            check("127.0.0.1", "localhost", Some((name, "x")), false);
        }
        check("127.0.0.1", "localhost", Some(("origin", "http://localhost:1")), false);
        check("127.0.0.1", "localhost", Some(("sec-fetch-site", "same-site")), false);
        check("127.0.0.1", "localhost", Some(("sec-fetch-site", "none")), true);
    }
}
