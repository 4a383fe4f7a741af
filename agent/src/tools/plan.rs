//! `plan`: keeps the agent's plan in the workspace, as markdown.

use futures::FutureExt;
use greenroom_protocol::{
    Action,
    plan::{plan_in_workspace, plan_items, plan_observation},
};
use serde_json::json;

use super::{AgentTool, ToolContext, ToolError, ToolResult, files::FileReplacement, not_a_tool, own_action, schema};
use crate::threads::off_thread;

pub(super) const TOOL: AgentTool = AgentTool {
    name: "plan",
    about: "Write or replace your plan, as markdown with one checkbox for each step (`- [ ] step`, `- [~] step in \
        progress`, `- [x] step done`). The user sees and edits it. Use it for work of several steps, and keep it up \
        to date.",
    arguments: || schema::object(&["content"], json!({ "content": schema::text("All of the plan.") })),
    parse: own_action,
    run: |action, context| match action {
        Action::Plan { content } => plan(content, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: false,
};

async fn plan(content: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let (path, text, stop) = (context.plan_path.clone(), content.to_owned(), context.stop.clone());
    let file = context.directory.join(&path);
    off_thread(move || FileReplacement { file: &file, path: &path, content: &text, before: None }.write(&stop)).await?;
    let path = plan_in_workspace(&context.directory.to_string_lossy(), &context.plan_path);
    let items = plan_items(content);
    let done = items.iter().filter(|item| item.done).count();
    let model_text = format!("The plan is kept in `{}`: {done} of {} steps done.", context.plan_path, items.len());
    Ok(ToolResult { observation: plan_observation(path, content.to_owned()), model_text })
}
