//! The conversation between server and agent: exactly once in both directions, over any number of connections.
//!
//! The agent listens (a Unix socket in its run directory), the server dials, both speak JSON text frames over a WebSocket.
//!
//! ```text
//! agent  → server   hello {boot, last_n, turn}            on every connection, first
//! server → agent    welcome {acked, settings, restore}    what the server holds of this boot
//! server → agent    history {events} …                    only where `restore` is true: the journal, oldest first
//! agent  → server   report {n = acked+1 …}                everything that is not acknowledged, again
//! server → agent    command …                             every command that is not taken, again
//! ```
//!
//! Then both go on. A `report` is durable: the agent numbers it 1, 2, 3 … within its boot and keeps it until `ack {n}`; the
//! server stores the number in the same batch as the event, so a report that comes twice is stored once. A `command`
//! carries an id that the agent remembers for its whole boot, so one that comes twice acts once. A new `boot` tells the
//! server that the agent itself started again and knows nothing but what `history` tells it.
//!
//! Deltas are neither: what a cut connection lost comes again as the item so far, with offset 0.
//!
//! What is longer than [`FRAGMENT`] goes as a fragmented message, in both directions: a WebSocket library keeps a buffer of the
//! largest frame that it ever read or wrote, and there is one for each session.
//!
//! What is reported is small enough for a frame, and of few enough values ([`Report::fit`]), and of the kinds that are an agent's to say
//! ([`Body::of_an_agent`]).

mod agent_event_policy;
mod fragments;
mod read;
mod size_limits;

pub use self::{
    fragments::{FRAGMENT, Fragment, fragments},
    size_limits::{EVENT_LIMIT, REPORT_LIMIT, VALUES_LIMIT},
};

use serde::{Deserialize, Serialize};

use crate::{
    Delta, Event,
    action::{Action, ApprovalDecision},
    event::EventBody,
};

/// The version of this conversation. The server refuses an agent of another one, and says so.
pub const LINK_VERSION: u32 = 1;

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum FromAgent {
    Hello(AgentHello),
    Report {
        n: u64,
        report: AgentReport,
    },
    /// The command is known and will be carried out; it need not be sent again.
    Taken {
        command: String,
    },
    #[serde(untagged)]
    Delta(Delta),
}

/// How an agent introduces itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    pub link_version: u32,
    /// Made anew each time the agent's process starts, and for each `hello` until it has its history, or a command without
    /// one: until then it has nothing to report.
    pub boot: String,
    pub agent_version: String,
    /// The number of the newest report of this boot, 0 before the first.
    pub last_n: u64,
    /// The turn that runs, if one does.
    pub turn: Option<String>,
}

/// What must not be lost on the way from agent to server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum AgentReport {
    /// Something for the journal. The server gives it its `seq`, and its `cause`: the newest action with the same item.
    Event {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        body: EventBody,
    },
    /// A piece of the whole text of the observation that will end `item`, where that is too large for one report. Pieces
    /// come one after the other and before the observation, which has head and tail and says so by `truncated`.
    Piece { item: String, offset: u64, text: String },
    /// The turn is over; nothing more of it follows. Exactly one for each `prompt`.
    TurnEnded { turn: String, outcome: WorkOutcome },
    /// The message of this `steer` command is in the conversation, from here on.
    Steered { command: String },
    /// No turn ran any more when this `steer` command came; the server prompts with it instead.
    SteerMissed { command: String },
    /// The user's act is over; its observation, if there was one, came before. Exactly one for each `act`.
    #[serde(rename = "act_ended")]
    UserActionEnded {
        #[serde(rename = "act")]
        user_action: String,
        outcome: WorkOutcome,
    },
}

/// How a turn, or a user's act, ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum WorkOutcome {
    /// By itself.
    Done,
    /// By `cancel`. `what` was stopped, in words (`the command cargo test`); `partial`: a cut text was kept.
    Cancelled { what: String, partial: bool },
    /// It could not go on. `code` is stable, `detail` is for a person.
    Failed { code: String, detail: String },
}

/// What the server says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum ToAgent {
    Welcome(ServerWelcome),
    /// A part of the journal, oldest first; `complete` on the last part.
    History {
        events: Vec<Event>,
        complete: bool,
    },
    /// Every report up to `n` is on disk. Comes for several at once, up to half a second late.
    Ack {
        n: u64,
    },
    Command(CommandFrame),
}

/// How the server answers an agent's `hello`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerWelcome {
    pub session: String,
    /// The newest report of this boot that is on disk, 0 where there is none.
    pub acked: u64,
    /// Whether `history` follows. True for a boot that the server has not welcomed before.
    pub restore: bool,
    pub settings: AgentSettings,
}

/// What the agent works with. Changed by `settings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// As the provider names it.
    pub model: String,
    /// Which of the gateway's endpoints serves it.
    pub api: ProviderApi,
    /// Where commands run: an absolute path inside the sandbox.
    pub directory: String,
    /// How long one command may run, seconds.
    pub run_timeout_s: u64,
    /// How many steps (calls of the model) a turn may take before it is ended with an error.
    pub max_steps: u32,
}

/// A provider's own wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderApi {
    /// `POST /anthropic/v1/messages`
    Anthropic,
    /// `POST /openai/v1/chat/completions`
    Openai,
}

/// A command with the id by which the agent knows whether it has seen it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandFrame {
    pub id: String,
    #[serde(flatten)]
    pub command: AgentCommand,
}

/// What the agent is told to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum AgentCommand {
    /// Begin a turn. The server sends none while one runs.
    Prompt {
        turn: String,
        content: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
    },
    /// Take this message into the turn that runs, at its next step. Answered by the report `steered`, or, where no turn
    /// runs any more, by `steer_missed`.
    Steer {
        content: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
    },
    /// The user acts in the sandbox: `run`, `read`, `write` or `browse`, beside the agent. One at a time.
    #[serde(rename = "act")]
    UserAction {
        #[serde(rename = "act")]
        user_action: String,
        action: Action,
    },
    /// Stop the turn and the user's act: the model's stream, and the whole process tree of whatever runs.
    Cancel {},
    /// Kill every process that the turn started and that is still there, at once.
    KillProcesses {},
    Settings(AgentSettings),
    /// The person's answer to a `confirm` observation.
    Answer {
        request: String,
        decision: ApprovalDecision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeltaKind, Observation, ObservationKind};

    fn round_trip<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(value: T, json: &str) {
        assert_eq!(serde_json::to_string(&value).expect("it serializes"), json);
        assert_eq!(serde_json::from_str::<T>(json).expect("it reads back"), value);
    }

    #[test]
    fn the_wire() {
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
            FromAgent::Report { n: 1, report: AgentReport::TurnEnded { turn: "t".into(), outcome: WorkOutcome::Done } },
            r#"{"frame":"report","n":1,"report":{"report":"turn_ended","turn":"t","outcome":{"outcome":"done"}}}"#,
        );
    }

    #[test]
    fn an_unknown_kind_is_kept_as_it_came() {
        let json = r#"{"frame":"report","n":1,"report":{"report":"event","body":{"observation":"smell","extras":{"of":"smoke"}}}}"#;
        let frame: FromAgent = serde_json::from_str(json).expect("it is read");
        assert!(matches!(
            &frame,
            FromAgent::Report { report: AgentReport::Event { body: EventBody::Opaque(_), .. }, .. }
        ));
        assert_eq!(serde_json::to_string(&frame).expect("it serializes"), json);
    }
}
