//! Bodies of requests: read into reserved memory, or read to their end and discarded.

use std::{fmt::Display, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{
    StatusCode,
    body::{Body, Incoming},
};
use tokio::time::timeout;

use super::{
    endpoint::{BODY_SHARE, MAX_BODY_BYTES},
    error_response::EndpointError,
    memory::{MemoryPermit, MemoryShare},
};

/// Longest silence of a client whose body occupies memory that other sessions may need.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the rest of a rejected request.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit of discarded bytes. Above [`MAX_BODY_BYTES`], so that a body which is slightly too large
/// still gets its answer.
const DISCARD_LIMIT: usize = 2 * MAX_BODY_BYTES;

/// Reads a request's body. Its memory is reserved first, and freed with the permits.
///
/// A body in the session's own share has no time limit, because a paused sandbox sends nothing.
///
/// # Errors
/// Fails if the body is larger than [`MAX_BODY_BYTES`], breaks off, or stalls in memory that other
/// sessions may need.
pub(super) async fn read<B>(memory: &MemoryShare, body: &mut B) -> Result<(Bytes, Vec<MemoryPermit>), EndpointError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    let announced = match body.size_hint().exact() {
        Some(bytes) => {
            Some(usize::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_BODY_BYTES).ok_or_else(too_large)?)
        }
        None => None,
    };
    // A body of unknown length begins in the session's own share.
    let mut reserved = announced.unwrap_or(BODY_SHARE);
    let mut permits = vec![memory.reserve(reserved).await];
    let mut whole = BytesMut::with_capacity(announced.unwrap_or_default());
    loop {
        let next = body.frame();
        let next = match permits.iter().any(MemoryPermit::is_pooled) {
            true => timeout(STALL_TIMEOUT, next).await.map_err(|_| stalled())?,
            false => next.await,
        };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|e| EndpointError::invalid(format!("the request body ended early: {e}")))?;
        // Copied. Each chunk is part of a larger block of the HTTP library and would keep that
        // block allocated.
        let Ok(chunk) = frame.into_data() else { continue };
        if whole.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if whole.len() + chunk.len() > reserved {
            permits.push(memory.reserve(MAX_BODY_BYTES - reserved).await);
            reserved = MAX_BODY_BYTES;
        }
        whole.extend_from_slice(&chunk);
    }
    let surplus = reserved - whole.len();
    if let Some(last) = permits.last_mut() {
        last.free(surplus);
    }
    Ok((whole.freeze(), permits))
}

/// Reads the rest of a rejected request in the background and discards it. Limits: 128 MiB and 5 s.
///
/// A connection that closes with unread bytes is reset, and the client may lose the answer.
pub(super) fn discard(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    let reading = async move {
        let mut discarded = 0;
        while let Some(Ok(frame)) = body.frame().await
            && discarded < DISCARD_LIMIT
        {
            discarded += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    tokio::spawn(timeout(DISCARD_TIMEOUT, reading));
}

fn too_large() -> EndpointError {
    let message = format!("the request is larger than {} MiB, which is the limit", MAX_BODY_BYTES >> 20);
    EndpointError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}

fn stalled() -> EndpointError {
    let message = format!("nothing of the request arrived for {} s; send it again", STALL_TIMEOUT.as_secs());
    EndpointError::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", message)
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use futures::{Stream, StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;
    use crate::gateway::memory::MemoryPool;

    type TestFrame = Result<Frame<Bytes>, Infallible>;

    fn chunk(bytes: usize) -> TestFrame {
        Ok(Frame::data(Bytes::from(vec![b'x'; bytes])))
    }

    /// Reads a body of unknown length from a pool with room for one body.
    async fn read_chunks(chunks: impl Stream<Item = TestFrame> + Unpin) -> (Result<usize, StatusCode>, usize) {
        let share = MemoryPool::new(MAX_BODY_BYTES, MAX_BODY_BYTES, BODY_SHARE).share();
        match read(&share, &mut StreamBody::new(chunks)).await {
            Ok((body, _permits)) => (Ok(body.len()), MAX_BODY_BYTES - share.available()),
            Err(error) => (Err(error.status), MAX_BODY_BYTES - share.available()),
        }
    }

    /// Block of eight bytes, one of which is read.
    struct CallBodyBlock(Arc<AtomicUsize>);

    impl AsRef<[u8]> for CallBodyBlock {
        fn as_ref(&self) -> &[u8] {
            b"x       "
        }
    }

    impl Drop for CallBodyBlock {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn body_sent_byte_by_byte_keeps_no_blocks() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let block = || Ok(Frame::data(Bytes::from_owner(CallBodyBlock(dropped.clone())).slice(..1)));
        let chunks: Vec<TestFrame> = (0..100).map(|_| block()).collect();
        assert_eq!(read_chunks(stream::iter(chunks)).await, (Ok(100), 100));
        assert_eq!(dropped.load(Ordering::Relaxed), 100);
    }

    #[tokio::test]
    async fn body_of_unknown_length_reserves_what_it_needs() {
        let check = async |chunks: &[usize], expected: Result<usize, StatusCode>| {
            let (got, reserved) = read_chunks(stream::iter(chunks.iter().map(|bytes| chunk(*bytes)))).await;
            assert_eq!((got, reserved), (expected, expected.unwrap_or_default()), "{chunks:?}");
        };
        check(&[], Ok(0)).await;
        check(&[10, BODY_SHARE - 10], Ok(BODY_SHARE)).await;
        check(&[BODY_SHARE, 1, 7], Ok(BODY_SHARE + 8)).await;
        check(&[MAX_BODY_BYTES / 2; 2], Ok(MAX_BODY_BYTES)).await;
        check(&[MAX_BODY_BYTES / 2, MAX_BODY_BYTES / 2, 1], Err(StatusCode::PAYLOAD_TOO_LARGE)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_body_leaves_the_pool() {
        let stalling = |bytes| stream::iter([chunk(bytes)]).chain(stream::pending()).boxed();
        let (got, reserved) = read_chunks(stalling(BODY_SHARE + 1)).await;
        assert_eq!((got, reserved), (Err(StatusCode::REQUEST_TIMEOUT), 0));
        let in_own_share = timeout(STALL_TIMEOUT * 100, read_chunks(stalling(1))).await;
        assert!(in_own_share.is_err(), "a paused sandbox may stop in the middle of its own share");
    }
}
