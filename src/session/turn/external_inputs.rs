//! What befalls a session: its agent, its sandbox, its time.

use greenroom_protocol::{
    Observation, Seen, Source,
    action::brief,
    link::{Command, Outcome},
    observation::{Phase, Rung},
};

use super::{Core, Life, Steering, Waiting, interrupt::keep_partials, sandbox, seen};
use crate::{
    sandbox::{Exit, Presence},
    session::{
        decision::{Decision, Moment, Order},
        messages::orders::{Then, Was},
    },
};

impl Core {
    /// How its sandbox was left.
    pub fn sandbox_was(&self) -> Was {
        match self.life {
            Life::Up => Was::Up,
            Life::Paused => Was::Frozen,
            Life::Starting | Life::Stopped { .. } | Life::Failed { .. } | Life::Ended => Was::Down,
        }
    }

    /// What makes its sandbox what it is to be, where it was seen like this. One that is on its way up will be by itself.
    pub fn settles(&self, seen: Presence) -> Option<Order> {
        match (&self.life, seen) {
            (Life::Up, Presence::Frozen) => Some(Order::Thaw),
            (Life::Paused, Presence::Running) => Some(Order::Freeze),
            (Life::Stopped { .. } | Life::Failed { .. } | Life::Ended, Presence::Running | Presence::Frozen) => {
                Some(Order::Kill(Then::Rest))
            }
            (Life::Up, Presence::Running)
            | (Life::Paused, Presence::Frozen)
            | (Life::Starting, Presence::Running | Presence::Frozen)
            // One that died is noticed by whoever waits for that.
            | (_, Presence::Exited) => None,
        }
    }

    pub(super) fn greeted(&mut self, boot: String, moment: Moment<'_>, d: &mut Decision) {
        if self.boot.as_ref() != Some(&boot) {
            if self.boot.is_some() {
                self.started_again(moment, d);
            }
            self.boot = Some(boot.clone());
            // Whatever else an earlier start was told concerned what it was doing; but what was to be cancelled before it had
            // that is to be cancelled still.
            let cancels = self.interrupting.is_some();
            self.outgoing.retain(|n| match n.command {
                Command::Prompt { .. } | Command::Act { .. } => true,
                Command::Cancel {} => cancels,
                Command::Steer { .. } | Command::KillProcesses {} | Command::Settings(_) | Command::Answer { .. } => {
                    false
                }
            });
        }
        // One that was thought to be up may not be here, as on another machine, and was started again.
        let rising = std::mem::take(&mut self.rising);
        if self.life == Life::Starting || rising {
            d.record(Source::Server, None, None, seen(sandbox(Phase::Ready, None)));
        }
        if self.life == Life::Starting {
            self.life = Life::Up;
        }
        // What was decided shortly before comes on disk before this, and would overtake what is older.
        d.order(Order::Anew(boot));
        d.orders.extend(self.outgoing.iter().cloned().map(Order::Deliver));
    }

    /// The agent died and its sandbox did not. What it had taken on is lost; what it had not got yet is not.
    fn started_again(&mut self, moment: Moment<'_>, d: &mut Decision) {
        let cut = keep_partials(moment, d);
        let turn_lost = self.turn.as_ref().is_some_and(|turn| !self.is_on_its_way(&turn.id));
        let act_lost = self.act.as_ref().is_some_and(|act| !self.is_on_its_way(&act.id));
        if turn_lost {
            self.turn = None;
            self.confirm = None;
            d.turn_is_over = true;
        }
        if act_lost {
            self.act = None;
        }
        self.miss(|_| true);
        if turn_lost || act_lost || cut {
            let detail = "the agent stopped unexpectedly and was started again; what it was doing is cut".to_owned();
            let error = Seen::Error { code: "agent_restarted".to_owned(), detail };
            d.record(Source::Server, None, None, seen(error));
            self.held = !self.queue.is_empty();
        }
        if let Some(interrupting) = &mut self.interrupting {
            interrupting.partial |= cut;
        }
        self.settle(moment, d);
    }

    /// Whether the agent may not have got this turn, or this act, yet.
    fn is_on_its_way(&self, wanted: &str) -> bool {
        self.outgoing.iter().any(|numbered| begins(&numbered.command) == Some(wanted))
    }

    /// What has ended is not begun again, even if the agent never said that it took it on.
    fn forget(&mut self, ended: &str) {
        self.outgoing.retain(|numbered| begins(&numbered.command) != Some(ended));
    }

    pub(super) fn turn_ended(&mut self, turn: &str, outcome: Outcome, moment: Moment<'_>, d: &mut Decision) {
        if self.turn.take_if(|running| running.id == turn).is_some() {
            self.forget(turn);
            self.confirm = None;
            d.turn_is_over = true;
            if let Outcome::Failed { code, detail } = &outcome {
                let error = Seen::Error { code: code.clone(), detail: detail.clone() };
                d.record(Source::Agent, None, None, seen(error));
            }
            self.ended("the turn", outcome, moment, d);
        }
    }

