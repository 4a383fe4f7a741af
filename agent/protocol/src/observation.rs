//! Observations: results of actions, and changes that happen by themselves.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Action, EventBody,
    action::{ApprovalDecision, first_line, first_line_or},
    approval::{ApprovalChoice, DecidedBy, RiskAssessment},
    checkpoint::{CheckpointKind, WorkspaceChanges, WorkspaceCheckpoint},
    repository::{ForkOrigin, RepositoryClone},
    tool::{ToolFileChange, ToolKind, ToolLocation, ToolStatus},
};

/// Recorded observation of an event: text in `content`, the rest by kind in `extras`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Observation {
    #[serde(flatten)]
    pub kind: ObservationKind,
    /// Whole text, or its head and tail if `extras.truncated` is set.
    #[serde(default)]
    pub content: String,
}

/// Kind of observation: `"observation"` holds its name, `"extras"` holds the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(test, derive(schemars::JsonSchema, strum::VariantNames, ts_rs::TS))]
#[serde(tag = "observation", content = "extras", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ObservationKind {
    /// A command ended. `exit_code` is absent if an interrupt or the timeout ended the command.
    /// After a signal, `signal` names it (`SIGSEGV`), and `exit_code` is 128 and its number.
    Run {
        command: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
        duration_ms: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncated: Option<TruncationMark>,
    },
    /// Text of a file.
    Read {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncated: Option<TruncationMark>,
    },
    /// A whole file was written.
    Write { path: String, bytes: u64 },
    /// A file was changed at `line` (counted from 1). `diff` is a unified diff.
    Edit { path: String, line: usize, change: EditKind, lines: Vec<String>, diff: String },
    /// A page, as text.
    Browse {
        /// Address after all redirects.
        url: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Path on this server that returns a picture of the page. Set by the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        screenshot: Option<String>,
        /// Path on this server that returns the page's HTML, as scripts left it. Set by the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        html: Option<String>,
        /// Errors of the page, oldest first, and notes about its dialogs and new tabs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        console: Vec<String>,
        /// True if the page was fetched without a browser, so that none of its scripts ran.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        plain: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncated: Option<TruncationMark>,
    },
    /// A generic tool call ended. Output in `content`.
    Tool {
        kind: ToolKind,
        /// Call in words, for a person.
        title: String,
        /// Name by which the agent knows the tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        status: ToolStatus,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changes: Vec<ToolFileChange>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locations: Vec<ToolLocation>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncated: Option<TruncationMark>,
    },
    /// A user's message has reached the agent.
    Chat {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
        /// Turn that the message began or joined.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<String>,
    },
    /// Agent's message. `partial` if it was cut short.
    Message {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// Thinking of the agent or its model. `partial` if it was cut short.
    Think {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// Agent's plan: Markdown in `content`, stored in the workspace at `path`.
    Plan { path: String, items: Vec<PlanItem> },
    /// The agent's model summarized the earlier conversation, and continues from the summary in
    /// `content`.
    Compaction {
        /// Bytes of conversation that the summary replaces.
        dropped_bytes: u64,
        /// Number of newest messages of the model's conversation that stay as they were.
        kept: u64,
    },
    /// Processes that commands left behind, oldest first. The newest of these observations is the
    /// current list, until the sandbox stops.
    Commands {
        items: Vec<LeftoverProcess>,
        /// Number of further processes, which `items` leaves out.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        more: u32,
    },
    /// A person's decision is required. `options` holds the decisions that apply.
    Confirm {
        request: String,
        /// Work that needs the decision, in words.
        action: String,
        /// Set by the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        risk: Option<RiskAssessment>,
        options: Vec<ApprovalDecision>,
        /// Choices with their names, set by the server. Absent in events of earlier versions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        choices: Vec<ApprovalChoice>,
        /// Rule, mode or analyzer that asked, in words. Set by the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked_by: Option<String>,
        /// Tool call that runs if it is allowed. Long texts are abbreviated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"), ts(type = "object", optional))]
        call: Option<Box<Action>>,
        /// True if a person may change the arguments of `call` before allowing it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        editable: bool,
        /// Unified diff of the change that the call would make.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
    },
    /// A decision about an approval request or a reviewed tool call was taken.
    Confirmed {
        request: String,
        decision: ApprovalDecision,
        /// Absent in events of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<DecidedBy>,
        /// Browser or token of the person, or the part of the policy that decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        who: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Rule that the decision added, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// True if the person changed the arguments of the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        edited: bool,
        /// True if the request ended without a decision. `decision` is then `deny`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        withdrawn: bool,
    },
    /// Tokens and cost of a model call, and the session's totals.
    Usage(ModelUsage),
    /// The session's state changed.
    AgentStateChanged {
        agent_state: AgentState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Start of the state, or of the reported change within the state: RFC 3339.
        since: String,
        /// The state is unchanged, but the agent's turn is over. A user action still runs, or the
        /// agent was just paused.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        turn_over: bool,
    },
    /// Receipt of an interrupt.
    Interrupted {
        /// Stopped work, in words (`the command cargo test`).
        what: String,
        /// Time from the request to the end of the last process, in milliseconds.
        stopped_ms: u64,
        /// Escalation step that ended the work.
        #[serde(rename = "rung")]
        escalation_step: EscalationStep,
        /// True if a partial text was kept.
        partial: bool,
    },
    /// Messages that wait for the agent, oldest first. The newest of these observations is the
    /// current queue.
    Queue { items: Vec<QueueItem> },
    /// The sandbox changed its phase or exited unexpectedly.
    Sandbox {
        phase: SandboxPhase,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i64>,
        /// True if the memory limit ended the sandbox.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        out_of_memory: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stderr_tail: Option<String>,
        /// Driver, and what its isolation does and does not cover, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        isolation: Option<String>,
    },
    /// The workspace was captured and differs from the checkpoint before. Without a difference, the
    /// end of a turn has no such event.
    Checkpoint(WorkspaceCheckpoint),
    /// Files that changed between a checkpoint and the one before it, whoever changed them.
    Changes(WorkspaceChanges),
    /// The session began as a fork. Events before this one are those of the session `from`.
    Forked(ForkOrigin),
    /// The workspace receives a clone of a repository, or a failure to clone it.
    Repository(RepositoryClone),
    /// Commits of the session's branch were pushed.
    Pushed {
        /// Address of the repository, without credentials.
        url: String,
        /// Branch in the repository.
        branch: String,
        /// Newest pushed commit.
        commit: String,
    },
    /// An error occurred. `code` is stable, `detail` is for a person.
    Error { code: String, detail: String },
    /// Something noteworthy happened that is no error. `code` is stable, `detail` is for a person.
    Notice {
        code: String,
        detail: String,
        /// Attempts of the model call, for the code `provider_retried`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        /// Sum of the waits between the attempts, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waited_ms: Option<u64>,
    },
}

/// Marks `content` as a part of a longer text, and points at the whole text.
///
/// Stored in `extras.truncated` of any kind. Kinds that an agent can shorten have a field for the
/// mark. [`Observation::with_truncation`] adds the mark to any kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct TruncationMark {
    /// Size of the whole text, in bytes.
    pub bytes: u64,
    /// Path on this server that returns the whole text. Absent if the whole text was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub href: Option<String>,
}

