//! Result that may be too large for one report. The excess is sent in pieces while the result
//! grows. So all of it can be fetched later, and none of it has to be in memory.

use base64::{Engine, prelude::BASE64_STANDARD};
use greenroom_protocol::{
    CONTENT_LIMIT, FULL_TEXT_LIMIT,
    link::{AgentReport, REPORT_LIMIT, html_item, screenshot_item},
    observation::TruncationMark,
};

use super::ToolContext;
use crate::headtail::HeadTail;

/// Size of one piece, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// Bytes after which no pieces are sent, so that the end of a longer text still has room.
const PIECES_LIMIT: u64 = FULL_TEXT_LIMIT - REPORT_LIMIT as u64;

/// Growing result.
pub(super) struct ToolOutput {
    text: HeadTail,
    in_pieces: bool,
    /// Text to send in pieces.
    unsent: String,
    /// Bytes sent in pieces so far.
    sent_bytes: u64,
    /// Set when [`PIECES_LIMIT`] is reached. From then on only the end is kept.
    is_full: bool,
}

/// Complete result.
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

    /// Sends the pieces that are full. Cancel-safe: no piece is sent twice or left out.
    pub(super) async fn send_full_pieces(&mut self, context: &ToolContext<'_>) {
        while self.unsent.len() >= PIECE_BYTES {
            self.send_piece(context).await;
        }
    }

    async fn send_piece(&mut self, context: &ToolContext<'_>) {
        let end = self.unsent.floor_char_boundary(PIECE_BYTES);
        let text = self.unsent[..end].to_owned();
        context
            .outgoing
            .report(AgentReport::Piece { item: context.item.to_owned(), offset: self.sent_bytes, text, base64: false })
            .await;
        self.sent_bytes += end as u64;
        self.unsent.drain(..end);
    }

    /// Sends the last pieces and returns the complete result.
    pub(super) async fn finish(mut self, context: &ToolContext<'_>) -> FinishedToolOutput {
        if self.in_pieces {
            let left_out = self.text.total() - self.sent_bytes - self.unsent.len() as u64;
            if left_out > 0 {
                let end = self.text.end(usize::try_from(left_out).unwrap_or(usize::MAX));
                let omitted = left_out - end.len() as u64;
                self.unsent.push_str(&format!("\n… {omitted} bytes left out …\n{end}"));
            }
            while !self.unsent.is_empty() {
                self.send_piece(context).await;
            }
        }
        FinishedToolOutput { text: self.text, in_pieces: self.in_pieces }
    }
}

/// Sends a page's HTML in pieces.
pub(super) async fn send_html(html: &str, context: &ToolContext<'_>) {
    let (item, mut offset) = (html_item(context.item), 0);
    while offset < html.len() {
        let end = html.floor_char_boundary(offset + PIECE_BYTES);
        let (item, text) = (item.clone(), html[offset..end].to_owned());
        context.outgoing.report(AgentReport::Piece { item, offset: offset as u64, text, base64: false }).await;
        offset = end;
    }
}

/// Sends a page's picture in pieces.
pub(super) async fn send_screenshot(picture: &[u8], context: &ToolContext<'_>) {
    let item = screenshot_item(context.item);
    // Base64 has four bytes for each three.
    for (index, piece) in picture.chunks(PIECE_BYTES / 4 * 3).enumerate() {
        let offset = (index * (PIECE_BYTES / 4 * 3)) as u64;
        let (item, text) = (item.clone(), BASE64_STANDARD.encode(piece));
        context.outgoing.report(AgentReport::Piece { item, offset, text, base64: true }).await;
    }
}

impl FinishedToolOutput {
    pub(super) fn content(&self) -> String {
        if self.in_pieces { self.text.excerpt(CONTENT_LIMIT) } else { self.text.text() }
    }

    pub(super) fn truncated(&self) -> Option<TruncationMark> {
        self.in_pieces.then(|| TruncationMark { bytes: self.text.total(), href: None })
    }
}
