//! Response of the demo model in the format of Gemini.

use serde_json::{Value, json};

use super::{DEMO, DemoEvent, DemoResponse, openai, tokens};

impl DemoResponse {
    pub(super) fn gemini_events(&self) -> Vec<DemoEvent> {
        let mut events = Vec::new();
        for (text, is_thought) in [(&self.step.think, true), (&self.step.say, false)] {
            for token in tokens(text) {
                let chunk = self.gemini_chunk(vec![gemini_text(token, is_thought)], Value::Null);
                events.push(openai(&chunk.to_string(), true));
            }
        }
        let last = self.gemini_chunk(self.function_call().into_iter().collect(), json!("STOP"));
        events.push(openai(&last.to_string(), false));
        events
    }

    pub(super) fn gemini_body(&self) -> Value {
        let texts = [(&self.step.think, true), (&self.step.say, false)];
        let texts = texts.into_iter().filter(|(text, _)| !text.is_empty());
        let parts = texts.map(|(text, is_thought)| gemini_text(text, is_thought)).chain(self.function_call());
        self.gemini_chunk(parts.collect(), json!("STOP"))
    }

    fn function_call(&self) -> Option<Value> {
        let call = || json!({"functionCall": {"name": self.step.tool, "args": self.step.input}});
        (!self.step.tool.is_empty()).then(call)
    }

    fn gemini_chunk(&self, parts: Vec<Value>, finish_reason: Value) -> Value {
        let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
        let mut chunk = json!({"modelVersion": DEMO, "responseId": self.id});
        if !finish_reason.is_null() {
            candidate["finishReason"] = finish_reason;
            let (input, output) = (self.input_tokens, self.output_tokens as u64);
            chunk["usageMetadata"] = json!({
                "promptTokenCount": input, "candidatesTokenCount": output, "totalTokenCount": input + output,
            });
        }
        chunk["candidates"] = json!([candidate]);
        chunk
    }
}

fn gemini_text(text: &str, is_thought: bool) -> Value {
    if is_thought { json!({"text": text, "thought": true}) } else { json!({ "text": text }) }
}
