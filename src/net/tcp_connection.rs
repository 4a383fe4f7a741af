//! TCP connection beneath a request: its send timeout and its free send buffer.

use std::{
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use actix_web::dev::Extensions;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::set_tcp_user_timeout,
};
use tokio::net::TcpStream;

/// Longest time that sent data may stay unread. HTTP itself has no such limit. WebSockets have a
/// shorter limit of their own.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Connection of a request. Absent if the connection has moved to another thread.
#[derive(Debug, Clone, Copy)]
pub struct TcpConnection(RawFd);

impl TcpConnection {
    pub(super) fn of(stream: &impl AsRawFd) -> TcpConnection {
        TcpConnection(stream.as_raw_fd())
    }

    pub(super) fn register(stream: &TcpStream, data: &mut Extensions) {
        let connection = TcpConnection::of(stream);
        connection.set_unread_timeout(UNREAD_TIMEOUT);
        data.insert(connection);
    }

    /// Makes the kernel close the connection if sent data stays unacknowledged or unread for
    /// `timeout`.
    ///
    /// By default the kernel gives up unacknowledged data after a quarter of an hour, and unread
    /// data never.
    pub fn set_unread_timeout(self, timeout: Duration) {
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        if let Err(e) = set_tcp_user_timeout(self.socket(), milliseconds) {
            tracing::debug!("a connection keeps the system's send timeout: {e}");
        }
    }

    /// Returns true if the kernel accepts more data for the client: a third of its send buffer is
    /// free.
    ///
    /// Also returns true if the connection is broken or cannot be polled, so that no caller blocks
    /// on it.
    pub(super) fn has_room(&self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.socket(), PollFlags::OUT)];
        !matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }

    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: a connection is registered, and a request is answered, only while the descriptor
        // is open.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::tcp_user_timeout;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn registered_connection_has_an_unread_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the listener binds");
        let _client = TcpStream::connect(listener.local_addr().expect("the listener is bound"))
            .await
            .expect("the client connects");
        let (stream, _) = listener.accept().await.expect("a client has connected");
        let mut data = Extensions::new();
        TcpConnection::register(&stream, &mut data);
        assert_eq!(tcp_user_timeout(&stream).expect("the option is readable"), 60_000);
        data.get::<TcpConnection>().expect("the connection is registered").set_unread_timeout(Duration::from_secs(5));
        assert_eq!(tcp_user_timeout(&stream).expect("the option is readable"), 5_000);
    }
}
