//! What people ask of a session, and what of it is granted.

use greenroom_protocol::{
    Action, Observation, Seen, Source,
    action::{Decision as Verdict, Mode},
    link::{Command, Settings},
    observation::{Phase, QueueItem, Rung},
};

use super::{Act, Core, Life, Refusal, Steering, Waiting, sandbox, seen};
use crate::session::{
    decision::{Decision, Moment, Order},
    messages::orders::Then,
};

impl Core {
    pub(super) fn start(&mut self, task: String, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        if self.turn.is_some() || !self.queue.is_empty() {
            return Err(Refusal::Busy);
        }
        self.room_for_message(&task, &[])?;
        let item = QueueItem { item: self.name("message"), content: task.clone(), attachments: Vec::new() };
        let cause = d.record(Source::User, None, Some(item.item.clone()), Action::Start { task });
        self.queue.push_back(Waiting { item, cause, missed: false, interrupts: false });
        self.wake(d);
        Ok(())
    }

    pub(super) fn message(
        &mut self,
        content: String,
        mode: Mode,
        attachments: Vec<String>,
        moment: Moment<'_>,
        d: &mut Decision,
    ) -> Result<(), Refusal> {
        self.open()?;
        self.room_for_message(&content, &attachments)?;
        let item = QueueItem { item: self.name("message"), content: content.clone(), attachments: attachments.clone() };
        let said = Action::Message { content: content.clone(), mode, attachments: attachments.clone() };
        let cause = d.record(Source::User, None, Some(item.item.clone()), said);
        let message = Waiting { item, cause, missed: false, interrupts: false };
        let running = self.turn.is_some() && self.interrupting.is_none();
        match mode {
            Mode::Steer if running => {
                let command = self.deliver(Command::Steer { content, attachments }, d);
                self.steering.push(Steering { command, message });
            }
            Mode::Interrupt if self.runs() => {
                // Behind those that did so before it: who says "no, rather that" wants that done last.
                let before = self.queue.iter().take_while(|waiting| waiting.interrupts).count();
                self.queue.insert(before, Waiting { interrupts: true, ..message });
                if self.interrupting.is_none() {
                    self.cancel(cause, moment, d);
                }
                self.held = false;
            }
            Mode::Queue | Mode::Steer | Mode::Interrupt => {
                self.queue.push_back(message);
                self.wake(d);
            }
        }
        Ok(())
    }

    pub(super) fn act(&mut self, action: Action, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        self.room_for_act(&action)?;
        let id = self.name("act");
        let cause = d.record(Source::User, None, Some(id.clone()), action.clone());
        self.acts.push_back(Act { id, action, cause });
        let held = self.held;
        self.wake(d);
        self.held = held;
        Ok(())
    }

    /// A person said something: what waits may go on, and there must be a sandbox for it.
    pub(super) fn wake(&mut self, d: &mut Decision) {
        self.held = false;
        match self.life {
            Life::Stopped { .. } | Life::Failed { .. } => {
                self.life = Life::Starting;
                d.order(Order::Raise);
            }
            // Paused in the middle of something stays paused: only `resume` goes on with that.
            Life::Paused if !self.runs() => {
                self.thaw(d);
            }
            Life::Starting | Life::Up | Life::Paused | Life::Ended => {}
        }
    }

    pub(super) fn interrupt(&mut self, moment: Moment<'_>, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        if !self.works() || self.life == Life::Starting {
            return Err(Refusal::NothingToInterrupt);
        }
        let cause = d.record(Source::User, None, None, Action::Interrupt {});
        // Also of what came since an earlier one: the last word was to stop.
        self.held = !self.queue.is_empty() || !self.steering.is_empty();
        if self.interrupting.is_some() {
            self.take_away(moment, d);
        } else {
            self.cancel(cause, moment, d);
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        match self.life {
            Life::Up if self.interrupting.is_none() => {
                d.record(Source::User, None, None, Action::Pause {});
                self.freeze(None, d);
                Ok(())
            }
            Life::Paused => Err(Refusal::Already("paused")),
            Life::Up => Err(self.wrong("be paused", "wait until the interrupt has ended")),
            Life::Starting => Err(self.wrong("be paused", "wait until it is up")),
            Life::Stopped { .. } | Life::Failed { .. } => Err(self.wrong("be paused", "there is nothing to freeze")),
            Life::Ended => Err(Refusal::Ended),
        }
    }

    /// `rests` says why, where nobody asked for it.
    fn freeze(&mut self, rests: Option<String>, d: &mut Decision) {
        self.life = Life::Paused;
        self.rests = rests;
        self.thaw_failed = false;
        d.order(Order::Freeze);
    }

    pub(super) fn thaw(&mut self, d: &mut Decision) {
        self.life = Life::Up;
        d.order(Order::Thaw);
    }

