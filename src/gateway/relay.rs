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
    GatewayNotice,
    endpoint::EndpointContext,
    error_response::{EndpointError, describe_rejection, scrubbed},
    line_buffer::LineBuffer,
    meter::UsageMeter,
    route::GatewayRoute,
    upstream::UpstreamBody,
};

/// How much of its providers' answers one session may keep for a client that does not read, bytes. When it is full the
/// providers are held back.
pub(super) const RELAY_BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// What each piece in it costs beside its bytes.
const PIECE_OVERHEAD: usize = 128;

/// How long a provider is heard out whose client has gone when all but the usage was said.
const USAGE_GRACE: Duration = Duration::from_secs(2);

/// What a client's body is made of.
pub(super) type RelayBody = UnsyncBoxBody<Bytes, RelayAborted>;

/// Ends a body in a way that its reader sees: the connection is closed before the body is complete.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut")]
pub(super) struct RelayAborted;

/// One answer on its way.
pub(super) struct ResponseRelay {
    pub(super) route: GatewayRoute,
    pub(super) is_stream: bool,
    /// Cancelled by an interrupt, and when the endpoint goes.
    pub(super) abort_token: CancellationToken,
    pub(super) usage_recorder: UsageRecorder,
    /// Held until the provider's answer is here, whole or not.
    pub(super) call_permit: OwnedSemaphorePermit,
}

enum RelayPiece {
    /// The permit is its room in the buffer.
    Data(Bytes, OwnedSemaphorePermit),
    /// An error in the provider's shape, after which the body ends as if it were whole.
    FinalError(Bytes),
    /// The body is whole. Without it a task that went away would look like an answer that ended.
    Complete,
    Abort,
}

/// How the provider's half ended.
enum RelayEnd {
    Complete,
    /// By an interrupt.
    Interrupted,
    ClientGone,
    Broken(String),
}

impl ResponseRelay {
    /// Begins to read `source`, and gives what the client shall read.
    pub(super) fn start(self, source: UpstreamBody) -> RelayBody {
        // Bounded by the buffer's permits: each piece in it holds as many as it has bytes.
        let (sender, receiver) = mpsc::unbounded_channel();
        let outlet = body_stream(receiver, self.abort_token.clone());
        tokio::spawn(self.run(source, sender));
        StreamBody::new(outlet).boxed_unsync()
    }

    async fn run(mut self, source: UpstreamBody, out: UnboundedSender<RelayPiece>) {
        // Fused, as it may have ended when the client hangs up, and is asked once more.
        let (cut, mut source, mut lines) = (self.abort_token.clone(), source.fuse(), LineBuffer::default());
        let end = tokio::select! {
            biased;
            () = cut.cancelled() => RelayEnd::Interrupted,
            () = out.closed() => RelayEnd::ClientGone,
            end = self.forward(&mut source, &mut lines, &out) => end,
        };
        if matches!(end, RelayEnd::ClientGone) && self.is_response_generated() {
            // What it took follows within a moment. Whoever hung up just before that would pay an estimate, and less.
            let heard_out = timeout(USAGE_GRACE, self.forward(&mut source, &mut lines, &out));
            tokio::select! {
                biased;
                () = cut.cancelled() => {}
                _ = heard_out => {}
            }
        }
        let ResponseRelay { route, is_stream, usage_recorder: tally, call_permit: place, .. } = self;
        // Told before the client sees the end, so that its next call is judged by what this one took.
        let refusal = tally.report_end(end);
        drop(place);
        let last = match refusal {
            Some(refusal) if is_stream && !lines.is_mid_line() => RelayPiece::FinalError(refusal.event(route)),
            Some(_) => RelayPiece::Abort,
            None => RelayPiece::Complete,
        };
        // A client that has gone needs no last words.
        let _ = out.send(last);
    }

    /// Whether the provider has made all of the answer, as far as is known, and has yet to tell what it took. One in one piece
    /// is made before it begins to come.
    fn is_response_generated(&self) -> bool {
        self.route.is_metered() && (!self.is_stream || self.usage_recorder.meter.awaits_only_usage())
    }

