//! OpenAI chat completions, and the many services that imitate them.
//!
//! Formats: <https://platform.openai.com/docs/api-reference/chat-streaming>, and for the fields of
//! thinking models <https://openrouter.ai/docs/use-cases/reasoning-tokens> and
//! <https://api-docs.deepseek.com/guides/reasoning_model>.

use serde_json::Value;

use crate::{
    answer::{AnswerState, CallNames},
    json::{RawJson, lenient_object},
    reader::OpaqueSlot,
    text::TextJoiner,
};

lenient_object! {
    /// Chunk of a stream, or a whole completion.
    struct ChatChunk<'a> {
        kind: RawJson<'a> = b"type",
        object: RawJson<'a> = b"object",
        model: RawJson<'a> = b"model",
        choices: Vec<ChatChoice<'a>> = b"choices",
        usage: RawJson<'a> = b"usage",
        error: RawJson<'a> = b"error",
        /// Groq's place for the usage of a stream.
        x_groq: RawJson<'a> = b"x_groq",
        /// MiniMax's place for errors.
        base_resp: RawJson<'a> = b"base_resp",
        detail: RawJson<'a> = b"detail",
        error_message: RawJson<'a> = b"error_message",
    }
}

lenient_object! {
    struct ChatChoice<'a> {
        index: RawJson<'a> = b"index",
        delta: ChatDelta<'a> = b"delta",
        message: RawJson<'a> = b"message",
        finish_reason: RawJson<'a> = b"finish_reason",
        error: RawJson<'a> = b"error",
    }
}

lenient_object! {
    /// Delta of a choice, or its whole message.
    struct ChatDelta<'a> {
        content: RawJson<'a> = b"content",
        reasoning_content: RawJson<'a> = b"reasoning_content",
        reasoning: RawJson<'a> = b"reasoning",
        reasoning_text: RawJson<'a> = b"reasoning_text",
        reasoning_opaque: RawJson<'a> = b"reasoning_opaque",
        reasoning_details: RawJson<'a> = b"reasoning_details",
        thinking_blocks: RawJson<'a> = b"thinking_blocks",
        extra_content: RawJson<'a> = b"extra_content",
        refused: RawJson<'a> = b"refusal",
        tool_calls: RawJson<'a> = b"tool_calls",
        function_call: RawJson<'a> = b"function_call",
    }
}

lenient_object! {
    struct ChatCallPart<'a> {
        index: RawJson<'a> = b"index",
        id: RawJson<'a> = b"id",
        function: RawJson<'a> = b"function",
        custom: RawJson<'a> = b"custom",
        name: RawJson<'a> = b"name",
        arguments: RawJson<'a> = b"arguments",
        extra_content: RawJson<'a> = b"extra_content",
    }
}

lenient_object! {
    struct ChatFunction<'a> {
        name: RawJson<'a> = b"name",
        arguments: RawJson<'a> = b"arguments",
        /// Arguments of a custom tool: plain text.
        input: RawJson<'a> = b"input",
    }
}

lenient_object! {
    struct ContentPart<'a> {
        kind: RawJson<'a> = b"type",
        text: RawJson<'a> = b"text",
        thinking: RawJson<'a> = b"thinking",
        summary: RawJson<'a> = b"summary",
        refused: RawJson<'a> = b"refusal",
    }
}

lenient_object! {
    struct UsageHolder<'a> {
        usage: RawJson<'a> = b"usage",
        status_code: RawJson<'a> = b"status_code",
    }
}

