//! One handler for each message: it forwards.

#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::prelude::*;
use greenroom_protocol::{Action, Seen, client::Wish};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    Session,
    commit::{ON_THE_WAY, Reply},
    decision::Decision,
    messages::*,
    turn::{Input, Named, Refusal},
    usage::counted,
    view::View,
};
use crate::{
    gateway::{Metered, Notice},
    store::Record,
};

impl Session {
    /// Lets the rules decide about a wish; the answer comes when it is on disk.
    fn wish(&mut self, input: Input, named: Option<Named>, ctx: &mut Context<Session>) -> ResponseFuture<Answer> {
        self.entry.handled();
        self.active = Instant::now();
        if let Some(answer) = self.said_before(named.as_ref(), ctx) {
            return answer;
        }
        let most = if has_contents(&input) { ON_THE_WAY } else { 2 * ON_THE_WAY };
        if let Err(refusal) = self.room_on_the_way(most) {
            return Box::pin(async { Err(refusal) });
        }
        let first = self.tail + 1;
        let decision = match self.decide(input) {
            Ok(decision) => decision,
            Err(refusal) => return Box::pin(async { Err(refusal) }),
        };
        let seq = (!decision.drafts.is_empty()).then_some(first);
        if let Some(named) = named {
            self.core.remember(named, seq);
            self.core_changed = true;
        }
        self.answer(decision, seq, ctx)
    }

    /// The answer to a wish whose name was given before, to this wish or to another one.
    fn said_before(&mut self, named: Option<&Named>, ctx: &mut Context<Session>) -> Option<ResponseFuture<Answer>> {
        match self.core.remembers(named?) {
            Ok(None) => None,
            Ok(Some(seq)) => Some(self.answer_again(seq, ctx)),
            Err(refusal) => Some(Box::pin(async { Err(refusal) })),
        }
    }

    fn answer_again(&mut self, seq: Option<u64>, ctx: &mut Context<Session>) -> ResponseFuture<Answer> {
        let nothing = Decision::after(self.tail);
        self.answer(nothing, seq, ctx)
    }

    fn answer(&mut self, decision: Decision, seq: Option<u64>, ctx: &mut Context<Session>) -> ResponseFuture<Answer> {
        let (asker, answer) = oneshot::channel();
        let accepted = Accepted { seq, state: self.core.state() };
        self.commit(decision, None, vec![Reply::Wish(asker, accepted)], ctx);
        Box::pin(async move { answer.await.unwrap_or(Err(Refusal::Unanswered)) })
    }

    fn change_model(&self, model: String, title: Option<String>) -> Result<Input, Refusal> {
        let model = said("model", model)?;
        (self.parts.may_use)(&model).map_err(|e| Refusal::BadArgs(e.to_string()))?;
        let settings = (self.parts.settings)(&Record { model, ..Record::clone(&self.record) });
        Ok(Input::SetModel { settings, title })
    }

    /// What a wish is to the rules; `Err` for what is no matter of the session.
    fn input(&self, wish: Wish) -> Result<Input, Refusal> {
        Ok(match wish {
            Wish::Start { task } => Input::Start { task: said("task", task)? },
            Wish::Message { content, mode, attachments } => {
                Input::Message { content: said("content", content)?, mode, attachments }
            }
            Wish::Run { command } => Input::Act(Action::Run { command: said("command", command)? }),
            Wish::Read { path } => Input::Act(Action::Read { path: said("path", path)? }),
            Wish::Write { path, content } => Input::Act(Action::Write { path: said("path", path)?, content }),
            Wish::Browse { url } => Input::Act(Action::Browse { url: said("url", url)? }),
            Wish::Interrupt {} => Input::Interrupt,
            Wish::Pause {} => Input::Pause,
            Wish::Resume {} => Input::Resume,
            Wish::Stop {} => Input::Stop { reason: None },
            Wish::End {} => Input::End,
            Wish::Confirm { request, decision, reason } => Input::Confirm { request, decision, reason },
            Wish::EditQueue { item, content, remove } => {
                let content = content.map(|content| said("content", content)).transpose()?;
                Input::EditQueue { item, content, remove }
            }
            Wish::SetModel { model } => self.change_model(model, None)?,
            Wish::Initialize { model, title, image, directory, agent_cls } => {
                return self.initialize(model, title, image.or(directory).or(agent_cls));
            }
            Wish::Ping {} => return Err(Refusal::BadArgs("`ping` is answered by the connection".to_owned())),
        })
    }

