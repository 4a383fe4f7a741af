//! Reviews of tool calls without a verdict, in order. Pure: no socket, no clock.

use std::collections::VecDeque;

use greenroom_protocol::{
    approval::{ReviewRequest, ReviewVerdict, Verdict},
    link::FromAgent,
};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::outgoing::frame;

/// Bound: 4 MiB of reviews without a verdict, plus one review. When full: the sender of a review
/// blocks until a verdict.
const LIMIT: usize = 4 * 1024 * 1024;

/// Keeps each review until its verdict, and sends it once per connection.
#[derive(Debug, Default)]
pub struct PendingReviews {
    waiting: VecDeque<WaitingReview>,
    /// True if the server of the newest welcome reviews calls. Otherwise calls are allowed.
    reviewed: bool,
}

#[derive(Debug)]
struct WaitingReview {
    id: String,
    frame: Utf8Bytes,
    /// Set if the current connection has the review.
    sent: bool,
    verdict: oneshot::Sender<Verdict>,
}

impl PendingReviews {
    /// Returns `true` if the server of the newest welcome reviews calls.
    pub fn is_reviewed(&self) -> bool {
        self.reviewed
    }

    /// Returns `true` if another review is accepted now.
    pub fn has_room(&self) -> bool {
        self.waiting.iter().map(|review| review.frame.len()).sum::<usize>() < LIMIT
    }

    /// Queues a review. `verdict` receives its verdict, at once if the server reviews no calls.
    pub fn push(&mut self, request: ReviewRequest, verdict: oneshot::Sender<Verdict>) {
        if !self.reviewed {
            allow(verdict);
            return;
        }
        let id = request.id.clone();
        self.waiting.push_back(WaitingReview { id, frame: frame(&FromAgent::Review(request)), sent: false, verdict });
    }

    /// Begins a connection: all reviews are sent again. If its server reviews no calls, all are
    /// allowed.
    pub fn connect(&mut self, reviewed: bool) {
        self.reviewed = reviewed;
        if reviewed {
            self.waiting.iter_mut().for_each(|review| review.sent = false);
        } else {
            self.waiting.drain(..).for_each(|review| allow(review.verdict));
        }
    }

    /// Passes a verdict on. Returns `false` if no such review waits.
    pub fn settle(&mut self, ReviewVerdict { id, verdict }: ReviewVerdict) -> bool {
        // The turn may have ended at this moment, and then needs no verdict.
        self.take(&id).is_some_and(|review| review.verdict.send(verdict).is_ok())
    }

    /// Drops a review that needs no verdict any more.
    pub fn withdraw(&mut self, id: &str) {
        self.take(id);
    }

    /// Returns the next frame for the current connection.
    pub fn next_frame(&mut self) -> Option<Utf8Bytes> {
        let next = self.waiting.iter_mut().find(|review| !review.sent)?;
        next.sent = true;
        Some(next.frame.clone())
    }

    fn take(&mut self, id: &str) -> Option<WaitingReview> {
        let at = self.waiting.iter().position(|review| review.id == id)?;
        self.waiting.remove(at)
    }
}

fn allow(verdict: oneshot::Sender<Verdict>) {
    // A turn that ended at this moment needs no verdict.
    let _ = verdict.send(Verdict::Allow);
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::Action;

    use super::*;

    fn request(id: &str, bytes: usize) -> ReviewRequest {
        let action = Action::Run { command: "x".repeat(bytes) };
        ReviewRequest { id: id.to_owned(), item: None, action }
    }

    fn reviewing() -> PendingReviews {
        let mut reviews = PendingReviews::default();
        reviews.connect(true);
        reviews
    }

    /// Returns the ids of the frames that the current connection gets.
    fn sent(reviews: &mut PendingReviews) -> Vec<String> {
        let id = |frame: Utf8Bytes| match serde_json::from_str(frame.as_str()).expect("a frame") {
            FromAgent::Review(ReviewRequest { id, .. }) => id,
            other => panic!("not a review: {other:?}"),
        };
        std::iter::from_fn(|| reviews.next_frame()).map(id).collect()
    }

    #[test]
    fn review_is_sent_on_each_connection_until_its_verdict() {
        let mut reviews = reviewing();
        let mut receivers = Vec::new();
        for id in ["a", "b", "c"] {
            let (sender, receiver) = oneshot::channel();
            reviews.push(request(id, 1), sender);
            receivers.push(receiver);
        }
        assert_eq!(sent(&mut reviews), ["a", "b", "c"]);
        assert_eq!(sent(&mut reviews), [""; 0]);
        assert!(reviews.settle(ReviewVerdict { id: "b".into(), verdict: Verdict::Ask }));
        assert!(!reviews.settle(ReviewVerdict { id: "b".into(), verdict: Verdict::Allow }));
        assert_eq!(receivers[1].try_recv(), Ok(Verdict::Ask));
        reviews.withdraw("c");
        reviews.connect(true);
        assert_eq!(sent(&mut reviews), ["a"]);
    }

    #[test]
    fn server_without_reviews_allows_all() {
        let mut reviews = reviewing();
        let (sender, mut before) = oneshot::channel();
        reviews.push(request("a", 1), sender);
        reviews.connect(false);
        let (sender, mut after) = oneshot::channel();
        reviews.push(request("b", 1), sender);
        assert_eq!((before.try_recv(), after.try_recv()), (Ok(Verdict::Allow), Ok(Verdict::Allow)));
        assert_eq!(sent(&mut reviews), [""; 0]);
    }

    #[test]
    fn full_queue_has_room_after_a_verdict() {
        let mut reviews = reviewing();
        let (sender, _receiver) = oneshot::channel();
        reviews.push(request("a", LIMIT), sender);
        assert!(!reviews.has_room());
        reviews.settle(ReviewVerdict { id: "a".into(), verdict: Verdict::Allow });
        assert!(reviews.has_room());
    }
}
