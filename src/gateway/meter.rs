//! Usage meter: reads the usage of a call, and its end, from the provider's response. Pure: fed
//! with bytes, queried at the end.

use super::{
    MeteredUsage,
    error_response::status_of_kind,
    route::GatewayRoute,
    usage_parser::{ProviderError, ProviderEvent, ReportedUsage, ResponseFields},
};

/// Average bytes of text per token. For responses that were cut off before their usage, or are
/// unreadable.
const BYTES_PER_TOKEN: u64 = 4;

/// Largest response in one piece that is kept for parsing, bytes.
const MAX_BUFFERED_BODY: u64 = 16 * 1024 * 1024;

/// Estimates the tokens of a request of `bytes` bytes.
pub(super) fn estimate_tokens(bytes: usize) -> u64 {
    bytes as u64 / BYTES_PER_TOKEN
}

/// Meter of one response.
#[derive(Debug)]
pub(super) struct UsageMeter {
    route: GatewayRoute,
    model: Option<String>,
    input: Option<u64>,
    output: Option<u64>,
    cache_read: u64,
    cache_write: u64,
    /// Streamed bytes of text, thinking and tool input.
    streamed_bytes: u64,
    /// True if a part of the response has ended and nothing was streamed since. The part may have
    /// been the last one.
    part_finished: bool,
    /// Bytes of a response in one piece, or of the unreadable lines of a stream.
    ///
    /// The bytes count only if nothing else does. A line that is too long to parse repeats streamed
    /// text, and holds the probabilities of each token.
    unparsed_bytes: u64,
    /// True if the next line continues a line that is too long.
    in_long_line: bool,
    /// True if the newest event was too long to parse. The event may have ended the response.
    may_be_complete: bool,
    complete: bool,
    error: Option<StreamError>,
    /// Received part of a response in one piece.
    body: Vec<u8>,
}

/// Error that the provider reported inside its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamError {
    /// Status that the error would have had before the stream.
    pub(super) status: u16,
    pub(super) message: String,
}

impl UsageMeter {
    pub(super) fn new(route: GatewayRoute) -> UsageMeter {
        UsageMeter {
            route,
            model: None,
            input: None,
            output: None,
            cache_read: 0,
            cache_write: 0,
            streamed_bytes: 0,
            part_finished: false,
            unparsed_bytes: 0,
            in_long_line: false,
            may_be_complete: false,
            complete: false,
            error: None,
            body: Vec::new(),
        }
    }

    /// Reads complete lines of a server-sent event stream.
    pub(super) fn read_lines(&mut self, lines: &[u8]) {
        let mut lines = lines.split(|byte| *byte == b'\n');
        if std::mem::take(&mut self.in_long_line) {
            self.unparsed_bytes += lines.next().map_or(0, |rest| rest.len() as u64);
            self.may_be_complete = true;
        }
        for line in lines {
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            let data = data.trim_ascii();
            if data == b"[DONE]" {
                self.complete = true;
            } else if let Some(event) = ProviderEvent::read(data) {
                self.may_be_complete = false;
                self.read_event(&event);
            } else {
                self.unparsed_bytes += data.len() as u64;
            }
        }
    }

    /// Records a part of a line that is too long to parse. The end of the line arrives with the
    /// lines after it.
    pub(super) fn read_partial_line(&mut self, part: &[u8]) {
        self.unparsed_bytes += part.len() as u64;
        self.in_long_line = true;
    }

    /// Reads a part of a response in one piece.
    pub(super) fn read_body_part(&mut self, part: &[u8]) {
        self.unparsed_bytes += part.len() as u64;
        if self.unparsed_bytes <= MAX_BUFFERED_BODY {
            self.body.extend_from_slice(part);
        } else {
            self.body = Vec::new();
        }
    }

    /// Ends a response in one piece, and parses it.
    pub(super) fn finish_body(&mut self) {
        if let Some(read) = ProviderEvent::read(&std::mem::take(&mut self.body)) {
            self.read_response(&read.fields);
        }
        self.complete = true;
    }

    /// Returns true if the provider ended its response, as far as can be determined. A stream that
    /// ends before is broken, even if the connection closed cleanly.
    pub(super) fn is_complete(&self) -> bool {
        self.complete || self.error.is_some() || self.may_be_complete
    }

    pub(super) fn error(&self) -> Option<&StreamError> {
        self.error.as_ref()
    }

    /// Returns true if all text may have been streamed and the usage is still missing.
    pub(super) fn awaits_only_usage(&self) -> bool {
        self.part_finished && !self.has_reported_usage()
    }

    fn has_reported_usage(&self) -> bool {
        self.complete && self.input.is_some() && self.output.is_some()
    }

