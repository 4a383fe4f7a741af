//! The endpoint's paths. Pure.

use greenroom_protocol::link::Api;
use hyper::Method;

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Anthropic's messages.
    Messages,
    CountTokens,
    AnthropicModels,
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's responses.
    Responses,
    OpenaiModels,
}

/// Every path that there is, in the order in which an error lists them.
const TABLE: [(Route, Method, &str); 6] = [
    (Route::Messages, Method::POST, "/anthropic/v1/messages"),
    (Route::CountTokens, Method::POST, "/anthropic/v1/messages/count_tokens"),
    (Route::AnthropicModels, Method::GET, "/anthropic/v1/models"),
    (Route::Chat, Method::POST, "/openai/v1/chat/completions"),
    (Route::Responses, Method::POST, "/openai/v1/responses"),
    (Route::OpenaiModels, Method::GET, "/openai/v1/models"),
];

impl Route {
    pub(super) fn find(method: &Method, path: &str) -> Option<Route> {
        TABLE.iter().find(|(_, m, p)| m == method && *p == path).map(|(route, ..)| *route)
    }

    pub(super) fn api(self) -> Api {
        match self {
            Route::Messages | Route::CountTokens | Route::AnthropicModels => Api::Anthropic,
            Route::Chat | Route::Responses | Route::OpenaiModels => Api::Openai,
        }
    }

    /// The same path as the provider names it.
    pub(super) fn upstream_path(self) -> &'static str {
        match self {
            Route::Messages => "/v1/messages",
            Route::CountTokens => "/v1/messages/count_tokens",
            Route::Chat => "/v1/chat/completions",
            Route::Responses => "/v1/responses",
            Route::AnthropicModels | Route::OpenaiModels => "/v1/models",
        }
    }

    /// Whether a call of it takes tokens.
    pub(super) fn is_metered(self) -> bool {
        match self {
            Route::Messages | Route::Chat | Route::Responses => true,
            Route::CountTokens | Route::AnthropicModels | Route::OpenaiModels => false,
        }
    }

    pub(super) fn has_body(self) -> bool {
        match self {
            Route::Messages | Route::CountTokens | Route::Chat | Route::Responses => true,
            Route::AnthropicModels | Route::OpenaiModels => false,
        }
    }
}

/// In whose words an unknown path is answered.
pub(super) fn api_of_path(path: &str) -> Api {
    if path.starts_with("/anthropic") { Api::Anthropic } else { Api::Openai }
}

/// For an error: all that there is.
pub(super) fn list() -> String {
    TABLE.map(|(_, method, path)| format!("{method} {path}")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        fn check(method: Method, path: &str, expected: Option<Route>) {
            assert_eq!(Route::find(&method, path), expected);
        }
        check(Method::POST, "/anthropic/v1/messages", Some(Route::Messages));
        check(Method::POST, "/openai/v1/responses", Some(Route::Responses));
        check(Method::GET, "/openai/v1/models", Some(Route::OpenaiModels));
        check(Method::GET, "/anthropic/v1/messages", None);
        check(Method::POST, "/anthropic/v1/messages/", None);
        check(Method::POST, "/anthropic/v1/messages/../files", None);
        assert!(list().contains("POST /openai/v1/chat/completions, POST"));
    }
}
