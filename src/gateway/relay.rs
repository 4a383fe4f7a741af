//! Carries one answer from a provider to a client: at once, metered, and over a pause of the client.
//!
//! Two halves with a buffer between them. A task of its own reads the provider, so that a frozen sandbox does not stop the
//! stream; the connection to the client takes from the buffer whenever it can write.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, Fuse},
};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{StatusCode, body::Frame};
use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
    },
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    Notice,
    endpoint::Door,
    lines::Lines,
    meter::Meter,
    refusal::{Refusal, in_words, scrubbed},
    route::Route,
    upstream::Source,
};

/// How much of its providers' answers one session may keep for a client that does not read, bytes. When it is full the
/// providers are held back.
pub(super) const BUFFER: usize = 16 * 1024 * 1024;

/// What each piece in it costs beside its bytes.
const PIECE: usize = 128;

/// How long a provider is heard out whose client has gone when all but the usage was said.
const HEARD_OUT: Duration = Duration::from_secs(2);

/// What a client's body is made of.
pub(super) type Body = UnsyncBoxBody<Bytes, Aborted>;

/// Ends a body in a way that its reader sees: the connection is closed before the body is complete.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut")]
pub(super) struct Aborted;

/// One answer on its way.
pub(super) struct Relay {
    pub(super) route: Route,
    pub(super) is_stream: bool,
    /// Cancelled by an interrupt, and when the endpoint goes.
    pub(super) cut: CancellationToken,
    pub(super) tally: Tally,
    /// Held until the provider's answer is here, whole or not.
    pub(super) place: OwnedSemaphorePermit,
}

enum Piece {
    /// The permit is its room in the buffer.
    Data(Bytes, OwnedSemaphorePermit),
    /// An error in the provider's shape, after which the body ends as if it were whole.
    Last(Bytes),
    /// The body is whole. Without it a task that went away would look like an answer that ended.
    Whole,
    Abort,
}

/// How the provider's half ended.
enum End {
    Whole,
    /// By an interrupt.
    Cut,
    HungUp,
    Broken(String),
}

impl Relay {
    /// Begins to read `source`, and gives what the client shall read.
    pub(super) fn start(self, source: Source) -> Body {
        // Bounded by the buffer's permits: each piece in it holds as many as it has bytes.
        let (sender, receiver) = mpsc::unbounded_channel();
        let outlet = outlet(receiver, self.cut.clone());
        tokio::spawn(self.run(source, sender));
        StreamBody::new(outlet).boxed_unsync()
    }

    async fn run(mut self, source: Source, out: UnboundedSender<Piece>) {
        // Fused, as it may have ended when the client hangs up, and is asked once more.
        let (cut, mut source, mut lines) = (self.cut.clone(), source.fuse(), Lines::default());
        let end = tokio::select! {
            biased;
            () = cut.cancelled() => End::Cut,
            () = out.closed() => End::HungUp,
            end = self.forward(&mut source, &mut lines, &out) => end,
        };
        if matches!(end, End::HungUp) && self.is_made() {
            // What it took follows within a moment. Whoever hung up just before that would pay an estimate, and less.
            let heard_out = timeout(HEARD_OUT, self.forward(&mut source, &mut lines, &out));
            tokio::select! {
                biased;
                () = cut.cancelled() => {}
                _ = heard_out => {}
            }
        }
        let Relay { route, is_stream, tally, place, .. } = self;
        // Told before the client sees the end, so that its next call is judged by what this one took.
        let refusal = tally.close(end);
        drop(place);
        let last = match refusal {
            Some(refusal) if is_stream && !lines.is_torn() => Piece::Last(refusal.event(route)),
            Some(_) => Piece::Abort,
            None => Piece::Whole,
        };
        // A client that has gone needs no last words.
        let _ = out.send(last);
    }

    /// Whether the provider has made all of the answer, as far as is known, and has yet to tell what it took. One in one piece
    /// is made before it begins to come.
    fn is_made(&self) -> bool {
        self.route.is_metered() && (!self.is_stream || self.tally.meter.owes_only_the_usage())
    }

