//! Client frames: requests from a client's socket, and the status of the client's own connection.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    EventSource, REQUEST_ID_LIMIT,
    action::{ApprovalDecision, EffortChoice, MessageMode},
    approval::ApprovalMode,
    declarations::{ACTIONS, KindDeclaration},
};

/// Frame from a client: a request with an optional idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientFrame {
    /// Idempotency key, chosen by the client.
    ///
    /// The same request with the same id is answered with its first result, and never acts twice.
    /// Another request with that id is rejected (`id_reused`).
    pub id: Option<String>,
    pub request: ClientRequest,
}

/// Client request: `"action"` holds its name, `"args"` holds the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, strum::VariantNames, ts_rs::TS))]
#[serde(tag = "action", content = "args", rename_all = "snake_case")]
#[cfg_attr(test, strum(serialize_all = "snake_case"), ts(optional_fields))]
pub enum ClientRequest {
    /// Creates the session. Later, changes `model`, `effort`, `title`, `mode` and `analyzer` only.
    Initialize {
        #[serde(default)]
        model: Option<String>,
        #[serde(default)]
        directory: Option<String>,
        #[serde(default)]
        agent_cls: Option<String>,
        #[serde(default)]
        image: Option<String>,
        #[serde(default)]
        title: Option<String>,
        // Left out of the JSON, so that requests keep the digests of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<EffortChoice>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<ApprovalMode>,
        /// Name of the security analyzer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        analyzer: Option<String>,
        /// Repository to clone: an `https` address, or a path below one of `workspace.sources`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repo: Option<String>,
        /// Branch, tag or commit of `repo`. Default: its default branch.
        #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
    },
    /// Sends the first task. Without a session, creates one.
    Start { task: String },
    /// Sends a message to the agent. `attachments` holds paths of uploaded files.
    Message {
        content: String,
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        mode: MessageMode,
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        attachments: Vec<String>,
    },
    /// Runs a shell command beside the agent. User actions run one at a time, in the order sent.
    Run { command: String },
    /// Reads a file of the workspace.
    Read { path: String },
    /// Writes a whole file of the workspace.
    Write { path: String, content: String },
    /// Opens a page and reads it as text.
    Browse { url: String },
    /// Interrupts all work of the agent and of the user. Without work, ends the processes that
    /// commands left behind.
    Interrupt {},
    /// Freezes the sandbox.
    Pause {},
    /// Continues a paused or stopped session, or a queue that an interrupt halted.
    Resume {},
    /// Stops the sandbox, which frees its memory. Its files stay.
    Stop {},
    /// Ends the session for ever.
    End {},
    /// Answers the approval request `request`.
    Confirm {
        request: String,
        decision: ApprovalDecision,
        #[serde(default)]
        reason: Option<String>,
        /// Id of one of the request's choices. Absent: the first choice of `decision`'s kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<String>,
        /// Arguments that replace those of the tool call, if the request is editable.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
    },
    /// Changes the session's mode. `message` is then queued as a message, in the same step.
    SetMode {
        mode: ApprovalMode,
        #[serde(default)]
        message: Option<String>,
    },
    /// Changes or removes a queued message: either `content` or `remove: true`.
    EditQueue {
        item: String,
        #[serde(default)]
        content: Option<String>,
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<_>", optional))]
        remove: bool,
    },
    /// Changes the model.
    SetModel { model: String },
    /// Changes the limit on the session's cost. `usd` is an amount above 0, or an explicit `null`
    /// for no limit.
    SetBudget {
        // Explicit, so that a forgotten argument removes no limit.
        #[serde(deserialize_with = "Option::deserialize")]
        #[cfg_attr(test, ts(optional = false))]
        usd: Option<f64>,
    },
    /// Ends the process `pid` that a command left behind, as `commands` lists it.
    KillProcess { pid: i32 },
    /// Is answered with the status `pong`.
    Ping {},
}

/// Reason a frame could not be read. The text addresses the author of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFrame {
    /// `invalid_json`, `unknown_action` or `invalid_args`.
    pub code: &'static str,
    pub message: String,
    /// The frame's own id, if it could be read.
    pub id: Option<String>,
}

