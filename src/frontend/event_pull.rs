//! A listener without a socket of its own: whoever asks for the next thing gets it, and until somebody asks nothing is read.
//!
//! It goes the way that a FrontendSocket goes, from the journal to what grows and on to what comes, but at the pace of its
//! caller: there is nothing that could fill up.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix::prelude::*;
use tokio::sync::Notify;

use super::{Parts, listen};
use crate::{
    census::{Entry, Kind},
    session::{
        Listening, Look, Piece, Refusal, Seen,
        messages::{Attached, Published},
    },
    store::{Limit, Seq, SessionId, Snapshot, StoreError, StoredEvent, damage::read_on},
};

/// The most that is read from the journal at once.
const PAGE: Limit = Limit { events: 64, bytes: 64 * 1024 };
/// The most of growing items that is taken at once, bytes.
const PIECE: usize = 64 * 1024;
/// How long until a session is looked for again whose actor is gone, or whose journal cannot be read.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// One listener's way through a session.
pub struct Pull {
    parts: Arc<Parts>,
    id: SessionId,
    source: Source,
    /// Ends with the last of its addresses, which this is.
    bell: Addr<Bell>,
    rung: Arc<Notify>,
    /// The newest event that the caller was given.
    cursor: Seq,
    seen: Seen,
    page: VecDeque<StoredEvent>,
    deltas: VecDeque<Piece>,
}

/// Where a listener's events come from.
enum Source {
    Session(Listening),
    /// The session's actor cannot be had, as where nothing can be written. What is in the journal, up to here, can be read.
    Journal(Seq),
}

/// What comes next.
#[derive(Debug)]
pub enum Pulled {
    Event(StoredEvent),
    Delta(Piece),
    /// The session is there no more.
    Gone(Refusal),
}

impl Pull {
    /// Begins after `after`, or where the journal ends if that is earlier.
    ///
    /// # Errors
    /// Why the session cannot be listened to.
    pub async fn open(parts: Arc<Parts>, id: SessionId, after: Seq) -> Result<Pull, Refusal> {
        let pull = Pull::attach(parts, id).await?;
        // What is on disk may have been read by the caller before the session hears of it.
        let on_disk = pull.parts.store.get(id).await.ok().flatten().map_or(0, |snapshot| snapshot.tail);
        Ok(Pull { cursor: after.min(on_disk.max(pull.source.tail())), ..pull })
    }

    /// Begins where the journal ends, and says how the session is right there.
    pub(super) async fn join(parts: Arc<Parts>, id: SessionId) -> Result<(Pull, Snapshot), Refusal> {
        let snapshot = parts.store.get(id).await.map_err(|e| Refusal::Journal(e.to_string()))?;
        let snapshot = snapshot.ok_or_else(|| Refusal::NoSession(id.to_string()))?;
        let pull = Pull::attach(parts, id).await?;
        // Not the end that the session tells: it may hear of what is on disk a moment later than the snapshot.
        Ok((Pull { cursor: snapshot.tail, ..pull }, snapshot))
    }

    async fn attach(parts: Arc<Parts>, id: SessionId) -> Result<Pull, Refusal> {
        let rung = Arc::new(Notify::new());
        let bell = Bell { rung: rung.clone(), entry: parts.census.register(Kind::EventStream, Some(id.to_string())) };
        let bell = bell.start();
        let source = match attach(&parts, id, &bell).await {
            Ok(listening) => Source::Session(listening),
            Err(refusal) => match parts.store.get(id).await {
                Ok(Some(snapshot)) => Source::Journal(snapshot.tail),
                Ok(None) | Err(_) => return Err(refusal),
            },
        };
        let (seen, page, deltas) = (Seen::default(), VecDeque::new(), VecDeque::new());
        Ok(Pull { parts, id, source, bell, rung, cursor: 0, seen, page, deltas })
    }

    /// Waits for the next thing. Nothing is lost where the caller stops waiting.
    pub async fn next(&mut self) -> Pulled {
        loop {
            if let Some((seq, event)) = self.page.pop_front() {
                self.cursor = seq;
                return Pulled::Event((seq, event));
            }
            if let Some(delta) = self.deltas.pop_front() {
                return Pulled::Delta(delta);
            }
            let look = match &self.source {
                Source::Session(listening) => listening.look(self.cursor, &mut self.seen, PIECE),
                Source::Journal(tail) if *tail > self.cursor => Look::Behind { tail: *tail },
                Source::Journal(_) => Look::Closed,
            };
            match look {
                Look::Deltas(deltas) if deltas.is_empty() => self.rung.notified().await,
                Look::Deltas(deltas) => self.deltas.extend(deltas),
                Look::Behind { tail } => match read_on(&*self.parts.store, self.id, self.cursor, PAGE).await {
                    Ok(page) => self.page.extend(page.into_iter().take_while(|(seq, _)| *seq <= tail)),
                    Err(StoreError::NoSession(id)) => return Pulled::Gone(Refusal::NoSession(id.to_string())),
                    Err(_) => actix::clock::sleep(LOOK_AGAIN).await,
                },
                Look::Closed => match attach(&self.parts, self.id, &self.bell).await {
                    // Its items are others, whatever they are called.
                    Ok(listening) => (self.source, self.seen) = (Source::Session(listening), Seen::default()),
                    Err(gone @ Refusal::NoSession(_)) => return Pulled::Gone(gone),
                    Err(_) => {
                        // Meanwhile what is in the journal can be read.
                        let tail =
                            self.parts.store.get(self.id).await.ok().flatten().map_or(0, |snapshot| snapshot.tail);
                        self.source = Source::Journal(tail.max(self.source.tail()));
                        actix::clock::sleep(LOOK_AGAIN).await;
                    }
                },
            }
        }
    }
}

impl Source {
    fn tail(&self) -> Seq {
        match self {
            Source::Session(listening) => listening.tail(),
            Source::Journal(tail) => *tail,
        }
    }
}

async fn attach(parts: &Parts, id: SessionId, bell: &Addr<Bell>) -> Result<Listening, Refusal> {
    // An actor that was at rest may be let go between the two steps of this; then the next one is asked.
    for _ in 0..2 {
        let session = parts.sessions.open(id).await?;
        if let Some(Attached { listening, .. }) = listen(&session, bell.clone().recipient()).await? {
            return Ok(listening);
        }
    }
    Err(Refusal::Unavailable("the session is being brought back; try again".to_owned()))
}

/// Hears that there is more, and passes that on to whoever pulls.
struct Bell {
    rung: Arc<Notify>,
    entry: Entry,
}

impl Actor for Bell {
    type Context = Context<Bell>;

    fn started(&mut self, ctx: &mut Context<Bell>) {
        // "Look again" is all that it ever hears, and one of them is as good as many.
        ctx.set_mailbox_capacity(1);
    }
}

impl Handler<Published> for Bell {
    type Result = ();

    fn handle(&mut self, _: Published, _: &mut Context<Bell>) {
        self.entry.handled();
        self.rung.notify_one();
    }
}
