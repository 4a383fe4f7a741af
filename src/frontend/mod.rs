//! Attached clients: one FrontendSocket actor for each, and what they all share.
//!
//! A socket never holds a queue of what its client has not read. It is a cursor over the journal: told that there is more,
//! it pulls as much as its client has room for ([`credit`]). A [`Pull`] does the same for a client without a socket.

mod chat;
mod chat_protocol;
mod connection;
mod credit;
mod event_pull;
mod frames;
mod reject;
mod socket;
#[cfg(test)]
pub(crate) mod tests;

use std::{sync::Arc, time::Duration};

use actix::{Addr, Recipient};
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use async_trait::async_trait;
use greenroom_protocol::client::ClientRequest;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::{
    chat::ChatSocket,
    socket::{FrontendSocket, ReplayStart},
};
pub use self::{
    connection::connection_end,
    event_pull::{EventPull, PulledItem},
    reject::reject,
};
use crate::{
    actor_registry::{ActorKind, ActorRegistry},
    session::{
        RequestError, Session,
        messages::{Attach, AttachReply, Published},
    },
    store::{Seq, SessionId, Store},
};

/// How long a client waits for a session that waits for a disk. What is in the journal may be read meanwhile.
pub const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a socket finds the session that its client names, or has one made.
#[async_trait]
pub trait SessionProvider: Send + Sync + 'static {
    async fn open(&self, id: SessionId) -> Result<Addr<Session>, RequestError>;

    /// Makes the session that `wish` (`initialize` or `start`) asks for, or finds the one that the same key made before.
    async fn create(
        &self,
        wish: &ClientRequest,
        key: Option<String>,
    ) -> Result<(SessionId, Addr<Session>), RequestError>;
}

/// What every socket of this process shares.
pub struct FrontendServices {
    pub sessions: Arc<dyn SessionProvider>,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    /// Cancelled when the server goes away.
    pub closing: CancellationToken,
}

/// Why a client stops waiting for a session.
pub fn disk_stalled_error() -> RequestError {
    RequestError::Unavailable("the session waits for the disk; try again".to_owned())
}

/// Listens to a session. `None` where its actor is gone; one that waits for the disk itself, as it does where it goes on in the
/// middle of a turn, is not waited for.
async fn subscribe(
    session: &Addr<Session>,
    listener: Recipient<Published>,
) -> Result<Option<AttachReply>, RequestError> {
    let attached = timeout(ATTACH_TIMEOUT, session.send(Attach { subscriber: listener })).await;
    attached.map(Result::ok).map_err(|_| disk_stalled_error())
}

/// How many clients are attached to a session right now, over whatever they listen: as many as it counts as its listeners. (A
/// chat listens to a stream of its own.)
pub fn attached_clients(census: &ActorRegistry, session: SessionId) -> usize {
    let id = session.to_string();
    [ActorKind::FrontendSocket, ActorKind::EventStream].into_iter().map(|kind| census.count(kind, Some(&id))).sum()
}

/// Turns an allowed request into a chat about one session.
pub fn open_chat(
    request: &HttpRequest,
    body: Payload,
    session: &str,
    parts: Arc<FrontendServices>,
) -> Result<HttpResponse, actix_web::Error> {
    match session.parse::<SessionId>() {
        Ok(id) => ChatSocket::open(request, body, id, parts),
        Err(_) => reject(request, body, 4404, &format!("no session `{session}`")),
    }
}

/// How a client wants to attach: the query of `GET /ws`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
pub struct AttachQuery {
    /// Without one, the first `initialize` or `start` makes it.
    pub session: Option<String>,
    /// A number, or `tail` for live only. Absent: from the start.
    pub after: Option<String>,
}

/// Turns an allowed request into a socket. What the query names wrongly is told over the socket, where every client can
/// read it.
pub fn open(
    request: &HttpRequest,
    body: Payload,
    query: &AttachQuery,
    parts: Arc<FrontendServices>,
) -> Result<HttpResponse, actix_web::Error> {
    let since = match query.after.as_deref() {
        None | Some("") => ReplayStart::Start,
        Some("tail") => ReplayStart::Tail,
        Some(number) => match number.parse::<Seq>() {
            Ok(seq) => ReplayStart::After(seq),
            Err(_) => return reject(request, body, 4400, &format!("`after` is a number or `tail`, not `{number}`")),
        },
    };
    let session = match query.session.as_deref() {
        None | Some("") => None,
        Some(id) => match id.parse::<SessionId>() {
            Ok(id) => Some(id),
            Err(_) => return reject(request, body, 4404, &format!("no session `{id}`")),
        },
    };
    FrontendSocket::open(request, body, session, since, parts)
}
