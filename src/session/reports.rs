//! Handlers of the agent's hello and reports. Reports enter the journal once each, in their order.

use std::{io, sync::Arc, time::Instant};

use actix::prelude::*;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use greenroom_protocol::{
    CONTENT_LIMIT, EventBody, EventSource, FULL_TEXT_LIMIT, Observation, ObservationKind,
    approval::{RiskAssessment, RiskLevel},
    excerpt, fits_json, json_excerpt,
    link::{AgentReport, LINK_VERSION, ServerWelcome, WorkOutcome, html_item, screenshot_item},
    observation::{AgentState, LEFTOVERS_LIMIT, TruncationMark},
};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::{
    actor::Session,
    messages::*,
    pending::CommitReply,
    transition::{NewEvent, Transition},
    turn::SessionInput,
};
use crate::{
    clock,
    store::{AppendError, ContentPiece, Epoch, ReportMark, Seq, SessionId, Store, StoreError},
};

/// Longest part of an event kind's name that an error repeats, in bytes.
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
        let is_known_boot = self.mark.as_ref().is_some_and(|mark| mark.boot == hello.boot);
        let acked = self.durable_mark.as_ref().filter(|mark| mark.boot == hello.boot).map_or(0, |mark| mark.n);
        if !is_known_boot {
            self.mark = Some(ReportMark { boot: hello.boot.clone(), n: 0 });
            self.drop_unfinished_content(ctx);
        }
        let restore = !self.state.has_welcomed(&hello.boot);
        let history_to = self.state.history_to(self.tail);
        // The reviews of the last connection have no reader. The agent repeats them.
        self.reviews.end_pending();
        self.apply(SessionInput::HelloReceived { boot: hello.boot }, ctx);
        let settings = (self.deps.settings_for)(&self.record);
        let welcome = ServerWelcome { session: self.id.to_string(), acked, restore, settings, reviews: true };
        Ok(HelloAccepted { welcome, broadcast: self.broadcast.clone(), history_to })
    }
}

impl Handler<Reported> for Session {
    type Result = ActorResponse<Session, ()>;

