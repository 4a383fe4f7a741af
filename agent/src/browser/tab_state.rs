//! State of a tab, as the browser's events report it. Pure: an event changes the state, and may
//! need an answer.

use std::collections::HashSet;

use serde_json::{Value, json};

/// Console messages that a page keeps. Further ones are counted.
const CONSOLE_LIMIT: usize = 20;
/// Longest console message, in bytes.
const CONSOLE_LINE: usize = 500;
/// Requests in flight that are counted. A page with more never counts as settled.
const IN_FLIGHT_LIMIT: usize = 1000;

/// Answer to an event: method and parameters of a command.
type TabReply = (&'static str, Value);

/// HTTP status of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocumentStatus {
    loader: String,
    pub(super) code: u16,
    pub(super) text: String,
}

/// State of one tab. A *loader* is the browser's name for one load of a document.
#[derive(Debug, Default)]
pub(super) struct TabState {
    main_frame: String,
    /// Load whose document is in the tab.
    committed: Option<String>,
    /// Newest load that is complete.
    loaded: Option<String>,
    status: Option<DocumentStatus>,
    in_flight: HashSet<String>,
    console: Vec<String>,
    /// Number of console messages beyond [`CONSOLE_LIMIT`].
    console_more: usize,
    has_crashed: bool,
}

impl TabState {
    pub(super) fn new(main_frame: &str) -> TabState {
        TabState { main_frame: main_frame.to_owned(), ..TabState::default() }
    }

    /// Forgets the page, before the next one is loaded.
    pub(super) fn begin_page(&mut self) {
        *self = TabState::new(&self.main_frame);
    }

    /// Returns true if a document is in the tab, complete or not.
    pub(super) fn is_committed(&self) -> bool {
        self.committed.is_some()
    }

    /// Returns true if the document of the tab is complete.
    pub(super) fn is_loaded(&self) -> bool {
        self.has_crashed || self.committed.is_some() && self.committed == self.loaded
    }

    /// Returns true if no request of the page is in flight.
    pub(super) fn is_settled(&self) -> bool {
        self.is_loaded() && self.in_flight.is_empty()
    }

    pub(super) fn has_crashed(&self) -> bool {
        self.has_crashed
    }

    /// Returns the HTTP status of the document. Absent for a document without one.
    pub(super) fn status(&self) -> Option<&DocumentStatus> {
        self.status.as_ref().filter(|status| Some(&status.loader) == self.committed.as_ref())
    }

    /// Returns the errors and warnings of the page, oldest first, and notes about its dialogs and
    /// new tabs.
    pub(super) fn console(&self) -> Vec<String> {
        let more = (self.console_more > 0).then(|| format!("… {} more messages", self.console_more));
        self.console.iter().cloned().chain(more).collect()
    }

    /// Adds a message of the console.
    pub(super) fn note(&mut self, text: &str) {
        if self.console.len() >= CONSOLE_LIMIT {
            self.console_more += 1;
        } else {
            let end = text.floor_char_boundary(CONSOLE_LINE);
            self.console.push(if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() });
        }
    }

    /// Applies an event. Returns the command that answers it, if it needs an answer.
    pub(super) fn event(&mut self, method: &str, params: &Value) -> Option<TabReply> {
        let text = |pointer: &str| params.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match method {
            "Page.frameNavigated" if params["frame"]["parentId"].is_null() => {
                self.committed = Some(text("/frame/loaderId").to_owned());
                self.in_flight.clear();
            }
            "Page.lifecycleEvent" if text("/name") == "load" && text("/frameId") == self.main_frame => {
                self.loaded = Some(text("/loaderId").to_owned());
            }
            "Network.requestWillBeSent" if self.in_flight.len() < IN_FLIGHT_LIMIT => {
                self.in_flight.insert(text("/requestId").to_owned());
            }
            "Network.loadingFinished" | "Network.loadingFailed" => {
                self.in_flight.remove(text("/requestId"));
            }
            "Network.responseReceived" if text("/type") == "Document" && text("/frameId") == self.main_frame => {
                self.status = Some(DocumentStatus {
                    loader: text("/loaderId").to_owned(),
                    code: params["response"]["status"].as_u64().unwrap_or_default() as u16,
                    text: text("/response/statusText").to_owned(),
                });
            }
            "Runtime.consoleAPICalled" if ["error", "warning", "assert"].contains(&text("/type")) => {
                let arguments = params["args"].as_array().map(Vec::as_slice).unwrap_or_default();
                let words: Vec<String> = arguments.iter().map(console_argument).collect();
                self.note(&format!("{}: {}", text("/type"), words.join(" ")));
            }
            "Runtime.exceptionThrown" => {
                let description = text("/exceptionDetails/exception/description");
                let words = if description.is_empty() { text("/exceptionDetails/text") } else { description };
                self.note(&format!("uncaught: {words}"));
            }
            // No page asks for its icon by itself.
            "Log.entryAdded" if text("/entry/level") == "error" && !text("/entry/url").ends_with("/favicon.ico") => {
                self.note(&format!("error: {} {}", text("/entry/text"), text("/entry/url")));
            }
            "Page.windowOpen" => self.note(&format!("a new tab was not opened: {}", text("/url"))),
            "Page.javascriptDialogOpening" => {
                // `confirm` and `prompt` are answered as by a person who cancels them.
                let accept = ["alert", "beforeunload"].contains(&text("/type"));
                self.note(&format!("{}: {}", text("/type"), text("/message")));
                return Some(("Page.handleJavaScriptDialog", json!({ "accept": accept })));
            }
            "Inspector.targetCrashed" => self.has_crashed = true,
            _ => {}
        }
        None
    }
}

