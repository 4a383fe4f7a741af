//! Upgrades to the session socket and the chat socket. The middleware has authorized the request
//! before.

use actix_web::{
    HttpRequest,
    http::Uri,
    web::{Data, Payload},
};

use crate::{
    frontend::{self, AttachQuery},
    store::SessionId,
    web::{
        error::{ApiResult, bad_handshake, check_handshake},
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
pub(in crate::web) async fn chat(req: HttpRequest, body: Payload, services: Data<WebServices>) -> ApiResult {
    check_handshake(&req)?;
    frontend::open_chat(&req, body, req.match_info().query("id"), services.sockets.clone()).map_err(bad_handshake)
}

/// Returns the session that the address of a socket names, if any.
pub(in crate::web) fn session_in_address(uri: &Uri) -> Option<SessionId> {
    let chat_session = uri.path().strip_prefix("/ws/sessions/").and_then(|rest| rest.split('/').next());
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
        assert_eq!(session_in("/ws"), None);
        assert_eq!(session_in("/ws?session="), None);
        assert_eq!(session_in("/ws?session=nonsense"), None, "any thread rejects an invalid id");
    }
}
