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

use super::connection::TcpConnection;

/// How often a connection without room is asked for some. Mostly its own write is told first.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    /// Of the connection that is polled now.
    static POLLED: RefCell<Option<Rc<ConnectionActivity>>> = const { RefCell::new(None) };
}

/// How a connection stands.
#[derive(Debug)]
struct ConnectionActivity {
    connection: TcpConnection,
    active_responses: Cell<usize>,
    /// When the last of them was over.
    last_response_ended: Cell<Instant>,
}

/// An answer that is under way over a connection that is watched.
#[derive(Debug)]
pub(super) struct ActiveResponse(Rc<ConnectionActivity>);

impl ActiveResponse {
    /// To be called where a request comes in; `None` where its connection has moved to another thread.
    pub(super) fn begin() -> Option<ActiveResponse> {
        let answers = POLLED.with_borrow(Clone::clone)?;
        answers.active_responses.update(|count| count + 1);
        Some(ActiveResponse(answers))
    }

    /// It is over once the body of `response` is.
    pub(super) fn track_body(self, response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
        response
            .map_body(|_, body| BoxBody::new(TrackedBody { body, body_ended: false, room_timer: None, response: self }))
    }
}

impl Drop for ActiveResponse {
    fn drop(&mut self) {
        self.0.active_responses.update(|count| count - 1);
        self.0.last_response_ended.set(Instant::now());
    }
}

struct TrackedBody {
    body: BoxBody,
    /// Nothing more comes of the body.
    body_ended: bool,
    room_timer: Option<Pin<Box<Sleep>>>,
    response: ActiveResponse,
}

impl TrackedBody {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.response.0.connection.has_room() {
            let ask_again = self.room_timer.get_or_insert_with(|| Box::pin(sleep(ROOM_POLL_INTERVAL)));
            ready!(ask_again.as_mut().poll(cx));
            self.room_timer = None;
        }
        Poll::Ready(())
    }
}

impl MessageBody for TrackedBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if !self.body_ended {
            let piece = ready!(Pin::new(&mut self.body).poll_next(cx));
            if piece.is_some() {
                return Poll::Ready(piece);
            }
            self.body_ended = true;
        }
        // The HTTP library may hold the last 32 KiB still. Told that there is nothing more it takes the client for one that is
        // silent, however steadily it reads, and throws them away after `keep_alive`.
        self.poll_room(cx).map(|()| None)
    }
}

/// Watches one connection.
#[derive(Debug)]
pub(super) struct IdleWatch {
    activity: Rc<ConnectionActivity>,
    idle_timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleWatch {
    pub(super) fn new(idle_timeout: Duration, connection: TcpConnection) -> IdleWatch {
        let answers = ConnectionActivity {
            connection,
            active_responses: Cell::new(0),
            last_response_ended: Cell::new(Instant::now()),
        };
        IdleWatch { activity: Rc::new(answers), idle_timeout, timer: None }
    }

    /// Polls the connection.
    pub(super) fn poll<F: Future>(&self, connection: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        POLLED.set(Some(self.activity.clone()));
        let polled = connection.poll(cx);
        POLLED.set(None);
        polled
    }

    /// Whether nothing was to be answered for too long; wakes when it will have been.
    pub(super) fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.activity.active_responses.get() > 0 {
            self.timer = None;
            return Poll::Pending;
        }
        let at = self.activity.last_response_ended.get() + self.idle_timeout;
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
                let answer = ActiveResponse::begin().expect("it is watched");
                let response = TestRequest::default().to_srv_response(HttpResponse::Ok().body("x"));
                let mut response = answer.track_body(response).map_into_boxed_body();
                assert_eq!(response.response_mut().body().size(), BodySize::Sized(1));
                after(*ends).await;
                drop(response);
            }
            pending::<()>().await;
        };
        let (server, _client) = ends();
        let watch = IdleWatch::new(Duration::from_secs(10), TcpConnection::of(&server));
        let (mut connection, mut watch) = (Box::pin(connection), watch);
        poll_fn(|cx| match watch.poll(connection.as_mut(), cx) {
            Poll::Ready(()) => unreachable!("it goes on"),
            Poll::Pending => watch.poll_idle(cx),
        })
        .await;
        assert_eq!(began.elapsed().as_secs(), expected, "{answers:?}");
        assert!(ActiveResponse::begin().is_none(), "none is polled");
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
        let mut watch = IdleWatch::new(Duration::from_secs(10), TcpConnection::of(&server));
        POLLED.set(Some(watch.activity.clone()));
        let answer = ActiveResponse::begin().expect("it is watched");
        POLLED.set(None);
        let response = TestRequest::default().to_srv_response(HttpResponse::Ok().body("x"));
        let mut body = answer.track_body(response).into_parts().1.into_body();
        assert_eq!(next(&mut body).await.expect("it is said"), "x");
        timeout(Duration::from_secs(300), next(&mut body)).await.expect_err("the client has read nothing yet");
        assert!(poll_fn(|cx| Poll::Ready(watch.poll_idle(cx))).await.is_pending());
        client.read_exact(&mut vec![0; given]).expect("it reads");
        assert_eq!(next(&mut body).await, None);
        drop(body);
        poll_fn(|cx| watch.poll_idle(cx)).await;
    }
}
