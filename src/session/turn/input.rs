//! Inputs of the rules.

use greenroom_protocol::{
    Action,
    action::{ApprovalDecision, MessageMode},
    link::{AgentSettings, WorkOutcome},
    observation::SandboxPhase,
};

use super::QuotaExceeded;
use crate::sandbox::{SandboxExit, SandboxIsolation};

/// Input of the rules: a request, a report or a timer.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionInput {
    // Requests of people.
    Start {
        task: String,
    },
    Message {
        content: String,
        mode: MessageMode,
        attachments: Vec<String>,
    },
    /// User action: `run`, `read`, `write` or `browse`.
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
        decision: ApprovalDecision,
        reason: Option<String>,
    },
    EditQueue {
        item: String,
        content: Option<String>,
        remove: bool,
    },
    SetModel {
        settings: AgentSettings,
        /// New title. The rules ignore the title, which changes together with the model.
        title: Option<String>,
    },
    SetBudget {
        usd: Option<f64>,
    },
    /// Ends a process that a command left behind.
    KillProcess {
        pid: i32,
    },
    /// The user saved the agent's plan.
    PlanSaved {
        path: String,
        markdown: String,
    },
    /// Start of a stopped sandbox for a terminal.
    StartForTerminal,
    // Requests of the sweeper.
    PauseIdle {
        reason: String,
    },
    /// Stop after a long pause without work.
    StopIdle {
        reason: Option<String>,
    },
    // Reports of agent, sandbox and timer.
    /// First input of a new session.
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
    /// Approval request of the agent.
    ApprovalRequested {
        request: String,
    },
    /// List of the processes that commands left behind.
    LeftoversReported {
        pids: Vec<i32>,
    },
    /// Names of the open terminals.
    TerminalsListed {
        names: Vec<String>,
    },
    EscalationDue,
    /// The gateway rejected a call, because a budget is spent. `why` names the budget.
    BudgetSpent {
        why: String,
    },
    /// The session has exceeded a disk quota.
    QuotaExceeded(QuotaExceeded),
    SandboxLost(SandboxExit),
    SandboxFailed {
        why: String,
        stderr_tail: Option<String>,
    },
    EffectFailed {
        what: &'static str,
        why: String,
    },
}
