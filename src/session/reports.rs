//! What the agent tells: it introduces itself, and its reports come into the journal once each, in its own order.

use std::{io, sync::Arc, time::Instant};

use actix::prelude::*;
use greenroom_protocol::{
    CONTENT_LIMIT, EventBody, EventSource, FULL_TEXT_LIMIT, Observation, ObservationKind, excerpt,
    link::{AgentReport, LINK_VERSION, ServerWelcome, WorkOutcome},
    observation::TruncationMark,
};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::{Session, commit::CommitReply, messages::*, transition::Transition, turn::SessionInput};
use crate::store::{AppendError, ReportMark, SessionId, Store, StoreError};

/// How much of a kind's name is repeated, in bytes.
const KIND_LIMIT: usize = 128;

impl Handler<HelloReceived> for Session {
    type Result = Result<HelloAccepted, HelloRejected>;

    fn handle(&mut self, HelloReceived { hello }: HelloReceived, ctx: &mut Context<Session>) -> Self::Result {
        self.entry.record_handled();
        if hello.link_version != LINK_VERSION {
            return Err(HelloRejected::Version { theirs: hello.link_version });
        }
        if !self.state.needs_sandbox() || self.is_stopping_sandbox() {
            return Err(HelloRejected::SandboxStopping);
        }
        let known = self.mark.as_ref().is_some_and(|mark| mark.boot == hello.boot);
        let acked = self.durable_mark.as_ref().filter(|mark| mark.boot == hello.boot).map_or(0, |mark| mark.n);
        if !known {
            self.mark = Some(ReportMark { boot: hello.boot.clone(), n: 0 });
            self.drop_unfinished_content(ctx);
        }
        let restore = !self.state.has_welcomed(&hello.boot);
        let history_to = self.state.history_to(self.tail);
        self.apply(SessionInput::HelloReceived { boot: hello.boot }, ctx);
        let settings = (self.deps.settings_for)(&self.record);
        let welcome = ServerWelcome { session: self.id.to_string(), acked, restore, settings };
        let has_an_act = self.state.has_user_action();
        Ok(HelloAccepted { welcome, broadcast: self.broadcast.clone(), has_user_action: has_an_act, history_to })
    }
}

impl Handler<Reported> for Session {
    type Result = ActorResponse<Session, ()>;

    fn handle(&mut self, reported: Reported, ctx: &mut Context<Session>) -> Self::Result {
        self.entry.record_handled();
        let Reported { boot, n, mut reports, durable } = reported;
        let known = self.mark.as_ref().filter(|mark| mark.boot == boot).map(|mark| mark.n);
        let last = n.saturating_add(reports.len() as u64 - 1);
        match known {
            Some(newest) if n <= newest.saturating_add(1) && last > newest => {
                // What came before is taken already.
                reports.drain(..(newest + 1 - n) as usize);
                let mark = ReportMark { boot, n: last };
                if !self.state.has_welcomed(&mark.boot) {
                    self.discard_report(mark, durable, ctx);
                    return ActorResponse::reply(());
                }
                match <[AgentReport; 1]>::try_from(reports) {
                    Ok([report]) => return self.process_report(mark, report, durable, ctx),
                    Err(reports) => self.commit_events(mark, reports, durable, ctx),
                }
            }
            // All of it came before: it is acknowledged with whatever is on its way to disk.
            Some(newest) if last <= newest => {
                let nothing = Transition::after(self.tail);
                self.commit(nothing, None, vec![CommitReply::Report(durable)], ctx);
            }
            newest => {
                let _ended_already = durable.send(Err(OutOfOrder { n, newest: newest.unwrap_or(0) }));
            }
        }
        ActorResponse::reply(())
    }
}

impl Handler<AwaitReports> for Session {
    type Result = ();

    fn handle(&mut self, _: AwaitReports, _: &mut Context<Session>) {}
}

impl Session {
    /// What an agent that is gone has not told to its end, nobody will. Before the next one begins to tell.
    fn drop_unfinished_content(&self, ctx: &mut Context<Session>) {
        let (store, id) = (self.deps.store.clone(), self.id);
        let gone = async move { store.drop_unfinished(id).await };
        ctx.wait(gone.into_actor(self).map(|gone, session, _| {
            if let Err(e) = gone {
                warn!(session = %session.id, "pieces of an agent that is gone stay on the disk: {e}");
            }
        }));
    }

    /// The agent is being taken away, and what it had come to is in the journal: what it still says counts as taken, so that
    /// its link goes on, and leads to nothing.
    fn discard_report(&mut self, mark: ReportMark, durable: DurableReply, ctx: &mut Context<Session>) {
        self.commit(Transition::after(self.tail), Some(mark), vec![CommitReply::Report(durable)], ctx);
    }

