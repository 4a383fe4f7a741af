//! Actions: requests and acts of the user and the agent, as events record them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    approval::ApprovalMode,
    link::ReasoningEffort,
    tool::{ToolKind, ToolLocation},
};

/// Longest text in a summary line, in characters.
const SUMMARY_CHARS: usize = 200;

/// Recorded action of an event: `"action"` holds its name, `"args"` holds the rest.
///
/// The agent's tool calls and the records of user requests share this type. The event's `source`
/// distinguishes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(test, derive(schemars::JsonSchema, strum::VariantNames, ts_rs::TS))]
#[serde(tag = "action", content = "args", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// First task of a session.
    Start { task: String },
    /// User's message, as it was sent. A `chat` observation reports when the agent received it.
    Message {
        content: String,
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        mode: MessageMode,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
    },
    /// Runs a shell command in the workspace.
    Run { command: String },
    /// Reads a file of the workspace.
    Read { path: String },
    /// Writes a whole file of the workspace.
    Write { path: String, content: String },
    /// Changes part of a file of the workspace.
    Edit {
        path: String,
        #[serde(flatten)]
        edit: FileEdit,
    },
    /// Opens a page and reads it as text.
    Browse { url: String },
    /// Calls a tool that has no action of its own.
    Tool {
        kind: ToolKind,
        /// Call in words, for a person.
        title: String,
        /// Name by which the agent knows the tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        input: Value,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locations: Vec<ToolLocation>,
    },
    /// Thought that the agent records by itself. The model's own thinking is an observation only.
    Think { content: String },
    /// Agent's plan, as Markdown.
    Plan { content: String },
    /// Agent's report that the task is done.
    Finish {
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        message: String,
    },
    /// Person's decision on the approval request `request`. The event's `source` records who
    /// decided.
    Confirm {
        request: String,
        decision: ApprovalDecision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Id of the choice that the person made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<String>,
        /// Arguments that replace those of the tool call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
    },
    /// Changes the session's mode.
    SetMode { mode: ApprovalMode },
    /// Changes the model or its reasoning effort. `effort` is absent for the model's own default.
    SetModel {
        model: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<ReasoningEffort>,
    },
    /// Changes the limit on the session's cost, in US dollars. `null` removes the limit.
    SetBudget { usd: Option<f64> },
    /// Ends a process that a command left behind.
    KillProcess { pid: i32 },
    /// Interrupts all work of the agent and of the user. Without work, ends the processes that
    /// commands left behind.
    Interrupt {},
    /// Freezes the sandbox.
    Pause {},
    /// Continues a paused or stopped session.
    Resume {},
    /// Stops the sandbox, which frees its memory. Its files stay.
    Stop {},
    /// Ends the session for ever.
    End {},
}

/// Reasoning effort that a client chooses for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum EffortChoice {
    /// The model's own default.
    Default,
    Minimal,
    Low,
    Medium,
    High,
}

impl EffortChoice {
    /// Returns the chosen effort, or `None` for the model's own default.
    pub fn effort(self) -> Option<ReasoningEffort> {
        match self {
            EffortChoice::Default => None,
            EffortChoice::Minimal => Some(ReasoningEffort::Minimal),
            EffortChoice::Low => Some(ReasoningEffort::Low),
            EffortChoice::Medium => Some(ReasoningEffort::Medium),
            EffortChoice::High => Some(ReasoningEffort::High),
        }
    }
}

/// Time at which a message reaches an agent that is working.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum MessageMode {
    /// After the current turn.
    #[default]
    Queue,
    /// At the agent's next step, inside the current turn.
    Steer,
    /// Immediately: the current turn is interrupted first.
    Interrupt,
}

/// Change of a file, addressed by line number or by a text that occurs exactly once.
///
/// Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "change", rename_all = "UPPERCASE")]
pub enum FileEdit {
    /// Replaces the lines `line..=end_line`, or the text `old`, by `lines`.
    Replace {
        #[serde(flatten)]
        at: EditTarget,
        lines: Vec<String>,
    },
    /// Inserts `lines` before line `line` (one past the last line appends), or after the text
    /// `old`.
    Insert {
        #[serde(flatten)]
        at: EditTarget,
        lines: Vec<String>,
    },
    /// Removes the lines `line..=end_line`, or the text `old`.
    Delete {
        #[serde(flatten)]
        at: EditTarget,
    },
}

