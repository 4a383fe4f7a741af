//! A result that may be too large for one report. What does not fit is told in pieces while it grows, so that all of it can
//! be fetched later and none of it has to be in memory.

use greenroom_protocol::{
    CONTENT_LIMIT, FULL_TEXT_LIMIT,
    link::{AgentReport, REPORT_LIMIT},
    observation::TruncationMark,
};

use super::{MODEL_TEXT_LIMIT, ToolContext, for_model};
use crate::headtail::HeadTail;

/// How much goes into one piece, bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// Where the pieces stop, so that the end of a longer text still has room.
const PIECES_LIMIT: u64 = FULL_TEXT_LIMIT - REPORT_LIMIT as u64;

/// A result that grows.
pub(super) struct ToolOutput {
    text: HeadTail,
    in_pieces: bool,
    /// What is to be told in pieces, and how much was.
    unsent: String,
    sent_bytes: u64,
    /// From here on only the end counts.
    is_full: bool,
}

/// A result that is complete.
pub(super) struct FinishedToolOutput {
    text: HeadTail,
    in_pieces: bool,
}

impl ToolOutput {
    pub(super) fn new() -> ToolOutput {
        ToolOutput {
            text: HeadTail::new(REPORT_LIMIT),
            in_pieces: false,
            unsent: String::new(),
            sent_bytes: 0,
            is_full: false,
        }
    }

    pub(super) fn push(&mut self, text: &str) {
        if !self.in_pieces && self.text.total() + text.len() as u64 > REPORT_LIMIT as u64 {
            self.unsent = self.text.text();
            self.in_pieces = true;
        }
        self.text.push(text);
        if self.in_pieces && !self.is_full {
            let room = PIECES_LIMIT.saturating_sub(self.sent_bytes + self.unsent.len() as u64);
            let fits = text.floor_char_boundary(usize::try_from(room).unwrap_or(usize::MAX));
            self.unsent.push_str(&text[..fits]);
            self.is_full = fits < text.len();
        }
    }

    /// Tells the pieces that are full. May be dropped at any point: nothing is told twice or left out.
    pub(super) async fn send_full_pieces(&mut self, bench: &ToolContext<'_>) {
        while self.unsent.len() >= PIECE_BYTES {
            self.send_piece(bench).await;
        }
    }

    async fn send_piece(&mut self, bench: &ToolContext<'_>) {
        let end = self.unsent.floor_char_boundary(PIECE_BYTES);
        let text = self.unsent[..end].to_owned();
        bench.outgoing.report(AgentReport::Piece { item: bench.item.to_owned(), offset: self.sent_bytes, text }).await;
        self.sent_bytes += end as u64;
        self.unsent.drain(..end);
    }

    /// It does not grow any more: the last pieces are told.
    pub(super) async fn finish(mut self, bench: &ToolContext<'_>) -> FinishedToolOutput {
        if self.in_pieces {
            let left_out = self.text.total() - self.sent_bytes - self.unsent.len() as u64;
            if left_out > 0 {
                let end = self.text.end(usize::try_from(left_out).unwrap_or(usize::MAX));
                let omitted = left_out - end.len() as u64;
                self.unsent.push_str(&format!("\n… {omitted} bytes left out …\n{end}"));
            }
            while !self.unsent.is_empty() {
                self.send_piece(bench).await;
            }
        }
        FinishedToolOutput { text: self.text, in_pieces: self.in_pieces }
    }
}

impl FinishedToolOutput {
    pub(super) fn content(&self) -> String {
        if self.in_pieces { self.text.excerpt(CONTENT_LIMIT) } else { self.text.text() }
    }

    pub(super) fn for_model(&self) -> String {
        if self.in_pieces { self.text.excerpt(MODEL_TEXT_LIMIT) } else { for_model(&self.text.text()) }
    }

    pub(super) fn truncated(&self) -> Option<TruncationMark> {
        self.in_pieces.then(|| TruncationMark { bytes: self.text.total(), href: None })
    }
}
