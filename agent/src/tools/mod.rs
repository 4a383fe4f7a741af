//! Tools of a model or the user in the sandbox, one file per tool. A tool takes the arguments
//! of the [`Action`] of the same name, so journal and model use the same terms.

use std::{any::Any, panic::AssertUnwindSafe, path::PathBuf, time::Duration};

use futures::FutureExt;
use greenroom_protocol::{Action, Observation, ObservationKind, excerpt, link::AgentSettings};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    outgoing::OutgoingQueue,
    processes::{ChildProcesses, ProcessOwner},
};

mod browse;
mod edit;
mod files;
mod plan;
mod read;
mod run;
mod schema;
mod tool_output;
mod write;

pub use schema::{ToolSchema, all};

/// Size limit of a result for the model, in bytes.
const MODEL_TEXT_LIMIT: usize = 30 * 1024;

/// Size limit of a command or a title within a sentence, in bytes.
const LABEL_LIMIT: usize = 500;

/// Everything that a tool may use.
pub struct ToolContext<'a> {
    /// Item that the tool's output grows.
    pub item: &'a str,
    /// Owner of the processes that the tool starts.
    pub owner: ProcessOwner,
    /// Working directory; relative paths start here.
    pub directory: PathBuf,
    /// Time limit of the tool, in which a pause of the sandbox does not count.
    pub timeout: Duration,
    pub outgoing: &'a OutgoingQueue,
    pub processes: &'a ChildProcesses,
    /// Cancelled by an interrupt.
    pub stop: &'a CancellationToken,
}

impl<'a> ToolContext<'a> {
    /// Makes the context from the current settings.
    pub fn new(
        item: &'a str,
        owner: ProcessOwner,
        settings: &AgentSettings,
        outgoing: &'a OutgoingQueue,
        processes: &'a ChildProcesses,
        stop: &'a CancellationToken,
    ) -> ToolContext<'a> {
        let directory = PathBuf::from(&settings.directory);
        let timeout = Duration::from_secs(settings.run_timeout_s);
        ToolContext { item, owner, directory, timeout, outgoing, processes, stop }
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

/// Parses a tool call of a model. The error text is for the model.
pub fn parse(name: &str, mut arguments: Value) -> Result<Action, String> {
    if !all().iter().any(|tool| tool.name == name) {
        let known: Vec<String> = all().iter().map(|tool| format!("`{}`", tool.name)).collect();
        return Err(format!("there is no tool `{name}`; the tools are {}", known.join(", ")));
    }
    if let Value::String(broken) = &arguments {
        return Err(format!("the arguments of `{name}` are not complete JSON ({} bytes received)", broken.len()));
    }
    if let Some(Value::String(text)) = arguments.get("lines") {
        arguments["lines"] = text.lines().collect();
    }
    serde_json::from_value(json!({ "action": name, "args": arguments }))
        .map_err(|error| format!("the arguments of `{name}` do not fit: {error}; it takes {}", schema::fields(name)))
}

/// Executes `action`. A panic in a tool fails that tool, not the agent.
pub async fn perform(action: &Action, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let work = AssertUnwindSafe(dispatch(action, context)).catch_unwind();
    work.await.unwrap_or_else(|panic| {
        Err(ToolError::Failed(format!("the tool `{}` panicked: {}", action.name(), panic_text(&*panic))))
    })
}

async fn dispatch(action: &Action, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    // A tool that is abandoned at its timeout must not take effect later.
    let stop = context.stop.child_token();
    let context = &ToolContext { stop: &stop, directory: context.directory.clone(), ..*context };
    let work = async {
        match action {
            Action::Run { command } => run::run(command, context).await,
            Action::Read { path } => read::read(path, context).await,
            Action::Write { path, content } => write::write(path, content, context).await,
            Action::Edit { path, edit } => edit::edit(path, edit, context).await,
            Action::Browse { url } => browse::browse(url, context).await,
            Action::Plan { content } => plan::plan(content, context).await,
            Action::Think { content } => Ok(think(content)),
            Action::Start { .. }
            | Action::Message { .. }
            | Action::Tool { .. }
            | Action::Finish { .. }
            | Action::Confirm { .. }
            | Action::SetModel { .. }
            | Action::Interrupt {}
            | Action::Pause {}
            | Action::Resume {}
            | Action::Stop {}
            | Action::End {} => Err(ToolError::Failed(format!("`{}` is not a tool", action.name()))),
        }
    };
    // A command has processes to kill and output to keep, so it handles the stop and the timeout
    // itself.
    if let Action::Run { .. } = action {
        return work.await;
    }
    // If a file system does not answer, the call is abandoned. A write that is abandoned is not put
    // in place later, unless its rename runs at that very moment (`files::FileReplacement`). The
    // outcome is unknown, so no result claims that nothing was done. The call stays without a
    // result, and the model reads that it was interrupted before it had one.
    tokio::select! {
        biased;
        () = context.stop.cancelled() => Err(ToolError::Stopped { what: format!("`{}`", action.name()), partial_result: None }),
        result = work => result,
        () = clock::sleep(context.timeout) => {
            stop.cancel();
            let (name, limit) = (action.name(), context.timeout.as_secs());
            Err(ToolError::Failed(format!("`{name}` did not end within {limit} s; check whether it had an effect")))
        }
    }
}

fn think(content: &str) -> ToolResult {
    let observation = Observation { kind: ObservationKind::Think { partial: false }, content: content.to_owned() };
    ToolResult { observation, model_text: "Noted.".to_owned() }
}

/// Returns `text` within the model's limit.
fn for_model(text: &str) -> String {
    excerpt(text, MODEL_TEXT_LIMIT).map_or_else(|| text.to_owned(), |cut| cut.text)
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
