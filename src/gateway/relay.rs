//! Response relay: carries one response from a provider to a client, meters it, and bridges pauses
//! of the client.
//!
//! Two halves share a buffer. A task reads the provider, so a paused sandbox does not stop the
//! stream. The client's connection drains the buffer as fast as it can write.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, Fuse},
};
use greenroom_provider::ProviderError;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{StatusCode, body::Frame};
use tokio::{
    sync::{
        OwnedSemaphorePermit,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
    },
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    GatewayNotice, MeteredUsage,
    endpoint::EndpointContext,
    error_response::{EndpointError, describe_rejection, scrubbed},
    line_buffer::LineBuffer,
    memory::MemoryPermit,
    meter::UsageMeter,
    reservation::CallReservation,
    route::GatewayRoute,
    upstream::UpstreamBody,
};
use crate::telemetry::metrics::{CountedUsage, METRICS};

/// Speed at which a provider is assumed to write an answer that nobody sees.
const TOKENS_PER_SECOND: u64 = 100;

/// Response data that one session may hold for clients that do not read, bytes.
///
/// Bound: 16 MiB. When full: the gateway stops reading the providers.
pub(super) const RELAY_BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// Cost of a buffered piece beside its bytes, bytes.
const PIECE_OVERHEAD: usize = 128;

/// Time that the gateway reads on for the usage after the client has gone, if only the usage is
/// missing.
const USAGE_GRACE: Duration = Duration::from_secs(2);

/// Body of a response to a client.
pub(super) type RelayBody = UnsyncBoxBody<Bytes, RelayAborted>;

/// Aborts a body visibly: the connection closes before the body is complete.
#[derive(Debug, thiserror::Error)]
#[error("the response was aborted")]
pub(super) struct RelayAborted;

/// Response in transfer.
pub(super) struct ResponseRelay {
    pub(super) route: GatewayRoute,
    pub(super) is_stream: bool,
    /// Cancelled by an interrupt, and when the endpoint closes.
    pub(super) abort_token: CancellationToken,
    pub(super) usage_recorder: UsageRecorder,
    /// Held until the provider's response has ended, completely or not.
    pub(super) call_permit: OwnedSemaphorePermit,
}

enum RelayPiece {
    /// Data with its buffer space.
    Data(Bytes, MemoryPermit),
    /// Error in the provider's format. The body ends cleanly after it.
    FinalError(Bytes),
    /// End of a complete body. Without this marker, a task that stopped would look like a complete
    /// response.
    Complete,
    Abort,
}

/// Outcome of the provider's half.
enum RelayEnd {
    Complete,
    /// Interrupted, or the endpoint closed.
    Interrupted,
    ClientGone,
    Broken(String),
}

impl ResponseRelay {
    /// Starts reading `source`, and returns the body for the client.
    pub(super) fn start(self, source: UpstreamBody) -> RelayBody {
        // Bounded by the buffer's permits: each queued piece holds permits for its bytes.
        let (sender, receiver) = mpsc::unbounded_channel();
        let outlet = body_stream(receiver, self.abort_token.clone());
        tokio::spawn(self.run(source, sender));
        StreamBody::new(outlet).boxed_unsync()
    }

    async fn run(mut self, source: UpstreamBody, out: UnboundedSender<RelayPiece>) {
        // Fused, because the source may have ended before the client hangs up, and is polled again.
        let (abort, mut source, mut lines) = (self.abort_token.clone(), source.fuse(), LineBuffer::default());
        let end = tokio::select! {
            biased;
            () = abort.cancelled() => RelayEnd::Interrupted,
            () = out.closed() => RelayEnd::ClientGone,
            end = self.forward(&mut source, &mut lines, &out) => end,
        };
        if matches!(end, RelayEnd::ClientGone) && self.is_response_generated() {
            // The usage follows within a moment. Without the grace time, a client that hangs up
            // just before it would pay an estimate, and less.
            let usage_arrives = timeout(USAGE_GRACE, self.forward(&mut source, &mut lines, &out));
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                _ = usage_arrives => {}
            }
        }
        let ResponseRelay { route, is_stream, usage_recorder: recorder, call_permit: permit, .. } = self;
        // Reported before the client sees the end, so that its next call is checked against this
        // usage.
        let error = recorder.report_end(end);
        drop(permit);
        let last = match error {
            Some(error) if is_stream && !lines.is_mid_line() => RelayPiece::FinalError(error.event(route)),
            Some(_) => RelayPiece::Abort,
            None => RelayPiece::Complete,
        };
        // Fails if the client has gone.
        let _ = out.send(last);
    }

    /// Returns true if the provider has generated its response, as far as can be determined, and
    /// has yet to report the usage. A response in one piece is generated before its first byte.
    fn is_response_generated(&self) -> bool {
        self.route.is_metered() && (!self.is_stream || self.usage_recorder.meter.awaits_only_usage())
    }

    /// Forwards `source` to the client. May be dropped and called again: received pieces are
    /// metered before the next `await`.
    async fn forward(
        &mut self,
        source: &mut Fuse<UpstreamBody>,
        lines: &mut LineBuffer,
        out: &UnboundedSender<RelayPiece>,
    ) -> RelayEnd {
        while let Some(piece) = source.next().await {
            let piece = match piece {
                Ok(piece) if self.is_stream => {
                    self.usage_recorder.meter.read_stream(&piece);
                    lines.push(piece)
                }
                Ok(piece) => {
                    self.usage_recorder.meter.read_body_part(&piece);
                    piece
                }
                Err(reason) => return RelayEnd::Broken(reason),
            };
            self.send_piece(piece, out).await;
        }
        self.send_piece(lines.take_rest(), out).await;
        self.usage_recorder.meter.finish();
        if self.is_stream { self.usage_recorder.end_of_stream() } else { RelayEnd::Complete }
    }

    async fn send_piece(&mut self, piece: Bytes, out: &UnboundedSender<RelayPiece>) {
        if piece.is_empty() {
            return;
        }
        // Copied. The piece is part of a larger block of the HTTP library, and would keep that
        // block allocated.
        let piece = Bytes::copy_from_slice(&piece);
        let space = (piece.len() + PIECE_OVERHEAD).min(RELAY_BUFFER_BYTES);
        let permit = self.usage_recorder.context.answers.reserve(space).await;
        // Fails if the client has gone, which `run` handles.
        let _ = out.send(RelayPiece::Data(piece, permit));
    }
}

