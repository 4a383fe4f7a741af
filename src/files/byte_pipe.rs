//! Byte pipe from a blocking thread to an answer's body.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use tokio::{runtime::Handle, sync::mpsc};

/// Size of a piece, bytes.
const PIECE: usize = 64 << 10;
/// Pieces between writer and reader.
const PIECES: usize = 4;
/// Longest time for which the reader may take nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Writing end. Bound: 4 pieces of 64 KiB. When full: the writer's thread blocks.
///
/// A write fails with [`io::ErrorKind::BrokenPipe`] once the reader is gone or takes nothing.
#[derive(Debug)]
pub struct PipeWriter {
    sender: mpsc::Sender<Bytes>,
    piece: BytesMut,
    runtime: Handle,
    failure: PipeFailure,
    /// A piece could not be sent. Later bytes are dropped without a further error, because writers
    /// of archives report each error of their destructors on stderr.
    is_broken: bool,
}

/// Error with which the stream ends. `None` once the writer has finished.
type PipeFailure = Arc<Mutex<Option<io::Error>>>;

/// Returns both ends of a new pipe. Call it on a runtime: the writer uses the runtime's clock.
///
/// The stream ends with an error unless the writer calls [`PipeWriter::finish`].
pub fn pipe() -> (PipeWriter, impl Stream<Item = io::Result<Bytes>>) {
    let (sender, mut receiver) = mpsc::channel(PIECES);
    let failure: PipeFailure = Arc::new(Mutex::new(Some(io::ErrorKind::UnexpectedEof.into())));
    let end = failure.clone();
    let pieces = futures::stream::poll_fn(move |cx| match receiver.poll_recv(cx) {
        Poll::Ready(Some(piece)) => Poll::Ready(Some(Ok(piece))),
        Poll::Ready(None) => Poll::Ready(end.lock().unwrap_or_else(PoisonError::into_inner).take().map(Err)),
        Poll::Pending => Poll::Pending,
    });
    let piece = BytesMut::with_capacity(PIECE);
    (PipeWriter { sender, piece, runtime: Handle::current(), failure, is_broken: false }, pieces)
}

impl PipeWriter {
    /// Returns a check for a reader that is gone.
    pub fn abandonment(&self) -> impl Fn() -> bool + Sync + use<> {
        let sender = self.sender.clone();
        move || sender.is_closed()
    }

    /// Ends the stream. After an error, the stream ends with that error.
    pub fn finish(mut self, written: io::Result<()>) {
        let finished = written.and_then(|()| self.flush());
        let is_broken = self.is_broken;
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match finished {
            Ok(()) if is_broken => {}
            finished => *failure = finished.err(),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        if self.is_broken {
            return Ok(());
        }
        self.piece.reserve(PIECE);
        // A client that reads nothing must not keep a thread for good.
        let sent = self.runtime.block_on(self.sender.send_timeout(piece, STALL_TIMEOUT));
        sent.map_err(|_| {
            self.is_broken = true;
            io::ErrorKind::BrokenPipe.into()
        })
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() >= PIECE {
            self.send()?;
        }
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    async fn read_all(stream: impl Stream<Item = io::Result<Bytes>>) -> (usize, Option<io::ErrorKind>) {
        let mut stream = std::pin::pin!(stream);
        let mut size = 0;
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(piece) => size += piece.len(),
                Err(e) => return (size, Some(e.kind())),
            }
        }
        (size, None)
    }

    /// A stream that ends without an error counts as complete.
    #[tokio::test]
    async fn only_a_finished_pipe_ends_without_error() {
        let check = async |work: fn(PipeWriter), expected: (usize, Option<io::ErrorKind>)| {
            let (writer, stream) = pipe();
            let done = tokio::task::spawn_blocking(move || work(writer));
            assert_eq!(read_all(stream).await, expected);
            done.await.expect("no panic");
        };
        check(|writer| writer.finish(Ok(())), (0, None)).await;
        check(drop, (0, Some(io::ErrorKind::UnexpectedEof))).await;
        check(|writer| writer.finish(Err(io::ErrorKind::NotFound.into())), (0, Some(io::ErrorKind::NotFound))).await;
        let full = |mut writer: PipeWriter| {
            writer.write_all(&[1; 9 * PIECE + 1]).expect("the reader reads");
            writer.finish(Ok(()));
        };
        check(full, (9 * PIECE + 1, None)).await;
    }
}
