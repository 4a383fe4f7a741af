//! Socket that is opened only to report the reason of its close.

use actix::prelude::*;
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, CloseCode, CloseReason, ProtocolError, WebsocketContext, WsResponseBuilder};

use super::PROTOCOLS;

/// Accepts a socket and closes it with `code`. A browser's script has no other way to read the
/// reason.
///
/// # Errors
/// The request is not a WebSocket handshake.
pub fn reject(request: &HttpRequest, body: Payload, code: u16, reason: &str) -> Result<HttpResponse, actix_web::Error> {
    let socket = RejectedSocket { code, reason: reason.to_owned() };
    WsResponseBuilder::new(socket, request, body).protocols(PROTOCOLS).start()
}

struct RejectedSocket {
    code: u16,
    reason: String,
}

impl Actor for RejectedSocket {
    type Context = WebsocketContext<RejectedSocket>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let description = Some(self.reason[..self.reason.floor_char_boundary(120)].to_owned());
        ctx.close(Some(CloseReason { code: CloseCode::Other(self.code), description }));
        ctx.stop();
    }
}

impl StreamHandler<Result<ws::Message, ProtocolError>> for RejectedSocket {
    fn handle(&mut self, _: Result<ws::Message, ProtocolError>, _: &mut Self::Context) {}
}
