//! Reader of one answer: bytes in any cut to typed pieces.

use serde_json::Value;

use crate::{
    AnswerUsage, AnswerVerdict, ProviderError, WireFormat,
    answer::AnswerState,
    chat::{ChatChunk, ChatReader},
    framing::{BodyFramer, EventSink},
    gemini::{self, GeminiChunk},
    json::{RawJson, parse_json},
    messages::MessagesReader,
    responses::{ResponsesEvent, ResponsesReader},
    text::escape_control_characters,
    verdict::{EndMark, NextStep},
};

/// Longest line, event or body in one piece that is read, bytes. A longer one is skipped.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// Framing of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFraming {
    /// Server-sent events.
    EventStream,
    /// JSON: an object, or Gemini's array of chunks. Also read in place of a stream that was
    /// requested.
    Json,
}

impl AnswerFraming {
    /// Returns the framing that the header `content-type` names.
    pub fn of_content_type(content_type: &str) -> AnswerFraming {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("text/event-stream") { AnswerFraming::EventStream } else { AnswerFraming::Json }
    }
}

/// Piece of an answer, in the order in which the provider sent it.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerPiece {
    /// More of the answer's text. Never empty.
    Text(String),
    /// More of the model's thinking, as readable text. Never empty.
    Thinking(String),
    /// More of a tool call.
    ToolCall(ToolCallPiece),
    /// Value that the provider requires back unchanged with the assistant's message.
    Opaque(OpaquePiece),
}

/// Further piece of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCallPiece {
    /// Index of the call in the answer, from 0 without gaps, whatever the provider counts.
    pub call: usize,
    /// Provider's own id, known so far. May be empty, and may repeat an earlier id.
    pub id: String,
    /// Tool's name, known so far.
    pub name: String,
    /// Further text of the arguments. May be empty.
    pub arguments: String,
}

/// Value that goes back to the provider unchanged, in the message that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct OpaquePiece {
    pub slot: OpaqueSlot,
    /// Value as the provider sent it. Pieces of a streamed value are joined before.
    pub value: Value,
}

/// Place of an opaque value in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpaqueSlot {
    /// Content block of Anthropic's format: `thinking` with its signature, `redacted_thinking`, or
    /// a block of a provider-side tool. `before_call`: the number of tool calls before the block.
    Block { before_call: usize },
    /// Field of OpenAI's assistant message: `reasoning_content`, `reasoning`, `reasoning_details`.
    /// In Gemini's format: `thoughtSignature` of a part that is no call.
    MessageField(String),
    /// Field of a tool call: `extra_content` in OpenAI's format, `thoughtSignature` in Gemini's.
    CallField { call: usize, field: String },
    /// Item of OpenAI Responses, such as encrypted reasoning.
    Item,
}

/// Reader of one answer. Fed with bytes, queried at the end.
///
/// Unknown events, blocks, deltas and fields are skipped. A body is read by what it holds: JSON in
/// place of a stream, and a stream in place of JSON.
#[derive(Debug)]
pub struct AnswerReader {
    framer: BodyFramer,
    events: EventReader,
}

/// Reader of a body's events.
#[derive(Debug)]
struct EventReader {
    format: FormatReader,
    answer: AnswerState,
}

#[derive(Debug)]
enum FormatReader {
    Messages(MessagesReader),
    Chat(ChatReader),
    Responses(ResponsesReader),
    Gemini,
}

impl AnswerReader {
    pub fn new(format: WireFormat) -> AnswerReader {
        let format = match format {
            WireFormat::Messages => FormatReader::Messages(MessagesReader::default()),
            WireFormat::Chat => FormatReader::Chat(ChatReader::default()),
            WireFormat::Responses => FormatReader::Responses(ResponsesReader::default()),
            WireFormat::Gemini => FormatReader::Gemini,
        };
        let events = EventReader { format, answer: AnswerState::default() };
        AnswerReader { framer: BodyFramer::new(MAX_EVENT_BYTES), events }
    }