    /// May be dropped and begun again: what has come is metered before anything is waited for.
    async fn forward(
        &mut self,
        source: &mut Fuse<UpstreamBody>,
        lines: &mut LineBuffer,
        out: &UnboundedSender<RelayPiece>,
    ) -> RelayEnd {
        while let Some(piece) = source.next().await {
            let piece = match piece {
                Ok(piece) if self.is_stream => lines.push(piece),
                Ok(piece) => piece,
                Err(why) => return RelayEnd::Broken(why),
            };
            self.meter_piece(&piece, lines);
            self.send_piece(piece, out).await;
        }
        let rest = lines.take_rest();
        self.meter_piece(&rest, lines);
        self.send_piece(rest, out).await;
        if self.is_stream {
            self.usage_recorder.end_of_stream()
        } else {
            self.usage_recorder.meter.finish_body();
            RelayEnd::Complete
        }
    }

    fn meter_piece(&mut self, piece: &[u8], lines: &LineBuffer) {
        let meter = &mut self.usage_recorder.meter;
        if !self.is_stream {
            meter.read_body_part(piece);
        } else if lines.is_mid_line() {
            meter.read_partial_line(piece);
        } else {
            meter.read_lines(piece);
        }
    }

    async fn send_piece(&mut self, piece: Bytes, out: &UnboundedSender<RelayPiece>) {
        if piece.is_empty() {
            return;
        }
        // Copied, as it is a part of a larger block of the HTTP library, and would keep it.
        let piece = Bytes::copy_from_slice(&piece);
        let room = (piece.len() + PIECE_OVERHEAD).min(RELAY_BUFFER_BYTES) as u32;
        let buffer: Arc<Semaphore> = self.usage_recorder.context.buffer.clone();
        let permit = buffer.acquire_many_owned(room).await.expect("the buffer's semaphore is never closed");
        // A client that has gone is noticed by `run`.
        let _ = out.send(RelayPiece::Data(piece, permit));
    }
}

/// What the client reads. After a cut nothing that was buffered passes any more.
fn body_stream(
    pieces: UnboundedReceiver<RelayPiece>,
    cut: CancellationToken,
) -> impl Stream<Item = Result<Frame<Bytes>, RelayAborted>> {
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
                Some(piece) => piece.unwrap_or(RelayPiece::Abort),
                None => drain_to_last(&mut pieces).await,
            };
            match piece {
                RelayPiece::Data(data, _room) => Some((Ok(Frame::data(data)), Some(pieces))),
                RelayPiece::FinalError(data) => Some((Ok(Frame::data(data)), None)),
                RelayPiece::Complete => None,
                RelayPiece::Abort => Some((Err(RelayAborted), None)),
            }
        }
    })
}

async fn drain_to_last(pieces: &mut UnboundedReceiver<RelayPiece>) -> RelayPiece {
    while let Some(piece) = pieces.recv().await {
        match piece {
            RelayPiece::Data(..) => {}
            // What was dropped on the way here is missing.
            RelayPiece::Complete => return RelayPiece::Abort,
            RelayPiece::FinalError(_) | RelayPiece::Abort => return piece,
        }
    }
    RelayPiece::Abort
}

/// How many tokens a request is thought to have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InputEstimate {
    /// By its bytes.
    pub(super) by_bytes: u64,
    /// With what it points at, of which nobody here knows the size.
    pub(super) upper_bound: u64,
}

/// What one call took, told to its session exactly once, however the call ends: also where the server is asked to end
/// ([`super::Gateway::close`]), and not where it is killed.
pub(super) struct UsageRecorder {
    pub(super) context: Arc<EndpointContext>,
    pub(super) route: GatewayRoute,
    /// As the provider names it.
    pub(super) model: String,
    /// What the input is thought to have, where the provider does not come to tell.
    pub(super) input: InputEstimate,
    pub(super) meter: UsageMeter,
    /// A provider has it, as far as is known, and does what it will ask money for: also before the first byte of its answer, of
    /// which a whole one may be made by then.
    pub(super) may_be_billed: bool,
}

impl UsageRecorder {
    /// A stream that ends before the provider said that it would was cut on the way.
    fn end_of_stream(&self) -> RelayEnd {
        if self.route.is_metered() && !self.meter.is_complete() {
            return RelayEnd::Broken("the provider's stream ended before its answer was complete".to_owned());
        }
        RelayEnd::Complete
    }

