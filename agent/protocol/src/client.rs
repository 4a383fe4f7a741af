//! What a client may send over its socket, and what it is told about its own connection.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::action::{ApprovalDecision, MessageMode};

/// A client's frame: an action, and the client's own name for it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientFrame {
    /// Chosen by the client. The same wish with the same id again is answered with what it led to, and never acts twice; another
    /// wish with that id is refused (`id_reused`).
    pub id: Option<String>,
    pub request: ClientRequest,
}

/// What a client asks for: `"action"` names it, `"args"` holds the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", content = "args", rename_all = "snake_case")]
pub enum ClientRequest {
    /// Create the session, or configure it before it starts.
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
    },
    Start {
        task: String,
    },
    Message {
        content: String,
        #[serde(default)]
        mode: MessageMode,
        #[serde(default)]
        attachments: Vec<String>,
    },
    Run {
        command: String,
    },
    Read {
        path: String,
    },
    Write {
        path: String,
        content: String,
    },
    Browse {
        url: String,
    },
    Interrupt {},
    Pause {},
    Resume {},
    Stop {},
    End {},
    Confirm {
        request: String,
        decision: ApprovalDecision,
        #[serde(default)]
        reason: Option<String>,
    },
    EditQueue {
        item: String,
        #[serde(default)]
        content: Option<String>,
        #[serde(default)]
        remove: bool,
    },
    SetModel {
        model: String,
    },
    Ping {},
}

/// Why a frame could not be read. The text is for the person who wrote the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFrame {
    /// `invalid_json`, `unknown_action` or `invalid_args`.
    pub code: &'static str,
    pub message: String,
    /// The frame's own id, where it could be read.
    pub id: Option<String>,
}

impl ClientFrame {
    /// Reads a text frame.
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
        let envelope: RawClientFrame = serde_json::from_str(text).map_err(|e| {
            bad("invalid_json", format!("a frame is a JSON object such as {{\"action\": \"ping\"}}: {e}"), None)
        })?;
        let id = match envelope.id {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) if !id.is_empty() && id.len() <= 128 => Some(id),
            Some(_) => return Err(bad("invalid_args", "`id` is a string of 1 to 128 bytes".into(), None)),
        };
        let Some(Value::String(action)) = envelope.action else {
            return Err(bad("invalid_args", "`action` is missing, or is no string".into(), id));
        };
        let args = match envelope.args {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(args @ Value::Object(_)) => args,
            Some(_) => return Err(bad("invalid_args", format!("`args` of `{action}` is not an object"), id)),
        };
        let tagged = serde_json::json!({ "action": action, "args": args });
        match serde_json::from_value(tagged) {
            Ok(wish) => Ok(ClientFrame { id, request: wish }),
            Err(e) if e.to_string().starts_with("unknown variant") => {
                Err(bad("unknown_action", e.to_string().replacen("unknown variant", "unknown action", 1), id))
            }
            Err(e) => Err(bad("invalid_args", format!("`args` of `{action}`: {e}"), id)),
        }
    }
}

/// An answer that concerns one frame, or the connection: never journalled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorFrame {
    pub error: ErrorBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The body of every error, on the socket and in REST alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Stable, for programs.
    pub code: String,
    /// For a person: names the thing and the way out.
    pub message: String,
}

/// Status frames, about this connection alone. `session` is the session as REST shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum StatusFrame {
    /// The first frame; without a session there is a second one as soon as there is one.
    Hello {
        session: Option<Value>,
        last_seq: u64,
        state: Option<crate::observation::AgentState>,
    },
    /// Everything up to `seq` has been replayed; what follows is live.
    Synced {
        seq: u64,
    },
    /// The frame with this `id` was taken, and led to the event `seq` (absent where it left none).
    Accepted {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    },
    Pong {},
    Closing {
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<ClientRequest, (&str, &str)>) {
        match (ClientFrame::parse(text), expected) {
            (Ok(frame), Ok(wish)) => assert_eq!(frame.request, wish),
            (Err(bad), Err((code, part))) => {
                assert_eq!(bad.code, code);
                assert!(bad.message.contains(part), "{}", bad.message);
            }
            (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn frames() {
        check(r#"{"action":"start","args":{"task":"go"}}"#, Ok(ClientRequest::Start { task: "go".into() }));
        check(r#"{"action":"interrupt"}"#, Ok(ClientRequest::Interrupt {}));
        check(r#"{"action":"interrupt","args":null}"#, Ok(ClientRequest::Interrupt {}));
        check(r#"{"action":"ping","args":{"new":1},"later":2}"#, Ok(ClientRequest::Ping {}));
        check("{", Err(("invalid_json", "JSON object")));
        check("[]", Err(("invalid_json", "JSON object")));
        check("{}", Err(("invalid_args", "`action` is missing")));
        check(r#"{"action":"dance"}"#, Err(("unknown_action", "`dance`, expected one of `initialize`")));
        check(r#"{"action":"start"}"#, Err(("invalid_args", "missing field `task`")));
        check(r#"{"action":"start","args":{"task":7}}"#, Err(("invalid_args", "expected a string")));
        check(r#"{"action":"start","args":"task"}"#, Err(("invalid_args", "not an object")));
        check(r#"{"action":"ping","id":7}"#, Err(("invalid_args", "`id` is a string")));
    }
}
