//! `edit`: changes part of a file, by line or by a text that occurs exactly once.

use std::{borrow::Cow, mem::take, path::Path, time::Duration};

use futures::FutureExt;
use greenroom_protocol::{
    Action, CONTENT_LIMIT, Observation, ObservationKind, action::FileEdit, excerpt, observation::EditKind,
};
use serde_json::{Value, json};
use similar::TextDiff;
use tokio_util::sync::CancellationToken;

use super::{
    AgentTool, ToolContext, ToolError, ToolResult,
    files::{self, BYTE_ORDER_MARK, FileReplacement},
    for_model, not_a_tool, numbered_line, own_action, schema,
};
use crate::threads::off_thread;

mod apply;

pub(super) const TOOL: AgentTool = AgentTool {
    name: "edit",
    about: "Change part of a file. Say where by `old`, a text that occurs exactly once in the file, or by `line` (from 1), \
        not both. REPLACE puts `lines` in place of `old`, or of lines `line` to `end_line`. INSERT puts `lines` before \
        `line` (one past the last line appends), or after the line in which `old` ends. DELETE removes `old`, or lines \
        `line` to `end_line`. The changed lines come back with their numbers.",
    arguments: || {
        schema::object(
            &["path", "change"],
            json!({
                "path": schema::path(),
                "change": { "type": "string", "enum": ["REPLACE", "INSERT", "DELETE"] },
                "old": schema::text("The text to find, exactly as it stands in the file."),
                "line": schema::number("The first line."),
                "end_line": schema::number("The last line; `line` where it is absent."),
                "lines": { "type": "array", "items": { "type": "string" }, "description": "The new lines, without line ends." },
            }),
        )
    },
    parse: |name, mut arguments| {
        // A model may send the lines as one text.
        if let Some(Value::String(text)) = arguments.get("lines") {
            arguments["lines"] = text.lines().collect();
        }
        own_action(name, arguments)
    },
    run: |action, context| match action {
        Action::Edit { path, edit: change } => edit(path, change, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: false,
};

/// Time limit for an exact diff. After it, the diff is finished roughly, because the change waits
/// for it.
const DIFF_TIME: Duration = Duration::from_millis(300);

/// Bytes shown of one line. A generated file may have all its text in one line.
const LINE_LIMIT: usize = 2 * 1024;

async fn edit(path: &str, edit: &FileEdit, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let file = files::locate(&context.directory, path)?;
    let (path, edit, stop) = (path.to_owned(), edit.clone(), context.stop.clone());
    off_thread(move || carry_out(&file, &path, &edit, &stop)).await
}

/// Change that an edit would make to a file.
pub(super) struct PlannedEdit {
    /// Content of the file, with its byte order mark.
    content: String,
    /// New content, with the same mark.
    after: String,
    /// Line at which the change begins, from 1.
    line: usize,
    /// Unified diff with shortened lines.
    pub(super) diff: String,
}

/// Returns the change that `edit` would make, and makes none.
pub(super) fn planned(file: &Path, path: &str, edit: &FileEdit) -> Result<PlannedEdit, ToolError> {
    let content = files::read_text(file, path)?;
    let before = content.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&content);
    let (line, after) = apply::apply(before, path, edit).map_err(ToolError::Failed)?;
    if after == before {
        return Err(ToolError::Failed(format!("the change leaves `{path}` as it is; change its text")));
    }
    let diff = unified_diff(before, &after, path, false);
    let mark = &content[..content.len() - before.len()];
    Ok(PlannedEdit { after: format!("{mark}{after}"), line, diff, content })
}

/// Returns the unified diff of two contents, with shortened lines. `is_new` marks a file that does
/// not exist yet.
pub(super) fn unified_diff(before: &str, after: &str, path: &str, is_new: bool) -> String {
    let old = if is_new { "/dev/null".to_owned() } else { format!("a/{path}") };
    let diff = TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(before, after)
        .unified_diff()
        .context_radius(3)
        .header(&old, &format!("b/{path}"))
        .to_string();
    shorten_lines(&diff, column(before, after))
}

fn carry_out(file: &Path, path: &str, edit: &FileEdit, stop: &CancellationToken) -> Result<ToolResult, ToolError> {
    let PlannedEdit { content, after, line, diff } = planned(file, path, edit)?;
    let (change, lines) = match edit {
        FileEdit::Replace { lines, .. } => (EditKind::Replace, limit_lines(lines)),
        FileEdit::Insert { lines, .. } => (EditKind::Insert, limit_lines(lines)),
        FileEdit::Delete { .. } => (EditKind::Delete, Vec::new()),
    };
    let model_text = for_model(&numbered_lines(&diff));
    let diff = excerpt(&diff, CONTENT_LIMIT).map_or(diff, |cut| cut.text);
    let kind = ObservationKind::Edit { path: path.to_owned(), line, change, lines, diff };
    // Written last: a stop before this leaves the file unchanged.
    FileReplacement { file, path, content: &after, before: Some(&content) }.write(stop)?;
    Ok(ToolResult { observation: Observation { kind, content: String::new() }, model_text })
}

/// Returns the offset of the change within its line, in bytes.
fn column(before: &str, after: &str) -> usize {
    let same = before.bytes().zip(after.bytes()).take_while(|(one, other)| one == other).count();
    let end = before.as_bytes()[..same].iter().rposition(|byte| *byte == b'\n');
    end.map_or(same, |end| same - end - 1)
}

/// Shortens the long lines of a unified diff. `column` is the offset at which the first removed and
/// the first added line begin to differ.
fn shorten_lines(diff: &str, column: usize) -> String {
    let (mut removed, mut added) = (column, column);
    let mut text = String::new();
    // The first two lines name the file.
    for (index, line) in diff.split_inclusive('\n').enumerate() {
        let from = match line.as_bytes()[0] {
            b'-' if index > 1 => take(&mut removed),
            b'+' if index > 1 => take(&mut added),
            _ => 0,
        };
        match line.strip_suffix('\n') {
            Some(line) => text.extend([&*shorten_line(line, from), "\n"]),
            None => text.push_str(&shorten_line(line, from)),
        }
    }
    text
}

/// Returns the line, or an excerpt of a long one: its first character, which is the diff's sign,
/// and the text around `from`.
fn shorten_line(line: &str, from: usize) -> Cow<'_, str> {
    if line.len() <= LINE_LIMIT {
        return line.into();
    }
    let sign = line.ceil_char_boundary(1);
    let start = line.floor_char_boundary(from.saturating_sub(LINE_LIMIT / 4)).max(sign);
    let end = line.floor_char_boundary(start + LINE_LIMIT);
    let left_out = |bytes: usize| if bytes > 0 { format!("… {bytes} bytes left out …") } else { String::new() };
    let (before, after) = (left_out(start - sign), left_out(line.len() - end));
    format!("{}{before}{}{after}", &line[..sign], &line[start..end]).into()
}

