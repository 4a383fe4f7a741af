//! Who may speak when. Pure: no clock, no socket, no store. The rules in full are the tests in `tests.rs`.
//!
//! Everything that befalls a session is an [`Input`]; [`Core::decide`] answers it with a [`Decision`], what to write down
//! and what to order, or with a [`Refusal`], after which nothing has changed. The core is all that a session must remember
//! beside its events; it is stored with them, so a session that comes back decides as if it had never been away.

mod client_requests;
mod dedup_cache;
mod external_inputs;
mod interrupt;
mod queue_limits;
mod request_error;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use greenroom_protocol::{
    Action, EventSource, Observation, ObservationKind,
    action::{ApprovalDecision as Verdict, MessageMode},
    link::{AgentCommand, AgentSettings, CommandFrame, WorkOutcome},
    observation::{AgentState, EscalationStep, QueueItem, SandboxPhase},
};
use serde::{Deserialize, Serialize};

pub use self::{
    dedup_cache::{IdempotencyKey, request_digest},
    request_error::RequestError,
};
use super::transition::{DecisionContext, Effect, Escalation, Transition};
use crate::{
    sandbox::{SandboxExit, SandboxIsolation},
    store::{OpaqueState, Seq},
};

/// How long the agent has to stop by itself, milliseconds.
const CANCEL_GRACE_MS: u64 = 1_000;

/// What a session must remember beside its events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    #[serde(rename = "life")]
    sandbox_state: SandboxState,
    turn: Option<RunningTurn>,
    /// The user's act that runs, beside the agent. Boxed, as there is seldom one and a session for each agent.
    #[serde(rename = "act")]
    user_action: Option<Box<UserAction>>,
    /// The user's acts that wait for it, in order.
    #[serde(rename = "acts")]
    queued_user_actions: VecDeque<UserAction>,
    /// The open request for a person's decision.
    confirm: Option<String>,
    interrupting: Option<PendingInterrupt>,
    /// Messages for turns to come.
    queue: VecDeque<QueuedMessage>,
    /// A person stopped the agent while messages were waiting: they wait for the next word of a person.
    #[serde(rename = "held")]
    queue_paused: bool,
    /// Messages on their way into the turn that runs.
    steering: Vec<SteeringMessage>,
    /// Commands that the agent may not have yet, oldest first.
    outgoing: Vec<CommandFrame>,
    /// The start of the agent that was welcomed last; none from when it is taken away until the next is welcomed.
    boot: Option<String>,
    /// It was said that the sandbox is on its way, and not yet that it is ready.
    #[serde(default)]
    #[serde(rename = "rising")]
    sandbox_starting: bool,
    /// Why it was paused, where nobody asked for that.
    #[serde(default)]
    #[serde(rename = "rests")]
    idle_reason: Option<String>,
    /// It could not be thawed once already since it was paused.
    #[serde(default)]
    #[serde(rename = "thaw_failed")]
    unpause_failed: bool,
    /// Counts turns, acts, items and commands, so that each name is used once.
    #[serde(rename = "named")]
    name_counter: u64,
    /// What clients called their wishes, and what these led to.
    #[serde(rename = "remembered")]
    dedup_cache: VecDeque<(String, Option<Seq>)>,
    /// Which wishes these were, of the newest of them: what an older version remembers has no digest.
    #[serde(default)]
    digests: VecDeque<u32>,
}

