//! Header rules: which headers pass, which are dropped, and which the gateway sets. Pure.

use greenroom_protocol::link::ProviderApi;
use hyper::{
    HeaderMap,
    header::{self, HeaderName, HeaderValue},
};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

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

/// Returns the headers for the provider: the client's headers, with the real key in place of the
/// client's key.
pub(super) fn to_provider(from_client: &HeaderMap, api: ProviderApi, key: Option<&str>) -> HeaderMap {
    let mut headers = end_to_end(from_client);
    // A compressed response cannot be metered.
    for dropped in [header::HOST, header::AUTHORIZATION, API_KEY, header::ACCEPT_ENCODING, header::EXPECT] {
        headers.remove(dropped);
    }
    if api == ProviderApi::Anthropic {
        headers.entry(ANTHROPIC_VERSION).or_insert(DEFAULT_ANTHROPIC_VERSION);
    }
    if let Some((name, value)) = key.and_then(|key| key_header(api, key)) {
        headers.insert(name, value);
    }
    headers
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

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn real_key_replaces_client_credentials() {
        let placeholder = map(&[
            ("x-api-key", "placeholder"),
            ("authorization", "Bearer placeholder"),
            ("host", "127.0.0.1:9"),
            ("accept-encoding", "gzip"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("content-length", "3"),
            ("anthropic-beta", "new-thing"),
        ]);
        assert_eq!(
            to_provider(&placeholder, ProviderApi::Anthropic, Some("real")),
            map(&[("anthropic-beta", "new-thing"), ("anthropic-version", "2023-06-01"), ("x-api-key", "real")])
        );
        assert_eq!(
            to_provider(&placeholder, ProviderApi::Openai, Some("real")),
            map(&[("anthropic-beta", "new-thing"), ("authorization", "Bearer real")])
        );
        assert_eq!(to_provider(&placeholder, ProviderApi::Openai, None), map(&[("anthropic-beta", "new-thing")]));
        let versioned = map(&[("anthropic-version", "2030-01-01")]);
        assert_eq!(to_provider(&versioned, ProviderApi::Anthropic, None), versioned);
    }

    #[test]
    fn response_headers_with_the_key_are_dropped() {
        let response = map(&[("request-id", "r1"), ("x-echo", "Bearer real"), ("transfer-encoding", "chunked")]);
        assert_eq!(to_client(&response, Some("real")), map(&[("request-id", "r1")]));
    }
}
