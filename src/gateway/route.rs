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
    /// List of models, or one model of it.
    AnthropicModels,
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Compaction of a conversation in the format of OpenAI Responses.
    CompactResponses,
    Embeddings,
    /// List of models, or one model of it.
    OpenaiModels,
    /// Gemini's answer in one piece.
    GeminiGenerate,
    /// Gemini's streamed answer.
    GeminiStream,
    GeminiCountTokens,
    /// List of models, or one model of it.
    GeminiModels,
}

/// Route table, in the order in which an error lists the routes. `{id}` and `{model}` stand for a
/// model's name, which may contain slashes.
const ROUTES: [(GatewayRoute, Method, &str); 20] = [
    (GatewayRoute::Messages, Method::POST, "/anthropic/v1/messages"),
    (GatewayRoute::CountTokens, Method::POST, "/anthropic/v1/messages/count_tokens"),
    (GatewayRoute::AnthropicModels, Method::GET, "/anthropic/v1/models"),
    (GatewayRoute::AnthropicModels, Method::GET, "/anthropic/v1/models/{id}"),
    (GatewayRoute::Chat, Method::POST, "/openai/v1/chat/completions"),
    (GatewayRoute::Responses, Method::POST, "/openai/v1/responses"),
    (GatewayRoute::CompactResponses, Method::POST, "/openai/v1/responses/compact"),
    (GatewayRoute::Embeddings, Method::POST, "/openai/v1/embeddings"),
    (GatewayRoute::OpenaiModels, Method::GET, "/openai/v1/models"),
    (GatewayRoute::OpenaiModels, Method::GET, "/openai/v1/models/{id}"),
    (GatewayRoute::GeminiGenerate, Method::POST, "/gemini/v1beta/models/{model}:generateContent"),
    (GatewayRoute::GeminiStream, Method::POST, "/gemini/v1beta/models/{model}:streamGenerateContent"),
    (GatewayRoute::GeminiCountTokens, Method::POST, "/gemini/v1beta/models/{model}:countTokens"),
    (GatewayRoute::GeminiModels, Method::GET, "/gemini/v1beta/models"),
    (GatewayRoute::GeminiModels, Method::GET, "/gemini/v1beta/models/{id}"),
    (GatewayRoute::GeminiGenerate, Method::POST, "/gemini/v1/models/{model}:generateContent"),
    (GatewayRoute::GeminiStream, Method::POST, "/gemini/v1/models/{model}:streamGenerateContent"),
    (GatewayRoute::GeminiCountTokens, Method::POST, "/gemini/v1/models/{model}:countTokens"),
    (GatewayRoute::GeminiModels, Method::GET, "/gemini/v1/models"),
    (GatewayRoute::GeminiModels, Method::GET, "/gemini/v1/models/{id}"),
];

/// First segment of each API's paths.
const ROOTS: [(ProviderApi, &str); 3] =
    [(ProviderApi::Anthropic, "anthropic"), (ProviderApi::Openai, "openai"), (ProviderApi::Gemini, "gemini")];

/// Path that a route accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoutedPath {
    pub(super) route: GatewayRoute,
    /// Model in the path, if the route has one there.
    pub(super) model: Option<String>,
    /// Row of the route table.
    pattern: &'static str,
}

impl RoutedPath {
    /// Finds the route of a path. A trailing slash and a doubled version are accepted.
    pub(super) fn find(method: &Method, path: &str) -> Option<RoutedPath> {
        let path = normalized(path);
        ROUTES.iter().filter(|(_, m, _)| m == method).find_map(|&(route, _, pattern)| {
            let model = model_in(pattern, &path)?.map(str::to_owned);
            Some(RoutedPath { route, model, pattern })
        })
    }

    /// Returns the provider's path for `model`.
    pub(super) fn upstream_path(&self, model: &str) -> String {
        let path = self.pattern.find("/v1").map_or(self.pattern, |start| &self.pattern[start..]);
        match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?.1))) {
            Some((before, after)) => format!("{before}{}{after}", path_encoded(model)),
            None => path.to_owned(),
        }
    }
}