impl TruncationMark {
    /// Reads the mark from the JSON of an event of any kind.
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

/// Kind of change that an edit made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "UPPERCASE")]
pub enum EditKind {
    Insert,
    Delete,
    Replace,
}

/// Limit on the processes that one observation lists.
pub const LEFTOVERS_LIMIT: usize = 64;

/// Process that goes on after the command that started it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct LeftoverProcess {
    pub pid: i32,
    /// Command line, abbreviated.
    pub name: String,
    /// Time since its start, in seconds.
    pub age_s: u64,
    /// Resident memory.
    pub memory_bytes: u64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Line of a plan with a checkbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct PlanItem {
    pub text: String,
    pub done: bool,
    /// Absent in events of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub state: Option<PlanItemState>,
}

/// State of one step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum PlanItemState {
    Pending,
    InProgress,
    Completed,
}

/// Usage of one model call, and totals of the session so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct ModelUsage {
    pub model: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub cache_read_tokens: u64,
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub cache_write_tokens: u64,
    /// Cost of this call in US dollars. `null` if the model's price is unknown.
    pub cost_usd: Option<f64>,
    pub total_input_tokens: u64,
    pub total_output_tokens: u64,
    /// Total cost in US dollars. `null` if the price of any call so far is unknown.
    pub total_cost_usd: Option<f64>,
    /// Tokens of the model's context that the last call used.
    pub context_used: u64,
    /// Size of the model's context, in tokens. `null` if unknown.
    pub context_limit: Option<u64>,
    /// True if counts of this call are estimates, because the provider did not report them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// Message that waits in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct QueueItem {
    /// Id of the message in `edit_queue`.
    pub item: String,
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<String>,
}

