//! Terminal socket: one connection for each client, and one for each other request.

use std::{io, path::Path, sync::Arc, time::Duration};

use greenroom_protocol::terminal::{
    TerminalControl, TerminalFrame, TerminalFrameReader, TerminalReply, TerminalRequest, read_control,
};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Semaphore,
    time::timeout,
};

use super::{Attachment, TerminalError, Terminals, screen::ScreenSize, terminal::TerminalCommand};
use crate::link;

/// Largest number of connections at once. Further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;

/// Time in which a connection must send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of the kernel's buffer for output that the server has not read, in bytes. A key is answered
/// only after what is in the buffer.
const SEND_BUFFER: usize = 32 * 1024;

const READ_SIZE: usize = 16 * 1024;

/// Listens at `path` and serves connections until the task is dropped.
///
/// # Errors
/// Fails if the socket cannot be made at `path`.
pub async fn listen(path: &Path, terminals: Terminals) -> io::Result<()> {
    let listener = link::bind(path)?;
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = connections.clone().acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let terminals = terminals.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, terminals).await {
                        tracing::debug!(%error, "a connection of a terminal ended");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a terminal cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, terminals: Terminals) -> io::Result<()> {
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
    let (stream, mut sink) = stream.into_split();
    let mut frames = FrameStream { stream, reader: TerminalFrameReader::default() };
    let Ok(request) = timeout(REQUEST_TIMEOUT, frames.request()).await else { return Ok(()) };
    let answered = match request? {
        TerminalRequest::Attach { name, cols, rows } => match terminals.attach(&name, cols, rows).await {
            Ok(attachment) => return relay(frames, sink, attachment).await,
            Err(error) => Err(error),
        },
        TerminalRequest::List {} => Ok(TerminalReply::Terminals { items: terminals.list().await }),
        TerminalRequest::Rename { name, to } => terminals.rename(&name, &to).map(|()| TerminalReply::Done {}),
        TerminalRequest::Close { name } => terminals.close(&name).await.map(|()| TerminalReply::Done {}),
    };
    let reply = answered
        .unwrap_or_else(|error: TerminalError| TerminalReply::Error { code: error.code(), message: error.to_string() });
    sink.write_all(&TerminalFrame::control(&reply)).await?;
    sink.shutdown().await
}

/// Relays input and output until the client or the terminal ends.
async fn relay(frames: FrameStream, sink: OwnedWriteHalf, attachment: Attachment) -> io::Result<()> {
    tokio::select! {
        result = attachment.output.write_to(sink) => result,
        result = receive(frames, &attachment) => result,
    }
}

async fn receive(mut frames: FrameStream, attachment: &Attachment) -> io::Result<()> {
    while let Some(frame) = frames.next().await? {
        match frame {
            TerminalFrame::Bytes(input) => {
                if attachment.input.push(input).await.is_err() {
                    // The terminal has ended, and its output tells so.
                    return std::future::pending().await;
                }
            }
            TerminalFrame::Control(json) => {
                let TerminalControl::Resize { cols, rows } = read_control(&json).map_err(invalid)?;
                let (client, size) = (attachment.client, ScreenSize::clamped(cols, rows));
                // A terminal that has ended has no size.
                let _ = attachment.commands.send(TerminalCommand::Resize { client, size });
            }
        }
    }
    Ok(())
}

/// Frames of a connection.
struct FrameStream {
    stream: OwnedReadHalf,
    reader: TerminalFrameReader,
}

impl FrameStream {
    /// Returns the next frame, or `None` at the end.
    async fn next(&mut self) -> io::Result<Option<TerminalFrame>> {
        loop {
            if let Some(frame) = self.reader.next_frame().map_err(|bad| invalid(format!("{bad:?}")))? {
                return Ok(Some(frame));
            }
            self.stream.readable().await?;
            // On the stack for the read alone: a buffer in the future would stay in memory.
            let mut bytes = [0; READ_SIZE];
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.reader.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn request(&mut self) -> io::Result<TerminalRequest> {
        match self.next().await? {
            Some(TerminalFrame::Control(json)) => read_control(&json).map_err(invalid),
            Some(TerminalFrame::Bytes(_)) | None => Err(invalid("a connection begins with a request")),
        }
    }
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
