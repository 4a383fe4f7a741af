//! Registry of the turn drivers. Nothing else names the type of a driver.

use futures::{FutureExt, future::BoxFuture};
use greenroom_protocol::{
    Event,
    link::{AgentProgram, WorkOutcome},
};

use super::{TurnContext, TurnDriver, UserMessage, builtin::BuiltinDriver};
use crate::agent_paths::AgentPaths;

/// Makes a driver without a history.
pub(super) type OpenDriver = Box<dyn Fn() -> Box<dyn TurnDriver> + Send + Sync>;

/// Turn drivers that the settings may name. The first is the default.
pub struct TurnDrivers(pub(super) Vec<(&'static str, OpenDriver)>);

impl TurnDrivers {
    /// Lists every turn driver of this agent.
    pub fn new(paths: &AgentPaths) -> TurnDrivers {
        let paths = paths.clone();
        let open: OpenDriver = Box::new(move || Box::new(BuiltinDriver::new(&paths)));
        TurnDrivers(vec![("builtin", open)])
    }

    /// Makes the driver of `program`. If this agent does not have the driver, the result fails
    /// every turn with a text that lists the existing drivers.
    pub fn open(&self, program: Option<&AgentProgram>) -> Box<dyn TurnDriver> {
        let TurnDrivers(drivers) = self;
        let wanted = program.map(|program| program.driver.as_str());
        let entry = drivers.iter().find(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
        let Some((_, open)) = entry else {
            let names: Vec<String> = drivers.iter().map(|(name, _)| format!("`{name}`")).collect();
            let wanted = wanted.unwrap_or_default();
            let detail = format!("this agent has no turn driver `{wanted}`; it has {}", names.join(", "));
            return Box::new(MissingDriver { detail });
        };
        open()
    }
}

/// Stands in for a driver that this agent does not have.
struct MissingDriver {
    detail: String,
}

impl TurnDriver for MissingDriver {
    fn restore(&mut self, _: &[Event]) {}

    fn reset(&mut self) {}

    fn record_message(&mut self, _: UserMessage, _: &TurnContext) {}

    fn run_turn<'a>(&'a mut self, _: UserMessage, context: &'a TurnContext) -> BoxFuture<'a, WorkOutcome> {
        let outcome = if context.stop.is_cancelled() {
            WorkOutcome::Cancelled { what: "a turn that had not begun".to_owned(), partial: false }
        } else {
            WorkOutcome::Failed { code: "unknown_program".to_owned(), detail: self.detail.clone() }
        };
        std::future::ready(outcome).boxed()
    }
}
