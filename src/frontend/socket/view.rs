//! View of a session socket: the frames that its client receives, and their form.

use std::future::Future;

use bytes::Bytes;
use bytestring::ByteString;
use greenroom_protocol::{
    client::{BadFrame, ClientFrame, ErrorFrame, StatusFrame},
    observation::AgentState,
};

use super::{FrontendSocket, PAGE, SocketContext};
use crate::{
    frontend::classic_protocol::{self, ClassicProjection},
    session::RequestError,
    store::{Seq, SessionId, Store, damage::read_past_damage},
};

/// View of one client, from the parameters `deltas` and `view` of its address.
pub(in crate::frontend) enum SocketView {
    /// Frames of every kind.
    Full,
    WithoutDeltas,
    Classic(Box<ClassicProjection>),
}

impl SocketView {
    pub(super) fn has_deltas(&self) -> bool {
        match self {
            SocketView::Full => true,
            SocketView::WithoutDeltas | SocketView::Classic(_) => false,
        }
    }

    /// Begins the replay of a session whose first turn began with event `first_turn`.
    pub(super) fn begin(&mut self, first_turn: Option<Seq>) {
        match self {
            SocketView::Full | SocketView::WithoutDeltas => {}
            SocketView::Classic(projection) => projection.begin(first_turn),
        }
    }

    pub(super) fn parse(&self, text: &str) -> Result<ClientFrame, BadFrame> {
        match self {
            SocketView::Full | SocketView::WithoutDeltas => ClientFrame::parse(text),
            SocketView::Classic(_) => classic_protocol::parse(text),
        }
    }
}

impl FrontendSocket {
    /// Reads what the view needs to begin the replay: the event that began the first turn, for the
    /// classic view.
    pub(super) fn prepare_view(&self, id: SessionId) -> impl Future<Output = Option<Seq>> + use<> {
        let store = match &self.view {
            SocketView::Classic(_) if self.attached.is_none() => Some(self.services.store.clone()),
            SocketView::Full | SocketView::WithoutDeltas | SocketView::Classic(_) => None,
        };
        async move { first_turn(&*store?, id).await }
    }

    pub(super) fn send_event(&mut self, json: Bytes, ctx: &mut SocketContext) {
        let frame = match &mut self.view {
            SocketView::Full | SocketView::WithoutDeltas => {
                // The store checked the checksum of this event, whose JSON was a `String` when it
                // was written.
                if let Ok(text) = ByteString::try_from(json) {
                    self.send_text(text, ctx);
                }
                return;
            }
            SocketView::Classic(projection) => projection.event(&json),
        };
        if let Some(frame) = frame {
            self.send_frame(&frame, ctx);
        }
    }

    pub(super) fn send_status(&mut self, frame: &StatusFrame, ctx: &mut SocketContext) {
        match &self.view {
            SocketView::Full | SocketView::WithoutDeltas => self.send_frame(frame, ctx),
            SocketView::Classic(_) => {}
        }
    }

    pub(super) fn send_request_error(&mut self, error: &RequestError, id: Option<String>, ctx: &mut SocketContext) {
        self.send_error(error.code(), error.to_string(), id, ctx);
    }

    pub(super) fn send_error(&mut self, code: &str, message: String, id: Option<String>, ctx: &mut SocketContext) {
        match &self.view {
            SocketView::Full | SocketView::WithoutDeltas => self.send_frame(&ErrorFrame::new(code, message, id), ctx),
            SocketView::Classic(_) => self.send_frame(&classic_protocol::error(message), ctx),
        }
    }

    /// Answers an `initialize` in the classic view.
    pub(super) fn send_initialized(&mut self, state: AgentState, ctx: &mut SocketContext) {
        let requested = self.attach_request.as_ref().and_then(|request| request.session_id);
        let id = self.attached.as_ref().map(|attached| attached.id).or(requested);
        if let (SocketView::Classic(projection), Some(id)) = (&self.view, id) {
            for frame in projection.initialized(&id.to_string(), state) {
                self.send_frame(&frame, ctx);
            }
        }
    }
}

/// Returns the event that began the first turn of a session. `None` if no turn has begun, or the
/// journal is not readable now.
async fn first_turn(store: &dyn Store, id: SessionId) -> Option<Seq> {
    let mut after = 0;
    loop {
        let page = read_past_damage(store, id, after, PAGE).await.ok()?;
        after = page.last()?.0;
        if let Some((seq, _)) = page.iter().find(|(_, event)| event.kind == classic_protocol::TURN_START) {
            return Some(*seq);
        }
        // Yields between two reads, also with a store that answers from memory.
        tokio::task::yield_now().await;
    }
}
