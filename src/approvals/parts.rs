//! Parts of a tool call that rules and modes judge one by one.

use greenroom_protocol::{Action, tool::ToolKind};
use serde_json::Value;

use super::{
    pattern::quoted,
    place::{Place, host_of},
    shell::{self, CommandLine, CommandRole, ShellCommand, Unclear},
};

/// Tool call, taken apart.
#[derive(Debug)]
pub(super) struct CallParts {
    /// Names by which rules may call the tool: its own name and its kind.
    pub tools: Vec<String>,
    pub items: Vec<CallPart>,
    /// Reason for which the command line is not understood.
    pub unclear: Option<Unclear>,
    /// True if the call changes nothing inside the sandbox.
    pub is_read_only: bool,
}

/// Part of a tool call.
#[derive(Debug)]
pub(super) struct CallPart {
    pub kind: CallPartKind,
    /// Every place that the part may touch.
    pub places: Vec<Place>,
    pub hosts: Vec<String>,
}

/// Kind of a part.
#[derive(Debug)]
pub(super) enum CallPartKind {
    Command(ShellCommand),
    /// File that a redirection reads.
    ReadFile,
    /// File that a redirection writes.
    WrittenFile,
    /// Write or edit of a file by a tool.
    Edit,
    /// Any other call.
    Other,
}

/// Commands that only print, test or filter. Beside other commands they need no decision.
const HARMLESS_COMMANDS: [&str; 28] = [
    ":", "[", "basename", "cat", "cd", "cut", "date", "dirname", "echo", "false", "grep", "head", "jq", "ls", "nl",
    "printf", "pwd", "rev", "seq", "sleep", "tail", "test", "tr", "true", "wait", "wc", "whoami", "column",
];

impl CallPart {
    /// Returns true for a command that needs no decision beside other commands of its line.
    pub fn is_harmless(&self) -> bool {
        match &self.kind {
            CallPartKind::Command(command) => {
                let name = &command.words[0].text;
                let is_cd_outside = name == "cd" && self.places.iter().any(|place| !place.is_inside());
                (HARMLESS_COMMANDS.contains(&name.as_str()) && !is_cd_outside) || command.role == CommandRole::Wrapper
            }
            CallPartKind::ReadFile => true,
            CallPartKind::WrittenFile | CallPartKind::Edit | CallPartKind::Other => false,
        }
    }

    pub fn command(&self) -> Option<&ShellCommand> {
        match &self.kind {
            CallPartKind::Command(command) => Some(command),
            CallPartKind::ReadFile | CallPartKind::WrittenFile | CallPartKind::Edit | CallPartKind::Other => None,
        }
    }
}

