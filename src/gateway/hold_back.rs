//! Start of an answer: held back until its first real piece, so that an error before that piece can
//! still be retried.

use std::time::Duration;

use bytes::BytesMut;
use futures::{StreamExt, stream};
use greenroom_provider::ProviderError;
use tokio::time::timeout;

use super::{meter::UsageMeter, route::GatewayRoute, upstream::UpstreamBody};

/// Largest start that is held back, bytes. A longer start passes.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Longest time for which a start is held back. An older start passes: a client must see that its
/// call is alive.
const MAX_HELD_TIME: Duration = Duration::from_secs(30);

/// Answer that failed before its first real piece.
#[derive(Debug)]
pub(super) enum FailedStart {
    /// The provider reported an error.
    Error(ProviderError),
    /// The answer ended, or its connection broke. `is_stream` is false for an answer in one piece,
    /// which was generated, and paid, before its first byte.
    Cut { why: String, is_stream: bool },
}

/// Reads `body` up to its first real piece, and returns the whole body.
///
/// Comments, pings, empty deltas and the head of a message are no real pieces.
pub(super) async fn read_start(
    mut body: UpstreamBody,
    route: GatewayRoute,
    is_stream: bool,
) -> Result<UpstreamBody, FailedStart> {
    if !route.is_metered() {
        return Ok(body);
    }
    let (mut meter, mut held) = (UsageMeter::new(route), BytesMut::new());
    let reading = async {
        while !meter.has_begun() && held.len() < MAX_HELD_BYTES {
            match body.next().await {
                Some(Ok(chunk)) => {
                    meter.read_stream(&chunk);
                    // Copied: a chunk keeps a whole block of the HTTP library alive.
                    held.extend_from_slice(&chunk);
                }
                Some(Err(reason)) => return Some(Err(reason)),
                None => {
                    meter.finish();
                    return Some(Ok(()));
                }
            }
            if meter.error().is_some() {
                break;
            }
        }
        None
    };
    let end = timeout(MAX_HELD_TIME, reading).await.unwrap_or(None);
    if let Some(error) = meter.error() {
        return Err(FailedStart::Error(error.clone()));
    }
    match end {
        Some(Ok(())) if is_stream && !meter.is_complete() => {
            let why = "the provider's stream ended before its response was complete".to_owned();
            Err(FailedStart::Cut { why, is_stream })
        }
        Some(Err(why)) => Err(FailedStart::Cut { why, is_stream }),
        // The body has ended, and must not be polled again.
        Some(Ok(())) => Ok(stream::iter([Ok(held.freeze())]).boxed()),
        None => Ok(stream::iter([Ok(held.freeze())]).chain(body).boxed()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::TryStreamExt;

    use super::*;

    const COMMENT: &str = ": PROCESSING\n\n";
    const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Well\"}}]}\n\n";
    const ERROR: &str = "data: {\"error\":{\"code\":429,\"message\":\"slow down\"}}\n\n";

    async fn start(chunks: &[&'static str], hangs: bool) -> Result<UpstreamBody, FailedStart> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Bytes::from_static(chunk.as_bytes()))).collect();
        let end = if hangs { stream::pending().boxed() } else { stream::empty().boxed() };
        read_start(stream::iter(chunks).chain(end).boxed(), GatewayRoute::Chat, true).await
    }

    async fn text(body: UpstreamBody) -> String {
        let chunks: Vec<Bytes> = body.try_collect().await.expect("the body does not break");
        String::from_utf8(chunks.concat()).expect("the body is UTF-8")
    }

    #[tokio::test]
    async fn error_before_a_real_piece_fails_the_start() {
        for chunks in [&[ERROR][..], &[COMMENT, ERROR], &[COMMENT, ROLE, ERROR, TEXT]] {
            match start(chunks, true).await {
                Err(FailedStart::Error(error)) => {
                    assert_eq!((error.status, error.message.as_str()), (429, "slow down"))
                }
                other => panic!("{chunks:?}: {}", other.is_ok()),
            }
        }
        for chunks in [&[][..], &[COMMENT], &[COMMENT, ROLE]] {
            assert!(matches!(start(chunks, false).await, Err(FailedStart::Cut { .. })), "{chunks:?}");
        }
    }

    #[tokio::test]
    async fn real_piece_passes_with_all_that_was_held() {
        let chunks = [COMMENT, ROLE, TEXT, ERROR];
        let body = start(&chunks, false).await.unwrap_or_else(|failed| panic!("{failed:?}"));
        assert_eq!(text(body).await, chunks.concat());
    }

    #[tokio::test(start_paused = true)]
    async fn silent_start_passes_in_time() {
        let begun = tokio::time::Instant::now();
        let mut body = start(&[COMMENT], true).await.unwrap_or_else(|failed| panic!("{failed:?}"));
        assert_eq!(begun.elapsed().as_secs(), MAX_HELD_TIME.as_secs());
        assert_eq!(body.next().await, Some(Ok(Bytes::from_static(COMMENT.as_bytes()))));
    }

    #[tokio::test]
    async fn long_start_passes() {
        let comments = vec![COMMENT; MAX_HELD_BYTES / COMMENT.len() + 1];
        assert!(start(&comments, true).await.is_ok());
    }

    #[tokio::test]
    async fn answer_in_one_piece_fails_by_its_error_or_break() {
        let broken = stream::iter([Ok(Bytes::from_static(b"{\"half\":")), Err("broke".to_owned())]).boxed();
        let failed = read_start(broken, GatewayRoute::Chat, false).await.err();
        assert!(matches!(failed, Some(FailedStart::Cut { why, is_stream: false }) if why == "broke"));
        let error = stream::iter([Ok(Bytes::from_static(b"{\"error\":{\"message\":\"no\",\"code\":404}}"))]).boxed();
        let failed = read_start(error, GatewayRoute::Chat, false).await.err();
        assert!(matches!(failed, Some(FailedStart::Error(error)) if error.status == 404));
    }
}
