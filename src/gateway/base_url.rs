//! Base URLs of providers: brought into one form at start. Pure.

use greenroom_protocol::link::ProviderApi;
use reqwest::Url;

use super::catalog::official_url;

/// Ends of addresses that users copy from a provider's documentation, with the API that has them.
const ENDPOINT_PATHS: [(ProviderApi, &str); 10] = [
    (ProviderApi::Anthropic, "/messages/count_tokens"),
    (ProviderApi::Anthropic, "/messages"),
    (ProviderApi::Anthropic, "/models"),
    (ProviderApi::Openai, "/chat/completions"),
    (ProviderApi::Openai, "/completions"),
    (ProviderApi::Openai, "/models"),
    (ProviderApi::Openai, "/responses"),
    (ProviderApi::Openai, "/embeddings"),
    (ProviderApi::Gemini, "/v1beta"),
    (ProviderApi::Gemini, "/v1"),
];

/// Removes trailing slashes, and the path of an endpoint. Returns an empty text for the official
/// service.
///
/// A final slash in the result means that the server has its endpoints at the root, without a
/// version.
///
/// # Errors
/// Returns the rule that `text` breaks.
pub(super) fn normalize(api: ProviderApi, text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(String::new());
    }
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or("must be an http or https address, such as `https://api.example.com/v1`")?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must have no `?` and no `#`, because paths are added to its end");
    }
    let official = Url::parse(official_url(api)).expect("the official addresses are valid: a test normalizes them");
    if (url.scheme(), url.host_str(), url.port()) == (official.scheme(), official.host_str(), official.port()) {
        return Ok(String::new());
    }
    let mut base = text.trim_end_matches('/');
    // Google's own documentation has addresses with the model.
    if api == ProviderApi::Gemini
        && let Some((before, _)) = base.split_once("/models")
    {
        base = before;
    }
    let endpoint = ENDPOINT_PATHS.iter().find_map(|(of, path)| base.strip_suffix(path).filter(|_| *of == api));
    match endpoint.map(|base| base.trim_end_matches('/')) {
        Some(base) if api != ProviderApi::Gemini && is_root(base) => Ok(format!("{base}/")),
        other => Ok(other.unwrap_or(base).to_owned()),
    }
}

fn is_root(base: &str) -> bool {
    base.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::catalog::upstream_url;

    #[test]
    fn base_urls_are_normalized() {
        fn check(api: ProviderApi, text: &str, called: &str) {
            let path = match api {
                ProviderApi::Anthropic => "/v1/messages",
                ProviderApi::Openai => "/v1/chat/completions",
                ProviderApi::Gemini => "/v1beta/models",
            };
            let base = normalize(api, text).expect("the address is valid");
            assert_eq!(upstream_url(api, &base, path), called, "{text}");
        }
        let openai = |text, called| check(ProviderApi::Openai, text, called);
        openai("", "https://api.openai.com/v1/chat/completions");
        openai("https://api.openai.com", "https://api.openai.com/v1/chat/completions");
        openai("https://api.openai.com/v1/chat/completions/", "https://api.openai.com/v1/chat/completions");
        openai("http://h:8000", "http://h:8000/v1/chat/completions");
        openai(" http://h:8000/// ", "http://h:8000/v1/chat/completions");
        openai("http://h:8000/v1/chat/completions", "http://h:8000/v1/chat/completions");
        openai("http://h/api/v3/chat/completions/", "http://h/api/v3/chat/completions");
        openai("http://h/v1/responses", "http://h/v1/chat/completions");
        openai("http://h/v1/models", "http://h/v1/chat/completions");
        openai("http://h/chat/completions", "http://h/chat/completions");
        let anthropic = |text, called| check(ProviderApi::Anthropic, text, called);
        anthropic("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages");
        anthropic("http://h/v1/messages", "http://h/v1/messages");
        anthropic("http://h/proxy/v1//", "http://h/proxy/v1/messages");
        anthropic("http://h/messages", "http://h/messages");
        let gemini = |text, called| check(ProviderApi::Gemini, text, called);
        gemini(
            "https://generativelanguage.googleapis.com/v1beta",
            "https://generativelanguage.googleapis.com/v1beta/models",
        );
        gemini("http://h/v1beta/models/x:generateContent", "http://h/v1beta/models");
        gemini("http://h/proxy/v1/", "http://h/proxy/v1beta/models");
    }

    #[test]
    fn invalid_base_urls_are_rejected_in_words() {
        for text in ["localhost:80", "h/v1", "ftp://h", "http://"] {
            assert!(normalize(ProviderApi::Openai, text).is_err_and(|rule| rule.contains("http or https")), "{text}");
        }
        for text in ["http://h/v1?api-version=2", "http://h/v1/chat/completions?x", "http://h/#v1"] {
            assert!(normalize(ProviderApi::Openai, text).is_err_and(|rule| rule.contains("no `?`")), "{text}");
        }
    }
}
