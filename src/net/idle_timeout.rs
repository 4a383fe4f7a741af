//! Idle timeout: closes connections without requests, whose places other clients need.
//!
//! The HTTP library limits the time for a connection's first request and for the first byte of each
//! later request. The rest of a later request has no limit. So each connection is watched here for
//! the time without a response in progress.
//!
//! A response is in progress from the arrival of its request. The response ends when its body is
//! taken and the kernel's send buffer has room. So uploads, streams and slow readers may take any
//! time.

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

use super::tcp_connection::TcpConnection;

/// Interval of checks for room in a connection's send buffer. Mostly the connection's own write
/// wakes the task first.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    /// Activity of the connection that is being polled.
    static POLLED: RefCell<Option<Rc<ConnectionActivity>>> = const { RefCell::new(None) };
}

/// State of a watched connection.
#[derive(Debug)]
struct ConnectionActivity {
    connection: TcpConnection,
    /// Number of responses since the connection was accepted.
    responses: Cell<u64>,
    active_responses: Cell<usize>,
    /// End of the last response.
    last_response_ended: Cell<Instant>,
}

/// Number of the application's responses on the connection that is being polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResponseCounts {
    pub begun: u64,
    pub active: usize,
}

impl ResponseCounts {
    /// Returns `None` outside of a watched connection.
    pub(super) fn of_polled() -> Option<ResponseCounts> {
        POLLED.with_borrow(|activity| {
            let activity = activity.as_ref()?;
            Some(ResponseCounts { begun: activity.responses.get(), active: activity.active_responses.get() })
        })
    }
}

/// Response in progress on a watched connection.
#[derive(Debug)]
pub struct ActiveResponse(Rc<ConnectionActivity>);

impl ActiveResponse {
    /// Marks the arrival of a request. Returns `None` if its connection has moved to another
    /// thread.
    pub fn begin() -> Option<ActiveResponse> {
        let activity = POLLED.with_borrow(Clone::clone)?;
        activity.responses.update(|count| count + 1);
        activity.active_responses.update(|count| count + 1);
        Some(ActiveResponse(activity))
    }

    /// Keeps the response in progress until the body of `response` ends.
    pub fn track_body(self, response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
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

/// Body that keeps its response in progress.
struct TrackedBody {
    body: BoxBody,
    /// The inner body has ended.
    body_ended: bool,
    room_timer: Option<Pin<Box<Sleep>>>,
    response: ActiveResponse,
}

impl TrackedBody {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.response.0.connection.has_room() {
            let timer = self.room_timer.get_or_insert_with(|| Box::pin(sleep(ROOM_POLL_INTERVAL)));
            ready!(timer.as_mut().poll(cx));
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
            let chunk = ready!(Pin::new(&mut self.body).poll_next(cx));
            if chunk.is_some() {
                return Poll::Ready(chunk);
            }
            self.body_ended = true;
        }
        // The HTTP library may still hold the last 32 KiB. After the end of the body the library
        // treats even a steady reader as silent. It then drops those bytes after `keep_alive`.
        self.poll_room(cx).map(|()| None)
    }
}

/// Watch over one connection.
#[derive(Debug)]
pub(super) struct IdleWatch {
    activity: Rc<ConnectionActivity>,
    idle_timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleWatch {
    pub(super) fn new(idle_timeout: Duration, connection: TcpConnection) -> IdleWatch {
        let activity = ConnectionActivity {
            connection,
            responses: Cell::new(0),
            active_responses: Cell::new(0),
            last_response_ended: Cell::new(Instant::now()),
        };
        IdleWatch { activity: Rc::new(activity), idle_timeout, timer: None }
    }

    /// Polls the connection, with its activity as the current one.
    pub(super) fn poll<F: Future>(&self, connection: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        POLLED.set(Some(self.activity.clone()));
        let polled = connection.poll(cx);
        POLLED.set(None);
        polled
    }

    /// Returns ready if no response was in progress for the idle timeout. Otherwise wakes the task
    /// at that time.
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

    /// Returns the server's end of a connection, and the client's.
    fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the listener binds");
        let client =
            TcpStream::connect(listener.local_addr().expect("the listener is bound")).expect("the client connects");
        (listener.accept().expect("a client has connected").0, client)
    }

    /// Checks the time in seconds at which a connection is closed. Each response is in progress
    /// from the first number to the second.
    async fn check(responses: &[(u64, u64)], expected: u64) {
        let began = Instant::now();
        let after = |seconds| tokio::time::sleep_until(began + Duration::from_secs(seconds));
        let connection = async {
            for (begins, ends) in responses {
                after(*begins).await;
                let active = ActiveResponse::begin().expect("the connection is watched");
                let response = TestRequest::default().to_srv_response(HttpResponse::Ok().body("x"));
                let mut response = active.track_body(response).map_into_boxed_body();
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
            Poll::Ready(()) => unreachable!("the connection stays open"),
            Poll::Pending => watch.poll_idle(cx),
        })
        .await;
        assert_eq!(began.elapsed().as_secs(), expected, "{responses:?}");
        assert!(ActiveResponse::begin().is_none(), "no connection is polled");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed_after_the_timeout() {
        check(&[], 10).await;
        check(&[(0, 0)], 10).await;
        check(&[(5, 100)], 110).await;
        check(&[(5, 6), (15, 16)], 26).await;
    }

    /// Fills the kernel's buffers and returns the number of bytes.
    fn fill(server: &mut TcpStream) -> usize {
        server.set_nonblocking(true).expect("the socket supports non-blocking mode");
        let (mut written, mut last) = (0, None);
        while last != Some(written) {
            last = Some(written);
            while let Ok(bytes) = server.write(&[0; 64 << 10]) {
                written += bytes;
            }
            // The client's kernel acknowledges data a moment later. Then there is room again.
            std::thread::sleep(Duration::from_millis(100));
        }
        written
    }

    async fn next(body: &mut BoxBody) -> Option<Bytes> {
        poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await.map(|chunk| chunk.expect("the chunk arrives"))
    }

    #[tokio::test(start_paused = true)]
    async fn response_stays_active_until_a_slow_client_reads_its_end() {
        let (mut server, mut client) = ends();
        let written = fill(&mut server);
        let mut watch = IdleWatch::new(Duration::from_secs(10), TcpConnection::of(&server));
        POLLED.set(Some(watch.activity.clone()));
        let active = ActiveResponse::begin().expect("the connection is watched");
        POLLED.set(None);
        let response = TestRequest::default().to_srv_response(HttpResponse::Ok().body("x"));
        let mut body = active.track_body(response).into_parts().1.into_body();
        assert_eq!(next(&mut body).await.expect("the body has a chunk"), "x");
        timeout(Duration::from_secs(300), next(&mut body)).await.expect_err("the client has read nothing yet");
        assert!(poll_fn(|cx| Poll::Ready(watch.poll_idle(cx))).await.is_pending());
        client.read_exact(&mut vec![0; written]).expect("the client reads");
        assert_eq!(next(&mut body).await, None);
        drop(body);
        poll_fn(|cx| watch.poll_idle(cx)).await;
    }
}
