//! `read`: reads a text file, whole for the journal and with line numbers for the model.

use futures::FutureExt;
use greenroom_protocol::{Action, Observation, ObservationKind};
use serde_json::json;

use super::{
    AgentTool, ToolContext, ToolError, ToolResult,
    files::{self, BYTE_ORDER_MARK},
    for_model, not_a_tool, numbered_line, own_action, schema,
    tool_output::ToolOutput,
};
use crate::threads::off_thread;

pub(super) const TOOL: AgentTool = AgentTool {
    name: "read",
    about: "Read a text file. It comes back with line numbers. Of a long file the middle is left out; use `run` with \
        `sed -n 200,300p file` for a part of it.",
    arguments: || schema::object(&["path"], json!({ "path": schema::path() })),
    parse: own_action,
    run: |action, context| match action {
        Action::Read { path } => read(path, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: false,
};

async fn read(path: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let (file, display_path) = (files::locate(&context.directory, path)?, path.to_owned());
    let (text, model_text) = off_thread(move || {
        let text = files::read_text(&file, &display_path)?;
        let model_text = if text.is_empty() { "(the file is empty)".to_owned() } else { for_model(&numbered(&text)) };
        Ok((text, model_text))
    })
    .await?;
    let mut output = ToolOutput::new();
    output.push(&text);
    let output = output.finish(context).await;
    let kind = ObservationKind::Read { path: path.to_owned(), truncated: output.truncated() };
    Ok(ToolResult { observation: Observation { kind, content: output.content() }, model_text })
}

fn numbered(text: &str) -> String {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    text.lines().enumerate().map(|(index, line)| numbered_line(index + 1, line)).collect()
}
