//! A door to the model gateway for any program in the sandbox: forwards a loopback port to the gateway's socket.
//!
//! Each connection dials the socket anew, so a server that restarted is found again; while there is none, a connection is
//! closed at once.

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

/// Listens on a free port and returns the address to use as `http://127.0.0.1:port`.
pub async fn open(socket: PathBuf) -> io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(serve(listener, socket));
    Ok(url)
}

/// Whether somebody listens on the gateway's socket now.
pub async fn is_reachable(socket: &Path) -> bool {
    UnixStream::connect(socket).await.is_ok()
}

async fn serve(listener: TcpListener, socket: PathBuf) {
    loop {
        match listener.accept().await {
            Ok((caller, _)) => {
                tokio::spawn(forward(caller, socket.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "the door to the gateway cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn forward(mut caller: TcpStream, socket: PathBuf) {
    let Ok(mut gateway) = UnixStream::connect(&socket).await else { return };
    // How a connection ended is for its two ends to judge.
    let _ = copy_bidirectional_with_sizes(&mut caller, &mut gateway, BUFFER, BUFFER).await;
}