    fn handle(&mut self, reported: Reported, ctx: &mut Context<Session>) -> Self::Result {
        self.entry.record_handled();
        let Reported { boot, n, mut reports, durable } = reported;
        let newest = self.mark.as_ref().filter(|mark| mark.boot == boot).map(|mark| mark.n);
        let last = n.saturating_add(reports.len() as u64 - 1);
        match newest {
            Some(newest) if n <= newest.saturating_add(1) && last > newest => {
                // Reports up to `newest` are committed or in flight already.
                reports.drain(..(newest + 1 - n) as usize);
                let has_work = self.state.has_work();
                reports.iter().for_each(|_| self.journal_meter.report_received(has_work, clock::now_ms()));
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
            // All of these reports are committed or in flight. The answer follows the pending
            // transitions.
            Some(newest) if last <= newest => {
                let nothing = Transition::after(self.tail);
                self.commit(nothing, None, vec![CommitReply::Report(durable)], ctx);
            }
            newest => {
                let _link_stopped = durable.send(Err(OutOfOrder { n, newest: newest.unwrap_or(0) }));
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
    /// Drops content that an earlier start of the agent has sent in part. Blocks the actor until
    /// then, so the next start cannot send before.
    fn drop_unfinished_content(&self, ctx: &mut Context<Session>) {
        let (store, id, epoch) = (self.deps.store.clone(), self.id, self.epoch);
        let dropped = async move { store.drop_unfinished(id, epoch).await };
        ctx.wait(dropped.into_actor(self).map(|dropped, session, _| {
            if let Err(e) = dropped {
                warn!(session = %session.id, "partial content of an earlier agent start stays on disk: {e}");
            }
        }));
    }

    /// Accepts a report without any effect, so that the link continues. The agent is being stopped,
    /// and its results are in the journal.
    fn discard_report(&mut self, mark: ReportMark, durable: DurableReply, ctx: &mut Context<Session>) {
        self.commit(Transition::after(self.tail), Some(mark), vec![CommitReply::Report(durable)], ctx);
    }

    /// Commits batchable reports as one transition.
    fn commit_events(
        &mut self,
        mark: ReportMark,
        reports: Vec<AgentReport>,
        durable: DurableReply,
        ctx: &mut Context<Session>,
    ) {
        self.last_active = Instant::now();
        let mut transition = Transition::after(self.tail);
        for report in reports {
            if let AgentReport::Event { item, body } = report {
                let (source, body) = attribute_source(body);
                let risk = self.risk_of(item.as_deref(), &body);
                transition.new_events.push(NewEvent { source, cause: None, item, risk, body });
            }
        }
        self.commit(transition, Some(mark), vec![CommitReply::Report(durable)], ctx);
        self.after_report(ctx);
    }

    /// Returns the risk of an agent's tool call, if the call was reviewed.
    fn risk_of(&self, item: Option<&str>, body: &EventBody) -> Option<RiskAssessment> {
        let is_action = matches!(body, EventBody::Action(_));
        item.filter(|_| is_action).and_then(|item| self.reviews.risk_of(item))
    }

    /// Reacts to what the newest report completed: a repetition, or an exceeded quota.
    fn after_report(&mut self, ctx: &mut Context<Session>) {
        if let Some(what) = self.loops.take_note() {
            self.apply(SessionInput::LoopNoted { what }, ctx);
        }
        self.enforce_quota(ctx);
    }

    /// Interrupts the session if its newest report exceeded a quota of the journal.
    fn enforce_quota(&mut self, ctx: &mut Context<Session>) {
        let Some(exceeded) = self.journal_meter.exceeded(&self.deps.quota) else { return };
        if exceeded.is_hard || self.state.visible_state() != AgentState::Interrupting {
            self.apply(SessionInput::QuotaExceeded(exceeded), ctx);
        }
    }

    /// Processes one report. Large content goes to disk first. The link sends no other report
    /// meanwhile.
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
        let assessment = self.assessment_of_request(&report);
        let mut received = ReceivedReport { mark, source, report, full_content: None, risk: None };
        let is_piece = matches!(received.report, AgentReport::Piece { .. });
        let has_content = content.is_some()
            || report_truncation(&received.report).is_some()
            || is_piece
            || page_of(&mut received.report).is_some();
        if !has_content && assessment.is_none() {
            self.apply_report(received, durable, ctx);
            self.after_report(ctx);
            return ActorResponse::reply(());
        }
        let bytes = content.as_ref().map_or(0, String::len) + piece_bytes(&received.report);
        self.journal_meter.add(bytes as u64, true, clock::now_ms());
        let (store, owner) = (self.deps.store.clone(), (self.id, self.epoch));
        let stored = async move {
            let mut received = store_large_content(store, owner, received, content).await?;
            if let Some(assessment) = assessment {
                // A call that was not assessed to the end is never taken for harmless.
                received.risk = Some(assessment.await.unwrap_or_else(cut_off_assessment));
            }
            Ok::<_, StoreError>(received)
        };
        ActorResponse::r#async(stored.into_actor(self).map(move |stored, session, ctx| match stored {
            Ok(received) => match session.mark.as_ref().filter(|newest| newest.boot == received.mark.boot) {
                Some(newest) if newest.n + 1 == received.mark.n => {
                    session.apply_report(received, durable, ctx);
                    session.after_report(ctx);
                }
                // The link was cut meanwhile, and the agent repeated the report. That repetition is
                // committed or in flight.
                Some(_) => {
                    session.commit(Transition::after(session.tail), None, vec![CommitReply::Report(durable)], ctx)
                }
                // The agent was restarted meanwhile, and its numbers begin again.
                None => {}
            },
            Err(e) => session.stop_on_journal_error(&AppendError::NotWritten(Arc::new(io::Error::other(e))), ctx),
        }))
    }

    fn apply_report(&mut self, received: ReceivedReport, durable: DurableReply, ctx: &mut Context<Session>) {
        let ReceivedReport { mark, source, report, full_content, risk } = received;
        // The agent may have been stopped while its content went to disk.
        if !self.state.has_welcomed(&mark.boot) {
            return self.discard_report(mark, durable, ctx);
        }
        // A list of leftovers is no activity: their changes would keep the session awake for ever.
        if !lists_leftovers(&report) {
            self.last_active = Instant::now();
        }
        let reply = vec![CommitReply::Report(durable)];
        let input = match report {
            AgentReport::Event { item, mut body } => {
                let input = match &mut body {
                    EventBody::Observation(Observation { kind, .. }) => {
                        self.stamp_request(item.as_deref(), kind, risk).or_else(|| input_of(kind))
                    }
                    EventBody::Action(_) | EventBody::Opaque(_) => None,
                };
                let risk = self.risk_of(item.as_deref(), &body);
                let mut transition = Transition::after(self.tail);
                let body = match (body, full_content) {
                    (EventBody::Observation(part), Some(full_content)) => part.with_truncation(full_content),
                    (body, _) => body,
                };
                transition.new_events.push(NewEvent { source, cause: None, item, risk, body });
                let behind = transition.new_events.len() as Seq;
                if let Some(Ok(decided)) = input.map(|input| self.decide_behind(behind, input)) {
                    transition.append(decided);
                }
                return self.commit(transition, Some(mark), reply, ctx);
            }
            AgentReport::Piece { .. } => return self.commit(Transition::after(self.tail), Some(mark), reply, ctx),
            AgentReport::TurnEnded { turn, outcome } => {
                SessionInput::TurnEnded { turn, outcome: self.with_provider_error(outcome).fit() }
            }
            AgentReport::UserActionEnded { user_action, outcome } => {
                SessionInput::UserActionEnded { user_action, outcome: outcome.fit() }
            }
            AgentReport::Steered { command } => SessionInput::Steered { command },
            AgentReport::SteerMissed { command } => SessionInput::SteerMissed { command },
        };
        match self.decide(input) {
            Ok(transition) => self.commit(transition, Some(mark), reply, ctx),
            Err(error) => {
                // The report is acknowledged: otherwise the agent would repeat it without end.
                warn!(session = %self.id, "a report does not apply in this state: {error}");
                self.commit(Transition::after(self.tail), Some(mark), reply, ctx);
            }
        }
    }

