//! Listener of the server, with the options that accepted connections inherit.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use rustix::net::sockopt;
use tokio::net::TcpSocket;

/// Accept backlog of the listener, as far as the kernel allows it.
///
/// When the backlog is full, clients retry after 1 s. All clients reconnect at once after a
/// restart.
const ACCEPT_BACKLOG: u32 = 4096;
/// Idle time after which the kernel probes a connection. Sockets and event streams have shorter
/// limits of their own.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);
/// Time after which the kernel closes a connection whose probes or data are not acknowledged.
const UNACKED_TIMEOUT: Duration = Duration::from_secs(300);

/// Listens on `address`; port 0 takes a free port. Must be called inside a tokio runtime.
///
/// # Errors
/// Returns the kernel's error if the address cannot be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of the previous server may still be closing.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit these options.
    socket.set_keepalive(true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_user_timeout(&socket, UNACKED_TIMEOUT.as_millis() as u32)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_BACKLOG)?.into_std()
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_detect_vanished_clients() {
        let listener = listen("127.0.0.1:0".parse().expect("the address is valid")).expect("a port is free");
        listener.set_nonblocking(false).expect("the listener is a socket");
        let _client =
            TcpStream::connect(listener.local_addr().expect("the listener is bound")).expect("the listener accepts");
        let (connection, _) = listener.accept().expect("a client has connected");
        assert!(sockopt::socket_keepalive(&connection).expect("the option is readable"));
        assert_eq!(sockopt::tcp_keepidle(&connection).expect("the option is readable"), KEEPALIVE_INTERVAL);
        assert_eq!(
            sockopt::tcp_user_timeout(&connection).expect("the option is readable"),
            UNACKED_TIMEOUT.as_millis() as u32
        );
    }
}
