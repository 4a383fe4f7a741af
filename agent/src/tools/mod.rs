//! Tools of a model or the user in the sandbox. A tool is one file and one line of [`TOOLS`].
//!
//! A tool takes the arguments of the [`Action`] of the same name, so journal and model use the same
//! terms. A tool without an action of its own makes the generic [`Action::Tool`], which names it.

use std::{any::Any, panic::AssertUnwindSafe, path::PathBuf, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use greenroom_protocol::{Action, Observation, ObservationKind, excerpt, link::AgentSettings, tool::ToolStatus};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    browser::PageBrowser,
    clock,
    outgoing::OutgoingQueue,
    processes::{ChildProcesses, ProcessOwner},
};

mod browse;
mod coercion;
mod edit;
mod fetch;
mod files;
mod finish;
mod plan;
mod preview;
mod read;
mod run;
mod schema;
mod search;
mod think;
mod tool_output;
mod write;

pub(crate) use edit::numbered_lines;
pub(crate) use files::read_text;
pub(crate) use preview::preview;
pub(crate) use run::{exit_text, incomplete_char_len};

/// Size limit of a result for the model, in bytes.
const MODEL_TEXT_LIMIT: usize = 30 * 1024;

/// Size limit of a command or a title within a sentence, in bytes.
const LABEL_LIMIT: usize = 500;

/// Registry of the tools, in the order in which a model sees them.
pub static TOOLS: &[AgentTool] = &[
    run::TOOL,
    read::TOOL,
    write::TOOL,
    edit::TOOL,
    search::TOOL,
    browse::TOOL,
    think::TOOL,
    plan::TOOL,
    finish::TOOL,
];

/// Tool, as the agent and a model see it.
pub struct AgentTool {
    pub name: &'static str,
    /// Purpose and use, in words for the model.
    pub about: &'static str,
    /// Returns the JSON schema of the arguments.
    pub arguments: fn() -> Value,
    /// Makes the action of a model's call.
    parse: fn(&'static str, Value) -> serde_json::Result<Action>,
    /// Executes the action of a model's call or of the user.
    run: for<'a> fn(&'a Action, &'a ToolContext<'a>) -> ToolRun<'a>,
    /// Set if `run` ends by itself soon after a stop, and at its time limit.
    stops_itself: bool,
}

/// Execution of a tool.
type ToolRun<'a> = BoxFuture<'a, Result<ToolResult, ToolError>>;

/// Everything that a tool may use.
pub struct ToolContext<'a> {
    /// Item that the tool's output grows.
    pub item: &'a str,
    /// Owner of the processes that the tool starts.
    pub owner: ProcessOwner,
    /// Working directory; relative paths start here.
    pub directory: PathBuf,
    /// Path of the plan, below `directory`.
    pub plan_path: String,
    /// Time limit of the tool, in which a pause of the sandbox does not count.
    pub timeout: Duration,
    pub outgoing: &'a OutgoingQueue,
    pub processes: &'a ChildProcesses,
    pub browser: &'a PageBrowser,
    /// Cancelled by an interrupt.
    pub stop: &'a CancellationToken,
}

/// Parts of the agent that tools share.
#[derive(Clone, Copy)]
pub struct ToolResources<'a> {
    pub outgoing: &'a OutgoingQueue,
    pub processes: &'a ChildProcesses,
    pub browser: &'a PageBrowser,
}

impl<'a> ToolContext<'a> {
    /// Makes the context from the current settings.
    pub fn new(
        item: &'a str,
        owner: ProcessOwner,
        settings: &AgentSettings,
        resources: ToolResources<'a>,
        stop: &'a CancellationToken,
    ) -> ToolContext<'a> {
        let directory = PathBuf::from(&settings.directory);
        let timeout = Duration::from_secs(settings.run_timeout_s);
        let plan_path = settings.plan_path().to_owned();
        let ToolResources { outgoing, processes, browser } = resources;
        ToolContext { item, owner, directory, plan_path, timeout, outgoing, processes, browser, stop }
    }
}

/// Result of a tool.
#[derive(Debug)]
pub struct ToolResult {
    pub observation: Observation,
    /// Result as text for the model.
    pub model_text: String,
}

/// Reason why a tool did not complete.
#[derive(Debug)]
pub enum ToolError {
    /// Error text for the model and the user: the problem, and the way out.
    Failed(String),
    /// Stopped by an interrupt. `partial_result` holds the result until then, and the model
    /// receives it too. The journal has it, and a model without it would do the same again.
    Stopped { what: String, partial_result: Option<Box<ToolResult>> },
}

