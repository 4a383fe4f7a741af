//! Rules of a session. Pure: no clock, no socket, no store. Each row in `tests.rs` is a rule.
//!
//! - `input`: the inputs.
//! - `client_requests`: what people and the sweeper request. `queue_limits`: room for it.
//! - `external_inputs`: what agent, sandbox and link report.
//! - `leftovers`: processes that commands left behind.
//! - `captures`: the checkpoint at the end of a turn, and restores. `fork`: the state of a fork.
//! - `terminals`: the sandbox of terminals, and their end.
//! - `quota`: a session beyond a disk quota.
//! - `interrupt`: the steps of an interrupt, and the receipt.
//! - `approvals`: approval requests. `modes`: the mode. `loops`: an agent that repeats itself.
//! - `dedup_cache`: idempotency keys.
//!
//! [`SessionState::decide`] maps each [`SessionInput`] to a [`Transition`] or to a
//! [`RequestError`]. A transition has the events to commit and the effects that follow. After an
//! error nothing has changed.
//!
//! A message's path through the rules: into `queue`, then a turn with a `Prompt` command. The
//! command stays in `outgoing` until the agent takes it. `TurnEnded` ends the turn and starts the
//! next message's.
//!
//! [`SessionState`] is everything that a session needs beside its events. The state is stored with
//! the events, so a restarted session decides as if it had never stopped.

mod approvals;
mod captures;
mod client_requests;
mod dedup_cache;
mod external_inputs;
mod fork;
mod input;
mod interrupt;
mod leftovers;
mod loops;
mod modes;
mod queue_limits;
mod quota;
mod restore_notes;
mod terminals;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use greenroom_protocol::{
    Action, EventSource, Observation, ObservationKind,
    link::{AgentCommand, CommandFrame},
    observation::{AgentState, EscalationStep, QueueItem, SandboxPhase},
};
use serde::{Deserialize, Serialize};

use self::{approvals::OpenApprovals, captures::PendingCaptures, restore_notes::RestoreNote};
pub use self::{
    approvals::{ApprovalReply, OpenApproval, PolicyAnswer, RuleScope},
    captures::CaptureChange,
    dedup_cache::{IdempotencyKey, request_digest},
    input::SessionInput,
    modes::ModeChange,
    quota::QuotaExceeded,
};
use super::{
    effect::{AgentDelivery, Effect, RecordedSandbox},
    request_error::RequestError,
    transition::{DecisionContext, Escalation, Transition},
};
use crate::{
    approvals::ApprovalRule,
    sandbox::VolumeWarning,
    store::{OpaqueState, Seq},
};

/// Time from the first step of an interrupt to the second, in milliseconds. The agent should stop
/// by itself in that time.
const CANCEL_GRACE_MS: u64 = 1_000;

/// Reason of the state `idle` after a turn that a spent budget ended.
const BUDGET_SPENT: &str = "budget";

/// Reason of the state `idle` after work that an exceeded disk quota interrupted.
const QUOTA_EXCEEDED: &str = "quota";

/// Reason of the states without a turn after a failed turn, until the next turn begins. A user
/// action or a start of the sandbox keeps the reason, so neither is taken for another failure.
const TURN_FAILED: &str = "failed";

