//! What the agent tells: it introduces itself, and its reports come into the journal once each, in its own order.

use std::{io, sync::Arc, time::Instant};

use actix::prelude::*;
use greenroom_protocol::{
    Body, CONTENT_LIMIT, Observation, Seen, Source, WHOLE_LIMIT, excerpt,
    link::{LINK_VERSION, Outcome, Report, Welcome},
    observation::Truncated,
};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::{Session, commit::Reply, decision::Decision, messages::*, turn::Input};
use crate::store::{AppendError, Mark, SessionId, Store, StoreError};

/// How much of a kind's name is repeated, in bytes.
const KIND_LIMIT: usize = 128;

impl Handler<Greeted> for Session {
    type Result = Result<Greeting, Unwelcome>;

    fn handle(&mut self, Greeted { hello }: Greeted, ctx: &mut Context<Session>) -> Self::Result {
        self.entry.handled();
        if hello.link_version != LINK_VERSION {
            return Err(Unwelcome::Version { theirs: hello.link_version });
        }
        if !self.core.wants_sandbox() || self.takes_it_away() {
            return Err(Unwelcome::Leaving);
        }
        let known = self.mark.as_ref().is_some_and(|mark| mark.boot == hello.boot);
        let acked = self.durable_mark.as_ref().filter(|mark| mark.boot == hello.boot).map_or(0, |mark| mark.n);
        if !known {
            self.mark = Some(Mark { boot: hello.boot.clone(), n: 0 });
            self.let_go_of_pieces(ctx);
        }
        let restore = !self.core.has_welcomed(&hello.boot);
        let history_to = self.core.history_to(self.tail);
        self.take(Input::Greeted { boot: hello.boot }, ctx);
        let settings = (self.parts.settings)(&self.record);
        let welcome = Welcome { session: self.id.to_string(), acked, restore, settings };
        let has_an_act = self.core.has_an_act();
        Ok(Greeting { welcome, live: self.shared.clone(), has_an_act, history_to })
    }
}

impl Handler<Reported> for Session {
    type Result = ActorResponse<Session, ()>;

    fn handle(&mut self, reported: Reported, ctx: &mut Context<Session>) -> Self::Result {
        self.entry.handled();
        let Reported { boot, n, mut reports, durable } = reported;
        let known = self.mark.as_ref().filter(|mark| mark.boot == boot).map(|mark| mark.n);
        let last = n.saturating_add(reports.len() as u64 - 1);
        match known {
            Some(newest) if n <= newest.saturating_add(1) && last > newest => {
                // What came before is taken already.
                reports.drain(..(newest + 1 - n) as usize);
                let mark = Mark { boot, n: last };
                if !self.core.has_welcomed(&mark.boot) {
                    self.hear_no_more(mark, durable, ctx);
                    return ActorResponse::reply(());
                }
                match <[Report; 1]>::try_from(reports) {
                    Ok([report]) => return self.take_in(mark, report, durable, ctx),
                    Err(reports) => self.take_events(mark, reports, durable, ctx),
                }
            }
            // All of it came before: it is acknowledged with whatever is on its way to disk.
            Some(newest) if last <= newest => {
                let nothing = Decision::after(self.tail);
                self.commit(nothing, None, vec![Reply::Report(durable)], ctx);
            }
            newest => {
                let _ended_already = durable.send(Err(OutOfOrder { n, newest: newest.unwrap_or(0) }));
            }
        }
        ActorResponse::reply(())
    }
}

impl Handler<Heard> for Session {
    type Result = ();

    fn handle(&mut self, _: Heard, _: &mut Context<Session>) {}
}

impl Session {
    /// What an agent that is gone has not told to its end, nobody will. Before the next one begins to tell.
    fn let_go_of_pieces(&self, ctx: &mut Context<Session>) {
        let (store, id) = (self.parts.store.clone(), self.id);
        let gone = async move { store.drop_unfinished(id).await };
        ctx.wait(gone.into_actor(self).map(|gone, session, _| {
            if let Err(e) = gone {
                warn!(session = %session.id, "pieces of an agent that is gone stay on the disk: {e}");
            }
        }));
    }

