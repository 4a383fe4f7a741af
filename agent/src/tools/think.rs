//! `think`: records a thought.

use futures::FutureExt;
use greenroom_protocol::{Action, Observation, ObservationKind};
use serde_json::json;

use super::{AgentTool, ToolResult, not_a_tool, own_action, schema};

pub(super) const TOOL: AgentTool = AgentTool {
    name: "think",
    about: "Write down a thought before a difficult step. Nothing else happens.",
    arguments: || schema::object(&["content"], json!({ "content": schema::text("The thought.") })),
    parse: own_action,
    run: |action, _| match action {
        Action::Think { content } => std::future::ready(Ok(think(content))).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: false,
};

fn think(content: &str) -> ToolResult {
    let observation = Observation { kind: ObservationKind::Think { partial: false }, content: content.to_owned() };
    ToolResult { observation, model_text: "Noted.".to_owned() }
}