/// Returns true if `path` is the root of an API, with or without its version. Some agents probe the
/// roots.
pub(super) fn is_root(path: &str) -> bool {
    let path = normalized(path);
    let mut segments = path.split('/').skip(1);
    let root = segments.next().is_some_and(|first| ROOTS.iter().any(|(_, root)| *root == first));
    root && segments.next().is_none_or(is_version) && segments.next().is_none()
}

/// Removes trailing slashes, and a repeated version after the API's name.
fn normalized(path: &str) -> String {
    let mut segments: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    while segments.len() > 3 && is_version(segments[2]) && segments[3] == segments[2] {
        segments.remove(3);
    }
    segments.join("/")
}

fn is_version(segment: &str) -> bool {
    matches!(segment, "v1" | "v1beta")
}

/// Matches `path` with a row's pattern. Returns the model that stands in the path, if any.
fn model_in<'a>(pattern: &str, path: &'a str) -> Option<Option<&'a str>> {
    let Some((before, rest)) = pattern.split_once('{') else { return (pattern == path).then_some(None) };
    let (_, after) = rest.split_once('}')?;
    let model = path.strip_prefix(before)?.strip_suffix(after)?;
    // A segment of dots would lead to another path of the provider.
    let decoded = model.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    let is_plain = decoded.split(['/', '\\']).all(|segment| segment.chars().any(|c| c != '.'));
    is_plain.then_some(Some(model))
}

