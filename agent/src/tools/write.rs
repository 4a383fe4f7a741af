//! `write`: writes a whole file.

use futures::FutureExt;
use greenroom_protocol::{Action, Observation, ObservationKind};
use serde_json::json;

use super::{
    AgentTool, ToolContext, ToolError, ToolResult,
    files::{self, FileReplacement},
    not_a_tool, own_action, schema,
};
use crate::threads::off_thread;

pub(super) const TOOL: AgentTool = AgentTool {
    name: "write",
    about: "Write a whole file; directories are made as needed. To change part of a file, use `edit`.",
    arguments: || {
        let content = schema::text("All of the file.");
        schema::object(&["path", "content"], json!({ "path": schema::path(), "content": content }))
    },
    parse: own_action,
    run: |action, context| match action {
        Action::Write { path, content } => write(path, content, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: false,
};

async fn write(path: &str, content: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let bytes = content.len() as u64;
    let (file, stop) = (files::locate(&context.directory, path)?, context.stop.clone());
    let (display_path, content) = (path.to_owned(), content.to_owned());
    off_thread(move || {
        FileReplacement { file: &file, path: &display_path, content: &content, before: None }.write(&stop)
    })
    .await?;
    let observation =
        Observation { kind: ObservationKind::Write { path: path.to_owned(), bytes }, content: String::new() };
    Ok(ToolResult { observation, model_text: format!("Wrote {bytes} bytes to {path}.") })
}
