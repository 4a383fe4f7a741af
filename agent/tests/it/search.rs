//! The tool `search`, and with it the generic tool call from the model to the journal and back.

use std::fs;

use greenroom_protocol::{
    Action, EventBody, ObservationKind,
    link::{AgentReport, ProviderApi, WorkOutcome},
    tool::{ToolKind, ToolLocation, ToolStatus},
};
use serde_json::json;

use crate::{
    agent::AgentProcess,
    gateway::{ScriptedAnswer::Complete, call, text},
    session::AgentTestSession,
};

async fn searched(api: ProviderApi) -> AgentTestSession {
    let mut agent = AgentProcess::start(vec![
        Complete(vec![
            call("c1", "search", json!({ "pattern": "fn \\w+", "path": "src" })),
            call("c2", "search", json!({ "pattern": "(" })),
            call("c3", "search", json!({ "path": "src" })),
        ]),
        Complete(vec![text("Found.")]),
    ]);
    agent.settings.api = api;
    fs::create_dir(agent.file("src")).expect("the workspace is writable");
    fs::write(agent.file("src/main.rs"), "\nfn main() {}\n").expect("the workspace is writable");
    fs::write(agent.file("src/old.rs"), "fn old() {}\n").expect("the workspace is writable");
    fs::write(agent.file(".gitignore"), "old.rs\n").expect("the workspace is writable");
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.prompt("t1", "find it").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    session
}

#[tokio::test]
async fn result_reaches_journal_and_model() {
    for api in [ProviderApi::Anthropic, ProviderApi::Openai] {
        let session = searched(api).await;
        let events = session.events();
        assert_eq!(events[..3], ["tool! c1", "tool c1: src/main.rs:2:fn main() {}\n", "tool! c2"]);
        assert!(events[3].starts_with("tool c2: `pattern` is not a regular expression: "), "{}", events[3]);
        assert_eq!(
            events[4..],
            [
                "error c3: the arguments of `search` do not fit: missing field `pattern`; it takes `pattern`, `path`, \
                 `glob`, `names_only`",
                "message _: Found."
            ]
        );
        let requests = session.agent.gateway.requests();
        let sent = requests[1]["messages"].to_string();
        assert!(sent.contains("src/main.rs:2:fn main() {}") && !sent.contains("old.rs"), "{sent}");
    }
}

#[tokio::test]
async fn call_is_recorded_as_generic_tool() {
    let session = searched(ProviderApi::Anthropic).await;
    let actions = session.reports.iter().find_map(|report| match report {
        AgentReport::Event { body: EventBody::Action(action), .. } => Some(action),
        _ => None,
    });
    let title = "Search for `fn \\w+` in `src`".to_owned();
    let expected = Action::Tool {
        kind: ToolKind::Search,
        title: title.clone(),
        name: Some("search".into()),
        input: json!({ "pattern": "fn \\w+", "path": "src" }),
        locations: vec![ToolLocation { path: "src".into(), line: None }],
    };
    assert_eq!(actions, Some(&expected));
    let expected = |status, title, locations| ObservationKind::Tool {
        kind: ToolKind::Search,
        title,
        name: Some("search".into()),
        status,
        changes: Vec::new(),
        locations,
        truncated: None,
    };
    let found = vec![ToolLocation { path: "src/main.rs".into(), line: Some(2) }];
    let observations = session.observations();
    assert_eq!(observations[0].kind, expected(ToolStatus::Completed, title, found));
    assert_eq!(observations[1].kind, expected(ToolStatus::Failed, "Search for `(`".to_owned(), Vec::new()));
}
