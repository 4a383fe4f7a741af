//! Output of a terminal on its way to one client.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use greenroom_protocol::terminal::{TerminalFrame, TerminalReply};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::Notify,
    time::Instant,
};

/// Queue of one client. Bound: a snapshot, or [`HIGH_WATER`] bytes and what one read brings. When
/// full: the terminal is not read, and after a while the queue is dropped for a new snapshot.
#[derive(Debug)]
pub(super) struct ClientOutput {
    queue: Mutex<OutputQueue>,
    /// Notified when the writer has something to do.
    filled: Notify,
    /// Notified when the writer has written something. Shared by all clients of a terminal.
    drained: Arc<Notify>,
}

/// Queued bytes above which the terminal is not read.
pub(super) const HIGH_WATER: usize = 16 * 1024;

#[derive(Debug)]
struct OutputQueue {
    pieces: VecDeque<OutputPiece>,
    /// Queued output, in bytes.
    bytes: usize,
    /// True while the writer has a piece that is not written whole.
    is_writing: bool,
    /// Last time at which the writer finished a piece, or found the queue empty.
    progressed: Instant,
    is_finished: bool,
}

/// Piece of a client's output. Bytes are shared between clients.
#[derive(Debug, Clone)]
pub(super) enum OutputPiece {
    Control(TerminalReply),
    Bytes(Arc<[u8]>),
}

impl OutputPiece {
    fn len(&self) -> usize {
        match self {
            OutputPiece::Control(_) => 0,
            OutputPiece::Bytes(bytes) => bytes.len(),
        }
    }

    /// Returns true if the piece fits into a frame after `queued` bytes of output.
    fn joins(&self, queued: usize) -> bool {
        matches!(self, OutputPiece::Bytes(bytes) if queued + bytes.len() <= HIGH_WATER)
    }
}

impl ClientOutput {
    pub(super) fn new(drained: Arc<Notify>) -> ClientOutput {
        let queue = OutputQueue {
            pieces: VecDeque::new(),
            bytes: 0,
            is_writing: false,
            progressed: Instant::now(),
            is_finished: false,
        };
        ClientOutput { queue: Mutex::new(queue), filled: Notify::new(), drained }
    }

    pub(super) fn push(&self, piece: OutputPiece) {
        let mut queue = self.queue();
        if queue.pieces.is_empty() && !queue.is_writing {
            queue.progressed = Instant::now();
        }
        queue.bytes += piece.len();
        queue.pieces.push_back(piece);
        drop(queue);
        self.filled.notify_one();
    }

    /// Ends the queue. The writer returns after the last piece.
    pub(super) fn finish(&self) {
        self.queue().is_finished = true;
        self.filled.notify_one();
    }

    /// Drops what is queued. The writer still ends the frame that it is writing.
    pub(super) fn drop_queued(&self) {
        let mut queue = self.queue();
        queue.pieces.clear();
        queue.bytes = 0;
    }

    /// Returns true if the client has taken everything.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue();
        queue.pieces.is_empty() && !queue.is_writing
    }

    /// Returns the time of the client's last progress if its queue is full.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        let queue = self.queue();
        (queue.bytes > HIGH_WATER).then_some(queue.progressed)
    }

    /// Writes the queue to `sink` until its end.
    ///
    /// # Errors
    /// The client's connection is broken.
    pub(super) async fn write_to(&self, mut sink: impl AsyncWrite + Unpin) -> io::Result<()> {
        loop {
            let Some(frame) = self.take_frame() else {
                if self.queue().is_finished {
                    return sink.flush().await;
                }
                self.filled.notified().await;
                continue;
            };
            sink.write_all(&frame).await?;
            let mut queue = self.queue();
            queue.is_writing = false;
            queue.progressed = Instant::now();
            drop(queue);
            self.drained.notify_one();
        }
    }

    /// Takes a control frame, or pieces of output for one frame.
    fn take_frame(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue();
        let mut output = Vec::new();
        while let Some(piece) = queue.pieces.pop_front_if(|piece| output.is_empty() || piece.joins(output.len())) {
            queue.bytes -= piece.len();
            queue.is_writing = true;
            match piece {
                OutputPiece::Control(reply) => return Some(TerminalFrame::control(&reply)),
                OutputPiece::Bytes(bytes) => output.extend_from_slice(&bytes),
            }
        }
        (!output.is_empty()).then(|| TerminalFrame::bytes(&output))
    }

    fn queue(&self) -> MutexGuard<'_, OutputQueue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
