//! Requests to a session actor. If no answer comes, the error states whether processing had begun.
//!
//! An actor that stops drops its mailbox. An actor that panics drops the message that it was
//! processing. The address reports both in the same way. A request that was never processed may be
//! sent to the next actor. A request that was processed may have taken effect.

use actix::prelude::*;
use tokio::sync::oneshot;

use super::{
    actor::Session,
    approvals::security::RemoveSessionRule,
    captures::{BeginRestore, CaptureEnded},
    messages::{End, Interrupt, Pause, Relay, Resume, Stop, UpdateMetadata},
    plan::PlanSaved,
    repository::BranchPushed,
    request_error::RequestError,
    terminals::{StartForTerminal, TerminalsListed},
    user_calls::BeginUserCall,
};

/// Reason why a request has no answer.
#[derive(Debug)]
pub enum CallError<M> {
    /// The actor stopped before it processed the message. Contains the message.
    NotProcessed(M),
    /// The actor failed while it processed the message. The journal shows if the request took
    /// effect.
    MaybeProcessed,
}

/// Sends a request to the session that `open` returns, and repeats it once if it was not processed.
///
/// Between the two steps an idle session may be passivated, or a session may fail because of other
/// requests.
///
/// # Errors
/// Returns the error of `open`, or a [`RequestError`] if no answer came.
pub async fn request_with_retry<M: SessionRequest, E: From<RequestError>>(
    open: impl AsyncFn() -> Result<Addr<Session>, E>,
    message: M,
) -> Result<M::Result, E> {
    let reply = match send_request(&open().await?, message).await {
        Err(CallError::NotProcessed(message)) => send_request(&open().await?, message).await,
        reply => reply,
    };
    reply.map_err(|call_error| RequestError::from(call_error).into())
}

/// Client request that a session actor processes.
pub trait SessionRequest: Message<Result: Send> + Send + 'static {
    /// Processes the request in the session's actor.
    fn process(self, session: &mut Session, ctx: &mut Context<Session>) -> ResponseFuture<Self::Result>;
}

macro_rules! impl_session_request {
    ($($message:ty),+) => {
        $(impl SessionRequest for $message {
            fn process(self, session: &mut Session, ctx: &mut Context<Session>) -> ResponseFuture<Self::Result> {
                session.handle(self, ctx)
            }
        })+
    };
}
impl_session_request!(
    Relay,
    Interrupt,
    Pause,
    Resume,
    Stop,
    End,
    UpdateMetadata,
    RemoveSessionRule,
    StartForTerminal,
    TerminalsListed,
    PlanSaved,
    BeginRestore,
    CaptureEnded,
    BranchPushed,
    BeginUserCall
);

/// Message in a mailbox. An unprocessed message returns to its sender when the envelope is dropped.
struct Envelope<M> {
    message: Option<M>,
    return_to: Option<oneshot::Sender<M>>,
}

/// Sends a request to a session at once. The returned future yields the answer.
///
/// # Errors
/// Returns a [`CallError`] if the actor stopped before it answered.
pub fn send_request<M: SessionRequest>(
    session: &Addr<Session>,
    message: M,
) -> impl Future<Output = Result<M::Result, CallError<M>>> + Send + use<M> {
    let (return_to, returned) = oneshot::channel();
    let reply = session.send(Envelope { message: Some(message), return_to: Some(return_to) });
    async move {
        match reply.await {
            Ok(reply) => Ok(reply),
            Err(_) => Err(returned.await.map_or(CallError::MaybeProcessed, CallError::NotProcessed)),
        }
    }
}

impl<M: Message> Message for Envelope<M> {
    type Result = M::Result;
}

impl<M> Drop for Envelope<M> {
    fn drop(&mut self) {
        if let (Some(message), Some(return_to)) = (self.message.take(), self.return_to.take()) {
            // The sender may be gone, and with it the receiver.
            let _ = return_to.send(message);
        }
    }
}

impl<M: SessionRequest> Handler<Envelope<M>> for Session {
    type Result = ResponseFuture<M::Result>;

    fn handle(&mut self, mut envelope: Envelope<M>, ctx: &mut Context<Session>) -> Self::Result {
        let message = envelope.message.take().expect("an envelope is processed once");
        message.process(self, ctx)
    }
}

impl<M> From<CallError<M>> for RequestError {
    fn from(call_error: CallError<M>) -> RequestError {
        match call_error {
            CallError::NotProcessed(_) => RequestError::Unavailable("the session is restarting; try again".to_owned()),
            CallError::MaybeProcessed => RequestError::Unanswered,
        }
    }
}