/// Returns the stream that the client reads. After an abort, no buffered data passes.
fn body_stream(
    pieces: UnboundedReceiver<RelayPiece>,
    abort: CancellationToken,
) -> impl Stream<Item = Result<Frame<Bytes>, RelayAborted>> {
    stream::unfold(Some(pieces), move |pieces| {
        let abort = abort.clone();
        async move {
            let mut pieces = pieces?;
            let next = tokio::select! {
                biased;
                () = abort.cancelled() => None,
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
            // Data was dropped, so the body is not complete.
            RelayPiece::Complete => return RelayPiece::Abort,
            RelayPiece::FinalError(_) | RelayPiece::Abort => return piece,
        }
    }
    RelayPiece::Abort
}

/// Estimated input tokens of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InputEstimate {
    /// Estimate from the size of the body.
    pub(super) by_bytes: u64,
    /// Estimate with external references, whose size is not available here.
    pub(super) upper_bound: u64,
}

/// Records the usage of one call, and reports it to the session exactly once, however the call
/// ends.
///
/// A regular server shutdown waits for the report ([`super::Gateway::close`]). A killed server
/// reports nothing.
pub(super) struct UsageRecorder {
    pub(super) context: Arc<EndpointContext>,
    pub(super) route: GatewayRoute,
    /// Model name used by the provider.
    pub(super) model: String,
    /// Estimated input, for a provider that does not get to report its usage.
    pub(super) input: InputEstimate,
    pub(super) meter: UsageMeter,
    /// True if a provider may have the request, and works on a response that costs money. Also true
    /// before the first byte: the response may be complete by then.
    pub(super) may_be_billed: bool,
    /// True once the call has failed, other than by an interrupt or its client.
    pub(super) has_failed: bool,
    /// Settled with the usage.
    reservation: CallReservation,
    begun: Instant,
}

impl UsageRecorder {
    pub(super) fn new(
        context: Arc<EndpointContext>,
        route: GatewayRoute,
        model: String,
        input: InputEstimate,
        reservation: CallReservation,
    ) -> UsageRecorder {
        let (meter, begun) = (UsageMeter::new(route), Instant::now());
        UsageRecorder {
            context,
            route,
            model,
            input,
            meter,
            may_be_billed: false,
            has_failed: false,
            reservation,
            begun,
        }
    }

    /// Estimates the answer of a call that was given up before any of it arrived: the provider has
    /// generated it meanwhile.
    fn unseen_output(&self) -> u64 {
        if self.meter.has_begun() || self.meter.is_complete() || self.meter.error().is_some() {
            return 0;
        }
        let generated = self.begun.elapsed().as_millis() as u64 * TOKENS_PER_SECOND / 1000;
        generated.min(self.reservation.granted_tokens())
    }

    /// Returns the outcome of a stream that ended. A stream that ends before its final event is
    /// broken.
    fn end_of_stream(&self) -> RelayEnd {
        if self.route.is_metered() && !self.meter.is_complete() {
            return RelayEnd::Broken("the provider's stream ended before its response was complete".to_owned());
        }
        RelayEnd::Complete
    }

    /// Reports the outcome to the session. Returns the error that the agent must still receive.
    fn report_end(mut self, end: RelayEnd) -> Option<EndpointError> {
        self.has_failed = match end {
            RelayEnd::Complete => self.meter.error().is_some(),
            RelayEnd::Interrupted | RelayEnd::ClientGone => false,
            RelayEnd::Broken(_) => true,
        };
        match end {
            RelayEnd::Complete => {
                if let Some(error) = self.meter.error() {
                    let (api, options) = (self.route.api(), self.context.gateway.options());
                    let message = scrubbed(&error.message, options.provider(api).api_key.expose());
                    let error = ProviderError { message, ..error.clone() };
                    let reason = describe_rejection(api, &self.model, &error);
                    self.context.account.notify(GatewayNotice::Rejected { status: error.status, why: reason });
                }
                None
            }
            RelayEnd::Interrupted => Some(EndpointError::interrupted()),
            RelayEnd::ClientGone => None,
            RelayEnd::Broken(reason) => {
                self.context
                    .account
                    .notify(GatewayNotice::Rejected { status: StatusCode::BAD_GATEWAY.as_u16(), why: reason.clone() });
                Some(EndpointError::new(StatusCode::BAD_GATEWAY, "api_error", reason))
            }
        }
    }
}

impl Drop for UsageRecorder {
    fn drop(&mut self) {
        let options = self.context.gateway.options();
        let (provider, model) = options.metric_labels(self.route.api(), &self.model);
        if self.route.is_metered() {
            METRICS.count_model_call(provider, &model, self.has_failed);
        }
        if self.may_be_billed && self.meter.is_charged() {
            // A provider that reports an error was not cut off by the client. Only the body counts
            // then.
            let input = if self.meter.error().is_some() { self.input.by_bytes } else { self.input.upper_bound };
            let mut metered = self.meter.metered_usage(&self.model, input);
            metered.output_tokens = metered.output_tokens.max(self.unseen_output());
            self.context.gateway.apply_price(self.route.api(), &mut metered, &self.model);
            METRICS.count_model_usage(provider, &model, counted_usage(&metered));
            // Before the notice: the session is then free to begin its next call.
            self.reservation.settle(&metered);
            self.context.account.notify(GatewayNotice::Used(metered));
        }
    }
}

fn counted_usage(usage: &MeteredUsage) -> CountedUsage {
    CountedUsage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        cache_write_tokens: usage.cache_write_tokens.saturating_add(usage.cache_write_1h_tokens),
        cost_usd: usage.cost_usd,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::config::GatewayConfig;
    use crate::gateway::{Gateway, GatewayEndpoint, ModelCallDenied, SessionAccount, tests::no_provider};

    struct UnbudgetedAccount;

    impl SessionAccount for UnbudgetedAccount {
        fn may_call(&self) -> Result<(), ModelCallDenied> {
            Ok(())
        }

        fn has_budget(&self) -> bool {
            false
        }

        fn notify(&self, _: GatewayNotice) {}

        fn log(&self, _: &str) {}
    }

    /// Returns the number of pieces that the relay pulls from an endless response. The client reads
    /// nothing at first, and then `reads` times.
    async fn pulled(piece: impl Fn() -> Bytes + Send + 'static, reads: usize) -> usize {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let listener = tokio::net::UnixListener::bind(directory.path().join("s")).expect("a socket");
        let gateway = Gateway::new(no_provider(), &GatewayConfig::default()).expect("the options are valid");
        let context = GatewayEndpoint::open(gateway, listener, Arc::new(UnbudgetedAccount)).context();
        let (route, reservation) = (GatewayRoute::Chat, CallReservation::none());
        let mut recorder =
            UsageRecorder::new(context.clone(), route, String::new(), InputEstimate::default(), reservation);
        recorder.may_be_billed = true;
        let permit = context.calls.clone().acquire_owned().await.expect("the call semaphore is never closed");
        let abort = CancellationToken::new();
        let relay = ResponseRelay {
            route: GatewayRoute::Chat,
            is_stream: false,
            abort_token: abort.clone(),
            usage_recorder: recorder,
            call_permit: permit,
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
        // Without the abort, the relay would read on for the usage.
        abort.cancel();
        pulled.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn unread_data_is_bounded() {
        const MIB: usize = 1024 * 1024;
        let large = || Bytes::from(vec![b'x'; MIB]);
        // One piece more than fits is in hand, and waits for space.
        assert_eq!(pulled(large, 0).await, RELAY_BUFFER_BYTES / (MIB + PIECE_OVERHEAD) + 1);
        assert_eq!(pulled(large, 3).await, RELAY_BUFFER_BYTES / (MIB + PIECE_OVERHEAD) + 4);
        assert_eq!(pulled(|| Bytes::from_static(b"x"), 0).await, RELAY_BUFFER_BYTES / (1 + PIECE_OVERHEAD) + 1);
    }

    #[tokio::test]
    async fn piece_does_not_keep_its_block() {
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
        let in_block = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Bytes::from_owner(RelayBlock(counter.clone(), *b"a token\n")).slice(..2)
        };
        assert!(pulled(in_block, 0).await > 1000);
        assert!(kept.load(Ordering::Relaxed) <= 1, "{kept:?}");
    }
}
