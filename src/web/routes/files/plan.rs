//! Plan of the agent, as the user saves it.

use greenroom_protocol::{plan::plan_in_workspace, sandbox_paths::WORKSPACE};
use tokio::io::AsyncReadExt;

use super::target;
use crate::{
    files::PlacedFile,
    session::{PlanSaved, plan_path},
    store::SessionId,
    web::{error::ApiError, state::WebServices},
};

/// Largest plan that is recorded, in bytes. The agent reports a larger one at its next step.
const PLAN_LIMIT: u64 = 32 * 1024;

/// Records an uploaded file in the journal if the file is the session's plan. All clients then show
/// the new plan, also while the agent is stopped.
///
/// A plan that cannot be recorded is saved all the same, and the agent reads it.
pub(super) async fn record_plan(services: &WebServices, id: SessionId, placed: &PlacedFile) {
    if placed.bytes > PLAN_LIMIT {
        return;
    }
    if let Err(error) = try_record(services, id, placed).await {
        tracing::warn!(session = %id, %error, "a saved plan is not recorded");
    }
}

async fn try_record(services: &WebServices, id: SessionId, placed: &PlacedFile) -> Result<(), ApiError> {
    let path = placed.path.text().text;
    let file_name = plan_path(id, services.files.is_shared());
    if !path.ends_with(&file_name) {
        return Ok(());
    }
    let record = services.snapshot(id).await?.record;
    if path != plan_in_workspace(record.directory.as_deref().unwrap_or(WORKSPACE), &file_name) {
        return Ok(());
    }
    let (file, _) = services.files.open_file(target(id, placed.path.clone())).await?;
    let mut content = Vec::new();
    let read = tokio::fs::File::from_std(file).take(PLAN_LIMIT).read_to_end(&mut content).await;
    read.map_err(|e| ApiError::unavailable(format!("`{path}` cannot be read: {e}")))?;
    let markdown = String::from_utf8_lossy(&content).into_owned();
    services.send_to_session(id, PlanSaved { path, markdown }).await??;
    Ok(())
}
