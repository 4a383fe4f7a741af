use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::reader::{OpaquePiece, OpaqueSlot};

fn request(messages: Vec<RequestMessage>) -> ModelRequest<'static> {
    let parameters = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
    ModelRequest {
        model: "vendor/some model:free@2026-01-01",
        system: "Be brief.",
        messages,
        tools: vec![RequestTool { name: "run", description: "Run a command.", parameters }],
        effort: None,
        max_tokens: 8000,
    }
}

fn user(text: &str) -> RequestMessage {
    RequestMessage::User(vec![UserPart::Text(text.to_owned())])
}

fn image() -> UserPart {
    UserPart::Image { media_type: "image/png", base64: "AAAA".into() }
}

fn call(id: &str, name: &str) -> RequestCall {
    RequestCall { id: id.to_owned(), name: name.to_owned(), arguments: json!({ "command": "ls" }) }
}

fn opaque(slot: OpaqueSlot, value: Value) -> OpaquePiece {
    OpaquePiece { slot, value }
}

fn output(text: &str, calls: &[RequestCall], opaque: Vec<OpaquePiece>) -> RequestMessage {
    RequestMessage::Assistant(AssistantOutput { text: text.to_owned(), calls: calls.to_vec(), opaque })
}

fn result(id: &str, text: &str, user: Vec<UserPart>) -> RequestMessage {
    let results = vec![RequestResult { call_id: id.to_owned(), text: text.to_owned() }];
    RequestMessage::Results { results, user }
}

fn conversation(opaque: Vec<OpaquePiece>) -> Vec<RequestMessage> {
    let user_parts = vec![UserPart::Text("and this".into()), image()];
    vec![user("list"), output("I look.", &[call("c1", "run")], opaque), result("c1", "a", user_parts)]
}

#[test]
fn anthropic_body() {
    let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "s" });
    let slot = OpaqueSlot::Block { before_call: 0 };
    let body = request(conversation(vec![opaque(slot, thinking.clone())])).messages_body();
    let mark = json!({ "type": "ephemeral" });
    assert_eq!(
        body,
        json!({
            "model": "vendor/some model:free@2026-01-01",
            "max_tokens": 8000,
            "system": [{ "type": "text", "text": "Be brief.", "cache_control": mark }],
            "messages": [
                { "role": "user", "content": "list" },
                { "role": "assistant", "content": [
                    thinking,
                    { "type": "text", "text": "I look." },
                    { "type": "tool_use", "id": "c1", "name": "run", "input": { "command": "ls" } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "c1", "content": "a" },
                    { "type": "text", "text": "and this" },
                    {
                        "type": "image",
                        "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" },
                        "cache_control": mark,
                    },
                ] },
            ],
            "stream": true,
            "tools": [{
                "name": "run",
                "description": "Run a command.",
                "input_schema": { "type": "object", "properties": { "command": { "type": "string" } } },
            }],
        })
    );
}

#[test]
fn chat_body() {
    let fields = vec![
        opaque(OpaqueSlot::MessageField("reasoning_content".into()), json!("Hm.")),
        opaque(OpaqueSlot::CallField { call: 0, field: "extra_content".into() }, json!({ "google": "sig" })),
    ];
    let body = request(conversation(fields)).chat_body();
    assert_eq!(
        body["messages"],
        json!([
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "list" },
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "Hm.",
                "tool_calls": [{
                    "id": "c1",
                    "type": "function",
                    "function": { "name": "run", "arguments": "{\"command\":\"ls\"}" },
                    "extra_content": { "google": "sig" },
                }],
            },
            { "role": "tool", "tool_call_id": "c1", "content": "a" },
            { "role": "user", "content": [
                { "type": "text", "text": "and this" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
            ] },
        ])
    );
    assert_eq!(body["model"], "vendor/some model:free@2026-01-01");
    assert_eq!(body["stream_options"], json!({ "include_usage": true }));
    assert_eq!(body["tools"][0]["function"]["name"], "run");
    for absent in ["temperature", "reasoning_effort", "max_tokens"] {
        assert_eq!(body.get(absent), None, "{absent}");
    }
}

