//! What an answer may ask of the connection that it goes out over.

use std::{
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use actix_web::dev::Extensions;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::TcpStream;

/// The connection of a request. Where the connection has moved to another thread there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection(RawFd);

impl Connection {
    pub(super) fn learn(stream: &TcpStream, data: &mut Extensions) {
        data.insert(Connection(stream.as_raw_fd()));
    }

    /// Has it closed once what it was sent goes unacknowledged, or unread, for so long. By itself a kernel takes a quarter of
    /// an hour over the one, and is content for ever with the other.
    pub(super) fn give_up_after(self, patience: Duration) {
        // SAFETY: a request is answered only while its connection is open.
        let connection = unsafe { BorrowedFd::borrow_raw(self.0) };
        let milliseconds = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        if let Err(e) = set_tcp_user_timeout(connection, milliseconds) {
            tracing::debug!("a connection keeps the system's patience: {e}");
        }
    }
}
