//! Session of a terminal: its lookup, its state, and the start of its sandbox.

use std::time::Duration;

use actix::prelude::*;
use greenroom_protocol::observation::AgentState;

use super::{AttachStage, SandboxStart, TerminalContext, TerminalSocket};
use crate::{
    frontend::{subscribe, terminal::frames::TerminalFrameToClient},
    session::{
        RequestError, StartForTerminal,
        messages::{AttachReply, GetView},
        request_with_retry,
    },
};

/// Least time between two questions for the session's state.
const STATE_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of lookups while the session's actor is not available.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(500);

impl TerminalSocket {
    /// Looks the session up, and subscribes to it.
    pub(super) fn look_up(&mut self, ctx: &mut TerminalContext) {
        let (services, id, subscriber) = (self.services.clone(), self.id, ctx.address().recipient());
        let found = async move {
            let session = services.sessions.open(id).await?;
            let attached = subscribe(&session, subscriber).await?;
            let restarting = || RequestError::Unavailable("the session is restarting; try again".to_owned());
            Ok::<_, RequestError>((session, attached.ok_or_else(restarting)?))
        };
        ctx.spawn(found.into_actor(self).map(|found, socket, ctx| match found {
            Ok((session, AttachReply { view, subscription })) => {
                socket.session = Some((session, subscription));
                socket.state_changed(view.state, view.reason, ctx);
            }
            Err(error @ RequestError::NoSession(_)) => {
                socket.send_frame(&TerminalFrameToClient::error(error.code(), error.to_string()), ctx);
                socket.end(4404, &error.to_string(), ctx);
            }
            // The terminal goes on without the session's actor.
            Err(_) if matches!(socket.stage, AttachStage::Attached(_)) => {
                ctx.run_later(LOOKUP_INTERVAL, |socket, ctx| socket.look_up(ctx));
            }
            Err(error) => socket.fail(&error, ctx),
        }));
    }

    /// Asks for the session's state, unless a question is unanswered.
    pub(super) fn ask_for_state(&mut self, ctx: &mut TerminalContext) {
        self.is_state_stale = true;
        if self.is_asking {
            return;
        }
        let Some((session, _)) = &self.session else { return };
        let asked = session.send(GetView);
        (self.is_asking, self.is_state_stale) = (true, false);
        ctx.spawn(asked.into_actor(self).map(|view, socket, ctx| {
            match view {
                Ok(view) => socket.state_changed(view.state, view.reason, ctx),
                Err(_) => {
                    socket.session = None;
                    socket.look_up(ctx);
                }
            }
            ctx.run_later(STATE_INTERVAL, |socket, ctx| {
                socket.is_asking = false;
                if socket.is_state_stale {
                    socket.ask_for_state(ctx);
                }
            });
        }));
    }

    fn state_changed(&mut self, state: AgentState, reason: Option<String>, ctx: &mut TerminalContext) {
        self.state = Some(state);
        if let (AttachStage::Dialling, AgentState::Stopped | AgentState::Failed) = (&self.stage, state) {
            // The sandbox was stopped meanwhile, and only the user starts it again.
            return self.lost(ctx);
        }
        if let (AttachStage::Dialling, AgentState::Starting) = (&self.stage, state) {
            // The sandbox that was dialled is gone.
            self.stage = AttachStage::WaitingForSandbox(SandboxStart::default());
        }
        match state {
            AgentState::Ended => self.lost(ctx),
            AgentState::Paused => {
                if !std::mem::replace(&mut self.is_pause_told, true) {
                    self.send_frame(&TerminalFrameToClient::Paused {}, ctx);
                }
            }
            AgentState::Starting => self.tell_start(ctx),
            AgentState::Stopped | AgentState::Failed => self.start_sandbox(reason, ctx),
            AgentState::Idle | AgentState::Running | AgentState::AwaitingConfirmation | AgentState::Interrupting => {
                if std::mem::take(&mut self.is_pause_told) {
                    self.send_frame(&TerminalFrameToClient::Resumed {}, ctx);
                }
                if let AttachStage::WaitingForSandbox(_) = self.stage {
                    self.dial(ctx);
                }
            }
        }
    }

    fn tell_start(&mut self, ctx: &mut TerminalContext) {
        if let AttachStage::WaitingForSandbox(start) = &mut self.stage
            && !std::mem::replace(&mut start.is_told, true)
        {
            self.send_frame(&TerminalFrameToClient::Starting {}, ctx);
        }
    }

    /// Requests a start of the stopped sandbox, once. The end of an attached terminal follows from
    /// its connection.
    fn start_sandbox(&mut self, reason: Option<String>, ctx: &mut TerminalContext) {
        let AttachStage::WaitingForSandbox(start) = &mut self.stage else { return };
        if start.is_accepted || (start.is_told && !start.is_requested) {
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            let frame = TerminalFrameToClient::error("unavailable", format!("the sandbox did not start{reason}"));
            self.send_frame(&frame, ctx);
            // The end of the terminal: a client that tried again would start the sandbox for ever.
            return self.lost(ctx);
        }
        if std::mem::replace(&mut start.is_requested, true) {
            return;
        }
        self.tell_start(ctx);
        let (services, id) = (self.services.clone(), self.id);
        let started =
            async move { request_with_retry(async || services.sessions.open(id).await, StartForTerminal).await? };
        ctx.spawn(started.into_actor(self).map(|started: Result<_, RequestError>, socket, ctx| match started {
            Ok(_) => {
                if let AttachStage::WaitingForSandbox(start) = &mut socket.stage {
                    start.is_accepted = true;
                }
                socket.ask_for_state(ctx);
            }
            Err(error) => socket.fail(&error, ctx),
        }));
    }
}
