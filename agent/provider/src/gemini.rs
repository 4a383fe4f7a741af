//! Google's `generateContent` and `streamGenerateContent`.
//!
//! Format: <https://ai.google.dev/api/generate-content>.

use crate::{
    answer::{AnswerState, CallNames},
    json::{RawJson, lenient_object},
    reader::OpaqueSlot,
    verdict::EndMark,
};

lenient_object! {
    /// Chunk of a stream, or a whole response.
    struct GeminiChunk<'a> {
        kind: RawJson<'a> = b"type",
        candidates: Vec<GeminiCandidate<'a>> = b"candidates",
        prompt_feedback: RawJson<'a> = b"promptFeedback",
        usage: RawJson<'a> = b"usageMetadata",
        model: RawJson<'a> = b"modelVersion",
        error: RawJson<'a> = b"error",
        /// Chunk inside a wrapper, as some of Google's own services send it.
        response: RawJson<'a> = b"response",
    }
}

lenient_object! {
    struct GeminiCandidate<'a> {
        index: RawJson<'a> = b"index",
        content: GeminiContent<'a> = b"content",
        finish_reason: RawJson<'a> = b"finishReason",
        finish_message: RawJson<'a> = b"finishMessage",
    }
}

lenient_object! {
    struct GeminiContent<'a> {
        parts: Vec<GeminiPart<'a>> = b"parts",
    }
}

lenient_object! {
    struct GeminiPart<'a> {
        text: RawJson<'a> = b"text",
        thought: RawJson<'a> = b"thought",
        signature: RawJson<'a> = b"thoughtSignature",
        function_call: RawJson<'a> = b"functionCall",
    }
}

lenient_object! {
    struct GeminiCall<'a> {
        id: RawJson<'a> = b"id",
        name: RawJson<'a> = b"name",
        args: RawJson<'a> = b"args",
    }
}

lenient_object! {
    struct PromptFeedback<'a> {
        block_reason: RawJson<'a> = b"blockReason",
        block_message: RawJson<'a> = b"blockReasonMessage",
    }
}

/// Name of the field that goes back with its part.
const SIGNATURE: &str = "thoughtSignature";

/// Reads a chunk.
pub(crate) fn read(chunk: &GeminiChunk, answer: &mut AnswerState) {
    if chunk.response.is_object() && chunk.candidates.is_empty() {
        let inner: GeminiChunk = chunk.response.object();
        return read_chunk(&inner, answer);
    }
    read_chunk(chunk, answer);
}

fn read_chunk(chunk: &GeminiChunk, answer: &mut AnswerState) {
    answer.set_model(chunk.model);
    answer.usage.read_gemini(chunk.usage);
    answer.has_deltas = true;
    for candidate in &chunk.candidates {
        let is_answer = !candidate.index.is_present() || candidate.index.count() == Some(0);
        for part in &candidate.content.parts {
            if is_answer {
                read_part(part, answer);
            } else {
                answer.count(part.text.as_sent().len().saturating_sub(2));
            }
        }
        if is_answer {
            answer.set_reason(candidate.finish_message);
            answer.read_end(candidate.finish_reason);
        }
    }
    let feedback: PromptFeedback = chunk.prompt_feedback.object();
    if feedback.block_reason.text().is_some_and(|reason| !reason.ends_with("_UNSPECIFIED")) {
        answer.set_reason(feedback.block_reason);
        answer.set_reason(feedback.block_message);
        answer.set_end(EndMark::Filtered);
    }
}

fn read_part(part: &GeminiPart, answer: &mut AnswerState) {
    if let Some(text) = part.text.json_text() {
        if part.thought.is_true() { answer.add_thinking(text) } else { answer.add_text(text) }
    }
    let mut call = None;
    if part.function_call.is_object() {
        let function: GeminiCall = part.function_call.object();
        let names = CallNames {
            index: None,
            id: function.id.text_or_number().unwrap_or_default(),
            name: function.name.text().unwrap_or_default(),
        };
        let begun = answer.begin_call(names);
        answer.add_argument_value(begun, function.args);
        call = Some(begun);
    }
    if part.signature.is_present() {
        let field = SIGNATURE.to_owned();
        let slot = match call {
            Some(call) => OpaqueSlot::CallField { call, field },
            None => OpaqueSlot::MessageField(field),
        };
        answer.add_opaque_json(slot, part.signature);
    }
}
