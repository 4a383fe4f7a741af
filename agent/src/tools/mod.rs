//! What a model, or the user, can do in the sandbox. One file for each tool; its arguments are those of the
//! [`Action`] of the same name, so that the journal and the model speak of the same thing.

use std::{any::Any, panic::AssertUnwindSafe, path::PathBuf, time::Duration};

use futures::FutureExt;
use greenroom_protocol::{Action, Observation, Seen, excerpt, link::Settings};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    outgoing::Outgoing,
    processes::{By, Processes},
};

mod browse;
mod edit;
mod files;
mod plan;
mod read;
mod run;
mod schema;
mod whole;
mod write;

pub use schema::{Schema, all};

/// How much of a result the model sees, in bytes.
const TOLD_LIMIT: usize = 30 * 1024;

/// How much of a command or a title stands in a sentence, in bytes.
const WORDS_LIMIT: usize = 500;

/// What a tool works with.
pub struct Bench<'a> {
    /// The item that its output grows.
    pub item: &'a str,
    pub by: By,
    pub directory: PathBuf,
    pub timeout: Duration,
    pub outgoing: &'a Outgoing,
    pub processes: &'a Processes,
    pub stop: &'a CancellationToken,
}

impl<'a> Bench<'a> {
    pub fn new(
        item: &'a str,
        by: By,
        settings: &Settings,
        outgoing: &'a Outgoing,
        processes: &'a Processes,
        stop: &'a CancellationToken,
    ) -> Bench<'a> {
        let directory = PathBuf::from(&settings.directory);
        let timeout = Duration::from_secs(settings.run_timeout_s);
        Bench { item, by, directory, timeout, outgoing, processes, stop }
    }
}

/// What a tool did.
#[derive(Debug)]
pub struct Done {
    pub observation: Observation,
    /// What the model is told.
    pub told: String,
}

/// Why a tool did not do it.
#[derive(Debug)]
pub enum Fault {
    /// In words, for the model and the person: what is wrong and what there is instead.
    Failed(String),
    /// By an interrupt. `done` holds what there was until then, for the model to know as well: the journal has it, and a
    /// model that did not would do the same again.
    Stopped { what: String, done: Option<Box<Done>> },
}

impl Fault {
    fn because(error: impl ToString) -> Fault {
        Fault::Failed(error.to_string())
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
pub async fn perform(action: &Action, bench: &Bench<'_>) -> Result<Done, Fault> {
    let work = AssertUnwindSafe(dispatch(action, bench)).catch_unwind();
    work.await.unwrap_or_else(|panic| {
        Err(Fault::Failed(format!("the tool `{}` has a fault: {}", action.name(), panic_text(&*panic))))
    })
}

async fn dispatch(action: &Action, bench: &Bench<'_>) -> Result<Done, Fault> {
    // Also what nobody waits for any more is not to be done later.
    let stop = bench.stop.child_token();
    let bench = &Bench { stop: &stop, directory: bench.directory.clone(), ..*bench };
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
            | Action::End {} => Err(Fault::Failed(format!("`{}` is nothing that a tool does", action.name()))),
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
        () = bench.stop.cancelled() => Err(Fault::Stopped { what: format!("`{}`", action.name()), done: None }),
        result = work => result,
        () = clock::sleep(bench.timeout) => {
            stop.cancel();
            let (name, limit) = (action.name(), bench.timeout.as_secs());
            Err(Fault::Failed(format!("`{name}` did not come to an end within {limit} s; look whether it has done anything")))
        }
    }
}

fn think(content: &str) -> Done {
    let observation = Observation { seen: Seen::Think { partial: false }, content: content.to_owned() };
    Done { observation, told: "Noted.".to_owned() }
}

/// `text` as the model is told it.
fn for_model(text: &str) -> String {
    excerpt(text, TOLD_LIMIT).map_or_else(|| text.to_owned(), |cut| cut.text)
}

/// `text` as it stands in a sentence.
fn in_words(text: &str) -> String {
    match text.floor_char_boundary(WORDS_LIMIT) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say")
}
