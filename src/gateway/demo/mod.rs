//! Demo model: a script without intelligence, behind the same endpoints as real models.
//!
//! The demo performs a small but real task with the agent's tools. A machine without a key or a
//! network can therefore run the main job from end to end. The demo identifies itself as a script.
//! Its words are in `script.toml`.

mod conversation;
mod response;
mod script;

use bytes::Bytes;
use futures::{StreamExt, stream};
use greenroom_protocol::{JsonSize, link::ProviderApi};
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};

use self::{conversation::DemoConversation, response::DemoResponse};
use super::{
    catalog::DEMO, error_response::EndpointError, request_rewrite::ProxiedRequest, route::GatewayRoute,
    upstream::UpstreamResponse,
};

/// Limit of JSON values in a request. The demo parses the whole request into a tree.
const VALUES_LIMIT: usize = 256 * 1024;

/// Responds in the format of `route`.
///
/// # Errors
/// Rejects a request with too many values, and the OpenAI Responses route.
pub(super) fn respond(
    route: GatewayRoute,
    request: &ProxiedRequest,
    tokens_per_second: u32,
) -> Result<UpstreamResponse, EndpointError> {
    if JsonSize::of(&request.body).values > VALUES_LIMIT {
        let message = format!("the demo model reads at most {VALUES_LIMIT} values of JSON");
        return Err(EndpointError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message));
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|e| EndpointError::invalid(e.to_string()))?;
    let input_tokens = request.body.len() as u64 / 4;
    let conversation = match route {
        GatewayRoute::Messages => DemoConversation::from_messages(&body),
        GatewayRoute::Chat => DemoConversation::from_chat(&body),
        GatewayRoute::CountTokens => return Ok(json_response(json!({ "input_tokens": input_tokens }))),
        GatewayRoute::Responses | GatewayRoute::AnthropicModels | GatewayRoute::OpenaiModels => {
            let message = "the demo model supports only `/anthropic/v1/messages` and `/openai/v1/chat/completions`";
            return Err(EndpointError::invalid(message));
        }
    };
    let (step, pace) = script::next_step(&conversation);
    let response = DemoResponse::new(route, step, input_tokens);
    if !request.streaming {
        return Ok(json_response(response.body()));
    }
    Ok(stream_response(response, pace.unwrap_or(tokens_per_second)))
}

/// Returns the list of models if no provider is usable.
pub(super) fn models(api: ProviderApi) -> UpstreamResponse {
    json_response(match api {
        ProviderApi::Anthropic => {
            json!({"data": [{"type": "model", "id": DEMO, "display_name": "Demo"}], "has_more": false})
        }
        ProviderApi::Openai => {
            json!({"object": "list", "data": [{"object": "model", "id": DEMO, "owned_by": "greenroom"}]})
        }
    })
}

fn stream_response(response: DemoResponse, tokens_per_second: u32) -> UpstreamResponse {
    let pause = std::time::Duration::from_secs(1).checked_div(tokens_per_second).unwrap_or_default();
    let body = stream::iter(response.events()).then(move |event| async move {
        if event.is_token && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok(event.bytes)
    });
    UpstreamResponse {
        status: StatusCode::OK,
        headers: content_type("text/event-stream"),
        is_stream: true,
        body: body.boxed(),
    }
}

fn json_response(body_json: Value) -> UpstreamResponse {
    let body = stream::iter([Ok(Bytes::from(body_json.to_string()))]).boxed();
    UpstreamResponse { status: StatusCode::OK, headers: content_type("application/json"), is_stream: false, body }
}

fn content_type(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))])
}