    /// Takes in what is written down and no more, as one.
    fn commit_events(
        &mut self,
        mark: ReportMark,
        reports: Vec<AgentReport>,
        durable: DurableReply,
        ctx: &mut Context<Session>,
    ) {
        self.last_active = Instant::now();
        let mut decision = Transition::after(self.tail);
        for report in reports {
            if let AgentReport::Event { item, body } = report {
                let (source, body) = attribute_source(body);
                decision.push_event(source, None, item, body);
            }
        }
        self.commit(decision, Some(mark), vec![CommitReply::Report(durable)], ctx);
    }

    /// Takes a report in, after its large content, if it has one, is safe on disk. The link sends no other meanwhile.
    fn process_report(
        &mut self,
        mark: ReportMark,
        report: AgentReport,
        durable: DurableReply,
        ctx: &mut Context<Session>,
    ) -> ActorResponse<Session, ()> {
        let (source, mut report) = match report {
            AgentReport::Event { item, body } => {
                let (source, body) = attribute_source(body);
                (source, AgentReport::Event { item, body })
            }
            report => (EventSource::Agent, report),
        };
        let content = take_large_content(&mut report);
        let taken = ReceivedReport { mark, source, report, full_content: None };
        let is_piece = matches!(taken.report, AgentReport::Piece { .. });
        if content.is_none() && report_truncation(&taken.report).is_none() && !is_piece {
            self.apply_report(taken, durable, ctx);
            return ActorResponse::reply(());
        }
        let (store, id) = (self.deps.store.clone(), self.id);
        let kept = store_large_content(store, id, taken, content);
        ActorResponse::r#async(kept.into_actor(self).map(move |kept, session, ctx| match kept {
            Ok(taken) => match session.mark.as_ref().filter(|newest| newest.boot == taken.mark.boot) {
                Some(newest) if newest.n + 1 == taken.mark.n => session.apply_report(taken, durable, ctx),
                // The link was cut meanwhile, and the agent said it once more: that has its place already.
                Some(_) => {
                    session.commit(Transition::after(session.tail), None, vec![CommitReply::Report(durable)], ctx)
                }
                // The agent was started again meanwhile, and counts from the beginning.
                None => {}
            },
            Err(e) => session.stop_on_journal_error(&AppendError::NotWritten(Arc::new(io::Error::other(e))), ctx),
        }))
    }

    fn apply_report(&mut self, taken: ReceivedReport, durable: DurableReply, ctx: &mut Context<Session>) {
        let ReceivedReport { mark, source, report, full_content: whole } = taken;
        // It may have been taken away while its content went to disk.
        if !self.state.has_welcomed(&mark.boot) {
            return self.discard_report(mark, durable, ctx);
        }
        self.last_active = Instant::now();
        let reply = vec![CommitReply::Report(durable)];
        let input = match report {
            AgentReport::Event { item, body } => {
                let asked = approval_request_of(&body).map(|request| SessionInput::ApprovalRequested { request });
                let mut decision = Transition::after(self.tail);
                let body = match (body, whole) {
                    (EventBody::Observation(part), Some(whole)) => part.with_truncation(whole),
                    (body, _) => body,
                };
                decision.push_event(source, None, item, body);
                if let Some(Ok(asked)) = asked.map(|asked| self.decide(asked)) {
                    decision.new_events.extend(asked.new_events);
                }
                return self.commit(decision, Some(mark), reply, ctx);
            }
            AgentReport::Piece { .. } => return self.commit(Transition::after(self.tail), Some(mark), reply, ctx),
            AgentReport::TurnEnded { turn, outcome } => {
                SessionInput::TurnEnded { turn, outcome: self.with_provider_error(outcome).fit() }
            }
            AgentReport::UserActionEnded { user_action: act, outcome } => {
                SessionInput::UserActionEnded { user_action: act, outcome: outcome.fit() }
            }
            AgentReport::Steered { command } => SessionInput::Steered { command },
            AgentReport::SteerMissed { command } => SessionInput::SteerMissed { command },
        };
        match self.decide(input) {
            Ok(decision) => self.commit(decision, Some(mark), reply, ctx),
            Err(refusal) => {
                // It counts as taken: the agent would say it for ever.
                warn!(session = %self.id, "a report means nothing here: {refusal}");
                self.commit(Transition::after(self.tail), Some(mark), reply, ctx);
            }
        }
    }

    /// Puts what the provider said into the agent's account of a failed turn: the agent saw only a status.
    fn with_provider_error(&mut self, outcome: WorkOutcome) -> WorkOutcome {
        match (outcome, self.provider_error.take()) {
            (WorkOutcome::Failed { code, .. }, Some(why)) if code == "model_error" => {
                WorkOutcome::Failed { code, detail: why }
            }
            (outcome, _) => outcome,
        }
    }
}

/// A report that has its place.
struct ReceivedReport {
    mark: ReportMark,
    /// Whose word it is.
    source: EventSource,
    report: AgentReport,
    /// Where the whole is of which it has only a part.
    full_content: Option<TruncationMark>,
}

