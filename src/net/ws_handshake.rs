//! Check of a WebSocket handshake against RFC 6455, section 4.2.1.

use actix_http::{
    RequestHead,
    header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION},
    ws::{HandshakeError, verify_handshake},
};
use actix_web::http::Version;

/// Reason for a rejected handshake.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WsHandshakeError {
    #[error("it needs HTTP/1.1")]
    OldHttp,
    #[error("the only supported version is 13")]
    Version,
    #[error("`Sec-WebSocket-Key` must be 16 bytes in base64, once")]
    Key,
    #[error("{0}")]
    Other(HandshakeError),
}

/// Checks a request for a WebSocket.
///
/// # Errors
/// The request is not a valid handshake of the supported version.
pub fn check_ws_handshake(request: &RequestHead) -> Result<(), WsHandshakeError> {
    let has_one = |name| request.headers().get_all(name).count() == 1;
    match verify_handshake(request) {
        // Without the header a request is no handshake of any version.
        Err(error @ HandshakeError::NoVersionHeader) => Err(WsHandshakeError::Other(error)),
        Err(HandshakeError::UnsupportedVersion) => Err(WsHandshakeError::Version),
        Err(HandshakeError::BadWebsocketKey) => Err(WsHandshakeError::Key),
        Err(error) => Err(WsHandshakeError::Other(error)),
        Ok(()) if request.version != Version::HTTP_11 => Err(WsHandshakeError::OldHttp),
        Ok(()) if !has_one(SEC_WEBSOCKET_VERSION) => Err(WsHandshakeError::Version),
        Ok(()) if !has_one(SEC_WEBSOCKET_KEY) => Err(WsHandshakeError::Key),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn check(request: TestRequest, expected: Result<(), WsHandshakeError>) {
        let request = request.insert_header(("upgrade", "WebSocket")).insert_header(("connection", "upgrade"));
        assert_eq!(check_ws_handshake(request.to_request().head()), expected);
    }

    #[test]
    fn only_a_handshake_of_the_rfc_passes() {
        let versioned = |version: &'static str| TestRequest::get().insert_header(("sec-websocket-version", version));
        let keyed = |key: &'static str| versioned("13").insert_header(("sec-websocket-key", key));
        check(keyed(KEY), Ok(()));
        check(keyed(KEY).version(Version::HTTP_10), Err(WsHandshakeError::OldHttp));
        for key in ["", "c2hvcnQ=", "dGhlIHNhbXBsZSBub25jZTE=", "dGhlIHNhbXBsZSBub25jZQ", "!!hlIHNhbXBsZSBub25jZQ=="] {
            check(keyed(key), Err(WsHandshakeError::Key));
        }
        check(keyed(KEY).append_header(("sec-websocket-key", KEY)), Err(WsHandshakeError::Key));
        check(versioned("13"), Err(WsHandshakeError::Key));
        for version in ["8", "14", "013", "13, 8", ""] {
            check(versioned(version).insert_header(("sec-websocket-key", KEY)), Err(WsHandshakeError::Version));
        }
        let two = keyed(KEY).append_header(("sec-websocket-version", "13"));
        check(two, Err(WsHandshakeError::Version));
        let other = WsHandshakeError::Other;
        check(
            TestRequest::get().insert_header(("sec-websocket-key", KEY)),
            Err(other(HandshakeError::NoVersionHeader)),
        );
        check(keyed(KEY).method(actix_web::http::Method::POST), Err(other(HandshakeError::GetMethodRequired)));
    }
}