/// Encodes what cannot stand in a path.
fn path_encoded(model: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/@!$&'()*+,;=%".contains(&byte);
    model.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

impl GatewayRoute {
    pub(super) fn api(self) -> ProviderApi {
        match self {
            GatewayRoute::Messages | GatewayRoute::CountTokens | GatewayRoute::AnthropicModels => {
                ProviderApi::Anthropic
            }
            GatewayRoute::Chat
            | GatewayRoute::Responses
            | GatewayRoute::CompactResponses
            | GatewayRoute::Embeddings
            | GatewayRoute::OpenaiModels => ProviderApi::Openai,
            GatewayRoute::GeminiGenerate
            | GatewayRoute::GeminiStream
            | GatewayRoute::GeminiCountTokens
            | GatewayRoute::GeminiModels => ProviderApi::Gemini,
        }
    }

    /// Returns the format of this route's answers. `None` if its calls use no tokens.
    pub(super) fn wire_format(self) -> Option<WireFormat> {
        match self {
            GatewayRoute::Messages => Some(WireFormat::Messages),
            // An answer with embeddings reports its usage under the names of a chat.
            GatewayRoute::Chat | GatewayRoute::Embeddings => Some(WireFormat::Chat),
            GatewayRoute::Responses | GatewayRoute::CompactResponses => Some(WireFormat::Responses),
            GatewayRoute::GeminiGenerate | GatewayRoute::GeminiStream => Some(WireFormat::Gemini),
            GatewayRoute::CountTokens
            | GatewayRoute::AnthropicModels
            | GatewayRoute::OpenaiModels
            | GatewayRoute::GeminiCountTokens
            | GatewayRoute::GeminiModels => None,
        }
    }

    /// Returns true if calls of this route use tokens.
    pub(super) fn is_metered(self) -> bool {
        self.wire_format().is_some()
    }

    pub(super) fn has_body(self) -> bool {
        !matches!(self, GatewayRoute::AnthropicModels | GatewayRoute::OpenaiModels | GatewayRoute::GeminiModels)
    }
}

/// Returns the API whose error format answers an unknown path.
pub(super) fn api_of_path(path: &str) -> ProviderApi {
    let first = path.split('/').nth(1).unwrap_or_default();
    ROOTS.iter().find(|(_, root)| *root == first).map_or(ProviderApi::Openai, |(api, _)| *api)
}

/// Lists all routes, for an error.
pub(super) fn list_routes() -> String {
    ROUTES.map(|(_, method, path)| format!("{method} {path}")).join(", ")
}

/// Returns the path of a route, as the route table has it.
#[cfg(test)]
pub(super) fn path_of(route: GatewayRoute) -> RoutedPath {
    let row = ROUTES.iter().find(|row| row.0 == route).expect("the table has every route");
    RoutedPath::find(&row.1, row.2).expect("each row matches itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_map_to_routes() {
        fn check(method: Method, path: &str, expected: Option<(GatewayRoute, &str)>) {
            let found = RoutedPath::find(&method, path);
            let model = found.as_ref().and_then(|found| found.model.clone()).unwrap_or_default();
            let found = found.map(|found| (found.route, found.upstream_path(&model)));
            assert_eq!(found, expected.map(|(route, path)| (route, path.to_owned())), "{path}");
        }
        let post = |path, expected| check(Method::POST, path, expected);
        let get = |path, expected| check(Method::GET, path, expected);
        post("/anthropic/v1/messages", Some((GatewayRoute::Messages, "/v1/messages")));
        post("/anthropic/v1/messages/", Some((GatewayRoute::Messages, "/v1/messages")));
        post("/anthropic/v1/v1/messages", Some((GatewayRoute::Messages, "/v1/messages")));
        post("/anthropic/v1/messages/count_tokens", Some((GatewayRoute::CountTokens, "/v1/messages/count_tokens")));
        post("/openai/v1/v1/chat/completions//", Some((GatewayRoute::Chat, "/v1/chat/completions")));
        post("/openai/v1/responses", Some((GatewayRoute::Responses, "/v1/responses")));
        post("/openai/v1/responses/compact", Some((GatewayRoute::CompactResponses, "/v1/responses/compact")));
        post("/openai/v1/embeddings", Some((GatewayRoute::Embeddings, "/v1/embeddings")));
        get("/openai/v1/models", Some((GatewayRoute::OpenaiModels, "/v1/models")));
        get("/openai/v1/models/openai/gpt-5:free", Some((GatewayRoute::OpenaiModels, "/v1/models/openai/gpt-5:free")));
        get("/anthropic/v1/models/claude-x", Some((GatewayRoute::AnthropicModels, "/v1/models/claude-x")));
        let stream = "/v1beta/models/gemini-x:streamGenerateContent";
        post("/gemini/v1beta/models/gemini-x:streamGenerateContent", Some((GatewayRoute::GeminiStream, stream)));
        let generate = "/v1/models/gemini-x:generateContent";
        post("/gemini/v1/models/gemini-x:generateContent", Some((GatewayRoute::GeminiGenerate, generate)));
        let count = "/v1beta/models/gemini/x:countTokens";
        post("/gemini/v1beta/models/gemini/x:countTokens", Some((GatewayRoute::GeminiCountTokens, count)));
        get("/gemini/v1beta/models", Some((GatewayRoute::GeminiModels, "/v1beta/models")));
        get("/gemini/v1beta/models/gemini-x", Some((GatewayRoute::GeminiModels, "/v1beta/models/gemini-x")));

        get("/anthropic/v1/messages", None);
        post("/anthropic/v1/messages/../files", None);
        post("/openai/v1/responses/resp_1/cancel", None);
        get("/openai/v1/models/../files", None);
        get("/openai/v1/models/x/%2E%2e/files", None);
        get("/openai/v1/models/x%2F../files", None);
        post("/gemini/v1beta/models/x/../../files:generateContent", None);
        post("/gemini/v1beta/models/:generateContent", None);
        post("/gemini/v1beta/models/x:batchGenerateContent", None);
        post("/openai/v2/v2/responses", None);
        assert!(list_routes().contains("POST /openai/v1/chat/completions, POST"));
    }

    #[test]
    fn model_in_the_path_is_replaced() {
        let path = "/gemini/v1beta/models/models:generateContent";
        let routed = RoutedPath::find(&Method::POST, path).expect("the path is a route");
        assert_eq!(routed.model.as_deref(), Some("models"));
        assert_eq!(routed.upstream_path("a model?x=1#"), "/v1beta/models/a%20model%3Fx=1%23:generateContent");
    }

    #[test]
    fn roots_are_recognized() {
        for root in ["/anthropic", "/openai/", "/gemini", "/openai/v1", "/gemini/v1beta/"] {
            assert!(is_root(root), "{root}");
        }
        for other in ["", "/", "/other", "/openai/v1/models", "/openai/v2"] {
            assert!(!is_root(other), "{other}");
        }
    }
}