/// State of the agent, as clients see it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantArray,
)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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

/// Steps of an interrupt's escalation, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum EscalationStep {
    /// The agent was asked to stop, and stopped.
    Cancel,
    /// The remaining processes of the turn were killed.
    KillProcesses,
    /// The agent was killed and restarted from the journal.
    RestartAgent,
    /// The sandbox was removed.
    Sandbox,
}

/// Phase of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SandboxPhase {
    Pulling,
    Creating,
    Starting,
    Connecting,
    Ready,
    Paused,
    Stopped,
    /// Exited unexpectedly.
    Lost,
    /// Could not be started.
    Failed,
}

impl Observation {
    /// Name on the wire. `GET …/events?kind=` filters by the same name.
    pub fn name(&self) -> &'static str {
        (&self.kind).into()
    }
}

impl Observation {
    /// Returns the observation as an event body, marked as a part of `whole`.
    ///
    /// A reader that does not read the mark sees the observation unchanged.
    pub fn with_truncation(self, whole: TruncationMark) -> EventBody {
        // Types of this crate have string keys and no fallible `Serialize`, so neither call can
        // fail.
        let fields = serde_json::to_value(&self).expect("an observation always serializes");
        let whole = serde_json::to_value(whole).expect("a mark always serializes");
        let Value::Object(mut fields) = fields else { unreachable!("an observation serializes to an object") };
        if let Some(Value::Object(extras)) = fields.get_mut("extras") {
            extras.insert("truncated".to_owned(), whole);
        }
        EventBody::Opaque(fields)
    }
}

impl Observation {
    /// Summary line for a person that describes the result.
    pub fn summary_line(&self) -> String {
        match &self.kind {
            ObservationKind::Run { timed_out: true, .. } => "The command ran out of time.".to_owned(),
            ObservationKind::Run { exit_code: Some(code), signal: Some(signal), .. } => {
                format!("The command was ended by {signal} (exit code {code}).")
            }
            ObservationKind::Run { exit_code: Some(0), .. } => "Got output.".to_owned(),
            ObservationKind::Run { exit_code: Some(code), .. } => format!("The command failed with exit code {code}."),
            ObservationKind::Run { exit_code: None, .. } => "The command was interrupted.".to_owned(),
            ObservationKind::Read { path, .. } => format!("Read {path}."),
            ObservationKind::Write { path, bytes } => format!("Wrote {bytes} bytes to {path}."),
            ObservationKind::Edit { path, .. } => format!("Edited {path}."),
            ObservationKind::Browse { url, .. } => format!("Got {url}."),
            ObservationKind::Tool { status: ToolStatus::Completed, title, .. } => {
                format!("Done: {}", first_line(title))
            }
            ObservationKind::Tool { status: ToolStatus::Failed, title, .. } => format!("Failed: {}", first_line(title)),
            ObservationKind::Tool { status: ToolStatus::Stopped, title, .. } => {
                format!("Interrupted: {}", first_line(title))
            }
            ObservationKind::Chat { .. } | ObservationKind::Message { .. } => {
                first_line_or(&self.content, "Message without text.").into_owned()
            }
            ObservationKind::Think { .. } => format!("Thinking: {}", first_line(&self.content)),
            ObservationKind::Usage(usage) => usage.summary_line(),
            ObservationKind::Plan { .. } => "The plan is updated.".to_owned(),
            ObservationKind::Compaction { .. } => "The earlier conversation was summarized.".to_owned(),
            ObservationKind::Commands { items, more } => match items.len() + *more as usize {
                0 => "Nothing is left running.".to_owned(),
                1 => "1 process is left running.".to_owned(),
                count => format!("{count} processes are left running."),
            },
            ObservationKind::Confirm { .. } => "Waiting for your decision.".to_owned(),
            ObservationKind::Confirmed { withdrawn: true, .. } => "The approval request was withdrawn.".to_owned(),
            ObservationKind::Confirmed { decision: ApprovalDecision::Deny, .. } => "Denied.".to_owned(),
            ObservationKind::Confirmed { .. } => "Allowed.".to_owned(),
            ObservationKind::AgentStateChanged { turn_over: true, agent_state: AgentState::Paused, .. } => {
                "The agent was done when it was paused.".to_owned()
            }
            ObservationKind::AgentStateChanged { turn_over: true, .. } => {
                "The agent is done; what still runs is yours.".to_owned()
            }
            ObservationKind::AgentStateChanged { agent_state, reason: None, .. } => {
                format!("Now {}.", agent_state.name())
            }
            ObservationKind::AgentStateChanged { agent_state, reason: Some(reason), .. } if reason == "failed" => {
                format!("Now {}; the last turn failed.", agent_state.name())
            }
            ObservationKind::AgentStateChanged { agent_state, reason: Some(reason), .. } => {
                format!("Now {}: {reason}", agent_state.name())
            }
            ObservationKind::Interrupted { what, stopped_ms, .. } => {
                format!("Interrupted {what} in {stopped_ms} ms.")
            }
            ObservationKind::Queue { items } if items.is_empty() => "No message is waiting.".to_owned(),
            ObservationKind::Queue { items } => format!("Messages waiting: {}.", items.len()),
            ObservationKind::Sandbox { phase, .. } => format!("Sandbox: {phase:?}.").to_lowercase(),
            ObservationKind::Checkpoint(taken) if taken.checkpoint_kind == CheckpointKind::Restore => {
                "The workspace was restored.".to_owned()
            }
            ObservationKind::Checkpoint(_) => "The workspace was captured.".to_owned(),
            ObservationKind::Changes(changes) => changes.summary_line(),
            ObservationKind::Forked(ForkOrigin { from, at, .. }) => format!("Forked from `{from}` at event {at}."),
            ObservationKind::Repository(clone) => clone.summary_line(),
            ObservationKind::Pushed { branch, .. } => format!("Branch `{branch}` was pushed."),
            ObservationKind::Error { code, detail } if detail.trim().is_empty() => format!("Error: {code}"),
            ObservationKind::Notice { code, detail, .. } if detail.trim().is_empty() => format!("Notice: {code}"),
            ObservationKind::Error { detail, .. } | ObservationKind::Notice { detail, .. } => detail.clone(),
        }
    }
}