    /// May be dropped and begun again: what has come is metered before anything is waited for.
    async fn forward(&mut self, source: &mut Fuse<Source>, lines: &mut Lines, out: &UnboundedSender<Piece>) -> End {
        while let Some(piece) = source.next().await {
            let piece = match piece {
                Ok(piece) if self.is_stream => lines.push(piece),
                Ok(piece) => piece,
                Err(why) => return End::Broken(why),
            };
            self.meter(&piece, lines);
            self.pass(piece, out).await;
        }
        let rest = lines.rest();
        self.meter(&rest, lines);
        self.pass(rest, out).await;
        if self.is_stream {
            self.tally.end_of_stream()
        } else {
            self.tally.meter.whole();
            End::Whole
        }
    }

    fn meter(&mut self, piece: &[u8], lines: &Lines) {
        let meter = &mut self.tally.meter;
        if !self.is_stream {
            meter.part(piece);
        } else if lines.is_torn() {
            meter.torn(piece);
        } else {
            meter.lines(piece);
        }
    }

    async fn pass(&mut self, piece: Bytes, out: &UnboundedSender<Piece>) {
        if piece.is_empty() {
            return;
        }
        // Copied, as it is a part of a larger block of the HTTP library, and would keep it.
        let piece = Bytes::copy_from_slice(&piece);
        let room = (piece.len() + PIECE).min(BUFFER) as u32;
        let buffer: Arc<Semaphore> = self.tally.door.buffer.clone();
        let permit = buffer.acquire_many_owned(room).await.expect("the buffer's semaphore is never closed");
        // A client that has gone is noticed by `run`.
        let _ = out.send(Piece::Data(piece, permit));
    }
}

/// What the client reads. After a cut nothing that was buffered passes any more.
fn outlet(
    pieces: UnboundedReceiver<Piece>,
    cut: CancellationToken,
) -> impl Stream<Item = Result<Frame<Bytes>, Aborted>> {
    stream::unfold(Some(pieces), move |pieces| {
        let cut = cut.clone();
        async move {
            let mut pieces = pieces?;
            let next = tokio::select! {
                biased;
                () = cut.cancelled() => None,
                piece = pieces.recv() => Some(piece),
            };
            let piece = match next {
                Some(piece) => piece.unwrap_or(Piece::Abort),
                None => last_words(&mut pieces).await,
            };
            match piece {
                Piece::Data(data, _room) => Some((Ok(Frame::data(data)), Some(pieces))),
                Piece::Last(data) => Some((Ok(Frame::data(data)), None)),
                Piece::Whole => None,
                Piece::Abort => Some((Err(Aborted), None)),
            }
        }
    })
}

async fn last_words(pieces: &mut UnboundedReceiver<Piece>) -> Piece {
    while let Some(piece) = pieces.recv().await {
        match piece {
            Piece::Data(..) => {}
            // What was dropped on the way here is missing.
            Piece::Whole => return Piece::Abort,
            Piece::Last(_) | Piece::Abort => return piece,
        }
    }
    Piece::Abort
}

/// How many tokens a request is thought to have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Thought {
    /// By its bytes.
    pub(super) sent: u64,
    /// With what it points at, of which nobody here knows the size.
    pub(super) most: u64,
}

/// What one call took, told to its session exactly once, however the call ends: also where the server is asked to end
/// ([`super::Gateway::close`]), and not where it is killed.
pub(super) struct Tally {
    pub(super) door: Arc<Door>,
    pub(super) route: Route,
    /// As the provider names it.
    pub(super) model: String,
    /// What the input is thought to have, where the provider does not come to tell.
    pub(super) input: Thought,
    pub(super) meter: Meter,
    /// A provider has it, as far as is known, and does what it will ask money for: also before the first byte of its answer, of
    /// which a whole one may be made by then.
    pub(super) is_owed: bool,
}

impl Tally {
    /// A stream that ends before the provider said that it would was cut on the way.
    fn end_of_stream(&self) -> End {
        if self.route.is_metered() && !self.meter.is_complete() {
            return End::Broken("the provider's stream ended before its answer was complete".to_owned());
        }
        End::Whole
    }

