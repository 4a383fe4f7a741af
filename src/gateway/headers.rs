//! Header rules: which headers and query parameters pass, which are dropped, and which the gateway
//! sets. Pure.

use greenroom_protocol::link::ProviderApi;
use hyper::{
    HeaderMap,
    header::{self, HeaderName, HeaderValue},
};

use super::allow_list::AllowList;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GOOGLE_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// API version that is sent if the client names none.
const DEFAULT_ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Response header that both SDKs obey: with `false` they do not retry. The gateway has retried
/// already.
pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Headers of a single connection (RFC 9110, section 7.6.1), and the length, which each side sets
/// itself.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
];

/// Headers that the gateway drops without a word: the address, the client's placeholder key, and
/// what would keep it from reading the response.
const REPLACED: [HeaderName; 6] = [
    header::HOST,
    header::AUTHORIZATION,
    API_KEY,
    GOOGLE_API_KEY,
    // A compressed response cannot be metered.
    header::ACCEPT_ENCODING,
    header::EXPECT,
];

/// Returns the headers for the provider: the client's headers that pass, with the real key in place
/// of the client's key. `removed` receives the others, in words.
pub(super) fn to_provider(
    from_client: &HeaderMap,
    api: ProviderApi,
    key: Option<&str>,
    allow: &AllowList,
    removed: &mut Vec<String>,
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &end_to_end(from_client) {
        if REPLACED.contains(name) {
            continue;
        }
        if name == ANTHROPIC_BETA {
            if let Some(value) = passing_beta_flags(value, allow, removed) {
                headers.append(name, value);
            }
        } else if allow.passes_header(name.as_str()) {
            headers.append(name, value.clone());
        } else {
            removed.push(format!("the header `{name}`"));
        }
    }
    if api == ProviderApi::Anthropic {
        headers.entry(ANTHROPIC_VERSION).or_insert(DEFAULT_ANTHROPIC_VERSION);
    }
    if let Some((name, value)) = key.and_then(|key| key_header(api, key)) {
        headers.insert(name, value);
    }
    headers
}

/// Returns the flags of a beta header that pass, if any.
fn passing_beta_flags(value: &HeaderValue, allow: &AllowList, removed: &mut Vec<String>) -> Option<HeaderValue> {
    let flags = value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|flag| !flag.is_empty());
    let (passing, others): (Vec<&str>, Vec<&str>) = flags.partition(|flag| allow.passes_beta_flag(flag));
    removed.extend(others.iter().map(|flag| format!("the beta flag `{flag}`")));
    if passing.is_empty() { None } else { HeaderValue::from_str(&passing.join(",")).ok() }
}

/// Returns the parameters of a query that pass. `removed` receives the names of the others, in
/// words. A key (`key=`) is dropped without a word: the real one is a header.
pub(super) fn passing_query(query: &str, allow: &AllowList, removed: &mut Vec<String>) -> String {
    let passes = |parameter: &&str| {
        let name = parameter.split('=').next().unwrap_or_default();
        let passes = allow.passes_parameter(name);
        if !passes && !matches!(name, "" | "key") {
            removed.push(format!("the query parameter `{name}`"));
        }
        passes
    };
    query.split('&').filter(passes).collect::<Vec<_>>().join("&")
}

/// Returns the headers for the client: the provider's headers without those that contain the key.
pub(super) fn to_client(from_provider: &HeaderMap, key: Option<&str>) -> HeaderMap {
    let mut headers = end_to_end(from_provider);
    if let Some(key) = key.map(str::as_bytes) {
        let shows_key = |value: &HeaderValue| value.as_bytes().windows(key.len()).any(|part| part == key);
        let revealing: Vec<HeaderName> =
            headers.iter().filter(|(_, value)| shows_key(value)).map(|(name, _)| name.clone()).collect();
        for name in revealing {
            headers.remove(name);
        }
    }
    headers
}

