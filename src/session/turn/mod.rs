//! Who may speak when. Pure: no clock, no socket, no store. The rules in full are the tests in `tests.rs`.
//!
//! Everything that befalls a session is an [`Input`]; [`Core::decide`] answers it with a [`Decision`], what to write down
//! and what to order, or with a [`Refusal`], after which nothing has changed. The core is all that a session must remember
//! beside its events; it is stored with them, so a session that comes back decides as if it had never been away.

mod interrupt;
mod named;
mod refusal;
mod room;
#[cfg(test)]
mod tests;
mod wishes;
mod world;

use std::collections::VecDeque;

use greenroom_protocol::{
    Action, Observation, Seen, Source,
    action::{Decision as Verdict, Mode},
    link::{Command, Numbered, Outcome, Settings},
    observation::{Phase, QueueItem, Rung, State},
};
use serde::{Deserialize, Serialize};

pub use self::{
    named::{Named, digest_of},
    refusal::Refusal,
};
use super::decision::{Decision, Ladder, Moment, Order};
use crate::{
    sandbox::{Exit, Isolation},
    store::{Memory, Seq},
};

/// How long the agent has to stop by itself, milliseconds.
const ASK_MS: u64 = 1_000;

/// What a session must remember beside its events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Core {
    life: Life,
    turn: Option<Turn>,
    /// The user's act that runs, beside the agent. Boxed, as there is seldom one and a session for each agent.
    act: Option<Box<Act>>,
    /// The user's acts that wait for it, in order.
    acts: VecDeque<Act>,
    /// The open request for a person's decision.
    confirm: Option<String>,
    interrupting: Option<Interrupting>,
    /// Messages for turns to come.
    queue: VecDeque<Waiting>,
    /// A person stopped the agent while messages were waiting: they wait for the next word of a person.
    held: bool,
    /// Messages on their way into the turn that runs.
    steering: Vec<Steering>,
    /// Commands that the agent may not have yet, oldest first.
    outgoing: Vec<Numbered>,
    /// The start of the agent that was welcomed last; none from when it is taken away until the next is welcomed.
    boot: Option<String>,
    /// It was said that the sandbox is on its way, and not yet that it is ready.
    #[serde(default)]
    rising: bool,
    /// Why it was paused, where nobody asked for that.
    #[serde(default)]
    rests: Option<String>,
    /// It could not be thawed once already since it was paused.
    #[serde(default)]
    thaw_failed: bool,
    /// Counts turns, acts, items and commands, so that each name is used once.
    named: u64,
    /// What clients called their wishes, and what these led to.
    remembered: VecDeque<(String, Option<Seq>)>,
    /// Which wishes these were, of the newest of them: what an older version remembers has no digest.
    #[serde(default)]
    digests: VecDeque<u32>,
}

/// Whether there is a sandbox to work in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Life {
    /// On its way up.
    Starting,
    Up,
    Paused,
    /// Its memory is freed; any message brings it back.
    Stopped {
        reason: Option<String>,
    },
    /// It died or did not start; any message tries again.
    Failed {
        reason: String,
    },
    /// Closed for good.
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Turn {
    id: String,
    /// The observation `chat` that began it.
    chat: Seq,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Act {
    /// Also the item of its events.
    id: String,
    action: Action,
    cause: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    item: QueueItem,
    /// The event in which a person said it.
    cause: Seq,
    /// It was to steer a turn that did not hear it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    missed: bool,
    /// It stopped what ran, and goes before all that waited then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    interrupts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Steering {
    /// The command that carries it.
    command: String,
    message: Waiting,
}

/// Asked to stop, and not yet stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Interrupting {
    rung: Rung,
    /// On the clock of [`Moment::now_ms`].
    since_ms: i64,
    cause: Seq,
    /// What was stopped so far, in words.
    what: Vec<String>,
    partial: bool,
}

/// Everything that can befall a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    // What people ask for.
    Start {
        task: String,
    },
    Message {
        content: String,
        mode: Mode,
        attachments: Vec<String>,
    },
    /// `run`, `read`, `write` or `browse` by the user.
    Act(Action),
    Interrupt,
    Pause,
    Resume,
    Stop {
        reason: Option<String>,
    },
    End,
    Confirm {
        request: String,
        decision: Verdict,
        reason: Option<String>,
    },
    EditQueue {
        item: String,
        content: Option<String>,
        remove: bool,
    },
    SetModel {
        settings: Settings,
        /// No matter of the rules: it changes with the model, or neither does.
        title: Option<String>,
    },
    // What the sweeper asks for.
    Rest {
        reason: String,
    },
    /// It has been paused for long, and nothing was under way.
    StopResting {
        reason: Option<String>,
    },
    // What the world does.
    /// The session has just been made.
    Born,
    Phased {
        phase: Phase,
        detail: String,
        isolation: Option<Isolation>,
    },
    Greeted {
        boot: String,
    },
    Took {
        command: String,
    },
    TurnEnded {
        turn: String,
        outcome: Outcome,
    },
    ActEnded {
        act: String,
        outcome: Outcome,
    },
    Steered {
        command: String,
    },
    SteerMissed {
        command: String,
    },
    /// The agent asks a person.
    Asked {
        request: String,
    },
    LadderDue,
    Lost(Exit),
    StartFailed {
        why: String,
        stderr_tail: Option<String>,
    },
    OrderFailed {
        what: &'static str,
        why: String,
    },
}

