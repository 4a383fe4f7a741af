//! Plan that the user or a command changes beside the agent.

use greenroom_protocol::{
    ObservationKind,
    link::{AgentReport, WorkOutcome},
};
use serde_json::json;

use crate::{
    agent::AgentProcess,
    gateway::{ScriptedAnswer::Complete, call, text},
    session::AgentTestSession,
};

const PLAN: &str = ".greenroom/plan.md";
const CHANGED: &str = "was changed, by the user or by a command. The plan is now:]";

fn plan(content: &str) -> Vec<crate::gateway::ScriptedPart> {
    vec![call("p", "plan", json!({ "content": content }))]
}

/// Returns the texts of the reported plans, with `!` for those without a call.
fn plans(session: &AgentTestSession) -> Vec<String> {
    let plan = |report: &AgentReport| {
        let AgentReport::Event { item, body: greenroom_protocol::EventBody::Observation(observation) } = report else {
            return None;
        };
        let ObservationKind::Plan { .. } = observation.kind else { return None };
        Some(format!("{}{}", if item.is_none() { "!" } else { "" }, observation.content))
    };
    session.reports.iter().filter_map(plan).collect()
}

#[tokio::test]
async fn users_edit_reaches_next_step() {
    let wait = "echo ready; until [ -e go ]; do sleep 0.01; done";
    let answers = vec![
        Complete(plan("- [ ] one\n- [ ] two")),
        Complete(vec![call("c", "run", json!({ "command": wait }))]),
        Complete(vec![text("I see.")]),
    ];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    session.output_after("ready").await;
    std::fs::write(session.agent.file(PLAN), "- [x] one\n- [ ] two").expect("the file is writable");
    std::fs::write(session.agent.file("go"), "").expect("the file is writable");
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let requests = session.agent.gateway.requests();
    assert!(!requests[1].to_string().contains(CHANGED), "the agent's own plan is no change");
    let last = requests[2]["messages"].as_array().expect("messages").last().expect("one").to_string();
    assert!(last.contains(CHANGED) && last.contains("- [x] one"), "{last}");
    assert_eq!(plans(&session), ["- [ ] one\n- [ ] two", "!- [x] one\n- [ ] two"]);
}

#[tokio::test]
async fn plan_of_a_command_is_reported() {
    let command = "mkdir -p .greenroom && printf -- '- [~] one' > .greenroom/plan.md";
    let answers = vec![Complete(vec![call("c", "run", json!({ "command": command }))]), Complete(vec![text("Done.")])];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(plans(&session), ["!- [~] one"]);
}

#[tokio::test]
async fn unseen_edit_is_not_overwritten() {
    // The command's change and the agent's plan are in one answer: the model has not seen the
    // first.
    let command = "printf -- '- [x] mine' > .greenroom/plan.md";
    let answers = vec![
        Complete(plan("- [ ] first")),
        Complete(vec![
            call("c", "run", json!({ "command": command })),
            call("q", "plan", json!({ "content": "- [ ] lost" })),
        ]),
        Complete(vec![call("r", "plan", json!({ "content": "- [x] mine\n- [ ] both" }))]),
        Complete(vec![text("Done.")]),
    ];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let third = session.agent.gateway.requests()[2].to_string();
    assert!(third.contains("the plan was changed meanwhile") && third.contains(CHANGED), "{third}");
    assert_eq!(plans(&session), ["- [ ] first", "!- [x] mine", "- [x] mine\n- [ ] both"]);
    assert_eq!(std::fs::read_to_string(session.agent.file(PLAN)).expect("the plan exists"), "- [x] mine\n- [ ] both");
}

#[tokio::test]
async fn edit_during_a_stop_reaches_first_step() {
    let mut agent = AgentProcess::start(vec![Complete(vec![text("I see.")])]);
    agent.settings.plan_path = Some("plans/mine.md".to_owned());
    std::fs::create_dir(agent.file("plans")).expect("a directory");
    std::fs::write(agent.file("plans/mine.md"), "- [x] one").expect("the file is writable");
    let event = r#"{"seq":1,"at":"2026-01-01T00:00:00.000Z","source":"agent","observation":"plan",
        "extras":{"path":"plans/mine.md","items":[{"text":"one","done":false}]},"content":"- [ ] one"}"#;
    let mut session = AgentTestSession::with_history(agent, vec![serde_json::from_str(event).expect("an event")]).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let request = session.agent.gateway.requests()[0].to_string();
    assert_eq!(request.matches(CHANGED).count(), 2, "the plan of the journal, and the newer file: {request}");
    assert_eq!(plans(&session), ["!- [x] one"]);
}