    /// Tells the session; what comes back is what the agent has yet to be told.
    fn report_end(self, end: RelayEnd) -> Option<EndpointError> {
        match end {
            RelayEnd::Complete => {
                if let Some(mishap) = self.meter.error() {
                    let (api, options) = (self.route.api(), self.context.gateway.options());
                    let message = scrubbed(&mishap.message, options.provider(api).api_key.as_ref());
                    let why = describe_rejection(api, &self.model, mishap.status, message.as_bytes());
                    self.context.account.notify(GatewayNotice::Rejected { status: mishap.status, why });
                }
                None
            }
            RelayEnd::Interrupted => Some(EndpointError::interrupted()),
            RelayEnd::ClientGone => None,
            RelayEnd::Broken(why) => {
                self.context
                    .account
                    .notify(GatewayNotice::Rejected { status: StatusCode::BAD_GATEWAY.as_u16(), why: why.clone() });
                Some(EndpointError::new(StatusCode::BAD_GATEWAY, "api_error", why))
            }
        }
    }
}

impl Drop for UsageRecorder {
    fn drop(&mut self) {
        if self.route.is_metered() && self.may_be_billed {
            // A provider that says that it failed has not been hung up on.
            let input = if self.meter.error().is_some() { self.input.by_bytes } else { self.input.upper_bound };
            let mut metered = self.meter.metered_usage(&self.model, input);
            self.context.gateway.options().apply_price(&mut metered, &self.model);
            self.context.account.notify(GatewayNotice::Used(metered));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::gateway::{Gateway, GatewayEndpoint, GatewayOptions, ModelCallDenied, SessionAccount};

    struct UnbudgetedAccount;

    impl SessionAccount for UnbudgetedAccount {
        fn may_call(&self) -> Result<(), ModelCallDenied> {
            Ok(())
        }

        fn has_budget(&self) -> bool {
            false
        }

        fn notify(&self, _: GatewayNotice) {}
    }

    /// What was pulled of an endless answer in such pieces that nobody reads at first, and then so many times.
    async fn pulled(piece: impl Fn() -> Bytes + Send + 'static, reads: usize) -> usize {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = tokio::net::UnixListener::bind(directory.path().join("s")).expect("a socket");
        let gateway = Gateway::new(GatewayOptions::default()).expect("the options are right");
        let door = GatewayEndpoint::open(gateway, listener, Arc::new(UnbudgetedAccount)).context();
        let tally = UsageRecorder {
            context: door.clone(),
            route: GatewayRoute::Chat,
            model: String::new(),
            input: InputEstimate::default(),
            meter: UsageMeter::new(GatewayRoute::Chat),
            may_be_billed: true,
        };
        let place = door.calls.clone().acquire_owned().await.expect("there is a place");
        let cut = CancellationToken::new();
        let relay = ResponseRelay {
            route: GatewayRoute::Chat,
            is_stream: false,
            abort_token: cut.clone(),
            usage_recorder: tally,
            call_permit: place,
        };
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
        assert_eq!(pulled(large, 0).await, RELAY_BUFFER_BYTES / (MIB + PIECE_OVERHEAD) + 1);
        assert_eq!(pulled(large, 3).await, RELAY_BUFFER_BYTES / (MIB + PIECE_OVERHEAD) + 4);
        assert_eq!(pulled(|| Bytes::from_static(b"x"), 0).await, RELAY_BUFFER_BYTES / (1 + PIECE_OVERHEAD) + 1);
    }

    #[tokio::test]
    async fn a_piece_does_not_keep_the_block_that_it_came_in() {
        struct RelayBlock(Arc<AtomicUsize>, [u8; 8]);
        impl AsRef<[u8]> for RelayBlock {
            fn as_ref(&self) -> &[u8] {
                &self.1
            }
        }
        impl Drop for RelayBlock {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let kept = Arc::new(AtomicUsize::new(0));
        let counter = kept.clone();
        let in_a_block = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Bytes::from_owner(RelayBlock(counter.clone(), *b"a token\n")).slice(..2)
        };
        assert!(pulled(in_a_block, 0).await > 1000);
        assert!(kept.load(Ordering::Relaxed) <= 1, "{kept:?}");
    }
}
