//! Inputs of the rules.

use greenroom_protocol::{
    Action,
    action::MessageMode,
    link::{AgentSettings, WorkOutcome},
    observation::SandboxPhase,
};

use super::{ApprovalReply, ModeChange, OpenApproval, PolicyAnswer, QuotaExceeded, captures::CaptureChange};
use crate::{
    approvals::ApprovalRule,
    sandbox::{SandboxExit, SandboxIsolation},
};

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
    Confirm(ApprovalReply),
    /// Removes a rule of the session.
    RemoveRule {
        rule: ApprovalRule,
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
        /// New analyzer, which the rules ignore too.
        analyzer: Option<String>,
        mode: Option<ModeChange>,
    },
    SetMode {
        settings: AgentSettings,
        change: ModeChange,
        /// Message that is queued in the same step.
        message: Option<String>,
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
    /// Approval request of the agent. `answer` is set if the policy does not ask.
    ApprovalRequested {
        approval: OpenApproval,
        answer: Option<PolicyAnswer>,
    },
    /// Open requests that the policy no longer asks about.
    PolicyAnswered(Vec<PolicyAnswer>),
    /// The oldest request may have been open for its time limit, in milliseconds.
    ApprovalsDue {
        timeout_ms: i64,
    },
    /// The agent repeats itself. `what` names the repetition.
    LoopNoted {
        what: String,
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
    /// Change of a capture of the workspace, or of a restore.
    Capture(CaptureChange),
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
