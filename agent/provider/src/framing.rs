//! Framing of a body: bytes in any cut to the JSON of events. Reads server-sent events, one JSON
//! value, a list of values, and JSON where events were expected.

use crate::json::JsonScan;

/// Buffer capacity that is kept for the next line, bytes.
const KEPT_CAPACITY: usize = 64 * 1024;

/// Text of a body that is neither events nor JSON, as far as it is kept for an error message.
const MAX_STRAY_BYTES: usize = 4 * 1024;

/// Receiver of a body's events.
pub(crate) trait EventSink {
    /// Receives the data of one event. Returns false if `json` is no JSON.
    fn json(&mut self, json: &[u8], is_error: bool) -> bool;

    /// Receives an error in plain words.
    fn error_text(&mut self, text: &[u8]);

    /// Receives the mark `[DONE]`.
    fn done(&mut self);

    /// Counts bytes of data that cannot be read.
    fn unread(&mut self, bytes: usize);

    /// Receives the end of a line or value that is too long to read.
    fn overlong_end(&mut self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyMode {
    /// White space at most was read.
    Start,
    Lines,
    /// JSON values without a frame around them.
    Values,
}

/// Cuts a body into events.
#[derive(Debug)]
pub(crate) struct BodyFramer {
    mode: BodyMode,
    /// Longest line, event or value that is read, bytes. A longer one is skipped.
    limit: usize,
    /// Line or value whose end has not arrived.
    partial: Vec<u8>,
    /// True if `partial` was dropped, because the line or value exceeds the limit.
    overlong: bool,
    /// True if the last line ended with a carriage return. A line feed may follow.
    after_return: bool,
    /// Position in the value that `partial` begins. `None` between two values.
    value: Option<JsonScan>,
    values: usize,
    event: PendingEvent,
    stray: Vec<u8>,
}

/// Event whose data stretches over several lines.
#[derive(Debug, Default)]
struct PendingEvent {
    data: Vec<u8>,
    scan: JsonScan,
    /// True if the data's lines have no field name.
    is_bare: bool,
    is_error: bool,
}

impl BodyFramer {
    pub(crate) fn new(limit: usize) -> BodyFramer {
        BodyFramer {
            mode: BodyMode::Start,
            limit,
            partial: Vec::new(),
            overlong: false,
            after_return: false,
            value: None,
            values: 0,
            event: PendingEvent::default(),
            stray: Vec::new(),
        }
    }

    /// Returns true if the body was one JSON value.
    pub(crate) fn is_single_value(&self) -> bool {
        self.mode == BodyMode::Values && self.values == 1 && self.value.is_none()
    }

    /// Start of the text that is neither events nor JSON.
    pub(crate) fn stray(&self) -> &[u8] {
        self.stray.trim_ascii()
    }

    /// Reads the next bytes.
    pub(crate) fn push(&mut self, mut bytes: &[u8], sink: &mut impl EventSink) {
        while !bytes.is_empty() {
            let read = match self.mode {
                BodyMode::Start => self.sniff(bytes),
                BodyMode::Lines => self.push_line(bytes, sink),
                BodyMode::Values => self.push_value(bytes, sink),
            };
            bytes = &bytes[read..];
        }
    }

    /// Ends the body.
    pub(crate) fn finish(&mut self, sink: &mut impl EventSink) {
        let rest = std::mem::take(&mut self.partial);
        match self.mode {
            BodyMode::Lines if !self.overlong => self.line(&rest, sink),
            _ => sink.unread(rest.len()),
        }
        self.end_event(sink);
    }

    /// Skips white space and a byte order mark, and recognizes what follows.
    fn sniff(&mut self, bytes: &[u8]) -> usize {
        let is_skipped = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0xEF | 0xBB | 0xBF);
        let skipped = bytes.iter().take_while(|byte| is_skipped(byte)).count();
        match bytes.get(skipped) {
            None => {}
            Some(b'{' | b'[') => self.mode = BodyMode::Values,
            Some(_) => self.mode = BodyMode::Lines,
        }
        skipped
    }

    fn push_line(&mut self, bytes: &[u8], sink: &mut impl EventSink) -> usize {
        if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
            return 1;
        }
        let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
            self.keep(bytes, sink);
            return bytes.len();
        };
        self.after_return = bytes[end] == b'\r';
        if self.partial.is_empty() && !self.overlong && end <= self.limit {
            self.line(&bytes[..end], sink);
        } else if let Some(line) = self.take_with(&bytes[..end], sink) {
            self.line(&line, sink);
            self.reuse(line);
        }
        end + 1
    }

    fn push_value(&mut self, bytes: &[u8], sink: &mut impl EventSink) -> usize {
        let Some(scan) = &mut self.value else {
            let is_between = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'[' | b']');
            let skipped = bytes.iter().take_while(|byte| is_between(byte)).count();
            match bytes.get(skipped) {
                None => {}
                Some(b'{') => self.value = Some(JsonScan::default()),
                Some(_) => self.mode = BodyMode::Lines,
            }
            return skipped;
        };
        let Some(end) = scan.scan(bytes) else {
            self.keep(bytes, sink);
            return bytes.len();
        };
        self.value = None;
        self.values += 1;
        if self.partial.is_empty() && !self.overlong && end <= self.limit {
            if !sink.json(&bytes[..end], false) {
                sink.unread(end);
            }
        } else if let Some(value) = self.take_with(&bytes[..end], sink) {
            if !sink.json(&value, false) {
                sink.unread(value.len());
            }
            self.reuse(value);
        }
        end
    }

    /// Keeps the start of a line or value, up to the limit.
    fn keep(&mut self, bytes: &[u8], sink: &mut impl EventSink) {
        if !self.overlong && self.partial.len() + bytes.len() <= self.limit {
            self.partial.extend_from_slice(bytes);
        } else {
            self.overlong = true;
            sink.unread(std::mem::take(&mut self.partial).len() + bytes.len());
        }
    }

    /// Returns the kept start with its end. `None` if both exceed the limit.
    fn take_with(&mut self, end: &[u8], sink: &mut impl EventSink) -> Option<Vec<u8>> {
        self.keep(end, sink);
        if std::mem::take(&mut self.overlong) {
            sink.overlong_end();
            return None;
        }
        Some(std::mem::take(&mut self.partial))
    }

    /// Keeps the allocation of a line for the next one.
    fn reuse(&mut self, mut line: Vec<u8>) {
        if line.capacity() <= KEPT_CAPACITY {
            line.clear();
            self.partial = line;
        }
    }

    fn line(&mut self, line: &[u8], sink: &mut impl EventSink) {
        if line.is_empty() {
            return self.end_event(sink);
        }
        if self.event.is_bare {
            return self.add_data(line, sink);
        }
        if matches!(line[0], b'{' | b'[') {
            self.event.is_bare = true;
            self.add_data(line, sink);
            self.event.is_bare = !self.event.data.is_empty();
            return;
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], line[colon + 1..].trim_ascii()),
            None => (line, &[][..]),
        };
        match name {
            b"data" => self.add_data(value, sink),
            b"event" => self.event.is_error = value == b"error",
            // llama.cpp's name for the data of an error.
            b"error" => {
                self.event.is_error = true;
                self.add_data(value, sink);
            }
            b"" | b"id" | b"retry" => {}
            _ => self.keep_stray(line),
        }
    }

    /// Adds a line to the data of an event. The event is read as soon as its JSON is complete:
    /// some servers send no empty line between two events.
    fn add_data(&mut self, data: &[u8], sink: &mut impl EventSink) {
        let data = data.trim_ascii();
        let event = &mut self.event;
        if event.data.is_empty() {
            if data == b"[DONE]" {
                return sink.done();
            }
            if data.is_empty() || sink.json(data, event.is_error) {
                return;
            }
            let mut scan = JsonScan::default();
            if !data.starts_with(b"{") && !data.starts_with(b"[") || scan.scan(data).is_some() {
                return self.unreadable(data, sink);
            }
            event.scan = scan;
            event.data.extend_from_slice(data);
            return;
        }
        if event.data.len() + data.len() >= self.limit {
            sink.unread(std::mem::take(&mut event.data).len() + data.len());
            sink.overlong_end();
            return;
        }
        event.data.push(b'\n');
        event.data.extend_from_slice(data);
        // The line break above stands outside strings in valid JSON.
        if event.scan.scan(data).is_some() {
            let json = std::mem::take(&mut event.data);
            event.is_bare = false;
            if !sink.json(&json, event.is_error) {
                self.unreadable(&json, sink);
            }
        }
    }

    fn end_event(&mut self, sink: &mut impl EventSink) {
        if !self.event.data.is_empty() {
            let data = std::mem::take(&mut self.event.data);
            self.unreadable(&data, sink);
        }
        self.event.is_error = false;
        self.event.is_bare = false;
    }

    fn unreadable(&mut self, data: &[u8], sink: &mut impl EventSink) {
        if self.event.is_error {
            return sink.error_text(data);
        }
        // A cut or damaged event says nothing to a reader.
        if !data.starts_with(b"{") && !data.starts_with(b"[") {
            self.keep_stray(data);
        }
        sink.unread(data.len());
    }

    fn keep_stray(&mut self, text: &[u8]) {
        let space = MAX_STRAY_BYTES.saturating_sub(self.stray.len());
        self.stray.extend_from_slice(&text[..text.len().min(space)]);
        if space > 0 {
            self.stray.push(b'\n');
        }
    }
}
