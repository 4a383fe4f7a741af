//! A restarted agent continues the session from the end of its journal.

use greenroom_agent::tools::TOOLS;
use greenroom_protocol::{
    Event,
    link::{AgentCommand, ProviderApi, ToAgent, WorkOutcome},
};
use serde_json::{Value, json};

use crate::{
    agent::AgentProcess,
    gateway::{
        ScriptedAnswer::{Complete, Hangs},
        text,
    },
    session::AgentTestSession,
};

fn journal() -> Vec<Event> {
    let events = [
        json!({ "source": "user", "action": "start", "args": { "task": "list" } }),
        json!({ "source": "server", "observation": "agent_state_changed", "extras": { "agent_state": "running", "since": "x" } }),
        json!({ "source": "user", "observation": "chat", "extras": {}, "content": "list" }),
        json!({ "source": "agent", "item": "m0", "observation": "think", "extras": {}, "content": "Hm." }),
        json!({ "source": "agent", "item": "m1", "observation": "message", "extras": { "partial": true }, "content": "Look" }),
        json!({ "source": "agent", "item": "m2", "observation": "message", "extras": {}, "content": "Looking." }),
        json!({ "source": "agent", "item": "c1", "action": "run", "args": { "command": "ls" } }),
        json!({ "source": "agent", "item": "c1", "observation": "run", "extras": { "command": "ls", "exit_code": 0, "duration_ms": 1 }, "content": "a\n" }),
        json!({ "source": "agent", "item": "c2", "action": "run", "args": { "command": "rm a" } }),
        json!({ "source": "agent", "action": "smell", "args": {} }),
    ];
    let event = |(index, mut event): (usize, Value)| {
        event["seq"] = json!(index + 1);
        event["at"] = json!("2026-01-01T00:00:00.000Z");
        serde_json::from_value(event).expect("an event")
    };
    events.into_iter().enumerate().map(event).collect()
}

async fn request(api: ProviderApi) -> Value {
    let mut agent = AgentProcess::start(vec![Complete(vec![text("So it is.")])]);
    agent.settings.api = api;
    let mut session = AgentTestSession::with_history(agent, journal()).await;
    session.prompt("t2", "go on").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    session.agent.gateway.requests().pop().expect("one request")
}

#[tokio::test]
async fn restored_conversation_in_anthropic_format() {
    let request = request(ProviderApi::Anthropic).await;
    assert_eq!(
        request["messages"],
        json!([
            { "role": "user", "content": "list" },
            { "role": "assistant", "content": [
                { "type": "text", "text": "Looking." },
                { "type": "tool_use", "id": "c1", "name": "run", "input": { "command": "ls" } },
            ] },
            { "role": "user", "content": [{ "type": "tool_result", "content": "a\n\n[Exit code 0.]", "tool_use_id": "c1" }] },
            { "role": "assistant", "content": [
                { "type": "tool_use", "id": "c2", "name": "run", "input": { "command": "rm a" } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "content": "[Interrupted before it had a result.]", "tool_use_id": "c2" },
                { "type": "text", "text": "go on", "cache_control": { "type": "ephemeral" } },
            ] },
        ])
    );
    assert_eq!(request["tools"].as_array().map(Vec::len), Some(TOOLS.len()));
    assert!(request["system"].to_string().contains("/work`"));
    assert_eq!(request["model"], "claude-test");
}

#[tokio::test]
async fn repeated_history_is_ignored() {
    let mut session = AgentTestSession::open(vec![Hangs(vec![text("I wor")])]).await;
    session.prompt("t1", "go").await;
    session.until(|session| !session.deltas.is_empty()).await;
    session.redial_to(true).await;
    session.link.send(&ToAgent::History { events: journal(), complete: false }).await;
    session.redial_to(true).await;
    session.link.send(&ToAgent::History { events: journal(), complete: true }).await;
    session.send_command(AgentCommand::Cancel {}).await;
    assert!(matches!(session.outcome("t1").await, WorkOutcome::Cancelled { partial: true, .. }));
    assert_eq!(session.events(), ["message _: [partial] I wor"]);
}

#[tokio::test]
async fn restored_conversation_in_openai_format() {
    let request = request(ProviderApi::Openai).await;
    let messages = request["messages"].as_array().expect("messages");
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool", "user"]);
    assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], r#"{"command":"ls"}"#);
    assert_eq!(messages[5]["tool_call_id"], "c2");
    assert_eq!(messages[6]["content"], "go on");
    assert_eq!(request["stream_options"]["include_usage"], true);
}
