//! Usage meter: estimates what a provider's answer did not report. Pure: fed with bytes, queried at
//! the end. [`AnswerReader`] reads the answer.

use greenroom_provider::{AnswerReader, AnswerUsage, ProviderError, verdict::ChargeRule};

use super::{MeteredUsage, route::GatewayRoute};

/// Average bytes of text per token. For answers that were cut off before their usage, or are
/// unreadable.
const BYTES_PER_TOKEN: u64 = 4;

/// Longest line or answer in one piece that is read, bytes. Of a longer one only the size counts.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// Estimates the tokens of a request of `bytes` bytes.
pub(super) fn estimate_tokens(bytes: usize) -> u64 {
    bytes as u64 / BYTES_PER_TOKEN
}

/// Meter of one answer.
#[derive(Debug)]
pub(super) struct UsageMeter {
    /// `None` for a route that is not metered.
    reader: Option<AnswerReader>,
    /// Size of an answer in one piece. Counts only if nothing else does.
    body_bytes: u64,
    /// False if answers of the route have no output tokens.
    has_output: bool,
}

impl UsageMeter {
    pub(super) fn new(route: GatewayRoute) -> UsageMeter {
        UsageMeter::with_limit(route, MAX_EVENT_BYTES)
    }

    fn with_limit(route: GatewayRoute, max_event_bytes: usize) -> UsageMeter {
        let reader = route.wire_format().map(|format| AnswerReader::for_metering(format, max_event_bytes));
        UsageMeter { reader, body_bytes: 0, has_output: route != GatewayRoute::Embeddings }
    }

    /// Reads a part of a stream, cut anywhere.
    pub(super) fn read_stream(&mut self, part: &[u8]) {
        if let Some(reader) = &mut self.reader {
            // A reader for metering makes no pieces.
            reader.read(part, &mut Vec::new());
        }
    }

    /// Reads a part of an answer in one piece.
    pub(super) fn read_body_part(&mut self, part: &[u8]) {
        self.body_bytes += part.len() as u64;
        self.read_stream(part);
    }