    /// The agent is being taken away, and what it had come to is in the journal: what it still says counts as taken, so that
    /// its link goes on, and leads to nothing.
    fn hear_no_more(&mut self, mark: Mark, durable: Durable, ctx: &mut Context<Session>) {
        self.commit(Decision::after(self.tail), Some(mark), vec![Reply::Report(durable)], ctx);
    }

    /// Takes in what is written down and no more, as one.
    fn take_events(&mut self, mark: Mark, reports: Vec<Report>, durable: Durable, ctx: &mut Context<Session>) {
        self.active = Instant::now();
        let mut decision = Decision::after(self.tail);
        for report in reports {
            if let Report::Event { item, body } = report {
                let (source, body) = vouched(body);
                decision.record(source, None, item, body);
            }
        }
        self.commit(decision, Some(mark), vec![Reply::Report(durable)], ctx);
    }

    /// Takes a report in, after its large content, if it has one, is safe on disk. The link sends no other meanwhile.
    fn take_in(
        &mut self,
        mark: Mark,
        report: Report,
        durable: Durable,
        ctx: &mut Context<Session>,
    ) -> ActorResponse<Session, ()> {
        let (source, mut report) = match report {
            Report::Event { item, body } => {
                let (source, body) = vouched(body);
                (source, Report::Event { item, body })
            }
            report => (Source::Agent, report),
        };
        let content = take_large_content(&mut report);
        let taken = Taken { mark, source, report, whole: None };
        let is_piece = matches!(taken.report, Report::Piece { .. });
        if content.is_none() && left_out(&taken.report).is_none() && !is_piece {
            self.report(taken, durable, ctx);
            return ActorResponse::reply(());
        }
        let (store, id) = (self.parts.store.clone(), self.id);
        let kept = keep(store, id, taken, content);
        ActorResponse::r#async(kept.into_actor(self).map(move |kept, session, ctx| match kept {
            Ok(taken) => match session.mark.as_ref().filter(|newest| newest.boot == taken.mark.boot) {
                Some(newest) if newest.n + 1 == taken.mark.n => session.report(taken, durable, ctx),
                // The link was cut meanwhile, and the agent said it once more: that has its place already.
                Some(_) => session.commit(Decision::after(session.tail), None, vec![Reply::Report(durable)], ctx),
                // The agent was started again meanwhile, and counts from the beginning.
                None => {}
            },
            Err(e) => session.give_up(&AppendError::Refused(Arc::new(io::Error::other(e))), ctx),
        }))
    }

    fn report(&mut self, taken: Taken, durable: Durable, ctx: &mut Context<Session>) {
        let Taken { mark, source, report, whole } = taken;
        // It may have been taken away while its content went to disk.
        if !self.core.has_welcomed(&mark.boot) {
            return self.hear_no_more(mark, durable, ctx);
        }
        self.active = Instant::now();
        let reply = vec![Reply::Report(durable)];
        let input = match report {
            Report::Event { item, body } => {
                let asked = asks(&body).map(|request| Input::Asked { request });
                let mut decision = Decision::after(self.tail);
                let body = match (body, whole) {
                    (Body::Observation(part), Some(whole)) => part.part_of(whole),
                    (body, _) => body,
                };
                decision.record(source, None, item, body);
                if let Some(Ok(asked)) = asked.map(|asked| self.decide(asked)) {
                    decision.drafts.extend(asked.drafts);
                }
                return self.commit(decision, Some(mark), reply, ctx);
            }
            Report::Piece { .. } => return self.commit(Decision::after(self.tail), Some(mark), reply, ctx),
            Report::TurnEnded { turn, outcome } => Input::TurnEnded { turn, outcome: self.explained(outcome).fit() },
            Report::ActEnded { act, outcome } => Input::ActEnded { act, outcome: outcome.fit() },
            Report::Steered { command } => Input::Steered { command },
            Report::SteerMissed { command } => Input::SteerMissed { command },
        };
        match self.decide(input) {
            Ok(decision) => self.commit(decision, Some(mark), reply, ctx),
            Err(refusal) => {
                // It counts as taken: the agent would say it for ever.
                warn!(session = %self.id, "a report means nothing here: {refusal}");
                self.commit(Decision::after(self.tail), Some(mark), reply, ctx);
            }
        }
    }

    /// Puts what the provider said into the agent's account of a failed turn: the agent saw only a status.
    fn explained(&mut self, outcome: Outcome) -> Outcome {
        match (outcome, self.provider_said.take()) {
            (Outcome::Failed { code, .. }, Some(why)) if code == "model_error" => Outcome::Failed { code, detail: why },
            (outcome, _) => outcome,
        }
    }
}