impl ClientFrame {
    /// Reads a text frame.
    ///
    /// # Errors
    /// - `invalid_json`: the text is not a JSON object.
    /// - `unknown_action`: the action does not exist.
    /// - `invalid_args`: a field of the frame or an argument is missing or has a wrong type, or
    ///   `initialize` does not have an argument.
    pub fn parse(text: &str) -> Result<ClientFrame, BadFrame> {
        #[derive(Deserialize)]
        struct RawClientFrame {
            action: Option<Value>,
            #[serde(default)]
            args: Option<Value>,
            #[serde(default)]
            id: Option<Value>,
        }

        let bad = |code, message: String, id: Option<String>| BadFrame { code, message, id };
        let raw: RawClientFrame = serde_json::from_str(text).map_err(|e| {
            bad("invalid_json", format!("a frame must be a JSON object such as {{\"action\": \"ping\"}}: {e}"), None)
        })?;
        let id = match raw.id {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) if (1..=REQUEST_ID_LIMIT).contains(&id.len()) => Some(id),
            Some(_) => {
                let rule = format!("`id` must be a string of 1 to {REQUEST_ID_LIMIT} bytes");
                return Err(bad("invalid_args", rule, None));
            }
        };
        let Some(Value::String(action)) = raw.action else {
            return Err(bad("invalid_args", "`action` is missing or not a string".into(), id));
        };
        if !KindDeclaration::find(&ACTIONS, &action).is_some_and(|kind| kind.allows(EventSource::User)) {
            let names = ACTIONS.iter().filter(|kind| kind.allows(EventSource::User)).map(|kind| kind.name);
            let names = names.collect::<Vec<_>>().join("`, `");
            return Err(bad("unknown_action", format!("unknown action `{action}`, expected one of `{names}`"), id));
        }
        let args = match raw.args {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(args @ Value::Object(_)) => args,
            Some(_) => return Err(bad("invalid_args", format!("`args` of `{action}` must be an object"), id)),
        };
        let request = match ClientRequest::deserialize(serde_json::json!({ "action": action, "args": args })) {
            Ok(request) => request,
            Err(e) => return Err(bad("invalid_args", format!("`args` of `{action}`: {e}"), id)),
        };
        match request.check_known_args(&args) {
            Ok(()) => Ok(ClientFrame { id, request }),
            Err(rule) => Err(bad("invalid_args", rule, id)),
        }
    }
}

impl ClientRequest {
    /// Rejects an `initialize` with arguments that it does not have. Such an argument may restrict
    /// the agent in another version, so it must not be dropped in silence.
    ///
    /// # Errors
    /// Returns the rule, with the names of the unknown arguments.
    fn check_known_args(&self, args: &Value) -> Result<(), String> {
        if !matches!(self, ClientRequest::Initialize { .. }) {
            return Ok(());
        }
        let every = ClientRequest::Initialize {
            model: None,
            directory: None,
            agent_cls: None,
            image: None,
            title: None,
            effort: Some(EffortChoice::Default),
            mode: Some(ApprovalMode::Auto),
            analyzer: Some(String::new()),
            repo: Some(String::new()),
            reference: Some(String::new()),
        };
        // A request has string keys and plain values, so serialization cannot fail.
        let every = serde_json::to_value(every).expect("a request is JSON");
        let names =
            |args: &Value| -> Vec<String> { args.as_object().into_iter().flat_map(Map::keys).cloned().collect() };
        let known = names(&every["args"]);
        let unknown: Vec<_> = names(args).into_iter().filter(|name| !known.contains(name)).collect();
        match unknown.as_slice() {
            [] => Ok(()),
            unknown => {
                let (unknown, known) = (unknown.join("`, `"), known.join("`, `"));
                Err(format!("`initialize` has no argument `{unknown}`; its arguments are `{known}`"))
            }
        }
    }
}

/// Error about one frame or about the connection. Never journalled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct ErrorFrame {
    pub error: ErrorBody,
    /// Text of the error, in the place where all frames have their line for a person.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl ErrorFrame {
    /// Makes the frame for an error about the client frame `id`, if the frame had an id.
    pub fn new(code: &str, message: String, id: Option<String>) -> ErrorFrame {
        ErrorFrame { error: ErrorBody { code: code.to_owned(), message: message.clone() }, message, id }
    }
}

