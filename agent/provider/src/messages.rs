//! Anthropic messages.
//!
//! Format: <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use serde_json::Value;

use crate::{
    answer::{AnswerState, CallNames},
    json::{RawJson, lenient_object},
    reader::OpaqueSlot,
    text::TextJoiner,
    verdict::EndMark,
};

lenient_object! {
    /// Event of a stream, or a whole message.
    struct MessagesEvent<'a> {
        kind: RawJson<'a> = b"type",
        index: RawJson<'a> = b"index",
        message: RawJson<'a> = b"message",
        content_block: RawJson<'a> = b"content_block",
        delta: MessagesDelta<'a> = b"delta",
        usage: RawJson<'a> = b"usage",
        error: RawJson<'a> = b"error",
        model: RawJson<'a> = b"model",
        content: RawJson<'a> = b"content",
        stop_reason: RawJson<'a> = b"stop_reason",
        stop_details: RawJson<'a> = b"stop_details",
    }
}

lenient_object! {
    struct MessagesDelta<'a> {
        kind: RawJson<'a> = b"type",
        text: RawJson<'a> = b"text",
        thinking: RawJson<'a> = b"thinking",
        signature: RawJson<'a> = b"signature",
        partial_json: RawJson<'a> = b"partial_json",
        stop_reason: RawJson<'a> = b"stop_reason",
        stop_details: RawJson<'a> = b"stop_details",
    }
}

lenient_object! {
    struct MessagesBlock<'a> {
        kind: RawJson<'a> = b"type",
        text: RawJson<'a> = b"text",
        thinking: RawJson<'a> = b"thinking",
        id: RawJson<'a> = b"id",
        name: RawJson<'a> = b"name",
        input: RawJson<'a> = b"input",
    }
}

lenient_object! {
    struct StopDetails<'a> {
        explanation: RawJson<'a> = b"explanation",
        category: RawJson<'a> = b"category",
    }
}

/// Reader of events.
#[derive(Debug, Default)]
pub(crate) struct MessagesReader {
    /// Blocks that began and did not end.
    open: Vec<OpenBlock>,
}

/// Content block in progress.
#[derive(Debug)]
struct OpenBlock {
    index: String,
    kind: BlockKind,
    /// Block as it began. Kept for blocks that go back.
    value: Value,
    thinking: String,
    joiner: TextJoiner,
    signature: String,
    input: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    Call(usize),
    /// Block that goes back as it came.
    Opaque,
    /// Block of an unknown type, which is skipped.
    Unknown,
}

impl MessagesReader {
    pub(crate) fn read(&mut self, event: &MessagesEvent, answer: &mut AnswerState) {
        match event.kind.text().as_deref() {
            Some("message_start") => {
                let message: MessagesEvent = event.message.object();
                answer.set_model(message.model);
                answer.usage.read_messages(message.usage);
                answer.has_deltas = true;
            }
            Some("content_block_start") => self.begin_block(event.index, event.content_block, answer),
            Some("content_block_delta") => self.read_delta(event.index, &event.delta, answer),
            Some("content_block_stop") => self.end_block(event.index, answer),
            Some("message_delta") => {
                answer.usage.read_messages(event.usage);
                read_stop(event.delta.stop_reason, event.delta.stop_details, answer);
            }
            Some("message_stop") => answer.set_end(EndMark::Complete),
            // Whole message. Its content may be missing in a service that imitates the format.
            Some("message") | None if event.content.is_list() || event.stop_reason.is_present() => {
                answer.set_model(event.model);
                answer.usage.read_messages(event.usage);
                for block in event.content.list() {
                    self.begin_block(RawJson::default(), block, answer);
                    self.end_block(RawJson::default(), answer);
                }
                if !read_stop(event.stop_reason, event.stop_details, answer) {
                    answer.set_end(EndMark::Complete);
                }
            }
            // Message without content, by a service that imitates the format.
            Some("message") | None => {
                answer.set_model(event.model);
                answer.usage.read_messages(event.usage);
            }
            _ => {}
        }
    }

    fn begin_block(&mut self, index: RawJson, block: RawJson, answer: &mut AnswerState) {
        let MessagesBlock { kind, text, thinking, id, name, input, .. } = block.object();
        let kind = match kind.text().as_deref() {
            Some("text") => BlockKind::Text,
            Some("thinking") => BlockKind::Thinking,
            Some("tool_use") => {
                let names = CallNames {
                    index: None,
                    id: id.text_or_number().unwrap_or_default(),
                    name: name.text().unwrap_or_default(),
                };
                let call = answer.begin_call(names);
                answer.set_initial_arguments(call, input);
                BlockKind::Call(call)
            }
            Some("redacted_thinking" | "server_tool_use" | "mcp_tool_use" | "compaction") => BlockKind::Opaque,
            Some(kind) if kind.ends_with("_tool_result") => BlockKind::Opaque,
            _ => BlockKind::Unknown,
        };
        let goes_back = matches!(kind, BlockKind::Thinking | BlockKind::Opaque) && !answer.meters_only;
        let mut open = OpenBlock {
            index: index.as_sent().to_owned(),
            kind,
            value: goes_back.then(|| block.value()).flatten().unwrap_or_default(),
            thinking: String::new(),
            joiner: TextJoiner::default(),
            signature: String::new(),
            input: String::new(),
        };
        match kind {
            BlockKind::Text => open.add_text(text, answer),
            BlockKind::Thinking => open.add_thinking(thinking, answer),
            BlockKind::Call(_) | BlockKind::Opaque | BlockKind::Unknown => {}
        }
        self.open.push(open);
    }

