//! Frames of the terminal socket: the bytes of terminals, between server and agent.
//!
//! A frame is its length (4 bytes, big endian), a tag of one byte, and the payload. The length
//! counts tag and payload. Tag 0: a control frame, as JSON. Tag 1: bytes of a terminal.
//!
//! A connection begins with one [`TerminalRequest`]. After `attach` the connection carries input
//! and output of one terminal until either side closes it. Any other request gets one answer.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Largest payload of a frame, in bytes.
pub const TERMINAL_FRAME_LIMIT: usize = 64 * 1024;

/// Largest number of terminals of one session.
pub const TERMINALS_LIMIT: usize = 8;

/// Longest name of a terminal, in bytes.
pub const TERMINAL_NAME_LIMIT: usize = 32;

/// Bytes before the payload: the length and the tag.
const HEAD: usize = 5;

const CONTROL_TAG: u8 = 0;
const BYTES_TAG: u8 = 1;

/// First control frame of a connection, from the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TerminalRequest {
    /// Attaches to a terminal. A missing terminal is opened.
    Attach {
        name: String,
        cols: u16,
        rows: u16,
    },
    List {},
    Rename {
        name: String,
        to: String,
    },
    /// Ends a terminal with all of its processes.
    Close {
        name: String,
    },
}

/// Later control frame of an attached connection, from the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TerminalControl {
    /// New size of the client's window.
    Resize { cols: u16, rows: u16 },
}

/// Control frame from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TerminalReply {
    /// Answer to `attach`. The screen follows as bytes.
    Attached {
        name: String,
        /// True if the request opened the terminal.
        opened: bool,
    },
    /// Size in force, which is the smallest of all clients.
    Size {
        cols: u16,
        rows: u16,
        /// Number of attached clients.
        clients: u32,
        /// True for the one client whose emulator answers queries of programs.
        answers: bool,
    },
    /// Name of the terminal after a rename.
    Renamed { name: String },
    /// End of the shell, after its last output.
    Exit {
        code: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
    },
    /// Answer to `list`.
    Terminals { items: Vec<TerminalStatus> },
    /// Answer to `rename` and `close`.
    Done {},
    /// Rejection of the first request.
    Error { code: TerminalErrorCode, message: String },
}

/// Kind of a rejected request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminalErrorCode {
    /// Invalid name, size or frame.
    InvalidArgs,
    /// No terminal has the name.
    NoTerminal,
    /// Another terminal has the name.
    NameTaken,
    /// The session has [`TERMINALS_LIMIT`] terminals.
    TooManyTerminals,
    /// The shell cannot be started, or the terminal has just ended.
    Unavailable,
}

/// Terminal in the answer to `list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalStatus {
    pub name: String,
    /// Title that a program has set. Without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub cols: u16,
    pub rows: u16,
    /// Number of attached clients.
    pub clients: u32,
    /// Command line in the foreground. Absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Time since the terminal was opened, in seconds.
    pub age_s: u64,
}

/// Violation of the framing. The connection is of no use afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadTerminalFrame {
    /// Length of 0, or above [`TERMINAL_FRAME_LIMIT`].
    Length(usize),
    Tag(u8),
}

/// Frame with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalFrame {
    /// JSON of a control frame.
    Control(Vec<u8>),
    Bytes(Vec<u8>),
}

impl TerminalFrame {
    /// Encodes a control frame.
    pub fn control(frame: &impl Serialize) -> Vec<u8> {
        // Control frames have string keys and plain values, so serialization cannot fail.
        encode(CONTROL_TAG, &serde_json::to_vec(frame).unwrap_or_default())
    }

    /// Encodes bytes of a terminal, in as many frames as they need.
    pub fn bytes(bytes: &[u8]) -> Vec<u8> {
        bytes.chunks(TERMINAL_FRAME_LIMIT).flat_map(|chunk| encode(BYTES_TAG, chunk)).collect()
    }
}

fn encode(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend_from_slice(&(payload.len() as u32 + 1).to_be_bytes());
    frame.push(tag);
    frame.extend_from_slice(payload);
    frame
}

