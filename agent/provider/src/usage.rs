//! Usage of one answer, under the names of all formats.

use crate::json::RawJson;

/// Token counts that a provider reported. Totals, so a later count replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerUsage {
    /// Input tokens without cache reads and cache writes.
    pub input_tokens: Option<u64>,
    /// Output tokens, thinking included.
    pub output_tokens: Option<u64>,
    pub cache_read_tokens: u64,
    /// Written to a cache of five minutes, or of unknown lifetime.
    pub cache_write_tokens: u64,
    /// Written to a cache of one hour.
    pub cache_write_1h_tokens: u64,
    /// Sum of the top-level fields `*_tokens` that no format defines.
    pub unknown_tokens: u64,
    /// Uses of provider-side tools, by the provider's name of the count, such as
    /// `web_search_requests`. For OpenAI Responses: the type of the output item, such as
    /// `web_search_call`.
    pub server_tool_uses: Vec<(String, u64)>,
}

/// Counts of one usage object. Some services report the names of several formats at once for the
/// same usage.
#[derive(Debug, Default)]
struct ReportedCounts {
    input: Option<u64>,
    prompt: Option<u64>,
    output: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    /// Thinking tokens that a service reports beside the output.
    reasoning: u64,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    cache_write_5m: Option<u64>,
    cache_write_1h: Option<u64>,
    /// Input of provider-side tools in Gemini's format.
    tool_prompt: u64,
    unknown: u64,
    tool_uses: Vec<(String, u64)>,
}

impl AnswerUsage {
    /// Reads Anthropic's usage: input and cache are counted apart.
    pub(crate) fn read_messages(&mut self, usage: RawJson) {
        let counts = ReportedCounts::read(usage);
        // Some services repeat the usage at the end, without the counts from its start.
        replace(&mut self.input_tokens, counts.input.or(counts.prompt));
        replace(&mut self.output_tokens, counts.output.or(counts.completion));
        self.set_cache(&counts);
        self.set_rest(counts);
    }

    /// Reads the usage of chat completions: the input includes what the cache held.
    pub(crate) fn read_chat(&mut self, usage: RawJson) {
        let counts = ReportedCounts::read(usage);
        let (input, output) = (counts.prompt.or(counts.input), counts.completion.or(counts.output));
        self.set_inclusive(input, output, counts);
    }

    /// Reads the usage of OpenAI responses.
    pub(crate) fn read_responses(&mut self, usage: RawJson) {
        let counts = ReportedCounts::read(usage);
        let (input, output) = (counts.input.or(counts.prompt), counts.output.or(counts.completion));
        self.set_inclusive(input, output, counts);
    }

    /// Reads Gemini's usage: thinking and input of provider-side tools are counted apart.
    pub(crate) fn read_gemini(&mut self, usage: RawJson) {
        let counts = ReportedCounts::read(usage);
        let input = counts.prompt.map(|prompt| prompt.saturating_add(counts.tool_prompt));
        let output = match counts.completion {
            None if counts.reasoning == 0 => None,
            output => Some(output.unwrap_or_default().saturating_add(counts.reasoning)),
        };
        self.set_inclusive(input, output, ReportedCounts { total: None, ..counts });
    }

    pub(crate) fn add_server_tool_use(&mut self, name: &str) {
        match self.server_tool_uses.iter_mut().find(|(used, _)| used == name) {
            Some((_, count)) => *count += 1,
            None => self.server_tool_uses.push((name.to_owned(), 1)),
        }
    }

    fn set_inclusive(&mut self, input: Option<u64>, output: Option<u64>, counts: ReportedCounts) {
        self.set_cache(&counts);
        if let Some(input) = input {
            self.cache_read_tokens = self.cache_read_tokens.min(input);
            let rest = input - self.cache_read_tokens;
            self.cache_write_tokens = self.cache_write_tokens.min(rest);
            let rest = rest - self.cache_write_tokens;
            self.cache_write_1h_tokens = self.cache_write_1h_tokens.min(rest);
            self.input_tokens = Some(rest - self.cache_write_1h_tokens);
        }
        if let Some(mut output) = output {
            // xAI: the output does not include the thinking, but the total does.
            let with_thinking = input.unwrap_or_default().saturating_add(output).saturating_add(counts.reasoning);
            if counts.total.is_some_and(|total| total >= with_thinking) {
                output = output.saturating_add(counts.reasoning);
            }
            self.output_tokens = Some(output);
        }
        self.set_rest(counts);
    }