    /// Creates a reader for usage and verdict alone. It makes no pieces, keeps no text, and skips
    /// lines and bodies of more than `max_event_bytes`.
    pub fn for_metering(format: WireFormat, max_event_bytes: usize) -> AnswerReader {
        let mut reader = AnswerReader::new(format);
        reader.framer = BodyFramer::new(max_event_bytes);
        reader.events.answer.meters_only = true;
        reader
    }

    /// Reads the next bytes, cut anywhere, and appends their pieces to `pieces`.
    pub fn read(&mut self, bytes: &[u8], pieces: &mut Vec<AnswerPiece>) {
        std::mem::swap(&mut self.events.answer.pieces, pieces);
        self.framer.push(bytes, &mut self.events);
        std::mem::swap(&mut self.events.answer.pieces, pieces);
    }

    /// Ends the body, and appends the last pieces. `broken` is true if the connection ended before
    /// the body did.
    pub fn finish(&mut self, broken: bool, pieces: &mut Vec<AnswerPiece>) {
        let AnswerReader { framer, events } = self;
        std::mem::swap(&mut events.answer.pieces, pieces);
        framer.finish(events);
        let answer = &mut events.answer;
        let is_whole = framer.is_single_value() && !answer.has_deltas && !broken;
        if is_whole && !answer.has_end() {
            answer.set_end(EndMark::Complete);
        }
        if answer.is_blank() && !answer.has_end() && !framer.stray().is_empty() {
            answer.set_error(ProviderError::of_text(framer.stray()));
        }
        match &mut events.format {
            FormatReader::Messages(reader) => reader.finish(answer),
            FormatReader::Chat(reader) => reader.finish(answer),
            FormatReader::Responses(_) | FormatReader::Gemini => {}
        }
        answer.finish();
        std::mem::swap(&mut answer.pieces, pieces);
    }

    /// Returns true if the provider ended its answer: nothing but usage may follow.
    pub fn is_complete(&self) -> bool {
        self.events.answer.is_complete()
    }

    /// Returns true if a part of the content was read: text, thinking or a tool call.
    pub fn has_content(&self) -> bool {
        !self.events.answer.is_blank()
    }

    /// Returns true if all text may have been streamed and the usage is still missing.
    pub fn awaits_only_usage(&self) -> bool {
        let AnswerState { usage, part_finished, .. } = &self.events.answer;
        let is_reported = self.is_complete() && usage.input_tokens.is_some() && usage.output_tokens.is_some();
        *part_finished && !is_reported
    }

    /// Returns the verdict on what was read so far. Final after [`AnswerReader::finish`].
    pub fn verdict(&self) -> AnswerVerdict {
        self.events.answer.verdict()
    }

    /// Returns the next step: the verdict's, or for an error the step of its class.
    pub fn next_step(&self) -> NextStep {
        match self.error() {
            Some(error) => error.class.next_step(),
            None => self.verdict().rule().next,
        }
    }

    /// Returns the provider's error, if the answer holds one.
    pub fn error(&self) -> Option<&ProviderError> {
        self.events.answer.error.as_ref()
    }

    /// Returns the provider's words for a refused or filtered answer, if it gave any.
    pub fn reason(&self) -> Option<&str> {
        Some(self.events.answer.reason.as_str()).filter(|reason| !reason.is_empty())
    }

    /// Returns the usage that was reported so far.
    pub fn usage(&self) -> &AnswerUsage {
        &self.events.answer.usage
    }

    /// Returns the model that answered, by the provider's name.
    pub fn model(&self) -> Option<&str> {
        self.events.answer.model.as_deref()
    }

    /// Returns the bytes of text, thinking and tool arguments that were read so far.
    pub fn streamed_bytes(&self) -> u64 {
        self.events.answer.streamed_bytes
    }

    /// Returns the bytes of events and bodies that cannot be read.
    ///
    /// For estimates only if nothing was streamed: a line that is too long repeats streamed text,
    /// and holds the probabilities of each token.
    pub fn unread_bytes(&self) -> u64 {
        self.events.answer.unread_bytes
    }
}

