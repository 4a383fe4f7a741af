//! The demo model: a script, not an intelligence, behind the same endpoints as the real ones.
//!
//! It plays a small but real piece of work with the tools that the agent offers, so that a machine without a key or a
//! network runs the main job from end to end. It says what it is. What it says is in `script.toml`.

mod conversation;
mod script;
mod speech;

use bytes::Bytes;
use futures::{StreamExt, stream};
use greenroom_protocol::{JsonSize, link::Api};
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};

use self::{conversation::Conversation, speech::Speech};
use super::{catalog::DEMO, envelope::Envelope, refusal::Refusal, route::Route, upstream::Answer};

/// How many values of JSON it reads: all of a request becomes a tree.
const VALUES_LIMIT: usize = 256 * 1024;

/// Answers as the provider of `route` would.
pub(super) fn answer(route: Route, envelope: &Envelope, tokens_per_second: u32) -> Result<Answer, Refusal> {
    if JsonSize::of(&envelope.body).values > VALUES_LIMIT {
        let message = format!("the demo model reads at most {VALUES_LIMIT} values of JSON");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message));
    }
    let body: Value = serde_json::from_slice(&envelope.body).map_err(|e| Refusal::invalid(e.to_string()))?;
    let input_tokens = envelope.body.len() as u64 / 4;
    let conversation = match route {
        Route::Messages => Conversation::of_messages(&body),
        Route::Chat => Conversation::of_chat(&body),
        Route::CountTokens => return Ok(whole(json!({ "input_tokens": input_tokens }))),
        Route::Responses | Route::AnthropicModels | Route::OpenaiModels => {
            let message = "the demo model speaks `/anthropic/v1/messages` and `/openai/v1/chat/completions` only";
            return Err(Refusal::invalid(message));
        }
    };
    let (step, pace) = script::next(&conversation);
    let speech = Speech::new(route, step, input_tokens);
    if !envelope.streaming {
        return Ok(whole(speech.whole()));
    }
    Ok(streamed(speech, pace.unwrap_or(tokens_per_second)))
}

/// The list of models where no provider can be asked for its own.
pub(super) fn models(api: Api) -> Answer {
    whole(match api {
        Api::Anthropic => json!({"data": [{"type": "model", "id": DEMO, "display_name": "Demo"}], "has_more": false}),
        Api::Openai => json!({"object": "list", "data": [{"object": "model", "id": DEMO, "owned_by": "greenroom"}]}),
    })
}

fn streamed(speech: Speech, tokens_per_second: u32) -> Answer {
    let pause = std::time::Duration::from_secs(1).checked_div(tokens_per_second).unwrap_or_default();
    let body = stream::iter(speech.events()).then(move |event| async move {
        if event.is_token && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok(event.bytes)
    });
    Answer { status: StatusCode::OK, headers: content_type("text/event-stream"), is_stream: true, body: body.boxed() }
}

fn whole(answer: Value) -> Answer {
    let body = stream::iter([Ok(Bytes::from(answer.to_string()))]).boxed();
    Answer { status: StatusCode::OK, headers: content_type("application/json"), is_stream: false, body }
}

fn content_type(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))])
}
