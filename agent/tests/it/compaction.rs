//! Compaction: a summary by the model precedes the dropping of old messages, and outlives a
//! restart.

use greenroom_protocol::{
    Event, ObservationKind,
    link::{AgentCommand, ProviderApi, WorkOutcome},
};
use serde_json::{Value, json};

use crate::{
    agent::AgentProcess,
    gateway::{
        ScriptedAnswer::{self, Complete, Hangs, Status},
        call, text,
    },
    session::AgentTestSession,
};

/// Opens a session with a model of small context. Its first five answers make calls with large
/// results; then the conversation is too long.
async fn session_with(then: Vec<ScriptedAnswer>) -> AgentTestSession {
    let ids = ["c1", "c2", "c3", "c4", "c5"];
    let large = |id| Complete(vec![call(id, "run", json!({ "command": "head -c 9000 /dev/zero | tr '\\0' x" }))]);
    let mut agent = AgentProcess::start(ids.map(large).into_iter().chain(then).collect());
    agent.settings.api = ProviderApi::Openai;
    agent.settings.context_limit = Some(24_000);
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.prompt("t1", "fill it").await;
    session
}

fn messages(request: &Value) -> String {
    request["messages"].to_string()
}

#[tokio::test]
async fn summary_of_model_replaces_older_part() {
    let then = vec![Complete(vec![text("I filled it.")]), Complete(vec![text("Done.")])];
    let mut session = session_with(then).await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let events = session.events();
    assert_eq!(events[events.len() - 2..], ["compaction _: I filled it.", "message _: Done."]);
    let compaction = session.observations().into_iter().find_map(|observation| match observation.kind {
        ObservationKind::Compaction { dropped_bytes, kept } => Some((dropped_bytes, kept)),
        _ => None,
    });
    let (dropped_bytes, kept) = compaction.expect("the summary is reported");
    assert!(dropped_bytes > 30_000 && kept == 2, "{dropped_bytes} {kept}");
    let requests = session.agent.gateway.requests();
    assert_eq!(requests.len(), 7);
    assert!(requests[5].get("tools").is_none() && messages(&requests[5]).contains("User: fill it"));
    let sent = messages(&requests[6]);
    assert!(sent.contains("fill it") && sent.contains("I filled it.") && sent.len() < 20_000, "{}", sent.len());
    assert!(sent.contains("c5") && !sent.contains("c1"), "the newest call stays");
}

#[tokio::test]
async fn failed_summary_drops_old_results() {
    let mut session = session_with(vec![Status(403, "no"), Complete(vec![text("Done.")])]).await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(session.events().last().map(String::as_str), Some("message _: Done."));
    assert!(!session.events().iter().any(|event| event.starts_with("compaction")));
    assert!(messages(&session.agent.gateway.requests()[6]).contains("This output was left out to save room"));
}

#[tokio::test]
async fn interrupted_summary_ends_turn() {
    let mut session = session_with(vec![Hangs(vec![text("I fi")]), Complete(vec![text("I filled it.")])]).await;
    while session.agent.gateway.requests().len() < 6 {
        tokio::task::yield_now().await;
    }
    session.send_command(AgentCommand::Cancel {}).await;
    assert!(matches!(session.outcome("t1").await, WorkOutcome::Cancelled { .. }));
    assert!(!session.events().iter().any(|event| event.starts_with("compaction")));
}

#[tokio::test]
async fn restarted_agent_continues_from_summary() {
    let run = json!({ "command": "ls" });
    let events = [
        json!({ "source": "user", "observation": "chat", "extras": {}, "content": "the task" }),
        json!({ "source": "agent", "item": "c1", "action": "run", "args": run }),
        json!({ "source": "agent", "item": "c1", "observation": "run", "extras": { "command": "ls", "exit_code": 0, "duration_ms": 1 }, "content": "old" }),
        json!({ "source": "agent", "item": "c2", "action": "run", "args": run }),
        json!({ "source": "agent", "item": "c2", "observation": "run", "extras": { "command": "ls", "exit_code": 0, "duration_ms": 1 }, "content": "new" }),
        json!({ "source": "agent", "observation": "compaction", "extras": { "dropped_bytes": 9, "kept": 2 }, "content": "It went well." }),
        json!({ "source": "agent", "item": "m1", "observation": "message", "extras": {}, "content": "Done." }),
    ];
    let event = |(index, mut event): (usize, Value)| -> Event {
        event["seq"] = json!(index + 1);
        event["at"] = json!("2026-01-01T00:00:00.000Z");
        serde_json::from_value(event).expect("an event")
    };
    let history = events.into_iter().enumerate().map(event).collect();
    let mut agent = AgentProcess::start(vec![Complete(vec![text("So it is.")])]);
    agent.settings.api = ProviderApi::Openai;
    let mut session = AgentTestSession::with_history(agent, history).await;
    session.prompt("t2", "go on").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    let request = session.agent.gateway.requests().remove(0);
    let sent = request["messages"].as_array().expect("messages");
    let roles: Vec<&str> = sent.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    let first = sent[1]["content"].as_str().expect("a text");
    assert!(first.starts_with("the task") && first.ends_with("It went well."), "{first}");
    assert_eq!(sent[2]["tool_calls"][0]["id"], "c2");
}
