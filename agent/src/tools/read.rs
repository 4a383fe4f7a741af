//! `read`: a text file, whole for the journal and with line numbers for the model.

use greenroom_protocol::{Observation, ObservationKind};

use super::{ToolContext, ToolError, ToolResult, files, for_model, tool_output::ToolOutput};
use crate::threads::off_thread;

pub(super) async fn read(path: &str, bench: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let (file, named) = (files::locate(&bench.directory, path)?, path.to_owned());
    let (text, told) = off_thread(move || {
        let text = files::read_text(&file, &named)?;
        let told = if text.is_empty() { "(the file is empty)".to_owned() } else { for_model(&numbered(&text)) };
        Ok((text, told))
    })
    .await?;
    let mut whole = ToolOutput::new();
    whole.push(&text);
    let kept = whole.finish(bench).await;
    let seen = ObservationKind::Read { path: path.to_owned(), truncated: kept.truncated() };
    Ok(ToolResult { observation: Observation { kind: seen, content: kept.content() }, model_text: told })
}

fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(index, line)| format!("{:>6}\t{line}\n", index + 1)).collect()
}
