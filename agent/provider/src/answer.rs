//! Answer under construction: what all formats have in common.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    AnswerPiece, AnswerUsage, AnswerVerdict, ProviderError, ToolCallPiece,
    json::RawJson,
    reader::{OpaquePiece, OpaqueSlot},
    text::{JsonText, TextJoiner},
    verdict::EndMark,
};

/// State of one answer, and the pieces that were read and not taken yet.
#[derive(Debug, Default)]
pub(crate) struct AnswerState {
    pub(crate) pieces: Vec<AnswerPiece>,
    /// True if only usage and verdict are of interest: no pieces, and no memory for them.
    pub(crate) meters_only: bool,
    pub(crate) usage: AnswerUsage,
    pub(crate) model: Option<String>,
    pub(crate) error: Option<ProviderError>,
    /// Provider's words for a refused or filtered answer.
    pub(crate) reason: String,
    pub(crate) streamed_bytes: u64,
    pub(crate) unread_bytes: u64,
    /// True if a part of the answer has ended and nothing was streamed since. The part may have
    /// been the last one.
    pub(crate) part_finished: bool,
    /// True if the newest event was too long to read. The event may have ended the answer.
    pub(crate) may_be_complete: bool,
    /// True if the answer arrived in deltas.
    pub(crate) has_deltas: bool,
    end: Option<EndMark>,
    /// True if the model refused in words.
    is_refused: bool,
    /// Reason by which the provider ended the answer as failed.
    failed_with: Option<String>,
    has_text: bool,
    text: TextJoiner,
    thinking: TextJoiner,
    calls: Vec<CallState>,
}

#[derive(Debug, Default)]
struct CallState {
    /// Provider's index of the call.
    index: Option<String>,
    id: String,
    name: String,
    arguments: TextJoiner,
    has_arguments: bool,
    /// Arguments that came with the start of the call. They count if no others follow.
    initial: Option<String>,
}

/// Names that a part of a tool call carries.
#[derive(Debug, Default)]
pub(crate) struct CallNames<'a> {
    pub(crate) index: Option<&'a str>,
    pub(crate) id: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
}

impl AnswerState {
    pub(crate) fn add_text(&mut self, text: JsonText) {
        if text.is_empty() {
            return;
        }
        self.count(text.len());
        let text = self.text.join(text);
        self.has_text = self.has_text || !text.trim().is_empty();
        if !self.meters_only && !text.is_empty() {
            self.pieces.push(AnswerPiece::Text(text.into_owned()));
        }
    }

    pub(crate) fn add_thinking(&mut self, text: JsonText) {
        if text.is_empty() {
            return;
        }
        self.count(text.len());
        if self.meters_only {
            return;
        }
        let text = self.thinking.join(text);
        if !text.is_empty() {
            self.pieces.push(AnswerPiece::Thinking(text.into_owned()));
        }
    }

    /// Adds words in which the model refuses.
    pub(crate) fn add_refused_text(&mut self, text: JsonText) {
        self.count(text.len());
        if self.reason.len() < 4096 {
            self.reason += &text.into_lossy();
        }
        self.is_refused = true;
    }