/// A report that has its place.
struct Taken {
    mark: Mark,
    /// Whose word it is.
    source: Source,
    report: Report,
    /// Where the whole is of which it has only a part.
    whole: Option<Truncated>,
}

/// Keeps what is too large for an event, be it in the report or told before in pieces.
async fn keep(
    store: Arc<dyn Store>,
    id: SessionId,
    mut taken: Taken,
    content: Option<String>,
) -> Result<Taken, StoreError> {
    if let Report::Piece { item, offset, text } = &mut taken.report {
        let name = content_name(&taken.mark.boot, item);
        keep_piece(&*store, id, &name, *offset, std::mem::take(text)).await?;
    }
    let whole = match (pieces_of(&taken.mark.boot, &taken.report), content) {
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
    taken.whole = whole.map(|(name, bytes)| {
        // The agent may have cut it before: then the size is its own word, and this is where the rest is.
        let bytes = left_out(&taken.report).map_or(bytes, |cut| cut.bytes.max(bytes));
        Truncated { bytes, href: Some(format!("/api/sessions/{id}/contents/{name}")) }
    });
    Ok(taken)
}

/// What an agent says as it is written down, and whose word it is then.
fn vouched(body: Body) -> (Source, Body) {
    match body.of_an_agent() {
        Ok(body) => (Source::Agent, body),
        Err(kind) => {
            let kind = excerpt(&kind, KIND_LIMIT).map_or(kind, |cut| cut.text);
            let detail = format!("the agent reported `{kind}`, which is not for an agent to say");
            let seen = Seen::Error { code: "not_the_agents".to_owned(), detail };
            (Source::Server, Observation { seen, content: String::new() }.into())
        }
    }
}

/// Whether a report may go into the journal together with others: it is an event and no more. Nothing is decided because of
/// it, and nothing has to be on disk before it.
pub fn goes_with_others(report: &Report) -> bool {
    match report {
        Report::Event { body: Body::Observation(Observation { seen, content }), .. } => {
            content.len() <= CONTENT_LIMIT && !matches!(seen, Seen::Confirm { .. }) && truncated(seen).is_none()
        }
        Report::Event { body: Body::Action(_) | Body::Opaque(_), .. } => true,
        _ => false,
    }
}

/// What it says of how much it left out.
fn left_out(report: &Report) -> Option<&Truncated> {
    let Report::Event { body: Body::Observation(Observation { seen, .. }), .. } = report else { return None };
    truncated(seen)
}

fn truncated(seen: &Seen) -> Option<&Truncated> {
    let (Seen::Run { truncated, .. } | Seen::Read { truncated, .. } | Seen::Browse { truncated, .. }) = seen else {
        return None;
    };
    truncated.as_ref()
}

/// Takes the whole content out of an observation that is too large for an event, and leaves its head and tail.
fn take_large_content(report: &mut Report) -> Option<String> {
    let Report::Event { body: Body::Observation(Observation { content, .. }), .. } = report else { return None };
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
fn pieces_of(boot: &str, report: &Report) -> Option<String> {
    let Report::Event { item: Some(item), .. } = report else { return None };
    left_out(report).map(|_| content_name(boot, item))
}

async fn keep_piece(store: &dyn Store, id: SessionId, name: &str, offset: u64, text: String) -> Result<(), StoreError> {
    if offset.saturating_add(text.len() as u64) > WHOLE_LIMIT {
        warn!(session = %id, offset, "a piece beyond what is kept of one text is left out");
        return Ok(());
    }
    store.extend_content(id, name, offset, text.into()).await
}

/// Under which name an event of the agent asks a person.
fn asks(body: &Body) -> Option<String> {
    match body {
        Body::Observation(Observation { seen: Seen::Confirm { request, .. }, .. }) => Some(request.clone()),
        Body::Observation(_) | Body::Action(_) | Body::Opaque(_) => None,
    }
}

#[cfg(test)]
mod tests;
