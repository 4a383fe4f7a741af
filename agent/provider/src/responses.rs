//! OpenAI responses.
//!
//! Format: <https://platform.openai.com/docs/api-reference/responses-streaming>.

use crate::{
    answer::{AnswerState, CallNames},
    json::{RawJson, lenient_object},
    reader::OpaqueSlot,
    verdict::EndMark,
};

lenient_object! {
    /// Event of a stream, or a whole response.
    struct ResponsesEvent<'a> {
        kind: RawJson<'a> = b"type",
        delta: RawJson<'a> = b"delta",
        arguments: RawJson<'a> = b"arguments",
        item: RawJson<'a> = b"item",
        item_id: RawJson<'a> = b"item_id",
        output_index: RawJson<'a> = b"output_index",
        summary_index: RawJson<'a> = b"summary_index",
        response: RawJson<'a> = b"response",
        error: RawJson<'a> = b"error",
        model: RawJson<'a> = b"model",
        output: RawJson<'a> = b"output",
        status: RawJson<'a> = b"status",
        incomplete_details: RawJson<'a> = b"incomplete_details",
        usage: RawJson<'a> = b"usage",
    }
}

lenient_object! {
    /// Output item, or a part of a message's content.
    struct OutputItem<'a> {
        kind: RawJson<'a> = b"type",
        id: RawJson<'a> = b"id",
        call_id: RawJson<'a> = b"call_id",
        name: RawJson<'a> = b"name",
        arguments: RawJson<'a> = b"arguments",
        input: RawJson<'a> = b"input",
        content: RawJson<'a> = b"content",
        summary: RawJson<'a> = b"summary",
        text: RawJson<'a> = b"text",
        refused: RawJson<'a> = b"refusal",
        reason: RawJson<'a> = b"reason",
    }
}

/// Reader of events.
#[derive(Debug, Default)]
pub(crate) struct ResponsesReader {
    items: Vec<ItemState>,
}

/// Output item that was seen.
#[derive(Debug, Default)]
struct ItemState {
    index: String,
    id: String,
    call: Option<usize>,
    has_deltas: bool,
    is_done: bool,
}

impl ResponsesReader {
    pub(crate) fn read(&mut self, event: &ResponsesEvent, answer: &mut AnswerState) {
        let kind = event.kind.text();
        match kind.as_deref() {
            Some("response.output_text.delta") => {
                self.mark_deltas(event, answer);
                event.delta.json_text().into_iter().for_each(|text| answer.add_text(text));
            }
            Some("response.refusal.delta") => {
                self.mark_deltas(event, answer);
                event.delta.json_text().into_iter().for_each(|text| answer.add_refused_text(text));
            }
            Some(
                "response.reasoning_text.delta"
                | "response.reasoning.delta"
                | "response.reasoning_summary_text.delta"
                | "response.reasoning_summary.delta",
            ) => {
                self.mark_deltas(event, answer);
                event.delta.json_text().into_iter().for_each(|text| answer.add_thinking(text));
            }
            Some("response.reasoning_summary_part.added")
                if event.summary_index.count().is_some_and(|index| index > 0) =>
            {
                answer.add_thinking("\n\n".into());
            }
            Some("response.function_call_arguments.delta" | "response.custom_tool_call_input.delta") => {
                let item = self.mark_deltas(event, answer);
                let call = self.call_of(item, answer);
                event.delta.json_text().into_iter().for_each(|text| answer.add_arguments(call, text));
            }
            Some("response.function_call_arguments.done") => {
                let item = self.find(event);
                let call = self.call_of(item, answer);
                if !answer.has_arguments(call) {
                    answer.add_argument_value(call, event.arguments);
                }
            }
            Some("response.output_item.added") => {
                let item = self.find_item(event.output_index, event.item.object::<OutputItem>().id);
                self.begin_item(item, &event.item.object(), answer);
            }
            Some("response.output_item.done") => {
                let item = self.find_item(event.output_index, event.item.object::<OutputItem>().id);
                self.end_item(item, event.item, answer);
            }
            Some("response.output_text.done") => answer.part_finished = true,
            Some(
                "response.completed"
                | "response.incomplete"
                | "response.failed"
                | "response.cancelled"
                | "response.done",
            ) => self.read_response(&event.response.object(), answer),
            Some("response.created" | "response.in_progress") => {
                answer.has_deltas = true;
                answer.set_model(event.response.object::<ResponsesEvent>().model);
            }
            None if event.output.is_list() || event.status.is_present() => self.read_response(event, answer),
            _ => {}
        }
        // The last event names its end. The status inside may be missing.
        match kind.as_deref() {
            Some("response.completed" | "response.done") => answer.set_end(EndMark::Complete),
            Some("response.incomplete") if !answer.has_end() => answer.set_end(EndMark::Limit),
            Some("response.failed") => answer.set_end(EndMark::Failed),
            Some("response.cancelled") => answer.set_end(EndMark::Aborted),
            _ => {}
        }
    }