/// Whether there is a sandbox to work in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum SandboxState {
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
struct RunningTurn {
    id: String,
    /// The observation `chat` that began it.
    chat: Seq,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct UserAction {
    /// Also the item of its events.
    id: String,
    action: Action,
    cause: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct QueuedMessage {
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
struct SteeringMessage {
    /// The command that carries it.
    command: String,
    message: QueuedMessage,
}

/// Asked to stop, and not yet stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PendingInterrupt {
    #[serde(rename = "rung")]
    step: EscalationStep,
    /// On the clock of [`Moment::now_ms`].
    since_ms: i64,
    cause: Seq,
    /// What was stopped so far, in words.
    what: Vec<String>,
    partial: bool,
}

/// Everything that can befall a session.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionInput {
    // What people ask for.
    Start {
        task: String,
    },
    Message {
        content: String,
        mode: MessageMode,
        attachments: Vec<String>,
    },
    /// `run`, `read`, `write` or `browse` by the user.
    UserAction(Action),
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
        settings: AgentSettings,
        /// No matter of the rules: it changes with the model, or neither does.
        title: Option<String>,
    },
    // What the sweeper asks for.
    PauseIdle {
        reason: String,
    },
    /// It has been paused for long, and nothing was under way.
    StopIdle {
        reason: Option<String>,
    },
    // What the world does.
    /// The session has just been made.
    SessionCreated,
    SandboxPhaseChanged {
        phase: SandboxPhase,
        detail: String,
        isolation: Option<SandboxIsolation>,
    },
    HelloReceived {
        boot: String,
    },
    CommandAccepted {
        command: String,
    },
    TurnEnded {
        turn: String,
        outcome: WorkOutcome,
    },
    UserActionEnded {
        user_action: String,
        outcome: WorkOutcome,
    },
    Steered {
        command: String,
    },
    SteerMissed {
        command: String,
    },
    /// The agent asks a person.
    ApprovalRequested {
        request: String,
    },
    EscalationDue,
    SandboxLost(SandboxExit),
    StartFailed {
        why: String,
        stderr_tail: Option<String>,
    },
    EffectFailed {
        what: &'static str,
        why: String,
    },
}

impl Default for SessionState {
    /// A session that has just been made: its sandbox is on its way.
    fn default() -> SessionState {
        SessionState {
            sandbox_state: SandboxState::Starting,
            turn: None,
            user_action: None,
            queued_user_actions: VecDeque::new(),
            confirm: None,
            interrupting: None,
            queue: VecDeque::new(),
            queue_paused: false,
            steering: Vec::new(),
            outgoing: Vec::new(),
            boot: None,
            sandbox_starting: false,
            idle_reason: None,
            unpause_failed: false,
            name_counter: 0,
            dedup_cache: VecDeque::new(),
            digests: VecDeque::new(),
        }
    }
}

impl SessionState {
    /// The state, as clients see it.
    pub fn visible_state(&self) -> AgentState {
        match &self.sandbox_state {
            SandboxState::Starting => AgentState::Starting,
            SandboxState::Paused => AgentState::Paused,
            SandboxState::Stopped { .. } => AgentState::Stopped,
            SandboxState::Failed { .. } => AgentState::Failed,
            SandboxState::Ended => AgentState::Ended,
            SandboxState::Up if self.interrupting.is_some() => AgentState::Interrupting,
            SandboxState::Up if self.confirm.is_some() => AgentState::AwaitingConfirmation,
            SandboxState::Up if self.has_work() => AgentState::Running,
            SandboxState::Up => AgentState::Idle,
        }
    }

    /// Why it is in that state, where that needs saying.
    pub fn reason(&self) -> Option<String> {
        match &self.sandbox_state {
            SandboxState::Stopped { reason } => reason.clone(),
            SandboxState::Failed { reason } => Some(reason.clone()),
            SandboxState::Paused => self.idle_reason.clone(),
            SandboxState::Starting | SandboxState::Up | SandboxState::Ended => None,
        }
    }

    /// Whether its sandbox should be there.
    pub fn needs_sandbox(&self) -> bool {
        matches!(self.sandbox_state, SandboxState::Starting | SandboxState::Up | SandboxState::Paused)
    }

    /// Whether its sandbox stands frozen.
    pub fn is_paused(&self) -> bool {
        self.sandbox_state == SandboxState::Paused
    }

    /// Whether anything was ever asked of the agent.
    pub fn has_received_input(&self) -> bool {
        self.name_counter > 0
    }

