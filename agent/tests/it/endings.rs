//! Endings of an answer: each continues, is tried again, or ends the turn with a reason.

use greenroom_protocol::link::{AgentCommand, ProviderApi, ReasoningEffort, WorkOutcome};
use serde_json::{Value, json};

use crate::{
    agent::AgentProcess,
    gateway::{
        ScriptedAnswer::{self, Complete, Frames, Status},
        ScriptedPart, call, text,
    },
    session::AgentTestSession,
};

const APIS: [ProviderApi; 2] = [ProviderApi::Anthropic, ProviderApi::Openai];

async fn session_of(api: ProviderApi, answers: Vec<ScriptedAnswer>) -> AgentTestSession {
    let mut agent = AgentProcess::start(answers);
    agent.settings.api = api;
    AgentTestSession::with_history(agent, Vec::new()).await
}

/// Returns the error text of a turn that must fail.
async fn failure_of(session: &mut AgentTestSession, turn: &str) -> String {
    match session.outcome(turn).await {
        WorkOutcome::Failed { code, detail } if code == "model_error" => detail,
        other => panic!("not a failure of the model: {other:?}"),
    }
}

fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
}

/// Returns an answer with a text and this reason for its end.
fn ended(api: ProviderApi, text: &str, reason: &str) -> ScriptedAnswer {
    match api {
        ProviderApi::Openai => Frames(vec![chunk(&json!({ "content": text }), None), chunk(&json!({}), Some(reason))]),
        ProviderApi::Anthropic => {
            let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
            let mut frames = vec![json!({ "type": "message_start", "message": { "usage": usage } })];
            if !text.is_empty() {
                let (block, delta) =
                    (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": text }));
                frames.push(json!({ "type": "content_block_start", "index": 0, "content_block": block }));
                frames.push(json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
                frames.push(json!({ "type": "content_block_stop", "index": 0 }));
            }
            frames.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": usage }));
            frames.push(json!({ "type": "message_stop" }));
            Frames(frames)
        }
        ProviderApi::Gemini => {
            let candidate = json!({ "content": { "parts": [{ "text": text }] }, "finishReason": reason });
            Frames(vec![json!({ "candidates": [candidate] })])
        }
    }
}

#[tokio::test]
async fn limited_or_paused_answer_continues_by_itself() {
    for (api, reason) in [
        (ProviderApi::Openai, "length"),
        (ProviderApi::Anthropic, "max_tokens"),
        (ProviderApi::Anthropic, "pause_turn"),
        (ProviderApi::Gemini, "MAX_TOKENS"),
    ] {
        let last = match api {
            ProviderApi::Gemini => ended(api, "look.", "STOP"),
            ProviderApi::Anthropic | ProviderApi::Openai => Complete(vec![text("look.")]),
        };
        let mut session = session_of(api, vec![ended(api, "First I", reason), last]).await;
        session.prompt("t1", "go").await;
        assert_eq!(session.outcome("t1").await, WorkOutcome::Done, "{reason}");
        assert_eq!(session.events(), ["message _: First I", "message _: look."], "{reason}");
        let sent = session.agent.gateway.requests()[1].to_string();
        assert!(sent.contains("First I") && sent.contains("Continue exactly where it ended"), "{sent}");
    }
}

#[tokio::test]
async fn answer_limited_every_time_ends_turn_with_reason() {
    let api = ProviderApi::Openai;
    let answers = (0..20).map(|n| ended(api, &format!("and {n} "), "length")).collect();
    let mut session = session_of(api, answers).await;
    session.prompt("t1", "go").await;
    let detail = failure_of(&mut session, "t1").await;
    assert!(detail.contains("limit of output tokens 9 times in a row"), "{detail}");
    assert_eq!(session.agent.gateway.requests().len(), 9);
}

#[tokio::test]
async fn limited_answer_that_repeats_ends_turn_with_reason() {
    let api = ProviderApi::Openai;
    let mut session = session_of(api, (0..20).map(|_| ended(api, "and so on ", "length")).collect()).await;
    session.prompt("t1", "go").await;
    let detail = failure_of(&mut session, "t1").await;
    assert!(detail.contains("limit of output tokens twice with the same text"), "{detail}");
    assert_eq!(session.agent.gateway.requests().len(), 2);
}

#[tokio::test]
async fn call_cut_by_limit_is_reported_and_not_made() {
    let part = |index: u32, arguments: &str| {
        let function = json!({ "name": "run", "arguments": arguments });
        json!({ "tool_calls": [{ "index": index, "id": format!("c{index}"), "type": "function", "function": function }] })
    };
    let cut = Frames(vec![
        chunk(&part(0, r#"{"command":"echo one >> f"}"#), None),
        chunk(&part(1, r#"{"command":"echo two >> f"#), None),
        chunk(&json!({}), Some("length")),
    ]);
    let mut session = session_of(ProviderApi::Openai, vec![cut, Complete(vec![text("I see.")])]).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let events = session.events();
    assert_eq!(events[..2], ["run! c0", "run c0: [0] "]);
    assert!(events[2].starts_with("error c1: your answer reached its limit of output tokens within this call"));
    assert_eq!(std::fs::read_to_string(session.agent.file("f")).expect("the file exists"), "one\n");
    let sent = session.agent.gateway.requests()[1]["messages"].to_string();
    assert!(sent.contains("limit of output tokens within this call, so it was not made"), "{sent}");
}

#[tokio::test]
async fn refused_filtered_or_empty_answer_ends_turn_with_words() {
    for (api, said, reason) in [
        (ProviderApi::Openai, "", "content_filter"),
        (ProviderApi::Openai, "Half a", "content_filter"),
        (ProviderApi::Anthropic, "", "refusal"),
        (ProviderApi::Anthropic, "Half a", "refusal"),
        (ProviderApi::Openai, "", "stop"),
        (ProviderApi::Anthropic, "", "end_turn"),
    ] {
        let mut session = session_of(api, (0..5).map(|_| ended(api, said, reason)).collect()).await;
        session.prompt("t1", "go").await;
        let detail = failure_of(&mut session, "t1").await;
        assert!(detail.len() > 10, "{reason}: {detail}");
        assert!(session.agent.gateway.requests().len() <= 3, "{reason}");
        // The text of such an answer is not the model's answer, so it is marked.
        let expected: &[&str] = if said.is_empty() { &[] } else { &["message _: [partial] Half a"] };
        assert_eq!(session.events(), expected, "{reason}");
    }
}

#[tokio::test]
async fn thinking_alone_is_no_answer() {
    for api in APIS {
        let thinks = || Complete(vec![ScriptedPart::Thinking("Hm.")]);
        let mut session = session_of(api, vec![thinks(), Complete(vec![text("Well.")])]).await;
        session.prompt("t1", "go").await;
        assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
        assert_eq!(session.events().last().map(String::as_str), Some("message _: Well."));
    }
}

#[tokio::test]
async fn temporary_error_is_retried_wherever_it_stands() {
    let limit = || json!({ "error": { "message": "Rate limit exceeded", "code": 429 } });
    let answers = vec![
        Frames(vec![limit()]),
        Frames(vec![chunk(&json!({ "content": "Half a" }), None), limit()]),
        Complete(vec![text("Half a loaf.")]),
    ];
    let mut session = session_of(ProviderApi::Openai, answers).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(session.events(), ["message _: [partial] Half a", "message _: Half a loaf."]);
}

#[tokio::test]
async fn answer_that_is_no_stream_is_read() {
    let message =
        json!({ "choices": [{ "index": 0, "message": { "content": "All of it." }, "finish_reason": "stop" }] });
    let mut session = session_of(ProviderApi::Openai, vec![ScriptedAnswer::Json(message)]).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(session.events(), ["message _: All of it."]);
}

fn unknown_rejection() -> ScriptedAnswer {
    Status(400, r#"{"error":{"message":"no"}}"#)
}

fn sizes(session: &AgentTestSession) -> Vec<usize> {
    session.agent.gateway.requests().iter().map(|body| body["messages"].to_string().len()).collect()
}

#[tokio::test]
async fn unknown_rejection_of_long_conversation_is_tried_once_shorter() {
    for api in APIS {
        let mut session = session_of(api, vec![unknown_rejection(), Complete(vec![text("Fits.")])]).await;
        session.prompt("t1", &"x".repeat(100_000)).await;
        assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
        let sizes = sizes(&session);
        assert!(sizes[0] > 100_000 && sizes[1] < 60_000, "{sizes:?}");
    }
}

#[tokio::test]
async fn conversation_is_whole_again_after_a_trial_that_did_not_help() {
    let answers = vec![unknown_rejection(), unknown_rejection(), Complete(vec![text("Whole.")])];
    let mut session = session_of(ProviderApi::Openai, answers).await;
    session.prompt("t1", &"x".repeat(100_000)).await;
    assert_eq!(failure_of(&mut session, "t1").await, "the model answered 400: no");
    session.prompt("t2", "again").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    let sizes = sizes(&session);
    assert!(sizes[1] < sizes[0] && sizes[2] > sizes[0], "{sizes:?}");
}

#[tokio::test]
async fn unknown_rejection_of_short_conversation_is_final() {
    let mut session = session_of(ProviderApi::Openai, vec![unknown_rejection()]).await;
    session.prompt("t1", "go").await;
    assert_eq!(failure_of(&mut session, "t1").await, "the model answered 400: no");
    assert_eq!(session.agent.gateway.requests().len(), 1);
}

#[tokio::test]
async fn rejected_limit_of_output_tokens_is_lowered() {
    let no = || Status(400, r#"{"error":{"type":"invalid_request_error","message":"max_tokens: 32000 > 8192"}}"#);
    let mut session = session_of(ProviderApi::Anthropic, vec![no(), no(), Complete(vec![text("Fits.")])]).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let limits: Vec<u64> =
        session.agent.gateway.requests().iter().map(|body| body["max_tokens"].as_u64().expect("a limit")).collect();
    assert_eq!(limits, [32_000, 16_000, 8000]);
}

#[tokio::test]
async fn effort_and_model_are_sent_as_set() {
    for effort in [None, Some(ReasoningEffort::High)] {
        for api in APIS {
            let mut agent = AgentProcess::start(vec![Complete(vec![text("Done.")])]);
            agent.settings.api = api;
            agent.settings.effort = effort;
            agent.settings.model = "vendor/a model-medium:free".into();
            let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
            session.prompt("t1", "go").await;
            assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
            let body = session.agent.gateway.requests().remove(0);
            assert_eq!(body["model"], "vendor/a model-medium:free");
            let expected = effort.map(|_| match api {
                ProviderApi::Anthropic => ("thinking", json!({ "type": "enabled", "budget_tokens": 16_000 })),
                ProviderApi::Openai => ("reasoning_effort", json!("high")),
                ProviderApi::Gemini => unreachable!("`APIS` does not list the format"),
            });
            let sent =
                ["thinking", "reasoning_effort"].iter().find_map(|field| Some((*field, body.get(field)?.clone())));
            assert_eq!(sent, expected);
            assert_eq!(body.get("temperature"), None);
        }
    }
}

#[tokio::test]
async fn reasoning_goes_back_with_its_call_until_model_changes() {
    let think = || Complete(vec![ScriptedPart::Thinking("I look."), call("c1", "think", json!({ "content": "x" }))]);
    let done = || Complete(vec![ScriptedPart::Thinking("Enough."), text("Done.")]);
    let mut session = session_of(ProviderApi::Openai, vec![think(), done(), done(), done()]).await;
    for turn in ["t1", "t2"] {
        session.prompt(turn, "go").await;
        assert_eq!(session.outcome(turn).await, WorkOutcome::Done);
    }
    let mut settings = session.agent.settings.clone();
    settings.model = "another".into();
    session.send_command(AgentCommand::Settings(settings)).await;
    session.prompt("t3", "go").await;
    assert_eq!(session.outcome("t3").await, WorkOutcome::Done);
    let requests = session.agent.gateway.requests();
    let reasoning = |request: &Value| -> Vec<Value> {
        let messages = request["messages"].as_array().expect("messages").iter();
        messages.filter_map(|message| message.get("reasoning_content").cloned()).collect()
    };
    assert_eq!(reasoning(&requests[1]), [json!("I look.")]);
    assert_eq!(reasoning(&requests[2]), [json!("I look.")], "a message without calls needs none");
    assert_eq!(requests[3]["model"], "another");
    assert!(reasoning(&requests[3]).is_empty());
}