/// Keeps what is too large for an event, be it in the report or told before in pieces.
async fn store_large_content(
    store: Arc<dyn Store>,
    id: SessionId,
    mut taken: ReceivedReport,
    content: Option<String>,
) -> Result<ReceivedReport, StoreError> {
    if let AgentReport::Piece { item, offset, text } = &mut taken.report {
        let name = content_name(&taken.mark.boot, item);
        store_piece(&*store, id, &name, *offset, std::mem::take(text)).await?;
    }
    let whole = match (earlier_content_name(&taken.mark.boot, &taken.report), content) {
        (Some(name), _) if store.finish_content(id, &name).await? => {
            let bytes = store.content(id, &name, 0, 0).await?.map_or(0, |part| part.total);
            Some((name, bytes))
        }
        (_, Some(content)) => {
            let bytes = content.len() as u64;
            Some((store.put_content(id, content.into()).await?, bytes))
        }
        (_, None) => None,
    };
    taken.full_content = whole.map(|(name, bytes)| {
        // The agent may have cut it before: then the size is its own word, and this is where the rest is.
        let bytes = report_truncation(&taken.report).map_or(bytes, |cut| cut.bytes.max(bytes));
        TruncationMark { bytes, href: Some(format!("/api/sessions/{id}/contents/{name}")) }
    });
    Ok(taken)
}

/// What an agent says as it is written down, and whose word it is then.
fn attribute_source(body: EventBody) -> (EventSource, EventBody) {
    match body.accept_from_agent() {
        Ok(body) => (EventSource::Agent, body),
        Err(kind) => {
            let kind = excerpt(&kind, KIND_LIMIT).map_or(kind, |cut| cut.text);
            let detail = format!("the agent reported `{kind}`, which is not for an agent to say");
            let seen = ObservationKind::Error { code: "not_the_agents".to_owned(), detail };
            (EventSource::Server, Observation { kind: seen, content: String::new() }.into())
        }
    }
}

/// Whether a report may go into the journal together with others: it is an event and no more. Nothing is decided because of
/// it, and nothing has to be on disk before it.
pub fn is_batchable(report: &AgentReport) -> bool {
    match report {
        AgentReport::Event { body: EventBody::Observation(Observation { kind: seen, content }), .. } => {
            content.len() <= CONTENT_LIMIT
                && !matches!(seen, ObservationKind::Confirm { .. })
                && observation_truncation(seen).is_none()
        }
        AgentReport::Event { body: EventBody::Action(_) | EventBody::Opaque(_), .. } => true,
        _ => false,
    }
}

/// What it says of how much it left out.
fn report_truncation(report: &AgentReport) -> Option<&TruncationMark> {
    let AgentReport::Event { body: EventBody::Observation(Observation { kind: seen, .. }), .. } = report else {
        return None;
    };
    observation_truncation(seen)
}

fn observation_truncation(seen: &ObservationKind) -> Option<&TruncationMark> {
    let (ObservationKind::Run { truncated, .. }
    | ObservationKind::Read { truncated, .. }
    | ObservationKind::Browse { truncated, .. }) = seen
    else {
        return None;
    };
    truncated.as_ref()
}

/// Takes the whole content out of an observation that is too large for an event, and leaves its head and tail.
fn take_large_content(report: &mut AgentReport) -> Option<String> {
    let AgentReport::Event { body: EventBody::Observation(Observation { content, .. }), .. } = report else {
        return None;
    };
    let cut = excerpt(content, CONTENT_LIMIT)?;
    Some(std::mem::replace(content, cut.text))
}

/// Under which name the pieces of a text are kept. It follows from what the agent says alone, so that a server that was
/// killed in between goes on with the same.
fn content_name(boot: &str, item: &str) -> String {
    let digest = Sha256::new().chain_update(boot).chain_update([0]).chain_update(item).finalize();
    let mut name = [0; 16];
    name.copy_from_slice(&digest[..16]);
    ulid::Ulid::from_bytes(name).to_string()
}

/// The name of the pieces that may have come before this report.
fn earlier_content_name(boot: &str, report: &AgentReport) -> Option<String> {
    let AgentReport::Event { item: Some(item), .. } = report else { return None };
    report_truncation(report).map(|_| content_name(boot, item))
}

async fn store_piece(
    store: &dyn Store,
    id: SessionId,
    name: &str,
    offset: u64,
    text: String,
) -> Result<(), StoreError> {
    if offset.saturating_add(text.len() as u64) > FULL_TEXT_LIMIT {
        warn!(session = %id, offset, "a piece beyond what is kept of one text is left out");
        return Ok(());
    }
    store.extend_content(id, name, offset, text.into()).await
}

/// Under which name an event of the agent asks a person.
fn approval_request_of(body: &EventBody) -> Option<String> {
    match body {
        EventBody::Observation(Observation { kind: ObservationKind::Confirm { request, .. }, .. }) => {
            Some(request.clone())
        }
        EventBody::Observation(_) | EventBody::Action(_) | EventBody::Opaque(_) => None,
    }
}

#[cfg(test)]
mod tests;
