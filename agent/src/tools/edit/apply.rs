//! Position and text of an edit. Pure.
//!
//! The new lines are lines, however the position is named: they never continue the line before
//! them, and the line after them never continues the last one. The exception is an `old` that
//! begins or ends within a line: the rest of that line stays beside the new text.

use std::ops::Range;

use greenroom_protocol::action::{EditTarget, FileEdit};

use crate::tools::files::BYTE_ORDER_MARK;

/// Line ending of files from Windows. A model writes `\n`, whatever the file has.
const CRLF: &str = "\r\n";

/// Occurrences of an ambiguous `old` that an error names. Also bounds the search for them.
const MAX_OCCURRENCES: usize = 10;

/// Returns the line where the change begins, and the changed text.
pub(super) fn apply(before: &str, path: &str, edit: &FileEdit) -> Result<(usize, String), String> {
    let (at, lines) = match edit {
        FileEdit::Replace { at, lines } | FileEdit::Insert { at, lines } => (at, lines.as_slice()),
        FileEdit::Delete { at } => (at, [].as_slice()),
    };
    let inserting = matches!(edit, FileEdit::Insert { .. });
    let new = joined(lines);
    let (range, new) = match at {
        EditTarget { old: Some(old), line: None, end_line: None } => {
            let found = find(before, path, old.trim_start_matches(BYTE_ORDER_MARK))?;
            if inserting {
                let point = next_line(before, found.end);
                (point..point, as_lines(before, &(point..point), new, !lines.is_empty()))
            } else {
                replaced(before, found, new, !lines.is_empty())
            }
        }
        EditTarget { old: None, line: Some(line), end_line } => {
            let mut range = by_lines(before, path, *line, *end_line, inserting)?;
            if inserting {
                range.end = range.start;
            }
            let new = as_lines(before, &range, new, !lines.is_empty());
            (range, new)
        }
        _ => return Err("give exactly one of `old` and `line` (`line` optionally with `end_line`)".to_owned()),
    };
    let new = with_line_ending(line_end(before, range.start), new);
    let line = before[..range.start].matches('\n').count() + 1;
    Ok((line, format!("{}{new}{}", &before[..range.start], &before[range.end..])))
}

/// Joins lines that a model wrote: some with a line ending, although they need none.
fn joined(lines: &[String]) -> String {
    let lines: Vec<&str> = lines.iter().map(|line| line.strip_suffix('\n').unwrap_or(line)).collect();
    lines.join("\n").trim_start_matches(BYTE_ORDER_MARK).to_owned()
}

/// Returns `new` as whole lines for `range`, which begins and ends at the beginning of a line or at
/// the end of the text.
fn as_lines(before: &str, range: &Range<usize>, mut new: String, has_lines: bool) -> String {
    if !has_lines {
        return new;
    }
    let ends_open = !before.is_empty() && !before.ends_with('\n');
    // A last line without a line ending stays without one.
    if !(ends_open && range.end == before.len()) {
        new.push('\n');
    }
    if ends_open && range.start == before.len() {
        new.insert(0, '\n');
    }
    new
}

/// Returns the range of `old` and the text in its place.
fn replaced(before: &str, found: Range<usize>, mut new: String, has_lines: bool) -> (Range<usize>, String) {
    let old = &before[found.clone()];
    let (prefix, suffix) = (&before[..found.start], &before[found.end..]);
    let begins_line = prefix.is_empty() || prefix.ends_with('\n');
    let ends_line = suffix.is_empty() || suffix.starts_with('\n') || suffix.starts_with(CRLF);
    // Without new lines, whole lines are removed with their line ending.
    if !has_lines && begins_line && ends_line && !old.ends_with('\n') {
        let end = next_line(before, found.end);
        return (found.start..end, new);
    }
    let continues_before = old.starts_with('\n') || old.starts_with(CRLF);
    if continues_before && (has_lines || !ends_line) {
        new.insert(0, '\n');
    }
    if old.ends_with('\n') && (has_lines || (!begins_line && new.is_empty())) {
        new.push('\n');
    }
    (found, new)
}

