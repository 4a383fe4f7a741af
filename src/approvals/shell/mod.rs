//! Command lines, taken apart into simple commands and the files that redirections name.
//!
//! Looks into lists, pipes, subshells, functions, substitutions, here documents and programs that
//! run other programs ([`wrapper`]). A line that is not understood completely is [`Unclear`].

mod reader;
mod unseen;
mod variables;
mod word;
mod wrapper;

use std::rc::Rc;

use shuck_parser::{ShellDialect, ShellProfile, parser::Parser};

pub(super) use self::variables::is_powerful;
use super::place::WorkDirs;

/// Longest command line that is read, in bytes.
const LINE_LIMIT: usize = 64 * 1024;

/// Deepest nesting of syntax, and of scripts inside arguments.
const DEPTH_LIMIT: usize = 24;

/// Simple commands that a line has at most.
const COMMAND_LIMIT: usize = 1000;

/// Steps of the parser. Bounds its time.
const PARSER_STEPS: usize = 40_000;

/// Braces and substitutions of a line. The time of the parser grows with the square of them.
const OPENING_LIMIT: usize = 1000;

/// Reason for which a command line is not understood, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unclear(pub String);

/// Command line, taken apart.
#[derive(Debug, Default)]
pub(super) struct CommandLine {
    pub commands: Vec<ShellCommand>,
    pub files: Vec<RedirectedFile>,
}

/// Simple command.
#[derive(Debug, Clone)]
pub(super) struct ShellCommand {
    /// Name and arguments. Never empty.
    pub words: Vec<ShellWord>,
    pub role: CommandRole,
    /// Variables that are set when the command runs.
    pub variables: Rc<[String]>,
    /// Number of the pipeline.
    pub pipeline: usize,
    /// Place in the pipeline, counted from 0.
    pub position: usize,
    /// Directories in which the command may run.
    pub dirs: WorkDirs,
}

/// Effect of a command beside its own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandRole {
    Plain,
    /// Runs another command of the list, and does nothing else: `timeout 5 make`.
    Wrapper,
    /// Runs another command of the list in another way: `sudo make`.
    PowerfulWrapper,
}

/// Word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// Value without quotes. Source text if only the run decides about the value.
    pub text: String,
    /// False if an expansion decides about the value: a variable, a glob, a substitution.
    pub is_fixed: bool,
}

/// File that a redirection opens.
#[derive(Debug, Clone)]
pub(super) struct RedirectedFile {
    pub path: ShellWord,
    pub writes: bool,
    pub dirs: WorkDirs,
}

impl ShellWord {
    pub fn fixed(text: impl Into<String>) -> ShellWord {
        ShellWord { text: text.into(), is_fixed: true }
    }

    fn open(text: impl Into<String>) -> ShellWord {
        ShellWord { text: text.into(), is_fixed: false }
    }

    /// Returns the value if it is fixed.
    pub fn value(&self) -> Option<&str> {
        self.is_fixed.then_some(self.text.as_str())
    }
}

impl ShellCommand {
    /// Returns the name without its directory.
    pub fn name(&self) -> &str {
        base_name(&self.words[0].text)
    }

    /// Returns the arguments whose value is fixed.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.words[1..].iter().filter_map(ShellWord::value)
    }
}

/// Returns the part of a path after its last slash.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Takes a command line apart. `workspace` is the directory in which it starts.
///
/// # Errors
/// [`Unclear`] if the line is too long or too deep, has a syntax error or hides its text, and if
/// only the run decides which command runs.
pub(super) fn parse(line: &str, workspace: &str) -> Result<CommandLine, Unclear> {
    check_size(line)?;
    if let Some(reason) = unseen::hidden_text(line) {
        return Err(Unclear(reason));
    }
    let mut reader = reader::CommandReader::new(workspace);
    reader.script(line, 0)?;
    Ok(reader.finish())
}

fn check_size(line: &str) -> Result<(), Unclear> {
    if line.len() > LINE_LIMIT {
        return Err(Unclear(format!("the command has more than {LINE_LIMIT} bytes")));
    }
    let openings = line.bytes().filter(|byte| matches!(byte, b'{' | b'`')).count() + line.matches("$(").count();
    match openings > OPENING_LIMIT {
        true => Err(Unclear("the command has too many substitutions".to_owned())),
        false => Ok(()),
    }
}

fn parser(source: &str) -> Parser<'_> {
    let profile = ShellProfile::native(ShellDialect::Bash);
    Parser::with_limits_and_profile(source, DEPTH_LIMIT, PARSER_STEPS, profile)
}

#[cfg(test)]
mod tests;
