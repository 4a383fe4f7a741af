//! WebSocket handshake of a link. Reads the agent's response and no byte after it, so the WebSocket
//! starts with a fresh read buffer. The library's own handshake would keep its buffer of 4 KiB for
//! the life of the connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, ReadBuf, join},
    net::UnixStream,
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Error,
        protocol::{Role, WebSocketConfig},
    },
};

/// Longest response head, in bytes. The built-in agent's response has 129. A longer head would not
/// fit the library's buffer.
const MAX_HEAD_BYTES: usize = 4096;

pub(super) async fn client_handshake(
    mut stream: UnixStream,
    config: WebSocketConfig,
) -> Result<WebSocketStream<UnixStream>, Error> {
    let (read, write) = stream.split();
    client_async_with_config("ws://agent/", join(HttpHeadReader::of(read), write), Some(config)).await?;
    Ok(WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await)
}

/// Reads an HTTP head, and nothing after it, one byte at a time. Returns the head as a whole,
/// because the library rejects many small reads as an attack.
struct HttpHeadReader<R> {
    from: R,
    read: Vec<u8>,
}

impl<R> HttpHeadReader<R> {
    fn of(from: R) -> HttpHeadReader<R> {
        HttpHeadReader { from, read: Vec::new() }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for HttpHeadReader<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while !self.read.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            let mut byte_buf = ReadBuf::new(&mut byte);
            ready!(Pin::new(&mut self.from).poll_read(cx, &mut byte_buf))?;
            if byte_buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.read.push(byte[0]);
            if self.read.len() > MAX_HEAD_BYTES.min(buffer.remaining()) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the response head is too long")));
            }
        }
        buffer.put_slice(&std::mem::take(&mut self.read));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use futures::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_tungstenite::tungstenite::{Message, handshake::derive_accept_key};

    use super::*;

    /// Performs a handshake with an agent that responds with `answer`. `answer` gets the key that
    /// the client sent.
    async fn handshake_with(answer: impl FnOnce(&str) -> Vec<u8>) -> Result<WebSocketStream<UnixStream>, Error> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let agent = async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(theirs.read_u8().await.unwrap());
            }
            let request = String::from_utf8(request).unwrap();
            let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
            // The client may have closed the connection after reading enough.
            let _ = theirs.write_all(&answer(key)).await;
        };
        tokio::join!(client_handshake(ours, WebSocketConfig::default().read_buffer_size(1024)), agent).0
    }

    fn switching_protocols(key: &str) -> String {
        let accept = derive_accept_key(key.as_bytes());
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        )
    }

    #[tokio::test]
    async fn frame_right_after_response_is_read() {
        let socket =
            handshake_with(|key| [switching_protocols(key).as_bytes(), b"\x81\x05hello\x81\x05", b"again"].concat())
                .await;
        let frames: Vec<_> = socket.unwrap().take(2).map(Result::unwrap).collect().await;
        assert_eq!(frames, [Message::text("hello"), Message::text("again")]);
    }

    #[tokio::test]
    async fn invalid_response_is_an_error() {
        let long =
            handshake_with(|_| [&b"HTTP/1.1 101 Switching Protocols\r\nName: "[..], &[b'x'; 10_000]].concat()).await;
        assert!(matches!(long, Err(Error::Io(e)) if e.kind() == io::ErrorKind::InvalidData));
        assert!(handshake_with(|_| b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec()).await.is_err());
        assert!(handshake_with(|_| switching_protocols("another key").into_bytes()).await.is_err());
        assert!(
            handshake_with(|_| b"HTTP/1.1 101".to_vec()).await.is_err(),
            "the agent closes in the middle of the head"
        );
    }
}
