//! Built-in driver under test. Its model is the scripted gateway of the integration tests.

use std::path::Path;

use super::{DriverUnderTest, ScriptedTurn, contract};
use crate::{
    agent_paths::AgentPaths,
    turn::{TurnDriver, builtin::BuiltinDriver},
};

#[path = "../../../tests/it/gateway.rs"]
#[expect(dead_code, reason = "the integration tests use all of it")]
mod gateway;

use gateway::{ScriptedAnswer, ScriptedGateway, text};

fn make(dir: &Path, turns: &[ScriptedTurn]) -> DriverUnderTest {
    let answer = |turn: &ScriptedTurn| match turn {
        ScriptedTurn::Says(said) => ScriptedAnswer::Complete(vec![text(said)]),
        ScriptedTurn::WorksOn(said) => ScriptedAnswer::Hangs(vec![text(said)]),
        ScriptedTurn::Asks(_) | ScriptedTurn::Panics => panic!("a model does not do this"),
    };
    let socket = dir.join("gateway.sock");
    let gateway = ScriptedGateway::start(&socket, turns.iter().map(answer).collect());
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

contract!(make);