impl Default for Core {
    /// A session that has just been made: its sandbox is on its way.
    fn default() -> Core {
        Core {
            life: Life::Starting,
            turn: None,
            act: None,
            acts: VecDeque::new(),
            confirm: None,
            interrupting: None,
            queue: VecDeque::new(),
            held: false,
            steering: Vec::new(),
            outgoing: Vec::new(),
            boot: None,
            rising: false,
            rests: None,
            thaw_failed: false,
            named: 0,
            remembered: VecDeque::new(),
            digests: VecDeque::new(),
        }
    }
}

impl Core {
    /// The state, as clients see it.
    pub fn state(&self) -> State {
        match &self.life {
            Life::Starting => State::Starting,
            Life::Paused => State::Paused,
            Life::Stopped { .. } => State::Stopped,
            Life::Failed { .. } => State::Failed,
            Life::Ended => State::Ended,
            Life::Up if self.interrupting.is_some() => State::Interrupting,
            Life::Up if self.confirm.is_some() => State::AwaitingConfirmation,
            Life::Up if self.works() => State::Running,
            Life::Up => State::Idle,
        }
    }

    /// Why it is in that state, where that needs saying.
    pub fn reason(&self) -> Option<String> {
        match &self.life {
            Life::Stopped { reason } => reason.clone(),
            Life::Failed { reason } => Some(reason.clone()),
            Life::Paused => self.rests.clone(),
            Life::Starting | Life::Up | Life::Ended => None,
        }
    }

    /// Whether its sandbox should be there.
    pub fn wants_sandbox(&self) -> bool {
        matches!(self.life, Life::Starting | Life::Up | Life::Paused)
    }

    /// Whether its sandbox stands frozen.
    pub fn is_paused(&self) -> bool {
        self.life == Life::Paused
    }

    /// Whether anything was ever asked of the agent.
    pub fn was_spoken_to(&self) -> bool {
        self.named > 0
    }

    /// Up to where the journal is history for an agent that knows nothing: not the prompt that it is still to be given.
    pub fn history_to(&self, tail: Seq) -> Seq {
        let pending = |command: &Numbered| matches!(&command.command, Command::Prompt { .. });
        match &self.turn {
            Some(turn) if self.outgoing.iter().any(pending) => turn.chat - 1,
            Some(_) | None => tail,
        }
    }

    /// Whether this start of the agent knows what the journal holds.
    pub fn has_welcomed(&self, boot: &str) -> bool {
        self.boot.as_deref() == Some(boot)
    }

    /// As it is kept with the session's record.
    pub fn to_memory(&self) -> Memory {
        // It is plain data with string keys, so this cannot fail.
        serde_json::value::to_raw_value(self).expect("the core is JSON").into()
    }

    /// Whether there is an agent whose word counts. Of one that is being taken away everything is written down already.
    pub fn has_an_agent(&self) -> bool {
        self.boot.is_some()
    }

    pub fn has_an_act(&self) -> bool {
        self.act.is_some()
    }

    /// The timer that a session needs which comes back in the middle of an interrupt.
    pub fn ladder(&self) -> Option<Ladder> {
        self.interrupting.as_ref().map(|_| Ladder::Arm(ASK_MS))
    }

    /// Where the turn that runs began, for whoever needs its events again.
    pub fn turn_began(&self) -> Option<Seq> {
        self.turn.as_ref().map(|turn| turn.chat)
    }

    /// The items of the user's acts that have no result yet, and the events in which they were asked for. They may have been before
    /// the turn that runs.
    pub fn causes_of_acts(&self) -> impl Iterator<Item = (String, Seq)> {
        self.act.as_deref().into_iter().chain(&self.acts).map(|act| (act.id.clone(), act.cause))
    }

