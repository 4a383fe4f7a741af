//! Response of the demo model in the format of OpenAI Responses.

use serde_json::{Value, json};

use super::{DEMO, DemoEvent, DemoResponse, anthropic, tokens};

impl DemoResponse {
    pub(super) fn responses_events(&self) -> Vec<DemoEvent> {
        let started = self.responses_object("in_progress", Vec::new());
        let mut events = vec![anthropic("response.created", json!({ "response": started }), false)];
        for (index, item) in self.output_items().into_iter().enumerate() {
            let (kind, id) = (item["type"].as_str().unwrap_or_default().to_owned(), item["id"].clone());
            let mut begun = item.clone();
            let at = |more: Value| {
                let mut data = json!({"output_index": index, "item_id": id});
                data.as_object_mut()
                    .into_iter()
                    .for_each(|data| data.extend(more.as_object().cloned().unwrap_or_default()));
                data
            };
            let added = |item: &Value| json!({"output_index": index, "item": item});
            match kind.as_str() {
                "function_call" => {
                    begun["arguments"] = json!("");
                    events.push(anthropic("response.output_item.added", added(&begun), false));
                    let deltas = tokens(&self.input).map(|token| at(json!({ "delta": token })));
                    events.extend(deltas.map(|data| anthropic("response.function_call_arguments.delta", data, true)));
                    let done = at(json!({ "arguments": self.input }));
                    events.push(anthropic("response.function_call_arguments.done", done, false));
                }
                "reasoning" => {
                    begun["summary"] = json!([]);
                    events.push(anthropic("response.output_item.added", added(&begun), false));
                    let part = json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}});
                    events.push(anthropic("response.reasoning_summary_part.added", at(part), false));
                    for token in tokens(&self.step.think) {
                        let delta = at(json!({"summary_index": 0, "delta": token}));
                        events.push(anthropic("response.reasoning_summary_text.delta", delta, true));
                    }
                    let done = at(json!({"summary_index": 0, "text": self.step.think}));
                    events.push(anthropic("response.reasoning_summary_text.done", done, false));
                }
                _ => {
                    begun["content"] = json!([]);
                    events.push(anthropic("response.output_item.added", added(&begun), false));
                    let part =
                        json!({"content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}});
                    events.push(anthropic("response.content_part.added", at(part), false));
                    for token in tokens(&self.step.say) {
                        let delta = at(json!({"content_index": 0, "delta": token}));
                        events.push(anthropic("response.output_text.delta", delta, true));
                    }
                    let done = at(json!({"content_index": 0, "text": self.step.say}));
                    events.push(anthropic("response.output_text.done", done, false));
                    let part = at(json!({"content_index": 0, "part": item["content"][0]}));
                    events.push(anthropic("response.content_part.done", part, false));
                }
            }
            events.push(anthropic("response.output_item.done", added(&item), false));
        }
        events.push(anthropic("response.completed", json!({ "response": self.responses_body() }), false));
        events
    }

    pub(super) fn responses_body(&self) -> Value {
        let (input, output) = (self.input_tokens, self.output_tokens as u64);
        let mut response = self.responses_object("completed", self.output_items());
        response["usage"] = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
        response
    }

    fn output_items(&self) -> Vec<Value> {
        let mut items = Vec::new();
        if !self.step.think.is_empty() {
            let summary = json!([{"type": "summary_text", "text": self.step.think}]);
            items.push(json!({"type": "reasoning", "id": format!("rs_{}", self.id), "summary": summary}));
        }
        if !self.step.say.is_empty() {
            let content = json!([{"type": "output_text", "text": self.step.say, "annotations": []}]);
            items.push(json!({
                "type": "message", "id": format!("msg_{}", self.id), "status": "completed", "role": "assistant",
                "content": content,
            }));
        }
        if !self.step.tool.is_empty() {
            items.push(json!({
                "type": "function_call", "id": format!("fc_{}", self.id), "call_id": format!("call_{}", self.id),
                "status": "completed", "name": self.step.tool, "arguments": self.input,
            }));
        }
        items
    }

    fn responses_object(&self, status: &str, output: Vec<Value>) -> Value {
        json!({
            "id": format!("resp_{}", self.id), "object": "response", "created_at": jiff::Timestamp::now().as_second(),
            "status": status, "model": DEMO, "output": output,
        })
    }
}