    pub(super) fn resume(&mut self, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        let order = match self.life {
            Life::Paused => Some(Order::Thaw),
            Life::Stopped { .. } | Life::Failed { .. } => Some(Order::Raise),
            Life::Up if self.held => None,
            Life::Up | Life::Starting => return Err(Refusal::Already("up")),
            Life::Ended => return Err(Refusal::Ended),
        };
        d.record(Source::User, None, None, Action::Resume {});
        self.held = false;
        self.life = if order == Some(Order::Raise) { Life::Starting } else { Life::Up };
        d.orders.extend(order);
        Ok(())
    }

    pub(super) fn stop(&mut self, reason: Option<String>, moment: Moment<'_>, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        if matches!(self.life, Life::Stopped { .. }) {
            return Err(Refusal::Already("stopped"));
        }
        let source = if reason.is_some() { Source::Server } else { Source::User };
        d.record(source, None, None, Action::Stop {});
        self.put_down(Then::Rest, moment, d);
        self.life = Life::Stopped { reason };
        Ok(())
    }

    pub(super) fn end(&mut self, moment: Moment<'_>, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        d.record(Source::User, None, None, Action::End {});
        self.put_down(Then::Remove, moment, d);
        self.queue.clear();
        self.life = Life::Ended;
        Ok(())
    }

    /// Takes the sandbox away, and ends whatever ran in it.
    pub(super) fn put_down(&mut self, then: Then, moment: Moment<'_>, d: &mut Decision) {
        self.cut_short(Rung::Sandbox, moment, d);
        self.held = !self.queue.is_empty();
        self.boot = None;
        d.order(Order::Cut);
        d.order(Order::Kill(then));
    }

    pub(super) fn rest(&mut self, reason: String, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        if self.works() || !self.queue.is_empty() || self.confirm.is_some() {
            return Err(Refusal::Busy);
        }
        match self.life {
            Life::Up => {
                let paused = Observation { seen: sandbox(Phase::Paused, None), content: reason.clone() };
                d.record(Source::Server, None, None, paused);
                self.freeze(Some(reason), d);
                Ok(())
            }
            Life::Starting | Life::Paused | Life::Stopped { .. } | Life::Failed { .. } | Life::Ended => {
                Err(self.wrong("rest", "it is not up"))
            }
        }
    }

    pub(super) fn confirm(
        &mut self,
        request: String,
        decision: Verdict,
        reason: Option<String>,
        d: &mut Decision,
    ) -> Result<(), Refusal> {
        self.open()?;
        if self.confirm.as_ref() != Some(&request) {
            return Err(Refusal::NoRequest(request));
        }
        self.confirm = None;
        let said = Action::Confirm { request: request.clone(), decision, reason: reason.clone() };
        let cause = d.record(Source::User, None, None, said);
        let confirmed = seen(Seen::Confirmed { request: request.clone(), decision });
        d.record(Source::Server, Some(cause), None, confirmed);
        self.deliver(Command::Answer { request, decision, reason }, d);
        Ok(())
    }

    pub(super) fn edit_queue(&mut self, item: &str, content: Option<String>, remove: bool) -> Result<(), Refusal> {
        self.open()?;
        let at = self.queue.iter().position(|waiting| waiting.item.item == item);
        let at = at.ok_or_else(|| Refusal::NotQueued(item.to_owned()))?;
        match (content, remove) {
            (None, true) => {
                self.queue.remove(at);
            }
            (Some(content), false) => {
                self.room_for_change(&self.queue[at].item.content, &content)?;
                self.queue[at].item.content = content;
            }
            (None, false) | (Some(_), true) => {
                return Err(Refusal::BadArgs("give either `content` or `remove: true`".to_owned()));
            }
        }
        self.held &= !self.queue.is_empty();
        Ok(())
    }

    pub(super) fn set_model(&mut self, settings: Settings, d: &mut Decision) -> Result<(), Refusal> {
        self.open()?;
        d.record(Source::User, None, None, Action::SetModel { model: settings.model.clone() });
        if self.boot.is_some() {
            // A frozen agent takes none of them, however many there are, and the newest says it all.
            self.outgoing.retain(|numbered| !matches!(numbered.command, Command::Settings(_)));
            self.deliver(Command::Settings(settings), d);
        }
        Ok(())
    }

    /// Refuses whatever asks for more of a session that is closed.
    fn open(&self) -> Result<(), Refusal> {
        if self.life == Life::Ended { Err(Refusal::Ended) } else { Ok(()) }
    }

    fn wrong(&self, wish: &'static str, way_out: &'static str) -> Refusal {
        Refusal::WrongState { state: self.state().name(), wish, way_out }
    }
}
