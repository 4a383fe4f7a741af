//! Connection to the agent's terminal socket. The agent is untrusted: what it sends is bounded, and
//! read only when there is room for it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use greenroom_protocol::terminal::{TerminalFrame, TerminalFrameReader, TerminalReply, TerminalRequest, read_control};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{
        Notify,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
    },
};

/// Size of one read, in bytes.
const READ_SIZE: usize = 16 * 1024;

/// Frames that the agent sends.
pub(super) struct AgentTerminalStream {
    stream: OwnedReadHalf,
    reader: TerminalFrameReader,
}

/// Frame from the agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReceivedTerminalFrame {
    Reply(TerminalReply),
    Bytes(Vec<u8>),
}

/// Queue of frames for the agent. The holder keeps its bound ([`TerminalInputQueue::queued`]).
#[derive(Clone)]
pub(super) struct TerminalInputQueue {
    frames: UnboundedSender<Vec<u8>>,
    fill: Arc<QueueFill>,
}

#[derive(Default)]
struct QueueFill {
    bytes: AtomicUsize,
    drained: Notify,
}

/// Sends `request` on a new connection, and returns its two directions.
pub(super) fn begin(stream: UnixStream, request: &TerminalRequest) -> (AgentTerminalStream, TerminalInputQueue) {
    let (stream, sink) = stream.into_split();
    let (frames, queued) = mpsc::unbounded_channel();
    let queue = TerminalInputQueue { frames, fill: Arc::default() };
    // Ends with its last sender, and closes this direction.
    tokio::spawn(write_frames(queued, sink, queue.fill.clone()));
    queue.push(TerminalFrame::control(request));
    (AgentTerminalStream { stream, reader: TerminalFrameReader::default() }, queue)
}

async fn write_frames(mut queued: UnboundedReceiver<Vec<u8>>, mut sink: OwnedWriteHalf, fill: Arc<QueueFill>) {
    while let Some(frame) = queued.recv().await {
        // The reader reports a broken connection. The rest of the queue is dropped here.
        let _ = sink.write_all(&frame).await;
        fill.bytes.fetch_sub(frame.len(), Relaxed);
        fill.drained.notify_one();
    }
}

impl TerminalInputQueue {
    pub(super) fn push(&self, frame: Vec<u8>) {
        self.fill.bytes.fetch_add(frame.len(), Relaxed);
        // The writing task receives as long as a sender exists.
        let _ = self.frames.send(frame);
    }

    /// Returns the bytes that the agent has not taken.
    pub(super) fn queued(&self) -> usize {
        self.fill.bytes.load(Relaxed)
    }

    /// Returns when at most `bytes` are queued.
    pub(super) async fn drained_to(&self, bytes: usize) {
        while self.queued() > bytes {
            self.fill.drained.notified().await;
        }
    }
}

impl AgentTerminalStream {
    /// Returns the next frame, or `None` at the end of the connection.
    ///
    /// # Errors
    /// The connection is broken, or the agent breaks the protocol.
    pub(super) async fn next(&mut self) -> io::Result<Option<ReceivedTerminalFrame>> {
        loop {
            match self.reader.next_frame().map_err(|bad| invalid(format!("{bad:?}")))? {
                // The client's window counts bytes, so a frame without any would pass it for ever.
                Some(TerminalFrame::Bytes(bytes)) if bytes.is_empty() => return Err(invalid("a frame without bytes")),
                Some(TerminalFrame::Bytes(bytes)) => return Ok(Some(ReceivedTerminalFrame::Bytes(bytes))),
                Some(TerminalFrame::Control(json)) => {
                    return read_control(&json).map(|reply| Some(ReceivedTerminalFrame::Reply(reply))).map_err(invalid);
                }
                None => {}
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
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::terminal::{TERMINAL_FRAME_LIMIT, TerminalControl};
    use tokio::io::AsyncReadExt;

    use super::*;

    #[actix::test]
    async fn frames_are_received_up_to_the_first_violation() {
        let (stream, mut agent) = UnixStream::pair().expect("a pair of sockets");
        let (mut frames, _input) = begin(stream, &TerminalRequest::List {});
        let mut sent = TerminalFrame::control(&TerminalReply::Done {});
        sent.extend(TerminalFrame::bytes(&[b'x'; TERMINAL_FRAME_LIMIT]));
        sent.extend(TerminalFrame::control(&"not a reply"));
        let writing = tokio::spawn(async move {
            agent.write_all(&sent).await.expect("the server reads");
            // A connection with unread data would be reset at its end.
            let request = TerminalFrame::control(&TerminalRequest::List {});
            agent.read_exact(&mut vec![0; request.len()]).await.expect("the server has sent its request");
            agent
        });
        let reply = ReceivedTerminalFrame::Reply(TerminalReply::Done {});
        assert_eq!(frames.next().await.expect("a frame"), Some(reply));
        let bytes = ReceivedTerminalFrame::Bytes(vec![b'x'; TERMINAL_FRAME_LIMIT]);
        assert_eq!(frames.next().await.expect("a frame"), Some(bytes));
        frames.next().await.expect_err("a control frame must be a reply");
        drop(writing.await.expect("the agent has written"));
        assert_eq!(frames.next().await.expect("the end is no error"), None);
    }

    #[actix::test]
    async fn input_waits_for_an_agent_that_does_not_read() {
        let (stream, mut agent) = UnixStream::pair().expect("a pair of sockets");
        let (_frames, input) = begin(stream, &TerminalRequest::List {});
        for _ in 0..64 {
            input.push(TerminalFrame::bytes(&[b'x'; TERMINAL_FRAME_LIMIT]));
        }
        input.push(TerminalFrame::control(&TerminalControl::Resize { cols: 80, rows: 24 }));
        tokio::task::yield_now().await;
        assert!(input.queued() > 32 * TERMINAL_FRAME_LIMIT, "{} bytes", input.queued());
        let reading = tokio::spawn(async move { agent.read_to_end(&mut Vec::new()).await });
        input.drained_to(0).await;
        assert_eq!(input.queued(), 0);
        drop(input);
        assert!(reading.await.expect("the reader ends").expect("the end is no error") > 64 * TERMINAL_FRAME_LIMIT);
    }
}