/// State of a session beside its events. Stored in the session record. The default is the state of
/// a new session: its sandbox is starting.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionState {
    #[serde(rename = "life")]
    sandbox_state: SandboxState,
    turn: Option<RunningTurn>,
    /// User action that runs beside the agent. Boxed: rare, and each session has this field.
    #[serde(rename = "act")]
    user_action: Option<Box<UserAction>>,
    /// User actions that are queued behind `user_action`, in order.
    #[serde(rename = "acts")]
    queued_user_actions: VecDeque<UserAction>,
    #[serde(flatten)]
    open_approvals: OpenApprovals,
    /// Rules that people have added to the session.
    #[serde(default, rename = "rules", skip_serializing_if = "Vec::is_empty")]
    session_rules: Vec<ApprovalRule>,
    interrupting: Option<PendingInterrupt>,
    /// Messages for later turns.
    queue: VecDeque<QueuedMessage>,
    /// Set after a person stopped the agent while messages were queued. A person's next message or
    /// `resume` continues the queue.
    #[serde(rename = "held")]
    queue_paused: bool,
    /// Steering messages that the running turn has not taken in yet.
    steering: Vec<SteeringMessage>,
    /// Commands that the agent may not have yet, oldest first.
    outgoing: Vec<CommandFrame>,
    /// Boot id of the agent that the session welcomed last. `None` from the decision to stop the
    /// agent until the next hello. Reports are discarded in between.
    boot: Option<String>,
    /// Set from an event about the sandbox's start until the agent's hello.
    #[serde(default)]
    #[serde(rename = "rising")]
    sandbox_starting: bool,
    /// Reason of the last pause, if the sweeper requested it. `None` for a person's pause.
    #[serde(default)]
    #[serde(rename = "rests")]
    idle_reason: Option<String>,
    /// Set if an unpause has failed since the last pause.
    #[serde(default)]
    #[serde(rename = "thaw_failed")]
    unpause_failed: bool,
    /// Set from a rejected call of the newest turn, because a budget is spent, until the next turn,
    /// budget or model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    budget_spent: bool,
    /// Pids of the processes that commands left behind, as the agent listed them last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    leftovers: Vec<i32>,
    /// Names of the open terminals, as the agent listed them last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    terminals: Vec<String>,
    /// Set from an interrupt by a disk quota until the next turn or user action.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    quota_exceeded: bool,
    /// Set from the failure of a turn until the next turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    turn_failed: bool,
    /// Captures of the workspace that have not ended.
    #[serde(default, skip_serializing_if = "PendingCaptures::is_empty")]
    captures: PendingCaptures,
    /// Note for the next prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restore_note: Option<RestoreNote>,
    /// Counter of messages, turns, user actions and commands. Makes their names unique.
    #[serde(rename = "named")]
    name_counter: u64,
    /// Idempotency keys of client requests, with the first event of each, oldest first.
    #[serde(rename = "remembered")]
    dedup_cache: VecDeque<(String, Option<Seq>)>,
    /// Digests of the newest requests in `dedup_cache`. Older versions stored keys without digests.
    #[serde(default)]
    digests: VecDeque<u32>,
}

