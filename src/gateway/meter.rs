//! Reads what a call took, and how it ended, from the provider's own answer. Pure: it is fed, and asked at the end.

use greenroom_protocol::JsonSize;
use serde_json::Value;

use super::{Metered, refusal::status_of_kind, route::Route};

/// How many bytes of text a token has, about. For answers that were cut before the provider told.
const BYTES_PER_TOKEN: u64 = 4;

/// The most of an answer in one piece that is kept for reading.
const LARGEST_BODY: usize = 16 * 1024 * 1024;

/// The most values of one event, or of one answer, that are read: all of it becomes a tree.
const VALUES_LIMIT: usize = 64 * 1024;

/// Reads one answer.
#[derive(Debug)]
pub(super) struct Meter {
    route: Route,
    model: Option<String>,
    input: Option<u64>,
    output: Option<u64>,
    cache_read: u64,
    cache_write: u64,
    /// Bytes of text, thought and tool input that were streamed.
    spoken: u64,
    complete: bool,
    error: Option<Mishap>,
    /// An answer in one piece, so far.
    body: Vec<u8>,
}

/// An error that the provider told in the middle of its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mishap {
    /// What the status would have been.
    pub(super) status: u16,
    pub(super) message: String,
}

impl Meter {
    pub(super) fn new(route: Route) -> Meter {
        Meter {
            route,
            model: None,
            input: None,
            output: None,
            cache_read: 0,
            cache_write: 0,
            spoken: 0,
            complete: false,
            error: None,
            body: Vec::new(),
        }
    }

    /// Reads whole lines of a server-sent event stream.
    pub(super) fn lines(&mut self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n') {
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            if data.trim_ascii() == b"[DONE]" {
                self.complete = true;
            } else if let Some(event) = tree(data) {
                self.event(&event);
            }
        }
    }

    /// Reads a part of an answer in one piece.
    pub(super) fn part(&mut self, part: &[u8]) {
        if self.body.len() + part.len() <= LARGEST_BODY {
            self.body.extend_from_slice(part);
        }
    }

    /// The answer in one piece is whole.
    pub(super) fn whole(&mut self) {
        if let Some(answer) = tree(&std::mem::take(&mut self.body)) {
            self.answer(&answer);
        }
        self.complete = true;
    }

    /// Whether the provider said that its answer is over. A connection that ends before that was cut, however politely.
    pub(super) fn is_complete(&self) -> bool {
        self.complete || self.error.is_some()
    }

    pub(super) fn error(&self) -> Option<&Mishap> {
        self.error.as_ref()
    }

    /// What is known so far. What the provider did not come to tell is estimated from what was sent and what was heard.
    pub(super) fn metered(&self, asked_model: &str, request_bytes: usize) -> Metered {
        let estimated = !self.complete || self.input.is_none() || self.output.is_none();
        let output_heard = self.spoken.div_ceil(BYTES_PER_TOKEN);
        let output = self.output.unwrap_or_default();
        Metered {
            model: self.model.clone().unwrap_or_else(|| asked_model.to_owned()),
            input_tokens: self.input.unwrap_or(request_bytes as u64 / BYTES_PER_TOKEN),
            output_tokens: if estimated { output.max(output_heard) } else { output },
            cache_read_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            cost_usd: None,
            context_limit: None,
            estimated,
        }
    }

    fn event(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap_or_default();
        match (self.route, kind) {
            (Route::Messages, "message_start") => self.answer(&event["message"]),
            (Route::Messages, "message_delta") => self.usage(&event["usage"]),
            (Route::Messages, "message_stop") => self.complete = true,
            (Route::Messages, "content_block_delta") => {
                for field in ["text", "thinking", "partial_json"] {
                    self.hear(&event["delta"][field]);
                }
            }
            (Route::Responses, "response.completed" | "response.incomplete") => {
                self.answer(&event["response"]);
                self.complete = true;
            }
            (Route::Responses, "response.failed") => {
                self.answer(&event["response"]);
                self.fail(&event["response"]["error"]);
            }
            (Route::Responses, _) => self.hear(&event["delta"]),
            (Route::Chat, _) => self.chat(event),
            _ => {}
        }
        match (&event["error"], kind) {
            (Value::Object(_) | Value::String(_), _) => self.fail(&event["error"]),
            (_, "error") => self.fail(event),
            _ => {}
        }
    }

    fn chat(&mut self, event: &Value) {
        self.answer(event);
        for choice in event["choices"].as_array().into_iter().flatten() {
            for field in ["content", "reasoning_content", "reasoning", "refusal"] {
                self.hear(&choice["delta"][field]);
            }
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                self.hear(&call["function"]["arguments"]);
            }
            self.complete |= choice["finish_reason"].is_string();
        }
    }

    /// An answer in one piece, or what of a stream has the same shape.
    fn answer(&mut self, answer: &Value) {
        if let Some(model) = answer["model"].as_str() {
            self.model = Some(model.to_owned());
        }
        self.usage(&answer["usage"]);
    }

    /// Counts are totals so far: a later one replaces an earlier one.
    fn usage(&mut self, usage: &Value) {
        let count = |field: &str| usage[field].as_u64();
        match self.route {
            Route::Messages => {
                self.input = count("input_tokens").or(self.input);
                self.output = count("output_tokens").or(self.output);
                self.cache_read = count("cache_read_input_tokens").unwrap_or(self.cache_read);
                self.cache_write = count("cache_creation_input_tokens").unwrap_or(self.cache_write);
            }
            Route::Chat | Route::Responses => {
                let [input, output, details] = match self.route {
                    Route::Chat => ["prompt_tokens", "completion_tokens", "prompt_tokens_details"],
                    _ => ["input_tokens", "output_tokens", "input_tokens_details"],
                };
                if let Some(input) = count(input) {
                    // OpenAI counts what came from its cache into the input; here the two are apart, as Anthropic has them.
                    self.cache_read = usage[details]["cached_tokens"].as_u64().unwrap_or_default().min(input);
                    self.input = Some(input - self.cache_read);
                }
                self.output = count(output).or(self.output);
            }
            Route::CountTokens | Route::AnthropicModels | Route::OpenaiModels => {}
        }
    }

    fn hear(&mut self, text: &Value) {
        self.spoken += text.as_str().map_or(0, |text| text.len() as u64);
    }

    fn fail(&mut self, error: &Value) {
        let kind =
            error["type"].as_str().filter(|kind| *kind != "error").or(error["code"].as_str()).unwrap_or_default();
        let message = error["message"].as_str().or(error.as_str()).unwrap_or("no reason given");
        self.error = Some(Mishap { status: status_of_kind(kind), message: message.to_owned() });
    }
}