/// Reads the JSON of a control frame.
///
/// # Errors
/// The JSON is not a frame of this type.
pub fn read_control<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json)
}

/// Splits received bytes into frames. Bound: one frame and what one read brings.
#[derive(Debug, Default)]
pub struct TerminalFrameReader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that earlier frames had.
    taken: usize,
}

impl TerminalFrameReader {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete frame.
    ///
    /// # Errors
    /// The bytes are not a frame.
    pub fn next_frame(&mut self) -> Result<Option<TerminalFrame>, BadTerminalFrame> {
        let rest = &self.buffer[self.taken..];
        let Some(&[a, b, c, d]) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length == 0 || length > TERMINAL_FRAME_LIMIT + 1 {
            return Err(BadTerminalFrame::Length(length));
        }
        if let Some(&tag) = rest.get(HEAD - 1)
            && tag > BYTES_TAG
        {
            return Err(BadTerminalFrame::Tag(tag));
        }
        let Some(frame) = rest.get(HEAD - 1..HEAD - 1 + length) else { return Ok(None) };
        let payload = frame[1..].to_vec();
        let frame =
            if frame[0] == CONTROL_TAG { TerminalFrame::Control(payload) } else { TerminalFrame::Bytes(payload) };
        self.taken += HEAD - 1 + length;
        if self.taken == self.buffer.len() {
            self.buffer = Vec::new();
            self.taken = 0;
        }
        Ok(Some(frame))
    }
}

/// Checks the name of a terminal.
///
/// # Errors
/// Returns the rule, for a person.
pub fn check_terminal_name(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let has_only_dots = name.bytes().all(|byte| byte == b'.');
    if (1..=TERMINAL_NAME_LIMIT).contains(&name.len()) && name.chars().all(is_allowed) && !has_only_dots {
        return Ok(());
    }
    Err(format!(
        "the name of a terminal must have 1 to {TERMINAL_NAME_LIMIT} letters, digits, `.`, `_` and `-`, and not only dots"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            frames in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..300)), 0..20),
            cut in 1..97usize,
        ) {
            let wire: Vec<u8> = frames
                .iter()
                .flat_map(|(control, payload)| encode(if *control { CONTROL_TAG } else { BYTES_TAG }, payload))
                .collect();
            let (mut reader, mut read) = (TerminalFrameReader::default(), Vec::new());
            for bytes in wire.chunks(cut) {
                reader.push(bytes);
                while let Some(frame) = reader.next_frame().expect("the frames are valid") {
                    read.push(match frame {
                        TerminalFrame::Control(payload) => (true, payload),
                        TerminalFrame::Bytes(payload) => (false, payload),
                    });
                }
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut reader = TerminalFrameReader::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next_frame() {}
        }
    }

    #[test]
    fn invalid_heads_are_rejected_before_their_payload() {
        let check = |head: &[u8], expected| {
            let mut reader = TerminalFrameReader::default();
            reader.push(head);
            assert_eq!(reader.next_frame(), expected, "{head:?}");
        };
        check(&[0, 0, 0], Ok(None));
        check(&[0, 0, 0, 9], Ok(None));
        check(&[0, 0, 0, 9, BYTES_TAG], Ok(None));
        check(&[0, 0, 0, 0], Err(BadTerminalFrame::Length(0)));
        check(&[0, 1, 0, 2], Err(BadTerminalFrame::Length(TERMINAL_FRAME_LIMIT + 2)));
        check(&[0, 0, 0, 9, 2], Err(BadTerminalFrame::Tag(2)));
    }

    #[test]
    fn names_have_a_small_alphabet() {
        for (name, valid) in [
            ("main", true),
            ("a.b_c-9", true),
            ("", false),
            (".", false),
            ("..", false),
            ("a b", false),
            ("ä", false),
            ("n".repeat(TERMINAL_NAME_LIMIT).as_str(), true),
            ("n".repeat(TERMINAL_NAME_LIMIT + 1).as_str(), false),
        ] {
            assert_eq!(check_terminal_name(name).is_ok(), valid, "{name:?}");
        }
    }
}
