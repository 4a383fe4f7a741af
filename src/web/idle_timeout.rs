//! Connections over which nothing is asked, whose places others need.
//!
//! The HTTP library waits only so long for the first request of a connection, and for the first byte of each that follows, but for
//! ever for the rest of those. So each connection is watched here for how long it has had nothing to answer. What it has to answer
//! is whatever came in as a request, until the last of the answer's body was taken and the kernel has room behind it: uploads and
//! streams may last as long as they do, and so may a client that reads slowly.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    dev::ServiceResponse,
};
use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::connection::Connection;

/// How often a connection without room is asked for some. Mostly its own write is told first.
const ASK_AGAIN: Duration = Duration::from_millis(100);

thread_local! {
    /// Of the connection that is polled now.
    static POLLED: RefCell<Option<Rc<Answers>>> = const { RefCell::new(None) };
}

/// How a connection stands.
#[derive(Debug)]
struct Answers {
    connection: Connection,
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
        response.map_body(|_, body| BoxBody::new(Held { body, is_said: false, ask_again: None, answer: self }))
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
    /// Nothing more comes of the body.
    is_said: bool,
    ask_again: Option<Pin<Box<Sleep>>>,
    answer: Answer,
}

impl Held {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.answer.0.connection.has_room() {
            let ask_again = self.ask_again.get_or_insert_with(|| Box::pin(sleep(ASK_AGAIN)));
            ready!(ask_again.as_mut().poll(cx));
            self.ask_again = None;
        }
        Poll::Ready(())
    }
}

impl MessageBody for Held {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if !self.is_said {
            let piece = ready!(Pin::new(&mut self.body).poll_next(cx));
            if piece.is_some() {
                return Poll::Ready(piece);
            }
            self.is_said = true;
        }
        // The HTTP library may hold the last 32 KiB still. Told that there is nothing more it takes the client for one that is
        // silent, however steadily it reads, and throws them away after `keep_alive`.
        self.poll_room(cx).map(|()| None)
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
    pub(super) fn new(patience: Duration, connection: Connection) -> Watch {
        let answers = Answers { connection, under_way: Cell::new(0), over: Cell::new(Instant::now()) };
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
    use std::{
        future::{pending, poll_fn},
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use actix_web::{HttpResponse, test::TestRequest};
    use tokio::time::timeout;

    use super::*;

    /// The server's end of a connection, and the client's.
    fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("it binds");
        let client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        (listener.accept().expect("somebody came").0, client)
    }

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
        let (server, _client) = ends();
        let watch = Watch::new(Duration::from_secs(10), Connection::of(&server));
        let (mut connection, mut watch) = (Box::pin(connection), watch);
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

    /// Gives the kernel as much as it takes; returns how many bytes.
    fn fill(server: &mut TcpStream) -> usize {
        server.set_nonblocking(true).expect("it can be");
        let (mut given, mut before) = (0, None);
        while before != Some(given) {
            before = Some(given);
            while let Ok(bytes) = server.write(&[0; 64 << 10]) {
                given += bytes;
            }
            // What the client's kernel has taken it says a moment later, and then there is room again.
            std::thread::sleep(Duration::from_millis(100));
        }
        given
    }

    async fn next(body: &mut BoxBody) -> Option<Bytes> {
        poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await.map(|piece| piece.expect("it comes"))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_not_over_while_its_end_may_wait_for_a_slow_client() {
        let (mut server, mut client) = ends();
        let given = fill(&mut server);
        let mut watch = Watch::new(Duration::from_secs(10), Connection::of(&server));
        POLLED.set(Some(watch.answers.clone()));
        let answer = Answer::begin().expect("it is watched");
        POLLED.set(None);
        let response = TestRequest::default().to_srv_response(HttpResponse::Ok().body("x"));
        let mut body = answer.ends_with(response).into_parts().1.into_body();
        assert_eq!(next(&mut body).await.expect("it is said"), "x");
        timeout(Duration::from_secs(300), next(&mut body)).await.expect_err("the client has read nothing yet");
        assert!(poll_fn(|cx| Poll::Ready(watch.poll_over(cx))).await.is_pending());
        client.read_exact(&mut vec![0; given]).expect("it reads");
        assert_eq!(next(&mut body).await, None);
        drop(body);
        poll_fn(|cx| watch.poll_over(cx)).await;
    }
}
