//! `finish`: ends the turn. The turn's driver ends the turn itself, so there is nothing to run.

use serde_json::json;

use super::{AgentTool, not_a_tool, own_action, schema};

pub(super) const TOOL: AgentTool = AgentTool {
    name: "finish",
    about: "Say that the task is done, or that it cannot be done and why. Ends your turn.",
    arguments: || {
        let message = schema::text("What you did and how you checked it, in a few sentences.");
        schema::object(&["message"], json!({ "message": message }))
    },
    parse: own_action,
    run: |action, _| not_a_tool(action),
    stops_itself: false,
};