impl ModelUsage {
    fn summary_line(&self) -> String {
        let ModelUsage { input_tokens, output_tokens, cost_usd, .. } = self;
        let cost = cost_usd.map_or_else(|| "cost unknown".to_owned(), |usd| format!("{usd:.4} USD"));
        format!("Model call: {input_tokens} tokens in, {output_tokens} out, {cost}.")
    }
}

impl AgentState {
    pub const ALL: &[AgentState] = <AgentState as strum::VariantArray>::VARIANTS;

    /// Name on the wire.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Fields of an observation or action of a kind unknown to this version. Kept and passed on
/// unchanged.
pub type OpaqueFields = Map<String, Value>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, EventSource};

    #[test]
    fn truncation_mark_has_one_place_in_every_kind_and_hides_nothing() {
        let whole = || TruncationMark { bytes: 9, href: Some("/api/x".into()) };
        let agents = TruncationMark { bytes: 7, href: None };
        for kind in [
            ObservationKind::Message { partial: true },
            ObservationKind::Plan { path: "p".into(), items: Vec::new() },
            ObservationKind::Read { path: "p".into(), truncated: Some(agents) },
        ] {
            let part = Observation { kind, content: "head and tail".into() };
            let (name, line) = (part.name(), part.summary_line());
            let body = part.clone().with_truncation(whole());
            assert_eq!((body.name(), body.summary_line()), (name, line));
            let event = Event {
                seq: 1,
                at: String::new(),
                source: EventSource::Agent,
                cause: None,
                item: None,
                risk: None,
                body,
                message: String::new(),
            };
            let json = serde_json::to_value(&event).expect("an event always serializes");
            assert_eq!(json["extras"]["truncated"], serde_json::json!({ "bytes": 9, "href": "/api/x" }));
            let EventBody::Observation(read) =
                serde_json::from_value::<Event>(json).expect("the JSON is an event").body
            else {
                panic!("`{name}` is no longer read as an observation")
            };
            assert_eq!((read.name(), read.content), (name, part.content));
        }
    }
}
