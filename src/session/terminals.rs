//! Messages of terminals to their session.

use actix::prelude::*;

use super::{actor::Session, messages::RequestResult, turn::SessionInput};

/// Starts a stopped or failed sandbox, so that a terminal can be opened. Has no effect on any other
/// sandbox.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct StartForTerminal;

/// Names of the open terminals, read from the agent.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct TerminalsListed {
    pub names: Vec<String>,
}

impl Handler<StartForTerminal> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, _: StartForTerminal, ctx: &mut Context<Session>) -> Self::Result {
        self.handle_request(SessionInput::StartForTerminal, None, ctx)
    }
}

impl Handler<TerminalsListed> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, TerminalsListed { names }: TerminalsListed, ctx: &mut Context<Session>) -> Self::Result {
        self.handle_request(SessionInput::TerminalsListed { names }, None, ctx)
    }
}