/// Body of every error, on the socket and in REST.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct ErrorBody {
    /// Stable code, for programs.
    pub code: String,
    /// Text for a person. Names the thing and the way out.
    pub message: String,
}

/// Status frame about this connection alone. `session` is the session as REST shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum StatusFrame {
    /// First frame of a connection. If no session exists yet, a second `hello` follows once it
    /// does.
    Hello {
        session: Option<Value>,
        last_seq: u64,
        state: Option<crate::observation::AgentState>,
        /// Time on the server's clock: RFC 3339, UTC, milliseconds. Ages of events count on that
        /// clock.
        now: String,
    },
    /// Events up to `seq` have been replayed. Later events are live.
    Synced { seq: u64 },
    /// The frame with this `id` was accepted and led to event `seq`. Absent if it led to no event.
    Accepted {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    },
    /// Answers `ping`.
    Pong {},
    /// The server is about to close the connection.
    Closing { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<ClientRequest, (&str, &str)>) {
        match (ClientFrame::parse(text), expected) {
            (Ok(frame), Ok(request)) => assert_eq!(frame.request, request),
            (Err(bad), Err((code, part))) => {
                assert_eq!(bad.code, code);
                assert!(bad.message.contains(part), "{}", bad.message);
            }
            (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn frames_are_parsed_or_rejected_with_a_code() {
        check(r#"{"action":"start","args":{"task":"go"}}"#, Ok(ClientRequest::Start { task: "go".into() }));
        check(r#"{"action":"interrupt"}"#, Ok(ClientRequest::Interrupt {}));
        check(r#"{"action":"interrupt","args":null}"#, Ok(ClientRequest::Interrupt {}));
        check(r#"{"action":"ping","args":{"new":1},"later":2}"#, Ok(ClientRequest::Ping {}));
        let set_budget = |usd| Ok(ClientRequest::SetBudget { usd });
        check(r#"{"action":"set_budget","args":{"usd":2.5}}"#, set_budget(Some(2.5)));
        check(r#"{"action":"set_budget","args":{"usd":null}}"#, set_budget(None));
        check(r#"{"action":"set_budget"}"#, Err(("invalid_args", "missing field `usd`")));
        let initialize = |effort| ClientRequest::Initialize {
            model: None,
            directory: None,
            agent_cls: None,
            image: None,
            title: None,
            effort,
            mode: None,
            analyzer: None,
            repo: None,
            reference: None,
        };
        check(r#"{"action":"initialize","args":{"effort":"high"}}"#, Ok(initialize(Some(EffortChoice::High))));
        check(r#"{"action":"initialize","args":{"effort":"huge"}}"#, Err(("invalid_args", "unknown variant `huge`")));
        let unchanged = serde_json::to_string(&initialize(None)).expect("a request serializes");
        assert!(!unchanged.contains("effort"), "the digest of an earlier request changes: {unchanged}");
        let unknown = r#"{"action":"initialize","args":{"modle":"m","model":"m","mood":"ask","later":null}}"#;
        check(unknown, Err(("invalid_args", "no argument `modle`, `mood`, `later`; its arguments are `model`, ")));
        let known = r#"{"action":"initialize","args":{"agent_cls":null,"directory":null,"effort":null,"image":null,"model":null,"title":null}}"#;
        check(known, Ok(initialize(None)));
        check("{", Err(("invalid_json", "JSON object")));
        check("[]", Err(("invalid_json", "JSON object")));
        check("{}", Err(("invalid_args", "`action` is missing")));
        check(r#"{"action":"dance"}"#, Err(("unknown_action", "`dance`, expected one of `initialize`")));
        check(r#"{"action":"start"}"#, Err(("invalid_args", "missing field `task`")));
        check(r#"{"action":"start","args":{"task":7}}"#, Err(("invalid_args", "expected a string")));
        check(r#"{"action":"start","args":"task"}"#, Err(("invalid_args", "must be an object")));
        check(r#"{"action":"ping","id":7}"#, Err(("invalid_args", "`id` must be a string")));
    }
}