/// State of the sandbox that a session should have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
enum SandboxState {
    /// The sandbox is starting.
    #[default]
    Starting,
    Up,
    Paused,
    /// The memory is freed. Any message starts the sandbox again.
    Stopped {
        reason: Option<String>,
    },
    /// The sandbox exited or did not start. Any message retries the start.
    Failed {
        reason: String,
    },
    /// Closed for good.
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RunningTurn {
    id: String,
    /// Number of the `chat` event that began the turn.
    chat: Seq,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct UserAction {
    /// Also the item of the action's events.
    id: String,
    action: Action,
    cause: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct QueuedMessage {
    item: QueueItem,
    /// Number of the event in which the person sent the message.
    cause: Seq,
    /// Set if the message was to steer a turn that ended without taking it in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    missed: bool,
    /// Set if the message interrupted what ran. It precedes the messages queued at that time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    interrupts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SteeringMessage {
    /// Id of the command that carries the message.
    command: String,
    message: QueuedMessage,
}

/// Interrupt that was requested, and whose receipt is not written yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PendingInterrupt {
    #[serde(rename = "rung")]
    step: EscalationStep,
    /// Time of the request, on the clock of [`DecisionContext::now_ms`].
    since_ms: i64,
    cause: Seq,
    /// Descriptions of what was stopped so far.
    what: Vec<String>,
    /// Set if the partial text of an interrupted item was kept.
    partial: bool,
}

impl SessionState {
    /// Returns the state as clients see it.
    pub fn visible_state(&self) -> AgentState {
        match &self.sandbox_state {
            SandboxState::Starting => AgentState::Starting,
            SandboxState::Paused => AgentState::Paused,
            SandboxState::Stopped { .. } => AgentState::Stopped,
            SandboxState::Failed { .. } => AgentState::Failed,
            SandboxState::Ended => AgentState::Ended,
            SandboxState::Up if self.interrupting.is_some() => AgentState::Interrupting,
            SandboxState::Up if !self.open_approvals.is_empty() => AgentState::AwaitingConfirmation,
            SandboxState::Up if self.has_work() => AgentState::Running,
            SandboxState::Up => AgentState::Idle,
        }
    }

    /// Returns the reason for the state, if the state needs one.
    pub fn reason(&self) -> Option<String> {
        match &self.sandbox_state {
            SandboxState::Stopped { reason } => reason.clone(),
            SandboxState::Failed { reason } => Some(reason.clone()),
            SandboxState::Paused => self.idle_reason.clone(),
            SandboxState::Up if self.budget_spent && self.visible_state() == AgentState::Idle => {
                Some(BUDGET_SPENT.to_owned())
            }
            SandboxState::Up if self.quota_exceeded && self.visible_state() == AgentState::Idle => {
                Some(QUOTA_EXCEEDED.to_owned())
            }
            SandboxState::Starting | SandboxState::Up if self.turn_failed => Some(TURN_FAILED.to_owned()),
            SandboxState::Starting | SandboxState::Up | SandboxState::Ended => None,
        }
    }

    /// Returns true if the session should have a sandbox.
    pub fn needs_sandbox(&self) -> bool {
        matches!(self.sandbox_state, SandboxState::Starting | SandboxState::Up | SandboxState::Paused)
    }

    /// Returns true if the sandbox should be paused.
    pub fn is_paused(&self) -> bool {
        self.sandbox_state == SandboxState::Paused
    }

    /// Returns true if the session has ever received a task, a message or a user action.
    pub fn has_received_input(&self) -> bool {
        self.name_counter > 0
    }

    /// Returns the last event of the history for an agent that has just started.
    ///
    /// The history ends before the current turn if the agent may not have that turn's prompt yet.
    pub fn history_to(&self, tail: Seq) -> Seq {
        let pending = |command: &CommandFrame| matches!(&command.command, AgentCommand::Prompt { .. });
        match &self.turn {
            Some(turn) if self.outgoing.iter().any(pending) => turn.chat - 1,
            Some(_) | None => tail,
        }
    }

    /// Returns true if this start of the agent has been welcomed, so it has the history.
    pub fn has_welcomed(&self, boot: &str) -> bool {
        self.boot.as_deref() == Some(boot)
    }

    /// Returns the state as stored in the session record.
    pub fn to_opaque_state(&self) -> OpaqueState {
        // Invariant: plain data with string keys.
        serde_json::value::to_raw_value(self).expect("session state serializes without errors").into()
    }

    /// Returns true if the session accepts reports and deltas. Returns false from the decision to
    /// stop the agent until the next hello. That decision has already ended the agent's work.
    pub fn has_agent(&self) -> bool {
        self.boot.is_some()
    }

    /// Returns the timer to arm when the actor restarts in the middle of an interrupt.
    pub fn escalation(&self) -> Option<Escalation> {
        self.interrupting.as_ref().map(|_| Escalation::Arm(CANCEL_GRACE_MS))
    }

    /// Returns the event that began the running turn.
    pub fn turn_start_seq(&self) -> Option<Seq> {
        self.turn.as_ref().map(|turn| turn.chat)
    }

    /// Returns the items of user actions without a result, with the events that requested them.
    /// These events may be older than the running turn.
    pub fn user_action_causes(&self) -> impl Iterator<Item = (String, Seq)> {
        let actions = self.user_action.as_deref().into_iter().chain(&self.queued_user_actions);
        actions.map(|action| (action.id.clone(), action.cause))
    }

    /// Maps an input to a transition and changes the state.
    ///
    /// # Errors
    /// Returns a [`RequestError`] if the input is not allowed now. The state is unchanged.
    pub fn decide(&mut self, input: SessionInput, context: DecisionContext<'_>) -> Result<Transition, RequestError> {
        let (state, reason) = (self.visible_state(), self.reason());
        let queued = self.queue.clone();
        let turn = self.turn.as_ref().map(|turn| turn.id.clone());
        let mut d = Transition::after(context.tail);
        match input {
            SessionInput::Start { task } => self.start(task, &mut d)?,
            SessionInput::Message { content, mode, attachments } => {
                self.message(content, mode, attachments, context, &mut d)?
            }
            SessionInput::UserAction(action) => self.queue_user_action(action, &mut d)?,
            SessionInput::Interrupt => self.interrupt(context, &mut d)?,
            SessionInput::Pause => self.pause(&mut d)?,
            SessionInput::Resume => self.resume(&mut d)?,
            SessionInput::Stop { reason } => self.stop(reason, context, &mut d)?,
            SessionInput::End => self.end(context, &mut d)?,
            SessionInput::Confirm(answer) => self.confirm(answer, &mut d)?,
            SessionInput::RemoveRule { rule } => self.remove_rule(&rule)?,
            SessionInput::EditQueue { item, content, remove } => self.edit_queue(&item, content, remove)?,
            SessionInput::SetModel { settings, mode, .. } => self.set_model(settings, mode, &mut d)?,
            SessionInput::SetMode { settings, change, message } => {
                self.set_mode(settings, change, message, context, &mut d)?
            }
            SessionInput::SetBudget { usd } => self.set_budget(usd, &mut d)?,
            SessionInput::PauseIdle { reason } => self.pause_idle(reason, &mut d)?,
            SessionInput::StopIdle { .. } if self.has_work() || !self.open_approvals.is_empty() => {
                return Err(RequestError::Busy);
            }
            SessionInput::StopIdle { reason } => self.stop(reason, context, &mut d)?,
            SessionInput::SessionCreated => d.push_effect(start_sandbox()),
            SessionInput::SandboxPhaseChanged { phase, detail, isolation } => {
                self.sandbox_starting = true;
                let (isolation, warnings) =
                    isolation.map(|isolation| (isolation.description, isolation.warnings)).unzip();
                d.push_event(
                    EventSource::Server,
                    None,
                    None,
                    Observation { kind: sandbox_phase(phase, isolation), content: detail },
                );
                for VolumeWarning { code, text: detail } in warnings.unwrap_or_default() {
                    let code = code.to_owned();
                    let kind = ObservationKind::Notice { code, detail, attempts: None, waited_ms: None };
                    d.push_event(EventSource::Server, None, None, Observation { kind, content: String::new() });
                }
            }
            SessionInput::HelloReceived { boot } => self.hello_received(boot, context, &mut d),
            SessionInput::CommandAccepted { command } => self.command_accepted(&command),
            SessionInput::TurnEnded { turn, outcome } => self.turn_ended(&turn, outcome, context, &mut d),
            SessionInput::UserActionEnded { user_action, outcome } => {
                self.user_action_ended(&user_action, outcome, context, &mut d)
            }
            SessionInput::Steered { command } => self.steered(&command, &mut d),
            SessionInput::SteerMissed { command } => self.steer_missed(&command),
            SessionInput::ApprovalRequested { approval, answer } => self.approval_requested(approval, answer, &mut d),
            SessionInput::PolicyAnswered(answers) => self.answer_all_by_policy(answers, &mut d),
            SessionInput::ApprovalsDue { timeout_ms } => self.deny_overdue(timeout_ms, context, &mut d),
            SessionInput::LoopNoted { what } => self.loop_noted(&what, &mut d),
            SessionInput::BudgetSpent { why } => self.budget_spent(why, &mut d),
            SessionInput::KillProcess { pid } => self.kill_process(pid, &mut d)?,
            SessionInput::LeftoversReported { pids } => self.leftovers_reported(pids, context, &mut d),
            SessionInput::PlanSaved { path, markdown } => self.plan_saved(path, markdown, &mut d)?,
            SessionInput::StartForTerminal => self.start_for_terminal(&mut d)?,
            SessionInput::TerminalsListed { names } => self.terminals_listed(names),
            SessionInput::Capture(change) => self.capture_changed(change, &mut d)?,
            SessionInput::QuotaExceeded(exceeded) => self.quota_exceeded(exceeded, context, &mut d),
            SessionInput::EscalationDue => self.escalate(context, &mut d),
            SessionInput::SandboxLost(exit) => self.sandbox_lost(exit, context, &mut d),
            SessionInput::SandboxFailed { why, stderr_tail } => self.sandbox_failed(why, stderr_tail, context, &mut d),
            SessionInput::EffectFailed { what, why } => self.effect_failed(what, &why, context, &mut d),
        }
        self.capture_ended_turn(turn, context, &mut d);
        self.start_next(&mut d);
        if self.queue != queued {
            let items = self.queue.iter().map(|queued| queued.item.clone()).collect();
            d.push_event(EventSource::Server, None, None, observation(ObservationKind::Queue { items }));
        }
        // The visible state hides the end of a turn if a user action runs on, or if the sandbox is
        // paused. Clients may wait for the end of the turn, so an event reports it.
        let state_hides_turn_end = matches!(self.visible_state(), AgentState::Running | AgentState::Paused);
        let turn_over = d.turn_is_over && self.turn.is_none() && state_hides_turn_end;
        if turn_over || (self.visible_state(), self.reason()) != (state, reason) {
            let (agent_state, reason) = (self.visible_state(), self.reason());
            let changed = ObservationKind::AgentStateChanged { agent_state, reason, since: String::new(), turn_over };
            d.push_event(EventSource::Server, None, None, observation(changed));
        }
        Ok(d)
    }

    /// Starts the next message's turn and the next user action, if nothing of the same kind runs.
    fn start_next(&mut self, d: &mut Transition) {
        if self.sandbox_state != SandboxState::Up || self.interrupting.is_some() {
            return;
        }
        if self.turn.is_none()
            && !self.queue_paused
            && !self.captures.hold_queue()
            && let Some(queued) = self.queue.pop_front()
        {
            let QueueItem { item, content, attachments } = queued.item;
            let id = self.next_name("turn");
            let kind = ObservationKind::Chat { attachments: attachments.clone(), turn: Some(id.clone()) };
            let chat = Observation { kind, content: content.clone() };
            let chat = d.push_event(EventSource::User, Some(queued.cause), Some(item), chat);
            let turn = RunningTurn { id, chat };
            (self.budget_spent, self.quota_exceeded, self.turn_failed) = (false, false, false);
            let content = self.with_restore_note(content);
            self.deliver(AgentCommand::Prompt { turn: turn.id.clone(), content, attachments }, d);
            self.turn = Some(turn);
        }
        if self.user_action.is_none()
            && let Some(user_action) = self.queued_user_actions.pop_front()
        {
            self.deliver(
                AgentCommand::UserAction { user_action: user_action.id.clone(), action: user_action.action.clone() },
                d,
            );
            self.user_action = Some(Box::new(user_action));
            self.quota_exceeded = false;
        }
    }

    /// Returns true if a turn or a user action runs.
    fn is_running(&self) -> bool {
        self.turn.is_some() || self.user_action.is_some()
    }

    /// Returns true if anything runs or is about to run that an interrupt could stop.
    pub fn has_work(&self) -> bool {
        self.is_running() || !self.queued_user_actions.is_empty()
    }

    fn next_name(&mut self, what: &str) -> String {
        self.name_counter += 1;
        format!("{what}-{}", self.name_counter)
    }

    /// Delivers a command to the agent, and keeps it in `outgoing` until the agent has taken it.
    /// Returns the command's id.
    fn deliver(&mut self, command: AgentCommand, d: &mut Transition) -> String {
        let id = self.next_name("command");
        self.deliver_with_id(id.clone(), command, d);
        id
    }

    fn deliver_with_id(&mut self, id: String, command: AgentCommand, d: &mut Transition) {
        let command_frame = CommandFrame { id, command };
        self.outgoing.push(command_frame.clone());
        d.push_effect(deliver_command(command_frame));
    }
}

/// Returns the effect that starts a sandbox which should not run yet.
fn start_sandbox() -> Effect {
    Effect::StartSandbox { recorded: RecordedSandbox::Down }
}

fn deliver_command(frame: CommandFrame) -> Effect {
    Effect::DeliverToAgent(AgentDelivery::Command(Box::new(frame)))
}

fn observation(kind: ObservationKind) -> Observation {
    Observation { kind, content: String::new() }
}

fn sandbox_phase(phase: SandboxPhase, isolation: Option<String>) -> ObservationKind {
    ObservationKind::Sandbox { phase, exit_code: None, out_of_memory: false, stderr_tail: None, isolation }
}
