//! `edit`: changes part of a file, by line or by a text that occurs exactly once.

use std::{borrow::Cow, mem::take, ops::Range, path::Path, time::Duration};

use futures::FutureExt;
use greenroom_protocol::{
    Action, CONTENT_LIMIT, Observation, ObservationKind,
    action::{EditTarget, FileEdit},
    excerpt,
    observation::EditKind,
};
use serde_json::{Value, json};
use similar::TextDiff;
use tokio_util::sync::CancellationToken;

use super::{
    AgentTool, ToolContext, ToolError, ToolResult,
    files::{self, FileReplacement},
    for_model, not_a_tool, own_action, schema,
};
use crate::threads::off_thread;

pub(super) const TOOL: AgentTool = AgentTool {
    name: "edit",
    about: "Change part of a file. Say where by `old`, a text that occurs exactly once in the file, or by `line` (from 1), \
        not both. REPLACE puts `lines` in place of `old`, or of lines `line` to `end_line`. INSERT puts `lines` before \
        `line` (one past the last line appends), or after `old`. DELETE removes `old`, or lines `line` to `end_line`.",
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

/// Line ending of files from Windows. A model writes `\n`, whatever the file has.
const CRLF: &str = "\r\n";

async fn edit(path: &str, edit: &FileEdit, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let file = files::locate(&context.directory, path)?;
    let (path, edit, stop) = (path.to_owned(), edit.clone(), context.stop.clone());
    off_thread(move || carry_out(&file, &path, &edit, &stop)).await
}

fn carry_out(file: &Path, path: &str, edit: &FileEdit, stop: &CancellationToken) -> Result<ToolResult, ToolError> {
    let before = files::read_text(file, path)?;
    let (line, after) = apply(&before, path, edit).map_err(ToolError::Failed)?;
    if after == before {
        return Err(ToolError::Failed(format!("the change leaves `{path}` as it is; change its text")));
    }
    let (change, lines) = match edit {
        FileEdit::Replace { lines, .. } => (EditKind::Replace, limit_lines(lines)),
        FileEdit::Insert { lines, .. } => (EditKind::Insert, limit_lines(lines)),
        FileEdit::Delete { .. } => (EditKind::Delete, Vec::new()),
    };
    let diff = TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(&before, &after)
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    let diff = shorten_lines(&diff, column(&before, &after));
    let model_text = for_model(&diff);
    let diff = excerpt(&diff, CONTENT_LIMIT).map_or(diff, |cut| cut.text);
    let kind = ObservationKind::Edit { path: path.to_owned(), line, change, lines, diff };
    // Written last: a stop before this leaves the file unchanged.
    FileReplacement { file, path, content: &after, before: Some(&before) }.write(stop)?;
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

/// Returns the line where the change begins, and the changed text.
fn apply(before: &str, path: &str, edit: &FileEdit) -> Result<(usize, String), String> {
    let (at, lines) = match edit {
        FileEdit::Replace { at, lines } | FileEdit::Insert { at, lines } => (at, Some(lines)),
        FileEdit::Delete { at } => (at, None),
    };
    let inserting = matches!(edit, FileEdit::Insert { .. });
    let (mut range, by_line) = match at {
        EditTarget { old: Some(old), line: None, end_line: None } => (find(before, path, old)?, false),
        EditTarget { old: None, line: Some(line), end_line } => {
            (by_lines(before, path, *line, *end_line, inserting)?, true)
        }
        _ => return Err("give exactly one of `old` and `line` (`line` optionally with `end_line`)".to_owned()),
    };
    let end = line_end(before, range.start);
    if inserting {
        let point = if by_line { range.start } else { range.end };
        range = point..point;
    }
    let mut new = lines.map(|lines| lines.join("\n")).unwrap_or_default();
    if by_line && lines.is_some_and(|lines| !lines.is_empty()) {
        new.push('\n');
        // A last line without a line ending stays without one.
        if range.end == before.len() && !before.is_empty() && !before.ends_with('\n') {
            new.pop();
        }
        if range.start == before.len() && !before.is_empty() && !before.ends_with('\n') {
            new.insert(0, '\n');
        }
    }
    let new = with_line_ending(end, new);
    let line = before[..range.start].matches('\n').count() + 1;
    Ok((line, format!("{}{new}{}", &before[..range.start], &before[range.end..])))
}

/// Returns the line ending of the line at `at`. For a last line without an ending, returns that of
/// the line before.
fn line_end(text: &str, at: usize) -> &'static str {
    let end = text[at..].find('\n').map(|end| at + end).or_else(|| text[..at].rfind('\n'));
    if end.is_some_and(|end| text[..end].ends_with('\r')) { CRLF } else { "\n" }
}

/// Returns `text` with the line endings of its destination.
fn with_line_ending(end: &str, text: String) -> String {
    if end == CRLF { text.replace(CRLF, "\n").replace('\n', CRLF) } else { text }
}

/// Returns the range of `old`. If `old` does not occur as given, line endings are ignored.
fn find(text: &str, path: &str, old: &str) -> Result<Range<usize>, String> {
    if old.is_empty() {
        return Err("`old` is empty; give a text that occurs exactly once, or a `line`".to_owned());
    }
    if !text.contains(CRLF) {
        return find_as_given(text, path, old);
    }
    if text.contains(old) {
        let Range { start, end } = find_as_given(text, path, old)?;
        // `\r\n` is replaced as a whole: otherwise its `\r` would stay behind.
        let halved = old.starts_with('\n') && text[..start].ends_with('\r');
        return Ok(start - usize::from(halved)..end);
    }
    let Range { start, end } = find_as_given(&text.replace(CRLF, "\n"), path, &old.replace(CRLF, "\n"))?;
    Ok(with_crlf(text, start)..with_crlf(text, end))
}

/// Translates an offset in the text with `\n` for every [`CRLF`] into an offset in `text`.
fn with_crlf(text: &str, at: usize) -> usize {
    let (mut original, mut left) = (0, at);
    for line in text.split_inclusive('\n') {
        let bytes = line.len() - usize::from(line.ends_with(CRLF));
        if left < bytes {
            break;
        }
        original += line.len();
        left -= bytes;
    }
    original + left
}

fn find_as_given(text: &str, path: &str, old: &str) -> Result<Range<usize>, String> {
    let offsets: Vec<usize> = text.match_indices(old).map(|(at, _)| at).collect();
    match offsets.as_slice() {
        [at] => Ok(*at..*at + old.len()),
        [] => Err(match find_similar_line(text, old) {
            Some(line) => {
                format!("`old` does not occur in `{path}` as given; line {line} has the same words in other spacing")
            }
            None => format!("`old` does not occur in `{path}`; read the file again"),
        }),
        many => {
            let lines: Vec<String> =
                many.iter().take(10).map(|at| (text[..*at].matches('\n').count() + 1).to_string()).collect();
            let (count, lines) = (many.len(), lines.join(", "));
            Err(format!("`old` occurs {count} times in `{path}` (lines {lines}); include more context"))
        }
    }
}

/// Returns the line that contains the first line of `old`, with white space ignored.
fn find_similar_line(text: &str, old: &str) -> Option<usize> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = words(old.lines().find(|line| !line.trim().is_empty())?);
    text.lines().position(|line| words(line).contains(&wanted)).map(|index| index + 1)
}