    /// Replaces the agent's description of a failed turn with the provider's error. The agent
    /// received only a status.
    fn with_provider_error(&mut self, outcome: WorkOutcome) -> WorkOutcome {
        match (outcome, self.provider_error.take()) {
            (WorkOutcome::Failed { code, .. }, Some(error)) if code == "model_error" => {
                WorkOutcome::Failed { code, detail: error }
            }
            (outcome, _) => outcome,
        }
    }
}

/// Report whose number is reserved.
struct ReceivedReport {
    mark: ReportMark,
    /// Source that the report's event names.
    source: EventSource,
    report: AgentReport,
    /// Reference to the full content, if the report has only a part.
    full_content: Option<TruncationMark>,
    /// Risk of the call that an approval request is about, if it was assessed for the request.
    risk: Option<RiskAssessment>,
}

/// Stores content that is too large for an event, sent in the report or before it in pieces.
async fn store_large_content(
    store: Arc<dyn Store>,
    (id, epoch): (SessionId, Epoch),
    mut received: ReceivedReport,
    content: Option<String>,
) -> Result<ReceivedReport, StoreError> {
    if let AgentReport::Piece { item, offset, text, base64 } = &mut received.report {
        let name = content_name(&received.mark.boot, item);
        let piece = ContentPiece { offset: *offset, bytes: decode_piece(std::mem::take(text), *base64) };
        store_piece(&*store, (id, epoch), &name, piece).await?;
    }
    if let Some(PageContents { item, screenshot, html }) = page_of(&mut received.report) {
        for (item, href) in [(screenshot_item(item), screenshot), (html_item(item), html)] {
            let name = content_name(&received.mark.boot, &item);
            if store.finish_content(id, epoch, &name).await? {
                *href = Some(format!("/api/sessions/{id}/contents/{name}"));
            }
        }
    }
    let full_content = match (earlier_content_name(&received.mark.boot, &received.report), content) {
        (Some(name), _) if store.finish_content(id, epoch, &name).await? => {
            let bytes = store.content(id, &name, 0, 0).await?.map_or(0, |part| part.total);
            Some((name, bytes))
        }
        (_, Some(content)) => {
            let bytes = content.len() as u64;
            Some((store.put_content(id, epoch, content.into()).await?, bytes))
        }
        (_, None) => None,
    };
    received.full_content = full_content.map(|(name, bytes)| {
        // The agent may have truncated the content before. Its size then is the agent's own figure,
        // and the reference names what was stored.
        let bytes = report_truncation(&received.report).map_or(bytes, |cut| cut.bytes.max(bytes));
        TruncationMark { bytes, href: Some(format!("/api/sessions/{id}/contents/{name}")) }
    });
    Ok(received)
}

/// Returns the event to commit for an agent's event, and its source.
///
/// The server is the source of the error that replaces an event that agents may not report.
fn attribute_source(body: EventBody) -> (EventSource, EventBody) {
    match body.accept_from_agent() {
        Ok(body) => (EventSource::Agent, body),
        Err(kind) => {
            let kind = excerpt(&kind, KIND_LIMIT).map_or(kind, |cut| cut.text);
            let detail = format!("the agent reported `{kind}`, which only the server or a person may report");
            let error = ObservationKind::Error { code: "not_the_agents".to_owned(), detail };
            (EventSource::Server, Observation { kind: error, content: String::new() }.into())
        }
    }
}

/// Returns the risk of a call whose assessment was cut off.
fn cut_off_assessment() -> RiskAssessment {
    let reasons = vec!["the assessment was cut off".to_owned()];
    RiskAssessment { level: RiskLevel::High, reasons, analyzer: String::new() }
}

