//! `plan`: keeps the agent's plan in the workspace, as markdown.

use futures::FutureExt;
use greenroom_protocol::{Action, Observation, ObservationKind, observation::PlanItem};
use serde_json::json;

use super::{AgentTool, ToolContext, ToolError, ToolResult, files::FileReplacement, not_a_tool, own_action, schema};
use crate::threads::off_thread;

pub(super) const TOOL: AgentTool = AgentTool {
    name: "plan",
    about: "Write or replace your plan, as markdown with one checkbox for each step (`- [ ] step`, `- [x] step`). The user \
        sees it. Use it for work of several steps, and keep it up to date.",
    arguments: || schema::object(&["content"], json!({ "content": schema::text("All of the plan.") })),
    parse: own_action,
    run: |action, context| match action {
        Action::Plan { content } => plan(content, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: false,
};

/// Path of the plan, below the working directory.
const PATH: &str = ".greenroom/plan.md";

async fn plan(content: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let (file, text, stop) = (context.directory.join(PATH), content.to_owned(), context.stop.clone());
    off_thread(move || FileReplacement { file: &file, path: PATH, content: &text, before: None }.write(&stop)).await?;
    let items = items(content);
    let done = items.iter().filter(|item| item.done).count();
    let model_text = format!("The plan is kept: {done} of {} steps done.", items.len());
    let kind = ObservationKind::Plan { path: PATH.to_owned(), items };
    Ok(ToolResult { observation: Observation { kind, content: content.to_owned() }, model_text })
}

/// Returns the lines with a checkbox.
fn items(markdown: &str) -> Vec<PlanItem> {
    let item = |line: &str| {
        let line = line.trim_start();
        let bullet =
            line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['-', '*', '+', '.', ')']);
        let (mark, text) = bullet.trim_start().strip_prefix('[')?.split_once(']')?;
        let done = match mark {
            "x" | "X" => true,
            " " | "" => false,
            _ => return None,
        };
        Some(PlanItem { text: text.trim().to_owned(), done })
    };
    markdown.lines().filter_map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkbox_lines_are_items() {
        let check = |line: &str, expected: Option<(&str, bool)>| {
            let found = items(line).pop().map(|item| (item.text, item.done));
            assert_eq!(found, expected.map(|(text, done)| (text.to_owned(), done)), "{line}");
        };
        check("- [ ] write it", Some(("write it", false)));
        check("  * [x] run it", Some(("run it", true)));
        check("1. [X] ship it", Some(("ship it", true)));
        check("- [link](https://example.org)", None);
        check("# Plan", None);
    }
}
