//! Preview of a change: the diff that a call would make, without making it.

use std::{fs, io, path::Path, time::Duration};

use greenroom_protocol::{Action, excerpt};

use super::{
    ToolError, edit,
    files::{self, BYTE_ORDER_MARK},
};
use crate::{clock, threads::off_thread};

/// Size limit of a preview, in bytes.
const PREVIEW_LIMIT: usize = 32 * 1024;

/// Time limit of a preview. A file system may never answer.
const PREVIEW_TIME: Duration = Duration::from_secs(10);

/// Returns the unified diff of the change that `action` would make, of at most about 32 KiB.
/// `None` if the action changes no text file, or if the file system is slow.
///
/// # Errors
/// Returns the error text for the model if an edit would fail.
pub(crate) async fn preview(action: &Action, directory: &Path) -> Result<Option<String>, String> {
    let (Action::Write { path, .. } | Action::Edit { path, .. }) = action else { return Ok(None) };
    let file = match files::locate(directory, path) {
        Ok(file) => file,
        // The call will fail in the same way, after the decision.
        Err(_) => return Ok(None),
    };
    let action = action.clone();
    let diff = off_thread(move || match action {
        Action::Write { path, content } => Ok(written(&file, &path, &content)),
        Action::Edit { path, edit } => edit::planned(&file, &path, &edit).map(|planned| Some(planned.diff)),
        _ => Ok(None),
    });
    let diff = tokio::select! {
        diff = diff => diff,
        () = clock::sleep(PREVIEW_TIME) => Ok(None),
    };
    match diff {
        Ok(diff) => Ok(diff.map(|diff| excerpt(&diff, PREVIEW_LIMIT).map_or(diff, |cut| cut.text))),
        Err(ToolError::Failed(detail)) => Err(detail),
        Err(ToolError::Stopped { .. }) => Ok(None),
    }
}

/// Returns the diff of a whole new content. `None` if the old content is no text, or the same.
fn written(file: &Path, path: &str, content: &str) -> Option<String> {
    let is_new = matches!(fs::symlink_metadata(file), Err(error) if error.kind() == io::ErrorKind::NotFound);
    let before = if is_new { String::new() } else { files::read_text(file, path).ok()? };
    let text = |content: &str| content.trim_start_matches(BYTE_ORDER_MARK).to_owned();
    let (before, after) = (text(&before), text(content));
    (before != after).then(|| edit::unified_diff(&before, &after, path, is_new))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn preview_of(call: &str, directory: &Path) -> Result<Option<String>, String> {
        preview(&serde_json::from_str(call).expect("an action"), directory).await
    }

    #[tokio::test]
    async fn preview_shows_change_and_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("f"), "a\nb\n").expect("the file is writable");
        fs::write(dir.path().join("binary"), [0, 1]).expect("the file is writable");
        for (call, expected) in [
            (
                r#"{"action":"edit","args":{"path":"f","change":"REPLACE","old":"b","lines":["x"]}}"#,
                Ok(Some("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+x\n")),
            ),
            (
                r#"{"action":"write","args":{"path":"f","content":"a\nc\n"}}"#,
                Ok(Some("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n")),
            ),
            (
                r#"{"action":"write","args":{"path":"d/new","content":"a\n"}}"#,
                Ok(Some("--- /dev/null\n+++ b/d/new\n@@ -0,0 +1 @@\n+a\n")),
            ),
            (r#"{"action":"write","args":{"path":"f","content":"a\nb\n"}}"#, Ok(None)),
            (r#"{"action":"write","args":{"path":"binary","content":"a"}}"#, Ok(None)),
            (r#"{"action":"run","args":{"command":"rm f"}}"#, Ok(None)),
        ] {
            assert_eq!(preview_of(call, dir.path()).await, expected.map(|diff| diff.map(str::to_owned)), "{call}");
        }
        assert_eq!(fs::read_to_string(dir.path().join("f")).expect("the file exists"), "a\nb\n");
        assert_eq!(fs::read_dir(dir.path()).expect("the directory is readable").count(), 2, "no file was made");
    }

    #[tokio::test]
    async fn edit_that_would_fail_has_no_preview() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("f"), "a\nb\n").expect("the file is writable");
        let absent = r#"{"action":"edit","args":{"path":"f","change":"DELETE","old":"absent"}}"#;
        assert!(preview_of(absent, dir.path()).await.is_err());
        let missing = r#"{"action":"edit","args":{"path":"none","change":"DELETE","line":1}}"#;
        assert!(preview_of(missing, dir.path()).await.is_err());
    }

    #[tokio::test]
    async fn preview_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let action = Action::Write { path: "f".into(), content: "line\n".repeat(1 << 18) };
        let diff = preview(&action, dir.path()).await.expect("a write has no error").expect("the file is new");
        assert!(diff.len() < PREVIEW_LIMIT + 100 && diff.contains("left out"), "{} bytes", diff.len());
    }
}