    fn initialize(
        &self,
        model: Option<String>,
        title: Option<String>,
        fixed: Option<String>,
    ) -> Result<Input, Refusal> {
        if fixed.is_some() {
            return Err(Refusal::BadArgs(
                "`image`, `directory` and `agent_cls` are chosen when a session is made; make a new one with them"
                    .to_owned(),
            ));
        }
        match model {
            Some(model) => self.change_model(model, title),
            None => Ok(Input::SetModel { settings: (self.parts.settings)(&self.record), title }),
        }
    }

    fn used(&mut self, metered: Metered, unwritten: Option<OwnedSemaphorePermit>, ctx: &mut Context<Session>) {
        let usage = counted(&mut Arc::make_mut(&mut self.record).usage, metered);
        self.record_changed = true;
        self.note(Seen::Usage(usage), vec![Reply::Noticed(unwritten)], ctx);
    }
}

/// Whether much may have to be written down for a wish. What stops, pauses or answers has as much room again.
fn has_contents(input: &Input) -> bool {
    matches!(
        input,
        Input::Start { .. } | Input::Message { .. } | Input::Act(_) | Input::EditQueue { .. } | Input::SetModel { .. }
    )
}

/// A text that must say something.
fn said(name: &str, text: String) -> Result<String, Refusal> {
    if text.trim().is_empty() { Err(Refusal::BadArgs(format!("`{name}` is empty"))) } else { Ok(text) }
}

impl Handler<Relay> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, Relay { wish, key }: Relay, ctx: &mut Context<Session>) -> Self::Result {
        let named = Named::given(key, &wish);
        match self.input(wish) {
            Ok(input) => self.wish(input, named, ctx),
            // What was granted once is answered so again, also where it would be refused now: as what makes a session is.
            Err(refusal) => self.said_before(named.as_ref(), ctx).unwrap_or_else(|| Box::pin(async { Err(refusal) })),
        }
    }
}

impl Handler<Interrupt> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, Interrupt { key }: Interrupt, ctx: &mut Context<Session>) -> Self::Result {
        self.wish(Input::Interrupt, Named::given(key, &Wish::Interrupt {}), ctx)
    }
}

impl Handler<Pause> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, Pause { key }: Pause, ctx: &mut Context<Session>) -> Self::Result {
        self.wish(Input::Pause, Named::given(key, &Wish::Pause {}), ctx)
    }
}

impl Handler<Resume> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, Resume { key }: Resume, ctx: &mut Context<Session>) -> Self::Result {
        self.wish(Input::Resume, Named::given(key, &Wish::Resume {}), ctx)
    }
}

impl Handler<Stop> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, Stop { key, reason }: Stop, ctx: &mut Context<Session>) -> Self::Result {
        self.wish(Input::Stop { reason }, Named::given(key, &Wish::Stop {}), ctx)
    }
}

impl Handler<End> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, End { key }: End, ctx: &mut Context<Session>) -> Self::Result {
        self.wish(Input::End, Named::given(key, &Wish::End {}), ctx)
    }
}

impl Handler<Rest> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, Rest { pause_after, stop_after, awake }: Rest, ctx: &mut Context<Session>) -> Self::Result {
        let idle = self.active.elapsed().min(awake);
        let (long_enough, input) = if self.core.is_paused() {
            let reason = Some(format!("nothing happened for {}", in_words(idle)));
            (idle >= stop_after, Input::StopResting { reason })
        } else {
            (idle >= pause_after, Input::Rest { reason: format!("nothing happened for {}", in_words(idle)) })
        };
        if !long_enough || self.shared.listeners() > 0 {
            return Box::pin(async { Err(Refusal::Busy) });
        }
        let active = self.active;
        let answer = self.wish(input, None, ctx);
        // Being put to rest is no activity.
        self.active = active;
        answer
    }
}

/// A time in which nothing happened, for a person.
fn in_words(idle: Duration) -> String {
    match idle.as_secs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    }
}

impl Handler<Amend> for Session {
    type Result = ResponseFuture<Result<View, Refusal>>;