/// Returns the beginning of the line after the one that ends at or after `at`. A position behind a
/// line ending is such a beginning already.
fn next_line(text: &str, at: usize) -> usize {
    if text[..at].ends_with('\n') {
        return at;
    }
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
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
    let offsets: Vec<usize> = occurrences(text, old).take(MAX_OCCURRENCES + 1).collect();
    match offsets.as_slice() {
        [at] => Ok(*at..*at + old.len()),
        [] => Err(match find_similar_line(text, old) {
            Some(line) => {
                format!("`old` does not occur in `{path}` as given; line {line} has the same words in other spacing")
            }
            None => format!("`old` does not occur in `{path}`; read the file again"),
        }),
        many => {
            let shown = &many[..many.len().min(MAX_OCCURRENCES)];
            let lines: Vec<String> =
                shown.iter().map(|at| (text[..*at].matches('\n').count() + 1).to_string()).collect();
            let count =
                if shown.len() < many.len() { format!("more than {}", shown.len()) } else { many.len().to_string() };
            Err(format!("`old` occurs {count} times in `{path}` (lines {}); include more context", lines.join(", ")))
        }
    }
}

/// Returns the offsets of `old`. Occurrences may overlap.
fn occurrences(text: &str, old: &str) -> impl Iterator<Item = usize> {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + text.get(from..)?.find(old)?;
        from = at + step;
        Some(at)
    })
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
        check("one\ntwo\n", r#"{"change":"INSERT","old":"one\n","lines":["x"]}"#, Ok((2, "one\nx\ntwo\n")));
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
    fn lines_inserted_after_text_are_lines() {
        let after = |old: &str| format!(r#"{{"change":"INSERT","old":"{old}","lines":["x","y"]}}"#);
        check("a\nb\nc\n", &after("a"), Ok((2, "a\nx\ny\nb\nc\n")));
        check("a\nb\nc\n", &after(r"a\n"), Ok((2, "a\nx\ny\nb\nc\n")));
        check(
            "a\nb\nc\n",
            &after(r"\na"),
            Err("`old` does not occur in `a.txt` as given; line 1 has the same words in other spacing"),
        );
        check("a\nb\nc\n", &after(r"\nb"), Ok((3, "a\nb\nx\ny\nc\n")));
        check("one two three\nfour\n", &after("two"), Ok((2, "one two three\nx\ny\nfour\n")));
        check("one two\nthree four\n", &after(r"two\nthree"), Ok((3, "one two\nthree four\nx\ny\n")));
        check("a\nb", &after("b"), Ok((2, "a\nb\nx\ny")));
        check("a\r\nb\r\n", &after("a"), Ok((2, "a\r\nx\r\ny\r\nb\r\n")));
        check("a\nb\n", r#"{"change":"INSERT","old":"a","lines":["x",""]}"#, Ok((2, "a\nx\n\nb\n")));
    }

    #[test]
    fn lines_in_place_of_text_touch_no_neighbour() {
        let replace = |old: &str, lines: &str| format!(r#"{{"change":"REPLACE","old":"{old}","lines":[{lines}]}}"#);
        check("foo();\nnext();\n", &replace(r"foo();\n", r#""bar();""#), Ok((1, "bar();\nnext();\n")));
        check("foo();\r\nnext();\r\n", &replace(r"foo();\n", r#""bar();""#), Ok((1, "bar();\r\nnext();\r\n")));
        check("a\nfoo();\n", &replace(r"foo();\n", r#""bar();""#), Ok((2, "a\nbar();\n")));
        check("a\nfoo\nb\n", &replace(r"\nfoo", r#""bar""#), Ok((1, "a\nbar\nb\n")));
        check("a\nfoo\nb\n", &replace(r"\nfoo\n", r#""bar","baz""#), Ok((1, "a\nbar\nbaz\nb\n")));
        check("one two\nthree\n", &replace(r"two\n", r#""2""#), Ok((1, "one 2\nthree\n")));
        check("one two\nthree\n", &replace("two", r#""2","3""#), Ok((1, "one 2\n3\nthree\n")));
        check("a\nfoo\nb\n", &replace("foo", r#""""#), Ok((2, "a\n\nb\n")));
        check("a\nfoo\nb\n", &replace(r"foo\n", r#""""#), Ok((2, "a\n\nb\n")));
        check("a\nfoo\nb\n", &replace("foo", ""), Ok((2, "a\nb\n")));
        // A model may end its lines although they need no end.
        check("a\nb\n", &replace("a", r#""x\n","y\n""#), Ok((1, "x\ny\nb\n")));
    }

    #[test]
    fn deleted_text_joins_no_lines() {
        let delete = |old: &str| format!(r#"{{"change":"DELETE","old":"{old}"}}"#);
        check("a\nfoo\nb\n", &delete("foo"), Ok((2, "a\nb\n")));
        check("a\nfoo\nb\n", &delete(r"foo\n"), Ok((2, "a\nb\n")));
        check("a\nfoo\nb\n", &delete(r"\nfoo"), Ok((1, "a\nb\n")));
        check("a\nfoo\nb\n", &delete(r"\nfoo\n"), Ok((1, "a\nb\n")));
        check("a\nfoo\n", &delete(r"\nfoo\n"), Ok((1, "a\n")));
        check("one two\nthree\n", &delete(r"two\n"), Ok((1, "one \nthree\n")));
        check("a\nfoobar\n", &delete(r"\nfoo"), Ok((1, "a\nbar\n")));
        check("a\r\nfoo\r\nb\r\n", &delete("foo"), Ok((2, "a\r\nb\r\n")));
        check("one two\n", &delete(" two"), Ok((1, "one\n")));
    }

    #[test]
    fn overlapping_text_is_ambiguous() {
        let delete = |old: &str| format!(r#"{{"change":"DELETE","old":"{old}"}}"#);
        check("aaa\n", &delete("aa"), Err("`old` occurs 2 times in `a.txt` (lines 1, 1); include more context"));
        check(
            "x\ny\nx\ny\nx\n",
            &delete(r"x\ny\nx"),
            Err("`old` occurs 2 times in `a.txt` (lines 1, 3); include more context"),
        );
        check("äää", &delete("ää"), Err("`old` occurs 2 times in `a.txt` (lines 1, 1); include more context"));
        let many = "a".repeat(1 << 20);
        let error = apply(&many, "a.txt", &serde_json::from_str(&delete(&"a".repeat(1 << 19))).expect("an edit"));
        let lines = ["1"; MAX_OCCURRENCES].join(", ");
        assert_eq!(
            error,
            Err(format!("`old` occurs more than 10 times in `a.txt` (lines {lines}); include more context"))
        );
    }

    #[test]
    fn byte_order_mark_is_no_part_of_a_text() {
        check("a\nb\n", "{\"change\":\"REPLACE\",\"old\":\"\u{feff}a\",\"lines\":[\"\u{feff}x\"]}", Ok((1, "x\nb\n")));
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
        check("a\r\nb\r\n", r#"{"change":"INSERT","old":"a\n","lines":["x"]}"#, Ok((2, "a\r\nx\r\nb\r\n")));
        check("a\nb", r#"{"change":"REPLACE","old":"a","lines":["x\r","y"]}"#, Ok((1, "x\r\ny\nb")));
        check("a\r\nb\r\na\r\nb\r\n", xy, Err("`old` occurs 2 times in `a.txt` (lines 1, 3); include more context"));
        check(
            "a\r\nc\r\n",
            xy,
            Err("`old` does not occur in `a.txt` as given; line 1 has the same words in other spacing"),
        );
    }

    #[test]
    fn edit_takes_exactly_one_target() {
        let both = r#"{"change":"DELETE","old":"x","line":1}"#;
        check("x\n", both, Err("give exactly one of `old` and `line` (`line` optionally with `end_line`)"));
    }
}
