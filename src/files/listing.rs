//! Lists of a directory and searches below it, page by page.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    time::{Duration, Instant},
};

use globset::{GlobBuilder, GlobMatcher};

use super::{
    entry::FileEntry,
    error::FileError,
    path::{InnerPath, PathForm},
    tree::WorkspaceTree,
    walk::{IsCancelled, NameScan, Walk, WalkStep, examine},
};

/// Time after which a search answers with what it has found.
const SEARCH_TIME: Duration = Duration::from_secs(2);
/// Entries that a search looks at for one answer.
const SEARCH_ENTRIES: usize = 200_000;
/// Longest pattern of a search, bytes.
const PATTERN_BYTES: usize = 256;

/// Request for a page of entries.
#[derive(Debug, Default)]
pub struct FileQuery {
    /// Directory of the entries.
    pub directory: InnerPath,
    /// Includes the entries of all directories below.
    pub recursive: bool,
    pub pattern: Option<NamePattern>,
    /// Entry after which the page begins, from [`FilePage::next_cursor`].
    pub cursor: Option<InnerPath>,
    /// Highest number of entries. At least 1.
    pub limit: usize,
}

/// Page of entries, in the order of their names. A directory comes before its entries.
#[derive(Debug, Default)]
pub struct FilePage {
    pub entries: Vec<FileEntry>,
    /// Last entry that was looked at. `None`: there are no more.
    pub next_cursor: Option<InnerPath>,
}

/// Pattern that names match: a part of the name, or a glob with `*`, `?`, `[` or `{`.
///
/// Upper and lower case are equal. A pattern with `/` matches the path below the directory.
#[derive(Debug)]
pub enum NamePattern {
    NamePart(String),
    PathPart(String),
    NameGlob(GlobMatcher),
    PathGlob(GlobMatcher),
}

/// Text that is no pattern.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPattern {
    #[error("`q` has more than {PATTERN_BYTES} bytes; search for a shorter part of the name")]
    TooLong,
    #[error("`q` is no valid glob: {0}; write `\\` before a character that stands for itself")]
    Glob(#[from] globset::Error),
}

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The pattern is too long, or is a glob with an error.
    pub fn parse(text: &str) -> Result<NamePattern, InvalidPattern> {
        if text.len() > PATTERN_BYTES {
            return Err(InvalidPattern::TooLong);
        }
        let is_path = text.contains('/');
        if !text.contains(['*', '?', '[', '{']) {
            let part = text.to_lowercase();
            return Ok(if is_path { NamePattern::PathPart(part) } else { NamePattern::NamePart(part) });
        }
        let glob = GlobBuilder::new(text).case_insensitive(true).literal_separator(true).build()?.compile_matcher();
        Ok(if is_path { NamePattern::PathGlob(glob) } else { NamePattern::NameGlob(glob) })
    }

    /// Returns true if an entry matches, by its path below the directory.
    fn matches(&self, below: &[u8]) -> bool {
        let name = below.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match self {
            NamePattern::NamePart(part) => String::from_utf8_lossy(name).to_lowercase().contains(part),
            NamePattern::PathPart(part) => String::from_utf8_lossy(below).to_lowercase().contains(part),
            NamePattern::NameGlob(glob) => glob.is_match(OsStr::from_bytes(name)),
            NamePattern::PathGlob(glob) => glob.is_match(OsStr::from_bytes(below)),
        }
    }
}

impl FileQuery {
    /// Parses the cursor of a page, the percent-encoded path of an entry.
    pub fn parse_cursor(text: &str) -> Option<InnerPath> {
        InnerPath::parse(text, PathForm::Encoded).ok()
    }

    /// Returns the page.
    ///
    /// # Errors
    /// The directory is missing, no directory, closed, or too large to be read.
    pub fn run(&self, tree: &WorkspaceTree, is_cancelled: IsCancelled<'_>) -> Result<FilePage, FileError> {
        if self.recursive { self.search(tree, is_cancelled) } else { self.list(tree, is_cancelled) }
    }

    fn list(&self, tree: &WorkspaceTree, is_cancelled: IsCancelled<'_>) -> Result<FilePage, FileError> {
        let dir = tree.open_dir(&self.directory)?;
        let after = self.cursor.as_ref().map(InnerPath::name);
        let accepts = |name: &[u8]| self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name));
        let scan = NameScan { path: &self.directory, after, count: self.limit + 1, is_cancelled };
        let mut names = scan.run(dir, accepts)?;
        let has_more = names.len() > self.limit;
        names.truncate(self.limit);
        let paths: Vec<InnerPath> = names.iter().filter_map(|found| self.directory.join(&found.name)).collect();
        let entries = paths.iter().filter_map(|path| Some(FileEntry::new(path, &examine(tree, path)?.1)));
        Ok(FilePage { entries: entries.collect(), next_cursor: paths.last().filter(|_| has_more).cloned() })
    }

    fn search(&self, tree: &WorkspaceTree, is_cancelled: IsCancelled<'_>) -> Result<FilePage, FileError> {
        let (began, start) = (Instant::now(), self.directory.clone());
        let mut walk = match &self.cursor {
            None => Walk::new(tree, start),
            Some(last) => {
                tree.open_dir(&self.directory)?;
                Walk::resume(tree, start, last).unwrap_or_else(|| Walk::new(tree, self.directory.clone()))
            }
        };
        let skipped = if self.directory.is_root() { 0 } else { self.directory.as_bytes().len() + 1 };
        let (mut page, mut seen) = (FilePage::default(), 0);
        loop {
            // An answer has a part of the tree in any case, so that a client gets on.
            let is_long = seen > 0 && (seen >= SEARCH_ENTRIES || began.elapsed() >= SEARCH_TIME);
            if page.entries.len() == self.limit || is_long {
                page.next_cursor = walk.position();
                return Ok(page);
            }
            match walk.step() {
                WalkStep::End => return Ok(page),
                WalkStep::Scan => walk.scan(is_cancelled)?,
                WalkStep::Entry(path) => {
                    seen += 1;
                    let below = &path.as_bytes()[skipped..];
                    if self.pattern.as_ref().is_none_or(|pattern| pattern.matches(below))
                        && let Some((_, stat)) = examine(tree, &path)
                    {
                        page.entries.push(FileEntry::new(&path, &stat));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