    /// Returns the usage so far. Unreported counts are estimates: output from the streamed bytes,
    /// input as `input` tokens.
    pub(super) fn metered_usage(&self, requested_model: &str, input: u64) -> MeteredUsage {
        let received = if self.streamed_bytes > 0 { self.streamed_bytes } else { self.unparsed_bytes };
        MeteredUsage {
            model: self.model.clone().unwrap_or_else(|| requested_model.to_owned()),
            input_tokens: self.input.unwrap_or(input),
            output_tokens: match self.output {
                Some(reported) if self.complete => reported,
                so_far => so_far.unwrap_or_default().max(received.div_ceil(BYTES_PER_TOKEN)),
            },
            cache_read_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            cost_usd: None,
            context_limit: None,
            estimated: !self.has_reported_usage(),
        }
    }

    fn read_event(&mut self, event: &ProviderEvent) {
        let kind = event.kind.as_deref().unwrap_or_default();
        match (self.route, kind) {
            (GatewayRoute::Messages, "message_start") => self.read_response(&event.message),
            (GatewayRoute::Messages, "message_delta") => self.read_usage(&event.fields.usage),
            (GatewayRoute::Messages, "message_stop") => self.complete = true,
            (GatewayRoute::Messages, "content_block_delta") => self.count_streamed(event.delta.0),
            (GatewayRoute::Messages, "content_block_stop") => self.part_finished = true,
            (GatewayRoute::Responses, "response.completed" | "response.incomplete") => {
                self.read_response(&event.response);
                self.complete = true;
            }
            (GatewayRoute::Responses, "response.failed") => {
                self.read_response(&event.response);
                self.set_error(&event.response.error.clone().unwrap_or_default());
            }
            (GatewayRoute::Responses, "response.output_text.done" | "response.output_item.done") => {
                self.part_finished = true;
            }
            (GatewayRoute::Responses, _) => self.count_streamed(event.delta.0),
            (GatewayRoute::Chat, _) => {
                self.read_response(&event.fields);
                self.count_streamed(event.choices.delta.0);
                if event.choices.finish_reason.is_some() {
                    self.complete = true;
                    self.part_finished = true;
                }
            }
            _ => {}
        }
        match (&event.fields.error, kind) {
            (Some(error), _) => self.set_error(error),
            (None, "error") => self.set_error(&event.as_error()),
            (None, _) => {}
        }
    }

    fn count_streamed(&mut self, bytes: u64) {
        self.streamed_bytes += bytes;
        self.part_finished &= bytes == 0;
    }

    /// Reads a response in one piece, or an object of a stream that has its shape.
    fn read_response(&mut self, fields: &ResponseFields) {
        if let Some(model) = &fields.model {
            self.model = Some(model.clone());
        }
        self.read_usage(&fields.usage);
    }

    /// Reads usage counts. Counts are totals so far, so a later count replaces an earlier one.
    fn read_usage(&mut self, usage: &ReportedUsage) {
        match self.route {
            GatewayRoute::Messages => {
                self.input = usage.input_tokens.or(self.input);
                self.output = usage.output_tokens.or(self.output);
                self.cache_read = usage.cache_read_input_tokens.unwrap_or(self.cache_read);
                self.cache_write = usage.cache_creation_input_tokens.unwrap_or(self.cache_write);
            }
            GatewayRoute::Chat | GatewayRoute::Responses => {
                let (input, output, details) = match self.route {
                    GatewayRoute::Chat => (usage.prompt_tokens, usage.completion_tokens, &usage.prompt_tokens_details),
                    _ => (usage.input_tokens, usage.output_tokens, &usage.input_tokens_details),
                };
                if let Some(input) = input {
                    // OpenAI's input count includes cached tokens. Here both are separate, as in
                    // Anthropic's format.
                    self.cache_read = details.cached_tokens.unwrap_or_default().min(input);
                    self.input = Some(input - self.cache_read);
                }
                self.output = output.or(self.output);
            }
            GatewayRoute::CountTokens | GatewayRoute::AnthropicModels | GatewayRoute::OpenaiModels => {}
        }
    }