/// Place of a change in a file. Exactly one of `line` and `old` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct EditTarget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_line: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
}

/// Person's answer to an approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    Allow,
    AllowAlways,
    Deny,
}

impl Action {
    /// Name on the wire. `GET …/events?kind=` filters by the same name.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Summary line for a person that describes the action. Long texts are abbreviated.
    pub fn summary_line(&self) -> String {
        match self {
            Action::Start { task } => format!("Task: {}", first_line(task)),
            Action::Message { content, .. } => first_line_or(content, "Message without text.").into_owned(),
            Action::Run { command } => format!("Running command: {}", first_line(command)),
            Action::Read { path } => format!("Reading file: {}", abbreviate(path)),
            Action::Write { path, .. } => format!("Writing file: {}", abbreviate(path)),
            Action::Edit { path, .. } => format!("Editing file: {}", abbreviate(path)),
            Action::Browse { url } => format!("Browsing: {}", abbreviate(url)),
            Action::Tool { title, name, .. } if title.trim().is_empty() => {
                format!("Calling tool: {}", abbreviate(name.as_deref().unwrap_or("unknown")))
            }
            Action::Tool { title, .. } => first_line(title).into_owned(),
            Action::Think { content } => format!("Thinking: {}", first_line(content)),
            Action::Plan { .. } => "Updating the plan.".to_owned(),
            Action::Finish { message } => first_line_or(message, "The task is done.").into_owned(),
            Action::Confirm { decision: ApprovalDecision::Deny, .. } => "Denied.".to_owned(),
            Action::Confirm { .. } => "Allowed.".to_owned(),
            Action::SetMode { mode } => format!("Mode: {}", mode.name()),
            Action::SetModel { model, effort: None } => format!("Model: {}", abbreviate(model)),
            Action::SetModel { model, effort: Some(effort) } => {
                format!("Model: {}, effort: {}", abbreviate(model), <&str>::from(effort))
            }
            Action::SetBudget { usd: Some(usd) } => format!("Budget: {usd} USD."),
            Action::SetBudget { usd: None } => "Budget removed.".to_owned(),
            Action::KillProcess { pid } => format!("Ending process {pid}."),
            Action::Interrupt {} => "Interrupt.".to_owned(),
            Action::Pause {} => "Pause.".to_owned(),
            Action::Resume {} => "Resume.".to_owned(),
            Action::Stop {} => "Stop.".to_owned(),
            Action::End {} => "End.".to_owned(),
        }
    }
}

/// Returns the text, or its first `SUMMARY_CHARS` (200) characters and `…` if the text is longer.
pub fn abbreviate(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SUMMARY_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Returns the first line that is not blank, abbreviated. Empty if all lines are blank.
pub(crate) fn first_line(text: &str) -> Cow<'_, str> {
    abbreviate(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default())
}

/// Returns the first line that is not blank, abbreviated, or `fallback` if all lines are blank.
pub(crate) fn first_line_or<'a>(text: &'a str, fallback: &'a str) -> Cow<'a, str> {
    match first_line(text) {
        line if line.is_empty() => fallback.into(),
        line => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_line_is_never_long() {
        let check = |content: &str, line: &str| {
            let action = Action::Message { content: content.into(), mode: MessageMode::Queue, attachments: vec![] };
            assert_eq!(action.summary_line(), line);
        };
        check("one\ntwo", "one");
        check("\n \n two", "two");
        check(&"ä".repeat(SUMMARY_CHARS), &"ä".repeat(SUMMARY_CHARS));
        check(&"ä".repeat(1 << 20), &format!("{}…", "ä".repeat(SUMMARY_CHARS)));
        let path = "x".repeat(1 << 20);
        assert_eq!(Action::Read { path: path.clone() }.summary_line().len(), "Reading file: …".len() + SUMMARY_CHARS);
        assert_eq!(Action::Browse { url: path }.summary_line().len(), "Browsing: …".len() + SUMMARY_CHARS);
    }
}
