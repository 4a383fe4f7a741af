//! Loads a page into a tab and reads it.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    BrowserError,
    cdp::{CdpConnection, CdpError},
    tab_state::TabState,
};
use crate::clock;

/// Longest wait for the requests that a page makes when it is complete.
const SETTLE_LIMIT: Duration = Duration::from_secs(1);
/// Time without a request after which a page counts as settled.
const QUIET_TIME: Duration = Duration::from_millis(50);
/// Time limit of reading a page. A page whose script never ends exceeds it.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Size limit of a page's HTML and of its text, in UTF-16 units.
const HTML_LIMIT: usize = 2 * 1024 * 1024;
/// Size of the pictures, in pixels.
const VIEWPORT: (u32, u32) = (1280, 800);

/// Reads the document in a world of its own, which no script of the page can change.
const READ_DOCUMENT: &str = "(limit => {
    const root = document.documentElement, html = root ? root.outerHTML : '';
    const isHtml = /html/.test(document.contentType);
    const text = isHtml || !document.body ? '' : document.body.innerText;
    return { url: location.href, title: document.title, html: html.slice(0, limit),
        text: isHtml ? null : text.slice(0, limit), bytes: html.length };
})";

/// Page, as the browser shows it.
#[derive(Debug)]
pub struct PageSnapshot {
    /// Address after all redirects.
    pub url: String,
    pub title: String,
    /// HTML of the document as scripts have left it, cut to a limit.
    pub html: String,
    /// Text of a document that is no HTML.
    pub text: Option<String>,
    /// Size of the whole HTML, in UTF-16 units, if `html` is cut.
    pub whole: Option<u64>,
    /// HTTP status other than 2xx, such as `404 Not Found`.
    pub failed_status: Option<String>,
    /// Errors of the page, dialogs and tabs that it would have opened.
    pub console: Vec<String>,
    /// Picture of the visible part: JPEG.
    pub screenshot: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct DocumentReading {
    url: String,
    title: String,
    html: String,
    text: Option<String>,
    bytes: u64,
}

/// Tab of the browser.
#[derive(Debug, Clone)]
pub(super) struct ChromiumTab {
    session: String,
    frame: String,
}

/// Stops the load of a call that was interrupted.
struct LoadGuard<'a> {
    cdp: &'a CdpConnection,
    session: &'a str,
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        self.cdp.send(self.session, "Page.stopLoading", json!({}));
    }
}

impl ChromiumTab {
    /// Opens an empty tab.
    pub(super) async fn open(cdp: &CdpConnection) -> Result<ChromiumTab, CdpError> {
        let created = cdp.call(None, "Target.createTarget", json!({ "url": "about:blank" })).await?;
        let target = text(&created, "targetId");
        let attach = json!({ "targetId": target, "flatten": true });
        let session = text(&cdp.call(None, "Target.attachToTarget", attach).await?, "sessionId");
        // The main frame of a tab has the name of its target.
        cdp.add_tab(&session, TabState::new(&target));
        let tab = ChromiumTab { session, frame: target };
        // Bodies of answers stay out of the browser's memory.
        let network = json!({ "maxTotalBufferSize": 1, "maxResourceBufferSize": 1 });
        let (width, height) = VIEWPORT;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        for (method, params) in [
            ("Page.enable", json!({})),
            ("Page.setLifecycleEventsEnabled", json!({ "enabled": true })),
            ("Runtime.enable", json!({})),
            ("Log.enable", json!({})),
            ("Network.enable", network),
            ("Emulation.setDeviceMetricsOverride", metrics),
        ] {
            tab.call(cdp, method, params).await?;
        }
        Ok(tab)
    }

    /// Closes the tab, without waiting for its page.
    pub(super) fn close(&self, cdp: &CdpConnection) {
        cdp.send(&self.session, "Page.close", json!({}));
    }

