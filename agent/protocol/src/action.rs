//! What somebody, a person or the agent, asked for or did.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// How many characters of a text stand in a line for a person.
const SUMMARY_CHARS: usize = 200;

/// An act, as it stands in an event: `"action"` names it, `"args"` holds the rest.
///
/// The agent's own tool calls and the echoes of what the user asked for share this type; the event's `source` tells them
/// apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", content = "args", rename_all = "snake_case")]
pub enum Action {
    /// The task that a session begins with.
    Start {
        task: String,
    },
    /// A user's message, as it was sent. An observation `chat` says when the agent got it.
    Message {
        content: String,
        #[serde(default)]
        mode: MessageMode,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
    },
    /// Run a shell command in the workspace.
    Run {
        command: String,
    },
    /// Read a file of the workspace.
    Read {
        path: String,
    },
    /// Write a whole file of the workspace.
    Write {
        path: String,
        content: String,
    },
    /// Change part of a file of the workspace.
    Edit {
        path: String,
        #[serde(flatten)]
        edit: FileEdit,
    },
    /// Fetch a page as text.
    Browse {
        url: String,
    },
    /// A thought that the agent wanted to write down (its model's own thinking is an observation only).
    Think {
        content: String,
    },
    /// The agent's plan, as markdown.
    Plan {
        content: String,
    },
    /// The agent says that the task is done.
    Finish {
        #[serde(default)]
        message: String,
    },
    /// Ask the person before doing `action` (kept here so that the record says who asked).
    Confirm {
        request: String,
        decision: ApprovalDecision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The user changed the model.
    SetModel {
        model: String,
    },
    Interrupt {},
    Pause {},
    Resume {},
    Stop {},
    End {},
}

/// When a message that comes while the agent works reaches it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageMode {
    /// After the turn that runs now.
    #[default]
    Queue,
    /// At the agent's next step, inside the turn that runs now.
    Steer,
    /// At once: what runs now is interrupted first.
    Interrupt,
}

/// How a file is changed: by line number, or by a text that occurs exactly once.
///
/// Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "UPPERCASE")]
pub enum FileEdit {
    /// Replace the lines `line..=end_line`, or the text `old`, by `lines`.
    Replace {
        #[serde(flatten)]
        at: EditTarget,
        lines: Vec<String>,
    },
    /// Put `lines` before line `line` (one past the last appends), or after the text `old`.
    Insert {
        #[serde(flatten)]
        at: EditTarget,
        lines: Vec<String>,
    },
    /// Remove the lines `line..=end_line`, or the text `old`.
    Delete {
        #[serde(flatten)]
        at: EditTarget,
    },
}

/// Where in a file a change happens. Exactly one of `line` and `old` is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditTarget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_line: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
}

/// A person's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    Allow,
    AllowAlways,
    Deny,
}

impl Action {
    /// The name on the wire, which is also what `GET …/events?kind=` filters by.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Start { .. } => "start",
            Action::Message { .. } => "message",
            Action::Run { .. } => "run",
            Action::Read { .. } => "read",
            Action::Write { .. } => "write",
            Action::Edit { .. } => "edit",
            Action::Browse { .. } => "browse",
            Action::Think { .. } => "think",
            Action::Plan { .. } => "plan",
            Action::Finish { .. } => "finish",
            Action::Confirm { .. } => "confirm",
            Action::SetModel { .. } => "set_model",
            Action::Interrupt {} => "interrupt",
            Action::Pause {} => "pause",
            Action::Resume {} => "resume",
            Action::Stop {} => "stop",
            Action::End {} => "end",
        }
    }

    /// One line for a person, and never a long one: what is being done.
    pub fn summary_line(&self) -> String {
        match self {
            Action::Start { task } => format!("Task: {}", first_line(task)),
            Action::Message { content, .. } => first_line(content).into_owned(),
            Action::Run { command } => format!("Running command: {}", first_line(command)),
            Action::Read { path } => format!("Reading file: {}", abbreviate(path)),
            Action::Write { path, .. } => format!("Writing file: {}", abbreviate(path)),
            Action::Edit { path, .. } => format!("Editing file: {}", abbreviate(path)),
            Action::Browse { url } => format!("Browsing: {}", abbreviate(url)),
            Action::Think { content } => format!("Thinking: {}", first_line(content)),
            Action::Plan { .. } => "Updating the plan.".to_owned(),
            Action::Finish { message } if message.is_empty() => "The task is done.".to_owned(),
            Action::Finish { message } => first_line(message).into_owned(),
            Action::Confirm { decision: ApprovalDecision::Deny, .. } => "Denied.".to_owned(),
            Action::Confirm { .. } => "Allowed.".to_owned(),
            Action::SetModel { model } => format!("Model: {}", abbreviate(model)),
            Action::Interrupt {} => "Interrupt.".to_owned(),
            Action::Pause {} => "Pause.".to_owned(),
            Action::Resume {} => "Resume.".to_owned(),
            Action::Stop {} => "Stop.".to_owned(),
            Action::End {} => "End.".to_owned(),
        }
    }
}

/// The beginning of a text, where it is too long to be named whole in a line for a person.
pub fn abbreviate(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SUMMARY_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

fn first_line(text: &str) -> Cow<'_, str> {
    abbreviate(text.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_long() {
        let check = |said: &str, line: &str| {
            let action = Action::Message { content: said.into(), mode: MessageMode::Queue, attachments: vec![] };
            assert_eq!(action.summary_line(), line);
        };
        check("", "");
        check("one\ntwo", "one");
        check(&"ä".repeat(SUMMARY_CHARS), &"ä".repeat(SUMMARY_CHARS));
        check(&"ä".repeat(1 << 20), &format!("{}…", "ä".repeat(SUMMARY_CHARS)));
        let path = "x".repeat(1 << 20);
        assert_eq!(Action::Read { path: path.clone() }.summary_line().len(), "Reading file: …".len() + SUMMARY_CHARS);
        assert_eq!(Action::Browse { url: path }.summary_line().len(), "Browsing: …".len() + SUMMARY_CHARS);
    }
}
