//! Asking a session's actor so that, where no answer comes, whoever asked knows whether it had begun.
//!
//! An actor that ends drops its mailbox, and one that panics drops what it was at: the address says the same of both. But what was
//! never taken up can be asked of the next actor, and what was may be done already.

use actix::prelude::*;
use tokio::sync::oneshot;

use super::{
    Refusal, Session,
    messages::{Amend, End, Interrupt, Pause, Relay, Resume, Stop},
};

/// Why there is no answer.
#[derive(Debug)]
pub enum Unanswered<M> {
    /// The actor ended before it took the message up; here it is again.
    NotBegun(M),
    /// It fell over it. Whether anything was done, the journal tells.
    Begun,
}

/// Asks the session that `open` finds. One that was at rest may be let go between the two, or falls of what others asked: then
/// the next one is asked, once.
pub async fn ask_or_next<M: Wanted, E: From<Refusal>>(
    open: impl AsyncFn() -> Result<Addr<Session>, E>,
    message: M,
) -> Result<M::Result, E> {
    let answer = match ask(&open().await?, message).await {
        Err(Unanswered::NotBegun(message)) => ask(&open().await?, message).await,
        answer => answer,
    };
    answer.map_err(|unanswered| Refusal::from(unanswered).into())
}

/// What somebody wants of a session.
pub trait Wanted: Message<Result: Send> + Send + 'static {
    fn taken_up(self, session: &mut Session, ctx: &mut Context<Session>) -> ResponseFuture<Self::Result>;
}

macro_rules! wanted {
    ($($message:ty),+) => {
        $(impl Wanted for $message {
            fn taken_up(self, session: &mut Session, ctx: &mut Context<Session>) -> ResponseFuture<Self::Result> {
                session.handle(self, ctx)
            }
        })+
    };
}
wanted!(Relay, Interrupt, Pause, Resume, Stop, End, Amend);

/// A message on its way, which goes back to its sender where nobody takes it up.
struct Asked<M> {
    message: Option<M>,
    back: Option<oneshot::Sender<M>>,
}

/// Asks a session, now; the answer may be waited for later.
pub fn ask<M: Wanted>(
    session: &Addr<Session>,
    message: M,
) -> impl Future<Output = Result<M::Result, Unanswered<M>>> + Send + use<M> {
    let (back, came_back) = oneshot::channel();
    let answer = session.send(Asked { message: Some(message), back: Some(back) });
    async move {
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(came_back.await.map_or(Unanswered::Begun, Unanswered::NotBegun)),
        }
    }
}

impl<M: Message> Message for Asked<M> {
    type Result = M::Result;
}

impl<M> Drop for Asked<M> {
    fn drop(&mut self) {
        if let (Some(message), Some(back)) = (self.message.take(), self.back.take()) {
            // Whoever does not wait any more does not want it back.
            let _ = back.send(message);
        }
    }
}

impl<M: Wanted> Handler<Asked<M>> for Session {
    type Result = ResponseFuture<M::Result>;

    fn handle(&mut self, mut asked: Asked<M>, ctx: &mut Context<Session>) -> Self::Result {
        let message = asked.message.take().expect("it is taken up once");
        message.taken_up(self, ctx)
    }
}

impl<M> From<Unanswered<M>> for Refusal {
    fn from(unanswered: Unanswered<M>) -> Refusal {
        match unanswered {
            Unanswered::NotBegun(_) => Refusal::Unavailable("the session is being brought back; try again".to_owned()),
            Unanswered::Begun => Refusal::Unanswered,
        }
    }
}
