//! Bodies that do not come: how long a client may be silent in the middle of one.

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

/// Between two pieces of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Has a request that announces a body fail where nothing more of it comes for a minute. What HTTP itself watches is the head.
pub(super) fn apply_body_timeout(req: &mut ServiceRequest) {
    let headers = req.headers();
    if headers.contains_key(header::CONTENT_LENGTH) || headers.contains_key(header::TRANSFER_ENCODING) {
        let payload = Box::pin(TimedBody { payload: req.take_payload(), silence: None });
        req.set_payload(Payload::Stream { payload });
    }
}

struct TimedBody {
    payload: Payload,
    /// Runs while nothing comes. Nearly all bodies are there with their heads.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Stream for TimedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(piece) = Pin::new(&mut self.payload).poll_next(cx) {
            self.silence = None;
            return Poll::Ready(piece);
        }
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(BODY_TIMEOUT)));
        silence.as_mut().poll(cx).map(|()| {
            let why = format!("nothing of it came for {} s", BODY_TIMEOUT.as_secs());
            Some(Err(PayloadError::Io(io::Error::new(io::ErrorKind::TimedOut, why))))
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
    async fn a_body_that_stops_coming_is_given_up_and_a_slow_one_is_not() {
        let mut slow = TestRequest::put().insert_header((header::CONTENT_LENGTH, 10)).to_srv_request();
        let pieces = stream::iter(0..3).then(async |_| {
            sleep(BODY_TIMEOUT / 2).await;
            Ok(Bytes::from_static(b"abc"))
        });
        let payload = Box::pin(pieces.chain(stream::pending()));
        slow.set_payload(Payload::Stream { payload });
        apply_body_timeout(&mut slow);
        let mut payload = slow.take_payload();
        for _ in 0..3 {
            assert_eq!(payload.next().await.expect("a piece").expect("it came"), "abc");
        }
        let silent_since = Instant::now();
        let given_up = timeout(BODY_TIMEOUT * 2, payload.next()).await.expect("it is given up");
        let why = given_up.expect("it is told").expect_err("there is no more").to_string();
        assert!(why.contains("nothing of it came for 60 s"), "{why}");
        assert_eq!(silent_since.elapsed(), BODY_TIMEOUT);
    }
}