    fn set_error(&mut self, error: &ProviderError) {
        let kind = error.kind.as_deref().filter(|kind| *kind != "error").or(error.code.as_deref()).unwrap_or_default();
        let message = error.message.as_deref().unwrap_or("no reason given");
        self.error = Some(StreamError { status: status_of_kind(kind), message: message.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(route: GatewayRoute, stream: &str, expected: (&str, u64, u64, u64, u64, bool)) {
        let mut meter = UsageMeter::new(route);
        meter.read_lines(stream.as_bytes());
        let got = meter.metered_usage("requested", 10);
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
    fn anthropic_stream_is_metered() {
        let end =
            "data:{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":77}}\r\ndata: {\"type\":\"message_stop\"}\n";
        check(GatewayRoute::Messages, &format!("{START}\n\n{end}"), ("claude-x-1", 9, 77, 5, 3, false));
        let text = r#"data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"0123456789"}}"#;
        check(GatewayRoute::Messages, &format!("{START}\n{text}\n"), ("claude-x-1", 9, 3, 5, 3, true));
        check(GatewayRoute::Messages, "event: ping\ndata: {\"type\":\"ping\"}\n\n", ("requested", 10, 0, 0, 0, true));
    }

    #[test]
    fn openai_streams_are_metered() {
        let chunk = r#"data: {"model":"gpt-5-1","choices":[{"delta":{"content":"12345"},"finish_reason":"stop"}],"usage":null}"#;
        let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":15}}}"#;
        check(GatewayRoute::Chat, &format!("{chunk}\n\n{usage}\n\ndata: [DONE]\n"), ("gpt-5-1", 5, 8, 15, 0, false));
        check(GatewayRoute::Chat, chunk, ("gpt-5-1", 10, 2, 0, 0, true));
        let completed = r#"data: {"type":"response.completed","response":{"model":"gpt-5","usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":10},"output_tokens":6}}}"#;
        let delta = r#"data: {"type":"response.output_text.delta","delta":"hello"}"#;
        check(GatewayRoute::Responses, &format!("{delta}\n\n{completed}\n"), ("gpt-5", 20, 6, 10, 0, false));
        check(GatewayRoute::Responses, delta, ("requested", 10, 2, 0, 0, true));
    }

    #[test]
    fn response_in_one_piece_is_metered() {
        let mut meter = UsageMeter::new(GatewayRoute::Messages);
        meter.read_body_part(br#"{"model":"claude-x","usage":{"input_tokens":4,"#);
        meter.read_body_part(br#""output_tokens":2}}"#);
        assert!(!meter.is_complete());
        meter.finish_body();
        let metered = meter.metered_usage("requested", 0);
        assert_eq!((metered.model.as_str(), metered.input_tokens, metered.output_tokens), ("claude-x", 4, 2));
        assert!(!metered.estimated && meter.is_complete());
    }

    #[test]
    fn usage_is_awaited_once_all_text_may_be_streamed() {
        fn check(route: GatewayRoute, lines: &[(&str, bool)]) {
            let mut meter = UsageMeter::new(route);
            for (line, expected) in lines {
                meter.read_lines(format!("data: {line}\n").as_bytes());
                assert_eq!(meter.awaits_only_usage(), *expected, "{line}");
            }
        }
        let text = r#"{"type":"content_block_delta","delta":{"text":"a"}}"#;
        let stop = r#"{"type":"content_block_stop","index":0}"#;
        let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#;
        let usage = r#"{"type":"message_delta","usage":{"output_tokens":2}}"#;
        let end = r#"{"type":"message_stop"}"#;
        check(
            GatewayRoute::Messages,
            &[(start, false), (text, false), (stop, true), (text, false), (stop, true), (usage, true), (end, false)],
        );
        let text = r#"{"choices":[{"delta":{"content":"a"},"finish_reason":null}]}"#;
        let stop = r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}"#;
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2}}"#;
        check(GatewayRoute::Chat, &[(text, false), (stop, true), (usage, false)]);
        let text = r#"{"type":"response.output_text.delta","delta":"a"}"#;
        let stop = r#"{"type":"response.output_text.done","text":"a"}"#;
        let end = r#"{"type":"response.completed","response":{"usage":{"input_tokens":2,"output_tokens":1}}}"#;
        check(GatewayRoute::Responses, &[(text, false), (stop, true), (text, false), (stop, true), (end, false)]);
    }

    /// Token probabilities: hundreds of thousands of values.
    fn logprobs() -> String {
        let token = r#"{"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[{"token":"b","bytes":null}]},"#;
        format!("[{}null]", token.repeat(40_000))
    }

    #[test]
    fn token_probabilities_do_not_affect_usage() {
        let check = |route: GatewayRoute, lines: &str, expected: (u64, u64, bool)| {
            let mut meter = UsageMeter::new(route);
            meter.read_lines(lines.as_bytes());
            let got = meter.metered_usage("requested", 10);
            assert_eq!((got.input_tokens, got.output_tokens, got.estimated), expected, "{route:?}");
            assert!(meter.is_complete(), "{route:?}");
        };
        let logprobs = logprobs();
        let choices = format!(
            r#"[{{"logprobs":{{"content":{logprobs}}},"delta":{{"content":"0123456789"}},"finish_reason":"stop"}}]"#
        );
        let usage = r#"{"prompt_tokens":7,"completion_tokens":40000}"#;
        check(GatewayRoute::Chat, &format!("data: {{\"choices\":{choices}}}\n"), (10, 3, true));
        check(GatewayRoute::Chat, &format!("data: {{\"choices\":{choices},\"usage\":{usage}}}\n"), (7, 40_000, false));
        let output = format!(r#"[{{"content":[{{"text":"a","logprobs":{logprobs}}}]}}]"#);
        let response = format!(r#"{{"output":{output},"usage":{{"input_tokens":7,"output_tokens":40000}}}}"#);
        let completed = format!("data: {{\"type\":\"response.completed\",\"response\":{response}}}\n");
        check(GatewayRoute::Responses, &completed, (7, 40_000, false));

        let mut meter = UsageMeter::new(GatewayRoute::Chat);
        meter.read_body_part(format!(r#"{{"choices":{choices},"usage":{usage}}}"#).as_bytes());
        meter.finish_body();
        let got = meter.metered_usage("requested", 10);
        assert_eq!((got.input_tokens, got.output_tokens, got.estimated), (7, 40_000, false));
    }

    #[test]
    fn unreadable_response_counts_by_size() {
        let check = |parts: &[&[u8]], output: u64| {
            let mut meter = UsageMeter::new(GatewayRoute::Chat);
            for part in parts {
                meter.read_body_part(part);
            }
            meter.finish_body();
            let got = meter.metered_usage("requested", 10);
            assert_eq!((got.input_tokens, got.output_tokens, got.estimated), (10, output, true));
            assert!(meter.is_complete());
        };
        check(&[&b"<html>12"[..]], 2);
        check(&[&br#"{"choices":[],"#[..], &br#""usage":null}"#[..]], 7);
        check(&[], 0);
        // Too large as a whole. Without its middle it would be JSON.
        let half = vec![b' '; MAX_BUFFERED_BODY as usize / 2 + 1];
        let usage = br#"{"usage":{"completion_tokens":1}}"#;
        check(&[&half[..], &half[..], &usage[..]], MAX_BUFFERED_BODY / 4 + 9);
    }

    #[test]
    fn unreadable_line_counts_only_without_streamed_text() {
        check(GatewayRoute::Messages, "data: {half\n", ("requested", 10, 2, 0, 0, true));
        check(GatewayRoute::Chat, "data: {half\n\ndata: [DONE]\n", ("requested", 10, 2, 0, 0, true));
        let delta = r#"data: {"type":"response.output_text.delta","delta":"hello you"}"#;
        check(GatewayRoute::Responses, &format!("data: {{half\n\n{delta}\n"), ("requested", 10, 3, 0, 0, true));
    }

    #[test]
    fn overlong_line_may_end_the_response() {
        let mut meter = UsageMeter::new(GatewayRoute::Responses);
        meter.read_partial_line(&[b'x'; 100]);
        meter.read_partial_line(&[b'x'; 88]);
        assert!(!meter.is_complete(), "the line has no end yet");
        // The rest of the line counts as its end, whatever its content.
        meter.read_lines(b"data: [DONE]\n\n");
        assert!(meter.is_complete());
        let got = meter.metered_usage("requested", 10);
        assert_eq!((got.output_tokens, got.estimated), (50, true));
        meter.read_lines(b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\n\n");
        assert!(!meter.is_complete(), "a further event arrived");
        assert_eq!(meter.metered_usage("requested", 10).output_tokens, 2);
    }

    #[test]
    fn errors_inside_a_stream_are_read() {
        fn check(route: GatewayRoute, line: &str, status: u16, message: &str) {
            let mut meter = UsageMeter::new(route);
            meter.read_lines(line.as_bytes());
            assert_eq!(meter.error(), Some(&StreamError { status, message: message.to_owned() }));
        }
        let anthropic = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        check(GatewayRoute::Messages, anthropic, 529, "Overloaded");
        check(GatewayRoute::Chat, r#"data: {"error":{"message":"boom","type":"server_error"}}"#, 500, "boom");
        check(GatewayRoute::Chat, r#"data: {"error":"out of memory"}"#, 500, "out of memory");
        check(
            GatewayRoute::Responses,
            r#"data: {"type":"error","code":"rate_limit_exceeded","message":"slow"}"#,
            429,
            "slow",
        );
        let failed = r#"data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"no"}}}"#;
        check(GatewayRoute::Responses, failed, 500, "no");
    }
}
