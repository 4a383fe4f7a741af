//! Link protocol of server and agent: exactly once in both directions, over any number of
//! connections.
//!
//! The agent listens on a Unix socket in its run directory, and the server dials. Both send JSON
//! text frames over a WebSocket.
//!
//! ```text
//! agent  → server   hello {boot, last_n, turn}            first frame of every connection
//! server → agent    welcome {acked, settings, restore}    what the server has stored of this boot
//! server → agent    history {events} …                    if `restore`: the journal, oldest first
//! agent  → server   report {n = acked+1 …}                all unacknowledged reports, again
//! server → agent    command …                             all commands not yet taken, again
//! ```
//!
//! Normal operation follows:
//!
//! - **Reports are durable.** The agent numbers its reports 1, 2, 3 … within its boot. The agent
//!   keeps each report until `ack {n}`. The server stores the number in the same batch as the
//!   event, so a repeated report is stored once.
//! - **Commands act once.** Each command carries an id. The agent keeps the id for its whole boot,
//!   so a repeated command acts once.
//! - **Cancel hints** stop work before the server's disk has answered. A hint is neither numbered
//!   nor repeated, and names the work that it is for. The command `cancel` follows.
//! - **Reviews** precede tool calls. A review is neither numbered nor durable: the agent repeats it
//!   on each connection until the frame `verdict` comes.
//! - **Boot id.** A new `boot` shows the server that the agent has restarted. The agent then holds
//!   nothing except what `history` contains.
//! - **Deltas** are neither numbered nor repeated. If a connection is cut, the whole item so far
//!   comes again, with offset 0.
//! - **Fragments.** A message longer than [`FRAGMENT`] travels in fragments, in both directions. A
//!   WebSocket library keeps a buffer as large as the largest frame it read or wrote, per session.
//! - **Limits.** A report fits into a frame and has few enough values ([`AgentReport::fit`]). Its
//!   kind is one that an agent may report ([`EventBody::accept_from_agent`]).
//!
//! See docs/internals/link.md.

mod agent_event_policy;
mod fragments;
mod read;
mod size_limits;

pub use self::{
    fragments::{FRAGMENT, Fragment, fragments},
    size_limits::{EVENT_LIMIT, REPORT_LIMIT, VALUES_LIMIT},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Delta, Event,
    action::{Action, ApprovalDecision},
    approval::{ApprovalMode, ReviewRequest, ReviewVerdict},
    event::EventBody,
    plan::PLAN_PATH,
};

/// Version of the link protocol. The server rejects an agent with another version, and reports the
/// reason.
pub const LINK_VERSION: u32 = 1;

/// Exit code of an agent that ended because no server came. Its unacknowledged reports are saved,
/// and its next start sends them.
pub const ORPHANED_EXIT_CODE: u8 = 75;

/// Number of approval requests that an agent keeps open at a time.
pub const MAX_OPEN_APPROVALS: usize = 64;

/// Frame from agent to server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum FromAgent {
    Hello(AgentHello),
    Report {
        n: u64,
        report: AgentReport,
    },
    /// The agent has the command and will execute it. The server does not send the command again.
    Taken {
        command: String,
    },
    /// Asks if a tool call may run. The frame `verdict` answers.
    Review(ReviewRequest),
    #[serde(untagged)]
    Delta(Delta),
}

/// First frame of an agent on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    pub link_version: u32,
    /// Boot id. New for each start of the agent's process.
    ///
    /// Until the agent has its history, or a command without a history, each `hello` has a new id.
    /// Until then the agent has nothing to report.
    pub boot: String,
    pub agent_version: String,
    /// Number of the newest report of this boot, 0 before the first.
    pub last_n: u64,
    /// Id of the running turn, if any.
    pub turn: Option<String>,
    /// True for an agent that reads `cancel_hint` frames. Agents of earlier versions end the
    /// connection at an unknown frame.
    #[serde(default)]
    pub reads_cancel_hints: bool,
}

/// Report that must not be lost between agent and server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum AgentReport {
    /// Entry for the journal. The server assigns `seq` and `cause`: the newest action with the same
    /// item.
    Event {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        body: EventBody,
    },
    /// Piece of an observation's whole text, if the text is too large for one report. The
    /// observation ends `item`.
    ///
    /// Pieces come in order and before the observation. The observation has head and tail, and is
    /// marked by `truncated`.
    ///
    /// The items [`screenshot_item`] and [`html_item`] name further contents of a page. The pieces
    /// of a picture are `base64`, and `offset` counts decoded bytes. Earlier servers drop both.
    Piece {
        item: String,
        offset: u64,
        text: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        base64: bool,
    },
    /// The turn is over, and no report of it follows. Exactly one for each `prompt`.
    TurnEnded { turn: String, outcome: WorkOutcome },
    /// The message of this `steer` command is in the conversation from here on.
    Steered { command: String },
    /// No turn was running when this `steer` command arrived. The server sends the message as a
    /// prompt instead.
    SteerMissed { command: String },
    /// The user action is over. Its observation, if any, came before. Exactly one for each `act`.
    #[serde(rename = "act_ended")]
    UserActionEnded {
        #[serde(rename = "act")]
        user_action: String,
        outcome: WorkOutcome,
    },
}

