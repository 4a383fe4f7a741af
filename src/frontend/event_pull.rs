//! A listener without a socket of its own: whoever asks for the next thing gets it, and until somebody asks nothing is read.
//!
//! It goes the way that a FrontendSocket goes, from the journal to what grows and on to what comes, but at the pace of its
//! caller: there is nothing that could fill up.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix::prelude::*;
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

/// The most that is read from the journal at once.
const PAGE: ReadLimit = ReadLimit { events: 64, bytes: 64 * 1024 };
/// The most of growing items that is taken at once, bytes.
const DELTA_BYTES: usize = 64 * 1024;
/// How long until a session is looked for again whose actor is gone, or whose journal cannot be read.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// One listener's way through a session.
pub struct EventPull {
    parts: Arc<FrontendServices>,
    id: SessionId,
    source: PullSource,
    /// Ends with the last of its addresses, which this is.
    waker: Addr<PublishWaker>,
    published: Arc<Notify>,
    /// The newest event that the caller was given.
    cursor: Seq,
    seen: DeltaPositions,
    page: VecDeque<StoredEvent>,
    deltas: VecDeque<DeltaChunk>,
}

/// Where a listener's events come from.
enum PullSource {
    Session(Subscription),
    /// The session's actor cannot be had, as where nothing can be written. What is in the journal, up to here, can be read.
    Journal(Seq),
}

/// What comes next.
#[derive(Debug)]
pub enum PulledItem {
    Event(StoredEvent),
    Delta(DeltaChunk),
    /// The session is there no more.
    Gone(RequestError),
}

impl EventPull {
    /// Begins after `after`, or where the journal ends if that is earlier.
    ///
    /// # Errors
    /// Why the session cannot be listened to.
    pub async fn open(parts: Arc<FrontendServices>, id: SessionId, after: Seq) -> Result<EventPull, RequestError> {
        let pull = EventPull::attach(parts, id).await?;
        // What is on disk may have been read by the caller before the session hears of it.
        let on_disk = pull.parts.store.get(id).await.ok().flatten().map_or(0, |snapshot| snapshot.tail);
        Ok(EventPull { cursor: after.min(on_disk.max(pull.source.tail())), ..pull })
    }

    /// Begins where the journal ends, and says how the session is right there.
    pub(super) async fn join(
        parts: Arc<FrontendServices>,
        id: SessionId,
    ) -> Result<(EventPull, SessionSnapshot), RequestError> {
        let snapshot = parts.store.get(id).await.map_err(|e| RequestError::Journal(e.to_string()))?;
        let snapshot = snapshot.ok_or_else(|| RequestError::NoSession(id.to_string()))?;
        let pull = EventPull::attach(parts, id).await?;
        // Not the end that the session tells: it may hear of what is on disk a moment later than the snapshot.
        Ok((EventPull { cursor: snapshot.tail, ..pull }, snapshot))
    }

    async fn attach(parts: Arc<FrontendServices>, id: SessionId) -> Result<EventPull, RequestError> {
        let rung = Arc::new(Notify::new());
        let bell = PublishWaker {
            published: rung.clone(),
            entry: parts.actor_registry.register(ActorKind::EventStream, Some(id.to_string())),
        };
        let bell = bell.start();
        let source = match attach(&parts, id, &bell).await {
            Ok(listening) => PullSource::Session(listening),
            Err(refusal) => match parts.store.get(id).await {
                Ok(Some(snapshot)) => PullSource::Journal(snapshot.tail),
                Ok(None) | Err(_) => return Err(refusal),
            },
        };
        let (seen, page, deltas) = (DeltaPositions::default(), VecDeque::new(), VecDeque::new());
        Ok(EventPull { parts, id, source, waker: bell, published: rung, cursor: 0, seen, page, deltas })
    }

    /// Waits for the next thing. Nothing is lost where the caller stops waiting.
    pub async fn next(&mut self) -> PulledItem {
        loop {
            if let Some((seq, event)) = self.page.pop_front() {
                self.cursor = seq;
                return PulledItem::Event((seq, event));
            }
            if let Some(delta) = self.deltas.pop_front() {
                return PulledItem::Delta(delta);
            }
            let look = match &self.source {
                PullSource::Session(listening) => listening.poll(self.cursor, &mut self.seen, DELTA_BYTES),
                PullSource::Journal(tail) if *tail > self.cursor => DeliveryPoll::Behind { tail: *tail },
                PullSource::Journal(_) => DeliveryPoll::Closed,
            };
            match look {
                DeliveryPoll::Deltas(deltas) if deltas.is_empty() => self.published.notified().await,
                DeliveryPoll::Deltas(deltas) => self.deltas.extend(deltas),
                DeliveryPoll::Behind { tail } => match read_past_damage(&*self.parts.store, self.id, self.cursor, PAGE)
                    .await
                {
                    Ok(page) => self.page.extend(page.into_iter().take_while(|(seq, _)| *seq <= tail)),
                    Err(StoreError::NoSession(id)) => return PulledItem::Gone(RequestError::NoSession(id.to_string())),
                    Err(_) => actix::clock::sleep(RETRY_INTERVAL).await,
                },
                DeliveryPoll::Closed => match attach(&self.parts, self.id, &self.waker).await {
                    // Its items are others, whatever they are called.
                    Ok(listening) => {
                        (self.source, self.seen) = (PullSource::Session(listening), DeltaPositions::default())
                    }
                    Err(gone @ RequestError::NoSession(_)) => return PulledItem::Gone(gone),
                    Err(_) => {
                        // Meanwhile what is in the journal can be read.
                        let tail =
                            self.parts.store.get(self.id).await.ok().flatten().map_or(0, |snapshot| snapshot.tail);
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
            PullSource::Session(listening) => listening.tail(),
            PullSource::Journal(tail) => *tail,
        }
    }
}

async fn attach(
    parts: &FrontendServices,
    id: SessionId,
    bell: &Addr<PublishWaker>,
) -> Result<Subscription, RequestError> {
    // An actor that was at rest may be let go between the two steps of this; then the next one is asked.
    for _ in 0..2 {
        let session = parts.sessions.open(id).await?;
        if let Some(AttachReply { subscription: listening, .. }) = subscribe(&session, bell.clone().recipient()).await?
        {
            return Ok(listening);
        }
    }
    Err(RequestError::Unavailable("the session is being brought back; try again".to_owned()))
}

/// Hears that there is more, and passes that on to whoever pulls.
struct PublishWaker {
    published: Arc<Notify>,
    entry: ActorEntry,
}

impl Actor for PublishWaker {
    type Context = Context<PublishWaker>;

    fn started(&mut self, ctx: &mut Context<PublishWaker>) {
        // "Look again" is all that it ever hears, and one of them is as good as many.
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
