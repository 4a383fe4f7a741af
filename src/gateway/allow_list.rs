//! Allow-lists: which headers, query parameters, body fields and tools pass to a provider. Tables,
//! with the permission that each row needs. Pure.
//!
//! Sources: the API references of Anthropic, OpenAI and Google, and the sources of the agents that
//! are named in `src/gateway/recorded/`.

use greenroom_protocol::link::ProviderApi;

use super::route::GatewayRoute;
use crate::config::GatewayPermission::{self, Beta, Organization, ProviderTools, RemoteContent, ServiceTier};

/// Row of a table: a name, and the permission that it needs, if any. A final `*` matches any
/// ending.
type Row = (&'static str, Option<GatewayPermission>);

/// Request headers of every API, in lower case.
const HEADERS: &[Row] = &[
    ("accept", None),
    ("accept-language", None),
    ("agent-session-id", None),
    ("anthropic-beta", Some(Beta)),
    ("anthropic-dangerous-direct-browser-access", None),
    ("anthropic-version", None),
    ("chatgpt-account-id", Some(Organization)),
    ("content-encoding", None),
    ("content-type", None),
    ("conversation_id", None),
    ("http-referer", None),
    ("idempotency-key", None),
    ("openai-beta", Some(Beta)),
    ("openai-organization", Some(Organization)),
    ("openai-project", Some(Organization)),
    ("originator", None),
    ("sec-fetch-mode", None),
    ("session-id", None),
    ("session_id", None),
    ("thread-id", None),
    ("user-agent", None),
    ("version", None),
    ("x-app", None),
    ("x-claude-code-session-id", None),
    ("x-client-request-id", None),
    ("x-codex-beta-features", Some(Beta)),
    ("x-codex-*", None),
    ("x-dashscope-cachecontrol", None),
    ("x-dashscope-useragent", None),
    ("x-goog-api-client", None),
    ("x-goog-user-project", Some(Organization)),
    ("x-opencode-session-id", None),
    ("x-request-id", None),
    ("x-session-affinity", None),
    ("x-session-id", None),
    ("x-stainless-*", None),
    ("x-title", None),
];

/// Query parameters of every API.
const PARAMETERS: &[Row] = &[
    ("after_id", None),
    ("alt", None),
    ("before_id", None),
    ("beta", Some(Beta)),
    ("limit", None),
    ("pageSize", None),
    ("pageToken", None),
];

/// Fields of Anthropic Messages, also for the count of tokens.
const MESSAGES_FIELDS: &[Row] = &[
    ("betas", Some(Beta)),
    ("cache_control", None),
    ("container", Some(ProviderTools)),
    ("context_management", Some(Beta)),
    ("inference_geo", Some(ServiceTier)),
    ("max_tokens", None),
    ("mcp_servers", Some(ProviderTools)),
    ("messages", None),
    ("metadata", None),
    ("model", None),
    ("output_config", None),
    ("output_format", Some(Beta)),
    ("service_tier", Some(ServiceTier)),
    ("speed", Some(ServiceTier)),
    ("stop_sequences", None),
    ("stream", None),
    ("system", None),
    ("temperature", None),
    ("thinking", None),
    ("tool_choice", None),
    ("tools", None),
    ("top_k", None),
    ("top_p", None),
];

/// Fields of OpenAI Chat Completions, and of the servers that imitate it.
const CHAT_FIELDS: &[Row] = &[
    ("audio", None),
    ("cache_prompt", None),
    ("chat_template_kwargs", None),
    ("enable_search", Some(ProviderTools)),
    ("enable_thinking", None),
    ("frequency_penalty", None),
    ("function_call", None),
    ("functions", None),
    ("guided_*", None),
    ("include_reasoning", None),
    ("incremental_output", None),
    ("keep_alive", None),
    ("logit_bias", None),
    ("logprobs", None),
    ("max_completion_tokens", None),
    ("max_tokens", None),
    ("messages", None),
    ("metadata", None),
    ("min_p", None),
    ("modalities", None),
    ("model", None),
    ("n", None),
    ("num_ctx", None),
    ("options", None),
    ("parallel_tool_calls", None),
    ("plugins", Some(ProviderTools)),
    ("prediction", None),
    ("presence_penalty", None),
    ("preserve_thinking", None),
    ("prompt_cache_key", None),
    ("prompt_cache_options", None),
    ("prompt_cache_retention", None),
    ("prompt_mode", None),
    ("random_seed", None),
    ("reasoning", None),
    ("reasoning_effort", None),
    ("reasoning_split", None),
    ("repeat_penalty", None),
    ("repetition_penalty", None),
    ("response_format", None),
    ("safe_prompt", None),
    ("safety_identifier", None),
    ("search_options", Some(ProviderTools)),
    ("search_parameters", Some(ProviderTools)),
    ("seed", None),
    ("service_tier", Some(ServiceTier)),
    ("session_id", None),
    ("stop", None),
    ("store", None),
    ("stream", None),
    ("stream_options", None),
    ("temperature", None),
    ("thinking", None),
    ("thinking_budget", None),
    ("tool_choice", None),
    ("tool_stream", None),
    ("tools", None),
    ("top_k", None),
    ("top_logprobs", None),
    ("top_p", None),
    ("usage", None),
    ("user", None),
    ("verbosity", None),
    ("vl_high_resolution_images", None),
    ("web_search_options", Some(ProviderTools)),
];

/// Fields of OpenAI Responses, also for its compaction.
const RESPONSES_FIELDS: &[Row] = &[
    ("background", None),
    ("client_metadata", None),
    ("context_management", None),
    ("conversation", None),
    ("include", None),
    ("input", None),
    ("instructions", None),
    ("max_output_tokens", None),
    ("max_tool_calls", None),
    ("metadata", None),
    ("model", None),
    ("parallel_tool_calls", None),
    ("previous_response_id", None),
    ("prompt", None),
    ("prompt_cache_key", None),
    ("prompt_cache_options", None),
    ("prompt_cache_retention", None),
    ("reasoning", None),
    ("safety_identifier", None),
    ("service_tier", Some(ServiceTier)),
    ("store", None),
    ("stream", None),
    ("stream_options", None),
    ("temperature", None),
    ("text", None),
    ("tool_choice", None),
    ("tools", None),
    ("top_logprobs", None),
    ("top_p", None),
    ("truncation", None),
    ("user", None),
];

const EMBEDDINGS_FIELDS: &[Row] =
    &[("dimensions", None), ("encoding_format", None), ("input", None), ("model", None), ("user", None)];

/// Fields of Gemini's `generateContent` and `countTokens`, in both spellings that Google reads.
const GEMINI_FIELDS: &[Row] = &[
    ("cachedContent", Some(RemoteContent)),
    ("cached_content", Some(RemoteContent)),
    ("contents", None),
    ("generateContentRequest", None),
    ("generate_content_request", None),
    ("generationConfig", None),
    ("generation_config", None),
    ("labels", None),
    ("model", None),
    ("safetySettings", None),
    ("safety_settings", None),
    ("serviceTier", Some(ServiceTier)),
    ("service_tier", Some(ServiceTier)),
    ("store", None),
    ("systemInstruction", None),
    ("system_instruction", None),
    ("toolConfig", None),
    ("tool_config", None),
    ("tools", None),
];

/// Types of tools that run beside the client. Every other type runs at the provider.
const CLIENT_TOOLS: [(ProviderApi, &[&str]); 2] = [
    (ProviderApi::Anthropic, &["bash_*", "computer_*", "custom", "memory_*", "text_editor_*", "tool_search_tool_*"]),
    (
        ProviderApi::Openai,
        &[
            "apply_patch",
            "computer",
            "computer_use_preview",
            "custom",
            "function",
            "local_shell",
            "namespace",
            "shell",
            "tool_search",
        ],
    ),
];

/// Keys of a Gemini tool that stand for tools of the client.
const GEMINI_CLIENT_TOOLS: [&str; 4] = ["functionDeclarations", "function_declarations", "computerUse", "computer_use"];

/// Fields of a tool that need a beta flag.
const BETA_TOOL_FIELDS: [&str; 4] = ["allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"];

/// Beta flags, by their start, that go with fields of another permission. Every other flag needs
/// [`Beta`].
const BETA_FLAGS: [(&str, GatewayPermission); 7] = [
    ("code-execution-", ProviderTools),
    ("fast-mode-", ServiceTier),
    ("files-api-", RemoteContent),
    ("mcp-client-", ProviderTools),
    ("skills-", ProviderTools),
    ("web-fetch-", ProviderTools),
    ("web-search-", ProviderTools),
];

/// Permissions that the operator gives.
#[derive(Debug, Clone, Default)]
pub(super) struct AllowList(Vec<GatewayPermission>);

impl AllowList {
    pub(super) fn new(permissions: &[GatewayPermission]) -> AllowList {
        AllowList(permissions.to_vec())
    }

    pub(super) fn has(&self, permission: GatewayPermission) -> bool {
        self.0.contains(&permission)
    }

    fn passes(&self, table: &[Row], name: &str) -> bool {
        let row = table.iter().find(|(pattern, _)| matches(pattern, name));
        row.is_some_and(|(_, needs)| needs.is_none_or(|permission| self.has(permission)))
    }

    /// Returns true if the request header `name`, in lower case, passes.
    pub(super) fn passes_header(&self, name: &str) -> bool {
        self.passes(HEADERS, name)
    }

    /// Returns true if one flag of the header `anthropic-beta` passes.
    pub(super) fn passes_beta_flag(&self, flag: &str) -> bool {
        let row = BETA_FLAGS.iter().find(|(start, _)| flag.starts_with(start));
        self.has(row.map_or(Beta, |(_, permission)| *permission))
    }

    pub(super) fn passes_parameter(&self, name: &str) -> bool {
        self.passes(PARAMETERS, name)
    }

    /// Returns true if the top-level field `name` of a request's body passes.
    pub(super) fn passes_field(&self, route: GatewayRoute, name: &str) -> bool {
        let table = match route {
            GatewayRoute::Messages | GatewayRoute::CountTokens => MESSAGES_FIELDS,
            GatewayRoute::Chat => CHAT_FIELDS,
            GatewayRoute::Responses | GatewayRoute::CompactResponses => RESPONSES_FIELDS,
            GatewayRoute::Embeddings => EMBEDDINGS_FIELDS,
            GatewayRoute::GeminiGenerate | GatewayRoute::GeminiStream | GatewayRoute::GeminiCountTokens => {
                GEMINI_FIELDS
            }
            GatewayRoute::AnthropicModels | GatewayRoute::OpenaiModels | GatewayRoute::GeminiModels => &[],
        };
        self.passes(table, name)
    }

    /// Returns true if a tool of type `kind` passes. Gemini's tools have keys in place of a type.
    pub(super) fn passes_tool(&self, api: ProviderApi, kind: &str) -> bool {
        let client_tools = CLIENT_TOOLS.iter().find(|(of, _)| *of == api).map_or(&GEMINI_CLIENT_TOOLS[..], |row| row.1);
        client_tools.iter().any(|pattern| matches(pattern, kind)) || self.has(ProviderTools)
    }

    /// Returns true if the field `name` of a tool passes.
    pub(super) fn passes_tool_field(&self, name: &str) -> bool {
        !BETA_TOOL_FIELDS.contains(&name) || self.has(Beta)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_open_their_rows() {
        let nothing = AllowList::default();
        let all = AllowList::new(&[ProviderTools, RemoteContent, ServiceTier, Organization, Beta]);
        let check = |passes: &dyn Fn(&AllowList) -> bool, with_nothing: bool, with_all: bool| {
            assert_eq!((passes(&nothing), passes(&all)), (with_nothing, with_all));
        };
        check(&|list| list.passes_header("x-stainless-os"), true, true);
        check(&|list| list.passes_header("openai-organization"), false, true);
        check(&|list| list.passes_header("x-codex-beta-features"), false, true);
        check(&|list| list.passes_header("x-from-tomorrow"), false, false);
        check(&|list| list.passes_parameter("beta"), false, true);
        check(&|list| list.passes_parameter("key"), false, false);
        check(&|list| list.passes_field(GatewayRoute::Messages, "max_tokens"), true, true);
        check(&|list| list.passes_field(GatewayRoute::Messages, "mcp_servers"), false, true);
        check(&|list| list.passes_field(GatewayRoute::Chat, "web_search_options"), false, true);
        check(&|list| list.passes_field(GatewayRoute::Chat, "mcp_servers"), false, false);
        check(&|list| list.passes_field(GatewayRoute::GeminiStream, "cachedContent"), false, true);
        check(&|list| list.passes_tool(ProviderApi::Anthropic, "bash_20250124"), true, true);
        check(&|list| list.passes_tool(ProviderApi::Anthropic, "web_search_20250305"), false, true);
        check(&|list| list.passes_tool(ProviderApi::Openai, "mcp"), false, true);
        check(&|list| list.passes_tool(ProviderApi::Gemini, "googleSearch"), false, true);
        check(&|list| list.passes_tool_field("defer_loading"), false, true);
    }

    #[test]
    fn beta_flags_go_with_their_fields() {
        let check = |permission: GatewayPermission, flag: &str, expected: bool| {
            assert_eq!(AllowList::new(&[permission]).passes_beta_flag(flag), expected, "{permission:?}: {flag}");
        };
        check(Beta, "context-management-2025-06-27", true);
        check(Beta, "mcp-client-2025-04-04", false);
        check(ProviderTools, "mcp-client-2025-04-04", true);
        check(ProviderTools, "context-management-2025-06-27", false);
        check(ServiceTier, "fast-mode-2026-02-01", true);
    }

    #[test]
    fn rows_are_sorted_and_unique() {
        for table in [MESSAGES_FIELDS, CHAT_FIELDS, RESPONSES_FIELDS, EMBEDDINGS_FIELDS, GEMINI_FIELDS, PARAMETERS] {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0), "{table:?}");
        }
    }
}