/// Returns the header that carries the key. `None` if the key is no valid header value.
pub(super) fn key_header(api: ProviderApi, key: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, text) = match api {
        ProviderApi::Anthropic => (API_KEY, key.to_owned()),
        ProviderApi::Openai => (header::AUTHORIZATION, format!("Bearer {key}")),
        ProviderApi::Gemini => (GOOGLE_API_KEY, key.to_owned()),
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut passing = headers.clone();
    for named in headers.get_all(header::CONNECTION) {
        for name in named.to_str().unwrap_or_default().split(',') {
            passing.remove(name.trim());
        }
    }
    for name in HOP_BY_HOP {
        passing.remove(name);
    }
    passing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayPermission;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn real_key_replaces_client_credentials() {
        let placeholder = map(&[
            ("x-api-key", "placeholder"),
            ("x-goog-api-key", "placeholder"),
            ("authorization", "Bearer placeholder"),
            ("host", "127.0.0.1:9"),
            ("accept-encoding", "gzip"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("content-length", "3"),
            ("user-agent", "agent/1"),
        ]);
        let check = |api, key, expected: &[(&'static str, &'static str)]| {
            let mut removed = Vec::new();
            let headers = to_provider(&placeholder, api, key, &AllowList::default(), &mut removed);
            assert_eq!(headers, map(expected));
            assert_eq!(removed, Vec::<String>::new());
        };
        let agent = ("user-agent", "agent/1");
        let version = ("anthropic-version", "2023-06-01");
        check(ProviderApi::Anthropic, Some("real"), &[agent, version, ("x-api-key", "real")]);
        check(ProviderApi::Openai, Some("real"), &[agent, ("authorization", "Bearer real")]);
        check(ProviderApi::Gemini, Some("real"), &[agent, ("x-goog-api-key", "real")]);
        check(ProviderApi::Openai, None, &[agent]);
    }

    #[test]
    fn only_listed_headers_and_permitted_flags_pass() {
        let request = map(&[
            ("anthropic-version", "2030-01-01"),
            ("anthropic-beta", "mcp-client-2025-04-04, context-management-2025-06-27"),
            ("openai-organization", "org-1"),
            ("x-from-tomorrow", "1"),
        ]);
        let check = |permissions: &[GatewayPermission], passing: &[(&'static str, &'static str)], count: usize| {
            let mut removed = Vec::new();
            let allow = AllowList::new(permissions);
            let headers = to_provider(&request, ProviderApi::Anthropic, None, &allow, &mut removed);
            let version = ("anthropic-version", "2030-01-01");
            assert_eq!(headers, map(&[&[version], passing].concat()));
            assert_eq!(removed.len(), count, "{removed:?}");
            assert!(removed.contains(&"the header `x-from-tomorrow`".to_owned()));
        };
        check(&[], &[], 4);
        check(&[GatewayPermission::Organization], &[("openai-organization", "org-1")], 3);
        check(&[GatewayPermission::Beta], &[("anthropic-beta", "context-management-2025-06-27")], 3);
        let both = [GatewayPermission::Beta, GatewayPermission::ProviderTools];
        let flags = "mcp-client-2025-04-04,context-management-2025-06-27";
        check(&both, &[("anthropic-beta", flags)], 2);
    }

    #[test]
    fn only_listed_parameters_pass() {
        let mut removed = Vec::new();
        let query = passing_query("alt=sse&key=secret&beta=true&x=1", &AllowList::default(), &mut removed);
        assert_eq!(query, "alt=sse");
        assert_eq!(removed, ["the query parameter `beta`", "the query parameter `x`"]);
    }

    #[test]
    fn response_headers_with_the_key_are_dropped() {
        let response = map(&[("request-id", "r1"), ("x-echo", "Bearer real"), ("transfer-encoding", "chunked")]);
        assert_eq!(to_client(&response, Some("real")), map(&[("request-id", "r1")]));
    }
}