/// Returns the item of the pieces of a page's picture. `item` is that of the page.
pub fn screenshot_item(item: &str) -> String {
    format!("{item}/screenshot")
}

/// Returns the item of the pieces of a page's HTML. `item` is that of the page.
pub fn html_item(item: &str) -> String {
    format!("{item}/html")
}

/// Outcome of a turn or a user action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum WorkOutcome {
    /// Ended by itself.
    Done,
    /// Ended by `cancel`. `what` names the stopped work (`the command cargo test`). `partial` is
    /// true if a partial text was kept.
    Cancelled { what: String, partial: bool },
    /// Could not continue. `code` is stable, `detail` is for a person.
    Failed { code: String, detail: String },
}

/// Frame from server to agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum ToAgent {
    Welcome(ServerWelcome),
    /// Part of the journal, oldest first. `complete` on the last part.
    History {
        events: Vec<Event>,
        complete: bool,
    },
    /// Reports up to `n` are on disk. Covers several reports, up to half a second late.
    Ack {
        n: u64,
    },
    Command(CommandFrame),
    CancelHint(CancelHint),
    Verdict(ReviewVerdict),
}

/// Notice that a `cancel` command will follow. The agent stops the named work at once, and ignores
/// work that has ended or is not there yet. So a late hint stops nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelHint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    #[serde(rename = "act", default, skip_serializing_if = "Option::is_none")]
    pub user_action: Option<String>,
}

/// Server's answer to an agent's `hello`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerWelcome {
    pub session: String,
    /// Newest report of this boot that is on disk, 0 if there is none.
    pub acked: u64,
    /// True if `history` follows, as for a boot that the server has not welcomed before.
    pub restore: bool,
    pub settings: AgentSettings,
    /// True for a server that answers `review` frames. Without it, the agent runs each call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reviews: bool,
}

/// Settings of the agent. Changed by the command `settings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// Model name, as the provider spells it.
    pub model: String,
    /// Gateway endpoint that serves the model.
    pub api: ProviderApi,
    /// Working directory of commands: an absolute path inside the sandbox.
    pub directory: String,
    /// Time limit of one command, in seconds.
    pub run_timeout_s: u64,
    /// Limit of steps (model calls) per turn. A turn that exceeds the limit ends with an error.
    pub max_steps: u32,
    /// Program that carries out the turns, fixed for the session. Absent: the built-in agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<AgentProgram>,
    /// Reasoning effort. Absent: the model's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// True if the model accepts pictures as input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_images: bool,
    /// Context of the model in tokens. Absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_limit: Option<u64>,
    /// Time without a server after which the agent ends, in seconds. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphan_after_s: Option<u64>,
    /// Path of the plan below `directory`. Absent: [`PLAN_PATH`](crate::plan::PLAN_PATH).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_path: Option<String>,
    /// Mode of the session, for the agent's instructions. Absent: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ApprovalMode>,
}

impl AgentSettings {
    /// Returns the path of the plan below [`AgentSettings::directory`].
    pub fn plan_path(&self) -> &str {
        self.plan_path.as_deref().unwrap_or(PLAN_PATH)
    }
}

/// Effort that a model spends on its thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ReasoningEffort {
    Minimal,
    Low,
    Medium,
    High,
}

/// Program that carries out a session's turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProgram {
    /// Name of the turn driver. The agent fails every turn of a driver that it does not have.
    pub driver: String,
}

/// Wire format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProviderApi {
    /// `POST /anthropic/v1/messages`
    Anthropic,
    /// `POST /openai/v1/chat/completions`
    Openai,
    /// `POST /gemini/v1beta/models/{model}:streamGenerateContent`
    Gemini,
}

impl ProviderApi {
    pub const ALL: [ProviderApi; 3] = [ProviderApi::Anthropic, ProviderApi::Openai, ProviderApi::Gemini];
}

/// Command with the id by which the agent recognises a repeated command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandFrame {
    pub id: String,
    #[serde(flatten)]
    pub command: AgentCommand,
}

