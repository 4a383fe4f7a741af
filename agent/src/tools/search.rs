//! `search`: finds text in files, or files by name. Leaves out what `.gitignore` excludes.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use greenroom_protocol::{
    Action, Observation, ObservationKind,
    tool::{ToolKind, ToolLocation, ToolStatus},
};
use ignore::{
    DirEntry, WalkBuilder,
    gitignore::{Gitignore, GitignoreBuilder},
};
use regex::bytes::{Regex, RegexBuilder};
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{AgentTool, ToolContext, ToolError, ToolResult, not_a_tool, schema, shorten_label};
use crate::{clock, threads::off_thread};

const NAME: &str = "search";

/// Time limit. What was found until then is returned.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Number of files that one search reads or names.
const FILES_LIMIT: usize = 100_000;
/// Size limit of the compiled pattern, in bytes.
const PATTERN_LIMIT: usize = 1024 * 1024;
/// Searched part of one line, in bytes, so that a stop takes effect soon.
const SEARCHED_LINE_LIMIT: usize = 64 * 1024;
/// Size limit of a file, in bytes. Larger files are left out.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;
/// Size limit of a `.gitignore`, in bytes. A directory with a larger one is left out: each line
/// becomes a matcher of many times its size.
const IGNORE_FILE_LIMIT: u64 = 64 * 1024;
/// Size limit of all matches, in bytes.
const TEXT_LIMIT: usize = 24 * 1024;
/// Bytes shown of one line.
const LINE_LIMIT: usize = 240;
/// Number of files that the result names as locations.
const LOCATIONS_LIMIT: usize = 50;