fn by_lines(text: &str, path: &str, line: usize, end: Option<usize>, inserting: bool) -> Result<Range<usize>, String> {
    let starts: Vec<usize> = text
        .split_inclusive('\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some(start)
        })
        .collect();
    let count = starts.len();
    let last = if inserting { count + 1 } else { count };
    let end = end.unwrap_or(line);
    if line == 0 || line > last || end < line || (end > count && !inserting) {
        let asked = if end == line { format!("line {line}") } else { format!("lines {line} to {end}") };
        return Err(format!("there is no {asked} in `{path}`: it has {count} lines, counted from 1"));
    }
    let start = |line: usize| starts.get(line - 1).copied().unwrap_or(text.len());
    Ok(start(line)..start(end.min(count) + 1).max(start(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, edit: &str, expected: Result<(usize, &str), &str>) {
        let edit: FileEdit = serde_json::from_str(edit).expect("an edit");
        let expected = expected.map(|(line, text)| (line, text.to_owned())).map_err(str::to_owned);
        assert_eq!(apply(before, "a.txt", &edit), expected);
    }

    #[test]
    fn edit_by_line() {
        check("a\nb\nc\n", r#"{"change":"REPLACE","line":2,"lines":["x","y"]}"#, Ok((2, "a\nx\ny\nc\n")));
        check("a\nb\nc\n", r#"{"change":"REPLACE","line":2,"end_line":3,"lines":["x"]}"#, Ok((2, "a\nx\n")));
        check("a\nb", r#"{"change":"REPLACE","line":2,"lines":["x"]}"#, Ok((2, "a\nx")));
        check("a\nb\n", r#"{"change":"REPLACE","line":1,"lines":[]}"#, Ok((1, "b\n")));
        check("a\nb\n", r#"{"change":"DELETE","line":1}"#, Ok((1, "b\n")));
        check("a\n", r#"{"change":"INSERT","line":1,"lines":["x"]}"#, Ok((1, "x\na\n")));
        check("a\n", r#"{"change":"INSERT","line":2,"lines":["x"]}"#, Ok((2, "a\nx\n")));
        check("a", r#"{"change":"INSERT","line":2,"lines":["x"]}"#, Ok((1, "a\nx")));
        check("", r#"{"change":"INSERT","line":1,"lines":["x"]}"#, Ok((1, "x\n")));
        check(
            "a\n",
            r#"{"change":"DELETE","line":2}"#,
            Err("there is no line 2 in `a.txt`: it has 1 lines, counted from 1"),
        );
    }

    #[test]
    fn edit_by_text() {
        check("one two\n", r#"{"change":"REPLACE","old":"two","lines":["2"]}"#, Ok((1, "one 2\n")));
        check("one\ntwo\n", r#"{"change":"INSERT","old":"one\n","lines":["x",""]}"#, Ok((2, "one\nx\ntwo\n")));
        check("one\ntwo\n", r#"{"change":"DELETE","old":"one\n"}"#, Ok((1, "two\n")));
        check(
            "x\ny\nx\n",
            r#"{"change":"DELETE","old":"x"}"#,
            Err("`old` occurs 2 times in `a.txt` (lines 1, 3); include more context"),
        );
        check(
            "fn  main() {}\n",
            r#"{"change":"DELETE","old":"fn main()"}"#,
            Err("`old` does not occur in `a.txt` as given; line 1 has the same words in other spacing"),
        );
    }

    #[test]
    fn new_lines_use_line_endings_of_file() {
        check("a\r\nb\r\n", r#"{"change":"REPLACE","line":2,"lines":["x","y"]}"#, Ok((2, "a\r\nx\r\ny\r\n")));
        check("a\r\nb", r#"{"change":"REPLACE","line":2,"lines":["x","y"]}"#, Ok((2, "a\r\nx\r\ny")));
        check("a\r\nb", r#"{"change":"INSERT","line":3,"lines":["x"]}"#, Ok((2, "a\r\nb\r\nx")));
        check("a\r\nb\r\n", r#"{"change":"INSERT","line":3,"lines":["x"]}"#, Ok((3, "a\r\nb\r\nx\r\n")));
        check("a b\r\n", r#"{"change":"REPLACE","old":"b","lines":["x","y"]}"#, Ok((1, "a x\r\ny\r\n")));
        check("a\r\n", r#"{"change":"REPLACE","line":1,"lines":["x\r","y\r"]}"#, Ok((1, "x\r\ny\r\n")));
        // In a file with mixed line endings, the changed line decides.
        check("a\nb\r\n", r#"{"change":"REPLACE","old":"a","lines":["x","y"]}"#, Ok((1, "x\ny\nb\r\n")));
        check("a\nb\r\n", r#"{"change":"REPLACE","old":"b","lines":["x","y"]}"#, Ok((2, "a\nx\r\ny\r\n")));
    }

    #[test]
    fn text_is_found_with_any_line_endings() {
        let xy = r#"{"change":"REPLACE","old":"a\nb","lines":["x","y"]}"#;
        check("ä\r\na\r\nb\r\nc\r\n", xy, Ok((2, "ä\r\nx\r\ny\r\nc\r\n")));
        check("c\na\r\nb\nc\r\n", xy, Ok((2, "c\nx\r\ny\nc\r\n")));
        check("a\r\nb\r\na\nb\n", xy, Ok((3, "a\r\nb\r\nx\ny\n")));
        check("a\r\nb\r\n", r#"{"change":"DELETE","old":"a\n"}"#, Ok((1, "b\r\n")));
        check("a\r\nb\r\n", r#"{"change":"DELETE","old":"\nb"}"#, Ok((1, "a\r\n")));
        check("a\r\n\r\nb", r#"{"change":"DELETE","old":"\n\nb"}"#, Ok((1, "a")));
        check("a\r\nb\r\n", r#"{"change":"INSERT","old":"a\n","lines":["x",""]}"#, Ok((2, "a\r\nx\r\nb\r\n")));
        check("a\nb", r#"{"change":"REPLACE","old":"a","lines":["x\r","y"]}"#, Ok((1, "x\r\ny\nb")));
        check("a\r\nb\r\na\r\nb\r\n", xy, Err("`old` occurs 2 times in `a.txt` (lines 1, 3); include more context"));
        check(
            "a\r\nc\r\n",
            xy,
            Err("`old` does not occur in `a.txt` as given; line 1 has the same words in other spacing"),
        );
    }

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
    fn edit_takes_exactly_one_target() {
        let both = r#"{"change":"DELETE","old":"x","line":1}"#;
        check("x\n", both, Err("give exactly one of `old` and `line` (`line` optionally with `end_line`)"));
    }
}
