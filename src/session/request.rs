//! Asking a session's actor so that, where no answer comes, whoever asked knows whether it had begun.
//!
//! An actor that ends drops its mailbox, and one that panics drops what it was at: the address says the same of both. But what was
//! never taken up can be asked of the next actor, and what was may be done already.

use actix::prelude::*;
use tokio::sync::oneshot;

use super::{
    RequestError, Session,
    messages::{End, Interrupt, Pause, Relay, Resume, Stop, UpdateMetadata},
};

/// Why there is no answer.
#[derive(Debug)]
pub enum CallError<M> {
    /// The actor ended before it took the message up; here it is again.
    NotProcessed(M),
    /// It fell over it. Whether anything was done, the journal tells.
    MaybeProcessed,
}

/// Asks the session that `open` finds. One that was at rest may be let go between the two, or falls of what others asked: then
/// the next one is asked, once.
pub async fn request_with_retry<M: SessionRequest, E: From<RequestError>>(
    open: impl AsyncFn() -> Result<Addr<Session>, E>,
    message: M,
) -> Result<M::Result, E> {
    let answer = match send_request(&open().await?, message).await {
        Err(CallError::NotProcessed(message)) => send_request(&open().await?, message).await,
        answer => answer,
    };
    answer.map_err(|unanswered| RequestError::from(unanswered).into())
}

/// What somebody wants of a session.
pub trait SessionRequest: Message<Result: Send> + Send + 'static {
    fn process(self, session: &mut Session, ctx: &mut Context<Session>) -> ResponseFuture<Self::Result>;
}

macro_rules! wanted {
    ($($message:ty),+) => {
        $(impl SessionRequest for $message {
            fn process(self, session: &mut Session, ctx: &mut Context<Session>) -> ResponseFuture<Self::Result> {
                session.handle(self, ctx)
            }
        })+
    };
}
wanted!(Relay, Interrupt, Pause, Resume, Stop, End, UpdateMetadata);

/// A message on its way, which goes back to its sender where nobody takes it up.
struct Envelope<M> {
    message: Option<M>,
    return_to: Option<oneshot::Sender<M>>,
}

/// Asks a session, now; the answer may be waited for later.
pub fn send_request<M: SessionRequest>(
    session: &Addr<Session>,
    message: M,
) -> impl Future<Output = Result<M::Result, CallError<M>>> + Send + use<M> {
    let (back, came_back) = oneshot::channel();
    let answer = session.send(Envelope { message: Some(message), return_to: Some(back) });
    async move {
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(came_back.await.map_or(CallError::MaybeProcessed, CallError::NotProcessed)),
        }
    }
}

impl<M: Message> Message for Envelope<M> {
    type Result = M::Result;
}

impl<M> Drop for Envelope<M> {
    fn drop(&mut self) {
        if let (Some(message), Some(back)) = (self.message.take(), self.return_to.take()) {
            // Whoever does not wait any more does not want it back.
            let _ = back.send(message);
        }
    }
}

impl<M: SessionRequest> Handler<Envelope<M>> for Session {
    type Result = ResponseFuture<M::Result>;

    fn handle(&mut self, mut asked: Envelope<M>, ctx: &mut Context<Session>) -> Self::Result {
        let message = asked.message.take().expect("it is taken up once");
        message.process(self, ctx)
    }
}

impl<M> From<CallError<M>> for RequestError {
    fn from(unanswered: CallError<M>) -> RequestError {
        match unanswered {
            CallError::NotProcessed(_) => {
                RequestError::Unavailable("the session is being brought back; try again".to_owned())
            }
            CallError::MaybeProcessed => RequestError::Unanswered,
        }
    }
}
