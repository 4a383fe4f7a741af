//! What an answer may ask of the connection that it goes out over.

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

/// How long a client may leave unread what it was sent: HTTP itself waits for ever. A socket's own patience is shorter.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The connection of a request. Where the connection has moved to another thread there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct TcpConnection(RawFd);

impl TcpConnection {
    pub(super) fn of(stream: &impl AsRawFd) -> TcpConnection {
        TcpConnection(stream.as_raw_fd())
    }

    pub(super) fn register(stream: &TcpStream, data: &mut Extensions) {
        let connection = TcpConnection::of(stream);
        connection.set_unread_timeout(UNREAD_TIMEOUT);
        data.insert(connection);
    }

    /// Has it closed once what it was sent goes unacknowledged, or unread, for so long. By itself a kernel takes a quarter of
    /// an hour over the one, and is content for ever with the other.
    pub(super) fn set_unread_timeout(self, patience: Duration) {
        let milliseconds = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        if let Err(e) = set_tcp_user_timeout(self.socket(), milliseconds) {
            tracing::debug!("a connection keeps the system's patience: {e}");
        }
    }

    /// Whether the kernel takes more for the client: a third of what it holds for one is free again. It says so, too, where the
    /// connection is broken, and so do we where it cannot be asked: for that nobody waits.
    pub(super) fn has_room(&self) -> bool {
        let mut asked = [PollFd::from_borrowed_fd(self.socket(), PollFlags::OUT)];
        !matches!(poll(&mut asked, Some(&Timespec::default())), Ok(0))
    }

    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: a connection is learnt of, and a request is answered, only while it is open.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::tcp_user_timeout;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn who_reads_nothing_is_given_up_by_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("it binds");
        let _client = TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("somebody came");
        let mut data = Extensions::new();
        TcpConnection::register(&stream, &mut data);
        assert_eq!(tcp_user_timeout(&stream).expect("it is told"), 60_000);
        data.get::<TcpConnection>().expect("it is known").set_unread_timeout(Duration::from_secs(5));
        assert_eq!(tcp_user_timeout(&stream).expect("it is told"), 5_000);
    }
}
