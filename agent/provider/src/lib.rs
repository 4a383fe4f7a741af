//! Wire formats of model providers. Pure: bytes in, typed pieces out; no I/O, no clock.
//!
//! The gateway and the built-in agent read every answer with [`AnswerReader`], so both draw the
//! same conclusion from the same bytes. Every answer ends with one [`AnswerVerdict`]. One table
//! ([`VerdictRule`]) maps the verdict to words, retry and charge.
//!
//! - [`reader`]: bytes of an answer to [`AnswerPiece`]s, in four formats.
//! - [`verdict`]: the end of an answer.
//! - [`error`]: error bodies, by status and code first, by words last.
//! - [`usage`]: token counts under the names of all formats.
//! - [`arguments`]: lenient parser of a tool call's arguments.
//! - [`request`]: a conversation as the body of a request.
//!
//! Rules: a reader skips what it does not recognize (event, delta, block, field), and is strict
//! about the end of an answer.

mod answer;
pub mod arguments;
mod chat;
pub mod error;
mod error_fields;
mod error_words;
mod framing;
mod gemini;
mod json;
mod messages;
pub mod reader;
pub mod request;
mod responses;
mod text;
pub mod usage;
pub mod verdict;

pub use self::{
    error::ProviderError,
    reader::{AnswerFraming, AnswerPiece, AnswerReader, ToolCallPiece},
    usage::AnswerUsage,
    verdict::{AnswerVerdict, VerdictRule},
};

/// Wire format of a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireFormat {
    /// Anthropic: `POST /v1/messages`.
    Messages,
    /// OpenAI: `POST /v1/chat/completions`.
    Chat,
    /// OpenAI: `POST /v1/responses`.
    Responses,
    /// Google: `POST /v1beta/models/{model}:generateContent` and `:streamGenerateContent`.
    Gemini,
}
