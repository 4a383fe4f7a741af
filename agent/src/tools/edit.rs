//! `edit`: part of a file, by line or by a text that occurs exactly once.

use std::{borrow::Cow, mem::take, ops::Range, path::Path, time::Duration};

use greenroom_protocol::{
    CONTENT_LIMIT, Observation, ObservationKind,
    action::{EditTarget, FileEdit},
    excerpt,
    observation::EditKind,
};
use similar::TextDiff;
use tokio_util::sync::CancellationToken;

use super::{
    ToolContext, ToolError, ToolResult,
    files::{self, FileReplacement},
    for_model,
};
use crate::threads::off_thread;

/// After this long a diff is finished roughly: the change waits for it.
const DIFF_TIME: Duration = Duration::from_millis(300);

/// How much of one line is shown, in bytes: a file that no person wrote may have all of its text in one.
const LINE_LIMIT: usize = 2 * 1024;

/// How a line ends where a file comes from Windows. A model writes `\n`, whatever the file has.
const CRLF: &str = "\r\n";

pub(super) async fn edit(path: &str, edit: &FileEdit, bench: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let file = files::locate(&bench.directory, path)?;
    let (path, edit, stop) = (path.to_owned(), edit.clone(), bench.stop.clone());
    off_thread(move || carry_out(&file, &path, &edit, &stop)).await
}

fn carry_out(file: &Path, path: &str, edit: &FileEdit, stop: &CancellationToken) -> Result<ToolResult, ToolError> {
    let before = files::read_text(file, path)?;
    let (line, after) = apply(&before, path, edit).map_err(ToolError::Failed)?;
    if after == before {
        return Err(ToolError::Failed(format!("the change would leave `{path}` as it is")));
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
    let told = for_model(&diff);
    let diff = excerpt(&diff, CONTENT_LIMIT).map_or(diff, |cut| cut.text);
    let seen = ObservationKind::Edit { path: path.to_owned(), line, change, lines, diff };
    // At the very end: a stop that comes before this leaves the file as it is.
    FileReplacement { file, path, content: &after, before: Some(&before) }.write(stop)?;
    Ok(ToolResult { observation: Observation { kind: seen, content: String::new() }, model_text: told })
}

/// How far into its line the change begins, in bytes.
fn column(before: &str, after: &str) -> usize {
    let same = before.bytes().zip(after.bytes()).take_while(|(one, other)| one == other).count();
    let end = before.as_bytes()[..same].iter().rposition(|byte| *byte == b'\n');
    end.map_or(same, |end| same - end - 1)
}

/// A unified diff without what is too long in its lines. `column` is where the first that goes and the first that comes
/// begin to differ.
fn shorten_lines(diff: &str, column: usize) -> String {
    let (mut goes, mut comes) = (column, column);
    let mut text = String::new();
    // The first two lines name the file.
    for (index, line) in diff.split_inclusive('\n').enumerate() {
        let from = match line.as_bytes()[0] {
            b'-' if index > 1 => take(&mut goes),
            b'+' if index > 1 => take(&mut comes),
            _ => 0,
        };
        match line.strip_suffix('\n') {
            Some(line) => text.extend([&*shorten_line(line, from), "\n"]),
            None => text.push_str(&shorten_line(line, from)),
        }
    }
    text
}

/// A line, or of a long one its first character, which is a diff's sign, and what stands around `from`.
fn shorten_line(line: &str, from: usize) -> Cow<'_, str> {
    if line.len() <= LINE_LIMIT {
        return line.into();
    }
    let sign = line.ceil_char_boundary(1);
    let start = line.floor_char_boundary(from.saturating_sub(LINE_LIMIT / 4)).max(sign);
    let end = line.floor_char_boundary(start + LINE_LIMIT);
    let left_out = |bytes: usize| if bytes > 0 { format!("… {bytes} bytes left out …") } else { String::new() };
    let (before, behind) = (left_out(start - sign), left_out(line.len() - end));
    format!("{}{before}{}{behind}", &line[..sign], &line[start..end]).into()
}

/// The lines of a change, as far as they are told.
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

/// The line where the change begins, and the text after it.
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
        _ => return Err("say where by exactly one of `old` and `line` (with `end_line` if you like)".to_owned()),
    };
    let end = line_end(before, range.start);
    if inserting {
        let point = if by_line { range.start } else { range.end };
        range = point..point;
    }
    let mut new = lines.map(|lines| lines.join("\n")).unwrap_or_default();
    if by_line && lines.is_some_and(|lines| !lines.is_empty()) {
        new.push('\n');
        // A last line without an end stays the one without an end.
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

/// How the line at `at` ends; where it has no end, how the one before it does.
fn line_end(text: &str, at: usize) -> &'static str {
    let end = text[at..].find('\n').map(|end| at + end).or_else(|| text[..at].rfind('\n'));
    if end.is_some_and(|end| text[..end].ends_with('\r')) { CRLF } else { "\n" }
}