    fn set_cache(&mut self, counts: &ReportedCounts) {
        if let Some(read) = counts.cache_read {
            self.cache_read_tokens = self.cache_read_tokens.max(read);
        }
        let one_hour = counts.cache_write_1h.unwrap_or_default();
        let five_minutes = counts.cache_write.map(|all| all.saturating_sub(one_hour)).max(counts.cache_write_5m);
        self.cache_write_tokens = self.cache_write_tokens.max(five_minutes.unwrap_or_default());
        self.cache_write_1h_tokens = self.cache_write_1h_tokens.max(one_hour);
    }

    fn set_rest(&mut self, counts: ReportedCounts) {
        self.unknown_tokens = self.unknown_tokens.max(counts.unknown);
        for (name, count) in counts.tool_uses {
            match self.server_tool_uses.iter_mut().find(|(used, _)| *used == name) {
                Some((_, used)) => *used = count,
                None => self.server_tool_uses.push((name, count)),
            }
        }
    }
}

/// Replaces a total by a later one. A zero replaces nothing.
fn replace(total: &mut Option<u64>, later: Option<u64>) {
    if later.is_some_and(|later| later > 0 || total.is_none()) {
        *total = later;
    }
}

impl ReportedCounts {
    fn read(usage: RawJson) -> ReportedCounts {
        let mut counts = ReportedCounts::default();
        for (name, value) in usage.fields() {
            counts.read_field(&name, value);
        }
        counts
    }

    fn read_field(&mut self, name: &str, value: RawJson) {
        let count = value.count();
        match name {
            "input_tokens" => set(&mut self.input, count),
            "prompt_tokens" | "promptTokenCount" => set(&mut self.prompt, count),
            "output_tokens" => set(&mut self.output, count),
            "completion_tokens" | "candidatesTokenCount" => set(&mut self.completion, count),
            "total_tokens" | "totalTokenCount" => set(&mut self.total, count),
            "reasoning_tokens" | "thoughtsTokenCount" => self.reasoning = self.reasoning.max(count.unwrap_or_default()),
            "toolUsePromptTokenCount" => self.tool_prompt = count.unwrap_or_default(),
            "cache_read_input_tokens" | "prompt_cache_hit_tokens" | "cached_tokens" | "cachedContentTokenCount" => {
                self.cache_read = self.cache_read.max(count);
            }
            "cache_creation_input_tokens" => self.cache_write = self.cache_write.max(count),
            "cache_creation" => {
                for (name, value) in value.fields() {
                    match name.as_str() {
                        "ephemeral_5m_input_tokens" => self.cache_write_5m = value.count(),
                        "ephemeral_1h_input_tokens" => self.cache_write_1h = value.count(),
                        _ => {}
                    }
                }
            }
            "prompt_tokens_details" | "input_tokens_details" => {
                for (name, value) in value.fields() {
                    match name.as_str() {
                        "cached_tokens" => self.cache_read = self.cache_read.max(value.count()),
                        "cache_write_tokens" | "cache_creation_tokens" => {
                            self.cache_write = self.cache_write.max(value.count());
                        }
                        _ => {}
                    }
                }
            }
            "completion_tokens_details" | "output_tokens_details" => {
                for (_, value) in value.fields().iter().filter(|(name, _)| name == "reasoning_tokens") {
                    self.reasoning = self.reasoning.max(value.count().unwrap_or_default());
                }
            }
            "server_tool_use" => {
                for (name, value) in value.fields() {
                    self.add_tool_use(name, value.count());
                }
            }
            // Counts of searches, by Perplexity and xAI.
            "num_search_queries" | "num_sources_used" => self.add_tool_use(name.to_owned(), count),
            // The input that the cache did not hold.
            "prompt_cache_miss_tokens" => {}
            name if name.ends_with("_tokens") || name.ends_with("TokenCount") => {
                self.unknown = self.unknown.saturating_add(count.unwrap_or_default());
            }
            _ => {}
        }
    }

    fn add_tool_use(&mut self, name: String, count: Option<u64>) {
        if let Some(count) = count.filter(|count| *count > 0) {
            self.tool_uses.push((name, count));
        }
    }
}

