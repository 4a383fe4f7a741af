//! What came of an act, or happened by itself.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::EventBody;

/// Something seen: its text in `content`, the rest by kind in `extras`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    #[serde(flatten)]
    pub kind: ObservationKind,
    /// The whole text, or its head and tail where `extras.truncated` is set.
    #[serde(default)]
    pub content: String,
}

/// What was seen: `"observation"` names it, `"extras"` holds the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "observation", content = "extras", rename_all = "snake_case")]
pub enum ObservationKind {
    /// A command ended. `exit_code` is absent where a signal or the timeout ended it.
    Run {
        command: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        duration_ms: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncated: Option<TruncationMark>,
    },
    Read {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncated: Option<TruncationMark>,
    },
    Write {
        path: String,
        bytes: u64,
    },
    /// A file was changed at `line` (counted from 1); `diff` is unified.
    Edit {
        path: String,
        line: usize,
        change: EditKind,
        lines: Vec<String>,
        diff: String,
    },
    /// A page, as text. `screenshot` is a reference to a file.
    Browse {
        url: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        screenshot: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncated: Option<TruncationMark>,
    },
    /// A user's message has reached the agent.
    Chat {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
        /// The turn that it began, or joined.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<String>,
    },
    /// What the agent said. `partial` where it was cut short.
    Message {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// What the agent, or its model, thought.
    Think {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// The agent's plan: markdown in `content`, kept in the workspace at `path`.
    Plan {
        path: String,
        items: Vec<PlanItem>,
    },
    /// Somebody has to decide. `options` are the decisions that make sense here.
    Confirm {
        request: String,
        action: String,
        risk: String,
        options: Vec<super::action::ApprovalDecision>,
    },
    Confirmed {
        request: String,
        decision: super::action::ApprovalDecision,
    },
    Usage(ModelUsage),
    AgentStateChanged {
        agent_state: AgentState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// When the state began, or that in it which this says, RFC 3339.
        since: String,
        /// The state is the same, but the agent's turn is over: what still runs is the user's own, or it was just paused.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        turn_over: bool,
    },
    /// The receipt of an interrupt.
    Interrupted {
        /// What was stopped, in words (`the command cargo test`).
        what: String,
        /// From the wish to the end of the last process, milliseconds.
        stopped_ms: u64,
        /// Which step of the ladder ended it.
        #[serde(rename = "rung")]
        escalation_step: EscalationStep,
        /// Whether a partial text was kept.
        partial: bool,
    },
    /// The messages that wait for the agent, oldest first. The newest of these observations is the queue.
    Queue {
        items: Vec<QueueItem>,
    },
    /// The sandbox changed its phase, or died.
    Sandbox {
        phase: SandboxPhase,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i64>,
        /// Whether the memory limit ended it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        out_of_memory: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stderr_tail: Option<String>,
        /// Which driver, and what its wall does and does not hold, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        isolation: Option<String>,
    },
    /// Something went wrong. `code` is stable, `detail` is for a person.
    Error {
        code: String,
        detail: String,
    },
}

/// Says that `content` is only a part, and where the whole is. It stands in `extras.truncated`, whatever the kind: a field of
/// those of which an agent leaves something out, and put there by [`Observation::part_of`] in any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruncationMark {
    /// How many bytes the whole has.
    pub bytes: u64,
    /// Where to fetch the whole: a path on this server. Absent where nobody kept it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub href: Option<String>,
}

impl TruncationMark {
    /// The mark that an event bears, whatever its kind, from its JSON.
    pub fn of(event: &[u8]) -> Option<TruncationMark> {
        #[derive(Deserialize)]
        struct MarkedEvent {
            extras: MarkedExtras,
        }
        #[derive(Deserialize)]
        struct MarkedExtras {
            truncated: Option<TruncationMark>,
        }
        serde_json::from_slice::<MarkedEvent>(event).ok()?.extras.truncated
    }
}

/// What kind of change an edit was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EditKind {
    Insert,
    Delete,
    Replace,
}

/// One line of a plan with a checkbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanItem {
    pub text: String,
    pub done: bool,
}

/// What one call of a model took, and what the session has taken so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelUsage {
    pub model: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(default)]
    pub cache_read_tokens: u64,
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// `null` where the model's price is not known.
    pub cost_usd: Option<f64>,
    pub total_input_tokens: u64,
    pub total_output_tokens: u64,
    /// `null` where the price of any call so far is not known.
    pub total_cost_usd: Option<f64>,
    /// How many tokens of the model's context the last call used.
    pub context_used: u64,
    /// How large that context is; `null` where it is not known.
    pub context_limit: Option<u64>,
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueItem {
    /// Names it in `edit_queue`.
    pub item: String,
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<String>,
}

/// Whose turn it is, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    Starting,
    Idle,
    Running,
    AwaitingConfirmation,
    Interrupting,
    Paused,
    Stopped,
    Failed,
    Ended,
}

/// The steps by which an interrupt gets its way, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscalationStep {
    /// The agent was asked and stopped.
    Cancel,
    /// What was left of the turn's processes was killed.
    KillProcesses,
    /// The agent was killed, and started again from the journal.
    RestartAgent,
    /// The sandbox was taken away.
    Sandbox,
}

/// What a sandbox is going through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPhase {
    Pulling,
    Creating,
    Starting,
    Connecting,
    Ready,
    Paused,
    Stopped,
    /// It died.
    Lost,
    /// It could not be started.
    Failed,
}