    /// Tells the session; what comes back is what the agent has yet to be told.
    fn close(self, end: End) -> Option<Refusal> {
        match end {
            End::Whole => {
                if let Some(mishap) = self.meter.error() {
                    let (api, options) = (self.route.api(), self.door.gateway.options());
                    let message = scrubbed(&mishap.message, options.provider(api).api_key.as_ref());
                    let why = in_words(api, &self.model, mishap.status, message.as_bytes());
                    self.door.account.notice(Notice::Refused { status: mishap.status, why });
                }
                None
            }
            End::Cut => Some(Refusal::interrupted()),
            End::HungUp => None,
            End::Broken(why) => {
                self.door
                    .account
                    .notice(Notice::Refused { status: StatusCode::BAD_GATEWAY.as_u16(), why: why.clone() });
                Some(Refusal::new(StatusCode::BAD_GATEWAY, "api_error", why))
            }
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if self.route.is_metered() && self.is_owed {
            // A provider that says that it failed has not been hung up on.
            let input = if self.meter.error().is_some() { self.input.sent } else { self.input.most };
            let mut metered = self.meter.metered(&self.model, input);
            self.door.gateway.options().price(&mut metered, &self.model);
            self.door.account.notice(Notice::Used(metered));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::gateway::{Account, Endpoint, Forbidden, Gateway, GatewayOptions};

    struct Nobody;

    impl Account for Nobody {
        fn may_call(&self) -> Result<(), Forbidden> {
            Ok(())
        }

        fn has_budget(&self) -> bool {
            false
        }

        fn notice(&self, _: Notice) {}
    }

    /// What was pulled of an endless answer in such pieces that nobody reads at first, and then so many times.
    async fn pulled(piece: impl Fn() -> Bytes + Send + 'static, reads: usize) -> usize {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = tokio::net::UnixListener::bind(directory.path().join("s")).expect("a socket");
        let gateway = Gateway::new(GatewayOptions::default()).expect("the options are right");
        let door = Endpoint::open(gateway, listener, Arc::new(Nobody)).door();
        let tally = Tally {
            door: door.clone(),
            route: Route::Chat,
            model: String::new(),
            input: Thought::default(),
            meter: Meter::new(Route::Chat),
            is_owed: true,
        };
        let place = door.calls.clone().acquire_owned().await.expect("there is a place");
        let cut = CancellationToken::new();
        let relay = Relay { route: Route::Chat, is_stream: false, cut: cut.clone(), tally, place };
        let pulled = Arc::new(AtomicUsize::new(0));
        let counter = pulled.clone();
        let endless = stream::repeat_with(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(piece())
        });
        let mut body = relay.start(endless.boxed());
        let settle = async || {
            let mut before = usize::MAX;
            while before != pulled.load(Ordering::Relaxed) {
                before = pulled.load(Ordering::Relaxed);
                for _ in 0..1000 {
                    tokio::task::yield_now().await;
                }
            }
        };
        settle().await;
        for _ in 0..reads {
            drop(body.frame().await);
        }
        settle().await;
        // An answer in one piece would be heard out.
        cut.cancel();
        pulled.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn what_nobody_reads_is_bounded() {
        const MIB: usize = 1024 * 1024;
        let large = || Bytes::from(vec![b'x'; MIB]);
        // One more than fits is in hand, and waits for room.
        assert_eq!(pulled(large, 0).await, BUFFER / (MIB + PIECE) + 1);
        assert_eq!(pulled(large, 3).await, BUFFER / (MIB + PIECE) + 4);
        assert_eq!(pulled(|| Bytes::from_static(b"x"), 0).await, BUFFER / (1 + PIECE) + 1);
    }

    #[tokio::test]
    async fn a_piece_does_not_keep_the_block_that_it_came_in() {
        struct Block(Arc<AtomicUsize>, [u8; 8]);
        impl AsRef<[u8]> for Block {
            fn as_ref(&self) -> &[u8] {
                &self.1
            }
        }
        impl Drop for Block {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let kept = Arc::new(AtomicUsize::new(0));
        let counter = kept.clone();
        let in_a_block = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Bytes::from_owner(Block(counter.clone(), *b"a token\n")).slice(..2)
        };
        assert!(pulled(in_a_block, 0).await > 1000);
        assert!(kept.load(Ordering::Relaxed) <= 1, "{kept:?}");
    }
}
