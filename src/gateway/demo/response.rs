//! Response of the demo model: one step of the script in a provider's format, streamed or in one
//! piece.

mod gemini;
mod responses;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{super::catalog::DEMO, super::route::GatewayRoute, script::DemoStep};

/// Longest token, bytes.
const MAX_TOKEN_BYTES: usize = 12;

/// Server-sent event of a streamed response.
pub(super) struct DemoEvent {
    pub(super) bytes: Bytes,
    /// True if the event is paced like a token.
    pub(super) is_token: bool,
}

/// Response before it is sent.
pub(super) struct DemoResponse {
    route: GatewayRoute,
    step: DemoStep,
    input: String,
    id: String,
    input_tokens: u64,
    output_tokens: usize,
}

impl DemoResponse {
    pub(super) fn new(route: GatewayRoute, step: DemoStep, input_tokens: u64) -> DemoResponse {
        let input = json!(step.input).to_string();
        let called = if step.tool.is_empty() { "" } else { input.as_str() };
        let output_tokens = [&step.think, &step.say, called].into_iter().flat_map(tokens).count();
        DemoResponse { route, id: ulid::Ulid::generate().to_string(), step, input, input_tokens, output_tokens }
    }

    pub(super) fn events(self) -> Vec<DemoEvent> {
        match self.route {
            GatewayRoute::Chat => self.chat_events(),
            GatewayRoute::Responses => self.responses_events(),
            GatewayRoute::GeminiStream => self.gemini_events(),
            _ => self.message_events(),
        }
    }

    pub(super) fn body(self) -> Value {
        match self.route {
            GatewayRoute::Chat => self.chat_body(),
            GatewayRoute::Responses => self.responses_body(),
            GatewayRoute::GeminiGenerate => self.gemini_body(),
            _ => self.message_body(),
        }
    }

    fn message_events(&self) -> Vec<DemoEvent> {
        let mut message = self.message(json!([]), 1);
        message["stop_reason"] = Value::Null;
        let mut events = vec![anthropic("message_start", json!({ "message": message }), false)];
        let blocks = [
            ("thinking", &self.step.think, json!({"type": "thinking", "thinking": "", "signature": ""})),
            ("text", &self.step.say, json!({"type": "text", "text": ""})),
            ("input_json", self.called_input(), json!(self.tool_use(json!({})))),
        ];
        let nonempty = blocks.into_iter().filter(|(_, text, _)| !text.is_empty());
        for (index, (kind, text, block)) in nonempty.enumerate() {
            events.push(anthropic("content_block_start", json!({"index": index, "content_block": block}), false));
            let field = if kind == "input_json" { "partial_json" } else { kind };
            for token in tokens(text) {
                let delta = json!({"type": format!("{kind}_delta"), field: token});
                events.push(anthropic("content_block_delta", json!({"index": index, "delta": delta}), true));
            }
            if kind == "thinking" {
                let delta = json!({"type": "signature_delta", "signature": DEMO});
                events.push(anthropic("content_block_delta", json!({"index": index, "delta": delta}), false));
            }
            events.push(anthropic("content_block_stop", json!({ "index": index }), false));
        }
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": null});
        let usage = json!({"output_tokens": self.output_tokens});
        events.push(anthropic("message_delta", json!({"delta": delta, "usage": usage}), false));
        events.push(anthropic("message_stop", json!({}), false));
        events
    }

    fn message_body(&self) -> Value {
        let mut content = Vec::new();
        if !self.step.think.is_empty() {
            content.push(json!({"type": "thinking", "thinking": self.step.think, "signature": DEMO}));
        }
        if !self.step.say.is_empty() {
            content.push(json!({"type": "text", "text": self.step.say}));
        }
        if !self.step.tool.is_empty() {
            content.push(self.tool_use(json!(self.step.input)));
        }
        self.message(json!(content), self.output_tokens)
    }

    fn message(&self, content: Value, output_tokens: usize) -> Value {
        json!({
            "id": format!("msg_{}", self.id), "type": "message", "role": "assistant", "model": DEMO, "content": content,
            "stop_reason": self.stop_reason(), "stop_sequence": null,
            "usage": {"input_tokens": self.input_tokens, "output_tokens": output_tokens},
        })
    }

