//! The handshake of a link, which leaves nothing behind: neither a byte of the agent's first frame, nor the buffer that it was
//! read into. The library would go on with that one, of 4 KiB, for as long as the link lives.

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

/// The longest answer, bytes. Our agent's has 129, and more does not fit the library's buffer.
const MAX_HEAD_BYTES: usize = 4096;

pub(super) async fn client_handshake(
    mut stream: UnixStream,
    config: WebSocketConfig,
) -> Result<WebSocketStream<UnixStream>, Error> {
    let (read, write) = stream.split();
    client_async_with_config("ws://agent/", join(HttpHeadReader::of(read), write), Some(config)).await?;
    Ok(WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await)
}

/// Reads to the end of an HTTP head and no further, so a byte at a time, and gives it as a whole: many small pieces the library
/// takes for an attack.
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
            let mut place = ReadBuf::new(&mut byte);
            ready!(Pin::new(&mut self.from).poll_read(cx, &mut place))?;
            if place.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.read.push(byte[0]);
            if self.read.len() > MAX_HEAD_BYTES.min(buffer.remaining()) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "an answer without an end")));
            }
        }
        buffer.put_slice(&std::mem::take(&mut self.read));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests {
    use futures::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_tungstenite::tungstenite::{Message, handshake::derive_accept_key};

    use super::*;

    /// How it goes with an agent that answers `answer`, which is made of the key that it was sent.
    async fn answered(answer: impl FnOnce(&str) -> Vec<u8>) -> Result<WebSocketStream<UnixStream>, Error> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let agent = async move {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(theirs.read_u8().await.unwrap());
            }
            let asked = String::from_utf8(asked).unwrap();
            let key = asked.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
            // Whoever has heard enough may be gone.
            let _ = theirs.write_all(&answer(key)).await;
        };
        tokio::join!(client_handshake(ours, WebSocketConfig::default().read_buffer_size(1024)), agent).0
    }

    fn welcome(key: &str) -> String {
        let accept = derive_accept_key(key.as_bytes());
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        )
    }

    #[tokio::test]
    async fn a_frame_right_behind_the_answer_is_heard() {
        let socket = answered(|key| [welcome(key).as_bytes(), b"\x81\x05hello\x81\x05", b"again"].concat()).await;
        let heard: Vec<_> = socket.unwrap().take(2).map(Result::unwrap).collect().await;
        assert_eq!(heard, [Message::text("hello"), Message::text("again")]);
    }

    #[tokio::test]
    async fn what_is_no_answer_is_an_error() {
        let long = answered(|_| [&b"HTTP/1.1 101 Switching Protocols\r\nName: "[..], &[b'x'; 10_000]].concat()).await;
        assert!(matches!(long, Err(Error::Io(e)) if e.kind() == io::ErrorKind::InvalidData));
        assert!(answered(|_| b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec()).await.is_err());
        assert!(answered(|_| welcome("of somebody else").into_bytes()).await.is_err());
        assert!(answered(|_| b"HTTP/1.1 101".to_vec()).await.is_err(), "it goes in the middle of it");
    }
}