impl CallParts {
    /// Takes a call apart.
    pub fn of(call: &Action, workspace: &str) -> CallParts {
        let own = call.name().to_owned();
        let single = |tools: &[&str], kind, places, hosts, is_read_only| CallParts {
            tools: std::iter::once(own.clone()).chain(tools.iter().map(|tool| (*tool).to_owned())).collect(),
            items: vec![CallPart { kind, places, hosts }],
            unclear: None,
            is_read_only,
        };
        let place = |path: &str| vec![Place::of(path, workspace)];
        match call {
            Action::Run { command } => CallParts::of_command(vec![own, "execute".to_owned()], command, workspace),
            Action::Read { path } => single(&[], CallPartKind::Other, place(path), Vec::new(), true),
            Action::Write { path, .. } => single(&["edit"], CallPartKind::Edit, place(path), Vec::new(), false),
            Action::Edit { path, .. } => single(&[], CallPartKind::Edit, place(path), Vec::new(), false),
            Action::Browse { url } => {
                single(&["fetch"], CallPartKind::Other, Vec::new(), host_of(url).into_iter().collect(), true)
            }
            Action::Tool { kind, name, input, locations, .. } => {
                let tools = vec![kind_name(kind), name.clone().unwrap_or_default(), own];
                if *kind == ToolKind::Execute
                    && let Some(line) = command_line(input)
                {
                    return CallParts::of_command(tools, &line, workspace);
                }
                let is_read_only =
                    matches!(kind, ToolKind::Read | ToolKind::Search | ToolKind::Think | ToolKind::Fetch);
                let named = ["path", "file_path", "filePath", "notebook_path"]
                    .into_iter()
                    .filter_map(|key| input.get(key)?.as_str());
                let paths = locations.iter().map(|location| location.path.as_str()).chain(named);
                let mut places: Vec<Place> = paths.map(|path| Place::of(path, workspace)).collect();
                places.sort();
                places.dedup();
                let hosts = ["url", "uri"].into_iter().filter_map(|key| host_of(input.get(key)?.as_str()?)).collect();
                let part = if *kind == ToolKind::Edit { CallPartKind::Edit } else { CallPartKind::Other };
                let items = vec![CallPart { kind: part, places, hosts }];
                CallParts { tools, items, unclear: None, is_read_only }
            }
            Action::Think { .. } | Action::Plan { .. } | Action::Finish { .. } => {
                single(&[], CallPartKind::Other, Vec::new(), Vec::new(), true)
            }
            Action::Start { .. }
            | Action::Message { .. }
            | Action::Confirm { .. }
            | Action::SetMode { .. }
            | Action::SetModel { .. }
            | Action::SetBudget { .. }
            | Action::KillProcess { .. }
            | Action::Interrupt {}
            | Action::Pause {}
            | Action::Resume {}
            | Action::Stop {}
            | Action::End {} => single(&[], CallPartKind::Other, Vec::new(), Vec::new(), false),
        }
    }

    fn of_command(tools: Vec<String>, line: &str, workspace: &str) -> CallParts {
        let other = || CallPart { kind: CallPartKind::Other, places: Vec::new(), hosts: Vec::new() };
        match shell::parse(line, workspace) {
            Ok(parsed) => {
                let mut items = line_parts(parsed);
                // A line without a command, such as an assignment, is still a call.
                if items.is_empty() {
                    items.push(other());
                }
                CallParts { tools, items, unclear: None, is_read_only: false }
            }
            Err(unclear) => CallParts { tools, items: vec![other()], unclear: Some(unclear), is_read_only: false },
        }
    }
}

fn line_parts(line: CommandLine) -> Vec<CallPart> {
    let files = line.files.into_iter().map(|file| {
        let places = match file.path.value() {
            Some(path) => file.dirs.places(path),
            None => vec![Place::Unknown(file.path.text.clone())],
        };
        let kind = if file.writes { CallPartKind::WrittenFile } else { CallPartKind::ReadFile };
        CallPart { kind, places, hosts: Vec::new() }
    });
    let commands = line.commands.into_iter().map(|command| {
        let values: Vec<&str> = command.arguments().map(|word| option_value(word).unwrap_or(word)).collect();
        let is_path = |word: &&&str| !word.is_empty() && !word.starts_with('-') && !word.contains("://");
        let places = values.iter().filter(is_path).flat_map(|word| command.dirs.places(word)).collect();
        let hosts = values.iter().filter_map(|word| host_of(word)).collect();
        CallPart { places, hosts, kind: CallPartKind::Command(command) }
    });
    commands.collect::<Vec<_>>().into_iter().chain(files).collect()
}

/// Returns the value of `--option=value`.
fn option_value(word: &str) -> Option<&str> {
    word.starts_with('-').then(|| word.split_once('='))?.map(|(_, value)| value)
}

/// Returns the command line of a generic tool call: a text, or a list of words.
pub(super) fn command_line(input: &Value) -> Option<String> {
    match input.get("command").or_else(|| input.get("cmd"))? {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) => {
            let words =
                words.iter().map(|word| word.as_str().map(|word| quoted(word).unwrap_or_else(|| escaped(word))));
            Some(words.collect::<Option<Vec<_>>>()?.join(" "))
        }
        _ => None,
    }
}

/// Quotes any word for a shell.
fn escaped(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Name of a kind on the wire.
fn kind_name(kind: &ToolKind) -> String {
    serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}
