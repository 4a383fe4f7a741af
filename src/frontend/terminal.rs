//! TerminalSocket actor: a client of one terminal. Relays bytes between the client and the agent's
//! terminal socket. See docs/internals/terminal.md.
//!
//! The session's actor has no part in the bytes. The socket subscribes to it for the state of the
//! sandbox alone. The subscription also keeps the sweeper from pausing the session.

mod agent_stream;
mod frames;
mod requests;
mod socket;

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, web::Payload};
use greenroom_protocol::terminal::{TerminalRequest, check_terminal_name};

pub use self::requests::{TerminalRequestError, request_terminals};
use self::socket::TerminalSocket;
use super::{FrontendServices, reject};
use crate::store::SessionId;

/// Query of `GET /ws/sessions/{id}/terminal`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
pub struct TerminalQuery {
    /// Name of the terminal. Absent: `main`.
    pub name: Option<String>,
    /// Columns of the client's window. Absent: 80.
    pub cols: Option<String>,
    /// Rows of the client's window. Absent: 24.
    pub rows: Option<String>,
}

impl TerminalQuery {
    /// # Errors
    /// Returns the reason if a value is wrong.
    fn attach_request(&self) -> Result<TerminalRequest, String> {
        let name = match self.name.as_deref() {
            None | Some("") => "main",
            Some(name) => name,
        };
        check_terminal_name(name)?;
        let number = |what: &str, value: &Option<String>, default: u16| match value.as_deref() {
            None | Some("") => Ok(default),
            Some(text) => match text.parse() {
                Ok(number @ 1..) => Ok(number),
                Ok(0) | Err(_) => Err(format!("`{what}` must be a number from 1 to {}, not `{text}`", u16::MAX)),
            },
        };
        let (cols, rows) = (number("cols", &self.cols, 80)?, number("rows", &self.rows, 24)?);
        Ok(TerminalRequest::Attach { name: name.to_owned(), cols, rows })
    }
}

/// Opens a terminal socket on one session for an authorized request.
///
/// Errors in the query are reported over the socket, which every client can read.
///
/// # Errors
/// The request is not a WebSocket handshake.
pub fn open_terminal(
    request: &HttpRequest,
    body: Payload,
    (session, query): (&str, &TerminalQuery),
    services: Arc<FrontendServices>,
) -> Result<HttpResponse, actix_web::Error> {
    let Ok(id) = session.parse::<SessionId>() else {
        return reject(request, body, 4404, &format!("no session `{session}`"));
    };
    match query.attach_request() {
        Ok(attach) => TerminalSocket::open(request, body, (id, attach), services),
        Err(reason) => reject(request, body, 4400, &reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_has_defaults_and_limits() {
        let check = |[name, cols, rows]: [Option<&str>; 3], expected: Option<(&str, u16, u16)>| {
            let [name, cols, rows] = [name, cols, rows].map(|value| value.map(str::to_owned));
            let attach = TerminalQuery { name, cols, rows }.attach_request();
            let expected = expected.map(|(name, cols, rows)| TerminalRequest::Attach { name: name.into(), cols, rows });
            assert_eq!(attach.ok(), expected);
        };
        check([None; 3], Some(("main", 80, 24)));
        check([Some(""); 3], Some(("main", 80, 24)));
        check([Some("build"), Some("120"), Some("40")], Some(("build", 120, 40)));
        for wrong in ["0", "-1", "65536", "x"] {
            check([None, Some(wrong), None], None);
            check([None, None, Some(wrong)], None);
        }
        check([Some("a/b"), None, None], None);
    }
}