    /// Ends an answer that arrived to its end.
    pub(super) fn finish(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.finish(false, &mut Vec::new());
        }
    }

    /// Returns true if a real piece of the answer was read, or something unreadable. Comments,
    /// pings and the head of a message are no real pieces.
    pub(super) fn has_begun(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.has_content() || reader.unread_bytes() > 0)
    }

    /// Returns true if the provider ended its answer, as far as can be determined. A stream that
    /// ends before is broken, even if the connection closed cleanly.
    pub(super) fn is_complete(&self) -> bool {
        self.reader.as_ref().is_some_and(AnswerReader::is_complete)
    }

    pub(super) fn error(&self) -> Option<&ProviderError> {
        self.reader.as_ref().and_then(AnswerReader::error)
    }

    /// Returns true if all text may have been streamed and the usage is still missing.
    pub(super) fn awaits_only_usage(&self) -> bool {
        self.reader.as_ref().is_some_and(AnswerReader::awaits_only_usage)
    }

    /// Returns true if the answer costs something. A provider that reports an error charges only
    /// what it reports, or what it streamed before.
    pub(super) fn is_charged(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| {
            let usage = reader.usage();
            let is_reported = usage.input_tokens.is_some() || usage.output_tokens.is_some();
            is_reported || reader.streamed_bytes() > 0 || reader.verdict().rule().charge == ChargeRule::Estimate
        })
    }

    /// Returns the usage so far. Unreported counts are estimates: output from the streamed bytes,
    /// input as `input` tokens.
    pub(super) fn metered_usage(&self, requested_model: &str, input: u64) -> MeteredUsage {
        let none = AnswerUsage::default();
        let (reader, usage) = (self.reader.as_ref(), self.reader.as_ref().map_or(&none, AnswerReader::usage));
        let streamed = reader.map_or(0, AnswerReader::streamed_bytes);
        let received =
            if streamed > 0 { streamed } else { reader.map_or(0, AnswerReader::unread_bytes).max(self.body_bytes) };
        let has_reported_output = !self.has_output || self.is_complete() && usage.output_tokens.is_some();
        let is_reported = usage.input_tokens.is_some() && has_reported_output;
        MeteredUsage {
            model: reader.and_then(AnswerReader::model).unwrap_or(requested_model).to_owned(),
            input_tokens: usage.input_tokens.unwrap_or(input),
            output_tokens: match usage.output_tokens {
                _ if !self.has_output => 0,
                Some(reported) if self.is_complete() => reported,
                so_far => so_far.unwrap_or_default().max(received.div_ceil(BYTES_PER_TOKEN)),
            },
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            cache_write_1h_tokens: usage.cache_write_1h_tokens,
            unknown_tokens: usage.unknown_tokens,
            server_tool_uses: usage.server_tool_uses.clone(),
            estimated: !is_reported,
            ..MeteredUsage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(route: GatewayRoute, stream: &str, expected: (&str, u64, u64, u64, u64, bool)) {
        let mut meter = UsageMeter::new(route);
        meter.read_stream(stream.as_bytes());
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
        check(GatewayRoute::Chat, &format!("{chunk}\n"), ("gpt-5-1", 10, 2, 0, 0, true));
        let completed = r#"data: {"type":"response.completed","response":{"model":"gpt-5","usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":10},"output_tokens":6}}}"#;
        let delta = r#"data: {"type":"response.output_text.delta","delta":"hello"}"#;
        check(GatewayRoute::Responses, &format!("{delta}\n\n{completed}\n"), ("gpt-5", 20, 6, 10, 0, false));
        check(GatewayRoute::Responses, &format!("{delta}\n"), ("requested", 10, 2, 0, 0, true));
    }

    #[test]
    fn response_in_one_piece_is_metered() {
        let mut meter = UsageMeter::new(GatewayRoute::Messages);
        meter.read_body_part(br#"{"type":"message","model":"claude-x","content":[{"type":"text","text":"Hi"}],"#);
        assert!(!meter.is_complete());
        meter.read_body_part(br#""stop_reason":"end_turn","usage":{"input_tokens":4,"output_tokens":2}}"#);
        meter.finish();
        let metered = meter.metered_usage("requested", 0);
        assert_eq!((metered.model.as_str(), metered.input_tokens, metered.output_tokens), ("claude-x", 4, 2));
        assert!(!metered.estimated && meter.is_complete());
    }

    #[test]
    fn usage_is_awaited_once_all_text_may_be_streamed() {
        fn check(route: GatewayRoute, lines: &[(&str, bool)]) {
            let mut meter = UsageMeter::new(route);
            for (line, expected) in lines {
                meter.read_stream(format!("data: {line}\n").as_bytes());
                assert_eq!(meter.awaits_only_usage(), *expected, "{line}");
            }
        }
        let text = r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#;
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
            meter.read_stream(lines.as_bytes());
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
        meter.finish();
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
            meter.finish();
            let got = meter.metered_usage("requested", 10);
            assert_eq!((got.input_tokens, got.output_tokens, got.estimated), (10, output, true));
            assert_eq!(meter.is_complete(), !parts.is_empty());
        };
        check(&[&b"<html>12"[..]], 2);
        check(&[&br#"{"choices":[],"#[..], &br#""usage":null}"#[..]], 7);
        check(&[], 0);
        // Too large as a whole. Without its middle it would be JSON.
        let (start, end) = (br#"{"x":""#, br#"","usage":{"completion_tokens":1}}"#);
        let half = vec![b'x'; MAX_EVENT_BYTES / 2 + 1];
        let bytes = (start.len() + 2 * half.len() + end.len()) as u64;
        check(&[&start[..], &half, &half, &end[..]], bytes.div_ceil(BYTES_PER_TOKEN));
    }

    #[test]
    fn unreadable_line_counts_only_without_streamed_text() {
        check(GatewayRoute::Messages, "data: {half\n\n", ("requested", 10, 2, 0, 0, true));
        check(GatewayRoute::Chat, "data: {half\n\ndata: [DONE]\n", ("requested", 10, 2, 0, 0, true));
        let delta = r#"data: {"type":"response.output_text.delta","delta":"hello you"}"#;
        check(GatewayRoute::Responses, &format!("data: {{half\n\n{delta}\n"), ("requested", 10, 3, 0, 0, true));
    }

    #[test]
    fn overlong_line_may_end_the_response() {
        let mut meter = UsageMeter::with_limit(GatewayRoute::Responses, 64);
        meter.read_stream(b"data: {");
        meter.read_stream(&[b'x'; 100]);
        meter.read_stream(&[b'x'; 81]);
        assert!(!meter.is_complete(), "the line has no end yet");
        // The rest of the line counts as its end, whatever its content.
        meter.read_stream(b"data: [DONE]\n\n");
        assert!(meter.is_complete());
        let got = meter.metered_usage("requested", 10);
        assert_eq!((got.output_tokens, got.estimated), (50, true));
        meter.read_stream(b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\n\n");
        assert!(!meter.is_complete(), "a further event arrived");
        assert_eq!(meter.metered_usage("requested", 10).output_tokens, 2);
    }

    #[test]
    fn errors_inside_a_stream_are_read() {
        fn check(route: GatewayRoute, line: &str, status: u16, message: &str) {
            let mut meter = UsageMeter::new(route);
            meter.read_stream(format!("{line}\n\n").as_bytes());
            let error = meter.error().expect("the line is an error");
            assert_eq!((error.status, error.message.as_str()), (status, message));
            assert!(!meter.is_charged(), "a rejected request costs nothing");
        }
        let anthropic = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        check(GatewayRoute::Messages, anthropic, 529, "Overloaded");
        check(GatewayRoute::Chat, r#"data: {"error":{"message":"boom","type":"server_error"}}"#, 500, "boom");
        check(GatewayRoute::Chat, r#"data: {"error":{"message":"slow","code":429}}"#, 429, "slow");
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

    #[test]
    fn charge_follows_the_verdict() {
        let check = |stream: &str, expected: bool| {
            let mut meter = UsageMeter::new(GatewayRoute::Messages);
            meter.read_stream(stream.as_bytes());
            meter.finish();
            assert_eq!(meter.is_charged(), expected, "{stream}");
        };
        let error = "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}\n\n";
        let text = "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n";
        check("data: {\"type\":\"ping\"}\n\n", true);
        check(error, false);
        check(&format!("{text}{error}"), true);
        check(&format!("{START}\n\n{error}"), true);
        check(text, true);
    }

    #[test]
    fn json_in_place_of_a_stream_is_metered() {
        let message = r#"[{"index":0,"message":{"role":"assistant","content":"whole answer"},"finish_reason":"stop"}]"#;
        let usage = r#"{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}"#;
        let mut meter = UsageMeter::new(GatewayRoute::Chat);
        meter.read_stream(format!(r#"{{"model":"fake","choices":{message},"usage":{usage}}}"#).as_bytes());
        meter.finish();
        let got = meter.metered_usage("requested", 10);
        assert!(meter.is_complete() && meter.has_begun());
        assert_eq!((got.input_tokens, got.output_tokens, got.estimated), (5, 2, false));
    }
}