impl ToolError {
    fn from_error(error: impl ToString) -> ToolError {
        ToolError::Failed(error.to_string())
    }
}

/// Parses a tool call of a model, leniently where the meaning is unambiguous. The error text is for
/// the model.
pub fn parse(name: &str, mut arguments: Value) -> Result<Action, String> {
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
        let known: Vec<String> = TOOLS.iter().map(|tool| format!("`{}`", tool.name)).collect();
        return Err(format!("there is no tool `{name}`; the tools are {}", known.join(", ")));
    };
    coercion::coerce(&mut arguments, &(tool.arguments)());
    (tool.parse)(tool.name, arguments).map_err(|error| {
        format!("the arguments of `{name}` do not fit: {error}; it takes {}", schema::fields(&(tool.arguments)()))
    })
}

/// Makes the action with the name of its tool.
fn own_action(name: &'static str, arguments: Value) -> serde_json::Result<Action> {
    serde_json::from_value(json!({ "action": name, "args": arguments }))
}

/// Returns the name of the tool that executes `action`.
fn tool_name(action: &Action) -> &str {
    if let Action::Tool { name: Some(name), .. } = action { name } else { action.name() }
}

/// Rejects an action that its tool does not execute.
fn not_a_tool(action: &Action) -> ToolRun<'_> {
    let error = ToolError::Failed(format!("`{}` is not a tool", tool_name(action)));
    std::future::ready(Err(error)).boxed()
}

/// Executes `action`. A panic in a tool fails that tool, not the agent.
pub async fn perform(action: &Action, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let work = AssertUnwindSafe(dispatch(action, context)).catch_unwind();
    work.await.unwrap_or_else(|panic| {
        Err(ToolError::Failed(format!("the tool `{}` panicked: {}", tool_name(action), panic_text(&*panic))))
    })
}

async fn dispatch(action: &Action, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == tool_name(action)) else {
        return not_a_tool(action).await;
    };
    // A tool that is abandoned at its timeout must not take effect later.
    let stop = context.stop.child_token();
    let (directory, plan_path) = (context.directory.clone(), context.plan_path.clone());
    let context = &ToolContext { stop: &stop, directory, plan_path, ..*context };
    let work = (tool.run)(action, context);
    if tool.stops_itself {
        return work.await;
    }
    // If a file system does not answer, the call is abandoned. A write that is abandoned is not put
    // in place later, unless its rename runs at that very moment (`files::FileReplacement`). The
    // outcome is unknown, so no result claims that nothing was done. The call stays without a
    // result, and the model reads that it was interrupted before it had one.
    tokio::select! {
        biased;
        () = context.stop.cancelled() => Err(ToolError::Stopped { what: format!("`{}`", tool.name), partial_result: None }),
        result = work => result,
        () = clock::sleep(context.timeout) => {
            stop.cancel();
            let (name, limit) = (tool.name, context.timeout.as_secs());
            Err(ToolError::Failed(format!("`{name}` did not end within {limit} s; check whether it had an effect")))
        }
    }
}

/// Returns the observation that ends a failed call. `detail` is the error text for the model.
pub fn failure(action: &Action, detail: &str) -> Observation {
    let Action::Tool { kind, title, name, .. } = action else { return error_observation(detail) };
    let kind = ObservationKind::Tool {
        kind: kind.clone(),
        title: title.clone(),
        name: name.clone(),
        status: ToolStatus::Failed,
        changes: Vec::new(),
        locations: Vec::new(),
        truncated: None,
    };
    Observation { kind, content: detail.to_owned() }
}

/// Returns the observation that ends a call without an action.
pub fn error_observation(detail: &str) -> Observation {
    let kind = ObservationKind::Error { code: "tool_failed".to_owned(), detail: detail.to_owned() };
    Observation { kind, content: String::new() }
}

/// Returns `text` within the model's limit.
fn for_model(text: &str) -> String {
    excerpt(text, MODEL_TEXT_LIMIT).map_or_else(|| text.to_owned(), |cut| cut.text)
}

/// Returns a line of a file with its number, for a model.
fn numbered_line(number: usize, line: &str) -> String {
    format!("{number:>6}\t{line}\n")
}

/// Returns `text` short enough for a sentence.
fn shorten_label(text: &str) -> String {
    match text.floor_char_boundary(LABEL_LIMIT) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