/// Returns the lines of a change up to [`CONTENT_LIMIT`].
fn limit_lines(lines: &[String]) -> Vec<String> {
    let (mut few, mut room) = (Vec::new(), CONTENT_LIMIT);
    for (index, line) in lines.iter().enumerate() {
        let line = shorten_line(line, 0);
        if line.len() >= room {
            few.push(format!("… {} lines left out …", lines.len() - index));
            break;
        }
        room -= line.len() + 1;
        few.push(line.into_owned());
    }
    few
}

/// Returns the lines of a unified diff as they are after the change, with their numbers. After an
/// omission, lines have none until the next hunk.
pub(crate) fn numbered_lines(diff: &str) -> String {
    let (mut text, mut number) = (String::new(), None);
    for line in diff.lines() {
        if let Some(hunk) = line.strip_prefix("@@ ") {
            if !text.is_empty() {
                text.push_str("       …\n");
            }
            let after = hunk.split_once('+').map(|(_, after)| after.split([',', ' ']).next().unwrap_or_default());
            number = after.and_then(|start| start.parse::<usize>().ok());
            continue;
        }
        let kept = line.strip_prefix([' ', '+']);
        match (&mut number, kept) {
            (Some(number), Some(kept)) => {
                text.push_str(&numbered_line(*number, kept));
                *number += 1;
            }
            (Some(_), None) if line.starts_with('…') => {
                text.extend([line, "\n"]);
                number = None;
            }
            // Removed, or no line of the file.
            (Some(_), None) => {}
            (None, _) if text.is_empty() && (line.starts_with("--- ") || line.starts_with("+++ ")) => {}
            (None, _) => text.extend([line, "\n"]),
        }
    }
    if text.is_empty() { "(the file is empty now)".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_shows_changed_part() {
        let line = |word: &str| format!("{}{word}{}", "a".repeat(1 << 20), "ä".repeat(1 << 20));
        let (before, after) = (format!("one\n{}\ntwo\n", line("old")), format!("one\n{}\ntwo\n", line("new")));
        let diff = format!("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n-{}\n+{}\n two\n", line("old"), line("new"));
        let shown = shorten_lines(&diff, column(&before, &after));
        assert!(shown.len() < 3 * LINE_LIMIT, "{} bytes", shown.len());
        let lines: Vec<&str> = shown.lines().collect();
        let [_, _, _, " one", removed, added, " two"] = lines[..] else { panic!("{shown}") };
        assert!(removed.starts_with("-… 1048063 bytes left out …aaa") && removed.contains("aaaoldäää"), "{removed}");
        assert!(added.starts_with("+… 1048063 bytes left out …aaa") && added.contains("aaanewäää"), "{added}");
        assert!(added.ends_with("bytes left out …"), "{added}");
    }

    #[test]
    fn many_lines_are_limited() {
        let model_text = limit_lines(&vec!["x".repeat(99); 10_000]);
        assert_eq!(model_text.last().map(String::as_str), Some("… 9345 lines left out …"));
        assert!(limit_lines(&["x".repeat(1 << 20)])[0].len() < LINE_LIMIT + 100);
        assert_eq!(limit_lines(&["a".into(), String::new()]), ["a", ""]);
    }

    #[test]
    fn byte_order_mark_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("f");
        let edit = |edit: &str| {
            let edit = serde_json::from_str(edit).expect("an edit");
            carry_out(&file, "f", &edit, &CancellationToken::new()).map(|done| done.model_text)
        };
        for (change, expected) in [
            (r#"{"change":"REPLACE","line":1,"lines":["x"]}"#, "\u{feff}x\nb\n"),
            (r#"{"change":"INSERT","line":1,"lines":["x"]}"#, "\u{feff}x\na\nb\n"),
            (r#"{"change":"DELETE","old":"a"}"#, "\u{feff}b\n"),
            (r#"{"change":"REPLACE","old":"a\nb","lines":["x"]}"#, "\u{feff}x\n"),
            (r#"{"change":"DELETE","line":1,"end_line":2}"#, "\u{feff}"),
        ] {
            std::fs::write(&file, "\u{feff}a\nb\n").expect("the file is writable");
            let shown = edit(change).expect("the file is changed");
            assert!(!shown.contains(BYTE_ORDER_MARK), "{shown}");
            assert_eq!(std::fs::read_to_string(&file).expect("the file exists"), expected, "{change}");
        }
    }

    #[test]
    fn changed_lines_have_numbers() {
        let check = |before: &str, after: &str, expected: &str| {
            let diff =
                TextDiff::from_lines(before, after).unified_diff().context_radius(1).header("a/x", "b/x").to_string();
            assert_eq!(numbered_lines(&diff), expected, "{diff}");
        };
        check("a\nb\nc\n", "a\nx\ny\nc\n", "     1\ta\n     2\tx\n     3\ty\n     4\tc\n");
        check("a\nb\nc\nd\n", "a\nb\nd\n", "     2\tb\n     3\td\n");
        check("a\nb", "a\nx", "     1\ta\n     2\tx\n");
        check("a\n", "", "(the file is empty now)");
        let long = |first: &str, last: &str| format!("{first}\n{}{last}\n", "-\n".repeat(8));
        check(&long("a", "b"), &long("x", "y"), "     1\tx\n     2\t-\n       …\n     9\t-\n    10\ty\n");
    }

    #[test]
    fn lines_after_omission_have_no_number() {
        let diff = "--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n a\n+b\n… 12 bytes left out …\nest\n+c\n@@ -20 +20 @@\n-d\n+e\n";
        let expected = "     1\ta\n     2\tb\n… 12 bytes left out …\nest\n+c\n       …\n    20\te\n";
        assert_eq!(numbered_lines(diff), expected);
    }
}