    /// Up to where the journal is history for an agent that knows nothing: not the prompt that it is still to be given.
    pub fn history_to(&self, tail: Seq) -> Seq {
        let pending = |command: &CommandFrame| matches!(&command.command, AgentCommand::Prompt { .. });
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
    pub fn to_opaque_state(&self) -> OpaqueState {
        // It is plain data with string keys, so this cannot fail.
        serde_json::value::to_raw_value(self).expect("the core is JSON").into()
    }

    /// Whether there is an agent whose word counts. Of one that is being taken away everything is written down already.
    pub fn has_agent(&self) -> bool {
        self.boot.is_some()
    }

    pub fn has_user_action(&self) -> bool {
        self.user_action.is_some()
    }

    /// The timer that a session needs which comes back in the middle of an interrupt.
    pub fn escalation(&self) -> Option<Escalation> {
        self.interrupting.as_ref().map(|_| Escalation::Arm(CANCEL_GRACE_MS))
    }

    /// Where the turn that runs began, for whoever needs its events again.
    pub fn turn_start_seq(&self) -> Option<Seq> {
        self.turn.as_ref().map(|turn| turn.chat)
    }

    /// The items of the user's acts that have no result yet, and the events in which they were asked for. They may have been before
    /// the turn that runs.
    pub fn user_action_causes(&self) -> impl Iterator<Item = (String, Seq)> {
        self.user_action.as_deref().into_iter().chain(&self.queued_user_actions).map(|act| (act.id.clone(), act.cause))
    }

    /// Decides. On a refusal nothing has changed.
    pub fn decide(&mut self, input: SessionInput, moment: DecisionContext<'_>) -> Result<Transition, RequestError> {
        let (state, reason) = (self.visible_state(), self.reason());
        let waiting = self.queue.clone();
        let mut d = Transition::after(moment.tail);
        match input {
            SessionInput::Start { task } => self.start(task, &mut d)?,
            SessionInput::Message { content, mode, attachments } => {
                self.message(content, mode, attachments, moment, &mut d)?
            }
            SessionInput::UserAction(action) => self.queue_user_action(action, &mut d)?,
            SessionInput::Interrupt => self.interrupt(moment, &mut d)?,
            SessionInput::Pause => self.pause(&mut d)?,
            SessionInput::Resume => self.resume(&mut d)?,
            SessionInput::Stop { reason } => self.stop(reason, moment, &mut d)?,
            SessionInput::End => self.end(moment, &mut d)?,
            SessionInput::Confirm { request, decision, reason } => self.confirm(request, decision, reason, &mut d)?,
            SessionInput::EditQueue { item, content, remove } => self.edit_queue(&item, content, remove)?,
            SessionInput::SetModel { settings, .. } => self.set_model(settings, &mut d)?,
            SessionInput::PauseIdle { reason } => self.pause_idle(reason, &mut d)?,
            SessionInput::StopIdle { .. } if self.has_work() || self.confirm.is_some() => {
                return Err(RequestError::Busy);
            }
            SessionInput::StopIdle { reason } => self.stop(reason, moment, &mut d)?,
            SessionInput::SessionCreated => d.push_effect(Effect::StartSandbox),
            SessionInput::SandboxPhaseChanged { phase, detail, isolation } => {
                self.sandbox_starting = true;
                let isolation = isolation.map(|isolation| isolation.description);
                d.push_event(
                    EventSource::Server,
                    None,
                    None,
                    Observation { kind: sandbox_phase(phase, isolation), content: detail },
                );
            }
            SessionInput::HelloReceived { boot } => self.hello_received(boot, moment, &mut d),
            SessionInput::CommandAccepted { command } => self.outgoing.retain(|numbered| numbered.id != command),
            SessionInput::TurnEnded { turn, outcome } => self.turn_ended(&turn, outcome, moment, &mut d),
            SessionInput::UserActionEnded { user_action: act, outcome } => {
                self.user_action_ended(&act, outcome, moment, &mut d)
            }
            SessionInput::Steered { command } => self.steered(&command, &mut d),
            SessionInput::SteerMissed { command } => self.requeue_missed(|steering| steering.command == command),
            // What was under way may be over, and its agent not know it yet: then nobody would ever take the question back.
            SessionInput::ApprovalRequested { request } => self.confirm = self.is_running().then_some(request),
            SessionInput::EscalationDue => self.escalate(moment, &mut d),
            SessionInput::SandboxLost(exit) => self.sandbox_lost(exit, moment, &mut d),
            SessionInput::StartFailed { why, stderr_tail } => self.start_failed(why, stderr_tail, moment, &mut d),
            SessionInput::EffectFailed { what, why } => self.effect_failed(what, &why, moment, &mut d),
        }
        self.start_next(&mut d);
        if self.queue != waiting {
            let items = self.queue.iter().map(|waiting| waiting.item.clone()).collect();
            d.push_event(EventSource::Server, None, None, observation(ObservationKind::Queue { items }));
        }
        // Of a turn that ends beside an act of the user's, or as it is paused, the state does not tell, and somebody may wait for
        // just that.
        let is_untold = matches!(self.visible_state(), AgentState::Running | AgentState::Paused);
        let turn_over = d.turn_is_over && self.turn.is_none() && is_untold;
        if turn_over || (self.visible_state(), self.reason()) != (state, reason) {
            let (agent_state, reason) = (self.visible_state(), self.reason());
            let changed = ObservationKind::AgentStateChanged { agent_state, reason, since: String::new(), turn_over };
            d.push_event(EventSource::Server, None, None, observation(changed));
        }
        Ok(d)
    }

    /// What is next, once a decision is made: the next message begins a turn, the next act of the user begins.
    fn start_next(&mut self, d: &mut Transition) {
        if self.sandbox_state != SandboxState::Up || self.interrupting.is_some() {
            return;
        }
        if self.turn.is_none()
            && !self.queue_paused
            && let Some(waiting) = self.queue.pop_front()
        {
            let QueueItem { item, content, attachments } = waiting.item;
            let id = self.next_name("turn");
            let seen = ObservationKind::Chat { attachments: attachments.clone(), turn: Some(id.clone()) };
            let chat = Observation { kind: seen, content: content.clone() };
            let chat = d.push_event(EventSource::User, Some(waiting.cause), Some(item), chat);
            let turn = RunningTurn { id, chat };
            self.deliver(AgentCommand::Prompt { turn: turn.id.clone(), content, attachments }, d);
            self.turn = Some(turn);
        }
        if self.user_action.is_none()
            && let Some(act) = self.queued_user_actions.pop_front()
        {
            self.deliver(AgentCommand::UserAction { user_action: act.id.clone(), action: act.action.clone() }, d);
            self.user_action = Some(Box::new(act));
        }
    }

    /// Whether anything runs in the sandbox.
    fn is_running(&self) -> bool {
        self.turn.is_some() || self.user_action.is_some()
    }

    /// Whether anything runs, or will as soon as it can, that an interrupt could stop.
    fn has_work(&self) -> bool {
        self.is_running() || !self.queued_user_actions.is_empty()
    }

    fn next_name(&mut self, what: &str) -> String {
        self.name_counter += 1;
        format!("{what}-{}", self.name_counter)
    }

    /// Gives the agent a command, and keeps it until the agent has it. Returns its id.
    fn deliver(&mut self, command: AgentCommand, d: &mut Transition) -> String {
        let id = self.next_name("command");
        self.deliver_with_id(id.clone(), command, d);
        id
    }

    fn deliver_with_id(&mut self, id: String, command: AgentCommand, d: &mut Transition) {
        let numbered = CommandFrame { id, command };
        self.outgoing.push(numbered.clone());
        d.push_effect(Effect::DeliverToAgent(numbered));
    }
}

fn observation(seen: ObservationKind) -> Observation {
    Observation { kind: seen, content: String::new() }
}

fn sandbox_phase(phase: SandboxPhase, isolation: Option<String>) -> ObservationKind {
    ObservationKind::Sandbox { phase, exit_code: None, out_of_memory: false, stderr_tail: None, isolation }
}
