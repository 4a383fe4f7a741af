//! Event pull: a subscriber without a socket. Reads the next item only when its caller asks for
//! one.
//!
//! Follows the same path as a FrontendSocket: first the journal, then growing items, then new
//! events. The caller sets the pace, so no queue can fill up.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix::prelude::*;
use greenroom_protocol::RetryFrame;
use tokio::sync::Notify;

use super::{FrontendServices, subscribe};
use crate::{
    actor_registry::{ActorEntry, ActorKind},
    session::{
        DeliveryPoll, DeltaChunk, DeltaPositions, RequestError, Subscription,
        messages::{AttachReply, Published},
    },
    store::{ReadLimit, Seq, SessionId, SessionSnapshot, StoreError, StoredEvent, damage::read_past_damage},
};

/// Bounds of one read of the journal.
const PAGE: ReadLimit = ReadLimit { events: 64, bytes: 64 * 1024 };
/// Largest part of growing items that one poll takes, bytes.
const DELTA_BYTES: usize = 64 * 1024;
/// Interval of retries while the session's actor is gone or its journal is not readable.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Cursor of one subscriber over a session.
pub struct EventPull {
    services: Arc<FrontendServices>,
    id: SessionId,
    source: PullSource,
    /// Address of the waker, which stops when this last address is dropped.
    waker: Addr<PublishWaker>,
    published: Arc<Notify>,
    /// Newest event that the caller has received.
    cursor: Seq,
    seen: DeltaPositions,
    page: VecDeque<StoredEvent>,
    deltas: VecDeque<DeltaChunk>,
}

/// Source of a subscriber's events.
enum PullSource {
    Session(Subscription),
    /// Journal up to this number, while the session's actor is not available, for example because
    /// the store rejects writes.
    Journal(Seq),
}

/// Next item of a pull.
#[derive(Debug)]
pub enum PulledItem {
    Event(StoredEvent),
    Delta(DeltaChunk),
    /// Wait of a model call for its next attempt.
    Retry(RetryFrame),
    /// The session does not exist any more.
    Gone(RequestError),
}

impl EventPull {
    /// Opens a pull after event `after`, or at the end of the journal if that is earlier.
    ///
    /// # Errors
    /// Reason why the session is not available.
    pub async fn open(services: Arc<FrontendServices>, id: SessionId, after: Seq) -> Result<EventPull, RequestError> {
        let pull = EventPull::attach(services, id).await?;
        // The caller may have read an event from disk before the session learned of its commit.
        let on_disk = pull.services.store.get(id).await.ok().flatten().map_or(0, |snapshot| snapshot.tail);
        Ok(EventPull { cursor: after.min(on_disk.max(pull.source.tail())), ..pull })
    }

    /// Opens a pull after event `after`, or at the end of the journal if that is earlier or `after`
    /// is `None`. Returns also the session's state at the end of the journal.
    ///
    /// # Errors
    /// The session does not exist, or its journal is not readable.
    pub(super) async fn join(
        services: Arc<FrontendServices>,
        id: SessionId,
        after: Option<Seq>,
    ) -> Result<(EventPull, SessionSnapshot), RequestError> {
        let snapshot = services.store.get(id).await.map_err(|e| RequestError::Journal(e.to_string()))?;
        let snapshot = snapshot.ok_or_else(|| RequestError::NoSession(id.to_string()))?;
        let pull = EventPull::attach(services, id).await?;
        // The tail of the subscription does not fit: the session may learn of a commit after the
        // snapshot.
        let cursor = after.map_or(snapshot.tail, |after| after.min(snapshot.tail));
        Ok((EventPull { cursor, ..pull }, snapshot))
    }

    async fn attach(services: Arc<FrontendServices>, id: SessionId) -> Result<EventPull, RequestError> {
        let published = Arc::new(Notify::new());
        let waker = PublishWaker {
            published: published.clone(),
            entry: services.actor_registry.register(ActorKind::EventStream, Some(id.to_string())),
        };
        let waker = waker.start();
        let source = match attach(&services, id, &waker).await {
            Ok(subscription) => PullSource::Session(subscription),
            Err(error) => match services.store.get(id).await {
                Ok(Some(snapshot)) => PullSource::Journal(snapshot.tail),
                Ok(None) | Err(_) => return Err(error),
            },
        };
        let (seen, page, deltas) = (DeltaPositions::default(), VecDeque::new(), VecDeque::new());
        Ok(EventPull { services, id, source, waker, published, cursor: 0, seen, page, deltas })
    }