impl Observation {
    /// The name on the wire, which is also what `GET …/events?kind=` filters by.
    pub fn name(&self) -> &'static str {
        match self.kind {
            ObservationKind::Run { .. } => "run",
            ObservationKind::Read { .. } => "read",
            ObservationKind::Write { .. } => "write",
            ObservationKind::Edit { .. } => "edit",
            ObservationKind::Browse { .. } => "browse",
            ObservationKind::Chat { .. } => "chat",
            ObservationKind::Message { .. } => "message",
            ObservationKind::Think { .. } => "think",
            ObservationKind::Plan { .. } => "plan",
            ObservationKind::Confirm { .. } => "confirm",
            ObservationKind::Confirmed { .. } => "confirmed",
            ObservationKind::Usage(_) => "usage",
            ObservationKind::AgentStateChanged { .. } => "agent_state_changed",
            ObservationKind::Interrupted { .. } => "interrupted",
            ObservationKind::Queue { .. } => "queue",
            ObservationKind::Sandbox { .. } => "sandbox",
            ObservationKind::Error { .. } => "error",
        }
    }
}

impl Observation {
    /// The same, marked as a part of what is kept elsewhere.
    ///
    /// For a reader that asks for no such mark it is the observation that it was.
    pub fn with_truncation(self, whole: TruncationMark) -> EventBody {
        // Every type of the vocabulary has string keys and no fallible `Serialize`, so neither can fail.
        let fields = serde_json::to_value(&self).expect("an observation is JSON");
        let whole = serde_json::to_value(whole).expect("a mark is JSON");
        let Value::Object(mut fields) = fields else { unreachable!("an observation is an object") };
        if let Some(Value::Object(extras)) = fields.get_mut("extras") {
            extras.insert("truncated".to_owned(), whole);
        }
        EventBody::Opaque(fields)
    }
}

impl Observation {
    /// One line for a person: what came of it.
    pub fn summary_line(&self) -> String {
        match &self.kind {
            ObservationKind::Run { timed_out: true, .. } => "The command ran out of time.".to_owned(),
            ObservationKind::Run { exit_code: Some(0), .. } => "Got output.".to_owned(),
            ObservationKind::Run { exit_code: Some(code), .. } => format!("The command failed with exit code {code}."),
            ObservationKind::Run { exit_code: None, .. } => "The command was stopped.".to_owned(),
            ObservationKind::Read { path, .. } => format!("Read {path}."),
            ObservationKind::Write { path, bytes } => format!("Wrote {bytes} bytes to {path}."),
            ObservationKind::Edit { path, .. } => format!("Edited {path}."),
            ObservationKind::Browse { url, .. } => format!("Got {url}."),
            ObservationKind::Chat { .. }
            | ObservationKind::Message { .. }
            | ObservationKind::Think { .. }
            | ObservationKind::Usage(_) => String::new(),
            ObservationKind::Plan { .. } => "The plan is updated.".to_owned(),
            ObservationKind::Confirm { .. } => "Waiting for your decision.".to_owned(),
            ObservationKind::Confirmed { .. } => "Decided.".to_owned(),
            ObservationKind::AgentStateChanged { turn_over: true, agent_state: AgentState::Paused, .. } => {
                "The agent was done when it was paused.".to_owned()
            }
            ObservationKind::AgentStateChanged { turn_over: true, .. } => {
                "The agent is done; what still runs is yours.".to_owned()
            }
            ObservationKind::AgentStateChanged { agent_state, reason: None, .. } => {
                format!("Now {}.", agent_state.name())
            }
            ObservationKind::AgentStateChanged { agent_state, reason: Some(reason), .. } => {
                format!("Now {}: {reason}", agent_state.name())
            }
            ObservationKind::Interrupted { what, stopped_ms, .. } => format!("Stopped {what} in {stopped_ms} ms."),
            ObservationKind::Queue { items } if items.is_empty() => "No message is waiting.".to_owned(),
            ObservationKind::Queue { items } => format!("Messages waiting: {}.", items.len()),
            ObservationKind::Sandbox { phase, .. } => format!("Sandbox: {phase:?}.").to_lowercase(),
            ObservationKind::Error { detail, .. } => detail.clone(),
        }
    }
}

impl AgentState {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            AgentState::Starting => "starting",
            AgentState::Idle => "idle",
            AgentState::Running => "running",
            AgentState::AwaitingConfirmation => "awaiting_confirmation",
            AgentState::Interrupting => "interrupting",
            AgentState::Paused => "paused",
            AgentState::Stopped => "stopped",
            AgentState::Failed => "failed",
            AgentState::Ended => "ended",
        }
    }
}

/// An observation or action of a kind that this version does not know: kept and passed on as it came.
pub type OpaqueFields = Map<String, Value>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, EventSource};

    #[test]
    fn every_kind_says_in_one_place_that_it_is_a_part_and_is_read_as_before() {
        let whole = || TruncationMark { bytes: 9, href: Some("/api/x".into()) };
        let agents = TruncationMark { bytes: 7, href: None };
        for seen in [
            ObservationKind::Message { partial: true },
            ObservationKind::Plan { path: "p".into(), items: Vec::new() },
            ObservationKind::Read { path: "p".into(), truncated: Some(agents) },
        ] {
            let part = Observation { kind: seen, content: "head and tail".into() };
            let (name, line) = (part.name(), part.summary_line());
            let body = part.clone().with_truncation(whole());
            assert_eq!((body.name(), body.summary_line()), (name, line));
            let event = Event {
                seq: 1,
                at: String::new(),
                source: EventSource::Agent,
                cause: None,
                item: None,
                body,
                message: String::new(),
            };
            let json = serde_json::to_value(&event).expect("it serializes");
            assert_eq!(json["extras"]["truncated"], serde_json::json!({ "bytes": 9, "href": "/api/x" }));
            let EventBody::Observation(read) = serde_json::from_value::<Event>(json).expect("an event").body else {
                panic!("`{name}` is not read as an observation any more")
            };
            assert_eq!((read.name(), read.content), (name, part.content));
        }
    }
}
