//! Byte stream to a client: plain TCP, or TLS over TCP.
//!
//! TLS works without a task and without buffers of its own library for async streams: a connection
//! moves between threads ([`super::connection_migration`]), and only its two parts move.

use std::{
    future::poll_fn,
    io::{self, IoSlice, Read, Write},
    net,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustls::{ServerConfig, ServerConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Stream to a client.
pub(super) struct ClientStream {
    tcp: TcpStream,
    /// `None`: plain TCP.
    tls: Option<Box<TlsState>>,
}

/// Parts of a [`ClientStream`] without a runtime, for the way to another thread.
pub(super) struct DetachedStream {
    tcp: net::TcpStream,
    tls: Option<Box<TlsState>>,
}

struct TlsState {
    connection: ServerConnection,
    /// Decrypted bytes that are not yet read.
    readable: usize,
}

impl ClientStream {
    pub(super) fn plain(tcp: TcpStream) -> ClientStream {
        ClientStream { tcp, tls: None }
    }

    /// Performs the TLS handshake with a client.
    ///
    /// # Errors
    /// The client closes the connection, or sends something other than a valid handshake.
    pub(super) async fn accept_tls(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<ClientStream> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut stream = ClientStream { tcp, tls: Some(Box::new(TlsState { connection, readable: 0 })) };
        poll_fn(|cx| stream.poll_handshake(cx)).await?;
        Ok(stream)
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Takes the stream from this thread's runtime.
    ///
    /// # Errors
    /// The runtime does not release the socket.
    pub(super) fn detach(self) -> io::Result<DetachedStream> {
        Ok(DetachedStream { tcp: self.tcp.into_std()?, tls: self.tls })
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ClientStream { tcp, tls: Some(tls) } = self else { return Poll::Ready(Ok(())) };
        loop {
            while tls.connection.wants_write() {
                ready!(tcp.poll_write_ready(cx))?;
                retry(tls.flush(tcp))?;
            }
            if !tls.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            ready!(tcp.poll_read_ready(cx))?;
            if retry(tls.receive(tcp))? == Some(0) {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Returns ready if [`ClientStream::try_read`] may have data.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.tls {
            Some(tls) if tls.readable > 0 => Poll::Ready(Ok(())),
            Some(_) | None => self.tcp.poll_read_ready(cx),
        }
    }

    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_write_ready(cx)
    }

    /// Reads what has arrived. 0: the client has ended its side.
    pub(super) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.try_read(buffer),
            Some(tls) => tls.try_read(&self.tcp, buffer),
        }
    }

    /// Writes as much as the kernel accepts, or as the TLS buffer takes. See
    /// [`ClientStream::has_unsent`].
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.try_write(bytes),
            Some(tls) => tls.try_write(&self.tcp, &[IoSlice::new(bytes)]),
        }
    }

    pub(super) fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.try_write_vectored(slices),
            Some(tls) => tls.try_write(&self.tcp, slices),
        }
    }

    /// Returns true if written bytes wait in the TLS buffer, encrypted, at most 64 KiB.
    pub(super) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.connection.wants_write())
    }

    /// Sends bytes of the TLS buffer, as many as the kernel accepts.
    pub(super) fn try_flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => tls.flush(&self.tcp),
        }
    }
}

impl DetachedStream {
    /// Attaches the stream to this thread's runtime.
    ///
    /// # Errors
    /// The runtime does not take the socket.
    pub(super) fn attach(self) -> io::Result<ClientStream> {
        Ok(ClientStream { tcp: TcpStream::from_std(self.tcp)?, tls: self.tls })
    }
}

impl TlsState {
    /// Reads and decrypts what has arrived. Returns the number of encrypted bytes, 0 at the end.
    fn receive(&mut self, tcp: &TcpStream) -> io::Result<usize> {
        let count = self.connection.read_tls(&mut Socket(tcp))?;
        match self.connection.process_new_packets() {
            Ok(state) => self.readable = state.plaintext_bytes_to_read(),
            Err(e) => {
                // The client gets an alert with the reason, if the kernel takes it at once.
                let _is_sent = self.flush(tcp);
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
            }
        }
        Ok(count)
    }

    fn try_read(&mut self, tcp: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // A client that closes the connection without a farewell has ended all the same.
                // HTTP and WebSockets mark the end of a message themselves.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => {
                    self.readable = self.readable.saturating_sub(*other.as_ref().unwrap_or(&0));
                    return other;
                }
            }
            self.receive(tcp)?;
            // Answers to the protocol's own messages, such as a change of keys.
            retry(self.flush(tcp))?;
        }
    }

    fn try_write(&mut self, tcp: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(tcp)?;
        let count = self.connection.writer().write_vectored(slices)?;
        retry(self.flush(tcp))?;
        Ok(count)
    }

    /// Sends encrypted bytes until none is left.
    ///
    /// # Errors
    /// `WouldBlock` if the kernel accepts no more.
    fn flush(&mut self, tcp: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Socket(tcp))?;
        }
        Ok(())
    }
}

/// Returns `None` if the operation has to be repeated once the socket is ready.
fn retry<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

/// Socket as the TLS library reads and writes it: without waiting.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.tls.is_none() {
            return Pin::new(&mut self.tcp).poll_read(cx, buffer);
        }
        loop {
            ready!(self.poll_read_ready(cx))?;
            if let Some(count) = retry(self.try_read(buffer.initialize_unfilled()))? {
                buffer.advance(count);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.tls.is_none() {
            return Pin::new(&mut self.tcp).poll_write(cx, bytes);
        }
        loop {
            ready!(self.poll_write_ready(cx))?;
            if let Some(count) = retry(self.try_write(bytes))? {
                return Poll::Ready(Ok(count));
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_unsent() {
            ready!(self.poll_write_ready(cx))?;
            retry(self.try_flush())?;
        }
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &mut self.tls {
            // A second call has no effect.
            tls.connection.send_close_notify();
        }
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
