//! Loopback port for any program in the sandbox, forwarded to the model gateway's socket.
//!
//! Each connection dials the socket anew, so a restarted server is reached again. If the gateway is
//! away, the connection is closed at once.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream, UnixStream},
};

const BUFFER: usize = 8 * 1024;

/// Listens on a free port and returns its address as `http://127.0.0.1:port`.
///
/// # Errors
/// Fails if no loopback port can be bound.
pub async fn open(socket: PathBuf) -> io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(serve(listener, socket));
    Ok(url)
}

/// Returns `true` if the gateway's socket accepts a connection now.
pub async fn is_reachable(socket: &Path) -> bool {
    UnixStream::connect(socket).await.is_ok()
}

async fn serve(listener: TcpListener, socket: PathBuf) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(forward(client, socket.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "the loopback port of the gateway cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn forward(mut client: TcpStream, socket: PathBuf) {
    let Ok(mut gateway) = UnixStream::connect(&socket).await else { return };
    // Both ends see how the connection ended, so the result is ignored.
    let _ = copy_bidirectional_with_sizes(&mut client, &mut gateway, BUFFER, BUFFER).await;
}
