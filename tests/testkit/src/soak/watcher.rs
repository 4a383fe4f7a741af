//! Client that watches one session for ever, over breaking connections, with occasional pauses in
//! its reading.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    BrokenPromise,
    wire::{SoakConnection, SoakFrame},
    world::{SoakChatFrame, SoakWorld},
};

/// Time that a watcher waits for the last events after the end.
const QUIET: Duration = Duration::from_millis(500);

struct SoakWatcher {
    world: Arc<SoakWorld>,
    session: String,
    /// Number of the newest event received.
    cursor: u64,
    /// Text read of items that still grow, by item and kind. Kept over connections and kills of the
    /// server.
    growing: HashMap<(String, String), String>,
    /// Position in outputs that still grow, by item.
    printed: HashMap<String, OutputPosition>,
}

/// Beginning of the next piece of an output, in bytes.
enum OutputPosition {
    Exactly(u64),
    /// Lower bound. A client that falls behind receives the newest bytes as if the output began
    /// there.
    AtLeast(u64),
}

/// Tail of an output that is kept for clients that fall behind, in bytes. A shorter output is
/// received whole.
const OUTPUT_TAIL_BYTES: u64 = 256 << 10;

pub(super) async fn watch(world: Arc<SoakWorld>, session: String, mut dice: fastrand::Rng) {
    let mut watcher = SoakWatcher { world, session, cursor: 0, growing: HashMap::new(), printed: HashMap::new() };
    while !watcher.world.is_over() {
        if dice.u8(0..8) == 0 {
            // Becomes a new client that reads everything again, from the start.
            (watcher.cursor, watcher.growing, watcher.printed) = (0, HashMap::new(), HashMap::new());
        }
        if dice.u8(0..6) == 0 {
            watcher.chat(&mut dice).await;
            continue;
        }
        let wire = match dice.u8(0..4) {
            0 => SoakConnection::stream(&watcher.world, &watcher.session, watcher.cursor).await,
            _ => SoakConnection::attach(&watcher.world, &watcher.session, watcher.cursor).await,
        };
        let Some(wire) = wire else {
            sleep(Duration::from_millis(dice.u64(5..100))).await;
            continue;
        };
        watcher.stay(wire, &mut dice).await;
    }
}

impl SoakWatcher {
    async fn stay(&mut self, mut wire: SoakConnection, dice: &mut fastrand::Rng) {
        let leaves = Instant::now() + Duration::from_millis(dice.u64(20..5_000));
        while Instant::now() < leaves {
            match wire.receive(QUIET).await {
                SoakFrame::Frame(frame) => self.check(&frame),
                SoakFrame::Nothing if self.world.is_over() => return,
                SoakFrame::Nothing => {}
                SoakFrame::Cut => return,
            }
            if dice.u16(0..2_000) == 0 {
                self.world.fault("a client stopped reading for a while");
                sleep(Duration::from_millis(dice.u64(200..3_000))).await;
            }
        }
        self.world.fault("a client's connection was cut");
    }

    /// Watches for a while as a chat client.
    async fn chat(&self, dice: &mut fastrand::Rng) {
        let Some(mut wire) = SoakConnection::chat(&self.world, &self.session).await else {
            return sleep(Duration::from_millis(dice.u64(5..100))).await;
        };
        let leaves = Instant::now() + Duration::from_millis(dice.u64(20..5_000));
        let (mut newest, mut tools, mut texts) = (0, HashSet::new(), HashSet::new());
        while Instant::now() < leaves {
            let frame = match wire.receive(QUIET).await {
                SoakFrame::Frame(frame) => frame,
                SoakFrame::Nothing if self.world.is_over() => return,
                SoakFrame::Nothing => continue,
                SoakFrame::Cut => return,
            };
            let (tool, item) = (frame["tool_use_id"].to_string(), frame["item"].to_string());
            let is_right = match frame["type"].as_str() {
                Some("tool_use_start") => tools.insert(tool),
                Some("tool_result") => tools.remove(&tool),
                Some("text_delta" | "thinking") => {
                    texts.insert(item);
                    true
                }
                // Withdraws a text that this client has.
                Some("text_reset") => texts.remove(&item),
                Some("cost_update" | "done" | "error") => true,
                _ => false,
            };
            if !is_right {
                self.broken(BrokenPromise::Changed, format!("a chat received a frame outside its protocol: {frame}"));
            }
            let Some(seq) = frame["seq"].as_u64() else { continue };
            if seq < newest {
                self.broken(BrokenPromise::OutOfOrder, format!("a chat received event {seq} after {newest}: {frame}"));
            }
            newest = seq;
            self.world.record_chat_frame(SoakChatFrame { session: self.session.clone(), seq, frame });
        }
        self.world.fault("a chat's connection was cut");
    }

