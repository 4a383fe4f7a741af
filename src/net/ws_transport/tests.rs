use std::convert::Infallible;

use actix_web::body::BodyStream;
use futures::stream;
use tokio::net::{TcpSocket, TcpStream};

use super::*;

/// Returns both ends of a connection with small kernel buffers.
async fn connection() -> (TcpStream, ClientStream) {
    let listener = TcpSocket::new_v4().unwrap();
    listener.set_send_buffer_size(4096).unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(1).unwrap();
    let client = TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(4096).unwrap();
    let (client, accepted) = tokio::join!(client.connect(listener.local_addr().unwrap()), listener.accept());
    (client.unwrap(), ClientStream::plain(accepted.unwrap().0))
}

fn with_actor(stream: ClientStream, frames: impl Stream<Item = Result<Bytes, Infallible>> + 'static) -> WsTransport {
    WsTransport::new(stream, BoxBody::new(BodyStream::new(frames)), Rc::new(RefCell::new(ClientInput::Empty)))
}

#[tokio::test(start_paused = true)]
async fn stalled_client_times_out_and_its_actor_is_held_back() {
    let (_client, stream) = connection().await;
    let produced = Rc::new(RefCell::new(0));
    let counts = produced.clone();
    let endless = stream::repeat_with(move || {
        *counts.borrow_mut() += 1000;
        Ok(Bytes::from_static(&[b'x'; 1000]))
    });
    let mut transport = with_actor(stream, endless);
    let began = Instant::now();
    let ended = poll_fn(|cx| transport.poll(cx)).await.unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), STALL_INTERVAL.as_secs() * u64::from(MAX_STALL_INTERVALS));
    assert!(transport.unsent() < SEND_BUFFER_LIMIT + 1000, "the actor was held back");
    assert!(*produced.borrow() < 4 << 20, "{} bytes", produced.borrow());
}

#[tokio::test]
async fn input_of_a_stalled_client_is_processed_within_the_buffer_limit() {
    let (mut client, stream) = connection().await;
    let client_input = Rc::new(RefCell::new(ClientInput::Empty));
    let received = Rc::new(RefCell::new(Vec::new()));
    let (mut input, sink) = (ClientInputStream(client_input.clone()), received.clone());
    let actor = stream::poll_fn(move |cx| {
        if let Poll::Ready(Some(Ok(bytes))) = Pin::new(&mut input).poll_next(cx) {
            sink.borrow_mut().extend_from_slice(&bytes);
        }
        Poll::Ready(Some(Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1000]))))
    });
    let mut transport = WsTransport::new(stream, BoxBody::new(BodyStream::new(actor)), client_input);
    let mut poll_for_a_while = async || timeout(Duration::from_millis(100), poll_fn(|cx| transport.poll(cx))).await;
    poll_for_a_while().await.expect_err("the buffer is full and the connection stays open");
    let frames = ["stop ", "the ", "turn"].map(|word| {
        let header = [0x81, 0x80 | word.len() as u8, 0, 0, 0, 0];
        [&header[..], word.as_bytes()].concat()
    });
    for frame in &frames {
        tokio::io::AsyncWriteExt::write_all(&mut client, frame).await.unwrap();
        poll_for_a_while().await.expect_err("the connection stays open");
    }
    assert_eq!(*received.borrow(), frames.concat());
    assert!(transport.unsent() < SEND_BUFFER_LIMIT + 10_000, "{}", transport.unsent());
}

/// Uses an actor that takes all input and handles a few frames at a time. The actor requests
/// another poll for the rest.
#[tokio::test]
async fn input_is_not_read_faster_than_the_actor_handles_it() {
    const FRAME: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];
    const HANDLED: usize = 16 * READ_SIZE;
    let (mut client, stream) = connection().await;
    let client_input = Rc::new(RefCell::new(ClientInput::Empty));
    let mut input = ClientInputStream(client_input.clone());
    let (mut taken, mut handled, mut is_full) = (0_usize, 0, false);
    let slow_actor = stream::poll_fn(move |cx| {
        if !mem::replace(&mut is_full, true) {
            return Poll::Ready(Some(Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1 << 20]))));
        }
        while let Poll::Ready(Some(Ok(bytes))) = Pin::new(&mut input).poll_next(cx) {
            taken += bytes.len();
        }
        assert!(taken <= 2 * READ_SIZE, "{taken} bytes are queued for the actor");
        let now = taken.min(100);
        taken -= now;
        handled += now;
        if handled >= HANDLED {
            return Poll::Ready(None);
        }
        if taken > 0 {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    });
    let mut transport = WsTransport::new(stream, BoxBody::new(BodyStream::new(slow_actor)), client_input);
    let flooding = async {
        let flood = FRAME.repeat(1000);
        loop {
            tokio::io::AsyncWriteExt::write_all(&mut client, &flood).await.unwrap();
        }
    };
    let handling = poll_fn(|cx| match transport.poll(cx) {
        Poll::Pending if !transport.actor_finished => Poll::Pending,
        ended => Poll::Ready(ended),
    });
    tokio::select! {
        ended = timeout(Duration::from_secs(60), handling) => assert!(ended.is_ok(), "the input is handled"),
        () = flooding => {}
    }
}

#[tokio::test]
async fn all_frames_arrive_through_small_kernel_buffers() {
    let (mut client, stream) = connection().await;
    let frames = (0..3000_usize).map(|n| Bytes::from(vec![n as u8; n % 700]));
    let all: Vec<u8> = frames.clone().flatten().collect();
    let mut transport = with_actor(stream, stream::iter(frames.map(Ok)));
    let mut received = Vec::new();
    let sending = async {
        poll_fn(|cx| transport.poll(cx)).await.unwrap();
        hang_up(transport.stream).await;
    };
    let reading = async {
        tokio::io::AsyncReadExt::read_to_end(&mut client, &mut received).await.unwrap();
        drop(client);
    };
    tokio::join!(sending, reading);
    assert!(received == all, "{} bytes of {}", received.len(), all.len());
}
