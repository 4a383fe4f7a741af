//! Text frames of the terminal socket. Bytes travel in binary frames. The reference is
//! docs/reference/terminal-socket.md.

use greenroom_protocol::client::ErrorBody;
use serde::{Deserialize, Serialize};

/// Text frame to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum TerminalFrameToClient {
    /// The sandbox is starting; `ready` follows.
    Starting {},
    /// The sandbox is paused. Input waits.
    Paused {},
    /// The sandbox goes on after a pause.
    Resumed {},
    /// The terminal is attached. Its screen follows as bytes.
    Ready {
        name: String,
        opened: bool,
    },
    /// Size in force, with the number of clients.
    Size {
        cols: u16,
        rows: u16,
        clients: u32,
        answers: bool,
    },
    /// The terminal has another name.
    Renamed {
        name: String,
    },
    /// Last frame: the terminal has ended. Has either a code or a reason.
    Exit {
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<TerminalExitReason>,
    },
    Error {
        error: ErrorBody,
    },
    Pong {},
}

/// Reason for the end of a terminal whose shell did not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TerminalExitReason {
    /// The sandbox has stopped, or its agent was restarted.
    Sandbox,
    /// The session has ended.
    Session,
}

/// Text frame from a client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum TerminalFrameFromClient {
    Resize { cols: u16, rows: u16 },
    Ping {},
}

impl TerminalFrameFromClient {
    /// # Errors
    /// Returns the reason if the text is no such frame.
    pub(super) fn parse(text: &str) -> Result<TerminalFrameFromClient, String> {
        match serde_json::from_str(text) {
            Ok(TerminalFrameFromClient::Resize { cols: 0, .. } | TerminalFrameFromClient::Resize { rows: 0, .. }) => {
                Err("`cols` and `rows` must be above 0".to_owned())
            }
            Ok(frame) => Ok(frame),
            Err(error) => Err(format!(
                "a text frame must be JSON such as {{\"type\":\"resize\",\"cols\":80,\"rows\":24}}: {error}; \
                 input travels in binary frames"
            )),
        }
    }
}

impl TerminalFrameToClient {
    pub(super) fn error(code: &str, message: impl Into<String>) -> TerminalFrameToClient {
        TerminalFrameToClient::Error { error: ErrorBody { code: code.to_owned(), message: message.into() } }
    }

    pub(super) fn lost(reason: TerminalExitReason) -> TerminalFrameToClient {
        TerminalFrameToClient::Exit { code: None, signal: None, reason: Some(reason) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn frames_have_their_documented_form() {
        let check = |frame: TerminalFrameToClient, expected| {
            assert_eq!(serde_json::to_value(frame).expect("a frame is JSON"), expected);
        };
        check(TerminalFrameToClient::Starting {}, json!({ "type": "starting" }));
        check(
            TerminalFrameToClient::Ready { name: "main".into(), opened: true },
            json!({ "type": "ready", "name": "main", "opened": true }),
        );
        check(
            TerminalFrameToClient::Size { cols: 80, rows: 24, clients: 2, answers: false },
            json!({ "type": "size", "cols": 80, "rows": 24, "clients": 2, "answers": false }),
        );
        check(
            TerminalFrameToClient::Exit { code: Some(137), signal: Some("SIGKILL".into()), reason: None },
            json!({ "type": "exit", "code": 137, "signal": "SIGKILL" }),
        );
        check(TerminalFrameToClient::lost(TerminalExitReason::Sandbox), json!({ "type": "exit", "reason": "sandbox" }));
        check(
            TerminalFrameToClient::error("code", "text"),
            json!({ "type": "error", "error": { "code": "code", "message": "text" } }),
        );
    }

    #[test]
    fn only_valid_frames_are_accepted() {
        let resize = TerminalFrameFromClient::Resize { cols: 80, rows: 24 };
        assert_eq!(TerminalFrameFromClient::parse(r#"{"type":"resize","cols":80,"rows":24}"#), Ok(resize));
        assert_eq!(TerminalFrameFromClient::parse(r#"{"type":"ping"}"#), Ok(TerminalFrameFromClient::Ping {}));
        for wrong in [
            "",
            "ls",
            "{}",
            r#"{"type":"exit"}"#,
            r#"{"type":"resize","cols":0,"rows":24}"#,
            r#"{"type":"resize","cols":80,"rows":0}"#,
            r#"{"type":"resize","cols":-1,"rows":24}"#,
            r#"{"type":"resize","cols":65536,"rows":24}"#,
            r#"{"type":"resize","cols":80,"rows":24,"x":1}"#,
        ] {
            assert!(TerminalFrameFromClient::parse(wrong).is_err(), "{wrong}");
        }
    }
}