    fn check(&mut self, frame: &Value) {
        if frame.get("at").is_some() {
            self.event(frame);
        } else if let Some(kind) = frame["delta"].as_str() {
            self.delta(kind, frame);
        } else if frame["status"] == "synced" && frame["seq"] != self.cursor {
            self.broken(
                BrokenPromise::Lost,
                format!("in sync at {}, but the last event was {}", frame["seq"], self.cursor),
            );
        }
    }

    fn event(&mut self, frame: &Value) {
        let seq = frame["seq"].as_u64().unwrap_or_default();
        if seq != self.cursor + 1 {
            let how = if seq <= self.cursor { BrokenPromise::Doubled } else { BrokenPromise::Lost };
            self.broken(how, format!("event {seq} came after {}", self.cursor));
        }
        self.cursor = seq;
        self.world.saw(&self.session, seq, frame);
        let (Some(item), Some(observation)) = (frame["item"].as_str(), frame["observation"].as_str()) else { return };
        // The final text equals the text read while the item grew. Of a long output, a client may
        // have received only the end.
        let kind = match observation {
            "message" => "text",
            "think" => "thinking",
            _ => "",
        };
        if let Some(read) = self.growing.get(&(item.to_owned(), kind.to_owned()))
            && frame["extras"]["truncated"] != true
            && !frame["content"].as_str().unwrap_or_default().starts_with(read.as_str())
        {
            self.broken(
                BrokenPromise::Changed,
                format!("event {seq} differs from its deltas: {read:?} became {}", frame["content"]),
            );
        }
        self.growing.retain(|(grown, _), _| grown != item);
        self.printed.remove(item);
    }

    fn delta(&mut self, kind: &str, frame: &Value) {
        let item = frame["item"].as_str().unwrap_or_default().to_owned();
        let (offset, content) = (frame["offset"].as_u64(), frame["content"].as_str().unwrap_or_default());
        if kind == "output" {
            return self.output(item, offset.unwrap_or(u64::MAX), content.len() as u64, frame);
        }
        let read = self.growing.entry((item, kind.to_owned())).or_default();
        match offset {
            // On another connection the text begins again, in any number of pieces.
            Some(0) if content.starts_with(&*read) || read.starts_with(content) => *read = content.to_owned(),
            Some(0) => {
                let what = format!("{read:?} was received before, and the text now begins with {frame}");
                self.broken(BrokenPromise::Changed, what);
            }
            Some(offset) if offset as usize == read.len() => read.push_str(content),
            _ => {
                let had = read.len();
                self.broken(BrokenPromise::OutOfOrder, format!("a delta does not begin at {had}: {frame}"));
            }
        }
    }

    fn output(&mut self, item: String, offset: u64, bytes: u64, frame: &Value) {
        let goes_on = match self.printed.get(&item) {
            _ if offset == 0 => true,
            Some(OutputPosition::Exactly(end)) => offset == *end,
            Some(OutputPosition::AtLeast(end)) => offset == *end || offset > *end && offset >= OUTPUT_TAIL_BYTES,
            None => false,
        };
        if !goes_on {
            self.broken(BrokenPromise::Lost, format!("output does not continue at its position: {frame}"));
        }
        let next = if offset == 0 {
            OutputPosition::AtLeast(bytes)
        } else {
            OutputPosition::Exactly(offset.saturating_add(bytes))
        };
        self.printed.insert(item, next);
    }

    fn broken(&self, how: BrokenPromise, what: String) {
        self.world.broken(how, format!("{}: {what}", self.session));
    }
}
