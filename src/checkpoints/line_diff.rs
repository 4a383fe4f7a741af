//! Differences of two texts by lines, as the hunks of a unified diff.

use std::{io::Write, ops::Range};

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};

/// Lines of context around a change.
const CONTEXT: u32 = 3;
/// Size of a content from which it counts as binary, bytes.
const TEXT_LIMIT: usize = 1 << 20;
/// Beginning of a content in which a zero byte marks it as binary, bytes. Source: git.
const BINARY_HEAD: usize = 8_000;

/// Difference of two texts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LineDiff {
    pub added: u64,
    pub removed: u64,
    /// Hunks of a unified diff, from the first `@@` on. Empty for equal texts.
    pub hunks: Vec<u8>,
}

/// Returns true for a content that has no difference by lines.
pub(super) fn is_binary(content: &[u8]) -> bool {
    content.len() > TEXT_LIMIT || content[..content.len().min(BINARY_HEAD)].contains(&0)
}

/// Returns the difference of two texts.
pub(super) fn line_diff(old: &[u8], new: &[u8]) -> LineDiff {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_lines(&input);
    let (added, removed) = (diff.count_additions().into(), diff.count_removals().into());
    let mut hunks = Vec::new();
    let mut group: Vec<Hunk> = Vec::new();
    for hunk in diff.hunks() {
        if group.last().is_some_and(|last| hunk.before.start - last.before.end > 2 * CONTEXT) {
            write_group(&input, &group, &mut hunks);
            group.clear();
        }
        group.push(hunk);
    }
    write_group(&input, &group, &mut hunks);
    LineDiff { added, removed, hunks }
}

/// Writes changes that are near to each other as one hunk.
fn write_group(input: &InternedInput<&[u8]>, group: &[Hunk], out: &mut Vec<u8>) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let lead = CONTEXT.min(first.before.start);
    let trail = CONTEXT.min(input.before.len() as u32 - last.before.end);
    let old = first.before.start - lead..last.before.end + trail;
    let new = first.after.start - lead..last.after.end + trail;
    // A string and a vector take all.
    let _infallible = writeln!(out, "@@ -{} +{} @@", range_text(&old), range_text(&new));
    let mut at = old.start;
    for hunk in group {
        write_lines(input, b' ', false, at..hunk.before.start, out);
        write_lines(input, b'-', false, hunk.before.clone(), out);
        write_lines(input, b'+', true, hunk.after.clone(), out);
        at = hunk.before.end;
    }
    write_lines(input, b' ', false, at..old.end, out);
}

/// Returns start and length of a range. An empty range starts at the line before it.
fn range_text(range: &Range<u32>) -> String {
    let length = range.end - range.start;
    format!("{},{length}", if length == 0 { range.start } else { range.start + 1 })
}

fn write_lines(input: &InternedInput<&[u8]>, mark: u8, is_new: bool, lines: Range<u32>, out: &mut Vec<u8>) {
    let tokens = if is_new { &input.after } else { &input.before };
    for token in &tokens[lines.start as usize..lines.end as usize] {
        let line = input.interner[*token];
        out.push(mark);
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: &str, new: &str, (added, removed): (u64, u64), hunks: &str) {
        let diff = line_diff(old.as_bytes(), new.as_bytes());
        assert_eq!(String::from_utf8_lossy(&diff.hunks), hunks);
        assert_eq!((diff.added, diff.removed), (added, removed), "{hunks}");
    }

    #[test]
    fn hunks_are_those_of_a_unified_diff() {
        check("a\n", "a\n", (0, 0), "");
        check("", "a\n", (1, 0), "@@ -0,0 +1,1 @@\n+a\n");
        check("a\n", "", (0, 1), "@@ -1,1 +0,0 @@\n-a\n");
        check("a", "a\n", (1, 1), "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
        check("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nx\n", (1, 1), "@@ -2,4 +2,4 @@\n 2\n 3\n 4\n-5\n+x\n");
        let lines: Vec<String> = (0..30).map(|line| format!("{line}\n")).collect();
        let mut changed = lines.clone();
        (changed[0], changed[29]) = ("x\n".to_owned(), "y\n".to_owned());
        let text = "@@ -1,4 +1,4 @@\n-0\n+x\n 1\n 2\n 3\n@@ -27,4 +27,4 @@\n 26\n 27\n 28\n-29\n+y\n";
        check(&lines.concat(), &changed.concat(), (2, 2), text);
    }

    #[test]
    fn zero_byte_or_size_marks_a_binary_content() {
        assert!(is_binary(b"a\0b") && !is_binary(b"a\xff") && !is_binary(b""));
        assert!(is_binary(&vec![b'a'; TEXT_LIMIT + 1]) && !is_binary(&[&[b'a'; BINARY_HEAD][..], b"\0"].concat()));
    }
}