    /// Returns the newest open block with this index. A service that sends no index continues the
    /// newest one.
    fn position(&self, index: RawJson) -> Option<usize> {
        let index = index.as_sent();
        self.open.iter().rposition(|block| index.is_empty() || block.index.is_empty() || block.index == index)
    }

    fn read_delta(&mut self, index: RawJson, delta: &MessagesDelta, answer: &mut AnswerState) {
        answer.has_deltas = true;
        let block = self.position(index);
        let is_of =
            |block: Option<usize>, open: &[OpenBlock], kind: BlockKind| block.is_some_and(|at| open[at].kind == kind);
        if is_of(block, &self.open, BlockKind::Unknown) {
            return;
        }
        let kind = delta.kind.text();
        let is_kind = |name: &str| kind.as_deref().is_none_or(|kind| kind == name);
        // A delta counts even if the start of its block was lost.
        let mut stray = OpenBlock::stray();
        let block = match block {
            Some(at) => &mut self.open[at],
            None => &mut stray,
        };
        if is_kind("text_delta") {
            block.add_text(delta.text, answer);
        }
        if is_kind("thinking_delta") {
            block.add_thinking(delta.thinking, answer);
        }
        if is_kind("signature_delta")
            && let Some(signature) = delta.signature.text()
        {
            block.signature += &signature;
        }
        if is_kind("input_json_delta")
            && let Some(json) = delta.partial_json.json_text()
        {
            match block.kind {
                BlockKind::Call(call) => answer.add_arguments(call, json),
                BlockKind::Opaque if !answer.meters_only => block.input += &json.into_lossy(),
                BlockKind::Opaque | BlockKind::Text | BlockKind::Thinking | BlockKind::Unknown => {
                    answer.count(json.len());
                }
            }
        }
    }

    fn end_block(&mut self, index: RawJson, answer: &mut AnswerState) {
        answer.part_finished = true;
        let Some(at) = self.position(index) else { return };
        self.open.remove(at).end(answer);
    }

    /// Ends blocks that the provider left open. A thinking block without its end has no signature,
    /// and does not go back.
    pub(crate) fn finish(&mut self, answer: &mut AnswerState) {
        for block in std::mem::take(&mut self.open) {
            if answer.has_end() || matches!(block.kind, BlockKind::Call(_)) {
                block.end(answer);
            }
        }
    }
}

impl OpenBlock {
    fn stray() -> OpenBlock {
        OpenBlock {
            index: String::new(),
            kind: BlockKind::Text,
            value: Value::Null,
            thinking: String::new(),
            joiner: TextJoiner::default(),
            signature: String::new(),
            input: String::new(),
        }
    }

    fn add_text(&mut self, text: RawJson, answer: &mut AnswerState) {
        if let Some(text) = text.json_text() {
            answer.add_text(text);
        }
    }

    fn add_thinking(&mut self, thinking: RawJson, answer: &mut AnswerState) {
        let Some(text) = thinking.json_text() else { return };
        if self.value.is_object() {
            self.thinking += &self.joiner.join(text.clone());
        }
        answer.add_thinking(text);
    }

    fn end(mut self, answer: &mut AnswerState) {
        let call_count = answer.call_count();
        if let BlockKind::Call(call) = self.kind {
            answer.end_call(call);
        }
        let Value::Object(block) = &mut self.value else { return };
        if self.kind == BlockKind::Thinking {
            self.thinking.push_str(self.joiner.flush().unwrap_or_default());
            block.insert("thinking".to_owned(), Value::String(self.thinking));
        }
        if !self.signature.is_empty() {
            block.insert("signature".to_owned(), Value::String(self.signature));
        }
        if !self.input.is_empty()
            && let Ok(input) = serde_json::from_str(&self.input)
        {
            block.insert("input".to_owned(), input);
        }
        answer.add_opaque(OpaqueSlot::Block { before_call: call_count }, self.value);
    }
}

fn read_stop(reason: RawJson, details: RawJson, answer: &mut AnswerState) -> bool {
    let details: StopDetails = details.object();
    answer.set_reason(details.category);
    answer.set_reason(details.explanation);
    answer.read_end(reason)
}
