//! Paths that a checkpoint does not contain although the workspace may have them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::files::InnerPath;

/// Paths of each kind that a checkpoint records. Further entries make their directory incomplete.
const MAX_PATHS: usize = 4_096;

/// Unknown parts of a checkpoint's workspace. A diff and a restore leave them alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeftOutPaths {
    /// Entries that were left out, each with all below it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    entries: BTreeSet<InnerPath>,
    /// Directories that may have more than the checkpoint has. The workspace itself is one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    incomplete: BTreeSet<InnerPath>,
}

impl LeftOutPaths {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.incomplete.is_empty()
    }

    pub(super) fn add(&mut self, path: InnerPath) {
        if self.entries.len() < MAX_PATHS {
            self.entries.insert(path);
        } else {
            let _is_new = self.add_incomplete(path.parent());
        }
    }

    /// Marks a directory of which not all entries are known. Returns false for a known one.
    pub(super) fn add_incomplete(&mut self, dir: InnerPath) -> bool {
        let is_full = self.incomplete.len() >= MAX_PATHS;
        self.incomplete.insert(if is_full { InnerPath::default() } else { dir })
    }

    /// Returns true for an entry that was left out, and for all below it. A file of the checkpoint
    /// with such a path is older than the checkpoint.
    pub(super) fn contains(&self, path: &InnerPath) -> bool {
        !self.entries.is_empty() && has_ancestor(&self.entries, path.clone())
    }

    /// Returns true if the workspace may have this path, although the checkpoint has no such file.
    pub(super) fn may_have(&self, path: &InnerPath) -> bool {
        self.contains(path) || !self.incomplete.is_empty() && has_ancestor(&self.incomplete, path.parent())
    }
}

/// Returns true if the set has `path` or a directory on the way to it.
fn has_ancestor(set: &BTreeSet<InnerPath>, mut path: InnerPath) -> bool {
    loop {
        if set.contains(&path) {
            return true;
        }
        if path.is_root() {
            return false;
        }
        path = path.parent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::PathForm;

    fn path(text: &str) -> InnerPath {
        InnerPath::parse_or_root(text, PathForm::Plain).expect("a valid path")
    }

    #[test]
    fn entry_stands_for_all_below() {
        let mut left_out = LeftOutPaths::default();
        left_out.add(path("a/b"));
        assert!(left_out.contains(&path("a/b")) && left_out.may_have(&path("a/b/c/d")));
        assert!(!left_out.may_have(&path("a")) && !left_out.may_have(&path("a/bc")));
        assert!(left_out.add_incomplete(path("d")) && !left_out.add_incomplete(path("d")));
        assert!(
            left_out.may_have(&path("d/x/y")) && !left_out.contains(&path("d/x")) && !left_out.may_have(&path("d"))
        );
    }

    #[test]
    fn record_comes_back_as_it_was() {
        let mut left_out = LeftOutPaths::default();
        left_out.add(path("a%"));
        left_out.add_incomplete(InnerPath::default());
        let text = serde_json::to_string(&left_out).expect("paths are text");
        assert_eq!(serde_json::from_str::<LeftOutPaths>(&text).expect("the text is read"), left_out);
    }

    #[test]
    fn many_entries_make_their_directory_incomplete() {
        let mut left_out = LeftOutPaths::default();
        for n in 0..3 * MAX_PATHS {
            left_out.add(path(&format!("d{n}/x")));
        }
        assert_eq!((left_out.entries.len(), left_out.incomplete.len()), (MAX_PATHS, MAX_PATHS + 1));
        assert!(left_out.may_have(&path("anything")) && !left_out.contains(&path("anything")));
    }
}