#[test]
fn gemini_body() {
    let fields = vec![opaque(OpaqueSlot::CallField { call: 0, field: "thoughtSignature".into() }, json!("sig"))];
    let body = request(conversation(fields)).gemini_body();
    assert_eq!(
        body["contents"],
        json!([
            { "role": "user", "parts": [{ "text": "list" }] },
            { "role": "model", "parts": [
                { "text": "I look." },
                {
                    "functionCall": { "id": "c1", "name": "run", "args": { "command": "ls" } },
                    "thoughtSignature": "sig",
                },
            ] },
            { "role": "user", "parts": [
                { "functionResponse": { "id": "c1", "name": "run", "response": { "result": "a" } } },
                { "text": "and this" },
                { "inlineData": { "mimeType": "image/png", "data": "AAAA" } },
            ] },
        ])
    );
    assert_eq!(body["systemInstruction"], json!({ "parts": [{ "text": "Be brief." }] }));
    assert_eq!(body["generationConfig"], json!({ "maxOutputTokens": 8000 }));
    assert_eq!(body["tools"][0]["functionDeclarations"][0]["name"], "run");
}

#[test]
fn effort_is_written_only_if_set() {
    let effort = |effort, max_tokens| ModelRequest { effort, max_tokens, ..request(vec![user("go")]) };
    let high = effort(Some(ThinkingEffort::High), 8000);
    assert_eq!(high.messages_body()["thinking"], json!({ "type": "enabled", "budget_tokens": 4000 }));
    assert_eq!(high.chat_body()["reasoning_effort"], "high");
    assert_eq!(high.gemini_body()["generationConfig"]["thinkingConfig"]["thinkingBudget"], 24_576);
    assert_eq!(effort(Some(ThinkingEffort::High), 1500).messages_body().get("thinking"), None, "no room");
    let none = effort(None, 8000);
    assert_eq!(none.messages_body().get("thinking"), None);
    assert_eq!(none.chat_body().get("reasoning_effort"), None);
    assert_eq!(none.gemini_body()["generationConfig"].get("thinkingConfig"), None);
}

#[test]
fn calls_made_without_thinking_turn_thinking_off() {
    let with_effort = |opaque| ModelRequest { effort: Some(ThinkingEffort::Low), ..request(conversation(opaque)) };
    assert_eq!(with_effort(Vec::new()).messages_body().get("thinking"), None);
    let redacted = opaque(OpaqueSlot::Block { before_call: 0 }, json!({ "type": "redacted_thinking", "data": "x" }));
    assert!(with_effort(vec![redacted]).messages_body().get("thinking").is_some());
}

#[test]
fn blocks_stand_before_their_calls() {
    let block = |name: &str, before_call| opaque(OpaqueSlot::Block { before_call }, json!({ "type": name }));
    let blocks = vec![block("first", 0), block("second", 1)];
    let messages = vec![user("go"), output("", &[call("a", "run"), call("b", "run")], blocks)];
    let body = request(messages).messages_body();
    let kinds: Vec<&str> =
        body["messages"][1]["content"].as_array().expect("blocks").iter().filter_map(|b| b["type"].as_str()).collect();
    assert_eq!(kinds, ["first", "tool_use", "second", "tool_use"]);
}

#[test]
fn reasoning_of_joined_answers_is_joined() {
    let field = |value: &str| opaque(OpaqueSlot::MessageField("reasoning_content".into()), json!(value));
    let body =
        request(vec![user("go"), output("", &[call("a", "run")], vec![field("one "), field("two")])]).chat_body();
    assert_eq!(body["messages"][2]["reasoning_content"], "one two");
    assert_eq!(body["messages"][2]["content"], Value::Null);
}

proptest! {
    #[test]
    fn any_id_and_name_is_acceptable_and_ids_stay_distinct(one in ".{0,60}", other in ".{0,60}", model in ".{1,40}") {
        let messages = vec![
            user("go"),
            output("", &[call(&one, &other), call(&other, &one)], Vec::new()),
            result(&one, "x", Vec::new()),
        ];
        let request = ModelRequest { model: &model, ..request(messages) };
        let (chat, anthropic) = (request.chat_body(), request.messages_body());
        let calls = &chat["messages"][2]["tool_calls"];
        for at in 0..2 {
            let (id, name) = (calls[at]["id"].as_str().expect("an id"), calls[at]["function"]["name"].as_str().expect("a name"));
            prop_assert!(is_plain(id, ID_LIMIT) && is_plain(name, NAME_LIMIT));
            prop_assert_eq!(&anthropic["messages"][1]["content"][at]["id"], id);
        }
        prop_assert_eq!(calls[0]["id"] == calls[1]["id"], one == other);
        prop_assert_eq!(&chat["messages"][3]["tool_call_id"], &calls[0]["id"]);
        prop_assert_eq!(chat["model"].as_str(), Some(model.as_str()));
        prop_assert_eq!(anthropic["model"].as_str(), Some(model.as_str()));
    }
}