/// `text` with the line ends of the place that it comes to.
fn with_line_ending(end: &str, text: String) -> String {
    if end == CRLF { text.replace(CRLF, "\n").replace('\n', CRLF) } else { text }
}

/// Where `old` stands, as it is given or, where it nowhere does, but for the line ends.
fn find(text: &str, path: &str, old: &str) -> Result<Range<usize>, String> {
    if old.is_empty() {
        return Err("`old` is empty; give a text that occurs exactly once, or a `line`".to_owned());
    }
    if !text.contains(CRLF) {
        return find_as_given(text, path, old);
    }
    if text.contains(old) {
        let Range { start, end } = find_as_given(text, path, old)?;
        // A line end is taken whole, or its half would stay behind.
        let halved = old.starts_with('\n') && text[..start].ends_with('\r');
        return Ok(start - usize::from(halved)..end);
    }
    let Range { start, end } = find_as_given(&text.replace(CRLF, "\n"), path, &old.replace(CRLF, "\n"))?;
    Ok(with_crlf(text, start)..with_crlf(text, end))
}

/// Where in `text` that stands which is at `at` when every [`CRLF`] in it is a `\n`.
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
    let places: Vec<usize> = text.match_indices(old).map(|(at, _)| at).collect();
    match places.as_slice() {
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

/// The line that holds the first line of `old` but for white space.
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
    fn by_line() {
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
    fn by_text() {
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
    fn what_comes_ends_its_lines_as_the_file_does() {
        check("a\r\nb\r\n", r#"{"change":"REPLACE","line":2,"lines":["x","y"]}"#, Ok((2, "a\r\nx\r\ny\r\n")));
        check("a\r\nb", r#"{"change":"REPLACE","line":2,"lines":["x","y"]}"#, Ok((2, "a\r\nx\r\ny")));
        check("a\r\nb", r#"{"change":"INSERT","line":3,"lines":["x"]}"#, Ok((2, "a\r\nb\r\nx")));
        check("a\r\nb\r\n", r#"{"change":"INSERT","line":3,"lines":["x"]}"#, Ok((3, "a\r\nb\r\nx\r\n")));
        check("a b\r\n", r#"{"change":"REPLACE","old":"b","lines":["x","y"]}"#, Ok((1, "a x\r\ny\r\n")));
        check("a\r\n", r#"{"change":"REPLACE","line":1,"lines":["x\r","y\r"]}"#, Ok((1, "x\r\ny\r\n")));
        // As the line does that is changed, where they differ.
        check("a\nb\r\n", r#"{"change":"REPLACE","old":"a","lines":["x","y"]}"#, Ok((1, "x\ny\nb\r\n")));
        check("a\nb\r\n", r#"{"change":"REPLACE","old":"b","lines":["x","y"]}"#, Ok((2, "a\nx\r\ny\r\n")));
    }

    #[test]
    fn a_text_is_found_whatever_ends_its_lines() {
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
    fn of_a_long_line_the_part_is_shown_where_it_changes() {
        let line = |word: &str| format!("{}{word}{}", "a".repeat(1 << 20), "ä".repeat(1 << 20));
        let (before, after) = (format!("one\n{}\ntwo\n", line("old")), format!("one\n{}\ntwo\n", line("new")));
        let diff = format!("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n-{}\n+{}\n two\n", line("old"), line("new"));
        let shown = shorten_lines(&diff, column(&before, &after));
        assert!(shown.len() < 3 * LINE_LIMIT, "{} bytes", shown.len());
        let lines: Vec<&str> = shown.lines().collect();
        let [_, _, _, " one", goes, comes, " two"] = lines[..] else { panic!("{shown}") };
        assert!(goes.starts_with("-… 1048063 bytes left out …aaa") && goes.contains("aaaoldäää"), "{goes}");
        assert!(comes.starts_with("+… 1048063 bytes left out …aaa") && comes.contains("aaanewäää"), "{comes}");
        assert!(comes.ends_with("bytes left out …"), "{comes}");
    }

    #[test]
    fn many_lines_are_told_in_part() {
        let told = limit_lines(&vec!["x".repeat(99); 10_000]);
        assert_eq!(told.last().map(String::as_str), Some("… 9345 lines left out …"));
        assert!(limit_lines(&["x".repeat(1 << 20)])[0].len() < LINE_LIMIT + 100);
        assert_eq!(limit_lines(&["a".into(), String::new()]), ["a", ""]);
    }

    #[test]
    fn where_is_said_once() {
        let both = r#"{"change":"DELETE","old":"x","line":1}"#;
        check("x\n", both, Err("say where by exactly one of `old` and `line` (with `end_line` if you like)"));
    }
}