/// Returns an argument of a console call as text.
fn console_argument(argument: &Value) -> String {
    match (&argument["value"], argument["description"].as_str()) {
        (Value::String(text), _) => text.clone(),
        (Value::Null, Some(description)) => description.to_owned(),
        (value, _) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tab(events: &[(&str, Value)]) -> TabState {
        let mut tab = TabState::new("main");
        events.iter().for_each(|(method, params)| assert_eq!(tab.event(method, params), None));
        tab
    }

    fn navigated(loader: &str) -> (&'static str, Value) {
        ("Page.frameNavigated", json!({ "frame": { "id": "main", "loaderId": loader } }))
    }

    fn lifecycle(frame: &str, loader: &str) -> (&'static str, Value) {
        ("Page.lifecycleEvent", json!({ "frameId": frame, "loaderId": loader, "name": "load" }))
    }

    #[test]
    fn page_is_loaded_when_its_own_document_is() {
        assert!(tab(&[navigated("1"), lifecycle("main", "1")]).is_loaded());
        assert!(!tab(&[navigated("1"), lifecycle("frame", "1")]).is_loaded(), "only a frame is complete");
        assert!(!tab(&[navigated("1"), lifecycle("main", "1"), navigated("2")]).is_loaded(), "a script went on");
        assert!(!tab(&[]).is_loaded());
    }

    #[test]
    fn requests_in_flight_keep_the_page_unsettled() {
        let sent = ("Network.requestWillBeSent", json!({ "requestId": "r" }));
        let failed = ("Network.loadingFailed", json!({ "requestId": "r" }));
        let loaded = [navigated("1"), sent, lifecycle("main", "1")];
        assert!(!tab(&loaded).is_settled());
        assert!(tab(&[&loaded[..], &[failed]].concat()).is_settled());
    }

    #[test]
    fn status_is_that_of_the_document_in_the_tab() {
        let response = |loader: &str, frame: &str| {
            let response = json!({ "status": 404, "statusText": "Not Found" });
            let params = json!({ "type": "Document", "frameId": frame, "loaderId": loader, "response": response });
            ("Network.responseReceived", params)
        };
        let code = |events: &[(&str, Value)]| tab(events).status().map(|status| status.code);
        assert_eq!(code(&[response("1", "main"), navigated("1")]), Some(404));
        assert_eq!(code(&[response("1", "main"), navigated("2")]), None);
        assert_eq!(code(&[response("1", "frame"), navigated("1")]), None);
    }

    #[test]
    fn console_is_bounded() {
        let mut tab = TabState::new("main");
        for n in 0..CONSOLE_LIMIT + 5 {
            tab.note(&format!("{n}{}", "é".repeat(CONSOLE_LINE)));
        }
        let console = tab.console();
        assert_eq!(console.len(), CONSOLE_LIMIT + 1);
        assert_eq!(console[CONSOLE_LIMIT], "… 5 more messages");
        assert!(console.iter().all(|line| line.len() <= CONSOLE_LINE + '…'.len_utf8()));
        tab.begin_page();
        assert!(tab.console().is_empty());
    }

    #[test]
    fn dialogs_are_answered_and_noted() {
        for (kind, accept) in [("alert", true), ("beforeunload", true), ("confirm", false), ("prompt", false)] {
            let mut tab = TabState::new("main");
            let reply = tab.event("Page.javascriptDialogOpening", &json!({ "type": kind, "message": "sure?" }));
            assert_eq!(reply, Some(("Page.handleJavaScriptDialog", json!({ "accept": accept }))));
            assert_eq!(tab.console(), [format!("{kind}: sure?")]);
        }
    }
}
