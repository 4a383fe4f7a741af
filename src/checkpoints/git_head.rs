//! `HEAD` and refs of a workspace's own `.git`, as texts. No program of git runs, and no other file
//! of `.git` is read: its configuration could name programs.

use std::{collections::BTreeMap, io::Read};

use super::delta::GitHead;
use crate::files::{FileKind, InnerPath, NameScan, PathText, WorkspaceTree};

/// Size of a file of refs beyond which the rest is not read.
const REF_FILE_BYTES: u64 = 256 << 10;
/// Refs that a checkpoint records.
const MAX_REFS: usize = 1_000;
/// Depth of directories below `.git/refs`.
const MAX_DEPTH: usize = 8;
/// Longest recorded text, bytes.
const TEXT_BYTES: usize = 512;

/// Returns what `HEAD` and the refs contain. `None` if there is no readable `HEAD`.
pub(super) fn read_git_head(tree: &WorkspaceTree) -> Option<GitHead> {
    let git = InnerPath::default().join(b".git")?;
    let head = read_text(tree, &git.join(b"HEAD")?)?;
    let mut refs = BTreeMap::new();
    let packed = git.join(b"packed-refs").and_then(|path| read_text(tree, &path)).unwrap_or_default();
    for line in packed.lines().filter(|line| !line.starts_with(['#', '^'])).take(MAX_REFS) {
        if let Some((id, name)) = line.split_once(' ') {
            refs.insert(bounded(name), bounded(id));
        }
    }
    if let Some(dir) = git.join(b"refs") {
        read_loose(tree, &git, dir, &mut refs);
    }
    Some(GitHead { head: bounded(head.trim_end()), refs })
}

fn read_loose(tree: &WorkspaceTree, git: &InnerPath, refs_dir: InnerPath, refs: &mut BTreeMap<String, String>) {
    let (mut pending, mut read) = (vec![(refs_dir, 0)], 0);
    while let Some((path, depth)) = pending.pop() {
        let Ok((_, stat)) = tree.locate(&path) else { continue };
        read += 1;
        if read > 2 * MAX_REFS || refs.len() >= MAX_REFS {
            return;
        }
        match FileKind::of(&stat) {
            FileKind::Directory if depth < MAX_DEPTH => {
                let Ok(dir) = tree.open_dir(&path) else { continue };
                let scan = NameScan { path: &path, after: None, count: MAX_REFS, is_cancelled: &|| false };
                let names = scan.run(dir, |_| true).unwrap_or_default();
                pending.extend(names.iter().filter_map(|found| Some((path.join(&found.name)?, depth + 1))));
            }
            FileKind::File => {
                if let Some(id) = read_text(tree, &path) {
                    let name = PathText::of(&path.as_bytes()[git.as_bytes().len() + 1..]).text;
                    refs.insert(bounded(&name), bounded(id.trim_end()));
                }
            }
            FileKind::Directory | FileKind::Link | FileKind::Other => {}
        }
    }
}

fn read_text(tree: &WorkspaceTree, path: &InnerPath) -> Option<String> {
    let mut text = Vec::new();
    tree.open_file(path).ok()?.take(REF_FILE_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the beginning of a text, in one line without control characters.
fn bounded(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES);
    text[..end].chars().filter(|c| !c.is_control()).collect()
}