/// Command to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum AgentCommand {
    /// Begins a turn. The server sends no prompt while a turn runs.
    Prompt {
        turn: String,
        content: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
    },
    /// Adds the message to the running turn at its next step. The report `steered` answers, or
    /// `steer_missed` if no turn runs any more.
    Steer {
        content: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
    },
    /// Starts a user action in the sandbox beside the agent: `run`, `read`, `write` or `browse`.
    /// Only one runs at a time.
    #[serde(rename = "act")]
    UserAction {
        #[serde(rename = "act")]
        user_action: String,
        action: Action,
    },
    /// Stops the turn and the user action: the model's stream, and the whole process tree of
    /// running work.
    Cancel {},
    /// Kills every remaining process that the turn started, at once.
    KillProcesses {},
    /// Kills the process `pid` that a command left behind, with everything below it. The
    /// observation `commands` answers.
    KillProcess {
        pid: i32,
    },
    /// Kills every process that commands left behind. The observation `commands` answers.
    KillLeftovers {},
    Settings(AgentSettings),
    /// Person's decision on a `confirm` observation.
    Answer {
        request: String,
        decision: ApprovalDecision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Arguments that replace those of the tool call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeltaKind, Observation, ObservationKind};

    fn round_trip<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(value: T, json: &str) {
        assert_eq!(serde_json::to_string(&value).expect("a frame always serializes"), json);
        assert_eq!(serde_json::from_str::<T>(json).expect("a serialized frame is readable"), value);
    }

    #[test]
    fn frames_have_a_stable_wire_format() {
        round_trip(
            FromAgent::Delta(Delta { kind: DeltaKind::Text, item: "i".into(), offset: 3, content: "x".into() }),
            r#"{"delta":"text","item":"i","offset":3,"content":"x"}"#,
        );
        round_trip(
            FromAgent::Report {
                n: 4,
                report: AgentReport::Event {
                    item: Some("i".into()),
                    body: Observation {
                        kind: ObservationKind::Write { path: "a".into(), bytes: 1 },
                        content: String::new(),
                    }
                    .into(),
                },
            },
            r#"{"frame":"report","n":4,"report":{"report":"event","item":"i","body":{"observation":"write","extras":{"path":"a","bytes":1},"content":""}}}"#,
        );
        round_trip(
            ToAgent::Command(CommandFrame { id: "c".into(), command: AgentCommand::Cancel {} }),
            r#"{"frame":"command","id":"c","command":"cancel"}"#,
        );
        round_trip(
            ToAgent::CancelHint(CancelHint { turn: Some("t".into()), user_action: None }),
            r#"{"frame":"cancel_hint","turn":"t"}"#,
        );
        let earlier = r#"{"frame":"hello","link_version":1,"boot":"b","agent_version":"0","last_n":0,"turn":null}"#;
        let hello = FromAgent::read(earlier).expect("the hello of an earlier version is readable");
        assert!(matches!(hello, FromAgent::Hello(AgentHello { reads_cancel_hints: false, .. })));
        round_trip(
            FromAgent::Report { n: 1, report: AgentReport::TurnEnded { turn: "t".into(), outcome: WorkOutcome::Done } },
            r#"{"frame":"report","n":1,"report":{"report":"turn_ended","turn":"t","outcome":{"outcome":"done"}}}"#,
        );
        let settings = |program| AgentSettings {
            model: "m".into(),
            api: ProviderApi::Openai,
            directory: "/".into(),
            run_timeout_s: 1,
            max_steps: 2,
            program,
            effort: None,
            takes_images: false,
            context_limit: None,
            orphan_after_s: None,
            plan_path: None,
            mode: None,
        };
        round_trip(settings(None), r#"{"model":"m","api":"openai","directory":"/","run_timeout_s":1,"max_steps":2}"#);
        round_trip(
            settings(Some(AgentProgram { driver: "builtin".into() })),
            r#"{"model":"m","api":"openai","directory":"/","run_timeout_s":1,"max_steps":2,"program":{"driver":"builtin"}}"#,
        );
    }

    #[test]
    fn unknown_kind_is_kept_unchanged() {
        let json = r#"{"frame":"report","n":1,"report":{"report":"event","body":{"observation":"smell","extras":{"of":"smoke"}}}}"#;
        let frame: FromAgent = serde_json::from_str(json).expect("an unknown kind is readable");
        assert!(matches!(
            &frame,
            FromAgent::Report { report: AgentReport::Event { body: EventBody::Opaque(_), .. }, .. }
        ));
        assert_eq!(serde_json::to_string(&frame).expect("a frame always serializes"), json);
    }
}