    /// Waits for the next item. Cancel-safe: dropping the future loses no item.
    pub async fn next(&mut self) -> PulledItem {
        loop {
            if let Some((seq, event)) = self.page.pop_front() {
                self.cursor = seq;
                return PulledItem::Event((seq, event));
            }
            if let Some(delta) = self.deltas.pop_front() {
                return PulledItem::Delta(delta);
            }
            let poll = match &self.source {
                PullSource::Session(subscription) => subscription.poll(self.cursor, &mut self.seen, DELTA_BYTES),
                PullSource::Journal(tail) if *tail > self.cursor => DeliveryPoll::Behind { tail: *tail },
                PullSource::Journal(_) => DeliveryPoll::Closed,
            };
            match poll {
                DeliveryPoll::Retry(frame) => return PulledItem::Retry(frame),
                DeliveryPoll::Deltas(deltas) if deltas.is_empty() => self.published.notified().await,
                DeliveryPoll::Deltas(deltas) => self.deltas.extend(deltas),
                DeliveryPoll::Behind { tail } => {
                    match read_past_damage(&*self.services.store, self.id, self.cursor, PAGE).await {
                        Ok(page) => self.page.extend(page.into_iter().take_while(|(seq, _)| *seq <= tail)),
                        Err(StoreError::NoSession(id)) => {
                            return PulledItem::Gone(RequestError::NoSession(id.to_string()));
                        }
                        Err(_) => actix::clock::sleep(RETRY_INTERVAL).await,
                    }
                }
                DeliveryPoll::Closed => match attach(&self.services, self.id, &self.waker).await {
                    // The new actor's items are different ones, even with the same names.
                    Ok(subscription) => {
                        (self.source, self.seen) = (PullSource::Session(subscription), DeltaPositions::default())
                    }
                    Err(gone @ RequestError::NoSession(_)) => return PulledItem::Gone(gone),
                    Err(_) => {
                        // The journal is readable meanwhile.
                        let tail =
                            self.services.store.get(self.id).await.ok().flatten().map_or(0, |snapshot| snapshot.tail);
                        self.source = PullSource::Journal(tail.max(self.source.tail()));
                        actix::clock::sleep(RETRY_INTERVAL).await;
                    }
                },
            }
        }
    }
}

impl PullSource {
    fn tail(&self) -> Seq {
        match self {
            PullSource::Session(subscription) => subscription.tail(),
            PullSource::Journal(tail) => *tail,
        }
    }
}

async fn attach(
    services: &FrontendServices,
    id: SessionId,
    waker: &Addr<PublishWaker>,
) -> Result<Subscription, RequestError> {
    // An idle actor may be passivated between these two steps. Then the second try starts the next
    // one.
    for _ in 0..2 {
        let session = services.sessions.open(id).await?;
        if let Some(AttachReply { subscription, .. }) = subscribe(&session, waker.clone().recipient()).await? {
            return Ok(subscription);
        }
    }
    Err(RequestError::Unavailable("the session is restarting; try again".to_owned()))
}

/// Actor that receives `Published` and wakes the task that pulls.
struct PublishWaker {
    published: Arc<Notify>,
    entry: ActorEntry,
}

impl Actor for PublishWaker {
    type Context = Context<PublishWaker>;

    fn started(&mut self, ctx: &mut Context<PublishWaker>) {
        // Bound: one `Published`. When full: further ones are dropped, since one is as good as
        // many.
        ctx.set_mailbox_capacity(1);
    }
}

impl Handler<Published> for PublishWaker {
    type Result = ();

    fn handle(&mut self, _: Published, _: &mut Context<PublishWaker>) {
        self.entry.record_handled();
        self.published.notify_one();
    }
}
