//! Connections over which nothing is asked, whose places others need.
//!
//! The HTTP library waits only so long for the first request of a connection, and for the first byte of each that follows, but for
//! ever for the rest of those. So each connection is watched here for how long it has had nothing to answer. What it has to answer
//! is whatever came in as a request, until the last of the answer's body was taken: uploads and streams may last as long as they do.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    dev::ServiceResponse,
};
use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

thread_local! {
    /// Of the connection that is polled now.
    static POLLED: RefCell<Option<Rc<Answers>>> = const { RefCell::new(None) };
}

/// How a connection stands.
#[derive(Debug)]
struct Answers {
    under_way: Cell<usize>,
    /// When the last of them was over.
    over: Cell<Instant>,
}

/// An answer that is under way over a connection that is watched.
#[derive(Debug)]
pub(super) struct Answer(Rc<Answers>);

impl Answer {
    /// To be called where a request comes in; `None` where its connection has moved to another thread.
    pub(super) fn begin() -> Option<Answer> {
        let answers = POLLED.with_borrow(Clone::clone)?;
        answers.under_way.update(|count| count + 1);
        Some(Answer(answers))
    }

    /// It is over once the body of `response` is.
    pub(super) fn ends_with(self, response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
        response.map_body(|_, body| BoxBody::new(Held { body, _until_then: self }))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.under_way.update(|count| count - 1);
        self.0.over.set(Instant::now());
    }
}

struct Held {
    body: BoxBody,
    _until_then: Answer,
}

impl MessageBody for Held {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}

/// Watches one connection.
#[derive(Debug)]
pub(super) struct Watch {
    answers: Rc<Answers>,
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Watch {
    pub(super) fn new(patience: Duration) -> Watch {
        let answers = Answers { under_way: Cell::new(0), over: Cell::new(Instant::now()) };
        Watch { answers: Rc::new(answers), patience, timer: None }
    }

    /// Polls the connection.
    pub(super) fn poll<F: Future>(&self, connection: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        POLLED.set(Some(self.answers.clone()));
        let polled = connection.poll(cx);
        POLLED.set(None);
        polled
    }

    /// Whether nothing was to be answered for too long; wakes when it will have been.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.answers.under_way.get() > 0 {
            self.timer = None;
            return Poll::Pending;
        }
        let at = self.answers.over.get() + self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use actix_web::{HttpResponse, test::TestRequest};

    use super::*;

    /// When a connection is over that has an answer under way after `begins` and until `ends`, in seconds.
    async fn check(answers: &[(u64, u64)], expected: u64) {
        let began = Instant::now();
        let after = |seconds| tokio::time::sleep_until(began + Duration::from_secs(seconds));
        let connection = async {
            for (begins, ends) in answers {
                after(*begins).await;
                let answer = Answer::begin().expect("it is watched");
                let response = TestRequest::default().to_srv_response(HttpResponse::Ok().body("x"));
                let mut response = answer.ends_with(response).map_into_boxed_body();
                assert_eq!(response.response_mut().body().size(), BodySize::Sized(1));
                after(*ends).await;
                drop(response);
            }
            pending::<()>().await;
        };
        let (mut connection, mut watch) = (Box::pin(connection), Watch::new(Duration::from_secs(10)));
        poll_fn(|cx| match watch.poll(connection.as_mut(), cx) {
            Poll::Ready(()) => unreachable!("it goes on"),
            Poll::Pending => watch.poll_over(cx),
        })
        .await;
        assert_eq!(began.elapsed().as_secs(), expected, "{answers:?}");
        assert!(Answer::begin().is_none(), "none is polled");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_over_when_it_was_quiet_for_long_enough() {
        check(&[], 10).await;
        check(&[(0, 0)], 10).await;
        check(&[(5, 100)], 110).await;
        check(&[(5, 6), (15, 16)], 26).await;
    }
}
