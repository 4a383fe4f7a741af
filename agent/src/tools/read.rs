//! `read`: reads a text file, whole for the journal and with line numbers for the model.

use greenroom_protocol::{Observation, ObservationKind};

use super::{ToolContext, ToolError, ToolResult, files, for_model, tool_output::ToolOutput};
use crate::threads::off_thread;

pub(super) async fn read(path: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
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
    text.lines().enumerate().map(|(index, line)| format!("{:>6}\t{line}\n", index + 1)).collect()
}