fn set(field: &mut Option<u64>, count: Option<u64>) {
    *field = count.or(*field);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse_json;

    fn raw(json: &str) -> RawJson<'_> {
        parse_json(json).expect("the text is JSON")
    }

    type ReadUsage = fn(&mut AnswerUsage, RawJson);

    /// Reads usage objects one after the other: input, output, cache read, written for 5 min, 1 h.
    fn check(read: ReadUsage, reports: &[&str], expected: (Option<u64>, Option<u64>, u64, u64, u64)) -> AnswerUsage {
        let mut usage = AnswerUsage::default();
        reports.iter().for_each(|report| read(&mut usage, raw(report)));
        let AnswerUsage { input_tokens: input, output_tokens: output, cache_read_tokens: read, .. } = usage;
        let got = (input, output, read, usage.cache_write_tokens, usage.cache_write_1h_tokens);
        assert_eq!(got, expected, "{reports:?}");
        usage
    }

    #[test]
    fn anthropic_usage_is_read() {
        let start = r#"{"input_tokens":9,"cache_read_input_tokens":5,"cache_creation_input_tokens":30,"output_tokens":1,
            "cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"service_tier":"standard"}"#;
        let end = r#"{"output_tokens":77,"server_tool_use":{"web_search_requests":2,"web_fetch_requests":0}}"#;
        let usage = check(AnswerUsage::read_messages, &[start, end], (Some(9), Some(77), 5, 10, 20));
        assert_eq!(usage.server_tool_uses, [("web_search_requests".to_owned(), 2)]);
        let no_split = r#"{"input_tokens":1,"output_tokens":2,"cache_creation_input_tokens":3}"#;
        check(AnswerUsage::read_messages, &[no_split], (Some(1), Some(2), 0, 3, 0));
        let zeros = r#"{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":3}"#;
        check(AnswerUsage::read_messages, &[start, zeros], (Some(9), Some(3), 5, 10, 20));
    }

    #[test]
    fn openai_usage_excludes_the_cache_from_the_input() {
        let details = r#"{"prompt_tokens":20,"completion_tokens":8,"total_tokens":28,"prompt_tokens_details":{"cached_tokens":15},
            "completion_tokens_details":{"reasoning_tokens":6}}"#;
        check(AnswerUsage::read_chat, &[details], (Some(5), Some(8), 15, 0, 0));
        let deepseek =
            r#"{"prompt_tokens":20,"completion_tokens":8,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":16}"#;
        check(AnswerUsage::read_chat, &[deepseek], (Some(16), Some(8), 4, 0, 0));
        let openrouter = r#"{"prompt_tokens":20,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":6}}"#;
        check(AnswerUsage::read_chat, &[openrouter], (Some(10), Some(8), 4, 6, 0));
        let xai = r#"{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}"#;
        check(AnswerUsage::read_chat, &[xai], (Some(32), Some(103), 0, 0, 0));
        let responses = r#"{"input_tokens":30,"input_tokens_details":{"cached_tokens":10},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":36}"#;
        check(AnswerUsage::read_responses, &[responses], (Some(20), Some(6), 10, 0, 0));
        check(
            AnswerUsage::read_chat,
            &["null", r#"{"prompt_tokens":"7","completion_tokens":2.0}"#],
            (Some(7), Some(2), 0, 0, 0),
        );
        check(AnswerUsage::read_chat, &[r#"{"prompt_tokens":-1,"completion_tokens":[]}"#, "7"], (None, None, 0, 0, 0));
    }

    #[test]
    fn gemini_usage_includes_thoughts_and_tool_input() {
        let usage = r#"{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":7,"thoughtsTokenCount":11,
            "toolUsePromptTokenCount":5,"totalTokenCount":123,"promptTokensDetails":[{"modality":"TEXT","tokenCount":100}]}"#;
        let usage = check(AnswerUsage::read_gemini, &[usage], (Some(45), Some(18), 60, 0, 0));
        assert_eq!(usage.unknown_tokens, 0);
        check(AnswerUsage::read_gemini, &[r#"{"promptTokenCount":4,"totalTokenCount":4}"#], (Some(4), None, 0, 0, 0));
    }

    #[test]
    fn unknown_token_counts_are_added_up() {
        let counts = r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"citation_tokens":40,"video_tokens":"2","num_search_queries":3,
            "prompt_tokens_details":{"odd_tokens":5}}"#;
        let usage = check(AnswerUsage::read_chat, &[counts, counts], (Some(1), Some(2), 0, 0, 0));
        assert_eq!(
            (usage.unknown_tokens, &usage.server_tool_uses[..]),
            (42, &[("num_search_queries".to_owned(), 3)][..])
        );
    }

    #[test]
    fn absurd_counts_do_not_overflow() {
        let huge = r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615,"total_tokens":18446744073709551615,
            "a_tokens":18446744073709551615,"b_tokens":9,"prompt_tokens_details":{"cached_tokens":18446744073709551615}}"#;
        check(AnswerUsage::read_chat, &[huge], (Some(0), Some(u64::MAX), u64::MAX, 0, 0));
    }
}
