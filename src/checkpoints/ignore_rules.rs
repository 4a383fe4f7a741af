//! Rules for what checkpoints leave out: patterns of the configuration, and `.gitignore` files.
//!
//! A `.gitignore` is a file of the agent. It is read beneath the workspace like any other file, and
//! only its patterns count. No other file of git has an effect.

use std::{ffi::OsStr, io::Read, os::unix::ffi::OsStrExt, path::Path, rc::Rc};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use crate::files::{InnerPath, WorkspaceTree};

const GITIGNORE: &[u8] = b".gitignore";
/// Size of a `.gitignore` beyond which the rest of the file is not read.
const GITIGNORE_BYTES: u64 = 64 << 10;
/// Patterns of one `.gitignore`. Further lines are not read.
const GITIGNORE_LINES: usize = 2_000;
/// `.gitignore` files of one capture. Further files are not read.
const GITIGNORE_FILES: usize = 500;

/// Rules that hold in a directory: its own, and those of the directories above.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    above: Option<Rc<IgnoreRules>>,
    dir: InnerPath,
    own: Gitignore,
}

/// Number of `.gitignore` files that a capture may still read.
#[derive(Debug)]
pub(super) struct GitignoreBudget(usize);

impl Default for GitignoreBudget {
    fn default() -> GitignoreBudget {
        GitignoreBudget(GITIGNORE_FILES)
    }
}

impl IgnoreRules {
    /// Returns the rules of the configuration. An invalid pattern has no effect.
    pub(super) fn of_config(patterns: &[String]) -> Rc<IgnoreRules> {
        let own = gitignore(patterns.iter().map(String::as_str));
        Rc::new(IgnoreRules { above: None, dir: InnerPath::default(), own })
    }

    /// Returns the rules inside `dir`, which has these names.
    pub(super) fn inside<'a>(
        self: &Rc<IgnoreRules>,
        tree: &WorkspaceTree,
        dir: &InnerPath,
        mut names: impl Iterator<Item = &'a [u8]>,
        budget: &mut GitignoreBudget,
    ) -> Rc<IgnoreRules> {
        let has_own = budget.0 > 0 && names.any(|name| name == GITIGNORE);
        let text = has_own.then(|| dir.join(GITIGNORE)).flatten().and_then(|path| {
            let mut text = Vec::new();
            let file = tree.open_file(&path).ok()?;
            file.take(GITIGNORE_BYTES).read_to_end(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text).into_owned())
        });
        let Some(text) = text else { return self.clone() };
        budget.0 -= 1;
        let own = gitignore(text.lines().take(GITIGNORE_LINES));
        Rc::new(IgnoreRules { above: Some(self.clone()), dir: dir.clone(), own })
    }

    /// Returns true if the entry is left out. The innermost rule that matches decides.
    pub(super) fn is_ignored(&self, path: &InnerPath, is_dir: bool) -> bool {
        let mut level = Some(self);
        while let Some(rules) = level {
            let skipped = if rules.dir.is_root() { 0 } else { rules.dir.as_bytes().len() + 1 };
            let below = path.as_bytes().get(skipped..).unwrap_or_default();
            match rules.own.matched(Path::new(OsStr::from_bytes(below)), is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => level = rules.above.as_deref(),
            }
        }
        false
    }
}

fn gitignore<'a>(lines: impl Iterator<Item = &'a str>) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        let _an_invalid_pattern_has_no_effect = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
