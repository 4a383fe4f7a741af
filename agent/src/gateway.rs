//! Loopback port for any program in the sandbox, forwarded to the model gateway's socket.
//!
//! Each connection dials the socket anew, so a restarted server is reached again. If the gateway is
//! away, the connection is closed at once. If the gateway stops reading a request, its answer still
//! reaches the client: a rejected request is answered before it is complete.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use greenroom_protocol::sandbox_paths::GATEWAY_PORT;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    time::timeout,
};

const BUFFER: usize = 8 * 1024;

/// Time that a client has to finish its request after the answer. A close before that would reset
/// the connection, and the client could lose the answer.
const LINGER: Duration = Duration::from_secs(5);

/// Listens on [`GATEWAY_PORT`] and returns the address as `http://127.0.0.1:port`.
///
/// Each sandbox has its own network namespace, so the port is free there. Programs write the
/// address into files and find the gateway again after a restart. Outside such a namespace, a free
/// port takes the place of an occupied one.
///
/// # Errors
/// Fails if no loopback port can be bound.
pub async fn open(socket: PathBuf) -> io::Result<String> {
    let listener = match TcpListener::bind(("127.0.0.1", GATEWAY_PORT)).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => TcpListener::bind(("127.0.0.1", 0)).await?,
        bound => bound?,
    };
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
    let (mut from_client, mut to_client) = client.split();
    let (mut from_gateway, mut to_gateway) = gateway.split();
    let mut request = std::pin::pin!(copy_request(&mut from_client, &mut to_gateway));
    let mut answer = std::pin::pin!(copy_answer(&mut from_gateway, &mut to_client));
    // Both ends see how the connection ended, so the last results are ignored.
    tokio::select! {
        request = &mut request => {
            // The client may close its side and still read the answer.
            if request.is_ok() {
                let _ = answer.await;
            }
        }
        answer = &mut answer => {
            if answer.is_ok() {
                let _ = timeout(LINGER, request).await;
            }
        }
    }
}

/// Copies a client's bytes to the gateway. After a failed write, reads on and discards the rest.
///
/// # Errors
/// Returns the error of a failed read: the client has gone.
async fn copy_request(
    client: &mut (impl AsyncRead + Unpin),
    gateway: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut gateway_reads = true;
    loop {
        match client.read(&mut buffer).await? {
            0 => break,
            read => gateway_reads = gateway_reads && gateway.write_all(&buffer[..read]).await.is_ok(),
        }
    }
    if gateway_reads {
        // Fails if the gateway has closed its side, which its answer shows.
        let _ = gateway.shutdown().await;
    }
    Ok(())
}

/// Copies the gateway's bytes to a client until the gateway closes, and then ends the answer.
///
/// # Errors
/// Returns the error of a failed write: the client has gone.
async fn copy_answer(gateway: &mut (impl AsyncRead + Unpin), client: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    // A gateway that closes before the request is complete ends its answer with an error.
    while let Ok(read @ 1..) = gateway.read(&mut buffer).await {
        client.write_all(&buffer[..read]).await?;
    }
    client.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// Starts a forwarder. `gateway` handles each connection to its socket.
    async fn forwarder<F: Future<Output = ()> + Send + 'static>(
        gateway: impl Fn(UnixStream) -> F + Send + 'static,
    ) -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).expect("a socket");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                gateway(stream).await;
            }
        });
        let url = open(socket).await.expect("a loopback port");
        (directory, url.strip_prefix("http://").expect("the address is a URL").to_owned())
    }

    /// Sends a request of 4 MiB as a simple client does: completely, before the answer is read.
    async fn answer_to_large_request(address: &str) -> String {
        let mut client = TcpStream::connect(address).await.expect("the forwarder listens");
        client.write_all(&vec![b'x'; 4 << 20]).await.expect("the forwarder reads the whole request");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("the answer is complete");
        answer
    }

    #[tokio::test]
    async fn answer_passes_after_the_gateway_stopped_reading() {
        let (_directory, address) = forwarder(|mut stream: UnixStream| async move {
            let mut start = [0; 100];
            stream.read_exact(&mut start).await.expect("the request begins");
            stream.write_all(b"402").await.expect("the answer is sent");
            // Closed with unread bytes, so further writes of the forwarder fail.
        })
        .await;
        for _ in 0..100 {
            assert_eq!(answer_to_large_request(&address).await, "402");
        }
    }

    #[tokio::test]
    async fn client_that_goes_is_reported_to_the_gateway() {
        let (ended, mut end) = tokio::sync::mpsc::unbounded_channel();
        let (_directory, address) = forwarder(move |mut stream: UnixStream| {
            let ended = ended.clone();
            async move {
                let mut request = Vec::new();
                stream.read_to_end(&mut request).await.expect("the request ends");
                ended.send(request).expect("the test receives");
            }
        })
        .await;
        let mut client = TcpStream::connect(&address).await.expect("the forwarder listens");
        client.write_all(b"half").await.expect("the forwarder reads");
        drop(client);
        assert_eq!(end.recv().await.expect("the gateway sees the end"), b"half");
    }

    #[tokio::test]
    async fn occupied_port_is_replaced_by_a_free_one() {
        let (_one, first) = forwarder(|_| async {}).await;
        let (_two, second) = forwarder(|_| async {}).await;
        assert_ne!(first, second);
    }
}