    /// Loads `url` and reads the page. After `limit`, a page that is not complete is read as it
    /// stands.
    pub(super) async fn load(
        &self,
        cdp: &CdpConnection,
        url: &str,
        limit: Duration,
    ) -> Result<PageSnapshot, BrowserError> {
        let guard = LoadGuard { cdp, session: &self.session };
        cdp.with_tab(&self.session, TabState::begin_page)?;
        let loaded = async {
            let navigated = self.call(cdp, "Page.navigate", json!({ "url": url })).await?;
            if navigated["isDownload"] == true {
                return Err(BrowserError::Download);
            }
            if let Some(error) = navigated["errorText"].as_str() {
                return Err(BrowserError::Unreachable(error.to_owned()));
            }
            // Without a loader, the address is another place on the page that is there already.
            if !navigated["loaderId"].is_null() {
                cdp.until(&self.session, TabState::is_loaded).await?;
            }
            Ok(())
        };
        let in_time = tokio::select! {
            done = loaded => done.map(|()| true)?,
            () = clock::sleep(limit) => false,
        };
        if !in_time {
            if !cdp.with_tab(&self.session, |tab| tab.is_committed())? {
                return Err(BrowserError::NoAnswer(limit));
            }
            cdp.with_tab(&self.session, |tab| {
                tab.note(&format!("the page was still loading after {} s", limit.as_secs()));
            })?;
        } else {
            self.settle(cdp).await?;
        }
        drop(guard);
        self.read(cdp).await
    }

    /// Returns when the page has made its first requests and they are answered.
    async fn settle(&self, cdp: &CdpConnection) -> Result<(), BrowserError> {
        let settled = async {
            loop {
                cdp.until(&self.session, TabState::is_settled).await?;
                tokio::time::sleep(QUIET_TIME).await;
                if cdp.with_tab(&self.session, |tab| tab.is_settled())? {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            done = settled => done,
            () = clock::sleep(SETTLE_LIMIT) => Ok(()),
        }
    }

    /// Reads the page in the tab.
    async fn read(&self, cdp: &CdpConnection) -> Result<PageSnapshot, BrowserError> {
        let document = self.in_time(self.document(cdp)).await?;
        let picture = json!({ "format": "jpeg", "quality": 75, "optimizeForSpeed": true });
        let screenshot = match self.in_time(self.call(cdp, "Page.captureScreenshot", picture)).await {
            Ok(picture) => BASE64_STANDARD.decode(text(&picture, "data")).ok(),
            // A page without a picture is still worth its text.
            Err(_) => None,
        };
        let (has_crashed, failed_status, console) = cdp.with_tab(&self.session, |tab| {
            let failed = tab.status().filter(|status| !(200..300).contains(&status.code));
            let failed = failed.map(|status| format!("{} {}", status.code, status.text).trim_end().to_owned());
            (tab.has_crashed(), failed, tab.console())
        })?;
        if has_crashed {
            return Err(BrowserError::Crashed);
        }
        let DocumentReading { url, title, html, text, bytes } = document;
        let whole = (bytes > HTML_LIMIT as u64).then_some(bytes);
        Ok(PageSnapshot { url, title, html, text, whole, failed_status, console, screenshot })
    }

    async fn document(&self, cdp: &CdpConnection) -> Result<DocumentReading, CdpError> {
        let world = self.call(cdp, "Page.createIsolatedWorld", json!({ "frameId": self.frame })).await?;
        let expression = format!("{READ_DOCUMENT}({HTML_LIMIT})");
        let params = json!({
            "expression": expression, "returnByValue": true, "contextId": world["executionContextId"],
        });
        let mut evaluated = self.call(cdp, "Runtime.evaluate", params).await?;
        serde_json::from_value(evaluated["result"]["value"].take())
            .map_err(|error| CdpError::Rejected { method: "Runtime.evaluate", message: error.to_string() })
    }

    /// Runs a command that a page in an endless script would never answer.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, CdpError>>) -> Result<T, BrowserError> {
        tokio::select! {
            done = work => Ok(done?),
            () = clock::sleep(READ_LIMIT) => Err(BrowserError::Unresponsive),
        }
    }

    async fn call(&self, cdp: &CdpConnection, method: &'static str, params: Value) -> Result<Value, CdpError> {
        cdp.call(Some(&self.session), method, params).await
    }
}

fn text(answer: &Value, field: &str) -> String {
    answer[field].as_str().unwrap_or_default().to_owned()
}
