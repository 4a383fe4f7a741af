//! Patches in git's format, as `git apply` takes them. Source: gitformat-diff and the patches that
//! `git diff --binary --full-index` writes.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use flate2::{Compression, write::ZlibEncoder};

use super::{
    compare::{ChangeContents, ChangeSide, ContentReader, FileChange},
    entry::{CaptureMode, hex},
    error::CheckpointError,
    line_diff::{is_binary, line_diff},
};
use crate::files::InnerPath;

/// Name of the side without a file.
const NO_FILE: &str = "/dev/null";
/// Id of no content.
const NO_ID: &str = "0000000000000000000000000000000000000000";
/// Bytes of one line of a binary patch.
const BINARY_LINE: usize = 52;
/// Digits of base 85. Source: git, `base85.c`.
const BASE85: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Writes the patch of one file. A file that git does not accept is named in a comment.
pub(super) fn write_patch(
    change: &FileChange,
    reader: &ContentReader<'_>,
    out: &mut impl Write,
) -> Result<(), CheckpointError> {
    let FileChange { old, new, similarity } = change;
    let path = change.path();
    if [old, new].into_iter().flatten().any(|side| is_denied(side.path.as_bytes(), side.file.mode)) {
        writeln!(out, "# Not in this patch, because git accepts no such path: {}", quoted("", &path))?;
        return Ok(());
    }
    let header = |side: &Option<ChangeSide>| side.as_ref().map_or(path.clone(), |side| side.path.clone());
    writeln!(out, "diff --git {} {}", quoted("a/", &header(old)), quoted("b/", &header(new)))?;
    let mut mode_after_ids = None;
    match (old, new) {
        (Some(old), Some(new)) => {
            let (before, after) = (old.file.mode.git_mode(), new.file.mode.git_mode());
            if before == after {
                mode_after_ids = Some(after);
            } else {
                writeln!(out, "old mode {before}\nnew mode {after}")?;
            }
            if let Some(similarity) = similarity {
                writeln!(out, "similarity index {similarity}%")?;
                writeln!(out, "rename from {}\nrename to {}", quoted("", &old.path), quoted("", &new.path))?;
            }
        }
        (None, Some(new)) => writeln!(out, "new file mode {}", new.file.mode.git_mode())?,
        (Some(old), None) => writeln!(out, "deleted file mode {}", old.file.mode.git_mode())?,
        (None, None) => {}
    }
    if change.keeps_content() {
        return Ok(());
    }
    let ChangeContents { old: before, new: after } = reader.contents(change)?;
    let id = |side: &Option<ChangeSide>, content: &[u8]| match side {
        Some(_) => git_blob_id(content),
        None => NO_ID.to_owned(),
    };
    let mode = mode_after_ids.map(|mode| format!(" {mode}")).unwrap_or_default();
    writeln!(out, "index {}..{}{mode}", id(old, &before), id(new, &after))?;
    if is_binary(&before) || is_binary(&after) {
        writeln!(out, "GIT binary patch")?;
        write_literal(&after, out)?;
        write_literal(&before, out)?;
        return Ok(());
    }
    let hunks = line_diff(&before, &after).hunks;
    if !hunks.is_empty() {
        writeln!(out, "--- {}\n+++ {}", file_name("a/", old), file_name("b/", new))?;
        out.write_all(&hunks)?;
    }
    Ok(())
}

/// Returns the name of a side as the lines before the hunks have it.
fn file_name(prefix: &str, side: &Option<ChangeSide>) -> String {
    let Some(ChangeSide { path, .. }) = side else { return NO_FILE.to_owned() };
    let name = quoted(prefix, path);
    // A tab ends a name with spaces. Source: git.
    let end = if name.contains(' ') && !name.starts_with('"') { "\t" } else { "" };
    name + end
}

/// Returns true for a path that `git apply` rejects: `.git` in a spelling of any file system, and
/// links that git reads as its own files. Source: `verify_path` of git's `read-cache.c`.
fn is_denied(path: &[u8], mode: CaptureMode) -> bool {
    let is_git = |name: &[u8]| {
        let name = name.split(|byte| *byte == b':').next().unwrap_or_default();
        let end = name.iter().rposition(|byte| !b" .".contains(byte)).map_or(0, |last| last + 1);
        name[..end].eq_ignore_ascii_case(b".git") || name[..end].eq_ignore_ascii_case(b"git~1")
    };
    let is_modules = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        name.starts_with(b".gitmodules") || name.starts_with(b"gitmod~") || name.starts_with(b"gi7eba~")
    };
    let mut names = path.split(|byte| b"/\\".contains(byte));
    names.any(|name| is_git(name) || mode.is_link() && is_modules(name))
}

/// Returns the id that git gives to a file's content.
fn git_blob_id(content: &[u8]) -> String {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(format!("blob {}\0", content.len()).as_bytes());
    digest.update(content);
    hex(digest.finish().as_ref())
}

/// Returns a path as git writes it: in double quotes with escapes, unless it is plain. Source: git,
/// `quote.c`.
fn quoted(prefix: &str, path: &InnerPath) -> String {
    let mut text = prefix.to_owned();
    let mut is_plain = true;
    for byte in path.as_bytes() {
        let escape = match byte {
            b'"' | b'\\' => char::from(*byte),
            7 => 'a',
            8 => 'b',
            b'\t' => 't',
            b'\n' => 'n',
            11 => 'v',
            12 => 'f',
            b'\r' => 'r',
            b' '..=b'~' => {
                text.push(char::from(*byte));
                continue;
            }
            byte => {
                let _a_string_takes_all = write!(text, "\\{byte:03o}");
                is_plain = false;
                continue;
            }
        };
        text.extend(['\\', escape]);
        is_plain = false;
    }
    if is_plain { text } else { format!("\"{text}\"") }
}

/// Writes a whole content as a part of a binary patch.
fn write_literal(content: &[u8], out: &mut impl Write) -> io::Result<()> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content)?;
    writeln!(out, "literal {}", content.len())?;
    for line in encoder.finish()?.chunks(BINARY_LINE) {
        let length = match line.len() as u8 {
            length @ 1..=26 => b'A' + length - 1,
            length => b'a' + length - 27,
        };
        let mut text = vec![length];
        for group in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..group.len()].copy_from_slice(group);
            let mut number = u32::from_be_bytes(bytes) as usize;
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = BASE85[number % 85];
                number /= 85;
            }
            text.extend_from_slice(&digits);
        }
        text.push(b'\n');
        out.write_all(&text)?;
    }
    out.write_all(b"\n")
}