fn tree(json: &[u8]) -> Option<Value> {
    if JsonSize::of(json).values > VALUES_LIMIT {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(route: Route, stream: &str, expected: (&str, u64, u64, u64, u64, bool)) {
        let mut meter = Meter::new(route);
        meter.lines(stream.as_bytes());
        let got = meter.metered("asked", 40);
        let got = (
            got.model.as_str(),
            got.input_tokens,
            got.output_tokens,
            got.cache_read_tokens,
            got.cache_write_tokens,
            got.estimated,
        );
        assert_eq!(got, expected, "{stream}");
    }

    const START: &str = r#"data: {"type":"message_start","message":{"model":"claude-x-1","usage":{"input_tokens":9,"cache_read_input_tokens":5,"cache_creation_input_tokens":3,"output_tokens":1}}}"#;

    #[test]
    fn anthropic() {
        let end =
            "data:{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":77}}\r\ndata: {\"type\":\"message_stop\"}\n";
        check(Route::Messages, &format!("{START}\n\n{end}"), ("claude-x-1", 9, 77, 5, 3, false));
        let text = r#"data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"0123456789"}}"#;
        check(Route::Messages, &format!("{START}\n{text}\n"), ("claude-x-1", 9, 3, 5, 3, true));
        check(Route::Messages, "event: ping\ndata: {\"type\":\"ping\"}\n\ndata: {half", ("asked", 10, 0, 0, 0, true));
    }

    #[test]
    fn openai() {
        let chunk = r#"data: {"model":"gpt-5-1","choices":[{"delta":{"content":"12345"},"finish_reason":"stop"}],"usage":null}"#;
        let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":15}}}"#;
        check(Route::Chat, &format!("{chunk}\n\n{usage}\n\ndata: [DONE]\n"), ("gpt-5-1", 5, 8, 15, 0, false));
        check(Route::Chat, chunk, ("gpt-5-1", 10, 2, 0, 0, true));
        let completed = r#"data: {"type":"response.completed","response":{"model":"gpt-5","usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":10},"output_tokens":6}}}"#;
        let delta = r#"data: {"type":"response.output_text.delta","delta":"hello"}"#;
        check(Route::Responses, &format!("{delta}\n\n{completed}\n"), ("gpt-5", 20, 6, 10, 0, false));
        check(Route::Responses, delta, ("asked", 10, 2, 0, 0, true));
    }

    #[test]
    fn answers_in_one_piece() {
        let mut meter = Meter::new(Route::Messages);
        meter.part(br#"{"model":"claude-x","usage":{"input_tokens":4,"#);
        meter.part(br#""output_tokens":2}}"#);
        assert!(!meter.is_complete());
        meter.whole();
        let metered = meter.metered("asked", 0);
        assert_eq!((metered.model.as_str(), metered.input_tokens, metered.output_tokens), ("claude-x", 4, 2));
        assert!(!metered.estimated && meter.is_complete());
    }

    #[test]
    fn errors_inside_a_stream() {
        fn check(route: Route, line: &str, status: u16, message: &str) {
            let mut meter = Meter::new(route);
            meter.lines(line.as_bytes());
            assert_eq!(meter.error(), Some(&Mishap { status, message: message.to_owned() }));
        }
        let anthropic = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        check(Route::Messages, anthropic, 529, "Overloaded");
        check(Route::Chat, r#"data: {"error":{"message":"boom","type":"server_error"}}"#, 500, "boom");
        check(Route::Chat, r#"data: {"error":"out of memory"}"#, 500, "out of memory");
        check(Route::Responses, r#"data: {"type":"error","code":"rate_limit_exceeded","message":"slow"}"#, 429, "slow");
        let failed = r#"data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"no"}}}"#;
        check(Route::Responses, failed, 500, "no");
    }
}
