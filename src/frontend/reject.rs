//! A socket that is opened only to say why it is closed.

use actix::prelude::*;
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, CloseCode, CloseReason, ProtocolError, WebsocketContext};

/// Accepts a socket only to close it with `code`: the one way to tell a browser's script why.
pub fn reject(request: &HttpRequest, body: Payload, code: u16, why: &str) -> Result<HttpResponse, actix_web::Error> {
    ws::start(RejectedSocket { code, why: why.to_owned() }, request, body)
}

struct RejectedSocket {
    code: u16,
    why: String,
}

impl Actor for RejectedSocket {
    type Context = WebsocketContext<RejectedSocket>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let description = Some(self.why[..self.why.floor_char_boundary(120)].to_owned());
        ctx.close(Some(CloseReason { code: CloseCode::Other(self.code), description }));
        ctx.stop();
    }
}

impl StreamHandler<Result<ws::Message, ProtocolError>> for RejectedSocket {
    fn handle(&mut self, _: Result<ws::Message, ProtocolError>, _: &mut Self::Context) {}
}