impl EventReader {
    /// Reads one JSON object, or a list of objects. Returns `None` for invalid JSON.
    fn read_values(&mut self, json: &str, is_error: bool) -> Option<()> {
        match RawJson::list_in(json) {
            Some(items) => items.iter().try_for_each(|item| self.read_object(item.as_sent(), is_error)),
            None => self.read_object(json, is_error),
        }
    }

    /// Reads one JSON object: an event, a chunk or a body. Returns `None` for invalid JSON.
    fn read_object(&mut self, json: &str, is_error: bool) -> Option<()> {
        let answer = &mut self.answer;
        let error = match &mut self.format {
            FormatReader::Messages(reader) => {
                let event = parse_json(json)?;
                reader.read(&event, answer);
                ErrorFields::new(event.error, event.kind, is_error)
            }
            FormatReader::Chat(reader) => {
                let chunk: ChatChunk = parse_json(json)?;
                let choice_error = chunk.choice_error();
                let error = if chunk.error.is_present() { chunk.error } else { choice_error };
                let is_error = is_error || choice_error.is_present() || chunk.is_error();
                reader.read(&chunk, answer);
                ErrorFields { has_content: !chunk.choices.is_empty(), ..ErrorFields::new(error, chunk.kind, is_error) }
            }
            FormatReader::Responses(reader) => {
                let event: ResponsesEvent = parse_json(json)?;
                reader.read(&event, answer);
                let inner: ResponsesEvent = event.response.object();
                let error = if inner.error.is_present() { inner.error } else { event.error };
                ErrorFields { has_content: event.output.is_present(), ..ErrorFields::new(error, event.kind, is_error) }
            }
            FormatReader::Gemini => {
                let chunk: GeminiChunk = parse_json(json)?;
                gemini::read(&chunk, answer);
                ErrorFields {
                    has_content: !chunk.candidates.is_empty(),
                    ..ErrorFields::new(chunk.error, chunk.kind, is_error)
                }
            }
        };
        if error.is_error() {
            let whole = parse_json::<RawJson>(json).and_then(RawJson::value).unwrap_or_default();
            answer.set_error(ProviderError::of_event(&whole));
        }
        Some(())
    }
}

/// Fields by which an event is an error.
struct ErrorFields<'a> {
    error: RawJson<'a>,
    is_error: bool,
    /// True if the event holds a part of the answer too.
    has_content: bool,
}

impl<'a> ErrorFields<'a> {
    fn new(error: RawJson<'a>, kind: RawJson<'a>, is_error: bool) -> ErrorFields<'a> {
        let is_error = is_error || kind.text().as_deref() == Some("error");
        ErrorFields { error, is_error, has_content: false }
    }

    /// Returns true for an error. Some services send an empty error with each chunk.
    fn is_error(&self) -> bool {
        let is_empty = matches!(self.error.as_sent(), "" | "null" | "false" | "\"\"" | "0" | "[]")
            || self.has_content && self.error.value().is_some_and(|error| is_blank(&error));
        self.is_error || !is_empty
    }
}

/// Returns true if a value says nothing.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_blank),
        Value::Object(fields) => fields.values().all(is_blank),
    }
}

impl EventSink for EventReader {
    fn json(&mut self, json: &[u8], is_error: bool) -> bool {
        let json = String::from_utf8_lossy(json);
        let mut read = self.read_values(&json, is_error);
        // Some servers do not escape control characters inside strings.
        if read.is_none() && json.bytes().any(|byte| byte < b' ') {
            read = self.read_values(&escape_control_characters(&json), is_error);
        }
        if read.is_some() {
            self.answer.may_be_complete = false;
        }
        read.is_some()
    }

    fn error_text(&mut self, text: &[u8]) {
        self.answer.set_error(ProviderError::of_text(text));
    }

    fn done(&mut self) {
        if matches!(self.format, FormatReader::Chat(_) | FormatReader::Responses(_)) {
            self.answer.set_end(EndMark::Complete);
        }
    }

    fn unread(&mut self, bytes: usize) {
        self.answer.unread_bytes += bytes as u64;
    }

    fn overlong_end(&mut self) {
        self.answer.may_be_complete = true;
    }
}