    /// Decides. On a refusal nothing has changed.
    pub fn decide(&mut self, input: Input, moment: Moment<'_>) -> Result<Decision, Refusal> {
        let (state, reason) = (self.state(), self.reason());
        let waiting = self.queue.clone();
        let mut d = Decision::after(moment.tail);
        match input {
            Input::Start { task } => self.start(task, &mut d)?,
            Input::Message { content, mode, attachments } => {
                self.message(content, mode, attachments, moment, &mut d)?
            }
            Input::Act(action) => self.act(action, &mut d)?,
            Input::Interrupt => self.interrupt(moment, &mut d)?,
            Input::Pause => self.pause(&mut d)?,
            Input::Resume => self.resume(&mut d)?,
            Input::Stop { reason } => self.stop(reason, moment, &mut d)?,
            Input::End => self.end(moment, &mut d)?,
            Input::Confirm { request, decision, reason } => self.confirm(request, decision, reason, &mut d)?,
            Input::EditQueue { item, content, remove } => self.edit_queue(&item, content, remove)?,
            Input::SetModel { settings, .. } => self.set_model(settings, &mut d)?,
            Input::Rest { reason } => self.rest(reason, &mut d)?,
            Input::StopResting { .. } if self.works() || self.confirm.is_some() => return Err(Refusal::Busy),
            Input::StopResting { reason } => self.stop(reason, moment, &mut d)?,
            Input::Born => d.order(Order::Raise),
            Input::Phased { phase, detail, isolation } => {
                self.rising = true;
                let isolation = isolation.map(|isolation| isolation.words);
                d.record(Source::Server, None, None, Observation { seen: sandbox(phase, isolation), content: detail });
            }
            Input::Greeted { boot } => self.greeted(boot, moment, &mut d),
            Input::Took { command } => self.outgoing.retain(|numbered| numbered.id != command),
            Input::TurnEnded { turn, outcome } => self.turn_ended(&turn, outcome, moment, &mut d),
            Input::ActEnded { act, outcome } => self.act_ended(&act, outcome, moment, &mut d),
            Input::Steered { command } => self.steered(&command, &mut d),
            Input::SteerMissed { command } => self.miss(|steering| steering.command == command),
            // What was under way may be over, and its agent not know it yet: then nobody would ever take the question back.
            Input::Asked { request } => self.confirm = self.runs().then_some(request),
            Input::LadderDue => self.ladder_due(moment, &mut d),
            Input::Lost(exit) => self.lost(exit, moment, &mut d),
            Input::StartFailed { why, stderr_tail } => self.start_failed(why, stderr_tail, moment, &mut d),
            Input::OrderFailed { what, why } => self.order_failed(what, &why, moment, &mut d),
        }
        self.go_on(&mut d);
        if self.queue != waiting {
            let items = self.queue.iter().map(|waiting| waiting.item.clone()).collect();
            d.record(Source::Server, None, None, seen(Seen::Queue { items }));
        }
        // Of a turn that ends beside an act of the user's, or as it is paused, the state does not tell, and somebody may wait for
        // just that.
        let is_untold = matches!(self.state(), State::Running | State::Paused);
        let turn_over = d.turn_is_over && self.turn.is_none() && is_untold;
        if turn_over || (self.state(), self.reason()) != (state, reason) {
            let (agent_state, reason) = (self.state(), self.reason());
            let changed = Seen::AgentStateChanged { agent_state, reason, since: String::new(), turn_over };
            d.record(Source::Server, None, None, seen(changed));
        }
        Ok(d)
    }

    /// What is next, once a decision is made: the next message begins a turn, the next act of the user begins.
    fn go_on(&mut self, d: &mut Decision) {
        if self.life != Life::Up || self.interrupting.is_some() {
            return;
        }
        if self.turn.is_none()
            && !self.held
            && let Some(waiting) = self.queue.pop_front()
        {
            let QueueItem { item, content, attachments } = waiting.item;
            let id = self.name("turn");
            let seen = Seen::Chat { attachments: attachments.clone(), turn: Some(id.clone()) };
            let chat = Observation { seen, content: content.clone() };
            let chat = d.record(Source::User, Some(waiting.cause), Some(item), chat);
            let turn = Turn { id, chat };
            self.deliver(Command::Prompt { turn: turn.id.clone(), content, attachments }, d);
            self.turn = Some(turn);
        }
        if self.act.is_none()
            && let Some(act) = self.acts.pop_front()
        {
            self.deliver(Command::Act { act: act.id.clone(), action: act.action.clone() }, d);
            self.act = Some(Box::new(act));
        }
    }

    /// Whether anything runs in the sandbox.
    fn runs(&self) -> bool {
        self.turn.is_some() || self.act.is_some()
    }

    /// Whether anything runs, or will as soon as it can, that an interrupt could stop.
    fn works(&self) -> bool {
        self.runs() || !self.acts.is_empty()
    }

    fn name(&mut self, what: &str) -> String {
        self.named += 1;
        format!("{what}-{}", self.named)
    }

    /// Gives the agent a command, and keeps it until the agent has it. Returns its id.
    fn deliver(&mut self, command: Command, d: &mut Decision) -> String {
        let id = self.name("command");
        self.deliver_as(id.clone(), command, d);
        id
    }

    fn deliver_as(&mut self, id: String, command: Command, d: &mut Decision) {
        let numbered = Numbered { id, command };
        self.outgoing.push(numbered.clone());
        d.order(Order::Deliver(numbered));
    }
}

fn seen(seen: Seen) -> Observation {
    Observation { seen, content: String::new() }
}

fn sandbox(phase: Phase, isolation: Option<String>) -> Seen {
    Seen::Sandbox { phase, exit_code: None, out_of_memory: false, stderr_tail: None, isolation }
}
