//! Built-in driver under test. Its model is the scripted gateway of the integration tests.

use std::path::Path;

use serde_json::json;

use super::{DriverUnderTest, ScriptedTurn, contract};
use crate::{
    agent_paths::AgentPaths,
    turn::{TurnDriver, builtin::BuiltinDriver},
};

#[path = "../../../tests/it/gateway.rs"]
#[expect(dead_code, reason = "the integration tests use all of it")]
mod gateway;

use gateway::{ScriptedAnswer, ScriptedGateway, call, text};

fn make(dir: &Path, turns: &[ScriptedTurn]) -> DriverUnderTest {
    let answers = |turn: &ScriptedTurn| match turn {
        ScriptedTurn::Says(said) => vec![ScriptedAnswer::Complete(vec![text(said)])],
        ScriptedTurn::WorksOn(said) => vec![ScriptedAnswer::Hangs(vec![text(said)])],
        ScriptedTurn::Makes(file) => {
            let call = call("c1", "run", json!({ "command": format!("touch {file}") }));
            vec![ScriptedAnswer::Complete(vec![call]), ScriptedAnswer::Complete(vec![text("made")])]
        }
        ScriptedTurn::Asks(_) | ScriptedTurn::Panics => panic!("a model does not do this"),
    };
    let socket = dir.join("gateway.sock");
    let gateway = ScriptedGateway::start(&socket, turns.iter().flat_map(answers).collect());
    let heard =
        move || -> String { gateway.requests().iter().map(|request| request["messages"].to_string()).collect() };
    let paths = AgentPaths {
        agent_socket: dir.join("agent.sock"),
        gateway_socket: socket,
        workspace: dir.to_owned(),
        executed_ids: dir.join("executed"),
    };
    let open = move || -> Box<dyn TurnDriver> { Box::new(BuiltinDriver::new(&paths)) };
    DriverUnderTest { open: Box::new(open), heard: Box::new(heard) }
}

contract!(make, and
    denied_call_never_runs, asked_call_runs_only_after_allow, interrupt_withdraws_review,
    interrupt_withdraws_question, reconnect_repeats_review
);
