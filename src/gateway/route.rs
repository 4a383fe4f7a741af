//! Routes of the endpoint. Pure.

use greenroom_protocol::link::ProviderApi;
use greenroom_provider::WireFormat;
use hyper::Method;

/// Route of an endpoint path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatewayRoute {
    /// Anthropic Messages.
    Messages,
    CountTokens,
    AnthropicModels,
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    OpenaiModels,
}

/// Route table, in the order in which an error lists the routes.
const ROUTES: [(GatewayRoute, Method, &str); 6] = [
    (GatewayRoute::Messages, Method::POST, "/anthropic/v1/messages"),
    (GatewayRoute::CountTokens, Method::POST, "/anthropic/v1/messages/count_tokens"),
    (GatewayRoute::AnthropicModels, Method::GET, "/anthropic/v1/models"),
    (GatewayRoute::Chat, Method::POST, "/openai/v1/chat/completions"),
    (GatewayRoute::Responses, Method::POST, "/openai/v1/responses"),
    (GatewayRoute::OpenaiModels, Method::GET, "/openai/v1/models"),
];

impl GatewayRoute {
    pub(super) fn find(method: &Method, path: &str) -> Option<GatewayRoute> {
        ROUTES.iter().find(|(_, m, p)| m == method && *p == path).map(|(route, ..)| *route)
    }

    pub(super) fn api(self) -> ProviderApi {
        match self {
            GatewayRoute::Messages | GatewayRoute::CountTokens | GatewayRoute::AnthropicModels => {
                ProviderApi::Anthropic
            }
            GatewayRoute::Chat | GatewayRoute::Responses | GatewayRoute::OpenaiModels => ProviderApi::Openai,
        }
    }

    /// Returns the provider's path of this route.
    pub(super) fn upstream_path(self) -> &'static str {
        match self {
            GatewayRoute::Messages => "/v1/messages",
            GatewayRoute::CountTokens => "/v1/messages/count_tokens",
            GatewayRoute::Chat => "/v1/chat/completions",
            GatewayRoute::Responses => "/v1/responses",
            GatewayRoute::AnthropicModels | GatewayRoute::OpenaiModels => "/v1/models",
        }
    }

    /// Returns the format of this route's answers. `None` if its calls use no tokens.
    pub(super) fn wire_format(self) -> Option<WireFormat> {
        match self {
            GatewayRoute::Messages => Some(WireFormat::Messages),
            GatewayRoute::Chat => Some(WireFormat::Chat),
            GatewayRoute::Responses => Some(WireFormat::Responses),
            GatewayRoute::CountTokens | GatewayRoute::AnthropicModels | GatewayRoute::OpenaiModels => None,
        }
    }

    /// Returns true if calls of this route use tokens.
    pub(super) fn is_metered(self) -> bool {
        self.wire_format().is_some()
    }

    pub(super) fn has_body(self) -> bool {
        match self {
            GatewayRoute::Messages | GatewayRoute::CountTokens | GatewayRoute::Chat | GatewayRoute::Responses => true,
            GatewayRoute::AnthropicModels | GatewayRoute::OpenaiModels => false,
        }
    }
}

/// Returns the API whose error format answers an unknown path.
pub(super) fn api_of_path(path: &str) -> ProviderApi {
    if path.starts_with("/anthropic") { ProviderApi::Anthropic } else { ProviderApi::Openai }
}

/// Lists all routes, for an error.
pub(super) fn list_routes() -> String {
    ROUTES.map(|(_, method, path)| format!("{method} {path}")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_map_to_routes() {
        fn check(method: Method, path: &str, expected: Option<GatewayRoute>) {
            assert_eq!(GatewayRoute::find(&method, path), expected);
        }
        check(Method::POST, "/anthropic/v1/messages", Some(GatewayRoute::Messages));
        check(Method::POST, "/openai/v1/responses", Some(GatewayRoute::Responses));
        check(Method::GET, "/openai/v1/models", Some(GatewayRoute::OpenaiModels));
        check(Method::GET, "/anthropic/v1/messages", None);
        check(Method::POST, "/anthropic/v1/messages/", None);
        check(Method::POST, "/anthropic/v1/messages/../files", None);
        assert!(list_routes().contains("POST /openai/v1/chat/completions, POST"));
    }
}