pub(super) const TOOL: AgentTool = AgentTool {
    name: NAME,
    about: "Search the text of files for a regular expression, line by line, or search for files by name. Files that \
        `.gitignore` excludes, binary files and `.git` are left out. Prefer it to `grep` and `find`.",
    arguments: || {
        schema::object(
            &["pattern"],
            json!({
                "pattern": schema::text("A regular expression. Put `(?i)` first to ignore case."),
                "path": schema::text("The directory or file to search. The working directory where it is absent."),
                "glob": schema::text("Search only the files that fit, such as `*.rs` or `src/**/*.ts`."),
                "names_only": { "type": "boolean", "description": "List the files whose path fits, and read none." },
            }),
        )
    },
    parse: |name, input| {
        let SearchArguments { pattern, path, .. } = SearchArguments::deserialize(&input)?;
        let place = path.as_ref().map(|path| format!(" in `{path}`")).unwrap_or_default();
        let title = shorten_label(&format!("Search for `{pattern}`{place}"));
        let locations = path.into_iter().map(|path| ToolLocation { path, line: None }).collect();
        Ok(Action::Tool { kind: ToolKind::Search, title, name: Some(name.to_owned()), input, locations })
    },
    run: |action, context| match action {
        Action::Tool { title, input, .. } => search(title, input, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: true,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    names_only: Option<bool>,
}

async fn search(title: &str, input: &Value, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let arguments = SearchArguments::deserialize(input).map_err(ToolError::from_error)?;
    let findings = Arc::new(Mutex::new(SearchFindings::default()));
    let (directory, stop, shared) = (context.directory.clone(), context.stop.clone(), findings.clone());
    let work = off_thread(move || FileSearch::new(arguments, &directory, &shared)?.run(&stop));
    let limit = TIMEOUT.min(context.timeout);
    let (status, note) = tokio::select! {
        biased;
        () = context.stop.cancelled() => (ToolStatus::Stopped, "[The user stopped the search.]\n".to_owned()),
        end = work => end.map(|()| (ToolStatus::Completed, String::new()))?,
        () = clock::sleep(limit) => {
            context.stop.cancel();
            let note = format!("[Stopped after {} s. Narrow the search with `path` or `glob`.]\n", limit.as_secs());
            (ToolStatus::Completed, note)
        }
    };
    let findings = std::mem::take(&mut *lock(&findings));
    let text = findings.text() + &note;
    let kind = ObservationKind::Tool {
        kind: ToolKind::Search,
        title: title.to_owned(),
        name: Some(NAME.to_owned()),
        status,
        changes: Vec::new(),
        locations: findings.locations,
        truncated: None,
    };
    let done = ToolResult { observation: Observation { kind, content: text.clone() }, model_text: text };
    if status == ToolStatus::Stopped {
        return Err(ToolError::Stopped { what: "the search".to_owned(), partial_result: Some(Box::new(done)) });
    }
    Ok(done)
}

/// Matches so far, and the notes about what was left out.
#[derive(Debug, Default)]
struct SearchFindings {
    matches: String,
    locations: Vec<ToolLocation>,
    /// Files that were searched.
    searched: usize,
    /// Files over [`FILE_LIMIT`].
    large: usize,
    /// Directories whose `.gitignore` is too large, or no file.
    skipped: usize,
    /// Set if there are more files than [`FILES_LIMIT`].
    has_more_files: bool,
    /// Set if there are more matches than fit into [`TEXT_LIMIT`].
    is_full: bool,
    /// Set unless the search was stopped before its end.
    is_complete: bool,
}

impl SearchFindings {
    /// Adds a match. Sets `is_full` instead if the match does not fit.
    fn add(&mut self, path: &str, line: Option<(u64, &str)>) {
        let text = match line {
            Some((number, text)) => format!("{path}:{number}:{text}\n"),
            None => format!("{path}\n"),
        };
        if self.matches.len() + text.len() > TEXT_LIMIT {
            self.is_full = true;
            return;
        }
        self.matches.push_str(&text);
        if self.locations.len() < LOCATIONS_LIMIT && self.locations.last().is_none_or(|last| last.path != path) {
            self.locations.push(ToolLocation { path: path.to_owned(), line: line.map(|(number, _)| number) });
        }
    }

    fn text(&self) -> String {
        let mut text = self.matches.clone();
        let mut note = |applies: bool, note: String| {
            if applies {
                text.push_str(&note);
            }
        };
        if self.is_complete {
            note(self.matches.is_empty(), format!("[No match in {} files.]\n", self.searched));
        } else {
            note(true, format!("[Searched {} files before the end.]\n", self.searched));
        }
        note(self.is_full, "[There are more matches. Narrow the search with `path` or `glob`.]\n".to_owned());
        note(
            self.has_more_files,
            format!("[There are more than {FILES_LIMIT} files. Narrow the search with `path`.]\n"),
        );
        let limit = FILE_LIMIT >> 20;
        note(self.large > 0, format!("[Files of more than {limit} MiB left out: {}.]\n", self.large));
        note(self.skipped > 0, format!("[Directories without a usable `.gitignore` left out: {}.]\n", self.skipped));
        text
    }
}

/// Search of one tree or file. Blocks its thread.
struct FileSearch<'a> {
    /// Working directory, to which the paths in the result are relative.
    directory: PathBuf,
    root: PathBuf,
    pattern: Regex,
    glob: Option<Gitignore>,
    names_only: bool,
    findings: &'a Mutex<SearchFindings>,
}

impl FileSearch<'_> {
    fn new<'a>(
        arguments: SearchArguments,
        directory: &Path,
        findings: &'a Mutex<SearchFindings>,
    ) -> Result<FileSearch<'a>, ToolError> {
        let SearchArguments { pattern, path, glob, names_only } = arguments;
        let pattern = RegexBuilder::new(&pattern)
            .size_limit(PATTERN_LIMIT)
            .build()
            .map_err(|error| ToolError::Failed(format!("`pattern` is not a regular expression: {error}")))?;
        let path = path.unwrap_or_else(|| ".".to_owned());
        let unreadable = |error: io::Error| ToolError::Failed(format!("`{path}` cannot be searched: {error}"));
        let root = fs::canonicalize(directory.join(&path)).map_err(unreadable)?;
        let directory = fs::canonicalize(directory).map_err(unreadable)?;
        if let Some(ancestor) = root.ancestors().find(|ancestor| has_bad_ignore_file(ancestor)) {
            let file = ancestor.join(".gitignore");
            return Err(ToolError::Failed(format!("`{}` is not a file of at most 64 KiB", file.display())));
        }
        let glob = glob.map(|glob| matcher(&glob)).transpose()?;
        let names_only = names_only.unwrap_or(false);
        Ok(FileSearch { directory, root, pattern, glob, names_only, findings })
    }

    fn run(&self, stop: &CancellationToken) -> Result<(), ToolError> {
        let mut files = self.files(stop);
        files.sort();
        for file in files {
            if stop.is_cancelled() || lock(self.findings).is_full {
                break;
            }
            self.search_file(&file, stop);
        }
        lock(self.findings).is_complete = !stop.is_cancelled();
        Ok(())
    }

    /// Returns the files to search, unsorted. Links are not followed.
    fn files(&self, stop: &CancellationToken) -> Vec<PathBuf> {
        let skipped = Arc::new(AtomicUsize::new(0));
        let counter = skipped.clone();
        let stopped = stop.clone();
        let enters = move |entry: &DirEntry| {
            if stopped.is_cancelled() {
                return false;
            }
            if !entry.file_type().is_some_and(|kind| kind.is_dir()) {
                return true;
            }
            let is_bad = has_bad_ignore_file(entry.path());
            counter.fetch_add(usize::from(is_bad), Ordering::Relaxed);
            !is_bad && entry.file_name() != ".git"
        };
        // Only `.gitignore` counts: no settings of the user's git, no files of other programs.
        let walk = WalkBuilder::new(&self.root)
            .standard_filters(false)
            .git_ignore(true)
            .parents(true)
            .require_git(false)
            .filter_entry(enters)
            .build();
        let is_wanted =
            |entry: &DirEntry| entry.file_type().is_some_and(|kind| kind.is_file()) && self.fits_glob(entry);
        let walk = walk.take_while(|_| !stop.is_cancelled()).flatten().filter(is_wanted);
        let mut files: Vec<PathBuf> = walk.take(FILES_LIMIT + 1).map(DirEntry::into_path).collect();
        let mut findings = lock(self.findings);
        findings.has_more_files = files.len() > FILES_LIMIT;
        findings.skipped = skipped.load(Ordering::Relaxed);
        files.truncate(FILES_LIMIT);
        files
    }

    fn fits_glob(&self, entry: &DirEntry) -> bool {
        let Some(glob) = &self.glob else { return true };
        let below = entry.path().strip_prefix(&self.root).unwrap_or(entry.path());
        // The root itself is searched if it is a file. Its path below itself is empty.
        let path = if below.as_os_str().is_empty() { Path::new(entry.file_name()) } else { below };
        glob.matched_path_or_any_parents(path, false).is_ignore()
    }

    fn search_file(&self, file: &Path, stop: &CancellationToken) {
        let path = file.strip_prefix(&self.directory).unwrap_or(file).to_string_lossy();
        let path = path.replace(char::is_control, "\u{fffd}");
        if self.names_only {
            let mut findings = lock(self.findings);
            findings.searched += 1;
            if self.pattern.is_match(path.as_bytes()) {
                findings.add(&path, None);
            }
            return;
        }
        // A file may vanish or be unreadable; the others are searched.
        let Ok(content) = read_file(file) else { return };
        let Some(content) = content else {
            lock(self.findings).large += 1;
            return;
        };
        lock(self.findings).searched += 1;
        if content.is_empty() || content.contains(&0) {
            return;
        }
        let lines = content.strip_suffix(b"\n").unwrap_or(&content).split(|byte| *byte == b'\n');
        for (number, line) in (1..).zip(lines) {
            if stop.is_cancelled() {
                return;
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = &line[..line.len().min(SEARCHED_LINE_LIMIT)];
            let Some(found) = self.pattern.find(line) else { continue };
            let mut findings = lock(self.findings);
            findings.add(&path, Some((number, &shorten_line(line, found.start()))));
            if findings.is_full {
                return;
            }
        }
    }
}