    fn tool_use(&self, input: Value) -> Value {
        json!({"type": "tool_use", "id": format!("toolu_{}", self.id), "name": self.step.tool, "input": input})
    }

    fn stop_reason(&self) -> &'static str {
        if self.step.tool.is_empty() { "end_turn" } else { "tool_use" }
    }

    /// Returns the input of the tool call. Empty if the step calls no tool.
    fn called_input(&self) -> &String {
        if self.step.tool.is_empty() { &self.step.tool } else { &self.input }
    }

    fn chat_events(&self) -> Vec<DemoEvent> {
        let mut events = vec![self.chunk(json!({"role": "assistant", "content": ""}), Value::Null, false)];
        for token in tokens(&self.step.think) {
            events.push(self.chunk(json!({ "reasoning_content": token }), Value::Null, true));
        }
        for token in tokens(&self.step.say) {
            events.push(self.chunk(json!({ "content": token }), Value::Null, true));
        }
        if !self.step.tool.is_empty() {
            let mut call = self.tool_call("");
            call["index"] = json!(0);
            events.push(self.chunk(json!({ "tool_calls": [call] }), Value::Null, false));
        }
        for token in tokens(self.called_input()) {
            let call = json!({"index": 0, "function": {"arguments": token}});
            events.push(self.chunk(json!({ "tool_calls": [call] }), Value::Null, true));
        }
        events.push(self.chunk(json!({}), json!(self.finish_reason()), false));
        let mut last = self.completion("chat.completion.chunk", json!([]));
        last["usage"] = self.chat_usage();
        events.push(openai(&last.to_string(), false));
        events.push(openai("[DONE]", false));
        events
    }

    fn chat_body(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.step.say});
        if !self.step.think.is_empty() {
            message["reasoning_content"] = json!(self.step.think);
        }
        if !self.step.tool.is_empty() {
            message["tool_calls"] = json!([self.tool_call(&self.input)]);
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": self.finish_reason()});
        let mut completion = self.completion("chat.completion", json!([choice]));
        completion["usage"] = self.chat_usage();
        completion
    }

    fn chunk(&self, delta: Value, finish_reason: Value, is_token: bool) -> DemoEvent {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        openai(&self.completion("chat.completion.chunk", json!([choice])).to_string(), is_token)
    }

    fn completion(&self, object: &str, choices: Value) -> Value {
        let created = jiff::Timestamp::now().as_second();
        json!({"id": format!("chatcmpl-{}", self.id), "object": object, "created": created, "model": DEMO, "choices": choices})
    }

    fn tool_call(&self, arguments: &str) -> Value {
        let function = json!({"name": self.step.tool, "arguments": arguments});
        json!({"id": format!("call_{}", self.id), "type": "function", "function": function})
    }

    fn finish_reason(&self) -> &'static str {
        if self.step.tool.is_empty() { "stop" } else { "tool_calls" }
    }

    fn chat_usage(&self) -> Value {
        let (input, output) = (self.input_tokens, self.output_tokens as u64);
        json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
    }
}

fn anthropic(name: &str, mut data: Value, is_token: bool) -> DemoEvent {
    data["type"] = json!(name);
    DemoEvent { bytes: format!("event: {name}\ndata: {data}\n\n").into(), is_token }
}

fn openai(data: &str, is_token: bool) -> DemoEvent {
    DemoEvent { bytes: format!("data: {data}\n\n").into(), is_token }
}

/// Splits `text` into words with their trailing white space. Long words are split too.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace).flat_map(|word| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let (token, after) = rest.split_at(rest.floor_char_boundary(MAX_TOKEN_BYTES));
            rest = after;
            (!token.is_empty()).then_some(token)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_cover_the_whole_text() {
        const TEXT: &str = "ä word, a_very_long_wörd_without_spaces\n\n{\"a\":1}";
        assert_eq!(tokens(TEXT).collect::<String>(), TEXT);
        assert!(tokens(TEXT).all(|token| !token.is_empty() && token.len() <= MAX_TOKEN_BYTES));
    }
}
