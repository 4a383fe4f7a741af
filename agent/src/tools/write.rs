//! `write`: writes a whole file.

use greenroom_protocol::{Observation, ObservationKind};

use super::{
    ToolContext, ToolError, ToolResult,
    files::{self, FileReplacement},
};
use crate::threads::off_thread;

pub(super) async fn write(path: &str, content: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
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
