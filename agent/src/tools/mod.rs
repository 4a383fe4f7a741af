//! What a model, or the user, can do in the sandbox. One file for each tool; its arguments are those of the
//! [`Action`] of the same name, so that the journal and the model speak of the same thing.

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

/// How much of a result the model sees, in bytes.
const MODEL_TEXT_LIMIT: usize = 30 * 1024;

/// How much of a command or a title stands in a sentence, in bytes.
const LABEL_LIMIT: usize = 500;

/// What a tool works with.
pub struct ToolContext<'a> {
    /// The item that its output grows.
    pub item: &'a str,
    pub owner: ProcessOwner,
    pub directory: PathBuf,
    pub timeout: Duration,
    pub outgoing: &'a OutgoingQueue,
    pub processes: &'a ChildProcesses,
    pub stop: &'a CancellationToken,
}

impl<'a> ToolContext<'a> {
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

/// What a tool did.
#[derive(Debug)]
pub struct ToolResult {
    pub observation: Observation,
    /// What the model is told.
    pub model_text: String,
}

/// Why a tool did not do it.
#[derive(Debug)]
pub enum ToolError {
    /// In words, for the model and the person: what is wrong and what there is instead.
    Failed(String),
    /// By an interrupt. `done` holds what there was until then, for the model to know as well: the journal has it, and a
    /// model that did not would do the same again.
    Stopped { what: String, partial_result: Option<Box<ToolResult>> },
}

impl ToolError {
    fn from_error(error: impl ToString) -> ToolError {
        ToolError::Failed(error.to_string())
    }
}

/// Reads a tool call of a model. The error is for the model.
pub fn parse(name: &str, mut arguments: Value) -> Result<Action, String> {
    if !all().iter().any(|tool| tool.name == name) {
        let known: Vec<String> = all().iter().map(|tool| format!("`{}`", tool.name)).collect();
        return Err(format!("there is no tool `{name}`; the tools are {}", known.join(", ")));
    }
    if let Value::String(broken) = &arguments {
        return Err(format!("the arguments of `{name}` are not complete JSON ({} bytes came)", broken.len()));
    }
    if let Some(Value::String(text)) = arguments.get("lines") {
        arguments["lines"] = text.lines().collect();
    }
    serde_json::from_value(json!({ "action": name, "args": arguments }))
        .map_err(|error| format!("the arguments of `{name}` do not fit: {error}; it takes {}", schema::fields(name)))
}

/// Does `action`. A tool that has a fault of its own is a failed tool, not a dead agent.
pub async fn perform(action: &Action, bench: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let work = AssertUnwindSafe(dispatch(action, bench)).catch_unwind();
    work.await.unwrap_or_else(|panic| {
        Err(ToolError::Failed(format!("the tool `{}` has a fault: {}", action.name(), panic_text(&*panic))))
    })
}

async fn dispatch(action: &Action, bench: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    // Also what nobody waits for any more is not to be done later.
    let stop = bench.stop.child_token();
    let bench = &ToolContext { stop: &stop, directory: bench.directory.clone(), ..*bench };
    let work = async {
        match action {
            Action::Run { command } => run::run(command, bench).await,
            Action::Read { path } => read::read(path, bench).await,
            Action::Write { path, content } => write::write(path, content, bench).await,
            Action::Edit { path, edit } => edit::edit(path, edit, bench).await,
            Action::Browse { url } => browse::browse(url, bench).await,
            Action::Plan { content } => plan::plan(content, bench).await,
            Action::Think { content } => Ok(think(content)),
            Action::Start { .. }
            | Action::Message { .. }
            | Action::Finish { .. }
            | Action::Confirm { .. }
            | Action::SetModel { .. }
            | Action::Interrupt {}
            | Action::Pause {}
            | Action::Resume {}
            | Action::Stop {}
            | Action::End {} => Err(ToolError::Failed(format!("`{}` is nothing that a tool does", action.name()))),
        }
    };
    // A command has processes to end and output to keep, so it listens for the stop itself, and looks at the clock.
    if let Action::Run { .. } = action {
        return work.await;
    }
    // A file system that does not answer is left alone with its call. What was to be written then lands no more, unless it was
    // being put in place at this very moment (`files::Replacement`). Nobody knows, so nobody is told that it was not done: the
    // call stays without a result, and the model hears that it was interrupted before it had one.
    tokio::select! {
        biased;
        () = bench.stop.cancelled() => Err(ToolError::Stopped { what: format!("`{}`", action.name()), partial_result: None }),
        result = work => result,
        () = clock::sleep(bench.timeout) => {
            stop.cancel();
            let (name, limit) = (action.name(), bench.timeout.as_secs());
            Err(ToolError::Failed(format!("`{name}` did not come to an end within {limit} s; look whether it has done anything")))
        }
    }
}

fn think(content: &str) -> ToolResult {
    let observation = Observation { kind: ObservationKind::Think { partial: false }, content: content.to_owned() };
    ToolResult { observation, model_text: "Noted.".to_owned() }
}

/// `text` as the model is told it.
fn for_model(text: &str) -> String {
    excerpt(text, MODEL_TEXT_LIMIT).map_or_else(|| text.to_owned(), |cut| cut.text)
}

/// `text` as it stands in a sentence.
fn shorten_label(text: &str) -> String {
    match text.floor_char_boundary(LABEL_LIMIT) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say")
}
