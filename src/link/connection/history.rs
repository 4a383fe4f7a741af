//! History for an agent that has just started: the journal, with the whole text of long messages.

use std::mem::take;

use greenroom_protocol::{CONTENT_LIMIT, Event, EventBody, Observation, link::ToAgent, observation::TruncationMark};
use serde::Deserialize;

use super::{AgentConnection, DisconnectReason};
use crate::{
    link::frames::encode_frame,
    store::{JournalEvent, ReadLimit, Seq, damage::read_past_damage},
};

/// Journal bytes that go into one `history` frame.
const HISTORY_FRAME_BYTES: usize = 256 << 10;
/// Longest message that the history contains whole although its event is truncated, in bytes.
/// About half of what the built-in agent sends to a model.
const MESSAGE_LIMIT: usize = 256 << 10;

impl AgentConnection<'_> {
    /// Sends all events up to `to`, oldest first.
    pub(super) async fn send_history(&mut self, to: Seq) -> Result<(), DisconnectReason> {
        let mut after = 0;
        loop {
            let limit = ReadLimit { events: 256, bytes: HISTORY_FRAME_BYTES };
            let page = read_past_damage(&**self.store, self.id, after, limit).await;
            let page = page.map_err(|e| DisconnectReason::Disconnected(format!("could not read the journal: {e}")))?;
            let last = page.last().map_or(to, |(seq, _)| *seq);
            let complete = last >= to || page.is_empty();
            let (mut events, mut added_bytes) = (Vec::new(), 0);
            for (_, event) in page.iter().filter(|(seq, _)| *seq <= to) {
                let Ok(mut read) = serde_json::from_slice::<Event>(&event.json) else { continue };
                if let Some(full) = self.full_message(event).await
                    && let EventBody::Observation(Observation { content, .. }) = &mut read.body
                {
                    added_bytes += full.len();
                    *content = full;
                }
                events.push(read);
                if added_bytes > HISTORY_FRAME_BYTES {
                    let part = ToAgent::History { events: take(&mut events), complete: false };
                    self.send(encode_frame(&part)).await?;
                    added_bytes = 0;
                }
            }
            self.send(encode_frame(&ToAgent::History { events, complete })).await?;
            self.liveness.frame_read();
            if complete {
                return Ok(());
            }
            after = last;
        }
    }

    /// Returns the whole text of a message whose event holds only a part.
    ///
    /// Returns `None` for a tool result, which the model gets truncated anyway. Returns `None` also
    /// if the content is missing or too long. The event's text then states how much is left out.
    async fn full_message(&self, event: &JournalEvent) -> Option<String> {
        #[derive(Deserialize)]
        struct TruncatedEvent {
            extras: TruncatedExtras,
        }
        #[derive(Deserialize)]
        struct TruncatedExtras {
            truncated: Option<TruncationMark>,
        }
        if event.kind != "message" || event.json.len() < CONTENT_LIMIT {
            return None;
        }
        let part: TruncatedEvent = serde_json::from_slice(&event.json).ok()?;
        let href = part.extras.truncated?.href?;
        let name = href.rsplit('/').next()?;
        let full = self.store.content(self.id, name, 0, MESSAGE_LIMIT).await.ok()??;
        let is_complete = full.bytes.len() as u64 == full.total;
        is_complete.then(|| String::from_utf8(full.bytes.into()).ok())?
    }
}