/// Reader of chunks.
#[derive(Debug, Default)]
pub(crate) struct ChatReader {
    /// Index of the choice that is the answer. Further choices are counted only.
    choice: Option<u64>,
    /// Text fields that go back, joined.
    texts: Vec<(&'static str, String, TextJoiner)>,
    /// List fields that go back, with their pieces joined.
    lists: Vec<(&'static str, Vec<Value>)>,
    extra_content: Option<Value>,
}

impl ChatReader {
    pub(crate) fn read(&mut self, chunk: &ChatChunk, answer: &mut AnswerState) {
        answer.set_model(chunk.model);
        for choice in &chunk.choices {
            self.read_choice(choice, answer);
        }
        let groq: UsageHolder = chunk.x_groq.object();
        answer.usage.read_chat(groq.usage);
        answer.usage.read_chat(chunk.usage);
    }

    fn read_choice(&mut self, choice: &ChatChoice, answer: &mut AnswerState) {
        let index = choice.index.count().unwrap_or_default();
        if index == 0 {
            self.choice = Some(0);
        }
        if *self.choice.get_or_insert(index) != index {
            let delta = &choice.delta;
            let texts = [delta.content, delta.reasoning_content, delta.reasoning, delta.tool_calls];
            answer.count(texts.iter().map(|text| text.as_sent().len().saturating_sub(2)).sum());
            return;
        }
        answer.has_deltas |= choice.delta.is_object;
        self.read_delta(&choice.delta, answer);
        // Some services repeat the whole message at the end of the stream.
        if choice.message.is_object() && answer.is_blank() {
            self.read_delta(&choice.message.object(), answer);
        }
        answer.read_end(choice.finish_reason);
    }

    fn read_delta(&mut self, delta: &ChatDelta, answer: &mut AnswerState) {
        self.read_thinking(delta, answer);
        match delta.content.json_text() {
            Some(text) => answer.add_text(text),
            None if delta.content.is_list() => {
                delta.content.list().into_iter().for_each(|part| read_part(part.object(), answer));
            }
            None => {}
        }
        if let Some(text) = delta.refused.json_text()
            && !text.is_empty()
        {
            answer.add_refused_text(text);
        }
        if delta.tool_calls.is_list() {
            delta.tool_calls.list().into_iter().for_each(|part| read_call_part(part.object(), answer));
        } else if delta.tool_calls.is_object() {
            read_call_part(delta.tool_calls.object(), answer);
        }
        if delta.function_call.is_object() {
            read_call_part(ChatCallPart { function: delta.function_call, ..ChatCallPart::default() }, answer);
        }
        if delta.extra_content.is_object() && !answer.meters_only {
            self.extra_content = delta.extra_content.value();
        }
    }

    /// Reads the thinking. Some services send the same text in several fields: the first one shows.
    fn read_thinking(&mut self, delta: &ChatDelta, answer: &mut AnswerState) {
        let fields = [
            ("reasoning_content", delta.reasoning_content),
            ("reasoning", delta.reasoning),
            ("reasoning_text", delta.reasoning_text),
        ];
        let mut is_shown = false;
        for (name, field) in fields {
            let Some(text) = field.json_text().filter(|text| !text.is_empty()) else { continue };
            self.keep_text(name, field, answer);
            if !is_shown {
                answer.add_thinking(text);
            }
            is_shown = true;
        }
        self.keep_text("reasoning_opaque", delta.reasoning_opaque, answer);
        for (name, field) in
            [("reasoning_details", delta.reasoning_details), ("thinking_blocks", delta.thinking_blocks)]
        {
            for item in field.list() {
                if !is_shown {
                    let part: ContentPart = item.object();
                    let texts = [part.text, part.thinking, part.summary];
                    texts.into_iter().filter_map(RawJson::json_text).for_each(|text| answer.add_thinking(text));
                }
                self.keep_item(name, item, answer);
            }
        }
    }

    fn keep_text(&mut self, name: &'static str, field: RawJson, answer: &AnswerState) {
        let Some(text) = field.json_text().filter(|text| !text.is_empty() && !answer.meters_only) else { return };
        let at = self.texts.iter().position(|(kept, ..)| *kept == name).unwrap_or_else(|| {
            self.texts.push((name, String::new(), TextJoiner::default()));
            self.texts.len() - 1
        });
        let (_, joined, joiner) = &mut self.texts[at];
        joined.push_str(&joiner.join(text));
    }

    fn keep_item(&mut self, name: &'static str, item: RawJson, answer: &AnswerState) {
        let Some(item) = item.value().filter(|_| !answer.meters_only) else { return };
        let at = self.lists.iter().position(|(kept, _)| *kept == name).unwrap_or_else(|| {
            self.lists.push((name, Vec::new()));
            self.lists.len() - 1
        });
        merge_item(&mut self.lists[at].1, item);
    }

    pub(crate) fn finish(&mut self, answer: &mut AnswerState) {
        let mut add = |name: &str, value| answer.add_opaque(OpaqueSlot::MessageField(name.to_owned()), value);
        let has_details = self.lists.iter().any(|(name, _)| *name == "reasoning_details");
        for (name, mut text, mut joiner) in std::mem::take(&mut self.texts) {
            text.push_str(joiner.flush().unwrap_or_default());
            // OpenRouter: `reasoning` is the readable form of `reasoning_details`.
            if !(name == "reasoning" && has_details) {
                add(name, Value::String(text));
            }
        }
        for (name, items) in std::mem::take(&mut self.lists) {
            add(name, Value::Array(items));
        }
        if let Some(value) = self.extra_content.take() {
            add("extra_content", value);
        }
    }
}

/// Adds an item of a streamed list. A text that continues the item of the same type and index is
/// joined with it.
fn merge_item(items: &mut Vec<Value>, item: Value) {
    let is_text = !item["type"].as_str().is_some_and(|kind| kind.contains("encrypted") || kind.contains("redacted"));
    let continues = |kept: &&mut Value| ["type", "index"].iter().all(|key| kept.get(key) == item.get(key));
    let kept = items.last_mut().filter(|_| is_text && item.is_object()).filter(continues);
    let Some(Value::Object(kept)) = kept else { return items.push(item) };
    let Value::Object(fields) = item else { return };
    for (name, value) in fields {
        match (kept.get_mut(&name), value) {
            (Some(Value::String(text)), Value::String(more))
                if matches!(name.as_str(), "text" | "thinking" | "summary") =>
            {
                text.push_str(&more);
            }
            (_, Value::Null) => {}
            (_, value) => {
                kept.insert(name, value);
            }
        }
    }
}

/// Reads a part of a content that is a list: text, or Mistral's list of thinking texts.
fn read_part(part: ContentPart, answer: &mut AnswerState) {
    match part.kind.text().as_deref() {
        None | Some("text" | "output_text") => {
            if let Some(text) = part.text.json_text() {
                answer.add_text(text);
            }
        }
        Some("thinking" | "reasoning") => {
            let texts = part.thinking.list().into_iter().map(|item| item.object::<ContentPart>().text);
            for text in texts.chain([part.thinking, part.text]).filter_map(RawJson::json_text) {
                answer.add_thinking(text);
            }
        }
        Some("refusal") => {
            if let Some(text) = part.refused.json_text() {
                answer.add_refused_text(text);
            }
        }
        Some(_) => {}
    }
}

fn read_call_part(part: ChatCallPart, answer: &mut AnswerState) {
    if !part.is_object && !part.function.is_present() {
        return;
    }
    let holder = if part.function.is_object() { part.function } else { part.custom };
    let function: ChatFunction = holder.object();
    let name = function.name.text().or_else(|| part.name.text()).unwrap_or_default();
    let index = part.index.as_sent().trim_matches('"');
    let index = Some(index).filter(|index| !matches!(*index, "" | "null"));
    let id = part.id.text_or_number().unwrap_or_default();
    let arguments = [function.arguments, function.input, part.arguments].into_iter().find(|field| field.is_present());
    if answer.call_count() == 0 && name.is_empty() && id.is_empty() && arguments.is_none() {
        return;
    }
    let call = answer.find_call(CallNames { index, id, name });
    if let Some(arguments) = arguments {
        answer.add_argument_value(call, arguments);
    }
    if part.extra_content.is_object() {
        answer.add_opaque_json(OpaqueSlot::CallField { call, field: "extra_content".to_owned() }, part.extra_content);
    }
}

impl<'a> ChatChunk<'a> {
    /// Returns true if the chunk is an error that stands outside the field `error`.
    pub(crate) fn is_error(&self) -> bool {
        let status: UsageHolder = self.base_resp.object();
        let has_words = self.choices.is_empty() && (self.detail.is_present() || self.error_message.is_present());
        has_words
            || self.object.text().as_deref() == Some("error")
            || status.status_code.count().is_some_and(|code| code != 0)
    }

    pub(crate) fn choice_error(&self) -> RawJson<'a> {
        self.choices.iter().map(|choice| choice.error).find(|error| error.is_present()).unwrap_or_default()
    }
}