    fn handle(&mut self, Amend { title, archived, model }: Amend, ctx: &mut Context<Session>) -> Self::Result {
        let decision = self.room_on_the_way(ON_THE_WAY).and_then(|()| match model {
            None => Ok(Decision::after(self.tail)),
            Some(model) => self.change_model(model, None).and_then(|input| self.decide(input)),
        });
        let decision = match decision {
            Ok(decision) => decision,
            Err(refusal) => return Box::pin(async { Err(refusal) }),
        };
        let record = Arc::make_mut(&mut self.record);
        record.title = title.unwrap_or_else(|| record.title.clone());
        record.archived = archived.unwrap_or(record.archived);
        self.record_changed = true;
        let answer = self.answer(decision, None, ctx);
        let view = self.view();
        Box::pin(async move { answer.await.map(|_| view) })
    }
}

impl Handler<Attach> for Session {
    type Result = MessageResult<Attach>;

    fn handle(&mut self, Attach { listener }: Attach, _: &mut Context<Session>) -> Self::Result {
        self.entry.handled();
        let listening = self.shared.listen(listener);
        MessageResult(Attached { view: self.view(), listening })
    }
}

impl Handler<Look> for Session {
    type Result = MessageResult<Look>;

    fn handle(&mut self, _: Look, _: &mut Context<Session>) -> Self::Result {
        MessageResult(self.view())
    }
}

impl Handler<Begin> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, Begin { task }: Begin, ctx: &mut Context<Session>) -> Self::Result {
        if self.core.was_spoken_to() {
            self.answer_again(None, ctx)
        } else {
            self.wish(Input::Start { task }, None, ctx)
        }
    }
}

impl Handler<Flush> for Session {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, _: Flush, ctx: &mut Context<Session>) -> Self::Result {
        self.answer_again(None, ctx)
    }
}

impl Handler<Settle> for Session {
    type Result = bool;

    fn handle(&mut self, Settle { seen }: Settle, ctx: &mut Context<Session>) -> bool {
        let is_settled = self.pending.is_empty() && !self.kills.is_any();
        let order = self.core.settles(seen).filter(|_| is_settled);
        order.map(|order| self.give(order, ctx)).is_some()
    }
}

impl Handler<Retire> for Session {
    type Result = bool;

    fn handle(&mut self, _: Retire, ctx: &mut Context<Session>) -> bool {
        let at_rest = !self.core.wants_sandbox() && self.pending.is_empty() && self.shared.listeners() == 0;
        // The next actor of this session has a link of its own, whose sandbox an order to this one must never meet.
        let may_go = at_rest && !self.kills.is_any();
        if may_go {
            self.ending = Ending::AtRest;
            ctx.stop();
        }
        may_go
    }
}

impl Handler<Took> for Session {
    type Result = ();

    fn handle(&mut self, Took { command }: Took, ctx: &mut Context<Session>) {
        self.take(Input::Took { command }, ctx);
    }
}

impl Handler<Phased> for Session {
    type Result = ();

    fn handle(&mut self, Phased { phase, detail, isolation }: Phased, ctx: &mut Context<Session>) {
        self.take(Input::Phased { phase, detail, isolation }, ctx);
    }
}

impl Handler<StartFailed> for Session {
    type Result = ();

    fn handle(&mut self, StartFailed { why, stderr_tail }: StartFailed, ctx: &mut Context<Session>) {
        // What comes after the end that it was to have anyway is decided already.
        if !self.takes_it_away() {
            self.take(Input::StartFailed { why, stderr_tail }, ctx);
        }
    }
}

impl Handler<Lost> for Session {
    type Result = ();

    fn handle(&mut self, Lost { exit }: Lost, ctx: &mut Context<Session>) {
        if !self.takes_it_away() {
            self.take(Input::Lost(exit), ctx);
        }
    }
}

impl Handler<OrderFailed> for Session {
    type Result = ();

    fn handle(&mut self, OrderFailed { what, why }: OrderFailed, ctx: &mut Context<Session>) {
        self.take(Input::OrderFailed { what, why }, ctx);
    }
}

impl Handler<Noticed> for Session {
    type Result = ();

    fn handle(&mut self, Noticed { notice, unwritten }: Noticed, ctx: &mut Context<Session>) {
        match notice {
            Notice::Used(metered) => self.used(metered, unwritten, ctx),
            Notice::Retrying { attempt, wait_ms, why } => {
                let detail = format!("{why}; asking again in {:.1} s (attempt {attempt})", wait_ms as f64 / 1000.0);
                let seen = Seen::Error { code: "provider_retrying".to_owned(), detail };
                self.note(seen, vec![Reply::Noticed(unwritten)], ctx);
            }
            Notice::Refused { why, .. } => self.provider_said = Some(why),
        }
    }
}
