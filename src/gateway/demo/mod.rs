//! Demo model: a script without intelligence, behind the same endpoints as real models.
//!
//! The demo performs a small but real task with the agent's tools. A machine without a key or a
//! network can therefore run the main job from end to end. The demo identifies itself as a script.
//! Its words are in `script.toml`.

mod conversation;
mod response;
mod script;
mod tool;

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
    error_response::EndpointError, request_rewrite::ProxiedRequest, route::GatewayRoute, upstream::UpstreamResponse,
};

/// Limit of JSON values in a request. The demo parses the whole request into a tree.
const VALUES_LIMIT: usize = 256 * 1024;

/// Responds in the format of `route`.
///
/// # Errors
/// Rejects a request with too many values, and a route without a conversation.
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
    match route {
        GatewayRoute::CountTokens => return Ok(json_response(json!({ "input_tokens": input_tokens }))),
        GatewayRoute::GeminiCountTokens => return Ok(json_response(json!({ "totalTokens": input_tokens }))),
        _ => {}
    }
    let conversation = DemoConversation::read(route, &body)
        .ok_or_else(|| EndpointError::invalid("the demo model only continues conversations; choose another model"))?;
    let (step, pace) = script::next_step(&conversation);
    let response = DemoResponse::new(route, step, input_tokens);
    if !request.streaming {
        return Ok(json_response(response.body()));
    }
    Ok(stream_response(response, pace.unwrap_or(tokens_per_second)))
}

/// Returns the list of `names` in the format of `api`, or the model `id` of the list.
///
/// # Errors
/// Rejects the name of another model.
pub(super) fn models(api: ProviderApi, names: &[String], id: Option<&str>) -> Result<UpstreamResponse, EndpointError> {
    let model = |name: &String| match api {
        ProviderApi::Anthropic => json!({"type": "model", "id": name, "display_name": name}),
        ProviderApi::Openai => json!({"object": "model", "id": name, "created": 0, "owned_by": "greenroom"}),
        ProviderApi::Gemini => json!({
            "name": format!("models/{name}"), "displayName": name, "supportedGenerationMethods": ["generateContent"],
        }),
    };
    if let Some(id) = id {
        return names.iter().find(|name| *name == id).map(|name| json_response(model(name))).ok_or_else(|| {
            let known: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let message = format!("there is no model `{id}`; the models are: {}", known.join(", "));
            EndpointError::new(StatusCode::NOT_FOUND, "not_found_error", message)
        });
    }
    let models: Vec<Value> = names.iter().map(model).collect();
    Ok(json_response(match api {
        ProviderApi::Anthropic => json!({"data": models, "has_more": false}),
        ProviderApi::Openai => json!({"object": "list", "data": models}),
        ProviderApi::Gemini => json!({"models": models}),
    }))
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