    fn find(&mut self, event: &ResponsesEvent) -> usize {
        self.find_item(event.output_index, event.item_id)
    }

    /// Returns the item with this index or id, or a new one. Without both, the newest one.
    fn find_item(&mut self, index: RawJson, id: RawJson) -> usize {
        let (index, id) = (index.as_sent(), id.text().unwrap_or_default());
        let is_same = |item: &ItemState| match (index.is_empty(), id.is_empty()) {
            (true, true) => true,
            (false, _) if !item.index.is_empty() => item.index == index,
            _ => !id.is_empty() && item.id == id,
        };
        self.items.iter().rposition(is_same).unwrap_or_else(|| {
            self.items.push(ItemState { index: index.to_owned(), id: id.into_owned(), ..ItemState::default() });
            self.items.len() - 1
        })
    }

    fn mark_deltas(&mut self, event: &ResponsesEvent, answer: &mut AnswerState) -> usize {
        answer.has_deltas = true;
        let item = self.find(event);
        self.items[item].has_deltas = true;
        item
    }

    fn call_of(&mut self, item: usize, answer: &mut AnswerState) -> usize {
        *self.items[item].call.get_or_insert_with(|| answer.begin_call(CallNames::default()))
    }

    fn begin_item(&mut self, at: usize, item: &OutputItem, answer: &mut AnswerState) {
        let is_call = matches!(item.kind.text().as_deref(), Some("function_call" | "custom_tool_call"));
        if !is_call || self.items[at].call.is_some() {
            return;
        }
        let names = CallNames {
            index: None,
            id: item.call_id.text().or_else(|| item.id.text()).unwrap_or_default(),
            name: item.name.text().unwrap_or_default(),
        };
        self.items[at].call = Some(answer.begin_call(names));
    }

    /// Reads a complete item. Content that was streamed is skipped.
    fn end_item(&mut self, at: usize, raw: RawJson, answer: &mut AnswerState) {
        if std::mem::replace(&mut self.items[at].is_done, true) {
            return;
        }
        let item: OutputItem = raw.object();
        let kind = item.kind.text();
        self.begin_item(at, &item, answer);
        let ItemState { call, has_deltas, .. } = self.items[at];
        if let Some(call) = call {
            if !answer.has_arguments(call) {
                let is_custom = kind.as_deref() == Some("custom_tool_call");
                answer.add_argument_value(call, if is_custom { item.input } else { item.arguments });
            }
            answer.part_finished = true;
            return;
        }
        match kind.as_deref() {
            Some("message") if !has_deltas => {
                for part in item.content.list() {
                    let part: OutputItem = part.object();
                    part.text.json_text().into_iter().for_each(|text| answer.add_text(text));
                    part.refused.json_text().into_iter().for_each(|text| answer.add_refused_text(text));
                }
            }
            Some("reasoning") => {
                let texts = item.summary.list().into_iter().chain(item.content.list());
                for text in
                    texts.filter(|_| !has_deltas).filter_map(|part| part.object::<OutputItem>().text.json_text())
                {
                    answer.add_thinking(text);
                }
                answer.add_opaque_json(OpaqueSlot::Item, raw);
            }
            Some(kind) if kind == "compaction" || kind.starts_with("mcp_") || kind.ends_with("_call") => {
                answer.usage.add_server_tool_use(kind);
                answer.add_opaque_json(OpaqueSlot::Item, raw);
            }
            _ => {}
        }
        answer.part_finished = true;
    }

    fn read_response(&mut self, response: &ResponsesEvent, answer: &mut AnswerState) {
        answer.set_model(response.model);
        answer.usage.read_responses(response.usage);
        for (index, item) in response.output.list().into_iter().enumerate() {
            let OutputItem { id, .. } = item.object();
            let id = id.text().unwrap_or_default();
            let is_same = |seen: &ItemState| {
                if id.is_empty() || seen.id.is_empty() { seen.index == index.to_string() } else { seen.id == id }
            };
            let at = self.items.iter().position(is_same).unwrap_or_else(|| {
                self.items.push(ItemState { index: index.to_string(), id: id.into_owned(), ..ItemState::default() });
                self.items.len() - 1
            });
            self.end_item(at, item, answer);
        }
        match response.status.text().as_deref() {
            Some("completed") => answer.set_end(EndMark::Complete),
            Some("incomplete") => {
                let details: OutputItem = response.incomplete_details.object();
                if !answer.read_end(details.reason) {
                    answer.set_end(EndMark::Limit);
                }
            }
            Some("failed") => answer.set_end(EndMark::Failed),
            Some("cancelled") => answer.set_end(EndMark::Aborted),
            _ => {}
        }
    }
}
