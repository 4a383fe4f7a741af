//! `edit`: part of a file, by line or by a text that occurs exactly once.

use std::{ops::Range, time::Duration};

use greenroom_protocol::{
    Observation, Seen,
    action::{Edit, Place},
    observation::Change,
};
use similar::TextDiff;

use super::{Bench, Done, Fault, files, for_model};

/// After this long a diff is finished roughly: the one thread has other things to do.
const DIFF_TIME: Duration = Duration::from_millis(300);

pub(super) async fn edit(path: &str, edit: &Edit, bench: &Bench<'_>) -> Result<Done, Fault> {
    let file = files::locate(&bench.directory, path)?;
    let before = files::read_text(&file, path)?;
    let (line, after) = apply(&before, path, edit).map_err(Fault::Failed)?;
    if after == before {
        return Err(Fault::Failed(format!("the change would leave `{path}` as it is")));
    }
    files::replace(&file, path, &after)?;
    let (change, lines) = match edit {
        Edit::Replace { lines, .. } => (Change::Replace, lines.clone()),
        Edit::Insert { lines, .. } => (Change::Insert, lines.clone()),
        Edit::Delete { .. } => (Change::Delete, Vec::new()),
    };
    let diff = TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(&before, &after)
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    let told = for_model(&diff);
    let seen = Seen::Edit { path: path.to_owned(), line, change, lines, diff };
    Ok(Done { observation: Observation { seen, content: String::new() }, told })
}

/// The line where the change begins, and the text after it.
fn apply(before: &str, path: &str, edit: &Edit) -> Result<(usize, String), String> {
    let (at, lines) = match edit {
        Edit::Replace { at, lines } | Edit::Insert { at, lines } => (at, Some(lines)),
        Edit::Delete { at } => (at, None),
    };
    let inserting = matches!(edit, Edit::Insert { .. });
    let (mut range, by_line) = match at {
        Place { old: Some(old), line: None, end_line: None } => (find(before, path, old)?, false),
        Place { old: None, line: Some(line), end_line } => (by_lines(before, path, *line, *end_line, inserting)?, true),
        _ => return Err("say where by exactly one of `old` and `line` (with `end_line` if you like)".to_owned()),
    };
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
    let line = before[..range.start].matches('\n').count() + 1;
    Ok((line, format!("{}{new}{}", &before[..range.start], &before[range.end..])))
}

fn find(text: &str, path: &str, old: &str) -> Result<Range<usize>, String> {
    if old.is_empty() {
        return Err("`old` is empty; give a text that occurs exactly once, or a `line`".to_owned());
    }
    let places: Vec<usize> = text.match_indices(old).map(|(at, _)| at).collect();
    match places.as_slice() {
        [at] => Ok(*at..*at + old.len()),
        [] => Err(match near(text, old) {
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
fn near(text: &str, old: &str) -> Option<usize> {
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
        let edit: Edit = serde_json::from_str(edit).expect("an edit");
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
    fn where_is_said_once() {
        let both = r#"{"change":"DELETE","old":"x","line":1}"#;
        check("x\n", both, Err("say where by exactly one of `old` and `line` (with `end_line` if you like)"));
    }
}
