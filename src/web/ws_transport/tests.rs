use std::convert::Infallible;

use actix_web::body::BodyStream;
use futures::stream;
use tokio::net::TcpSocket;

use super::*;

/// Both ends of a connection that holds little on its way.
async fn connection() -> (TcpStream, TcpStream) {
    let listening = TcpSocket::new_v4().unwrap();
    listening.set_send_buffer_size(4096).unwrap();
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listening = listening.listen(1).unwrap();
    let client = TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(4096).unwrap();
    let (client, accepted) = tokio::join!(client.connect(listening.local_addr().unwrap()), listening.accept());
    (client.unwrap(), accepted.unwrap().0)
}

fn with_actor(stream: TcpStream, says: impl Stream<Item = Result<Bytes, Infallible>> + 'static) -> WsTransport {
    WsTransport::new(stream, BoxBody::new(BodyStream::new(says)), Rc::new(RefCell::new(ClientInput::Empty)))
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_given_up_and_its_actor_held_back() {
    let (_client, stream) = connection().await;
    let said = Rc::new(RefCell::new(0));
    let counts = said.clone();
    let endless = stream::repeat_with(move || {
        *counts.borrow_mut() += 1000;
        Ok(Bytes::from_static(&[b'x'; 1000]))
    });
    let mut upgraded = with_actor(stream, endless);
    let began = Instant::now();
    let ended = poll_fn(|cx| upgraded.poll(cx)).await.unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), STALL_INTERVAL.as_secs() * u64::from(MAX_STALL_INTERVALS));
    assert!(upgraded.unsent() < SEND_BUFFER_LIMIT + 1000, "it was held back");
    assert!(*said.borrow() < 4 << 20, "{} bytes", said.borrow());
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_heard_and_costs_no_more_for_it() {
    let (mut client, stream) = connection().await;
    let arrived = Rc::new(RefCell::new(ClientInput::Empty));
    let heard = Rc::new(RefCell::new(Vec::new()));
    let (mut hearing, hears) = (ClientInputStream(arrived.clone()), heard.clone());
    let speaks_and_hears = stream::poll_fn(move |cx| {
        if let Poll::Ready(Some(Ok(bytes))) = Pin::new(&mut hearing).poll_next(cx) {
            hears.borrow_mut().extend_from_slice(&bytes);
        }
        Poll::Ready(Some(Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1000]))))
    });
    let mut upgraded = WsTransport::new(stream, BoxBody::new(BodyStream::new(speaks_and_hears)), arrived);
    let mut poll_for_a_while = async || timeout(Duration::from_millis(100), poll_fn(|cx| upgraded.poll(cx))).await;
    poll_for_a_while().await.expect_err("it is full, and goes on");
    for word in ["stop ", "I ", "said"] {
        tokio::io::AsyncWriteExt::write_all(&mut client, word.as_bytes()).await.unwrap();
        poll_for_a_while().await.expect_err("it goes on");
    }
    assert_eq!(*heard.borrow(), b"stop I said");
    assert!(upgraded.unsent() < SEND_BUFFER_LIMIT + 10_000, "{}", upgraded.unsent());
}

/// As an actor does: it takes all that has arrived, deals with a few frames of it, and calls for the rest.
#[tokio::test]
async fn what_a_client_says_that_takes_nothing_does_not_pile_up() {
    const FRAME: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];
    const DEALT_WITH: usize = 16 * READ_SIZE;
    let (mut client, stream) = connection().await;
    let arrived = Rc::new(RefCell::new(ClientInput::Empty));
    let mut hearing = ClientInputStream(arrived.clone());
    let (mut taken, mut dealt_with, mut is_full) = (0_usize, 0, false);
    let deals_slowly = stream::poll_fn(move |cx| {
        if !mem::replace(&mut is_full, true) {
            return Poll::Ready(Some(Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1 << 20]))));
        }
        while let Poll::Ready(Some(Ok(bytes))) = Pin::new(&mut hearing).poll_next(cx) {
            taken += bytes.len();
        }
        assert!(taken <= 2 * READ_SIZE, "{taken} bytes wait for the actor");
        let deals_with = taken.min(100);
        taken -= deals_with;
        dealt_with += deals_with;
        if dealt_with >= DEALT_WITH {
            return Poll::Ready(None);
        }
        if taken > 0 {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    });
    let mut upgraded = WsTransport::new(stream, BoxBody::new(BodyStream::new(deals_slowly)), arrived);
    let flooding = async {
        let flood = FRAME.repeat(1000);
        loop {
            tokio::io::AsyncWriteExt::write_all(&mut client, &flood).await.unwrap();
        }
    };
    let dealing = poll_fn(|cx| match upgraded.poll(cx) {
        Poll::Pending if !upgraded.actor_finished => Poll::Pending,
        ended => Poll::Ready(ended),
    });
    tokio::select! {
        ended = timeout(Duration::from_secs(60), dealing) => assert!(ended.is_ok(), "it is heard"),
        () = flooding => {}
    }
}

#[tokio::test]
async fn everything_arrives_whole_through_a_narrow_connection() {
    let (mut client, stream) = connection().await;
    let pieces = (0..3000_usize).map(|n| Bytes::from(vec![n as u8; n % 700]));
    let all: Vec<u8> = pieces.clone().flatten().collect();
    let mut upgraded = with_actor(stream, stream::iter(pieces.map(Ok)));
    let mut heard = Vec::new();
    let sending = async {
        poll_fn(|cx| upgraded.poll(cx)).await.unwrap();
        hang_up(upgraded.stream).await;
    };
    let reading = async {
        tokio::io::AsyncReadExt::read_to_end(&mut client, &mut heard).await.unwrap();
        drop(client);
    };
    tokio::join!(sending, reading);
    assert!(heard == all, "{} bytes of {}", heard.len(), all.len());
}