    /// Counts streamed bytes of text, thinking or arguments.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.streamed_bytes += bytes as u64;
        self.part_finished &= bytes == 0;
    }

    /// Returns true if nothing of the answer's content was read.
    pub(crate) fn is_blank(&self) -> bool {
        self.streamed_bytes == 0 && self.calls.is_empty()
    }

    pub(crate) fn call_count(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn has_arguments(&self, call: usize) -> bool {
        self.calls[call].has_arguments
    }

    /// Starts a call.
    pub(crate) fn begin_call(&mut self, names: CallNames) -> usize {
        self.calls.push(CallState { index: names.index.map(str::to_owned), ..CallState::default() });
        let call = self.calls.len() - 1;
        self.name_call(call, &names);
        self.push_call_piece(call, String::new());
        self.part_finished = false;
        call
    }

    /// Returns the call that a part belongs to, and starts the call if there is none.
    ///
    /// Services count calls from 0, from 1, from any number, all alike, or not at all. An id or a
    /// name that differs begins a call; an id that differs without a name does not.
    pub(crate) fn find_call(&mut self, names: CallNames) -> usize {
        let last = self.calls.len().saturating_sub(1);
        let continues = |(at, call): (usize, &CallState)| match names.index {
            Some(index) => {
                let same_id = names.id.is_empty() || call.id.is_empty() || names.id == call.id;
                call.index.as_deref() == Some(index) && (same_id || names.name.is_empty())
            }
            None if names.id.is_empty() => at == last && (names.name.is_empty() || call.name.is_empty()),
            None => names.id == call.id,
        };
        let existing = (0..self.calls.len()).rev().find(|at| continues((*at, &self.calls[*at])));
        match existing {
            Some(call) => {
                self.name_call(call, &names);
                call
            }
            None => self.begin_call(names),
        }
    }

    fn name_call(&mut self, call: usize, names: &CallNames) {
        let call = &mut self.calls[call];
        for (field, value) in [(&mut call.id, &names.id), (&mut call.name, &names.name)] {
            if field.is_empty() {
                field.push_str(value);
            }
        }
    }

    pub(crate) fn add_arguments(&mut self, call: usize, arguments: JsonText) {
        if arguments.is_empty() {
            return;
        }
        self.count(arguments.len());
        let state = &mut self.calls[call];
        state.has_arguments = true;
        let text = state.arguments.join(arguments);
        if !text.is_empty() {
            let text = text.into_owned();
            self.push_call_piece(call, text);
        }
    }

    /// Adds arguments that are a JSON value or a string of JSON.
    pub(crate) fn add_argument_value(&mut self, call: usize, value: RawJson) {
        match value.json_text() {
            Some(text) => self.add_arguments(call, text),
            None if value.is_present() => self.add_arguments(call, value.as_sent().into()),
            None => {}
        }
    }

    /// Keeps arguments that came with the start of a call. Some services send the arguments there,
    /// others an empty object before the real one.
    pub(crate) fn set_initial_arguments(&mut self, call: usize, value: RawJson) {
        let text = value.text().or_else(|| value.is_present().then(|| Cow::Borrowed(value.as_sent())));
        let text = text.filter(|text| !matches!(text.trim(), "" | "{}"));
        if self.meters_only {
            return self.count(text.map_or(0, |text| text.len()));
        }
        self.calls[call].initial = text.map(Cow::into_owned);
    }

    /// Ends a call: the arguments from its start count if no others followed.
    pub(crate) fn end_call(&mut self, call: usize) {
        if let Some(initial) = self.calls[call].initial.take()
            && !self.calls[call].has_arguments
        {
            self.add_arguments(call, initial.as_str().into());
        }
        self.flush_call(call);
    }

    fn flush_call(&mut self, call: usize) {
        if let Some(rest) = self.calls[call].arguments.flush() {
            self.push_call_piece(call, rest.to_owned());
        }
    }

    fn push_call_piece(&mut self, call: usize, arguments: String) {
        if self.meters_only {
            return;
        }
        let CallState { id, name, .. } = &self.calls[call];
        let piece = ToolCallPiece { call, id: id.clone(), name: name.clone(), arguments };
        self.pieces.push(AnswerPiece::ToolCall(piece));
    }

    pub(crate) fn add_opaque(&mut self, slot: OpaqueSlot, value: Value) {
        if !self.meters_only {
            self.pieces.push(AnswerPiece::Opaque(OpaquePiece { slot, value }));
        }
    }

    /// Adds a value that goes back as it was sent.
    pub(crate) fn add_opaque_json(&mut self, slot: OpaqueSlot, json: RawJson) {
        if !self.meters_only
            && let Some(value) = json.value()
        {
            self.add_opaque(slot, value);
        }
    }

    pub(crate) fn set_model(&mut self, model: RawJson) {
        if let Some(model) = model.text()
            && self.model.as_deref() != Some(&model)
        {
            self.model = Some(model.into_owned());
        }
    }

    /// Sets the first error. Errors after it are its consequences.
    pub(crate) fn set_error(&mut self, error: ProviderError) {
        self.error.get_or_insert(error);
    }

    pub(crate) fn set_reason(&mut self, reason: RawJson) {
        if let Some(reason) = reason.text() {
            self.reason = reason.into_owned();
        }
    }

    /// Reads a stop reason. Returns true if the reason ends the answer.
    pub(crate) fn read_end(&mut self, reason: RawJson) -> bool {
        let Some(text) = reason.text() else { return false };
        let Some(mark) = EndMark::of_reason(&text) else { return false };
        if mark == EndMark::Failed {
            self.failed_with.get_or_insert(text.into_owned());
        }
        self.set_end(mark);
        self.part_finished = true;
        true
    }

    /// Sets the end. A plain end does not replace one with a reason: some services send both.
    pub(crate) fn set_end(&mut self, mark: EndMark) {
        if self.end.is_none() || mark != EndMark::Complete {
            self.end = Some(mark);
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.error.is_some() || self.may_be_complete || !matches!(self.end, None | Some(EndMark::Aborted))
    }

    pub(crate) fn has_end(&self) -> bool {
        self.end.is_some() || self.error.is_some() || self.may_be_complete
    }

    /// Ends the answer: halves and arguments that were kept become pieces.
    pub(crate) fn finish(&mut self) {
        if let Some(rest) = self.text.flush() {
            self.has_text = true;
            self.add_text(rest.into());
        }
        if let Some(rest) = self.thinking.flush() {
            self.add_thinking(rest.into());
        }
        for call in 0..self.calls.len() {
            self.end_call(call);
        }
        if self.end == Some(EndMark::Failed) && self.error.is_none() {
            let reason = self.failed_with.take().unwrap_or_default();
            self.error = Some(ProviderError::of_end(&reason, &self.reason));
        }
    }

    pub(crate) fn verdict(&self) -> AnswerVerdict {
        if let Some(error) = &self.error {
            return error.verdict();
        }
        let holds_answer = self.has_text || !self.calls.is_empty();
        match self.end {
            None if self.may_be_complete => AnswerVerdict::Complete,
            None | Some(EndMark::Aborted) => AnswerVerdict::Cut,
            Some(EndMark::Complete) if self.is_refused => AnswerVerdict::Refused,
            Some(EndMark::Complete) if holds_answer => AnswerVerdict::Complete,
            Some(EndMark::Complete) => AnswerVerdict::Empty,
            Some(EndMark::Limit) => AnswerVerdict::Limit,
            // With a part of an answer, the next request holds that part, and is too long itself.
            Some(EndMark::ContextFull) if holds_answer => AnswerVerdict::Limit,
            Some(EndMark::ContextFull) => AnswerVerdict::TooLong,
            Some(EndMark::Refused) => AnswerVerdict::Refused,
            Some(EndMark::Filtered) => AnswerVerdict::Filtered,
            Some(EndMark::Paused) => AnswerVerdict::Paused,
            Some(EndMark::Failed) => AnswerVerdict::Failed,
        }
    }
}
