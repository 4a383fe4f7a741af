//! Time limit for request bodies: a request fails if its client sends no data for a minute.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpMessage,
    dev::{Payload, ServiceRequest},
    error::PayloadError,
    http::header,
};
use bytes::Bytes;
use futures::Stream;
use tokio::time::{Sleep, sleep};

/// Longest silence between two chunks of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes the body of a request fail if no data arrives for [`BODY_TIMEOUT`].
///
/// Applies to requests that announce a body. HTTP itself limits only the time for the head.
pub fn apply_body_timeout(req: &mut ServiceRequest) {
    let headers = req.headers();
    if headers.contains_key(header::CONTENT_LENGTH) || headers.contains_key(header::TRANSFER_ENCODING) {
        let payload = Box::pin(TimedBody { payload: req.take_payload(), silence: None });
        req.set_payload(Payload::Stream { payload });
    }
}

/// Body with a limit for silence.
struct TimedBody {
    payload: Payload,
    /// Runs while no data arrives. Nearly all bodies arrive together with their heads.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Stream for TimedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(chunk) = Pin::new(&mut self.payload).poll_next(cx) {
            self.silence = None;
            return Poll::Ready(chunk);
        }
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(BODY_TIMEOUT)));
        silence.as_mut().poll(cx).map(|()| {
            let reason = format!("no data arrived for {} s", BODY_TIMEOUT.as_secs());
            Some(Err(PayloadError::Io(io::Error::new(io::ErrorKind::TimedOut, reason))))
        })
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use futures::{StreamExt, stream};
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_body_times_out_and_slow_body_does_not() {
        let mut slow = TestRequest::put().insert_header((header::CONTENT_LENGTH, 10)).to_srv_request();
        let chunks = stream::iter(0..3).then(async |_| {
            sleep(BODY_TIMEOUT / 2).await;
            Ok(Bytes::from_static(b"abc"))
        });
        let payload = Box::pin(chunks.chain(stream::pending()));
        slow.set_payload(Payload::Stream { payload });
        apply_body_timeout(&mut slow);
        let mut payload = slow.take_payload();
        for _ in 0..3 {
            assert_eq!(payload.next().await.expect("the body has a chunk").expect("the chunk arrived"), "abc");
        }
        let silent_since = Instant::now();
        let timed_out = timeout(BODY_TIMEOUT * 2, payload.next()).await.expect("the body times out");
        let reason = timed_out.expect("an error is reported").expect_err("no data arrives").to_string();
        assert!(reason.contains("no data arrived for 60 s"), "{reason}");
        assert_eq!(silent_since.elapsed(), BODY_TIMEOUT);
    }
}
