//! A result that may be too large for one report. What does not fit is told in pieces while it grows, so that all of it can
//! be fetched later and none of it has to be in memory.

use greenroom_protocol::{
    CONTENT_LIMIT, WHOLE_LIMIT,
    link::{REPORT_LIMIT, Report},
    observation::Truncated,
};

use super::{Bench, TOLD_LIMIT, for_model};
use crate::headtail::HeadTail;

/// How much goes into one piece, bytes.
const PIECE: usize = 256 * 1024;

/// Where the pieces stop, so that the end of a longer text still has room.
const MIDDLE: u64 = WHOLE_LIMIT - REPORT_LIMIT as u64;

/// A result that grows.
pub(super) struct Whole {
    kept: HeadTail,
    in_pieces: bool,
    /// What is to be told in pieces, and how much was.
    waiting: String,
    told: u64,
    /// From here on only the end counts.
    is_full: bool,
}

/// A result that is complete.
pub(super) struct Kept {
    text: HeadTail,
    in_pieces: bool,
}

impl Whole {
    pub(super) fn new() -> Whole {
        Whole { kept: HeadTail::new(REPORT_LIMIT), in_pieces: false, waiting: String::new(), told: 0, is_full: false }
    }

    pub(super) fn push(&mut self, text: &str) {
        if !self.in_pieces && self.kept.total() + text.len() as u64 > REPORT_LIMIT as u64 {
            self.waiting = self.kept.text();
            self.in_pieces = true;
        }
        self.kept.push(text);
        if self.in_pieces && !self.is_full {
            let room = MIDDLE.saturating_sub(self.told + self.waiting.len() as u64);
            let fits = text.floor_char_boundary(usize::try_from(room).unwrap_or(usize::MAX));
            self.waiting.push_str(&text[..fits]);
            self.is_full = fits < text.len();
        }
    }

    /// Tells the pieces that are full. May be dropped at any point: nothing is told twice or left out.
    pub(super) async fn tell(&mut self, bench: &Bench<'_>) {
        while self.waiting.len() >= PIECE {
            self.piece(bench).await;
        }
    }

    async fn piece(&mut self, bench: &Bench<'_>) {
        let end = self.waiting.floor_char_boundary(PIECE);
        let text = self.waiting[..end].to_owned();
        bench.outgoing.report(Report::Piece { item: bench.item.to_owned(), offset: self.told, text }).await;
        self.told += end as u64;
        self.waiting.drain(..end);
    }

    /// It does not grow any more: the last pieces are told.
    pub(super) async fn finish(mut self, bench: &Bench<'_>) -> Kept {
        if self.in_pieces {
            let left_out = self.kept.total() - self.told - self.waiting.len() as u64;
            if left_out > 0 {
                let end = self.kept.end(usize::try_from(left_out).unwrap_or(usize::MAX));
                let omitted = left_out - end.len() as u64;
                self.waiting.push_str(&format!("\n… {omitted} bytes left out …\n{end}"));
            }
            while !self.waiting.is_empty() {
                self.piece(bench).await;
            }
        }
        Kept { text: self.kept, in_pieces: self.in_pieces }
    }
}

impl Kept {
    pub(super) fn content(&self) -> String {
        if self.in_pieces { self.text.excerpt(CONTENT_LIMIT) } else { self.text.text() }
    }

    pub(super) fn for_model(&self) -> String {
        if self.in_pieces { self.text.excerpt(TOLD_LIMIT) } else { for_model(&self.text.text()) }
    }

    pub(super) fn truncated(&self) -> Option<Truncated> {
        self.in_pieces.then(|| Truncated { bytes: self.text.total(), href: None })
    }
}