/// Returns the matcher of a glob in the syntax of `.gitignore`.
fn matcher(glob: &str) -> Result<Gitignore, ToolError> {
    let invalid = |error: ignore::Error| ToolError::Failed(format!("`glob` is not a glob: {error}"));
    let mut builder = GitignoreBuilder::new("");
    builder.add_line(None, glob).map_err(invalid)?;
    builder.build().map_err(invalid)
}

/// Returns `true` if the directory's `.gitignore` may not be read: a pipe would block, a huge file
/// would fill the memory, and a link may lead to either. Git does not follow such a link.
fn has_bad_ignore_file(directory: &Path) -> bool {
    fs::symlink_metadata(directory.join(".gitignore"))
        .is_ok_and(|metadata| !metadata.is_file() || metadata.len() > IGNORE_FILE_LIMIT)
}

/// Reads a regular file, or returns `None` if the file is too large. Files that the kernel
/// generates report no size, and some block their reader; they count as empty.
fn read_file(file: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(file)?;
    let metadata = file.metadata()?;
    if metadata.len() > FILE_LIMIT {
        return Ok(None);
    }
    let mut content = Vec::new();
    if metadata.is_file() {
        file.take(metadata.len()).read_to_end(&mut content)?;
    }
    Ok(Some(content))
}

/// Returns the line as text, or of a long line the part around `at`.
fn shorten_line(line: &[u8], at: usize) -> String {
    let start = if line.len() > LINE_LIMIT { at.saturating_sub(LINE_LIMIT / 4) } else { 0 };
    let end = line.len().min(start + LINE_LIMIT);
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    let text = String::from_utf8_lossy(&line[start..end]).replace(|c: char| c.is_control() && c != '\t', " ");
    format!("{before}{text}{after}")
}

fn lock(findings: &Mutex<SearchFindings>) -> MutexGuard<'_, SearchFindings> {
    findings.lock().unwrap_or_else(PoisonError::into_inner)
}