    pub(super) fn act_ended(&mut self, act: &str, outcome: Outcome, moment: Moment<'_>, d: &mut Decision) {
        if self.act.take_if(|running| running.id == act).is_some() {
            self.forget(act);
            // Why one failed, its own observation has said.
            self.ended("the act", outcome, moment, d);
        }
    }

    fn ended(&mut self, name: &str, outcome: Outcome, moment: Moment<'_>, d: &mut Decision) {
        let (stopped, cut) = match outcome {
            Outcome::Done => (format!("{name}, which had just ended"), false),
            Outcome::Cancelled { what, partial } => (what, partial),
            Outcome::Failed { .. } => (format!("{name}, which had just failed"), false),
        };
        if let Some(interrupting) = &mut self.interrupting {
            // These are the agent's own words.
            interrupting.what.push(brief(&stopped).into_owned());
            interrupting.partial |= cut;
        }
        self.settle(moment, d);
    }

    pub(super) fn steered(&mut self, command: &str, d: &mut Decision) {
        let Some(at) = self.steering.iter().position(|steering| steering.command == command) else { return };
        let message = self.steering.remove(at).message;
        let turn = self.turn.as_ref().map(|turn| turn.id.clone());
        let chat = Seen::Chat { attachments: message.item.attachments, turn };
        let chat = Observation { seen: chat, content: message.item.content };
        d.record(Source::User, Some(message.cause), Some(message.item.item), chat);
    }

    /// These messages steer nothing any more. They wait before those that were to wait anyway, and behind those that fared
    /// so before them: a person is answered in the order in which they spoke. And behind what was to be done instead of them.
    pub(super) fn miss(&mut self, is_missed: impl Fn(&Steering) -> bool) {
        let instead = self.queue.iter().take_while(|waiting| waiting.interrupts).count();
        for Steering { message, .. } in self.steering.extract_if(.., |steering| is_missed(steering)) {
            let last = self.queue.iter().rposition(|waiting| waiting.missed && waiting.cause < message.cause);
            self.queue.insert(last.map_or(0, |last| last + 1).max(instead), Waiting { missed: true, ..message });
        }
    }

    pub(super) fn lost(&mut self, exit: Exit, moment: Moment<'_>, d: &mut Decision) {
        if !self.wants_sandbox() {
            return;
        }
        let Exit { code, out_of_memory, stderr_tail } = exit;
        let reason = match code {
            _ if out_of_memory => "the sandbox ran out of memory".to_owned(),
            Some(code) => format!("the sandbox died with exit code {code}"),
            None => "the sandbox is gone".to_owned(),
        };
        let lost = Seen::Sandbox {
            phase: Phase::Lost,
            exit_code: code,
            out_of_memory,
            stderr_tail: (!stderr_tail.is_empty()).then_some(stderr_tail),
            isolation: None,
        };
        self.fail(reason, lost, moment, d);
    }

    pub(super) fn start_failed(
        &mut self,
        why: String,
        stderr_tail: Option<String>,
        moment: Moment<'_>,
        d: &mut Decision,
    ) {
        if !self.wants_sandbox() {
            return;
        }
        let failed =
            Seen::Sandbox { phase: Phase::Failed, exit_code: None, out_of_memory: false, stderr_tail, isolation: None };
        self.fail(why, failed, moment, d);
    }

    fn fail(&mut self, reason: String, how: Seen, moment: Moment<'_>, d: &mut Decision) {
        d.record(Source::Server, None, None, Observation { seen: how, content: reason.clone() });
        self.cut_short(Rung::Sandbox, moment, d);
        d.order(Order::Cut);
        self.boot = None;
        self.held = !self.queue.is_empty();
        self.life = Life::Failed { reason };
    }

    /// Whether the engine did it nevertheless, and later, nobody knows: what follows makes the sandbox what the session says it is.
    pub(super) fn order_failed(&mut self, what: &'static str, why: &str, moment: Moment<'_>, d: &mut Decision) {
        let detail = format!("the sandbox could not {what}: {why}");
        d.record(Source::Server, None, None, seen(Seen::Error { code: "sandbox".to_owned(), detail: detail.clone() }));
        if what == "freeze" && self.life == Life::Paused {
            self.thaw(d);
        } else if what == "thaw" && self.life == Life::Up {
            if self.thaw_failed {
                self.put_down(Then::Rest, moment, d);
                self.life = Life::Failed { reason: detail };
            } else {
                self.thaw_failed = true;
                self.thaw(d);
            }
        }
    }
}

/// The turn or the act that a command begins.
fn begins(command: &Command) -> Option<&str> {
    match command {
        Command::Prompt { turn: id, .. } | Command::Act { act: id, .. } => Some(id),
        Command::Steer { .. }
        | Command::Cancel {}
        | Command::KillProcesses {}
        | Command::Settings(_)
        | Command::Answer { .. } => None,
    }
}
