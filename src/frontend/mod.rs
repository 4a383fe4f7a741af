//! Attached clients: one FrontendSocket actor for each, and their common parts.
//!
//! A socket never holds a queue of unread events. A socket is a cursor over the journal. After
//! `Published` the socket pulls as much as its client has room for ([`credit`]). An [`EventPull`]
//! does the same for a client without a socket.
//!
//! See docs/internals/sockets.md.

mod chat;
mod chat_protocol;
mod classic_protocol;
mod connection;
mod credit;
mod event_pull;
mod frames;
mod reject;
mod socket;
mod terminal;
#[cfg(test)]
pub(crate) mod tests;

use std::{path::PathBuf, sync::Arc, time::Duration};

use actix::{Addr, Recipient};
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use async_trait::async_trait;
use greenroom_protocol::client::ClientRequest;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::{
    chat::ChatSocket,
    socket::{AttachRequest, FrontendSocket, ReplayStart, SocketView},
};
pub use self::{
    connection::connection_end,
    event_pull::{EventPull, PulledItem},
    reject::reject,
    terminal::{TerminalQuery, TerminalRequestError, open_terminal, request_terminals},
};
use crate::{
    actor_registry::{ActorKind, ActorRegistry},
    session::{
        RequestError, Session,
        messages::{Attach, AttachReply, Published},
    },
    store::{SessionId, Store},
};

/// WebSocket protocols that the server selects. A browser that offers protocols gives up if the
/// server selects none. The page's other offer, `secret.VALUE`, is never echoed.
const PROTOCOLS: &[&str] = &["greenroom"];

/// Limit for attaching to a session that waits for a disk. Clients can read the journal meanwhile.
pub const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);

/// Source of sessions for sockets: looks sessions up and creates them.
#[async_trait]
pub trait SessionProvider: Send + Sync + 'static {
    /// Returns the actor of a session, started if necessary.
    ///
    /// # Errors
    /// The session does not exist, or is not available now.
    async fn open(&self, id: SessionId) -> Result<Addr<Session>, RequestError>;

    /// Creates the session that `request` (`initialize` or `start`) asks for. Returns the earlier
    /// session if `key` created one before.
    ///
    /// # Errors
    /// The request is invalid, or the session cannot be created now.
    async fn create(
        &self,
        request: &ClientRequest,
        key: Option<String>,
    ) -> Result<(SessionId, Addr<Session>), RequestError>;
}

/// Parts of the server that all sockets share.
pub struct FrontendServices {
    pub sessions: Arc<dyn SessionProvider>,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    /// Parent of the run directories, with the sockets of terminals.
    pub runs: PathBuf,
    /// Cancelled when the server shuts down.
    pub closing: CancellationToken,
}

/// Returns the error for a client whose session waits for the disk.
pub fn disk_stalled_error() -> RequestError {
    RequestError::Unavailable("the session is waiting for the disk; try again".to_owned())
}

/// Subscribes to a session. Returns `None` if its actor is gone.
///
/// # Errors
/// The session waits for the disk longer than [`ATTACH_TIMEOUT`]. A session that resumes in the
/// middle of a turn may.
async fn subscribe(
    session: &Addr<Session>,
    subscriber: Recipient<Published>,
) -> Result<Option<AttachReply>, RequestError> {
    let attached = timeout(ATTACH_TIMEOUT, session.send(Attach { subscriber })).await;
    attached.map(Result::ok).map_err(|_| disk_stalled_error())
}

/// Returns the number of clients attached to a session, over any kind of connection.
///
/// A chat counts as the event stream through which it reads. Each terminal counts too.
pub fn attached_clients(actor_registry: &ActorRegistry, session: SessionId) -> usize {
    let id = session.to_string();
    [ActorKind::FrontendSocket, ActorKind::EventStream, ActorKind::TerminalSocket]
        .into_iter()
        .map(|kind| actor_registry.count(kind, Some(&id)))
        .sum()
}

/// Query of `GET /ws/sessions/{id}/chat`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
pub struct ChatQuery {
    /// Number of the event after which the chat continues. Absent or `tail`: new events only.
    pub after: Option<String>,
}

/// Opens a chat socket on one session for an authorized request.
///
/// Errors in the query are reported over the socket, which every client can read.
///
/// # Errors
/// The request is not a WebSocket handshake.
pub fn open_chat(
    request: &HttpRequest,
    body: Payload,
    (session, query): (&str, &ChatQuery),
    services: Arc<FrontendServices>,
) -> Result<HttpResponse, actix_web::Error> {
    let Ok(id) = session.parse::<SessionId>() else {
        return reject(request, body, 4404, &format!("no session `{session}`"));
    };
    let after = match query.after.as_deref() {
        None | Some("") => None,
        Some(after) => match ReplayStart::parse(after) {
            Ok(ReplayStart::Tail) => None,
            Ok(ReplayStart::After(seq)) => Some(seq),
            Err(reason) => return reject(request, body, 4400, &reason),
        },
    };
    ChatSocket::open(request, body, id, after, services)
}

/// Query of `GET /ws`: the session, the start of the replay, and the frames to send.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
pub struct AttachQuery {
    /// Session to attach to. Absent: the first `initialize` or `start` creates a session.
    pub session: Option<String>,
    /// Number of an event, or `tail` for new events only. Absent: from the start.
    pub after: Option<String>,
    /// `off`: no deltas. Absent or `on`: deltas too.
    pub deltas: Option<String>,
    /// `classic`: the classic view. Absent: all frames.
    pub view: Option<String>,
}

impl AttachQuery {
    /// # Errors
    /// Returns the reason if a value is wrong.
    fn replay_start(&self) -> Result<ReplayStart, String> {
        match self.after.as_deref() {
            None | Some("") => Ok(ReplayStart::After(0)),
            Some(after) => ReplayStart::parse(after),
        }
    }

    /// # Errors
    /// Returns the reason if a value is wrong.
    fn socket_view(&self) -> Result<SocketView, String> {
        let with_deltas = match self.deltas.as_deref() {
            None | Some("" | "on") => true,
            Some("off") => false,
            Some(other) => return Err(format!("`deltas` must be `on` or `off`, not `{other}`")),
        };
        match self.view.as_deref() {
            None | Some("") if with_deltas => Ok(SocketView::Full),
            None | Some("") => Ok(SocketView::WithoutDeltas),
            Some("classic") => Ok(SocketView::Classic(Default::default())),
            Some(other) => Err(format!("`view` must be `classic` or absent, not `{other}`")),
        }
    }
}

/// Opens a session socket for an authorized request.
///
/// Errors in the query are reported over the socket, which every client can read.
///
/// # Errors
/// The request is not a WebSocket handshake.
pub fn open(
    request: &HttpRequest,
    body: Payload,
    query: &AttachQuery,
    services: Arc<FrontendServices>,
) -> Result<HttpResponse, actix_web::Error> {
    let (replay_start, view) = match (query.replay_start(), query.socket_view()) {
        (Ok(replay_start), Ok(view)) => (replay_start, view),
        (Err(reason), _) | (_, Err(reason)) => return reject(request, body, 4400, &reason),
    };
    let session_id = match query.session.as_deref() {
        None | Some("") => None,
        Some(id) => match id.parse::<SessionId>() {
            Ok(id) => Some(id),
            Err(_) => return reject(request, body, 4404, &format!("no session `{id}`")),
        },
    };
    FrontendSocket::open(request, body, (AttachRequest { session_id, replay_start }, view), services)
}
