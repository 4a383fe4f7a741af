//! Upgrades to the session socket, the chat socket and the terminal socket. The middleware has
//! authorized the request before.

use actix_web::{
    HttpRequest,
    http::{Uri, header},
    web::{Data, Payload},
};

use crate::{
    frontend::{self, AttachQuery, ChatQuery, TerminalQuery},
    store::SessionId,
    web::{
        error::{ApiError, ApiResult, bad_handshake, check_handshake},
        request::QueryParams,
        state::WebServices,
    },
};

/// Opens the session socket, `GET /ws`.
pub(in crate::web) async fn session(
    req: HttpRequest,
    body: Payload,
    query: QueryParams<AttachQuery>,
    services: Data<WebServices>,
) -> ApiResult {
    check_handshake(&req)?;
    frontend::open(&req, body, &query.0, services.sockets.clone()).map_err(bad_handshake)
}

/// Opens the chat socket, `GET /ws/sessions/{id}/chat`.
///
/// A client without `Origin` is no page, and reads the status of a failed handshake. A client that
/// reconnects for ever gives up at a 404, but not at a close code.
pub(in crate::web) async fn chat(
    req: HttpRequest,
    body: Payload,
    query: QueryParams<ChatQuery>,
    services: Data<WebServices>,
) -> ApiResult {
    check_handshake(&req)?;
    let session = req.match_info().query("id");
    check_session(&req, session, &services).await?;
    frontend::open_chat(&req, body, (session, &query.0), services.sockets.clone()).map_err(bad_handshake)
}

/// Opens a terminal socket, `GET /ws/sessions/{id}/terminal`.
///
/// A client without `Origin` gets the status of a failed handshake, as at the chat socket.
pub(in crate::web) async fn terminal(
    req: HttpRequest,
    body: Payload,
    query: QueryParams<TerminalQuery>,
    services: Data<WebServices>,
) -> ApiResult {
    check_handshake(&req)?;
    let session = req.match_info().query("id");
    check_session(&req, session, &services).await?;
    frontend::open_terminal(&req, body, (session, &query.0), services.sockets.clone()).map_err(bad_handshake)
}

/// Checks the session before the handshake, for a client that is no page.
async fn check_session(req: &HttpRequest, session: &str, services: &WebServices) -> Result<(), ApiError> {
    if !req.headers().contains_key(header::ORIGIN) {
        let id = session.parse().map_err(|_| ApiError::not_found(format!("`{session}` is not a session id")))?;
        services.snapshot(id).await?;
    }
    Ok(())
}

/// Returns the session that the address of a socket names, if any. A base path may precede it.
pub(in crate::web) fn session_in_address(uri: &Uri) -> Option<SessionId> {
    let chat_session = uri.path().split_once("/ws/sessions/").and_then(|(_, rest)| rest.split('/').next());
    let query_session = || uri.query()?.split('&').find_map(|pair| pair.strip_prefix("session="));
    chat_session.or_else(query_session)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_names_the_session() {
        let id = SessionId::generate();
        let session_in = |uri: &str| session_in_address(&uri.parse().expect("the URI is valid"));
        assert_eq!(session_in(&format!("/ws?after=3&session={id}")), Some(id));
        assert_eq!(session_in(&format!("/ws/sessions/{id}/chat?token=x")), Some(id));
        assert_eq!(session_in(&format!("/base/ws/sessions/{id}/chat")), Some(id));
        assert_eq!(session_in(&format!("/base/ws?session={id}")), Some(id));
        assert_eq!(session_in("/ws"), None);
        assert_eq!(session_in("/ws?session="), None);
        assert_eq!(session_in("/ws?session=nonsense"), None, "any thread rejects an invalid id");
    }
}
