//! Messages about captures of the workspace, from the link and from restores.

use std::time::Duration;

use actix::prelude::*;
use greenroom_protocol::ObservationKind;
use tokio::time::sleep;
use tracing::warn;

use super::{
    actor::Session,
    messages::RequestResult,
    request_error::RequestError,
    turn::{CaptureChange, SessionInput},
};

/// Time before the second attempt to report an end. Doubled for each further one.
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// Longest time between two attempts.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Reports the end of a capture until the session has it: the session begins no turn before.
///
/// `send` returns `None` if the receiver is gone and its successor takes up the capture. Also ends
/// if the session has ended or is unknown.
pub async fn report_capture_end(end: CaptureEnded, send: impl AsyncFn(CaptureEnded) -> Option<RequestResult>) {
    let mut wait = FIRST_RETRY;
    loop {
        let error = match send(end.clone()).await {
            None
            | Some(Ok(_) | Err(RequestError::Ended | RequestError::NoSession(_) | RequestError::Unreadable(_))) => {
                return;
            }
            Some(Err(error)) => error,
        };
        warn!("the end of `{}` is reported again: {error}", end.checkpoint);
        sleep(wait).await;
        wait = (2 * wait).min(LONGEST_RETRY);
    }
}

/// Notice that a capture takes long and goes on in the background.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CaptureDelayed {
    pub checkpoint: String,
}

/// End of a capture or a restore, with its observations.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct CaptureEnded {
    pub checkpoint: String,
    pub observations: Vec<ObservationKind>,
}

/// Request to restore the workspace. Until [`CaptureEnded`], no turn begins.
///
/// If the server dies before, the next one captures the workspace as this checkpoint.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct BeginRestore {
    /// Name of the checkpoint after the restore.
    pub checkpoint: String,
}

impl Handler<CaptureDelayed> for Session {
    type Result = ();

    fn handle(&mut self, CaptureDelayed { checkpoint }: CaptureDelayed, ctx: &mut Context<Session>) {
        self.apply(SessionInput::Capture(CaptureChange::Delayed { checkpoint }), ctx);
    }
}

impl Handler<CaptureEnded> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(
        &mut self,
        CaptureEnded { checkpoint, observations }: CaptureEnded,
        ctx: &mut Context<Session>,
    ) -> Self::Result {
        // The next server must not take up a restore that has ended without an event.
        self.record_changed |= self.state.is_restoring(&checkpoint);
        // No request of a client: its limits do not apply, and it is no activity.
        match self.decide(SessionInput::Capture(CaptureChange::Ended { checkpoint, observations })) {
            Ok(transition) => self.commit_and_answer(transition, None, ctx),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

impl Handler<BeginRestore> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, BeginRestore { checkpoint }: BeginRestore, ctx: &mut Context<Session>) -> Self::Result {
        // The next server must know of the restore, although no event reports it yet.
        self.record_changed = true;
        self.handle_request(SessionInput::Capture(CaptureChange::RestoreBegun { checkpoint }), None, ctx)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use greenroom_protocol::observation::AgentState;

    use super::*;
    use crate::session::messages::RequestAccepted;

    /// Reports an end with these answers in turn. Returns the number of attempts.
    async fn attempts(answers: &[Option<Result<(), RequestError>>]) -> usize {
        let count = Cell::new(0);
        let end = CaptureEnded { checkpoint: "restore-1".to_owned(), observations: Vec::new() };
        report_capture_end(end, async |_| {
            let answer = answers[count.get()].clone();
            count.set(count.get() + 1);
            answer.map(|answer| answer.map(|()| RequestAccepted { seq: None, state: AgentState::Idle }))
        })
        .await;
        count.get()
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_a_capture_is_reported_until_the_session_has_it() {
        let failed = || Some(Err(RequestError::Unavailable("not now".to_owned())));
        let unanswered = Some(Err(RequestError::Unanswered));
        assert_eq!(attempts(&[Some(Ok(()))]).await, 1);
        assert_eq!(attempts(&[failed(), unanswered, failed(), Some(Ok(()))]).await, 4);
        assert_eq!(attempts(&[failed(), None]).await, 2, "the next actor takes the capture up");
        assert_eq!(attempts(&[failed(), Some(Err(RequestError::Ended))]).await, 2);
    }
}