fn lists_leftovers(report: &AgentReport) -> bool {
    let AgentReport::Event { body: EventBody::Observation(observation), .. } = report else { return false };
    matches!(observation.kind, ObservationKind::Commands { .. })
}

/// Returns true if a report may share a commit with others.
///
/// Such a report is an event that causes no decision and has no content to store first.
pub fn is_batchable(report: &AgentReport) -> bool {
    match report {
        AgentReport::Event { body: EventBody::Observation(Observation { kind, content }), .. } => {
            fits_json(content, CONTENT_LIMIT)
                && !matches!(
                    kind,
                    ObservationKind::Confirm { .. } | ObservationKind::Commands { .. } | ObservationKind::Browse { .. }
                )
                && observation_truncation(kind).is_none()
        }
        AgentReport::Event { body: EventBody::Action(_) | EventBody::Opaque(_), .. } => true,
        _ => false,
    }
}

/// Returns the size of a piece of content, in bytes.
fn piece_bytes(report: &AgentReport) -> usize {
    if let AgentReport::Piece { text, .. } = report { text.len() } else { 0 }
}

/// Returns the report's own note of how much it left out.
fn report_truncation(report: &AgentReport) -> Option<&TruncationMark> {
    let AgentReport::Event { body: EventBody::Observation(Observation { kind, .. }), .. } = report else {
        return None;
    };
    observation_truncation(kind)
}

fn observation_truncation(kind: &ObservationKind) -> Option<&TruncationMark> {
    let (ObservationKind::Run { truncated, .. }
    | ObservationKind::Read { truncated, .. }
    | ObservationKind::Browse { truncated, .. }
    | ObservationKind::Tool { truncated, .. }) = kind
    else {
        return None;
    };
    truncated.as_ref()
}

/// Takes content that is too large for an event out of an observation. Head and tail stay.
fn take_large_content(report: &mut AgentReport) -> Option<String> {
    // The agent may have cut the content before.
    let whole = report_truncation(report).and_then(|mark| usize::try_from(mark.bytes).ok());
    let AgentReport::Event { body: EventBody::Observation(Observation { content, .. }), .. } = report else {
        return None;
    };
    let cut = json_excerpt(content, whole, CONTENT_LIMIT)?;
    Some(std::mem::replace(content, cut.text))
}

/// Returns the name under which the pieces of a text are stored.
///
/// The name depends on the agent's data alone. After a kill, the next server continues under the
/// same name.
fn content_name(boot: &str, item: &str) -> String {
    let digest = Sha256::new().chain_update(boot).chain_update([0]).chain_update(item).finalize();
    let mut name = [0; 16];
    name.copy_from_slice(&digest[..16]);
    ulid::Ulid::from_bytes(name).to_string()
}

/// Returns the name of the pieces that may have preceded this report.
fn earlier_content_name(boot: &str, report: &AgentReport) -> Option<String> {
    let AgentReport::Event { item: Some(item), .. } = report else { return None };
    report_truncation(report).map(|_| content_name(boot, item))
}

async fn store_piece(
    store: &dyn Store,
    (id, epoch): (SessionId, Epoch),
    name: &str,
    piece: ContentPiece,
) -> Result<(), StoreError> {
    if piece.offset.saturating_add(piece.bytes.len() as u64) > FULL_TEXT_LIMIT {
        warn!(session = %id, offset = piece.offset, "a piece beyond the limit of one text was dropped");
        return Ok(());
    }
    store.extend_content(id, epoch, name, piece).await
}

/// Returns the bytes of a piece. A piece that is no Base64 is empty.
fn decode_piece(text: String, base64: bool) -> Bytes {
    if base64 { BASE64_STANDARD.decode(text).unwrap_or_default().into() } else { text.into() }
}

/// Page of a report, and where its stored contents are noted.
struct PageContents<'a> {
    item: &'a str,
    screenshot: &'a mut Option<String>,
    html: &'a mut Option<String>,
}

/// Returns the page that a report is about.
fn page_of(report: &mut AgentReport) -> Option<PageContents<'_>> {
    let AgentReport::Event { item: Some(item), body: EventBody::Observation(Observation { kind, .. }) } = report else {
        return None;
    };
    let ObservationKind::Browse { screenshot, html, .. } = kind else { return None };
    Some(PageContents { item, screenshot, html })
}

/// Returns what the rules decide about an observation of the agent. `None`: nothing.
fn input_of(kind: &ObservationKind) -> Option<SessionInput> {
    let ObservationKind::Commands { items, .. } = kind else { return None };
    let pids = items.iter().take(LEFTOVERS_LIMIT).map(|process| process.pid).collect();
    Some(SessionInput::LeftoversReported { pids })
}

#[cfg(test)]
mod tests;
